//! The federation as this hub sees it while it leads: what stands at the hub, who the members are, what is to be looked at.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use landfall_api::landfall::{Cluster, SYSTEM_NAMESPACE};
use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use parking_lot::RwLock;
use serde_json::Value;

use crate::Config;
use crate::debts::Debts;
use crate::groups::Groups;
use crate::hub::Writer;
use crate::kinds::{self, KindId, Kinds, Row};
use crate::member::Member;
use crate::metrics::Metrics;
use crate::packed::Pattern;
use crate::patience::Patience;
use crate::queue::Queue;
use crate::routes::Routes;
use crate::shelf::{Key, Recent, Shelf};
use crate::sources::Targets;
use crate::traffic::Traffic;

/// Everything the reconcilers share.
pub struct Federation {
    /// How this federation is called, and the like.
    pub config: Config,
    /// What is federated.
    pub kinds: Kinds,
    /// The hub's own API.
    pub client: kube::Client,
    /// What is written to the hub.
    pub writer: Writer,
    /// The `Cluster` objects.
    pub clusters: Shelf,
    /// The members, by name.
    pub members: RwLock<BTreeMap<String, Arc<Member>>>,
    /// Objects to look at.
    pub queue: Queue,
    /// What members are owed of objects that are gone.
    pub debts: Debts,
    /// Which workloads federated autoscalers scale.
    pub targets: Targets,
    /// How long news are held back.
    pub patience: Patience,
    /// What edges are told.
    pub traffic: Traffic,
    /// What edges carry.
    pub routes: Routes,
    /// Groups of edges, and what is bound to them.
    pub groups: Groups,
    /// What was read lately of what members have.
    pub recent: Arc<Recent>,
    /// What is counted.
    pub metrics: Metrics,
    /// Everything that runs; it stops when this hub leads no longer.
    pub tasks: Tasks,
    shelves: RwLock<HashMap<KindId, Arc<Shelf>>>,
}

/// The row of our own kind `Cluster`, which is not federated itself.
pub fn cluster_row() -> Row {
    Row {
        id: kinds::CLUSTERS,
        group: landfall_api::landfall::GROUP.into(),
        version: landfall_api::landfall::VERSION.into(),
        kind: "Cluster".into(),
        plural: "clusters".into(),
        namespaced: false,
        pattern: Pattern::default(),
    }
}

impl Federation {
    /// A federation of which nothing is known yet.
    pub fn new(config: Config, client: kube::Client, metrics: Metrics) -> Self {
        let kinds = Kinds::default();
        Self {
            config,
            traffic: Traffic::new(&kinds),
            routes: Routes::new(&kinds),
            groups: Groups::new(&kinds),
            kinds,
            writer: Writer::new(client.clone()),
            client,
            clusters: Shelf::new(Arc::new(cluster_row())),
            members: RwLock::default(),
            queue: Queue::default(),
            debts: Debts::default(),
            targets: Targets::default(),
            patience: Patience::default(),
            recent: Arc::default(),
            metrics,
            tasks: Tasks::default(),
            shelves: RwLock::default(),
        }
    }

    /// The hub's objects of a kind.
    pub fn shelf(&self, kind: KindId) -> Arc<Shelf> {
        if let Some(shelf) = self.shelves.read().get(&kind) {
            return shelf.clone();
        }
        let row = self.kinds.get(kind);
        self.shelves.write().entry(kind).or_insert_with(|| Arc::new(Shelf::new(row))).clone()
    }

    /// A `Cluster` by name.
    pub fn cluster(&self, name: &str) -> Option<Cluster> {
        let seen = self.clusters.get(&cluster_key(name))?;
        serde_json::from_value(seen.value()).ok()
    }

    /// The Secret that a `Cluster` names.
    pub fn secret(&self, namespace: Option<&str>, name: &str) -> Option<Value> {
        let row = self.kinds.find("", "Secret")?;
        let namespace = namespace.unwrap_or(SYSTEM_NAMESPACE).into();
        let key = Key { kind: row.id, namespace, name: name.into() };
        self.shelf(row.id).get(&key).map(|seen| seen.value())
    }

    /// All members, in order of their names.
    pub fn all_members(&self) -> Vec<Arc<Member>> {
        self.members.read().values().cloned().collect()
    }

    /// Whether a federated autoscaler rules the number of an object.
    pub fn autoscaled(&self, row: &Row, key: &Key) -> bool {
        self.targets.contain(&row.kind, key)
    }

    /// Looks at every federated object in a moment.
    pub fn look_at_everything(&self) {
        self.everything().iter().for_each(|key| self.queue.push_soon(key));
    }

    /// Every federated object, and everything that is owed.
    pub fn everything(&self) -> Vec<Key> {
        let rows = self.kinds.all();
        let mut keys: Vec<Key> = rows.iter().flat_map(|row| self.shelf(row.id).keys()).collect();
        keys.extend(self.debts.keys());
        keys
    }
}

/// The key of a `Cluster`.
pub fn cluster_key(name: &str) -> Key {
    Key { kind: kinds::CLUSTERS, namespace: "".into(), name: name.into() }
}

/// The present, in milliseconds since 1970.
pub fn now_ms() -> i64 {
    i64::try_from(clock::since_epoch().as_millis()).unwrap_or(i64::MAX)
}

/// A time as Kubernetes writes it.
pub fn rfc3339(ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
