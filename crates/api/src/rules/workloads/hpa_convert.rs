//! `autoscaling/v1` and `v2`: what v1 has no field for travels in annotations.

use serde_json::{Map, Value, json};

use super::read::{at, has, int, is_zero, items, some, text};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const DROPPED: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// The share of its CPU request a pod should use when nothing else is said.
pub(super) const CPU_PERCENT: i64 = 80;

type Object = Map<String, Value>;

/// The metric of v2 that v1's percentage stands for.
pub(super) fn cpu_metric(percent: i64) -> Value {
    json!({
        "type": "Resource",
        "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": percent } },
    })
}

/// Whether an object of v1 brings metrics along in an annotation.
pub(super) fn lists_metrics(object: &Value) -> bool {
    let text = text(at(at(object, "metadata"), "annotations"), METRICS);
    serde_json::from_str::<Vec<Value>>(text).is_ok_and(|metrics| !metrics.is_empty())
}

// === v2 to v1 ===

/// The object as v1 shows it.
pub fn to_v1(object: &Value) -> Value {
    let (spec, status) = (at(object, "spec"), at(object, "status"));
    let mut out = frame(object, "autoscaling/v1");
    let mut kept = copy(spec, &["scaleTargetRef", "minReplicas", "maxReplicas"]);
    let is_cpu = |metric: &&Value| {
        let resource = at(metric, "resource");
        text(metric, "type") == "Resource"
            && text(resource, "name") == "cpu"
            && has(at(resource, "target"), "averageUtilization")
    };
    if let Some(cpu) = items(spec, "metrics").iter().find(is_cpu) {
        let percent = at(at(at(cpu, "resource"), "target"), "averageUtilization");
        kept.insert("targetCPUUtilizationPercentage".into(), percent.clone());
    }
    out.insert("spec".into(), Value::Object(kept));
    out.insert("status".into(), Value::Object(status_to_v1(status)));

    let others: Vec<String> =
        items(spec, "metrics").iter().filter(|metric| !is_cpu(metric)).map(metric_to_v1).collect();
    let current: Vec<String> = items(status, "currentMetrics").iter().map(current_to_v1).collect();
    let conditions: Vec<String> = items(status, "conditions").iter().map(condition_json).collect();
    for (annotation, list) in [(METRICS, others), (CURRENT_METRICS, current), (CONDITIONS, conditions)] {
        if !list.is_empty() {
            annotate(&mut out, annotation, format!("[{}]", list.join(",")));
        }
    }
    if let Some(behavior) = some(spec, "behavior") {
        annotate(&mut out, BEHAVIOR, behavior_json(behavior));
    }
    Value::Object(out)
}

fn status_to_v1(status: &Value) -> Object {
    let mut kept =
        copy(status, &["observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas"]);
    for field in ["currentReplicas", "desiredReplicas"] {
        kept.entry(field).or_insert(json!(0));
    }
    let cpu =
        |metric: &&Value| text(metric, "type") == "Resource" && text(at(metric, "resource"), "name") == "cpu";
    for metric in items(status, "currentMetrics").iter().filter(cpu) {
        if let Some(percent) = some(at(at(metric, "resource"), "current"), "averageUtilization") {
            kept.insert("currentCPUUtilizationPercentage".into(), percent.clone());
        }
    }
    kept
}

/// The object without what v1 and v2 hold differently, and without annotations made by a conversion.
fn frame(object: &Value, version: &str) -> Object {
    let mut out = Object::new();
    out.insert("apiVersion".into(), version.into());
    out.insert("kind".into(), "HorizontalPodAutoscaler".into());
    let mut metadata = at(object, "metadata").as_object().cloned().unwrap_or_default();
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        for name in DROPPED {
            annotations.remove(name);
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    out.insert("metadata".into(), Value::Object(metadata));
    out
}

fn copy(from: &Value, fields: &[&str]) -> Object {
    let present = fields.iter().filter_map(|field| Some(((*field).to_owned(), some(from, field)?.clone())));
    present.collect()
}

fn annotate(out: &mut Object, name: &str, text: String) {
    let metadata = super::read::child_or_new(out, "metadata");
    if let Some(annotations) = metadata.and_then(|m| super::read::child_or_new(m, "annotations")) {
        annotations.insert(name.to_owned(), Value::String(text));
    }
}

/// Fields in Go's order; those that are absent are left out.
fn ordered(fields: &[(&str, &Value)]) -> String {
    let parts: Vec<String> =
        fields.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| format!("\"{k}\":{v}")).collect();
    format!("{{{}}}", parts.join(","))
}

