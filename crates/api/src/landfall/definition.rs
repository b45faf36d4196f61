//! The CustomResourceDefinitions of our kinds: one row each.

use schemars::JsonSchema;
use serde_json::{Value, json};

use super::{
    Cluster, DNSZone, Edge, GKE_GROUP, GKE_VERSION, GROUP, GroupPlan, IngressClaim, IngressReplicaSet,
    IngressVIPRange, MultiClusterIngress, MultiClusterService, RoutePlan, TrafficPlan, TrafficPolicy,
    VERSION, structural,
};

/// A printed column: heading, type, JSONPath, whether it is shown with `-o wide` only.
type Col = (&'static str, &'static str, &'static str, bool);

const AGE: Col = ("Age", "date", ".metadata.creationTimestamp", false);

/// One kind: how it is called, where it lives, how it is shown.
struct Row {
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
    schema: fn() -> Value,
    columns: &'static [Col],
}

const ROWS: &[Row] = &[
    Row {
        kind: "Cluster",
        plural: "clusters",
        short: &["cl"],
        namespaced: false,
        schema: schema::<Cluster>,
        columns: &[
            ("Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#, false),
            ("Region", "string", ".status.region", false),
            ("Version", "string", ".status.version", false),
            ("Zones", "string", ".status.zones", true),
            ("Nodes", "integer", ".status.nodes.ready", true),
            ("Endpoint", "string", ".status.endpoint", true),
            AGE,
        ],
    },
    Row {
        kind: "DNSZone",
        plural: "dnszones",
        short: &["dz"],
        namespaced: false,
        schema: schema::<DNSZone>,
        columns: &[
            ("Zone", "string", ".spec.zone", false),
            ("Published", "string", r#".status.conditions[?(@.type=="Published")].status"#, false),
            ("Reason", "string", r#".status.conditions[?(@.type=="Published")].reason"#, false),
            ("Names", "integer", ".status.names", false),
            ("Records", "integer", ".status.records", true),
            ("Last Publish", "date", ".status.lastPublishTime", true),
            AGE,
        ],
    },
    Row {
        kind: "Edge",
        plural: "edges",
        short: &[],
        namespaced: false,
        schema: schema::<Edge>,
        columns: &[
            ("Cluster", "string", ".spec.cluster", false),
            ("Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#, false),
            ("Group", "string", ".spec.ingressReplicaSet", false),
            ("Version", "string", ".status.version", false),
            ("Node", "string", ".spec.node", true),
            ("Last Seen", "date", ".status.heartbeatTime", true),
            AGE,
        ],
    },
    Row {
        kind: "GroupPlan",
        plural: "groupplans",
        short: &["gplan"],
        namespaced: false,
        schema: schema::<GroupPlan>,
        columns: &[
            ("VIPs", "string", ".spec.members[*].vips[*]", false),
            ("Edges", "string", ".spec.members[*].edges[*].name", true),
            ("Revision", "integer", ".spec.revision", false),
            AGE,
        ],
    },
    Row {
        kind: "IngressClaim",
        plural: "ingressclaims",
        short: &["ingc"],
        namespaced: true,
        schema: schema::<IngressClaim>,
        columns: &[
            ("Phase", "string", ".status.phase", false),
            ("Group", "string", ".status.ingressReplicaSetName", false),
            ("VIP", "string", ".status.vip", false),
            ("Reclaim", "string", ".spec.reclaimPolicy", false),
            AGE,
        ],
    },
    Row {
        kind: "IngressReplicaSet",
        plural: "ingressreplicasets",
        short: &["ingrs"],
        namespaced: false,
        schema: schema::<IngressReplicaSet>,
        columns: &[
            ("Desired", "integer", ".spec.replicas", false),
            ("Ready", "integer", ".status.readyReplicas", false),
            ("VIP", "string", ".status.vip", false),
            ("Holder", "string", ".status.holder.edge", false),
            ("Ingresses", "integer", ".status.boundIngresses", false),
            ("Transitions", "integer", ".status.transitions", true),
            AGE,
        ],
    },
    Row {
        kind: "IngressVIPRange",
        plural: "ingressvipranges",
        short: &["vipr"],
        namespaced: false,
        schema: schema::<IngressVIPRange>,
        columns: &[
            ("CIDRs", "string", ".spec.cidrs", false),
            ("Allocated", "integer", ".status.allocated", false),
            ("Total", "integer", ".status.total", false),
            AGE,
        ],
    },
    Row {
        kind: "MultiClusterIngress",
        plural: "multiclusteringresses",
        short: &["mci"],
        namespaced: true,
        schema: schema::<MultiClusterIngress>,
        columns: &[
            ("Hosts", "string", ".spec.template.spec.rules[*].host", false),
            ("Address", "string", ".status.addresses[*].ip", false),
            ("Accepted", "string", r#".status.conditions[?(@.type=="Accepted")].status"#, true),
            ("Clusters", "string", ".status.clusters", true),
            AGE,
        ],
    },
    Row {
        kind: "MultiClusterService",
        plural: "multiclusterservices",
        short: &["mcs"],
        namespaced: true,
        schema: schema::<MultiClusterService>,
        columns: &[
            ("Endpoints", "integer", ".status.readyEndpoints", false),
            ("Clusters", "string", ".status.clusters", false),
            AGE,
        ],
    },
    Row {
        kind: "RoutePlan",
        plural: "routeplans",
        short: &["rplan"],
        namespaced: true,
        schema: schema::<RoutePlan>,
        columns: &[
            ("Kind", "string", ".spec.sourceRef.kind", false),
            ("Source", "string", ".spec.sourceRef.name", false),
            ("Revision", "integer", ".spec.revision", false),
            AGE,
        ],
    },
    Row {
        kind: "TrafficPlan",
        plural: "trafficplans",
        short: &["tplan"],
        namespaced: true,
        schema: schema::<TrafficPlan>,
        columns: &[
            ("Service", "string", ".spec.targetRef.name", false),
            ("Revision", "integer", ".spec.revision", false),
            ("Up", "string", ".status.up", false),
            ("Clusters", "string", ".status.clusters", false),
            AGE,
        ],
    },
    Row {
        kind: "TrafficPolicy",
        plural: "trafficpolicies",
        short: &["tpol"],
        namespaced: true,
        schema: schema::<TrafficPolicy>,
        columns: &[
            ("Services", "string", ".spec.targetRefs[*].name", false),
            ("Overflow", "string", ".spec.overflow.mode", false),
            ("Accepted", "string", r#".status.conditions[?(@.type=="Accepted")].status"#, false),
            AGE,
        ],
    },
];

/// Kinds that are served in a second group too, so that manifests written for it need no change.
const ALSO_GKE: &[&str] = &["MultiClusterIngress", "MultiClusterService"];

/// The CustomResourceDefinitions of our kinds, sorted by name.
pub fn definitions() -> Vec<Value> {
    let own = ROWS.iter().map(|row| definition(row, GROUP, VERSION));
    let also = ROWS.iter().filter(|row| ALSO_GKE.contains(&row.kind));
    let also = also.map(|row| definition(row, GKE_GROUP, GKE_VERSION));
    let mut all: Vec<Value> = own.chain(also).collect();
    all.sort_by(|a, b| a["metadata"]["name"].as_str().cmp(&b["metadata"]["name"].as_str()));
    all
}

fn definition(row: &Row, group: &str, version: &str) -> Value {
    let columns: Vec<Value> = row.columns.iter().map(column).collect();
    // One that two kinds have would be a riddle.
    let short = if group == GROUP { row.short } else { &[] };
    let mut subresources = json!({"status": {}});
    if row.kind == "TrafficPlan" {
        // Only the hub writes it, and all of it at once.
        subresources = json!({});
    }
    if row.kind == "IngressReplicaSet" {
        subresources["scale"] = json!({
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        });
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{group}", row.plural)},
        "spec": {
            "group": group,
            "names": {
                "kind": row.kind, "listKind": format!("{}List", row.kind), "plural": row.plural,
                "singular": row.kind.to_ascii_lowercase(), "shortNames": short, "categories": ["landfall"],
            },
            "scope": if row.namespaced { "Namespaced" } else { "Cluster" },
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": (row.schema)()},
                "subresources": subresources,
                "additionalPrinterColumns": columns,
            }],
            "conversion": {"strategy": "None"},
        },
    })
}

fn column((name, ty, path, wide): &Col) -> Value {
    let mut column = json!({"name": name, "type": ty, "jsonPath": path});
    if *wide {
        column["priority"] = json!(1);
    }
    column
}

/// The schema of a kind; metadata is the server's business.
fn schema<T: JsonSchema>() -> Value {
    let mut schema = structural::of::<T>();
    schema["properties"]["metadata"] = json!({"type": "object"});
    schema["required"] = json!(["spec"]);
    schema
}

#[cfg(test)]
mod tests;
