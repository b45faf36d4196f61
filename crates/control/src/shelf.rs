//! What is seen: objects of one kind at one place, kept as bytes and read when they are needed.
//!
//! A member may hold many thousands of shards, most of which nobody looks at for days; packed they take a small part of the room.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use landfall_plan::propagation::{Mark, read_mark};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;

use crate::kinds::{KindId, Row};
use crate::packed::Packed;

/// Which object, wherever it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Its kind.
    pub kind: KindId,
    /// Its namespace; empty where there is none.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl Key {
    /// `namespace/name`, or the name where there is no namespace.
    pub fn path(&self) -> String {
        if self.namespace.is_empty() {
            self.name.to_string()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }
}

/// An object as it was last seen.
#[derive(Debug)]
pub struct Seen {
    /// Its uid.
    pub uid: Box<str>,
    /// Its resourceVersion.
    pub version: Box<str>,
    /// It is being deleted.
    pub deleting: bool,
    /// Our marks on it.
    pub mark: Option<Mark>,
    packed: Packed,
    /// The same, read, as long as somebody keeps that.
    read: Mutex<Weak<Value>>,
}

impl Seen {
    /// Keeps an object. Lists leave out what is the same for all of them; it is put back.
    pub fn new(row: &Row, mut object: Value) -> Self {
        let text = |metadata: Option<&Value>, key: &str| -> Box<str> {
            metadata.and_then(|m| m.get(key)).and_then(Value::as_str).unwrap_or("").into()
        };
        if let Some(root) = object.as_object_mut() {
            root.entry("apiVersion").or_insert_with(|| row.api_version().into());
            root.entry("kind").or_insert_with(|| row.kind.clone().into());
            if let Some(metadata) = root.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        }
        let metadata = object.get("metadata");
        let (mark, bytes) = (read_mark(&object), serde_json::to_vec(&object).unwrap_or_default());
        // What is in Secrets is nobody's pattern: it would stay when they are gone.
        if mark.is_some() && row.kind != "Secret" {
            row.pattern.offer(&bytes);
        }
        Self {
            uid: text(metadata, "uid"),
            version: text(metadata, "resourceVersion"),
            deleting: metadata.and_then(|m| m.get("deletionTimestamp")).is_some_and(|time| !time.is_null()),
            mark,
            packed: row.pattern.pack(&bytes),
            read: Mutex::default(),
        }
    }

    /// The object.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.packed.unpack()).unwrap_or_default()
    }

    /// The same, without what is in it.
    fn outline(&self) -> Self {
        Self {
            uid: self.uid.clone(),
            version: self.version.clone(),
            deleting: self.deleting,
            mark: self.mark.clone(),
            packed: Packed::default(),
            read: Mutex::default(),
        }
    }

    /// Whether the other is the same, as far as this one remembers.
    fn is_as(&self, other: &Self) -> bool {
        let same = self.version == other.version && self.uid == other.uid;
        same && (self.packed.is_empty() || self.packed == other.packed)
    }

    /// Whether this one is older than the other. Versions that are no numbers cannot be compared: the later word wins.
    fn older_than(&self, other: &Self) -> bool {
        match (self.version.parse::<u64>(), other.version.parse::<u64>()) {
            (Ok(this), Ok(other)) => this < other,
            (Err(_), _) | (_, Err(_)) => false,
        }
    }
}

/// Objects that were read lately: while shards are on their way, the same ones are looked at again and again.
#[derive(Debug, Default)]
pub struct Recent {
    kept: Mutex<VecDeque<Arc<Value>>>,
}

impl Recent {
    /// How many are kept: all shards of some dozens of objects.
    const KEPT_MAX: usize = 4096;

    /// The object, read now or lately.
    pub fn read(&self, seen: &Seen) -> Arc<Value> {
        let mut known = seen.read.lock();
        if let Some(value) = known.upgrade() {
            return value;
        }
        let value = Arc::new(seen.value());
        *known = Arc::downgrade(&value);
        let mut kept = self.kept.lock();
        if kept.len() == Self::KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(value.clone());
        value
    }
}

/// All objects of one kind at one place.
#[derive(Debug)]
pub struct Shelf {
    /// Which kind.
    pub row: Arc<Row>,
    objects: RwLock<HashMap<Key, Arc<Seen>>>,
    /// What was put here since the list that is under way began; none while there is none.
    put: Mutex<Option<HashSet<Key>>>,
    synced: AtomicBool,
    unserved: AtomicBool,
}