/// An amount that Go holds by value: absent is zero.
fn amount(value: &Value) -> Value {
    if value.is_null() { json!("0") } else { value.clone() }
}

fn reference_json(reference: &Value) -> String {
    let version = at(reference, "apiVersion");
    let version = if is_zero(version) { &Value::Null } else { version };
    let (kind, name) = (json!(text(reference, "kind")), json!(text(reference, "name")));
    ordered(&[("kind", &kind), ("name", &name), ("apiVersion", version)])
}

fn metric_to_v1(metric: &Value) -> String {
    let kind = text(metric, "type");
    let Some((field, source)) = source_of(metric) else { return format!("{{\"type\":{}}}", json!(kind)) };
    let target = at(source, "target");
    let (id, name) = (at(source, "metric"), at(source, "name"));
    let (id_name, selector) = (at(id, "name"), at(id, "selector"));
    let body = match field {
        "object" => {
            let rest = ordered(&[
                ("metricName", id_name),
                ("targetValue", &amount(at(target, "value"))),
                ("selector", selector),
                ("averageValue", at(target, "averageValue")),
            ]);
            format!("{{\"target\":{},{}", reference_json(at(source, "describedObject")), &rest[1..])
        }
        "pods" => ordered(&[
            ("metricName", id_name),
            ("targetAverageValue", &amount(at(target, "averageValue"))),
            ("selector", selector),
        ]),
        "external" => ordered(&[
            ("metricName", id_name),
            ("metricSelector", selector),
            ("targetValue", at(target, "value")),
            ("targetAverageValue", at(target, "averageValue")),
        ]),
        _ => ordered(&[
            ("name", name),
            ("targetAverageUtilization", at(target, "averageUtilization")),
            ("targetAverageValue", at(target, "averageValue")),
            ("container", at(source, "container")),
        ]),
    };
    format!("{{\"type\":{},\"{field}\":{body}}}", json!(kind))
}

fn current_to_v1(metric: &Value) -> String {
    let kind = text(metric, "type");
    let Some((field, source)) = source_of(metric) else { return format!("{{\"type\":{}}}", json!(kind)) };
    let current = at(source, "current");
    let id = at(source, "metric");
    let (id_name, selector) = (at(id, "name"), at(id, "selector"));
    let body = match field {
        "object" => {
            let rest = ordered(&[
                ("metricName", id_name),
                ("currentValue", &amount(at(current, "value"))),
                ("selector", selector),
                ("averageValue", at(current, "averageValue")),
            ]);
            format!("{{\"target\":{},{}", reference_json(at(source, "describedObject")), &rest[1..])
        }
        "pods" => ordered(&[
            ("metricName", id_name),
            ("currentAverageValue", &amount(at(current, "averageValue"))),
            ("selector", selector),
        ]),
        "external" => ordered(&[
            ("metricName", id_name),
            ("metricSelector", selector),
            ("currentValue", &amount(at(current, "value"))),
            ("currentAverageValue", at(current, "averageValue")),
        ]),
        _ => ordered(&[
            ("name", at(source, "name")),
            ("currentAverageUtilization", at(current, "averageUtilization")),
            ("currentAverageValue", &amount(at(current, "averageValue"))),
            ("container", at(source, "container")),
        ]),
    };
    format!("{{\"type\":{},\"{field}\":{body}}}", json!(kind))
}

/// The source a metric has, and its field.
fn source_of(metric: &Value) -> Option<(&'static str, &Value)> {
    ["object", "pods", "resource", "containerResource", "external"]
        .into_iter()
        .find_map(|field| Some((field, some(metric, field)?)))
}

