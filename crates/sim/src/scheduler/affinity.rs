//! Affinity: of pods to nodes, and of pods to pods.

use landfall_api::meta;
use landfall_api::selector::Selector;
use serde_json::Value;

use super::Room;
use crate::controllers::read::{items, text};

/// Whether a node is one that a pod's `nodeSelector` and required node affinity ask for.
pub fn node_matches(pod: &Value, node: &Value) -> bool {
    let plain = Selector::from_map(pod.pointer("/spec/nodeSelector")).matches_object(node);
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let required = pod.pointer(required).filter(|r| !r.is_null());
    plain && required.is_none_or(|r| items(r, "/nodeSelectorTerms").iter().any(|t| term_matches(t, node)))
}

/// Whether a node fits one term of node affinity. An empty term fits none.
pub fn term_matches(term: &Value, node: &Value) -> bool {
    let (labels, fields) = (items(term, "/matchExpressions"), items(term, "/matchFields"));
    if labels.is_empty() && fields.is_empty() {
        return false;
    }
    let label = |e: &Value| expression(e, meta::label(node, text(e, "/key")));
    let field = |e: &Value| expression(e, (text(e, "/key") == "metadata.name").then(|| meta::name(node)));
    labels.iter().all(label) && fields.iter().all(field)
}

fn expression(expression: &Value, value: Option<&str>) -> bool {
    let values = items(expression, "/values");
    let among = |value: &str| values.iter().any(|v| v.as_str() == Some(value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let bound = || number(values.first().and_then(Value::as_str));
    match text(expression, "/operator") {
        "In" => value.is_some_and(among),
        "NotIn" => !value.is_some_and(among),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(value).zip(bound()).is_some_and(|(value, bound)| value > bound),
        "Lt" => number(value).zip(bound()).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

const AFFINITY: &str = "/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution";
const ANTI_AFFINITY: &str = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";

/// Whether one pod fits a term of another's pod affinity.
pub fn pod_matches(term: &Value, owner: &Value, pod: &Value) -> bool {
    let namespaces = items(term, "/namespaces");
    let all = term.get("namespaceSelector").is_some_and(|selector| !selector.is_null());
    let here = if namespaces.is_empty() && !all {
        meta::namespace(owner) == meta::namespace(pod)
    } else {
        // A selector of namespaces is taken as every namespace: labels of namespaces are not looked at.
        all || namespaces.iter().any(|n| n.as_str() == Some(meta::namespace(pod)))
    };
    let selector = Selector::from_object(term.get("labelSelector"));
    here && selector.is_ok_and(|selector| selector.matches_object(pod))
}

/// Whether a pod on a node stands in the same domain as `node`, for a term.
fn same_domain(term: &Value, node: &Value, other: &Value) -> bool {
    let key = text(term, "/topologyKey");
    let here = meta::label(node, key);
    here.is_some() && here == meta::label(other, key)
}

/// Whether pods on nodes of the same domain would be bothered by this pod.
pub fn bothers_others(pod: &Value, room: &Room<'_>, rooms: &[Room<'_>]) -> bool {
    rooms.iter().any(|other| {
        other.pods.iter().any(|existing| {
            let terms = items(existing, ANTI_AFFINITY).iter();
            terms
                .filter(|term| pod_matches(term, existing, pod))
                .any(|term| same_domain(term, room.node, other.node))
        })
    })
}

/// Whether a pod would stand in one domain with pods that it must not be with.
pub fn is_bothered(pod: &Value, room: &Room<'_>, rooms: &[Room<'_>]) -> bool {
    items(pod, ANTI_AFFINITY).iter().any(|term| {
        let near = rooms.iter().filter(|other| same_domain(term, room.node, other.node));
        near.flat_map(|other| &other.pods).any(|existing| pod_matches(term, pod, existing))
    })
}

/// Whether a pod would stand with the pods that it must be with. The first of its kind may stand anywhere.
pub fn has_company(pod: &Value, room: &Room<'_>, rooms: &[Room<'_>]) -> bool {
    let terms = items(pod, AFFINITY);
    let near = |term: &Value| {
        let near = rooms.iter().filter(|other| same_domain(term, room.node, other.node));
        near.flat_map(|other| &other.pods).any(|existing| pod_matches(term, pod, existing))
    };
    if terms.iter().all(near) {
        return true;
    }
    let anywhere = |term: &Value| {
        rooms.iter().flat_map(|other| &other.pods).any(|existing| pod_matches(term, pod, existing))
    };
    let has_keys = terms.iter().all(|term| meta::label(room.node, text(term, "/topologyKey")).is_some());
    has_keys && !terms.iter().any(anywhere) && terms.iter().all(|term| pod_matches(term, pod, pod))
}

/// How much a node is preferred by node affinity: the weights of the terms it fits.
pub fn node_preference(pod: &Value, node: &Value) -> i64 {
    let preferred = "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";
    let fits = |term: &&Value| term.get("preference").is_some_and(|p| term_matches(p, node));
    items(pod, preferred).iter().filter(fits).filter_map(|t| t.get("weight")?.as_i64()).sum()
}

/// How much a node is preferred by pod affinity, less what pod anti-affinity has against it.
pub fn pod_preference(pod: &Value, room: &Room<'_>, rooms: &[Room<'_>]) -> i64 {
    let sum = |pointer: &str| -> i64 {
        let weigh = |weighted: &Value| {
            let term = weighted.get("podAffinityTerm").unwrap_or(&Value::Null);
            let near = rooms.iter().filter(|other| same_domain(term, room.node, other.node));
            let count = near.flat_map(|other| &other.pods).filter(|e| pod_matches(term, pod, e)).count();
            weighted.get("weight").and_then(Value::as_i64).unwrap_or(0) * i64::try_from(count).unwrap_or(0)
        };
        items(pod, pointer).iter().map(weigh).sum()
    };
    sum("/spec/affinity/podAffinity/preferredDuringSchedulingIgnoredDuringExecution")
        - sum("/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution")
}
