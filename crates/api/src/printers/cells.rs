//! What cells are made of: values of an object read by JSON pointer, and lists, selectors and ages in words.

use std::cmp::Ordering;

use serde_json::Value;

use crate::{age, meta};

/// What stands where nothing was given.
pub(super) const NONE: &str = "<none>";
/// What stands where nobody knows.
pub(super) const UNKNOWN: &str = "<unknown>";
/// What stands where a field has no default either.
pub(super) const UNSET: &str = "<unset>";

/// The text at a JSON pointer, if there is one.
pub(super) fn find<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

/// The text at a JSON pointer, or `""`.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    find(object, pointer).unwrap_or("")
}

/// The text at a JSON pointer, or another one where it is missing or empty.
pub(super) fn text_or<'a>(object: &'a Value, pointer: &str, otherwise: &'a str) -> &'a str {
    find(object, pointer).filter(|text| !text.is_empty()).unwrap_or(otherwise)
}

/// The whole number at a JSON pointer, or 0.
pub(super) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// The items at a JSON pointer; none when it is no list.
pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// How many entries the map at a JSON pointer has.
pub(super) fn entries(object: &Value, pointer: &str) -> usize {
    object.pointer(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

/// The object's name.
pub(super) fn name(object: &Value) -> Value {
    meta::name(object).into()
}

/// How long ago the object was made.
pub(super) fn age(object: &Value, now_s: i64) -> Value {
    age::since(find(object, "/metadata/creationTimestamp"), now_s).into()
}

/// A text or a number as the text Go prints: for int-or-string values and quantities.
pub(super) fn plain(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The texts at one pointer of each item, joined by commas: container names, images.
pub(super) fn joined(list: &[Value], pointer: &str) -> Value {
    list.iter().map(|item| text(item, pointer)).collect::<Vec<_>>().join(",").into()
}

/// Names and images of the containers of the pod template at a pointer, then its selector.
pub(super) fn containers(object: &Value, pod_spec: &str) -> [Value; 2] {
    let list = items(object, &format!("{pod_spec}/containers"));
    [joined(list, "/name"), joined(list, "/image")]
}

/// `a,b,c + 2 more...`: the first three of a list.
pub(super) fn first_three(list: &[String]) -> String {
    const SHOWN: usize = 3;
    let head = list.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(",");
    match list.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{head} + {more} more..."),
        _ => head,
    }
}

/// The addresses of a load balancer's status, sorted, each once.
pub(super) fn load_balancer(object: &Value) -> String {
    let ingress = items(object, "/status/loadBalancer/ingress").iter();
    let mut found: Vec<&str> = ingress
        .map(|point| text_or(point, "/ip", text(point, "/hostname")))
        .filter(|a| !a.is_empty())
        .collect();
    found.sort_unstable();
    found.dedup();
    found.join(",")
}

/// A map of labels as `a=b,c=d`, sorted; `<none>` when empty.
pub(super) fn labels(map: Option<&Value>) -> String {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for (key, value) in map.and_then(Value::as_object).into_iter().flatten() {
        pairs.push((key, value.as_str().unwrap_or("")));
    }
    pairs.sort_unstable();
    let words: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if words.is_empty() { NONE.into() } else { words.join(",") }
}

/// A LabelSelector in words; `<none>` when it selects nothing or everything.
pub(super) fn selector(selector: Option<&Value>) -> String {
    match selector_words(selector) {
        None => "<error>".into(),
        Some(words) if words.is_empty() => NONE.into(),
        Some(words) => words,
    }
}

/// A LabelSelector in words: `a=b,c in (d,e),!f`, sorted by key; `None` when it has an unknown operator.
pub(super) fn selector_words(selector: Option<&Value>) -> Option<String> {
    let Some(selector) = selector else { return Some(String::new()) };
    let mut parts: Vec<(&str, String)> = Vec::new();
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        parts.push((key, format!("{key}={}", value.as_str().unwrap_or(""))));
    }
    for expression in items(selector, "/matchExpressions") {
        let key = text(expression, "/key");
        parts.push((key, requirement(key, expression)?));
    }
    parts.sort_by(|a, b| a.0.cmp(b.0));
    Some(parts.into_iter().map(|(_, words)| words).collect::<Vec<_>>().join(","))
}

fn requirement(key: &str, expression: &Value) -> Option<String> {
    let values = || {
        let mut list: Vec<&str> = items(expression, "/values").iter().filter_map(Value::as_str).collect();
        list.sort_unstable();
        list.join(",")
    };
    match text(expression, "/operator") {
        "In" => Some(format!("{key} in ({})", values())),
        "NotIn" => Some(format!("{key} notin ({})", values())),
        "Exists" => Some(key.to_owned()),
        "DoesNotExist" => Some(format!("!{key}")),
        _ => None,
    }
}

/// Whether the object has a condition of that type whose status is `True`.
pub(super) fn is_true(object: &Value, condition: &str) -> bool {
    let found = items(object, "/status/conditions").iter().find(|c| text(c, "/type") == condition);
    found.is_some_and(|c| text(c, "/status") == "True")
}

/// The later of two RFC 3339 times; what is no time is earliest.
pub(super) fn later<'a>(a: Option<&'a str>, b: Option<&'a str>) -> Option<&'a str> {
    match age::seconds(a).cmp(&age::seconds(b)) {
        Ordering::Less => b,
        Ordering::Equal | Ordering::Greater => a,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_in_words() {
        for (given, words) in [
            (json!(null), "<none>"),
            (json!({}), "<none>"),
            (json!({"matchLabels": {"b": "1", "a": "2"}}), "a=2,b=1"),
            (
                json!({"matchExpressions": [{"key": "k", "operator": "In", "values": ["z", "y"]}]}),
                "k in (y,z)",
            ),
            (
                json!({"matchExpressions": [{"key": "k", "operator": "NotIn", "values": ["z"]}]}),
                "k notin (z)",
            ),
            (
                json!({"matchLabels": {"m": "1"}, "matchExpressions": [
                    {"key": "z", "operator": "DoesNotExist"}, {"key": "a", "operator": "Exists"}]}),
                "a,m=1,!z",
            ),
            (json!({"matchExpressions": [{"key": "k", "operator": "Near"}]}), "<error>"),
            (json!({"matchExpressions": "no list", "matchLabels": 7}), "<none>"),
        ] {
            assert_eq!(selector(Some(&given)), words, "{given}");
        }
    }

    #[test]
    fn long_lists_are_cut_after_three() {
        let list = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>();
        for (n, words) in
            [(0, ""), (1, "0"), (3, "0,1,2"), (4, "0,1,2 + 1 more..."), (9, "0,1,2 + 6 more...")]
        {
            assert_eq!(first_three(&list(n)), words);
        }
    }
}
