//! The table of federated kinds: what is propagated, and where each is served.
//!
//! Kinds of users' own join the table when their CustomResourceDefinition is marked with [`FEDERATED_LABEL`]; rows are
//! never taken away while a hub leads.

use std::sync::Arc;

use kube::core::{ApiResource, DynamicObject};
use landfall_api::landfall::{
    CERTIFICATES_NAMESPACE, GKE_GROUP, GKE_VERSION, GROUP, SYSTEM_NAMESPACE, VERSION,
};
use parking_lot::RwLock;
use serde_json::Value;

use crate::packed::Pattern;

/// The label of a CustomResourceDefinition whose kind is federated.
pub const FEDERATED_LABEL: &str = "landfall.dev/federated";

/// One federated kind.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its place in the table.
    pub id: KindId,
    /// Its group; empty for the core.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Its kind.
    pub kind: String,
    /// Its name in paths.
    pub plural: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// What its shards look like.
    pub pattern: Pattern,
}

/// A row's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KindId(u16);

/// A kind's group, version, kind, plural, and whether it is namespaced.
type Names = (&'static str, &'static str, &'static str, &'static str, bool);

/// The built-in kinds, in the order in which members need them.
const BUILTIN: &[Names] = &[
    ("", "v1", "Namespace", "namespaces", false),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false),
    ("", "v1", "Secret", "secrets", true),
    ("", "v1", "ConfigMap", "configmaps", true),
    ("", "v1", "ServiceAccount", "serviceaccounts", true),
    ("", "v1", "Service", "services", true),
    ("networking.k8s.io", "v1", "Ingress", "ingresses", true),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true),
    ("apps", "v1", "Deployment", "deployments", true),
    ("apps", "v1", "ReplicaSet", "replicasets", true),
    ("", "v1", "ReplicationController", "replicationcontrollers", true),
    ("apps", "v1", "DaemonSet", "daemonsets", true),
    ("apps", "v1", "StatefulSet", "statefulsets", true),
    ("batch", "v1", "Job", "jobs", true),
    ("batch", "v1", "CronJob", "cronjobs", true),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
];

/// The kind of namespaces, which every other namespaced kind waits for.
pub const NAMESPACES: KindId = KindId(0);
/// The kind of definitions, which are propagated only when they are marked.
pub const DEFINITIONS: KindId = KindId(1);
/// Our own kind `Cluster`, which is not in the table.
pub const CLUSTERS: KindId = KindId(u16::MAX);
/// Our own kind `Edge`.
pub const EDGES: KindId = KindId(u16::MAX - 1);
/// Our own kind `TrafficPolicy`.
pub const POLICIES: KindId = KindId(u16::MAX - 2);
/// Our own kind `TrafficPlan`.
pub const PLANS: KindId = KindId(u16::MAX - 3);
/// EndpointSlices, which are read in members.
pub const SLICES: KindId = KindId(u16::MAX - 4);
/// Our own kind `DNSZone`.
pub const ZONES: KindId = KindId(u16::MAX - 5);

/// IngressClasses.
pub const CLASSES: KindId = KindId(u16::MAX - 6);
/// Our own kind `RoutePlan`.
pub const ROUTES: KindId = KindId(u16::MAX - 7);
/// Our own kind `MultiClusterIngress`.
pub const INGRESSES: KindId = KindId(u16::MAX - 8);
/// Our own kind `MultiClusterService`.
pub const SERVICES: KindId = KindId(u16::MAX - 9);
/// The same in the group `networking.gke.io`.
pub const GKE_INGRESSES: KindId = KindId(u16::MAX - 10);
/// The same in the group `networking.gke.io`.
pub const GKE_SERVICES: KindId = KindId(u16::MAX - 11);

/// Our own kind `IngressReplicaSet`.
pub const GROUPS: KindId = KindId(u16::MAX - 12);
/// Our own kind `IngressVIPRange`.
pub const RANGES: KindId = KindId(u16::MAX - 13);
/// Our own kind `IngressClaim`.
pub const CLAIMS: KindId = KindId(u16::MAX - 14);
/// Our own kind `GroupPlan`.
pub const GROUP_PLANS: KindId = KindId(u16::MAX - 15);

/// Events, which are read in members.
pub const EVENTS: KindId = KindId(u16::MAX - 16);

