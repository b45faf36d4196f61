//! Who wants what: claims, Services and Secrets of all sources.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use landfall_plan::routes::{Claim, Part, Standing, Wanted, What};
use parking_lot::Mutex;

use crate::shelf::Key;

/// What one source wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// What it wants for itself alone.
    pub claims: BTreeMap<Claim, Standing>,
    /// Services, or MultiClusterServices, that it names.
    pub services: BTreeSet<Key>,
    /// Secrets that it names in its namespace.
    pub secrets: BTreeSet<Wanted>,
    /// Groups of edges that carry it; those of no group when empty.
    pub groups: Vec<String>,
}

/// Everything, by source and by what they want.
#[derive(Debug, Default)]
pub(super) struct Index {
    inner: Mutex<Inner>,
}

/// A namespace and a name.
type Place = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
struct Inner {
    sources: HashMap<Key, Known>,
    claims: HashMap<What, BTreeMap<(Standing, Key), String>>,
    services: HashMap<Key, BTreeSet<Key>>,
    secrets: HashMap<Place, BTreeSet<(Key, Part)>>,
    /// Services that stand for MultiClusterServices.
    derived: HashMap<Key, Key>,
}

impl Index {
    /// Hears what a source wants, or that it wants nothing any more. Gives those who wanted or want the same as what is
    /// different, and the Secrets for which something is.
    pub(super) fn learn(&self, key: &Key, now: Option<Known>) -> (BTreeSet<Key>, BTreeSet<String>) {
        let mut inner = self.inner.lock();
        let before = match &now {
            Some(now) if inner.sources.get(key) == Some(now) => return (BTreeSet::new(), BTreeSet::new()),
            Some(now) => inner.sources.insert(key.clone(), now.clone()),
            None => inner.sources.remove(key),
        };
        let (before, now) = (before.unwrap_or_default(), now.unwrap_or_default());
        let mut others = BTreeSet::new();
        for (claim, standing) in
            before.claims.iter().filter(|(claim, was)| now.claims.get(claim) != Some(was))
        {
            inner.unclaim(key, claim, standing, &mut others);
        }
        for (claim, standing) in now.claims.iter().filter(|(claim, is)| before.claims.get(claim) != Some(is))
        {
            let all = inner.claims.entry(claim.what.clone()).or_default();
            others.extend(all.keys().map(|(_, other)| other.clone()));
            all.insert((standing.clone(), key.clone()), claim.purpose.clone());
        }
        others.remove(key);
        for service in before.services.difference(&now.services) {
            remove(&mut inner.services, service, key);
        }
        for service in now.services.difference(&before.services) {
            inner.services.entry(service.clone()).or_default().insert(key.clone());
        }
        let mut secrets = BTreeSet::new();
        let at = |wanted: &Wanted| (key.namespace.clone(), Arc::from(wanted.name.as_str()));
        for wanted in before.secrets.difference(&now.secrets) {
            remove(&mut inner.secrets, &at(wanted), &(key.clone(), wanted.part));
            secrets.insert(wanted.name.clone());
        }
        for wanted in now.secrets.difference(&before.secrets) {
            inner.secrets.entry(at(wanted)).or_default().insert((key.clone(), wanted.part));
            secrets.insert(wanted.name.clone());
        }
        if before.groups != now.groups {
            // Edges of other groups need them now.
            secrets.extend(now.secrets.iter().map(|wanted| wanted.name.clone()));
        }
        (others, secrets)
    }

    /// Who has what a source claims, in words, if it is somebody else who wants it for something else.
    pub(super) fn holder(&self, key: &Key, claim: &Claim) -> Option<String> {
        let inner = self.inner.lock();
        let ((standing, holder), purpose) = inner.claims.get(&claim.what)?.first_key_value()?;
        let other = holder != key && (purpose.is_empty() || *purpose != claim.purpose);
        other.then(|| standing.source.clone())
    }

    /// The groups of edges that carry a source; none where nobody does.
    pub(super) fn groups(&self, key: &Key) -> Option<Vec<String>> {
        self.inner.lock().sources.get(key).map(|known| known.groups.clone())
    }

    /// All sources that groups of edges carry.
    pub(super) fn grouped(&self) -> Vec<(Key, Vec<String>)> {
        let inner = self.inner.lock();
        let all = inner.sources.iter().filter(|(_, known)| !known.groups.is_empty());
        all.map(|(key, known)| (key.clone(), known.groups.clone())).collect()
    }

    /// All sources that are carried.
    pub(super) fn all(&self) -> Vec<Key> {
        self.inner.lock().sources.keys().cloned().collect()
    }

    /// The sources that name a Service.
    pub(super) fn naming_service(&self, service: &Key) -> Vec<Key> {
        self.inner.lock().services.get(service).into_iter().flatten().cloned().collect()
    }