impl Shelf {
    /// An empty one, not read yet.
    pub fn new(row: Arc<Row>) -> Self {
        Self {
            row,
            objects: RwLock::default(),
            put: Mutex::default(),
            synced: AtomicBool::new(false),
            unserved: AtomicBool::new(false),
        }
    }

    /// The key of an object of this kind.
    pub fn key(&self, object: &Value) -> Option<Key> {
        let metadata = object.get("metadata")?;
        let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or("");
        let name = metadata.get("name").and_then(Value::as_str)?;
        Some(Key { kind: self.row.id, namespace: namespace.into(), name: name.into() })
    }

    /// Whether everything has been read since the place was last reached.
    pub fn synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Whether the place does not serve this kind.
    pub fn unserved(&self) -> bool {
        self.unserved.load(Ordering::Acquire)
    }

    /// Says that what is here may be old.
    pub fn doubt(&self) {
        self.synced.store(false, Ordering::Release);
    }

    /// Says whether the kind is served.
    pub fn set_unserved(&self, unserved: bool) {
        self.unserved.store(unserved, Ordering::Release);
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<Arc<Seen>> {
        self.objects.read().get(key).cloned()
    }

    /// Whether this version of an object is there.
    pub fn has(&self, key: &Key, version: &str) -> bool {
        self.objects.read().get(key).is_some_and(|there| &*there.version == version)
    }

    /// All keys.
    pub fn keys(&self) -> Vec<Key> {
        self.objects.read().keys().cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.objects.read().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.objects.read().is_empty()
    }

    /// Puts an object in its place, unless a newer one is there; whether it changed anything.
    pub fn put(&self, key: &Key, seen: Arc<Seen>) -> bool {
        let mut objects = self.objects.write();
        let there = objects.get(key);
        if there.is_some_and(|there| seen.older_than(there) || seen.version == there.version) {
            return false;
        }
        objects.insert(key.clone(), seen);
        if let Some(put) = &mut *self.put.lock() {
            put.insert(key.clone());
        }
        true
    }

    /// Says that everything is about to be listed.
    pub fn listing(&self) {
        *self.put.lock() = Some(HashSet::new());
    }

    /// Takes an object away; what was put there after `seen` stays. Whether it changed anything.
    pub fn take(&self, key: &Key, seen: Option<&Seen>) -> bool {
        let mut objects = self.objects.write();
        match (objects.get(key), seen) {
            (None, _) => false,
            (Some(there), Some(seen)) if seen.older_than(there) && there.uid != seen.uid => false,
            (Some(_), _) => objects.remove(key).is_some(),
        }
    }

    /// Forgets what is in an object that nobody will read again; that it is there, and which version, stays known.
    pub fn empty(&self, key: &Key, seen: &Arc<Seen>) {
        let mut objects = self.objects.write();
        if let Some(there) = objects.get_mut(key).filter(|there| Arc::ptr_eq(there, seen)) {
            *there = Arc::new(seen.outline());
        }
    }

    /// Replaces everything by what a list found; gives the keys of what is different now. What was put here while the list was
    /// made may be newer than the list, from which the watch goes on: it stays.
    pub fn replace(&self, mut listed: HashMap<Key, Arc<Seen>>) -> Vec<Key> {
        let mut objects = self.objects.write();
        // The list is at least as new as the newest that is in it: what was put here before that and is not in it was deleted since.
        let newest =
            listed.values().reduce(|one, other| if one.older_than(other) { other } else { one }).cloned();
        for key in self.put.lock().take().into_iter().flatten() {
            let Some(there) = objects.get(&key) else { continue };
            let newer = match listed.get(&key) {
                Some(seen) => seen.older_than(there),
                None => !newest.as_ref().is_some_and(|newest| there.older_than(newest)),
            };
            if newer {
                listed.insert(key, there.clone());
            }
        }
        let mut changed: Vec<Key> =
            objects.keys().filter(|key| !listed.contains_key(*key)).cloned().collect();
        for (key, seen) in &mut listed {
            match objects.get(key).filter(|there| there.is_as(seen)) {
                Some(there) => seen.clone_from(there),
                None => changed.push(key.clone()),
            }
        }
        *objects = listed;
        self.synced.store(true, Ordering::Release);
        changed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Kinds;

    fn shelf() -> Shelf {
        Shelf::new(Kinds::default().find("", "Service").unwrap())
    }

    fn seen(shelf: &Shelf, name: &str, version: &str) -> (Key, Arc<Seen>) {
        let object =
            json!({"metadata": {"name": name, "namespace": "shop", "uid": "u", "resourceVersion": version}});
        (shelf.key(&object).unwrap(), Arc::new(Seen::new(&shelf.row, object)))
    }

    /// What was deleted while a list was made stayed for as long as nobody listed again: the watch goes on after the deletion.
    #[test]
    fn a_list_tells_what_was_deleted_while_it_was_made() {
        let shelf = shelf();
        let [(_, old), (web, new), (other, later)] =
            [seen(&shelf, "web", "5"), seen(&shelf, "web", "10"), seen(&shelf, "other", "12")];
        shelf.put(&web, old);
        shelf.listing();
        shelf.put(&web, new.clone());
        shelf.replace(HashMap::from([(other.clone(), later)]));
        assert!(shelf.get(&web).is_none(), "the list is from a time when it was gone");
        // A list that may be older than what was written says nothing of it.
        let (_, earlier) = seen(&shelf, "other", "9");
        shelf.listing();
        shelf.put(&web, new);
        shelf.replace(HashMap::from([(other, earlier)]));
        assert!(shelf.get(&web).is_some());
    }

    #[test]
    fn an_old_word_does_not_undo_a_newer_one() {
        let shelf = shelf();
        let (key, five) = seen(&shelf, "web", "5");
        assert!(shelf.put(&key, five.clone()));
        assert!(!shelf.put(&key, seen(&shelf, "web", "4").1));
        assert!(!shelf.put(&key, five));
        assert!(shelf.put(&key, seen(&shelf, "web", "10").1));
        assert_eq!(&*shelf.get(&key).unwrap().version, "10");
    }

    #[test]
    fn a_list_does_not_undo_what_was_written_while_it_was_made() {
        let shelf = shelf();
        for (name, version) in [("a", "1"), ("b", "2")] {
            let (key, seen) = seen(&shelf, name, version);
            shelf.put(&key, seen);
        }
        let list = HashMap::from([seen(&shelf, "a", "1")]);
        shelf.listing();
        for (name, version) in [("a", "3"), ("c", "4")] {
            let (key, seen) = seen(&shelf, name, version);
            shelf.put(&key, seen);
        }
        let changed = shelf.replace(list);
        assert_eq!(changed, [seen(&shelf, "b", "2").0]);
        let version = |name: &str| Some(shelf.get(&seen(&shelf, name, "").0)?.version.to_string());
        assert_eq!([version("a"), version("b"), version("c")], [Some("3".into()), None, Some("4".into())]);
        // The next list knows better.
        shelf.listing();
        assert_eq!(shelf.replace(HashMap::from([seen(&shelf, "a", "2")])).len(), 2);
        assert_eq!([version("a"), version("c")], [Some("2".into()), None]);
    }

    #[test]
    fn what_was_emptied_is_known_but_not_read_again() {
        let shelf = shelf();
        let (key, first) = seen(&shelf, "web", "5");
        assert_eq!(first.value()["metadata"]["resourceVersion"], "5");
        shelf.put(&key, first.clone());
        shelf.empty(&key, &first);
        assert!(shelf.has(&key, "5"));
        assert_eq!(shelf.get(&key).unwrap().value(), Value::Null);
        assert!(shelf.replace(HashMap::from([seen(&shelf, "web", "5")])).is_empty());
        assert_eq!(shelf.get(&key).unwrap().value(), Value::Null, "still");
        // What has come since stays.
        let (_, newer) = seen(&shelf, "web", "6");
        shelf.put(&key, newer);
        shelf.empty(&key, &first);
        assert_eq!(shelf.get(&key).unwrap().value()["metadata"]["resourceVersion"], "6");
    }

    #[test]
    fn a_list_tells_what_is_different() {
        let shelf = shelf();
        for (name, version) in [("a", "1"), ("b", "2"), ("c", "3")] {
            let (key, seen) = seen(&shelf, name, version);
            shelf.put(&key, seen);
        }
        let listed = HashMap::from([seen(&shelf, "a", "1"), seen(&shelf, "b", "7"), seen(&shelf, "d", "8")]);
        assert!(!shelf.synced());
        let mut changed: Vec<String> = shelf.replace(listed).iter().map(|key| key.name.to_string()).collect();
        changed.sort();
        assert_eq!((changed.join(" ").as_str(), shelf.synced(), shelf.len()), ("b c d", true, 3));
        let value = shelf.get(&seen(&shelf, "a", "1").0).unwrap().value();
        assert_eq!((value["kind"].as_str(), value["apiVersion"].as_str()), (Some("Service"), Some("v1")));
    }
}
