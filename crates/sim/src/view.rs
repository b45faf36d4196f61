//! What a member's controllers see: its objects in memory, with the few ways to find them that controllers need.
//!
//! A view is a value. It is filled from the API's stream of changes and asked by pure functions; nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use landfall_api::meta;
use serde_json::Value;

/// A kind that controllers look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the kinds' own names")]
pub enum Known {
    Namespace,
    Node,
    Lease,
    Pod,
    Service,
    ServiceAccount,
    Endpoints,
    EndpointSlice,
    Deployment,
    ReplicaSet,
    ReplicationController,
    DaemonSet,
    StatefulSet,
    ControllerRevision,
    Job,
    CronJob,
    HorizontalPodAutoscaler,
    PodDisruptionBudget,
}

/// One row of the table of known kinds.
struct Row {
    known: Known,
    kind: &'static str,
    group: &'static str,
    version: &'static str,
    plural: &'static str,
}

/// Every known kind, in the order of [`Known`].
#[rustfmt::skip] // one row per line
const TABLE: [Row; 18] = [
    Row { known: Known::Namespace, kind: "Namespace", group: "", version: "v1", plural: "namespaces" },
    Row { known: Known::Node, kind: "Node", group: "", version: "v1", plural: "nodes" },
    Row { known: Known::Lease, kind: "Lease", group: "coordination.k8s.io", version: "v1", plural: "leases" },
    Row { known: Known::Pod, kind: "Pod", group: "", version: "v1", plural: "pods" },
    Row { known: Known::Service, kind: "Service", group: "", version: "v1", plural: "services" },
    Row { known: Known::ServiceAccount, kind: "ServiceAccount", group: "", version: "v1", plural: "serviceaccounts" },
    Row { known: Known::Endpoints, kind: "Endpoints", group: "", version: "v1", plural: "endpoints" },
    Row { known: Known::EndpointSlice, kind: "EndpointSlice", group: "discovery.k8s.io", version: "v1", plural: "endpointslices" },
    Row { known: Known::Deployment, kind: "Deployment", group: "apps", version: "v1", plural: "deployments" },
    Row { known: Known::ReplicaSet, kind: "ReplicaSet", group: "apps", version: "v1", plural: "replicasets" },
    Row { known: Known::ReplicationController, kind: "ReplicationController", group: "", version: "v1", plural: "replicationcontrollers" },
    Row { known: Known::DaemonSet, kind: "DaemonSet", group: "apps", version: "v1", plural: "daemonsets" },
    Row { known: Known::StatefulSet, kind: "StatefulSet", group: "apps", version: "v1", plural: "statefulsets" },
    Row { known: Known::ControllerRevision, kind: "ControllerRevision", group: "apps", version: "v1", plural: "controllerrevisions" },
    Row { known: Known::Job, kind: "Job", group: "batch", version: "v1", plural: "jobs" },
    Row { known: Known::CronJob, kind: "CronJob", group: "batch", version: "v1", plural: "cronjobs" },
    Row { known: Known::HorizontalPodAutoscaler, kind: "HorizontalPodAutoscaler", group: "autoscaling", version: "v2", plural: "horizontalpodautoscalers" },
    Row { known: Known::PodDisruptionBudget, kind: "PodDisruptionBudget", group: "policy", version: "v1", plural: "poddisruptionbudgets" },
];

/// The owner of what no controller owns.
const NOBODY: &str = "";

/// Namespace and name.
type Key = (Box<str>, Box<str>);

/// A member's objects. `managedFields` are left out: they are large and no controller's business.
#[derive(Clone, Debug, Default)]
pub struct View {
    tables: [BTreeMap<Key, Arc<Value>>; TABLE.len()],
    /// What each controller (by uid) owns, and [`NOBODY`].
    owned: HashMap<Box<str>, BTreeSet<(Known, Key)>>,
}

// === impl Known ===

impl Known {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.known)
    }

    /// The kind of a resource, if it is known.
    pub fn find(group: &str, plural: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.group == group && row.plural == plural).map(|row| row.known)
    }

    /// The kind of this name, if it is known.
    pub fn named(kind: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.kind == kind).map(|row| row.known)
    }

    /// Whether the object under a key of the store (`group/plural/…`) is of a known kind.
    pub fn concerns(key: &str) -> bool {
        let mut parts = key.split('/');
        let group = parts.next().map_or("", |g| if g == "core" { "" } else { g });
        let found = parts.next().and_then(|plural| Self::find(group, plural));
        // Other leases change all the time and say nothing about nodes.
        found.is_some_and(|known| known != Self::Lease || parts.next() == Some("kube-node-lease"))
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Such as `Pod`.
    pub fn kind(self) -> &'static str {
        self.row().kind
    }

    /// Such as `pods`.
    pub fn plural(self) -> &'static str {
        self.row().plural
    }

    /// Empty for core.
    pub fn group(self) -> &'static str {
        self.row().group
    }

    /// Such as `apps/v1`.
    pub fn api_version(self) -> String {
        let row = self.row();
        if row.group.is_empty() { row.version.into() } else { format!("{}/{}", row.group, row.version) }
    }
}

// === impl View ===

impl View {
    /// Takes an object in, new or changed.
    pub fn put(&mut self, known: Known, mut object: Value) {
        meta::metadata_mut(&mut object).remove("managedFields");
        let key = key(&object);
        self.remove(known, meta::namespace(&object), meta::name(&object));
        let owner = controller_uid(&object).unwrap_or(NOBODY);
        self.owned.entry(owner.into()).or_default().insert((known, key.clone()));
        self.tables[known as usize].insert(key, Arc::new(object));
    }