fn condition_json(condition: &Value) -> String {
    let time = some(condition, "lastTransitionTime").unwrap_or(&Value::Null);
    let parts = ordered(&[
        ("type", &json!(text(condition, "type"))),
        ("status", &json!(text(condition, "status"))),
        ("lastTransitionTime", time),
        ("reason", some(condition, "reason").unwrap_or(&Value::Null)),
        ("message", some(condition, "message").unwrap_or(&Value::Null)),
    ]);
    // Go writes an unset time as null.
    if time.is_null() {
        parts.replacen(",\"reason\"", ",\"lastTransitionTime\":null,\"reason\"", 1)
    } else {
        parts
    }
}

/// Behavior in the form Kubernetes uses inside.
fn behavior_json(behavior: &Value) -> String {
    let rules = |field: &str| {
        some(behavior, field).map_or_else(
            || "null".to_owned(),
            |rules| {
                let policies: Vec<String> = items(rules, "policies")
                    .iter()
                    .map(|p| {
                        let kind = json!(text(p, "type"));
                        let (value, period) = (int(p, "value"), int(p, "periodSeconds"));
                        format!("{{\"Type\":{kind},\"Value\":{value},\"PeriodSeconds\":{period}}}")
                    })
                    .collect();
                let policies =
                    if has(rules, "policies") { format!("[{}]", policies.join(",")) } else { "null".into() };
                format!(
                    "{{\"StabilizationWindowSeconds\":{},\"SelectPolicy\":{},\"Policies\":{policies},\"Tolerance\":{}}}",
                    at(rules, "stabilizationWindowSeconds"),
                    at(rules, "selectPolicy"),
                    at(rules, "tolerance"),
                )
            },
        )
    };
    format!("{{\"ScaleUp\":{},\"ScaleDown\":{}}}", rules("scaleUp"), rules("scaleDown"))
}

// === v1 to v2 ===

/// The object as v2 shows it.
pub fn to_v2(object: &Value) -> Value {
    let (spec, status) = (at(object, "spec"), at(object, "status"));
    let annotations = at(at(object, "metadata"), "annotations");
    let listed = |name: &str| -> Option<Vec<Value>> { serde_json::from_str(text(annotations, name)).ok() };
    let mut out = frame(object, "autoscaling/v2");

    let mut kept = copy(spec, &["scaleTargetRef", "minReplicas", "maxReplicas"]);
    let mut metrics: Vec<Value> = listed(METRICS).unwrap_or_default().iter().map(metric_to_v2).collect();
    if let Some(percent) = at(spec, "targetCPUUtilizationPercentage").as_i64() {
        metrics.push(cpu_metric(percent));
    }
    if metrics.is_empty() {
        metrics.push(cpu_metric(CPU_PERCENT));
    }
    kept.insert("metrics".into(), Value::Array(metrics));
    let behavior: Option<Value> = serde_json::from_str(text(annotations, BEHAVIOR)).ok();
    if let Some(behavior) = behavior.map(|b| behavior_to_v2(&b)).filter(|b| !is_zero(b)) {
        kept.insert("behavior".into(), behavior);
    }
    out.insert("spec".into(), Value::Object(kept));

    let fields = ["observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas"];
    let mut state = copy(status, &fields);
    state.retain(|field, value| field == "desiredReplicas" || !is_zero(value));
    let current = listed(CURRENT_METRICS).map(|list| list.iter().map(current_to_v2).collect::<Vec<_>>());
    let percent = at(status, "currentCPUUtilizationPercentage");
    if let Some(current) = current {
        state.insert("currentMetrics".into(), Value::Array(current));
    } else if !percent.is_null() {
        let metric = json!({
            "type": "Resource", "resource": { "name": "cpu", "current": { "averageUtilization": percent } },
        });
        state.insert("currentMetrics".into(), json!([metric]));
    }
    if let Some(conditions) = listed(CONDITIONS) {
        state.insert("conditions".into(), Value::Array(conditions));
    }
    if has(object, "status") || !state.is_empty() {
        out.insert("status".into(), Value::Object(state));
    }
    Value::Object(out)
}

/// A map of what is there.
fn present(fields: &[(&str, &Value)]) -> Value {
    let there = fields.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| ((*k).to_owned(), (*v).clone()));
    Value::Object(there.collect())
}

