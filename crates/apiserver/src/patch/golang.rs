//! JSON the way Go prints it, for messages that show a value.

use serde_json::Value;

/// As `%v` prints it: `map[a:1 b:[x y]]`.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let mut pairs: Vec<_> = map.iter().collect();
            pairs.sort_by(|a, b| a.0.cmp(b.0));
            let pairs: Vec<String> = pairs.into_iter().map(|(k, v)| format!("{k}:{}", plain(v))).collect();
            format!("map[{}]", pairs.join(" "))
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// As `%s` prints it, which is made for texts.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "%!s(<nil>)".into(),
        Value::Bool(_) | Value::Number(_) => format!("%!s({}={value})", type_name(value)),
        Value::String(_) | Value::Array(_) | Value::Object(_) => plain(value),
    }
}

/// As `%#v` prints it.
pub(crate) fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let mut pairs: Vec<_> = map.iter().collect();
            pairs.sort_by(|a, b| a.0.cmp(b.0));
            let pairs: Vec<String> = pairs.into_iter().map(|(k, v)| format!("{k:?}:{}", syntax(v))).collect();
            format!("map[string]interface {{}}{{{}}}", pairs.join(", "))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// As `%T` prints it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