    /// Takes an object out.
    pub fn remove(&mut self, known: Known, namespace: &str, name: &str) {
        let key: Key = (namespace.into(), name.into());
        let Some(object) = self.tables[known as usize].remove(&key) else { return };
        let owner = controller_uid(&object).unwrap_or(NOBODY);
        if let Some(owned) = self.owned.get_mut(owner) {
            owned.remove(&(known, key));
            if owned.is_empty() {
                self.owned.remove(owner);
            }
        }
    }

    /// All objects of a kind, by namespace and name.
    pub fn all(&self, known: Known) -> impl Iterator<Item = &Arc<Value>> {
        self.tables[known as usize].values()
    }

    /// All objects of a kind in a namespace, by name.
    pub fn within<'a>(
        &'a self,
        known: Known,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Value>> + use<'a> {
        let from: Key = (namespace.into(), "".into());
        let range = self.tables[known as usize].range(from..);
        range.take_while(move |(key, _)| &*key.0 == namespace).map(|(_, object)| object)
    }

    /// The same, at once.
    pub fn all_within(&self, known: Known, namespace: &str) -> Vec<&Arc<Value>> {
        let from: Key = (namespace.into(), "".into());
        let range = self.tables[known as usize].range(from..);
        range.take_while(|(key, _)| &*key.0 == namespace).map(|(_, object)| object).collect()
    }

    /// One object; the namespace is empty for cluster-scoped kinds.
    pub fn get(&self, known: Known, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.tables[known as usize].get(&(namespace.into(), name.into()))
    }

    /// The objects of a kind in a namespace that no controller owns, by name.
    pub fn orphans<'a>(
        &'a self,
        known: Known,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Value>> + use<'a> {
        let from: (Known, Key) = (known, (namespace.into(), "".into()));
        let range = self.owned.get(NOBODY).into_iter().flat_map(move |all| all.range(from.clone()..));
        range
            .take_while(move |(kind, key)| *kind == known && &*key.0 == namespace)
            .filter_map(move |(_, key)| self.tables[known as usize].get(key))
    }

    /// The objects of a kind whose controller has this uid, by name.
    pub fn owned_by(&self, known: Known, uid: &str) -> Vec<&Arc<Value>> {
        let keys = self.owned.get(uid).into_iter().flatten().filter(|(kind, _)| *kind == known);
        keys.filter_map(|(_, key)| self.tables[known as usize].get(key)).collect()
    }
}

/// The owner reference of an object's controller.
pub fn controller_of(object: &Value) -> Option<&Value> {
    let references = object.get("metadata")?.get("ownerReferences")?.as_array()?;
    references.iter().find(|r| r.get("controller").and_then(Value::as_bool) == Some(true))
}

/// The uid of an object's controller.
pub fn controller_uid(object: &Value) -> Option<&str> {
    controller_of(object)?.get("uid")?.as_str()
}

fn key(object: &Value) -> Key {
    (meta::namespace(object).into(), meta::name(object).into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, owner: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "a", "managedFields": [1],
            "ownerReferences": [{"uid": "other"}, {"uid": owner, "controller": true}]}})
    }

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        assert!(TABLE.iter().enumerate().all(|(at, row)| row.known as usize == at));
    }

    #[test]
    fn objects_are_found_by_place_and_by_owner() {
        let mut view = View::default();
        view.put(Known::Pod, pod("x", "1"));
        view.put(Known::Pod, pod("y", "1"));
        let names = |view: &View, uid: &str| -> Vec<String> {
            view.owned_by(Known::Pod, uid).iter().map(|p| meta::name(p).to_owned()).collect()
        };
        assert_eq!(names(&view, "1"), ["x", "y"]);
        assert!(names(&view, "other").is_empty(), "only controllers own");
        view.put(Known::Pod, pod("y", "2"));
        assert_eq!((names(&view, "1"), names(&view, "2")), (vec!["x".into()], vec!["y".into()]));
        let orphan = json!({"metadata": {"name": "z", "namespace": "a"}});
        view.put(Known::Pod, orphan.clone());
        view.put(Known::ReplicaSet, orphan);
        let orphans = |view: &View| view.orphans(Known::Pod, "a").count();
        assert_eq!((orphans(&view), view.orphans(Known::Pod, "").count()), (1, 0));
        view.put(Known::Pod, pod("z", "1"));
        assert_eq!(orphans(&view), 0, "it was adopted");
        view.remove(Known::Pod, "a", "z");
        view.remove(Known::Pod, "a", "x");
        assert!(view.get(Known::Pod, "a", "x").is_none() && names(&view, "1").is_empty());
        assert_eq!(view.within(Known::Pod, "a").count(), 1);
        assert_eq!(view.within(Known::Pod, "b").count(), 0);
        assert!(view.get(Known::Pod, "a", "y").unwrap()["metadata"].get("managedFields").is_none());
    }

    #[test]
    fn only_leases_of_nodes_concern_us() {
        for (key, expected) in [
            ("core/pods/a/b", true),
            ("core/nodes/b", true),
            ("core/events/a/b", false),
            ("coordination.k8s.io/leases/kube-node-lease/n", true),
            ("coordination.k8s.io/leases/kube-system/n", false),
        ] {
            assert_eq!(Known::concerns(key), expected, "{key}");
        }
    }
}
