//! Labels, annotations and `LabelSelector` objects: whether they are right.
//!
//! Selectors as texts, and matching, are in [`crate::selector`].

use serde_json::{Map, Value};

use crate::field::{ErrorList, Path};
use crate::names;

/// Most bytes that the keys and values of all annotations may take together.
pub const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// Labels: a map of label keys to label values; anything but a map is nothing.
pub fn validate_labels(labels: Option<&Value>, path: &Path<'_>, errors: &mut ErrorList) {
    for (key, value) in pairs(labels) {
        validate_key(key, path, errors);
        validate_value(value, path, errors);
    }
}

/// Annotations: keys like labels but in any case, values free, all together at most 256 KiB.
pub fn validate_annotations(annotations: Option<&Value>, path: &Path<'_>, errors: &mut ErrorList) {
    let mut bytes = 0;
    for (key, value) in pairs(annotations) {
        bytes += key.len() + value.len();
        let wrong = if key.bytes().any(|b| b.is_ascii_uppercase()) {
            names::qualified_name(&key.to_lowercase())
        } else {
            names::qualified_name(key)
        };
        for sentence in wrong {
            errors.invalid(path, key, sentence);
        }
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.too_long(path, ANNOTATIONS_BYTES_MAX);
    }
}

/// A `LabelSelector` object (`matchLabels`, `matchExpressions`).
pub fn validate_selector(selector: Option<&Value>, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(selector) = selector.and_then(Value::as_object) else { return };
    validate_labels(selector.get("matchLabels"), &path.child("matchLabels"), errors);
    let list = path.child("matchExpressions");
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    for (at, expression) in expressions.into_iter().flatten().enumerate() {
        validate_expression(expression, &list.index(at), errors);
    }
}

/// Whether a `LabelSelector` object asks for nothing, and so selects everything.
pub fn selector_is_empty(selector: &Value) -> bool {
    let empty_map = |v: &Value| v.as_object().is_none_or(Map::is_empty);
    selector.get("matchLabels").is_none_or(empty_map)
        && selector.get("matchExpressions").and_then(Value::as_array).is_none_or(Vec::is_empty)
}

/// One label key.
pub fn validate_key(key: &str, path: &Path<'_>, errors: &mut ErrorList) {
    for sentence in names::qualified_name(key) {
        errors.invalid(path, key, sentence);
    }
}

/// One label value.
pub fn validate_value(value: &str, path: &Path<'_>, errors: &mut ErrorList) {
    for sentence in names::label_value(value) {
        errors.invalid(path, value, sentence);
    }
}

/// The keys and texts of a map; values that are not texts are read as empty.
pub fn pairs(map: Option<&Value>) -> impl Iterator<Item = (&str, &str)> {
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    entries.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or("")))
}

fn validate_expression(expression: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let text = |field| expression.get(field).and_then(Value::as_str).unwrap_or("");
    let values = expression.get("values").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let at_values = path.child("values");
    match text("operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&at_values, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors
                .forbidden(&at_values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
    }
    validate_key(text("key"), &path.child("key"), errors);
    for (at, value) in values.iter().enumerate() {
        validate_value(value.as_str().unwrap_or(""), &at_values.index(at), errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(rule: impl Fn(Option<&Value>, &Path<'_>, &mut ErrorList), input: &Value, expected: &str) {
        let mut errors = ErrorList::new();
        rule(Some(input), &Path::new("x"), &mut errors);
        let summary = if errors.is_empty() { String::new() } else { errors.summary() };
        assert!(summary.starts_with(expected) && summary.is_empty() == expected.is_empty(), "{summary}");
    }

    #[test]
    fn labels() {
        check(validate_labels, &json!({"app.kubernetes.io/name": "a", "b": ""}), "");
        check(validate_labels, &json!({"a b": "x"}), "x: Invalid value: \"a b\": name part must consist of");
        check(validate_labels, &json!({"a": "-"}), "x: Invalid value: \"-\": a valid label must be an empty");
        check(validate_annotations, &json!({"Example.COM/Name": "any text"}), "");
        check(
            validate_annotations,
            &json!({"a": "x".repeat(256 << 10)}),
            "x: Too long: may not be more than 262144 bytes",
        );
    }

    #[test]
    fn selectors() {
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "k", "operator": operator, "values": values}]});
        check(validate_selector, &expression("In", json!(["a"])), "");
        check(
            validate_selector,
            &expression("In", json!([])),
            "x.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        );
        check(
            validate_selector,
            &expression("Exists", json!(["a"])),
            "x.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        );
        check(
            validate_selector,
            &expression("in", json!(["a"])),
            "x.matchExpressions[0].operator: Invalid value: \"in\": not a valid selector operator",
        );
        assert!(selector_is_empty(&json!({"matchLabels": {}})));
        assert!(!selector_is_empty(&expression("Exists", json!([]))));
    }
}