    /// The sources that name a Secret.
    pub(super) fn naming_secret(&self, secret: &Key) -> Vec<Key> {
        let inner = self.inner.lock();
        let all = inner.secrets.get(&(secret.namespace.clone(), secret.name.clone()));
        all.into_iter().flatten().map(|(key, _)| key.clone()).collect()
    }

    /// The groups whose edges need a Secret; none stands for the edges of no group.
    pub(super) fn needing(&self, secret: &Key) -> BTreeSet<Option<String>> {
        let inner = self.inner.lock();
        let all = inner.secrets.get(&(secret.namespace.clone(), secret.name.clone()));
        let mut groups = BTreeSet::new();
        for known in all.into_iter().flatten().filter_map(|(source, _)| inner.sources.get(source)) {
            groups.extend(known.groups.iter().cloned().map(Some));
            groups.extend(known.groups.is_empty().then_some(None));
        }
        groups
    }

    /// What is taken of a Secret.
    pub(super) fn parts(&self, secret: &Key) -> BTreeSet<Part> {
        let inner = self.inner.lock();
        let all = inner.secrets.get(&(secret.namespace.clone(), secret.name.clone()));
        all.into_iter().flatten().map(|(_, part)| *part).collect()
    }

    /// All Secrets that are named, by namespace and name.
    pub(super) fn secrets(&self) -> Vec<Place> {
        self.inner.lock().secrets.keys().cloned().collect()
    }

    /// Hears which Service stands for a MultiClusterService, or that none does.
    pub(super) fn derive(&self, from: &Key, service: Option<Key>) {
        let mut inner = self.inner.lock();
        inner.derived.retain(|_, other| other != from);
        if let Some(service) = service {
            inner.derived.insert(service, from.clone());
        }
    }

    /// The MultiClusterService that a Service stands for.
    pub(super) fn derived_from(&self, service: &Key) -> Option<Key> {
        self.inner.lock().derived.get(service).cloned()
    }
}

impl Inner {
    fn unclaim(&mut self, key: &Key, claim: &Claim, standing: &Standing, others: &mut BTreeSet<Key>) {
        let Some(all) = self.claims.get_mut(&claim.what) else { return };
        all.remove(&(standing.clone(), key.clone()));
        others.extend(all.keys().map(|(_, other)| other.clone()));
        if all.is_empty() {
            self.claims.remove(&claim.what);
        }
    }
}

fn remove<K: std::hash::Hash + Eq, V: Ord>(map: &mut HashMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = map.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kinds;

    fn key(name: &str) -> Key {
        let row = Kinds::default().find("networking.k8s.io", "Ingress").expect("a kind");
        Key { kind: row.id, namespace: "shop".into(), name: name.into() }
    }

    fn known(created: &str, host: &str, purpose: &str, secret: &str) -> Known {
        let what = What::Certificate(host.to_owned());
        let claim = Claim { what, purpose: purpose.to_owned(), implied: false };
        let standing =
            Standing { implied: false, created: (false, created.to_owned()), source: created.to_owned() };
        let wanted = Wanted { name: secret.to_owned(), part: Part::Certificate };
        Known {
            claims: [(claim, standing)].into(),
            services: BTreeSet::new(),
            secrets: [wanted].into(),
            groups: Vec::new(),
        }
    }

    #[test]
    fn the_oldest_holds_until_it_goes() {
        let index = Index::default();
        let holder = |name: &str, known: &Known| {
            let claim = known.claims.keys().next().expect("one");
            index.holder(&key(name), claim)
        };
        let (old, new) = (known("1", "a", "x", "s"), known("2", "a", "y", "s"));
        let same = known("3", "a", "x", "t");
        let names = |others: BTreeSet<Key>| {
            others.iter().map(|key| key.name.to_string()).collect::<Vec<_>>().join(" ")
        };
        let (others, secrets) = index.learn(&key("new"), Some(new.clone()));
        assert_eq!((names(others).as_str(), secrets.len()), ("", 1));
        assert_eq!(names(index.learn(&key("old"), Some(old.clone())).0), "new");
        assert_eq!(names(index.learn(&key("old"), Some(old.clone())).0), "", "no news");
        index.learn(&key("same"), Some(same.clone()));
        assert_eq!((holder("old", &old), holder("new", &new)), (None, Some("1".to_owned())));
        assert_eq!(holder("same", &same), None, "wants it for the same");
        assert_eq!(index.parts(&key("s")).len(), 1);
        assert_eq!(names(index.learn(&key("old"), None).0), "new same");
        assert_eq!((holder("new", &new), holder("same", &same)), (None, Some("2".to_owned())));
        index.learn(&key("new"), None);
        assert!(
            index.parts(&key("s")).is_empty()
                && index.groups(&key("same")).is_some()
                && index.groups(&key("old")).is_none()
        );
    }
}
