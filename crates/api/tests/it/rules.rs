//! Rules against answers of a kube-apiserver 1.36.4, recorded in `tests/data/rules`.
//!
//! Each row is a manifest of ours, sent as POST (`create`) or, over `old`, as PUT (`update`) with `dryRun=All`, and the
//! `object` or the `message` that came back. Left out of the answers is what a cluster allocates and a federation does
//! not: cluster IPs, IP families, health-check ports. Long values are written short: `x*1025`, `{"repeat": 3, "of": …}`.

use std::path::Path;

use landfall_api::field::ErrorList;
use landfall_api::kind::Kind;
use landfall_api::{Status, kinds, objectmeta, rules};
use serde_json::{Map, Value, json};

/// Rows in which we differ from Kubernetes on purpose, and why.
const DIFFERENT: &[(&str, &str)] = &[
    ("claim: good", "the finalizer is added by an admission plugin, not by the kind's rules"),
    (
        "node port out of range",
        "with dryRun=All nothing is allocated there, so nothing is said; without it is",
    ),
];

#[test]
fn rules_answer_as_kubernetes() {
    let kinds = kinds::member();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rules");
    let mut rows = 0;
    let mut wrong = Vec::new();
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("recorded rows can be read")
        .map(|f| f.expect("recorded rows can be read").path())
        .collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("recorded rows can be read");
        for row in serde_json::from_str::<Vec<Value>>(&text).expect("recorded rows can be read") {
            let row = unpack(row);
            rows += 1;
            if let Err(why) = check(&kinds, &row) {
                wrong.push(format!("{} {}: {why}", row["kind"], row["name"]));
            }
        }
    }
    assert!(rows > 250, "the recorded rows are there");
    assert!(wrong.is_empty(), "{} of {rows} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn check(kinds: &[Kind], row: &Value) -> Result<(), String> {
    let kind = kinds.iter().find(|k| row["group"] == *k.group && row["kind"] == *k.kind);
    let kind = kind.expect("served");
    if DIFFERENT.iter().any(|(name, _)| row["name"] == *name) {
        return Ok(());
    }
    let (mut found, old) = match row.get("create") {
        Some(object) => (object.clone(), None),
        None => (row["update"].clone(), Some(&row["old"])),
    };
    let answer = match old {
        None => create(kind, &mut found),
        Some(old) => update(kind, &mut found, old),
    };
    match (answer, row.get("message")) {
        (Ok(()), None) => compare(&clean(&found), &clean(&row["object"])),
        (Ok(()), Some(message)) => Err(format!("was accepted\n  wanted {message}")),
        (Err(found), None) => Err(format!("was refused\n  found {:?}", found.message)),
        (Err(found), Some(message)) if old.is_some() => {
            compare(&sorted(&found.message), &sorted(text(message)))
        }
        (Err(found), Some(message)) => compare(&json!(found.message), message),
    }
}

fn create(kind: &Kind, object: &mut Value) -> Result<(), Status> {
    kind.rules.default(object);
    kind.rules.prepare_create(object);
    refuse(kind, object, &rules::check_create(kind, object))
}

fn update(kind: &Kind, object: &mut Value, old: &Value) -> Result<(), Status> {
    kind.rules.default(object);
    objectmeta::carry_over(object, old);
    kind.rules.prepare_update(object, old);
    refuse(kind, object, &rules::check_update(kind, object, old))
}

fn refuse(kind: &Kind, object: &Value, errors: &ErrorList) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(rules::refuse(kind, object, errors)) }
}

fn compare(found: &Value, wanted: &Value) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("\n  found  {found}\n  wanted {wanted}")) }
}

/// Updates may list their errors in another order.
fn sorted(message: &str) -> Value {
    let (head, rest) = message.split_once(" is invalid: ").unwrap_or(("", message));
    let mut parts: Vec<&str> = rest.trim_matches(['[', ']']).split(", ").collect();
    parts.sort_unstable();
    json!([head, parts])
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// What the server fills in or leaves out by itself does not count.
fn clean(object: &Value) -> Value {
    let mut object = prune(object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in ["uid", "creationTimestamp", "resourceVersion", "managedFields", "generation"] {
            metadata.remove(name);
        }
    }
    object
}

fn prune(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().map(|(k, v)| (k.clone(), prune(v)));
            let says = |v: &Value| {
                !matches!(v, Value::Null) && *v != json!({}) && *v != json!([]) && *v != json!("")
            };
            Value::Object(kept.filter(|(_, v)| says(v)).collect::<Map<_, _>>())
        }
        Value::Array(list) => list.iter().map(prune).collect(),
        other => other.clone(),
    }
}

fn unpack(value: Value) -> Value {
    match value {
        Value::Object(map) if map.contains_key("repeat") => {
            let count = usize::try_from(map["repeat"].as_u64().expect("a count")).expect("small");
            vec![map["of"].clone(); count].into()
        }
        Value::Object(map) => map.into_iter().map(|(k, v)| (k, unpack(v))).collect::<Map<_, _>>().into(),
        Value::Array(list) => list.into_iter().map(unpack).collect(),
        Value::String(text) => match text.split_once('*').map(|(what, n)| (what, n.parse::<usize>())) {
            Some((what, Ok(count))) if what.len() == 1 => what.repeat(count).into(),
            _ => text.into(),
        },
        other => other,
    }
}
