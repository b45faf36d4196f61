//! What wakes the reconcilers at the hub: the `Cluster` objects and every federated kind, watched.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use landfall_api::landfall::SYSTEM_NAMESPACE;
use parking_lot::Mutex;
use serde_json::Value;

use crate::debts::Book;
use crate::federation::{Federation, cluster_row};
use crate::groups;
use crate::kinds::{DEFINITIONS, KindId, Row};
use crate::membership;
use crate::routes;
use crate::shelf::Key;
use crate::traffic;
use crate::watch::{self, Change};

/// How often it is asked whether everything at the hub has been read.
const SYNC_LOOK: Duration = Duration::from_millis(5);

/// Which workload each federated autoscaler scales.
#[derive(Debug, Default)]
pub struct Targets {
    by_autoscaler: Mutex<HashMap<Key, (String, Key)>>,
}

impl Targets {
    /// Whether some autoscaler scales a workload.
    pub fn contain(&self, kind: &str, key: &Key) -> bool {
        self.by_autoscaler.lock().values().any(|(of, target)| of == kind && target == key)
    }

    /// Takes over what an autoscaler says now; gives the workloads whose number has another master.
    fn learn(&self, federation: &Federation, key: &Key) -> Vec<Key> {
        let now = federation.shelf(key.kind).get(key).and_then(|seen| target(federation, key, &seen.value()));
        let mut all = self.by_autoscaler.lock();
        let before = match &now {
            Some(now) => all.insert(key.clone(), now.clone()),
            None => all.remove(key),
        };
        if before == now {
            Vec::new()
        } else {
            before.into_iter().chain(now).map(|(_, target)| target).collect()
        }
    }
}

fn target(federation: &Federation, key: &Key, autoscaler: &Value) -> Option<(String, Key)> {
    let reference = autoscaler.pointer("/spec/scaleTargetRef")?;
    let text = |field: &str| reference.get(field).and_then(Value::as_str);
    let kind = text("kind")?;
    let group = text("apiVersion").and_then(|version| version.split_once('/')).map_or("", |(group, _)| group);
    let row = federation.kinds.find(group, kind)?;
    Some((
        kind.to_owned(),
        Key { kind: row.id, namespace: key.namespace.clone(), name: text("name")?.into() },
    ))
}

/// Begins to watch the hub; returns when everything there has been read once.
pub async fn follow(federation: &Arc<Federation>) {
    let own = federation.clone();
    federation.tasks.spawn_until_stop(async move {
        let tell = |_: Change| {
            if membership::sync(&own) {
                own.look_at_everything();
            }
            traffic::clusters_changed(&own);
            own.groups.wake();
        };
        watch::follow(own.client.clone(), Arc::new(cluster_row()), "", &own.clusters, tell).await;
    });
    for row in federation.kinds.all() {
        follow_kind(federation, row);
    }
    let rows = federation.kinds.all();
    while !(federation.clusters.synced() && rows.iter().all(|row| federation.shelf(row.id).synced())) {
        tokio::time::sleep(SYNC_LOOK).await;
    }
}

fn follow_kind(federation: &Arc<Federation>, row: Arc<Row>) {
    let own = federation.clone();
    federation.tasks.spawn_until_stop(async move {
        let shelf = own.shelf(row.id);
        let tell = |change: Change| {
            let keys = match change {
                Change::Object(key) => vec![key],
                Change::Synced(keys) | Change::Compared(keys) => keys,
            };
            for key in &keys {
                changed(&own, &row, key);
            }
            own.queue.push_all(keys);
        };
        watch::follow(own.client.clone(), row.clone(), "", &shelf, tell).await;
    });
}

/// Reads all debts again: there may be some of a kind that was not known before.
fn reload_debts(federation: &Arc<Federation>) {
    let Some(row) = federation.kinds.find("", "ConfigMap") else { return };
    let shelf = federation.shelf(row.id);
    for key in shelf.keys() {
        let (Some(book), Some(seen)) = (Book::of(&key), shelf.get(&key)) else { continue };
        federation.debts.load(&book, Some(&seen.value()), &federation.kinds);
    }
}

/// What one change at the hub means for others than the object itself.
fn changed(federation: &Arc<Federation>, row: &Row, key: &Key) {
    traffic::changed(federation, row, key);
    routes::changed(federation, row, key);
    groups::changed(federation, row);
    match (row.group.as_str(), row.kind.as_str()) {
        ("", "ConfigMap") => {
            if let Some(book) = Book::of(key) {
                let map = federation.shelf(row.id).get(key).map(|seen| seen.value());
                federation.queue.push_all(federation.debts.load(&book, map.as_ref(), &federation.kinds));
            }
        }
        ("", "Secret") if &*key.namespace == SYSTEM_NAMESPACE => {
            for member in federation.all_members() {
                member.changed.notify_one();
            }
        }
        ("", "Namespace") => {
            let inside = |id: KindId| {
                federation.shelf(id).keys().into_iter().filter(|other| other.namespace == key.name)
            };
            for other in federation.kinds.all().iter().filter(|row| row.namespaced) {
                federation.queue.push_all(inside(other.id));
            }
        }
        ("autoscaling", "HorizontalPodAutoscaler") => {
            federation.queue.push_all(federation.targets.learn(federation, key));
        }
        ("networking.k8s.io", "Ingress") => {
            // Its Services may need node ports now.
            let services = federation.kinds.find("", "Service").map(|row| federation.shelf(row.id).keys());
            federation
                .queue
                .push_all(services.into_iter().flatten().filter(|other| other.namespace == key.namespace));
        }
        _ if row.id == DEFINITIONS => {
            let Some(seen) = federation.shelf(row.id).get(key) else { return };
            let definition = seen.value();
            if crate::kinds::eligible(row, &definition)
                && let Some(row) = federation.kinds.add(&definition)
            {
                follow_kind(federation, row);
                reload_debts(federation);
            }
        }
        _ => {}
    }
}
