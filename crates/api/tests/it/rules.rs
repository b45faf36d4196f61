//! Rules against answers of a kube-apiserver 1.36.4, recorded in `tests/data/rules`.
//!
//! Each row is a manifest of ours, sent as POST (`create`) or, over `old`, as PUT (`update`, or only its `status`) with
//! `dryRun=All`, and the `object` with its `warnings`, or the `message`, that came back. Left out of the answers is what a cluster allocates and a federation does
//! not: cluster IPs, IP families, health-check ports. Long values are written short: `x*1025`, `{"repeat": 3, "of": …}`.

use std::path::Path;

use landfall_api::field::ErrorList;
use landfall_api::kind::Kind;
use landfall_api::{Status, kinds, objectmeta, rules, schema};
use serde_json::{Map, Value, json};

/// Rows in which we differ from Kubernetes on purpose, and why.
const DIFFERENT: &[(&str, &str)] = &[
    ("claim: good", "the finalizer is added by an admission plugin, not by the kind's rules"),
    ("ingress: empty rules", "an empty list and none at all are the same before rules see them"),
    (
        "node port out of range",
        "with dryRun=All nothing is allocated there, so nothing is said; without it is",
    ),
];

#[test]
fn rules_answer_as_kubernetes() {
    // The federation's own rules where it has the kind; simulated members also take loopback addresses.
    let kinds: Vec<Kind> = kinds::federation().into_iter().chain(kinds::member()).collect();
    let rows = rows();
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|row| Some(format!("{} {}: {}", row["kind"], row["name"], check(&kinds, row).err()?)))
        .collect();
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

/// Types are checked before rules run; if that ever fails, rules still must not bring the server down.
#[test]
fn odd_shapes_anywhere_do_no_harm() {
    let kinds = kinds::member();
    let shapes =
        [json!(null), json!(-1), json!("é*"), json!(true), json!([1, "a", {}, null]), json!({"a": [1]})];
    let mut tried = 0;
    for row in rows() {
        let kind = kind_of(&kinds, &row);
        let base = row.get("create").unwrap_or_else(|| &row["update"]);
        let mut places = Vec::new();
        pointers(base, &mut String::new(), &mut places);
        for (place, shape) in places.iter().flat_map(|p| shapes.iter().map(move |s| (p, s))) {
            let mut odd = base.clone();
            *odd.pointer_mut(place).expect("taken from the object itself") = shape.clone();
            drop(create(kind, &mut odd.clone()));
            drop(update(kind, &mut odd.clone(), base));
            drop(update(kind, &mut base.clone(), &odd));
            drop((kind.rules.validate_status(&odd, base), kind.rules.warnings(&odd)));
            tried += 1;
        }
    }
    assert!(tried > 5000, "only {tried} objects were tried");
}

/// JSON pointers to everything inside; long lists are tried at their start.
fn pointers(value: &Value, at: &mut String, places: &mut Vec<String>) {
    let length = at.len();
    let mut visit = |step: &str, inner: &Value| {
        at.push('/');
        at.push_str(&step.replace('~', "~0").replace('/', "~1"));
        places.push(at.clone());
        pointers(inner, at, places);
        at.truncate(length);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| visit(key, inner)),
        Value::Array(list) => {
            list.iter().take(3).enumerate().for_each(|(i, inner)| visit(&i.to_string(), inner));
        }
        _ => {}
    }
}

fn rows() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rules");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("recorded rows can be read")
        .map(|file| file.expect("recorded rows can be read").path())
        .collect();
    files.sort();
    let read = |file| std::fs::read_to_string(file).expect("recorded rows can be read");
    let rows = |text: String| serde_json::from_str::<Vec<Value>>(&text).expect("recorded rows are JSON");
    let rows: Vec<Value> = files.into_iter().map(read).flat_map(rows).map(unpack).collect();
    assert!(rows.len() > 280, "the recorded rows are there");
    rows
}

fn kind_of<'a>(kinds: &'a [Kind], row: &Value) -> &'a Kind {
    kinds.iter().find(|k| row["group"] == *k.group && row["kind"] == *k.kind).expect("served")
}

fn check(kinds: &[Kind], row: &Value) -> Result<(), String> {
    let kind = kind_of(kinds, row);
    if DIFFERENT.iter().any(|(name, _)| row["name"] == *name) {
        return Ok(());
    }
    let (mut found, old) = match (row.get("create"), row.get("status")) {
        (Some(object), _) => (object.clone(), None),
        (None, Some(status)) => {
            let mut object = row["old"].clone();
            object["status"] = status.clone();
            (object, Some(&row["old"]))
        }
        (None, None) => (row["update"].clone(), Some(&row["old"])),
    };
    let report = schema::normalize(kind.schema.get(), &mut found);
    assert_eq!(report.error, None, "{}", row["name"]);
    let answer = match old {
        None => create(kind, &mut found),
        Some(old) if row.get("status").is_some() => update_status(kind, &mut found, old),
        Some(old) => update(kind, &mut found, old),
    };
    schema::complete(kind.schema.get(), &mut found);
    match (answer, row.get("message")) {
        (Ok(()), None) => {
            let warned = row.get("warnings").cloned().unwrap_or_else(|| json!([]));
            if row.get("create").is_some() {
                compare(&json!(kind.rules.warnings(&found)), &warned)?;
            }
            compare(&clean(&found), &clean(&row["object"]))
        }
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

fn update_status(kind: &Kind, object: &mut Value, old: &Value) -> Result<(), Status> {
    kind.rules.default(object);
    let mut errors = objectmeta::validate_update(kind, object, old);
    errors.extend(kind.rules.validate_status(object, old));
    refuse(kind, object, &errors)
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

/// What the server fills in by itself does not count.
fn clean(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in ["uid", "creationTimestamp", "resourceVersion", "managedFields", "generation"] {
            metadata.remove(name);
        }
    }
    object
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
