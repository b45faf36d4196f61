//! What is seen: objects of one kind at one place, kept as bytes and read when they are needed.
//!
//! A member may hold many thousands of shards, most of which nobody looks at for days; as bytes they take a tenth of the room.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use landfall_plan::propagation::{Mark, read_mark};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;

use crate::kinds::{KindId, Row};

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
    bytes: Box<[u8]>,
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
        Self {
            uid: text(metadata, "uid"),
            version: text(metadata, "resourceVersion"),
            deleting: metadata.and_then(|m| m.get("deletionTimestamp")).is_some_and(|time| !time.is_null()),
            mark: read_mark(&object),
            bytes: serde_json::to_vec(&object).unwrap_or_default().into(),
            read: Mutex::default(),
        }
    }

    /// The object.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
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
    synced: AtomicBool,
    unserved: AtomicBool,
}

impl Shelf {
    /// An empty one, not read yet.
    pub fn new(row: Arc<Row>) -> Self {
        Self {
            row,
            objects: RwLock::default(),
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
        true
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

    /// Replaces everything by what a list found; gives the keys of what is different now.
    pub fn replace(&self, listed: HashMap<Key, Arc<Seen>>) -> Vec<Key> {
        let mut objects = self.objects.write();
        let mut changed: Vec<Key> =
            objects.keys().filter(|key| !listed.contains_key(*key)).cloned().collect();
        let differs =
            |key: &Key, seen: &Seen| objects.get(key).is_none_or(|there| there.version != seen.version);
        changed.extend(listed.iter().filter(|(key, seen)| differs(key, seen)).map(|(key, _)| key.clone()));
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
