//! Sheets of autoscalers (both versions) and of `/scale`.

use serde_json::{Value, json};

use super::cells::{NONE, UNKNOWN, UNSET, age, items, name, number, plain, text};
use super::sheet::{Col, Sheet};

pub(super) const AUTOSCALER: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Reference", "What is scaled."),
        Col::text("Targets", "Current and wanted values of the metrics."),
        Col::text("MinPods", "The fewest replicas."),
        Col::text("MaxPods", "The most replicas."),
        Col::text("Replicas", "How many replicas there are."),
        Col::AGE,
    ],
    |object, now_s| {
        let reference = format!(
            "{}/{}",
            text(object, "/spec/scaleTargetRef/kind"),
            text(object, "/spec/scaleTargetRef/name")
        );
        vec![
            name(object),
            reference.into(),
            targets(object).into(),
            plain(object.pointer("/spec/minReplicas")).unwrap_or_else(|| UNSET.into()).into(),
            json!(number(object, "/spec/maxReplicas")),
            json!(number(object, "/status/currentReplicas")),
            age(object, now_s),
        ]
    },
);

pub(super) const SCALE: Sheet = Sheet::new(
    &[
        Col::NAME.format(""),
        Col::integer("Desired", "How many replicas are wanted."),
        Col::integer("Available", "How many replicas there are."),
        Col::AGE,
    ],
    |object, now_s| {
        vec![
            name(object),
            json!(number(object, "/spec/replicas")),
            json!(number(object, "/status/replicas")),
            age(object, now_s),
        ]
    },
);

/// The metrics with current and wanted values; the first two, and how many more.
fn targets(object: &Value) -> String {
    const SHOWN: usize = 2;
    let specs = items(object, "/spec/metrics");
    if specs.is_empty() {
        return cpu_of_v1(object);
    }
    let statuses = items(object, "/status/currentMetrics");
    let words: Vec<String> =
        specs.iter().enumerate().take(SHOWN).map(|(i, spec)| metric(spec, statuses.get(i))).collect();
    let words = words.join(", ");
    match specs.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{words} + {more} more..."),
        _ => words,
    }
}

/// `autoscaling/v1` has one metric with fields of its own.
fn cpu_of_v1(object: &Value) -> String {
    let Some(target) = plain(object.pointer("/spec/targetCPUUtilizationPercentage")) else {
        return NONE.into();
    };
    let current = plain(object.pointer("/status/currentCPUUtilizationPercentage"));
    format!("cpu: {}/{target}%", current.map_or_else(|| UNKNOWN.into(), |percent| format!("{percent}%")))
}

fn metric(spec: &Value, status: Option<&Value>) -> String {
    let (key, resource) = match text(spec, "/type") {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".into(),
    };
    let target = |field: &str| plain(spec.pointer(&format!("/{key}/target/{field}")));
    let seen = status.is_some_and(|status| status.get(key).is_some_and(Value::is_object));
    let current = |field: &str| status.and_then(|s| plain(s.pointer(&format!("/{key}/current/{field}"))));
    let or_unknown = |value: Option<String>| value.unwrap_or_else(|| UNKNOWN.into());
    if resource {
        let of = text(spec, &format!("/{key}/name"));
        return target("averageValue").map_or_else(
            || {
                let percent = |value: Option<String>, otherwise: &str| {
                    value.map_or_else(|| otherwise.to_owned(), |percent| format!("{percent}%"))
                };
                let now = percent(current("averageUtilization"), UNKNOWN);
                format!("{of}: {now}/{}", percent(target("averageUtilization"), "<auto>"))
            },
            |wanted| format!("{of}: {}/{wanted}", or_unknown(current("averageValue"))),
        );
    }
    match (key, target("averageValue")) {
        ("pods", wanted) => {
            format!("{}/{}", or_unknown(current("averageValue")), wanted.unwrap_or_else(|| "<nil>".into()))
        }
        (_, Some(wanted)) => format!("{}/{wanted} (avg)", or_unknown(current("averageValue"))),
        (_, None) => {
            let now = current("value").or_else(|| seen.then(|| "<nil>".into()));
            format!("{}/{}", or_unknown(now), target("value").unwrap_or_else(|| "<nil>".into()))
        }
    }
}
