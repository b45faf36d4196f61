//! Random writes, restarts and compactions against a model that is too simple to be wrong.

use std::collections::BTreeMap;

use bytes::Bytes;
use landfall_store::embedded::Config;
use landfall_store::{Error, HistoryLimits, Revision, open_embedded};
use proptest::prelude::*;

use crate::battery::{Shared, next};

const KEYS: [&str; 6] = ["a/1", "a/2", "a/b/1", "b/1", "a", "c/1/2/3"];
const PREFIXES: [&str; 6] = ["", "a/", "a/b/", "a", "b/", "none/"];

#[derive(Clone, Debug)]
enum Step {
    Create { key: usize, size: usize },
    Update { key: usize, size: usize, stale: bool },
    Delete { key: usize, stale: bool },
    Compact { back: u64 },
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..KEYS.len();
    let size = 0..3000_usize;
    let stale = prop::bool::weighted(0.1);
    let step = prop_oneof![
        4 => (key.clone(), size.clone()).prop_map(|(key, size)| Step::Create { key, size }),
        5 => (key.clone(), size, stale).prop_map(|(key, size, stale)| Step::Update { key, size, stale }),
        3 => (key, stale).prop_map(|(key, stale)| Step::Delete { key, stale }),
        1 => (0..20_u64).prop_map(|back| Step::Compact { back }),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..60)
}

/// Value, creation, revision.
type Known = (Bytes, Revision, Revision);
type State = BTreeMap<&'static str, Known>;

/// What the store should be.
#[derive(Clone, Debug)]
struct Model {
    state: State,
    revision: Revision,
    oldest: Revision,
    /// Every state by revision, and every change as a line with its key.
    states: BTreeMap<Revision, State>,
    changes: Vec<(Revision, &'static str, String)>,
}

impl Model {
    fn new() -> Self {
        let states = BTreeMap::from([(1, State::new())]);
        Self { state: State::new(), revision: 1, oldest: 1, states, changes: Vec::new() }
    }

    fn note(&mut self, key: &'static str, sign: char, value: &Bytes) {
        self.states.insert(self.revision, self.state.clone());
        let line = format!("{sign}{key}={}@{}", String::from_utf8_lossy(value), self.revision);
        self.changes.push((self.revision, key, line));
    }

    fn put(&mut self, key: &'static str, value: &Bytes) -> Known {
        self.revision += 1;
        let created = self.state.get(key).map_or(self.revision, |(_, created, _)| *created);
        let known = (value.clone(), created, self.revision);
        self.state.insert(key, known.clone());
        self.note(key, '+', value);
        known
    }

    fn remove(&mut self, key: &'static str) -> Known {
        self.revision += 1;
        let (value, created, _) = self.state.remove(key).unwrap();
        self.note(key, '-', &value);
        (value, created, self.revision)
    }