/// Kinds that are watched, but not federated.
const WATCHED: &[(KindId, Names)] = &[
    (EDGES, (GROUP, VERSION, "Edge", "edges", false)),
    (POLICIES, (GROUP, VERSION, "TrafficPolicy", "trafficpolicies", true)),
    (PLANS, (GROUP, VERSION, "TrafficPlan", "trafficplans", true)),
    (SLICES, ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true)),
    (ZONES, (GROUP, VERSION, "DNSZone", "dnszones", false)),
    (CLASSES, ("networking.k8s.io", "v1", "IngressClass", "ingressclasses", false)),
    (ROUTES, (GROUP, VERSION, "RoutePlan", "routeplans", true)),
    (INGRESSES, (GROUP, VERSION, "MultiClusterIngress", "multiclusteringresses", true)),
    (SERVICES, (GROUP, VERSION, "MultiClusterService", "multiclusterservices", true)),
    (GKE_INGRESSES, (GKE_GROUP, GKE_VERSION, "MultiClusterIngress", "multiclusteringresses", true)),
    (GROUPS, (GROUP, VERSION, "IngressReplicaSet", "ingressreplicasets", false)),
    (RANGES, (GROUP, VERSION, "IngressVIPRange", "ingressvipranges", false)),
    (CLAIMS, (GROUP, VERSION, "IngressClaim", "ingressclaims", true)),
    (GROUP_PLANS, (GROUP, VERSION, "GroupPlan", "groupplans", false)),
    (EVENTS, ("", "v1", "Event", "events", true)),
    (GKE_SERVICES, (GKE_GROUP, GKE_VERSION, "MultiClusterService", "multiclusterservices", true)),
];

/// The table.
#[derive(Debug)]
pub struct Kinds {
    rows: RwLock<Vec<Arc<Row>>>,
    watched: Vec<Arc<Row>>,
}

impl Default for Kinds {
    fn default() -> Self {
        let row = |id: KindId, (group, version, kind, plural, namespaced): &Names| {
            let (group, version) = ((*group).to_owned(), (*version).to_owned());
            let (kind, plural) = ((*kind).to_owned(), (*plural).to_owned());
            let pattern = Pattern::default();
            Arc::new(Row { id, group, version, kind, plural, namespaced: *namespaced, pattern })
        };
        let rows = BUILTIN.iter().zip(0..).map(|(names, id)| row(KindId(id), names));
        let watched = WATCHED.iter().map(|(id, names)| row(*id, names));
        Self { rows: RwLock::new(rows.collect()), watched: watched.collect() }
    }
}

impl Kinds {
    /// All rows.
    pub fn all(&self) -> Vec<Arc<Row>> {
        self.rows.read().clone()
    }

    /// One row; also of the kinds that are only watched.
    pub fn get(&self, id: KindId) -> Arc<Row> {
        let watched = self.watched.iter().find(|row| row.id == id);
        watched.cloned().unwrap_or_else(|| self.rows.read()[usize::from(id.0)].clone())
    }

    /// The row of a kind.
    pub fn find(&self, group: &str, kind: &str) -> Option<Arc<Row>> {
        self.rows.read().iter().find(|row| row.group == group && row.kind == kind).cloned()
    }

    /// Adds the kind that a definition defines, if it is not there yet; gives its row when it is new.
    pub fn add(&self, definition: &Value) -> Option<Arc<Row>> {
        let spec = definition.get("spec")?;
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let names = spec.get("names")?;
        let versions = spec.get("versions")?.as_array()?;
        let stored = versions.iter().find(|version| version.get("storage") == Some(&Value::Bool(true)))?;
        let (group, kind) = (text(spec, "group")?, text(names, "kind")?);
        let mut rows = self.rows.write();
        if rows.iter().any(|row| row.group == group && row.kind == kind) {
            return None;
        }
        let row = Arc::new(Row {
            id: KindId(u16::try_from(rows.len()).ok()?),
            version: text(stored, "name")?,
            plural: text(names, "plural")?,
            namespaced: text(spec, "scope")? == "Namespaced",
            group,
            kind,
            pattern: Pattern::default(),
        });
        rows.push(row.clone());
        Some(row)
    }
}

