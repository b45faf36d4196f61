//! The sheet of events, in both shapes: core `v1` and `events.k8s.io/v1`.

use serde_json::{Value, json};

use super::cells::{find, text, text_or};
use super::sheet::{Col, Sheet};
use crate::age;

pub(super) const EVENT: Sheet = Sheet::new(
    &[
        Col::text("Last Seen", "How long ago it last happened."),
        Col::text("Type", "Normal or Warning."),
        Col::text("Reason", "Why, in one word."),
        Col::text("Object", "What it is about."),
        Col::text("Subobject", "Which part of the object it is about.").wide(),
        Col::text("Source", "Who reported it.").wide(),
        Col::text("Message", "What happened."),
        Col::text("First Seen", "How long ago it first happened.").wide(),
        Col::text("Count", "How often it happened.").wide(),
        Col::NAME.wide(),
    ],
    row,
);

fn row(object: &Value, now_s: i64) -> Vec<Value> {
    let first = find(object, "/firstTimestamp")
        .or_else(|| find(object, "/deprecatedFirstTimestamp"))
        .or_else(|| find(object, "/eventTime"));
    let last = find(object, "/lastTimestamp").or_else(|| find(object, "/deprecatedLastTimestamp")).or(first);
    let count =
        ["/count", "/deprecatedCount"].iter().find_map(|at| object.pointer(at)?.as_i64()).unwrap_or(0);
    let (last, count) = match object.get("series").filter(|series| series.is_object()) {
        Some(series) => (find(series, "/lastObservedTime"), super::cells::number(series, "/count")),
        None => (last, count.max(1)),
    };
    vec![
        age::since(last, now_s).into(),
        text(object, "/type").into(),
        text(object, "/reason").into(),
        target(object).into(),
        either(object, "/involvedObject/fieldPath", "/regarding/fieldPath").into(),
        source(object).into(),
        either(object, "/message", "/note").trim().into(),
        age::since(first, now_s).into(),
        json!(count),
        super::cells::name(object),
    ]
}

fn either<'a>(object: &'a Value, core: &str, newer: &str) -> &'a str {
    text_or(object, core, text(object, newer))
}

/// `pod/web-1`.
fn target(object: &Value) -> String {
    let kind = either(object, "/involvedObject/kind", "/regarding/kind").to_lowercase();
    match either(object, "/involvedObject/name", "/regarding/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

/// `kubelet, node-1`.
fn source(object: &Value) -> String {
    let reporter = either(object, "/reportingComponent", "/reportingController");
    let component =
        text_or(object, "/source/component", text_or(object, "/deprecatedSource/component", reporter));
    let instance = text(object, "/reportingInstance");
    match text_or(object, "/source/host", text_or(object, "/deprecatedSource/host", instance)) {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    }
}
