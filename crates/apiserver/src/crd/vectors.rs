//! What a real kube-apiserver 1.36.4 answered to definitions and objects of ours (dry-run creates and updates).
//!
//! `definitions`: each `crd` with the causes of its refusal, or its `spec` as defaulted. `objects`: under one `crd`, each
//! `object` (put over `old`, which a wide-open schema let in first) with causes, or the `result`; `warnings` as sent
//! with `fieldValidation=Warn`.

use landfall_api::field::ErrorList;
use landfall_api::{Kind, Rules, meta};
use serde_json::{Value, json};

use super::schema::{list, texts};
use super::{CrdRules, kinds, text};

const VECTORS: &str = include_str!("vectors.json");

fn vectors() -> Value {
    serde_json::from_str(VECTORS).unwrap()
}

/// `field: message`, sorted, each once, as the causes of a Status are recorded.
fn causes(errors: &ErrorList) -> Vec<String> {
    let mut all: Vec<String> = errors.iter().map(ToString::to_string).collect();
    all.sort();
    all.dedup();
    all
}

/// Where ours says something else on purpose or for want of the same engine; the rest must be equal.
fn same(ours: &str, theirs: &str) -> bool {
    let regex = "must be a valid regular expression, but isn't";
    ours == theirs || (ours.contains(regex) && theirs.contains(regex))
}

fn compare(name: &str, ours: &[String], theirs: &[String], wrong: &mut Vec<String>) {
    let mut theirs = theirs.to_vec();
    theirs.dedup();
    if ours.len() != theirs.len() || !ours.iter().zip(&theirs).all(|(a, b)| same(a, b)) {
        wrong.push(format!("{name}\n  ours:   {ours:#?}\n  theirs: {theirs:#?}"));
    }
}

#[test]
fn definitions_are_judged_as_by_kubernetes() {
    let mut wrong = Vec::new();
    for case in list(&vectors(), "definitions") {
        let mut crd = case["crd"].clone();
        CrdRules.default(&mut crd);
        CrdRules.prepare_create(&mut crd);
        let mut errors = ErrorList::new();
        for sentence in CrdRules.validate_name(meta::name(&crd), false) {
            let path = landfall_api::field::Path::new("metadata");
            errors.invalid(&path.child("name"), meta::name(&crd), sentence);
        }
        errors.extend(CrdRules.validate(&crd));
        compare(text(case, "name"), &causes(&errors), &texts(case, "errors"), &mut wrong);
        let spec = case.get("spec").filter(|_| !text(case, "name").contains("default null"));
        if let Some(spec) = spec.filter(|spec| **spec != crd["spec"]) {
            wrong.push(format!("{}: spec\n  ours:   {}\n  theirs: {spec}", text(case, "name"), crd["spec"]));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// What the server does with an object of a custom kind, as far as its rules go.
fn judge(kind: &Kind, case: &Value) -> (Value, Vec<String>, ErrorList) {
    let mut object = case["object"].clone();
    let unknown = kind.rules.prune(&mut object).unwrap();
    kind.rules.default(&mut object);
    let errors = match case.get("old") {
        None => {
            kind.rules.prepare_create(&mut object);
            kind.rules.validate(&object)
        }
        Some(old) if text(case, "sub") == "/status" => {
            let mut whole = old.clone();
            whole["status"] = object["status"].clone();
            object = whole;
            kind.rules.validate_status(&object, old)
        }
        Some(old) => {
            kind.rules.prepare_update(&mut object, old);
            kind.rules.validate_update(&object, old)
        }
    };
    (object, unknown, errors)
}

#[test]
fn objects_are_judged_as_by_kubernetes() {
    let mut wrong = Vec::new();
    for group in list(&vectors(), "objects") {
        let mut crd = group["crd"].clone();
        CrdRules.default(&mut crd);
        let made = kinds(&crd);
        for case in list(group, "cases") {
            let shown = &case["object"];
            let name = format!("{}: {shown} (was {})", text(group, "name"), case["old"]);
            let (mut object, unknown, errors) = judge(&made[0], case);
            compare(&name, &causes(&errors), &texts(case, "errors"), &mut wrong);
            let warnings: Vec<String> =
                unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
            // Kubernetes also warns of rules that are broken but tolerated; ours does not.
            let mut theirs = texts(case, "warnings");
            theirs.retain(|warning| warning.starts_with("unknown field"));
            if warnings != theirs {
                wrong.push(format!("{name}: pruned {warnings:?}, theirs {theirs:?}"));
            }
            object.as_object_mut().unwrap().remove("metadata");
            if let Some(result) = case.get("result").filter(|result| **result != object) {
                wrong.push(format!("{name}\n  ours:   {object}\n  theirs: {result}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_definition_makes_its_kinds() {
    let crd = json!({"metadata": {"name": "widgets.ex.dev"}, "spec": {"group": "ex.dev", "scope": "Cluster",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["w"]},
        "versions": [
            {"name": "v1", "served": true, "storage": true, "selectableFields": [{"jsonPath": ".spec.a"}],
             "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}},
            {"name": "v0", "served": false, "storage": false},
            {"name": "v2", "served": true, "storage": false, "deprecated": true}]}});
    let made = kinds(&crd);
    let shown: Vec<_> = made.iter().map(|k| (k.version.as_ref(), k.storage_version.as_ref())).collect();
    assert_eq!(shown, [("v1", "v1"), ("v2", "v1")]);
    let first = &made[0];
    assert!(first.sub.status && !first.strategic && first.has_generation);
    assert_eq!(first.sub.scale.as_ref().unwrap().spec, "/spec/n");
    assert_eq!(first.selectable, ["spec.a"]);
    assert_eq!(made[1].rules.deprecation().as_deref(), Some("ex.dev/v2 Widget is deprecated"));
    assert_eq!(first.rules.deprecation(), None);
    assert_eq!(
        json!(first.printer.row(
            &json!({"metadata": {"name": "x",
        "creationTimestamp": "1970-01-01T00:00:00Z"}}),
            30
        )),
        json!(["x", "30s"])
    );
}
