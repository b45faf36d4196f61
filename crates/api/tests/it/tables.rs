//! Tables: the columns and cells of every kind against what a real kube-apiserver answered for the same objects.
//!
//! Each file of `data/tables` has one kind: the columns, and for each object the cells that Kubernetes 1.36 gave.

use std::fs;
use std::path::Path;

use landfall_api::kind::Kind;
use landfall_api::kinds;
use serde_json::{Value, json};

fn recorded() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tables");
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("data is there").map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    let read = |path: &std::path::PathBuf| {
        let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        (name, serde_json::from_slice(&fs::read(path).expect("readable")).expect("JSON"))
    };
    files.iter().map(read).collect()
}

fn kind_of<'a>(kinds: &'a [Kind], table: &Value) -> &'a Kind {
    let is = |kind: &&Kind| {
        table["group"] == *kind.group && table["version"] == *kind.version && table["kind"] == *kind.kind
    };
    kinds.iter().find(is).expect("a recorded kind is served")
}

#[test]
fn columns_and_cells_are_those_of_kubernetes() {
    let kinds = kinds::member();
    for (file, table) in recorded() {
        let printer = &kind_of(&kinds, &table).printer;
        let columns: Vec<Value> = printer
            .columns()
            .iter()
            .map(|c| json!({"name": c.name, "type": c.ty, "format": c.format, "priority": c.priority}))
            .collect();
        assert_eq!(Value::Array(columns), table["columns"], "{file}");
        let now_s = table["now_s"].as_i64().unwrap();
        for row in table["rows"].as_array().unwrap() {
            let name = &row["object"]["metadata"]["name"];
            assert_eq!(Value::Array(printer.row(&row["object"], now_s)), row["cells"], "{file} {name}");
            let conditions = row.get("conditions").cloned().unwrap_or_else(|| json!([]));
            assert_eq!(Value::Array(printer.conditions(&row["object"])), conditions, "{file} {name}");
        }
    }
}

#[test]
fn every_stored_kind_is_recorded() {
    let recorded = recorded();
    for kind in kinds::member().iter().filter(|kind| !kind.verbs.is_empty()) {
        let has = recorded.iter().any(|(_, table)| {
            table["group"] == *kind.group && table["version"] == *kind.version && table["kind"] == *kind.kind
        });
        assert!(has, "no table of {} {}", kind.group, kind.kind);
    }
}

/// A printer is given whatever is stored, and must not fall over it.
#[test]
fn strange_objects_are_shown_without_a_panic() {
    let strange = [
        json!(null),
        json!("text"),
        json!([1, 2]),
        json!({"metadata": 7, "spec": [], "status": "x"}),
        json!({"metadata": {"name": 5, "creationTimestamp": "never", "ownerReferences": {}, "labels": []},
            "spec": {"rules": [1, null], "ports": "x", "replicas": "many", "metrics": [{}, {"type": "Pods"}],
                "containers": 1, "initContainers": [7], "selector": "x", "completions": 1e300},
            "status": {"conditions": 5, "initContainerStatuses": [1, {"restartCount": i64::MAX}, {"restartCount": i64::MAX}],
                "containerStatuses": [{"restartCount": i64::MAX}], "startTime": "-9999-01-01T00:00:00Z", "hard": 1}}),
    ];
    for kind in kinds::member() {
        for object in &strange {
            for now_s in [0, i64::MIN, i64::MAX] {
                assert_eq!(
                    kind.printer.row(object, now_s).len(),
                    kind.printer.columns().len(),
                    "{}",
                    kind.kind
                );
                kind.printer.conditions(object);
            }
        }
    }
}
