//! Strategic merge, case by case: `strategic_cases.json` holds documents, patches, and what upstream makes of them.

use landfall_api::schema;
use serde_json::Value;

use super::apply;
use crate::patch::drop_nulls;

const CASES: &str = include_str!("strategic_cases.json");

#[test]
fn documents_after_strategic_patches() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    assert!(cases.len() > 60);
    let failures: Vec<String> = cases.iter().filter_map(check).collect();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

fn check(case: &Value) -> Option<String> {
    let (group, kind) = match case["kind"].as_str().unwrap() {
        "Service" => ("", "Service"),
        kind => ("apps", kind),
    };
    let schema = schema::of_kind(group, "v1", kind).unwrap();
    let result = apply(schema.get(), case["original"].clone(), case["patch"].to_string().as_bytes());
    let message = case["error"].as_str();
    let same = match (&result, message) {
        (Ok(got), None) => {
            let mut wanted = case.get("result").cloned().unwrap_or_default();
            drop_nulls(schema.get(), &mut wanted);
            *got == wanted
        }
        // 422 has a text of its own.
        (Err(status), Some("lists of lists are not supported")) => status.reason.code() == 422,
        // With several mistakes in one patch, upstream names any of them.
        (Err(_), Some(_)) if case["name"].as_str().unwrap().starts_with("random") => true,
        (Err(status), Some(message)) => status.message == message,
        _ => false,
    };
    (!same).then(|| format!("{case}\n  got {result:?}"))
}
