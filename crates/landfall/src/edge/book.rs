//! `Book`: what the hub told this edge, in memory and on disk, whole at any time: plans of services, routes, certificates.
//!
//! What the hub says comes in through [`Book::replace`], [`Book::put`] and [`Book::remove`]; who needs it waits for new
//! [`Plans`]. On disk there is one file with all of it, written at most once a second, from which an edge starts when the
//! hub is away. It holds keys of certificates, and is readable by its owner alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use landfall_api::landfall::{
    FEDERATION_PLAN, GroupPlanSpec, PlanFederation, RoutePlanSpec, SYSTEM_NAMESPACE, TrafficPlanSpec,
};
use landfall_proxy::Certificate;
use landfall_runtime::clock;
use tokio::sync::watch;

use super::file;

/// The file in the data directory.
const FILE: &str = "plans.json";
/// The file is written at most so often, and no more than a tenth of the time is spent on it.
const WRITE_EVERY: Duration = Duration::from_secs(1);
const WRITE_SHARE: u32 = 10;

/// The place of a plan: namespace and name.
pub(crate) type Key = (String, String);

/// All that was told, at one moment; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plans {
    /// Plans of services.
    pub(crate) services: OrdMap<Key, Arc<TrafficPlanSpec>>,
    /// What is carried.
    pub(crate) routes: OrdMap<Key, Arc<RoutePlanSpec>>,
    /// With what: certificates, by the name of their Secret.
    pub(crate) certificates: OrdMap<String, Arc<Certificate>>,
    /// The group it belongs to, by its name.
    pub(crate) groups: OrdMap<String, Arc<GroupPlanSpec>>,
    /// The federation itself, if its plan was seen.
    pub(crate) federation: Option<Arc<PlanFederation>>,
    /// Which kinds were told as a whole, by the hub or by the file.
    pub(crate) told: Told,
}

/// Which kinds were told as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    services: bool,
    routes: bool,
    certificates: bool,
}

impl Plans {
    /// Whether there is all that a request needs: with a part of it, it would be told of routes that there are none.
    pub(crate) fn are_whole(&self) -> bool {
        let Told { services, routes, certificates } = self.told;
        self.federation.is_some() && services && routes && certificates
    }

    /// These are whole, as far as the federation is known.
    fn wholly_told(self) -> Self {
        let known = self.federation.is_some();
        Self { told: Told { services: known, routes: known, certificates: known }, ..self }
    }
}

/// One kind of what is told.
pub(crate) trait Page: Clone + PartialEq + Sized {
    /// What is there at a place.
    fn get(plans: &Plans, key: &Key) -> Option<Arc<Self>>;
    /// Puts it there.
    fn put(plans: &mut Plans, key: Key, page: Arc<Self>);
    /// Takes it away.
    fn remove(plans: &mut Plans, key: &Key);
    /// Takes all of this kind away: those that are there now are told next.
    fn clear(plans: &mut Plans);
}

impl Page for TrafficPlanSpec {
    fn get(plans: &Plans, key: &Key) -> Option<Arc<Self>> {
        plans.services.get(key).cloned()
    }

    fn put(plans: &mut Plans, key: Key, page: Arc<Self>) {
        if is_federation(&key) {
            plans.federation = page.federation.clone().map(Arc::new);
        } else {
            plans.services.insert(key, page);
        }
    }

    fn remove(plans: &mut Plans, key: &Key) {
        if is_federation(key) {
            plans.federation = None;
        } else {
            plans.services.remove(key);
        }
    }

    fn clear(plans: &mut Plans) {
        plans.services.clear();
        plans.federation = None;
        plans.told.services = true;
    }
}

impl Page for RoutePlanSpec {
    fn get(plans: &Plans, key: &Key) -> Option<Arc<Self>> {
        plans.routes.get(key).cloned()
    }

    fn put(plans: &mut Plans, key: Key, page: Arc<Self>) {
        plans.routes.insert(key, page);
    }

    fn remove(plans: &mut Plans, key: &Key) {
        plans.routes.remove(key);
    }

    fn clear(plans: &mut Plans) {
        plans.routes.clear();
        plans.told.routes = true;
    }
}

impl Page for Certificate {
    fn get(plans: &Plans, key: &Key) -> Option<Arc<Self>> {
        plans.certificates.get(&key.1).cloned()
    }

    fn put(plans: &mut Plans, key: Key, page: Arc<Self>) {
        plans.certificates.insert(key.1, page);
    }

    fn remove(plans: &mut Plans, key: &Key) {
        plans.certificates.remove(&key.1);
    }

    fn clear(plans: &mut Plans) {
        plans.certificates.clear();
        plans.told.certificates = true;
    }
}

impl Page for GroupPlanSpec {
    fn get(plans: &Plans, key: &Key) -> Option<Arc<Self>> {
        plans.groups.get(&key.1).cloned()
    }

    fn put(plans: &mut Plans, key: Key, page: Arc<Self>) {
        plans.groups.insert(key.1, page);
    }

    fn remove(plans: &mut Plans, key: &Key) {
        plans.groups.remove(&key.1);
    }

    fn clear(plans: &mut Plans) {
        plans.groups.clear();
    }
}

