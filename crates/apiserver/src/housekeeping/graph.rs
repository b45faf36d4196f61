//! Who owns whom: a small graph of the objects that have owners, and of those whose deletion waits for dependents.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use landfall_api::meta;
use serde_json::Value;

use super::client::{Event, Place};

/// The finalizer of an object whose dependents are deleted first.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents stay.
pub const ORPHAN: &str = "orphan";

/// The finalizer of an object that has shards in member clusters. From [`ORPHAN`] its holder learns that shards are to be
/// let go, so that one stays until this one is gone.
const FEDERATED: &str = "landfall.dev/shards";

/// An object's uid.
pub type Uid = Arc<str>;

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its uid.
    pub uid: Uid,
    /// Its group.
    pub group: Arc<str>,
    /// Its kind.
    pub kind: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Whether its foreground deletion waits for this object.
    pub blocks: bool,
}

/// The owners an object names.
pub fn owners(object: &Value) -> Vec<Owner> {
    let references = object.get("metadata").and_then(|m| m.get("ownerReferences")).and_then(Value::as_array);
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    references
        .into_iter()
        .flatten()
        .map(|reference| {
            let version = text(reference, "apiVersion");
            let group = version.rsplit_once('/').map_or("", |(group, _)| group);
            Owner {
                uid: text(reference, "uid").into(),
                group: group.into(),
                kind: text(reference, "kind").into(),
                name: text(reference, "name").into(),
                blocks: reference.get("blockOwnerDeletion").and_then(Value::as_bool).unwrap_or(false),
            }
        })
        .collect()
}

/// Whether an object is being deleted and waits for its dependents to go first.
pub fn waits_for_dependents(object: &Value) -> bool {
    meta::deleting(object) && meta::finalizers(object).any(|f| f == FOREGROUND)
}

/// Whether an object is being deleted and waits for its dependents to be let go.
pub fn waits_for_orphans(object: &Value) -> bool {
    let has = |name: &str| meta::finalizers(object).any(|f| f == name);
    meta::deleting(object) && has(ORPHAN) && !has(FEDERATED)
}

#[derive(Debug)]
struct Node {
    place: Place,
    owners: Vec<Owner>,
}

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Work {
    /// An object with owners: are they there?
    Dependent(Uid),
    /// An object whose deletion waits for its dependents, one way or the other.
    Owner(Uid),
}

/// The graph. Its size grows with objects that have owners, not with all objects.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: HashMap<Uid, Node>,
    dependents: HashMap<Uid, BTreeSet<Uid>>,
    /// Objects whose deletion waits, and whether it is for dependents to be let go (not deleted).
    waiting: HashMap<Uid, (Place, bool)>,
    /// Uids by place, of nodes and of waiting ones: an object may be replaced by another of the same name unseen.
    places: HashMap<Place, Uid>,
}

impl Graph {
    /// Takes notice of an event; gives what should be looked at.
    pub fn observe(&mut self, event: &Event) -> Vec<Work> {
        let mut work = Vec::new();
        match event {
            Event::Put(place, object) => self.put(place, object, &mut work),
            Event::Gone(place, object) => {
                let uid: Uid = meta::uid(object).into();
                self.replaced(place, &uid, &mut work);
                self.gone(&uid, &mut work);
            }
            Event::Synced => {}
        }
        work
    }

    /// Where an object with owners is.
    pub fn place(&self, uid: &str) -> Option<&Place> {
        self.nodes.get(uid).map(|node| &node.place).or_else(|| self.waiting.get(uid).map(|(place, _)| place))
    }

    /// Whether an object has been seen waiting for its dependents to be let go. Only then all dependents it had at that
    /// time are known here.
    pub fn is_orphaning(&self, uid: &str) -> bool {
        self.waiting.get(uid).is_some_and(|(_, orphans)| *orphans)
    }

    /// The objects that name this one as owner, and whether they block it.
    pub fn dependents(&self, uid: &str) -> Vec<(Uid, Place, bool)> {
        let of = |dependent: &Uid| {
            let node = self.nodes.get(dependent)?;
            let blocks = node.owners.iter().any(|owner| *owner.uid == *uid && owner.blocks);
            Some((dependent.clone(), node.place.clone(), blocks))
        };
        self.dependents.get(uid).into_iter().flatten().filter_map(of).collect()
    }

    /// Whether an object waits for its dependents to be deleted or let go.
    pub fn is_waiting(&self, uid: &str) -> bool {
        self.waiting.contains_key(uid)
    }

    /// How many objects with owners are known.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether no object with owners is known.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn put(&mut self, place: &Place, object: &Value, work: &mut Vec<Work>) {
        let uid: Uid = meta::uid(object).into();
        if uid.is_empty() {
            return;
        }
        self.replaced(place, &uid, work);
        let owners = owners(object);
        let before = self.nodes.get(&uid).map(|node| node.owners.clone()).unwrap_or_default();
        if before != owners {
            self.relate(&uid, place, &before, owners, work);
        }
        let orphans = waits_for_orphans(object);
        if orphans || waits_for_dependents(object) {
            let before = self.waiting.insert(uid.clone(), (place.clone(), orphans));
            // Also when a second delete changes its mind about the dependents.
            if before.is_none_or(|(_, before)| before != orphans) {
                self.places.insert(place.clone(), uid.clone());
                work.extend(self.dependents.get(&uid).into_iter().flatten().cloned().map(Work::Dependent));
            }
            work.push(Work::Owner(uid));
        } else if self.waiting.remove(&uid).is_some() && !self.nodes.contains_key(&uid) {
            self.places.remove(place);
        }
    }

    fn relate(&mut self, uid: &Uid, place: &Place, before: &[Owner], now: Vec<Owner>, work: &mut Vec<Work>) {
        for owner in before {
            if !now.iter().any(|o| o.uid == owner.uid) {
                self.unlink(&owner.uid, uid);
            }
            // One that no longer blocks may let its owner go.
            if self.waiting.contains_key(&owner.uid) {
                work.push(Work::Owner(owner.uid.clone()));
            }
        }
        for owner in &now {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
        }
        if now.is_empty() {
            self.nodes.remove(uid);
            if !self.waiting.contains_key(uid) {
                self.places.remove(place);
            }
            return;
        }
        self.nodes.insert(uid.clone(), Node { place: place.clone(), owners: now });
        self.places.insert(place.clone(), uid.clone());
        work.push(Work::Dependent(uid.clone()));
    }

    /// Another object stood at this place before: it must be gone.
    fn replaced(&mut self, place: &Place, uid: &Uid, work: &mut Vec<Work>) {
        if let Some(other) = self.places.get(place).filter(|other| *other != uid).cloned() {
            self.gone(&other, work);
        }
    }

    fn gone(&mut self, uid: &Uid, work: &mut Vec<Work>) {
        if let Some((place, _)) = self.waiting.remove(uid) {
            self.places.remove(&place);
        }
        if let Some(node) = self.nodes.remove(uid) {
            self.places.remove(&node.place);
            for owner in &node.owners {
                self.unlink(&owner.uid, uid);
                if self.waiting.contains_key(&owner.uid) {
                    work.push(Work::Owner(owner.uid.clone()));
                }
            }
        }
        work.extend(self.dependents.get(uid).into_iter().flatten().cloned().map(Work::Dependent));
    }

    fn unlink(&mut self, owner: &Uid, dependent: &Uid) {
        if let Some(set) = self.dependents.get_mut(owner) {
            set.remove(dependent);
            if set.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }
}
