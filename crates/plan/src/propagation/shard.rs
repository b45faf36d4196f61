//! The shard: what of a federated object a member is given, and the marks by which we know it again.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::overrides::{self, Override, OverrideError};

/// The label of a shard that names the federation it belongs to: by it shards are watched, and nothing else is.
pub const FEDERATION_LABEL: &str = "landfall.dev/federation";
/// The annotation of a shard that says whether we made it (`Created`) or found it (`Adopted`).
pub const ORIGIN_ANNOTATION: &str = "landfall.dev/origin";
/// The annotation of a shard with the hash of what was last applied.
pub const HASH_ANNOTATION: &str = "landfall.dev/applied";

/// What of an object's metadata goes to members; all the rest is the hub's own.
const METADATA_KEPT: &[&str] = &["name", "namespace", "labels", "annotations"];

/// Annotations that stay at the federation: those that steer it, and what kubectl remembers about it.
const ANNOTATIONS_KEPT_BACK: &[&str] = &[
    "federation.kubernetes.io/",
    "federation.alpha.kubernetes.io/",
    "landfall.dev/",
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
];

/// Fields of `spec`, or of the object itself, that each member fills in for itself: (kind, path).
const MEMBERS_OWN: &[(&str, &[&str])] = &[
    ("Service", &["spec", "clusterIP"]),
    ("Service", &["spec", "clusterIPs"]),
    ("Service", &["spec", "healthCheckNodePort"]),
    ("ServiceAccount", &["secrets"]),
    ("Namespace", &["spec"]),
    ("Job", &["spec", "selector"]),
    // A member that tidied up would be given the Job again, and run it again.
    ("Job", &["spec", "ttlSecondsAfterFinished"]),
    ("Job", &["spec", "template", "metadata", "labels", "controller-uid"]),
    ("Job", &["spec", "template", "metadata", "labels", "batch.kubernetes.io/controller-uid"]),
    ("PersistentVolumeClaim", &["spec", "volumeName"]),
];

/// Who made a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// We did.
    Created,
    /// It was there before us, and we adopted it.
    Adopted,
}

impl Origin {
    /// The word of the annotation.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Adopted => "Adopted",
        }
    }
}

/// The marks of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The federation it belongs to.
    pub federation: String,
    /// Who made it.
    pub origin: Origin,
    /// The hash of what was last applied, where it can be read.
    pub hash: Option<u64>,
}

/// What of a federated object a member is given, before overrides: no status, no identity, nothing that members fill in
/// for themselves, nothing that steers the federation.
pub fn strip(object: &Value) -> Value {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or("");
    let mut shard = tidy(object);
    for (_, path) in MEMBERS_OWN.iter().filter(|(of, path)| *of == kind && !headless(object, path)) {
        remove(&mut shard, path);
    }
    shard
}

/// The shard for one cluster: stripped, with its overrides, which may set what members else fill in for themselves, but
/// nothing that is the hub's own. Replicas and marks come after.
pub fn build(
    object: &Value,
    overrides: &[Override],
    cluster: &str,
    labels: &BTreeMap<String, String>,
) -> Result<Value, OverrideError> {
    let stripped = strip(object);
    if overrides.is_empty() {
        return Ok(stripped);
    }
    Ok(tidy(&overrides::apply(&stripped, overrides, cluster, labels)?))
}

/// An object without status and without what is the hub's own in its metadata.
fn tidy(object: &Value) -> Value {
    let entries = object.as_object().into_iter().flatten().filter(|(key, _)| *key != "status");
    let entry = |(key, value): (&String, &Value)| {
        (key.clone(), if key == "metadata" { metadata(value) } else { value.clone() })
    };
    Value::Object(entries.map(entry).collect())
}

/// Writes the marks into a shard that is about to be applied. The hash is of the shard without them.
pub fn mark(shard: &mut Value, federation: &str, origin: Origin, hash: u64) {
    let Some(root) = shard.as_object_mut() else { return };
    let metadata = root.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Some(metadata) = metadata.as_object_mut() else { return };
    let mut put = |place: &str, key: &str, value: Value| {
        let map = metadata.entry(place).or_insert_with(|| Value::Object(Map::new()));
        if let Some(map) = map.as_object_mut() {
            map.insert(key.into(), value);
        }
    };
    put("labels", FEDERATION_LABEL, federation.into());
    put("annotations", ORIGIN_ANNOTATION, origin.word().into());
    put("annotations", HASH_ANNOTATION, format!("{hash:016x}").into());
}