fn metric_to_v2(metric: &Value) -> Value {
    let Some((field, source)) = source_of(metric) else { return json!({ "type": at(metric, "type") }) };
    let (value, average) = (at(source, "targetValue"), at(source, "targetAverageValue"));
    let percent = at(source, "targetAverageUtilization");
    let selector = if field == "external" { "metricSelector" } else { "selector" };
    let id = present(&[("name", at(source, "metricName")), ("selector", at(source, selector))]);
    let (kind_value, kind_average) = (json!("Value"), json!("AverageValue"));
    let body = match field {
        "object" => {
            let average = at(source, "averageValue");
            // A zero stands beside an average only because v1 cannot leave it out.
            let keep = average.is_null() || text(source, "targetValue") != "0";
            let value = if keep { value } else { &Value::Null };
            let kind = if average.is_null() { &kind_value } else { &kind_average };
            let target = present(&[("type", kind), ("value", value), ("averageValue", average)]);
            json!({ "describedObject": at(source, "target"), "metric": id, "target": target })
        }
        "pods" => json!({ "metric": id, "target": { "type": "AverageValue", "averageValue": average } }),
        "external" => {
            let kind = if value.is_null() { &kind_average } else { &kind_value };
            let target = present(&[("type", kind), ("value", value), ("averageValue", average)]);
            json!({ "metric": id, "target": target })
        }
        _ => {
            let utilization = json!("Utilization");
            let kind = if percent.is_null() { &kind_average } else { &utilization };
            let target =
                present(&[("type", kind), ("averageValue", average), ("averageUtilization", percent)]);
            present(&[
                ("name", at(source, "name")),
                ("container", at(source, "container")),
                ("target", &target),
            ])
        }
    };
    let mut out = Object::new();
    out.insert("type".into(), at(metric, "type").clone());
    out.insert(field.into(), body);
    Value::Object(out)
}

fn current_to_v2(metric: &Value) -> Value {
    let Some((field, source)) = source_of(metric) else { return json!({ "type": at(metric, "type") }) };
    let selector = if field == "external" { "metricSelector" } else { "selector" };
    let id = present(&[("name", at(source, "metricName")), ("selector", at(source, selector))]);
    let average = if field == "object" { "averageValue" } else { "currentAverageValue" };
    let current = present(&[
        ("value", at(source, "currentValue")),
        ("averageValue", at(source, average)),
        ("averageUtilization", at(source, "currentAverageUtilization")),
    ]);
    let body = match field {
        "object" => json!({ "describedObject": at(source, "target"), "metric": id, "current": current }),
        "pods" | "external" => json!({ "metric": id, "current": current }),
        _ => present(&[
            ("name", at(source, "name")),
            ("container", at(source, "container")),
            ("current", &current),
        ]),
    };
    let mut out = Object::new();
    out.insert("type".into(), at(metric, "type").clone());
    out.insert(field.into(), body);
    Value::Object(out)
}

fn behavior_to_v2(behavior: &Value) -> Value {
    // Go reads field names without regard to case.
    let field = |of: &Value, name: &str| -> Value {
        let found = of.as_object().into_iter().flatten().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map_or(Value::Null, |(_, value)| value.clone())
    };
    let rules = |name: &str| {
        let rules = field(behavior, name);
        if rules.is_null() {
            return Value::Null;
        }
        let list = field(&rules, "policies");
        let policies = list.as_array().map_or(Value::Null, |list| {
            let policy = |p: &Value| {
                present(&[
                    ("type", &field(p, "type")),
                    ("value", &field(p, "value")),
                    ("periodSeconds", &field(p, "periodSeconds")),
                ])
            };
            list.iter().map(policy).collect()
        });
        present(&[
            ("stabilizationWindowSeconds", &field(&rules, "stabilizationWindowSeconds")),
            ("selectPolicy", &field(&rules, "selectPolicy")),
            ("policies", &policies),
            ("tolerance", &field(&rules, "tolerance")),
        ])
    };
    present(&[("scaleUp", &rules("scaleUp")), ("scaleDown", &rules("scaleDown"))])
}
