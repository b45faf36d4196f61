//! Custom kinds as they come and go: definitions in the store become rows of the catalog.
//!
//! Reads:      CustomResourceDefinitions
//! Decides:    `crd::status_for` (names accepted, established), `crd::kinds`
//! Writes:     their status; the catalog of this server
//! Wakes on:   every write of a definition, here (before it is acknowledged) or through another hub (by watch)
//! Guarantees: idempotent; safe on several hubs at once

use std::sync::Arc;
use std::time::Duration;

use landfall_api::{Kind, Status, meta};
use landfall_store::{Error, Event};
use serde_json::Value;

use crate::api::Api;
use crate::bootstrap::{by, server};
use crate::catalog::Catalog;
use crate::openapi;
use crate::write::Wanted;
use crate::write::update::{Part, update};
use crate::{crd, encode, keys};

/// The group of definitions.
pub const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// How long to wait after the store could not be watched.
const RETRY: Duration = Duration::from_millis(200);

impl Api {
    /// After a definition was written: settles its status and serves what it says.
    pub async fn definition_written(&self) {
        for definition in self.definitions() {
            if let Err(status) = self.establish(&definition).await {
                tracing::warn!(definition = meta::name(&definition), error = %status, "cannot settle a definition");
            }
        }
        self.refresh_catalog().await;
    }

    /// Serves what the definitions in the store say, besides the built-in kinds.
    pub async fn refresh_catalog(&self) {
        let _one = self.refreshing.lock().await;
        let definitions = self.definitions();
        let established = definitions.iter().filter(|d| crd::status::is_true(d, "Established"));
        let mut schemas = self.builtin_schemas.clone();
        let mut kinds: Vec<Arc<Kind>> = self.builtin.clone();
        let mut unserved = Vec::new();
        for definition in established {
            unserved.extend(crd::unserved(definition).map(Arc::new));
            schemas.extend(openapi::schemas_of(definition));
            kinds.extend(crd::kinds(definition).into_iter().map(Arc::new));
        }
        self.catalog.store(Arc::new(Catalog::new(kinds, &unserved, schemas)));
    }

    fn definitions(&self) -> Vec<Value> {
        let snapshot = self.store.snapshot();
        let prefix = keys::collection(GROUP, PLURAL);
        snapshot.range(&prefix, "").filter_map(|entry| encode::decode(entry).ok()).collect()
    }

    async fn establish(&self, definition: &Value) -> Result<(), Status> {
        let others = self.definitions();
        let builtin = self.builtin.iter().map(|kind| &**kind);
        let taken = crd::Taken::around(definition, others.iter(), builtin);
        let status = crd::status_for(definition, &taken, &self.now_text());
        if definition.get("status") == Some(&status) {
            return Ok(());
        }
        let catalog = self.catalog.load_full();
        let Some(kind) = catalog.find_resource(GROUP, PLURAL) else { return Ok(()) };
        let user = server();
        let by = by(&user);
        // Boxed: settling a status is itself a write of a definition.
        let write = update(self, kind, "", meta::name(definition), Part::Status, &by, |old| {
            let mut object = old.clone();
            object["status"] = crd::status_for(old, &taken, &self.now_text());
            Ok(Wanted::new(object, Vec::new()))
        });
        Box::pin(write).await.map(drop)
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