/// Reads the marks of an object in a member; none if it is nobody's shard.
pub fn read_mark(object: &Value) -> Option<Mark> {
    let metadata = object.get("metadata")?;
    let federation = metadata.get("labels")?.get(FEDERATION_LABEL)?.as_str()?;
    let text = |key: &str| metadata.get("annotations")?.get(key)?.as_str();
    let origin = match text(ORIGIN_ANNOTATION) {
        Some("Created") => Origin::Created,
        // Whatever is not surely ours is treated as found.
        Some(_) | None => Origin::Adopted,
    };
    let hash = text(HASH_ANNOTATION).and_then(|hash| u64::from_str_radix(hash, 16).ok());
    Some(Mark { federation: federation.to_owned(), origin, hash })
}

fn metadata(metadata: &Value) -> Value {
    let entries = metadata.as_object().into_iter().flatten();
    let kept = entries.filter(|(key, _)| METADATA_KEPT.contains(&key.as_str()));
    let value = |(key, value): (&String, &Value)| {
        let value = match key.as_str() {
            "annotations" => annotations(value),
            "labels" => labels(value),
            _ => value.clone(),
        };
        (key.clone(), value)
    };
    Value::Object(
        kept.map(value).filter(|(_, value)| value.as_object().is_none_or(|map| !map.is_empty())).collect(),
    )
}

fn labels(labels: &Value) -> Value {
    let entries = labels.as_object().into_iter().flatten().filter(|(key, _)| *key != FEDERATION_LABEL);
    Value::Object(entries.map(|(key, value)| (key.clone(), value.clone())).collect())
}

fn annotations(annotations: &Value) -> Value {
    let entries = annotations.as_object().into_iter().flatten();
    let kept = entries.filter(|(key, _)| !ANNOTATIONS_KEPT_BACK.iter().any(|start| key.starts_with(start)));
    Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// `clusterIP: None` is not an address but a wish.
fn headless(object: &Value, path: &[&str]) -> bool {
    let value = object.get("spec").and_then(|spec| spec.get("clusterIP")).and_then(Value::as_str);
    value == Some("None") && path.iter().any(|part| part.starts_with("clusterIP"))
}

fn remove(value: &mut Value, path: &[&str]) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut at = value;
    for parent in parents {
        let Some(next) = at.get_mut(parent) else { return };
        at = next;
    }
    if let Some(map) = at.as_object_mut() {
        map.remove(*last);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_shard_has_nothing_of_the_hubs_own() {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "5", "generation": 2,
                "creationTimestamp": "t", "managedFields": [], "finalizers": ["x"], "ownerReferences": [],
                "labels": { "app": "web" },
                "annotations": { "federation.kubernetes.io/x": "1", "landfall.dev/overrides": "[]", "mine": "yes" },
            },
            "spec": { "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{ "port": 80, "nodePort": 30080 }] },
            "status": { "loadBalancer": {} },
        });
        let expected = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "web", "namespace": "shop", "labels": { "app": "web" }, "annotations": { "mine": "yes" },
            },
            "spec": { "ports": [{ "port": 80, "nodePort": 30080 }] },
        });
        assert_eq!(strip(&service), expected);
        assert_eq!(strip(&expected), expected, "twice is once");
    }

    #[test]
    fn headless_services_stay_headless() {
        let spec = json!({ "clusterIP": "None", "clusterIPs": ["None"] });
        assert_eq!(strip(&json!({ "kind": "Service", "spec": spec }))["spec"], spec);
    }

    #[test]
    fn overrides_reach_what_members_fill_in_but_not_the_hubs_own() {
        let patch = r#"[{"clusters":["a"],"patch":[{"op":"add","path":"/spec/clusterIP","value":"10.1.1.1"},
            {"op":"add","path":"/metadata/finalizers","value":["x"]}]}]"#;
        let object = json!({
            "kind": "Service", "spec": { "clusterIP": "10.0.0.1" },
            "metadata": { "name": "web", "annotations": { crate::overrides::ANNOTATION: patch } },
        });
        let rules = crate::overrides::read(&object).unwrap();
        let of = |cluster| build(&object, &rules, cluster, &BTreeMap::new()).unwrap();
        let shard = |spec: Value| json!({ "kind": "Service", "metadata": { "name": "web" }, "spec": spec });
        assert_eq!(of("a"), shard(json!({ "clusterIP": "10.1.1.1" })));
        assert_eq!(of("b"), shard(json!({})));
    }

    #[test]
    fn marks_are_read_back() {
        let mut shard = json!({ "metadata": { "name": "x" } });
        assert_eq!(read_mark(&shard), None);
        mark(&mut shard, "prod", Origin::Created, 0xab);
        let mark = Mark { federation: "prod".into(), origin: Origin::Created, hash: Some(0xab) };
        assert_eq!(read_mark(&shard), Some(mark));
        shard["metadata"]["annotations"][ORIGIN_ANNOTATION] = "scribbled over".into();
        assert_eq!(read_mark(&shard).unwrap().origin, Origin::Adopted, "never deleted");
    }
}