impl Row {
    /// Whether every Kubernetes of today serves it.
    pub fn builtin(&self) -> bool {
        BUILTIN.iter().any(|(group, _, kind, ..)| self.group == *group && self.kind == *kind)
    }

    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path of all its objects, or of those in a namespace.
    pub fn collection(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "/api/" } else { "/apis/" };
        let place = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        format!("{root}{}{place}/{}", self.api_version(), self.plural)
    }

    /// The path of one object.
    pub fn path(&self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.collection(namespace))
    }

    /// For `kube`.
    pub fn resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.clone(),
            version: self.version.clone(),
            api_version: self.api_version(),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        }
    }
}

/// `kube`'s type for objects of any kind.
pub type Any = DynamicObject;

/// Namespaces that stay what each cluster made them; objects in those that begin with `kube-` stay there too.
const OWN_NAMESPACES: &[&str] =
    &["default", "kube-system", "kube-public", "kube-node-lease", SYSTEM_NAMESPACE, CERTIFICATES_NAMESPACE];

/// Whether an object of a federated kind is the federation's to propagate; the others belong to the hub itself, or every
/// cluster makes its own.
pub fn eligible(row: &Row, object: &Value) -> bool {
    let metadata = object.get("metadata");
    let text = |key: &str| metadata.and_then(|m| m.get(key)).and_then(Value::as_str).unwrap_or("");
    let (namespace, name) = (text("namespace"), text("name"));
    let inside =
        namespace.starts_with("kube-") || [SYSTEM_NAMESPACE, CERTIFICATES_NAMESPACE].contains(&namespace);
    let kind = object.get("type").and_then(Value::as_str).unwrap_or("");
    let marked = || {
        let labels = metadata.and_then(|m| m.get("labels"));
        labels.and_then(|l| l.get(FEDERATED_LABEL)).and_then(Value::as_str) == Some("true")
    };
    match (row.kind.as_str(), row.group.as_str()) {
        ("Namespace", "") => !OWN_NAMESPACES.contains(&name),
        ("CustomResourceDefinition", "apiextensions.k8s.io") => marked(),
        ("Service", "") => !inside && (namespace, name) != ("default", "kubernetes"),
        ("ServiceAccount", "") => !inside && name != "default",
        ("ConfigMap", "") => !inside && name != "kube-root-ca.crt",
        // Tokens are good in one cluster only; a package manager's memory is of the place it installed to.
        ("Secret", "") => {
            !inside && kind != "kubernetes.io/service-account-token" && !kind.starts_with("helm.sh/")
        }
        _ => !inside,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_each_cluster_makes_for_itself_is_not_propagated() {
        let kinds = Kinds::default();
        let check = |kind: &str, group: &str, object: Value, expected: bool| {
            let row = kinds.find(group, kind).unwrap();
            assert_eq!(eligible(&row, &object), expected, "{kind} {object}");
        };
        let of = |namespace: &str, name: &str| json!({"metadata": {"namespace": namespace, "name": name}});
        check("Namespace", "", of("", "shop"), true);
        check("Namespace", "", of("", "default"), false);
        check("Service", "", of("default", "web"), true);
        check("Service", "", of("default", "kubernetes"), false);
        check("Deployment", "apps", of("kube-system", "dns"), false);
        check("Secret", "", of("landfall-system", "cluster-a"), false);
        check("Secret", "", of("landfall-certificates", "shop.tls"), false);
        check("Namespace", "", of("", "landfall-certificates"), false);
        check("Secret", "", json!({"metadata": {"namespace": "a"}, "type": "helm.sh/release.v1"}), false);
        check("ServiceAccount", "", of("shop", "default"), false);
        check("CustomResourceDefinition", "apiextensions.k8s.io", of("", "xs.example.com"), false);
    }

    #[test]
    fn a_definition_joins_the_table_once() {
        let kinds = Kinds::default();
        let definition = json!({"spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1beta1", "storage": false}, {"name": "v1", "storage": true}],
        }});
        let row = kinds.add(&definition).expect("new");
        assert_eq!(row.path("shop", "a"), "/apis/example.com/v1/namespaces/shop/widgets/a");
        assert!(Arc::ptr_eq(&kinds.get(row.id), &row));
        assert!(kinds.add(&definition).is_none());
        assert!(kinds.add(&json!({})).is_none());
        assert_eq!(kinds.get(NAMESPACES).kind, "Namespace");
        assert_eq!(kinds.get(DEFINITIONS).kind, "CustomResourceDefinition");
    }
}
