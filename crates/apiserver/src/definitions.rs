//! Custom kinds as they come and go: definitions in the store become rows of the catalog.
//!
//! Reads:      CustomResourceDefinitions
//! Decides:    `crd::status_for` (names accepted, established), `crd::kinds`
//! Writes:     their status; the catalog of this server
//! Wakes on:   every write of a definition, here (before it is acknowledged) or through another hub (by watch)
//! Guarantees: idempotent; safe on several hubs at once

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use landfall_api::{Kind, Status, meta};
use landfall_store::{Entry, Error, Event, Revision, Snapshot};
use serde_json::{Value, json};

use crate::api::Api;
use crate::bootstrap::{by, server};
use crate::catalog::Catalog;
use crate::crd::{self, GROUP, PLURAL, Taken, status};
use crate::openapi::{self, CustomSchemas};
use crate::write::Wanted;
use crate::write::update::{Part, update_quietly};
use crate::{encode, keys};

/// How long to wait after the store could not be watched.
const RETRY: Duration = Duration::from_millis(200);

/// How often names that one definition gives up are offered to the others, after one write.
const ROUNDS_MAX: usize = 8;

/// What this server knows of the definitions in the store. Reading again costs only what has changed.
#[derive(Default)]
pub struct Definitions {
    /// By key in the store.
    known: BTreeMap<Arc<str>, Known>,
    /// Groups in which names may have become free or taken since statuses were settled.
    touched: BTreeSet<String>,
    /// Whether the catalog was made before the last change.
    stale: bool,
}

/// One definition, read.
struct Known {
    revision: Revision,
    group: String,
    /// What [`Taken`] looks at, and no more: definitions are large.
    names: Value,
    /// Whether its status is right whatever names others hold.
    settled: bool,
    /// Its kinds, once it is established.
    served: Vec<Arc<Kind>>,
    /// The version that is stored, if it is not served.
    unserved: Option<Arc<Kind>>,
    schemas: CustomSchemas,
}

impl Known {
    fn of(entry: &Entry) -> Self {
        // What cannot be read defines nothing.
        let definition = encode::decode(entry).unwrap_or_default();
        let (group, _) = crd::names(&definition);
        let established = Some(&definition).filter(|d| status::is_true(d, "Established"));
        Self {
            revision: entry.revision,
            group: group.to_owned(),
            names: json!({
                "metadata": {"name": meta::name(&definition)}, "spec": {"group": group},
                "status": {"acceptedNames": definition.pointer("/status/acceptedNames")},
            }),
            settled: crd::is_settled(&definition),
            served: established.map(crd::kinds).into_iter().flatten().map(Arc::new).collect(),
            unserved: established.and_then(crd::unserved).map(Arc::new),
            schemas: established.map(openapi::schemas_of).unwrap_or_default(),
        }
    }
}

impl Definitions {
    /// Reads those that have changed; whether any had.
    fn read(&mut self, snapshot: &Snapshot) -> bool {
        let mut moved = false;
        let prefix = keys::collection(GROUP, PLURAL);
        let mut before = std::mem::take(&mut self.known);
        for entry in snapshot.range(&prefix, "") {
            match before.remove(&entry.key) {
                Some(same) if same.revision == entry.revision => {
                    self.known.insert(entry.key.clone(), same);
                }
                other => {
                    self.touched.extend(other.map(|known| known.group));
                    self.put(entry);
                    moved = true;
                }
            }
        }
        moved |= !before.is_empty();
        self.stale |= moved;
        self.touched.extend(before.into_values().map(|gone| gone.group));
        moved
    }

    fn put(&mut self, entry: &Entry) {
        let known = Known::of(entry);
        self.touched.insert(known.group.clone());
        self.known.insert(entry.key.clone(), known);
        self.stale = true;
    }

    /// Those whose status may have to change.
    fn unsettled(&self) -> Vec<Arc<str>> {
        let concerned = |known: &Known| !known.settled && self.touched.contains(&known.group);
        self.known.iter().filter(|(_, known)| concerned(known)).map(|(key, _)| key.clone()).collect()
    }
}

impl Api {
    /// After a definition was written: settles its status and serves what it says.
    pub async fn definition_written(&self) {
        let mut definitions = self.definitions.lock().await;
        definitions.read(&self.store.snapshot());
        for _ in 0..ROUNDS_MAX {
            let settled = self.establish_all(&mut definitions).await;
            // Housekeeping settles the same statuses and may have been faster.
            if !definitions.read(&self.store.snapshot()) && !settled {
                break;
            }
        }
        definitions.touched.clear();
        self.replace_catalog(&mut definitions);
    }

    /// Serves what the definitions in the store say, besides the built-in kinds.
    pub async fn refresh_catalog(&self) {
        let mut definitions = self.definitions.lock().await;
        definitions.read(&self.store.snapshot());
        self.replace_catalog(&mut definitions);
    }