    fn watched(&self, prefix: &str, after: Revision) -> Vec<String> {
        let concerns = |key: &str| {
            if prefix.is_empty() || prefix.ends_with('/') { key.starts_with(prefix) } else { key == prefix }
        };
        let wanted = self.changes.iter().filter(|(revision, key, _)| *revision > after && concerns(key));
        wanted.map(|(_, _, line)| line.clone()).collect()
    }
}

/// What a write gave, in the model's words.
fn outcome(result: Result<std::sync::Arc<landfall_store::Entry>, Error>) -> Result<Known, Option<Known>> {
    let known = |entry: &landfall_store::Entry| (entry.value.clone(), entry.created, entry.revision);
    match result {
        Ok(entry) => Ok(known(&entry)),
        Err(Error::Exists(entry)) => Err(Some(known(&entry))),
        Err(Error::Conflict(entry)) => Err(entry.map(|entry| known(&entry))),
        Err(other) => panic!("not {other}"),
    }
}

async fn write(store: &Shared, model: &mut Model, step: &Step) {
    let text = |size: usize| Bytes::from("v".repeat(size));
    let (got, expected) = match *step {
        Step::Create { key, size } => {
            let expected = match model.state.get(KEYS[key]) {
                Some(known) => Err(Some(known.clone())),
                None => Ok(model.put(KEYS[key], &text(size))),
            };
            (store.create(KEYS[key], text(size), None).await, expected)
        }
        Step::Update { key, size, stale } => {
            let current = model.state.get(KEYS[key]).cloned();
            let revision = current.as_ref().map_or(1, |known| known.2) - u64::from(stale);
            let expected = match current {
                Some(_) if !stale => Ok(model.put(KEYS[key], &text(size))),
                other => Err(other),
            };
            (store.update(KEYS[key], text(size), revision, None).await, expected)
        }
        Step::Delete { key, stale } => {
            let current = model.state.get(KEYS[key]).cloned();
            let revision = current.as_ref().map_or(1, |known| known.2) - u64::from(stale);
            let expected = match current {
                Some(_) if !stale => Ok(model.remove(KEYS[key])),
                other => Err(other),
            };
            (store.delete(KEYS[key], revision).await, expected)
        }
        Step::Compact { .. } | Step::Reopen => return,
    };
    assert_eq!(outcome(got), expected, "{step:?}");
}

async fn check(store: &Shared, model: &Model) {
    let read = |state: &landfall_store::Snapshot| -> BTreeMap<String, Known> {
        let row = |entry: &landfall_store::Entry| (entry.value.clone(), entry.created, entry.revision);
        state.range("", "").map(|entry| (entry.key.to_string(), row(entry))).collect()
    };
    let expected = |state: &State| -> BTreeMap<String, Known> {
        state.iter().map(|(key, known)| ((*key).to_owned(), known.clone())).collect()
    };
    assert_eq!(store.snapshot().revision(), model.revision);
    assert_eq!(read(&store.snapshot()), expected(&model.state));
    for (revision, state) in &model.states {
        match store.snapshot_at(*revision).await {
            Ok(found) => assert_eq!(read(&found), expected(state), "at {revision}"),
            Err(Error::TooOld { .. }) => assert!(*revision < model.oldest, "{revision} is gone"),
            Err(other) => panic!("not {other}"),
        }
        for prefix in PREFIXES {
            match store.watch(prefix, *revision) {
                Ok(mut watch) => {
                    let lines = model.watched(prefix, *revision);
                    assert_eq!(next(&mut watch, lines.len()).await, lines, "{prefix:?} after {revision}");
                    // Before the first batch a watch has not looked yet.
                    let reached = if lines.is_empty() { *revision } else { model.revision };
                    assert!(watch.yielded() >= reached, "{prefix:?} after {revision}");
                }
                Err(Error::TooOld { .. }) => assert!(*revision < model.oldest, "{revision} is gone"),
                Err(other) => panic!("not {other}"),
            }
        }
    }
}

async fn run(steps: Vec<Step>) {
    let directory = tempfile::tempdir().unwrap();
    let history = HistoryLimits { changes_max: 1000, bytes_max: 1 << 20 };
    let open = || open_embedded(Config { history, ..Config::new(directory.path()) }).unwrap();
    let mut store = open();
    let mut model = Model::new();
    let mut live = Some(store.watch("a/", 1).unwrap());
    for step in &steps {
        match step {
            Step::Reopen => {
                store.close().await;
                live = None;
                drop(store);
                store = open();
                check(&store, &model).await;
            }
            Step::Compact { back } => {
                let to = model.revision.saturating_sub(*back).max(1);
                store.compact(to).await.unwrap();
                model.oldest = model.oldest.max(to);
                if *back < 10 {
                    live = None;
                }
            }
            _ => write(&store, &mut model, step).await,
        }
    }
    check(&store, &model).await;
    if let Some(mut live) = live
        && model.oldest == 1
    {
        let lines = model.watched("a/", 1);
        assert_eq!(next(&mut live, lines.len()).await, lines, "the watch from the beginning");
    }
    store.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_is_as_the_model(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(run(steps));
    }
}
