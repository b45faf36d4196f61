//! `Book`: the plans that this edge knows, in memory and on disk, whole at any time.
//!
//! What the hub says comes in through [`Book::replace`], [`Book::put`] and [`Book::remove`]; who needs plans waits for a new
//! [`Plans`]. On disk there is one file with all of them, written at most once a second, from which an edge starts when the
//! hub is away.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use landfall_api::landfall::{FEDERATION_PLAN, PlanFederation, SYSTEM_NAMESPACE, TrafficPlanSpec};
use landfall_runtime::clock;
use landfall_runtime::files::write_whole;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// The file in the data directory.
const FILE: &str = "plans.json";
/// The file is written at most so often, and no more than a tenth of the time is spent on it.
const WRITE_EVERY: Duration = Duration::from_secs(1);
const WRITE_SHARE: u32 = 10;

/// The place of a plan: namespace and name.
pub(crate) type Key = (String, String);

/// All plans at one moment; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plans {
    /// Plans of services.
    pub(crate) services: OrdMap<Key, Arc<TrafficPlanSpec>>,
    /// The federation itself, if its plan was seen.
    pub(crate) federation: Option<Arc<PlanFederation>>,
}

impl Plans {
    fn put(&mut self, key: Key, plan: TrafficPlanSpec) {
        if key.0 == SYSTEM_NAMESPACE && key.1 == FEDERATION_PLAN {
            self.federation = plan.federation.map(Arc::new);
        } else {
            self.services.insert(key, Arc::new(plan));
        }
    }

    fn remove(&mut self, key: &Key) {
        if key.0 == SYSTEM_NAMESPACE && key.1 == FEDERATION_PLAN {
            self.federation = None;
        } else {
            self.services.remove(key);
        }
    }
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
        let plans = match read(&path) {
            Ok(plans) => plans,
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

    /// These are all plans.
    pub(crate) fn replace(&self, all: Vec<(Key, TrafficPlanSpec)>) {
        let mut plans = Plans::default();
        let before = self.now();
        for (key, plan) in all {
            // What has not changed stays the same value, so that nobody works on it again.
            match before.services.get(&key).filter(|old| ***old == plan) {
                Some(old) => _ = plans.services.insert(key, old.clone()),
                None => plans.put(key, plan),
            }
        }
        self.plans.send_replace(plans);
    }

    /// One plan is new or different.
    pub(crate) fn put(&self, key: Key, plan: TrafficPlanSpec) {
        self.plans.send_modify(|plans| plans.put(key, plan));
    }

    /// One plan is gone.
    pub(crate) fn remove(&self, key: &Key) {
        self.plans.send_modify(|plans| plans.remove(key));
    }

    /// Keeps the file as the book is, for ever.
    pub(crate) async fn keep(&self) {
        let mut changes = self.changes();
        // What was read from the file need not be written to it.
        changes.mark_unchanged();
        while changes.changed().await.is_ok() {
            let (plans, path, began) =
                (changes.borrow_and_update().clone(), self.path.clone(), clock::instant());
            let written = tokio::task::spawn_blocking(move || write(&path, &plans)).await;
            if let Ok(Err(error)) = written {
                tracing::warn!(file = %self.path.display(), %error, "cannot write the plans to disk");
            }
            tokio::time::sleep(WRITE_EVERY.max(began.elapsed().saturating_mul(WRITE_SHARE))).await;
        }
    }
}

/// What the file holds.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Written {
    federation: Option<PlanFederation>,
    services: Vec<WrittenPlan>,
}

#[derive(Serialize, Deserialize)]
struct WrittenPlan {
    namespace: String,
    name: String,
    spec: TrafficPlanSpec,
}

fn read(path: &Path) -> Result<Plans, String> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Plans::default()),
        Err(error) => return Err(error.to_string()),
    };
    let written: Written = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let services =
        written.services.into_iter().map(|plan| ((plan.namespace, plan.name), Arc::new(plan.spec)));
    Ok(Plans { services: services.collect(), federation: written.federation.map(Arc::new) })
}

fn write(path: &Path, plans: &Plans) -> std::io::Result<()> {
    let services = plans.services.iter().map(|((namespace, name), spec)| WrittenPlan {
        namespace: namespace.clone(),
        name: name.clone(),
        spec: (**spec).clone(),
    });
    let written = Written { federation: plans.federation.as_deref().cloned(), services: services.collect() };
    write_whole(path, &serde_json::to_vec(&written)?)
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
        write(&book.path, &book.now()).unwrap();

        let again = Book::open(dir.path()).now();
        let revisions: Vec<(&str, i64)> =
            again.services.iter().map(|(key, plan)| (key.1.as_str(), plan.revision)).collect();
        assert_eq!(revisions, [("a", 1), ("c", 4)]);
        assert_eq!(again.federation.unwrap().name, "f");
        book.remove(&federation().0);
        book.remove(&key("a"));
        assert!(book.now().federation.is_none());
        assert_eq!(book.now().services.len(), 1);
    }

    #[test]
    fn a_damaged_file_is_no_reason_not_to_start() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "{\"services\": [{]").unwrap();
        assert!(Book::open(dir.path()).now().services.is_empty());
    }
}