    fn replace_catalog(&self, definitions: &mut Definitions) {
        if !definitions.stale {
            return;
        }
        let mut schemas = self.builtin_schemas.clone();
        let mut kinds: Vec<Arc<Kind>> = self.builtin.clone();
        let mut unserved = Vec::new();
        for known in definitions.known.values() {
            schemas.extend(known.schemas.iter().map(|(name, schema)| (name.clone(), schema.clone())));
            kinds.extend(known.served.iter().cloned());
            unserved.extend(known.unserved.clone());
        }
        let catalog = Catalog::new(kinds, &unserved, schemas).keeping(&self.catalog.load());
        self.catalog.store(Arc::new(catalog));
        definitions.stale = false;
    }

    /// Settles what can be; whether something changed, which may free a name for another.
    async fn establish_all(&self, definitions: &mut Definitions) -> bool {
        let mut changed = false;
        for key in definitions.unsettled() {
            match self.establish(definitions, &key).await {
                Ok(one) => changed |= one,
                Err(status) => {
                    tracing::warn!(definition = &*key, error = %status, "cannot settle a definition");
                }
            }
        }
        changed
    }

    async fn establish(&self, definitions: &mut Definitions, key: &str) -> Result<bool, Status> {
        let Some(entry) = self.store.snapshot().get(key).cloned() else { return Ok(false) };
        let Ok(definition) = encode::decode(&entry) else { return Ok(false) };
        let others = definitions.known.values().map(|known| &known.names);
        let taken = Taken::around(&definition, others, self.builtin.iter().map(|kind| &**kind));
        if crd::settle(&definition, &taken, &self.now_text()).is_none() {
            return Ok(false);
        }
        let catalog = self.catalog.load_full();
        let Some(kind) = catalog.find_resource(GROUP, PLURAL) else { return Ok(false) };
        let user = server();
        let by = by(&user);
        // Quietly, because this is what follows a write of a definition.
        let write = update_quietly(self, kind, "", meta::name(&definition), Part::Status, &by, |old| {
            let settled = crd::settle(old, &taken, &self.now_text());
            Ok(Wanted::new(settled.unwrap_or_else(|| old.clone()), Vec::new()))
        });
        let written = write.await?;
        definitions.put(&written.entry);
        Ok(true)
    }
}

/// Follows definitions that other hubs write, until the server stops.
pub async fn follow(api: Arc<Api>) {
    let prefix = keys::collection(GROUP, PLURAL);
    let mut events = Vec::new();
    loop {
        let after = api.store.snapshot().revision();
        api.refresh_catalog().await;
        let Ok(mut watch) = api.store.watch(&prefix, after) else {
            tokio::time::sleep(RETRY).await;
            continue;
        };
        loop {
            events.clear();
            match watch.next_batch(&mut events, 64).await {
                Ok(()) if events.iter().any(|e| matches!(e, Event::Change(_))) => api.refresh_catalog().await,
                Ok(()) => {}
                Err(Error::Closed) => return,
                Err(error) => {
                    tracing::debug!(%error, "watching definitions anew");
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::housekeeping::ObjectClient;
    use crate::housekeeping::client::{Part, Place};
    use crate::inside::Inside;
    use crate::{pki, start};

    fn definition(plural: &str, kind: &str, short: &[&str]) -> Value {
        json!({"metadata": {"name": format!("{plural}.ex.dev")}, "spec": {
            "group": "ex.dev", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "shortNames": short},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
        }})
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_write_settles_its_group_and_compiles_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let config = landfall_store::embedded::Config::new(directory.path().join("store"));
        let store = landfall_store::open_embedded(config).unwrap();
        let config = start::Config {
            edge_certificate_s: 3600,
            pki: pki::Config { data_dir: directory.path().join("pki"), ..pki::Config::default() },
            token_file: None,
            anonymous: false,
            audit: None,
            kinds: landfall_api::kinds::federation(),
            definitions: Vec::new(),
            identity: "a".into(),
            admission: None,
            beside: None,
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = start::start(config, store.clone(), listener).await.unwrap();
        let client = Inside(server.api.clone());
        let served = |plural: &str| server.api.catalog.load().find("ex.dev", "v1", plural).cloned();
        let place = |plural: &str| Place::new(GROUP, PLURAL, "", &format!("{plural}.ex.dev"));

        client.create(place("boats"), definition("boats", "Boat", &["b"])).await.unwrap();
        let boats = served("boats").expect("served once acknowledged");
        client.create(place("bikes"), definition("bikes", "Bike", &["b"])).await.unwrap();
        assert!(served("bikes").is_none(), "its short name is taken");
        client.create(place("cars"), definition("cars", "Car", &[])).await.unwrap();
        let cars = served("cars").unwrap();
        assert!(Arc::ptr_eq(&boats, &served("boats").unwrap()), "what did not change is not compiled again");

        let mut freed = (*client.get(place("boats")).await.unwrap()).clone();
        freed["spec"]["names"]["shortNames"] = json!([]);
        client.update(place("boats"), freed, Part::Main).await.unwrap();
        assert!(served("bikes").is_some(), "the name is free, and that was settled before the answer");
        assert!(Arc::ptr_eq(&cars, &served("cars").unwrap()));
        server.stop().await;
        store.close().await;
    }
}
