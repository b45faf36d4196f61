//! Drift: where an object in a member is not what it was told to be.

use serde_json::Value;

/// Most differences that are told.
const TOLD_MAX: usize = 8;

/// The paths at which an object differs from the shard that was meant, at most eight of them. What the shard does not
/// speak of is the member's: its defaults, its status, the fields of other managers.
pub fn drift(meant: &Value, found: &Value) -> Vec<String> {
    let mut told = Vec::new();
    compare(meant, Some(found), &mut String::new(), &mut told);
    told
}

fn compare(meant: &Value, found: Option<&Value>, path: &mut String, told: &mut Vec<String>) {
    if told.len() >= TOLD_MAX {
        return;
    }
    let length = path.len();
    match (meant, found) {
        (Value::Object(meant), Some(Value::Object(found))) => {
            for (key, value) in meant {
                path.push('.');
                path.push_str(key);
                compare(value, found.get(key), path, told);
                path.truncate(length);
            }
        }
        (Value::Array(meant), Some(Value::Array(found))) if meant.len() == found.len() => {
            for (at, (meant, found)) in meant.iter().zip(found).enumerate() {
                path.push_str(&format!("[{at}]"));
                compare(meant, Some(found), path, told);
                path.truncate(length);
            }
        }
        // A server leaves out what is empty.
        (meant, None) if empty(meant) => {}
        (meant, found) if found == Some(meant) => {}
        _ => told.push(path.trim_start_matches('.').to_owned()),
    }
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(empty),
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(is) => !is,
        Value::Number(number) => number.as_i64() == Some(0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_was_meant_is_compared() {
        let meant = json!({ "spec": { "ports": [{ "port": 80 }], "type": "LoadBalancer", "selector": {} } });
        let check = |found: Value, expected: &[&str]| assert_eq!(drift(&meant, &found), expected, "{found}");
        let spec = |ports: Value, kind: &str| json!({ "spec": { "ports": ports, "type": kind, "clusterIP": "10.0.0.1" } });
        check(spec(json!([{ "port": 80, "protocol": "TCP", "nodePort": 31000 }]), "LoadBalancer"), &[]);
        check(spec(json!([{ "port": 81 }]), "LoadBalancer"), &["spec.ports[0].port"]);
        check(spec(json!([]), "ClusterIP"), &["spec.ports", "spec.type"]);
        check(json!({}), &["spec"]);
    }
}
