//! The sheet of requests for certificates.

use serde_json::Value;

use super::cells::{NONE, age, items, name, text, text_or};
use super::sheet::{Col, Sheet};
use crate::age::human;

pub(super) const REQUEST: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::AGE,
        Col::text("SignerName", "Who is asked to sign."),
        Col::text("Requestor", "Who asks."),
        Col::text("RequestedDuration", "How long the certificate should last."),
        Col::text("Condition", "What has become of it."),
    ],
    |object, now_s| {
        let duration = object.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
        vec![
            name(object),
            age(object, now_s),
            text_or(object, "/spec/signerName", NONE).into(),
            text(object, "/spec/username").into(),
            duration.map_or_else(|| NONE.into(), |seconds| human(seconds).into()),
            condition(object).into(),
        ]
    },
);

fn condition(object: &Value) -> String {
    let has = |kind: &str| items(object, "/status/conditions").iter().any(|c| text(c, "/type") == kind);
    let mut words = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        words.push_str(",Failed");
    }
    if !text(object, "/status/certificate").is_empty() {
        words.push_str(",Issued");
    }
    words
}