fn is_federation(key: &Key) -> bool {
    key.0 == SYSTEM_NAMESPACE && key.1 == FEDERATION_PLAN
}

/// The plans of now.
pub(crate) struct Book {
    plans: watch::Sender<Plans>,
    path: PathBuf,
}

impl Book {
    /// Opens the book with what was on disk, if that can be read.
    pub(crate) fn open(dir: &Path) -> Self {
        let path = dir.join(FILE);
        let plans = match file::read(&path) {
            Ok(plans) => plans.wholly_told(),
            Err(why) => {
                tracing::warn!(file = %path.display(), why, "the plans on disk cannot be read; waiting for the hub");
                Plans::default()
            }
        };
        Self { plans: watch::Sender::new(plans), path }
    }

    /// The plans of now.
    pub(crate) fn now(&self) -> Plans {
        self.plans.borrow().clone()
    }

    /// Tells of changes.
    pub(crate) fn changes(&self) -> watch::Receiver<Plans> {
        self.plans.subscribe()
    }

    /// These are all of their kind.
    pub(crate) fn replace<P: Page>(&self, all: Vec<(Key, P)>) {
        self.plans.send_modify(|plans| {
            let before = plans.clone();
            P::clear(plans);
            for (key, page) in all {
                // What has not changed stays the same value, so that nobody works on it again.
                let same = P::get(&before, &key).filter(|old| **old == page);
                P::put(plans, key, same.unwrap_or_else(|| Arc::new(page)));
            }
        });
    }

    /// One is new or different.
    pub(crate) fn put<P: Page>(&self, key: Key, page: P) {
        self.plans.send_if_modified(|plans| {
            let new = P::get(plans, &key).is_none_or(|old| *old != page);
            if new {
                P::put(plans, key, Arc::new(page));
            }
            new
        });
    }

    /// One is gone.
    pub(crate) fn remove<P: Page>(&self, key: &Key) {
        self.plans.send_modify(|plans| P::remove(plans, key));
    }

    /// Keeps the file as the book is, for ever.
    pub(crate) async fn keep(&self) {
        let mut changes = self.changes();
        // What was read from the file need not be written to it.
        changes.mark_unchanged();
        while changes.changed().await.is_ok() {
            let (plans, path, began) =
                (changes.borrow_and_update().clone(), self.path.clone(), clock::instant());
            let written = tokio::task::spawn_blocking(move || file::write(&path, &plans)).await;
            if let Ok(Err(error)) = written {
                tracing::warn!(file = %self.path.display(), %error, "cannot write the plans to disk");
            }
            tokio::time::sleep(WRITE_EVERY.max(began.elapsed().saturating_mul(WRITE_SHARE))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(revision: i64) -> TrafficPlanSpec {
        TrafficPlanSpec { revision, ..TrafficPlanSpec::default() }
    }

    fn key(name: &str) -> Key {
        ("default".into(), name.into())
    }

    fn federation() -> (Key, TrafficPlanSpec) {
        let federation = PlanFederation { name: "f".into(), ..PlanFederation::default() };
        let plan = TrafficPlanSpec { federation: Some(federation), ..TrafficPlanSpec::default() };
        ((SYSTEM_NAMESPACE.into(), FEDERATION_PLAN.into()), plan)
    }

    #[test]
    fn a_book_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let book = Book::open(dir.path());
        assert!(book.now().services.is_empty());
        book.replace(vec![(key("a"), plan(1)), (key("b"), plan(2)), federation()]);
        let same = book.now().services[&key("a")].clone();
        book.replace(vec![(key("a"), plan(1)), (key("c"), plan(3)), federation()]);
        assert!(Arc::ptr_eq(&same, &book.now().services[&key("a")]), "what has not changed is the same");
        book.put(key("c"), plan(4));
        file::write(&book.path, &book.now()).unwrap();

        let again = Book::open(dir.path()).now();
        let revisions: Vec<(&str, i64)> =
            again.services.iter().map(|(key, plan)| (key.1.as_str(), plan.revision)).collect();
        assert_eq!(revisions, [("a", 1), ("c", 4)]);
        assert_eq!(again.federation.unwrap().name, "f");
        assert!(Book::open(dir.path()).now().are_whole(), "what was followed before is enough to begin with");
        book.remove::<TrafficPlanSpec>(&federation().0);
        book.remove::<TrafficPlanSpec>(&key("a"));
        assert!(book.now().federation.is_none());
        assert_eq!(book.now().services.len(), 1);
    }

    #[test]
    fn plans_are_whole_when_every_kind_was_told() {
        let dir = tempfile::tempdir().unwrap();
        let book = Book::open(dir.path());
        book.replace(vec![federation()]);
        book.put(key("r"), RoutePlanSpec::default());
        book.replace::<Certificate>(Vec::new());
        assert!(!book.now().are_whole(), "there may be more routes");
        book.replace(vec![(key("r"), RoutePlanSpec::default())]);
        assert!(book.now().are_whole());
    }

    #[test]
    fn a_damaged_file_is_no_reason_not_to_start() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "{\"services\": [{]").unwrap();
        assert!(Book::open(dir.path()).now().services.is_empty());
    }
}
