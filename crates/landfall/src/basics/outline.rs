//! An object as people read it: words instead of braces, without what only machines need.

use serde_json::{Map, Value};

/// Metadata that says nothing to a reader.
const HIDDEN: [&str; 4] = ["managedFields", "resourceVersion", "uid", "generation"];

/// Lays out an object: its name, namespace, labels and annotations first, then the rest.
pub(crate) fn render(object: &Value) -> String {
    let mut out = String::new();
    let Some(map) = object.as_object() else { return out };
    if let Some(Value::Object(metadata)) = map.get("metadata") {
        let shown: Map<String, Value> =
            metadata.iter().filter(|(key, _)| !HIDDEN.contains(&key.as_str())).map(cloned).collect();
        let first = ["name", "namespace", "labels", "annotations"];
        for key in first {
            if let Some(value) = shown.get(key) {
                member(&mut out, key, value, 0);
            }
        }
        for (key, value) in shown.iter().filter(|(key, _)| !first.contains(&key.as_str())) {
            member(&mut out, key, value, 0);
        }
    }
    let secret = map.get("kind").and_then(Value::as_str) == Some("Secret");
    for (key, value) in map.iter().filter(|(key, _)| *key != "metadata") {
        match value {
            Value::Object(values) if secret => member(&mut out, key, &sizes(values), 0),
            _ => member(&mut out, key, value, 0),
        }
    }
    out
}

/// What may be told of secrets.
fn sizes(values: &Map<String, Value>) -> Value {
    let size = |value: &Value| {
        let encoded = value.as_str().unwrap_or_default().trim_end_matches('=');
        format!("{} bytes", encoded.len() * 3 / 4)
    };
    Value::Object(values.iter().map(|(key, value)| (key.clone(), size(value).into())).collect())
}

fn cloned((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

fn member(out: &mut String, key: &str, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    let title = title(key);
    match value {
        Value::Object(map) if map.is_empty() => out.push_str(&format!("{indent}{title}:  <none>\n")),
        Value::Array(list) if list.is_empty() => out.push_str(&format!("{indent}{title}:  <none>\n")),
        Value::Object(map) => {
            out.push_str(&format!("{indent}{title}:\n"));
            // Keys of labels and annotations are the user's own words.
            let theirs = matches!(
                key,
                "labels" | "annotations" | "data" | "matchLabels" | "nodeSelector" | "selector"
            );
            for (key, value) in map {
                match (theirs, value) {
                    (true, Value::String(text)) => {
                        out.push_str(&format!("{indent}  {key}={}\n", text.replace('\n', " ")));
                    }
                    _ => member(out, key, value, depth + 1),
                }
            }
        }
        Value::Array(list) => {
            out.push_str(&format!("{indent}{title}:\n"));
            for item in list {
                element(out, item, depth + 1);
            }
        }
        plain => out.push_str(&format!("{indent}{title}:  {}\n", text(plain))),
    }
}

/// An element of a list; the members of an object stand under a dash.
fn element(out: &mut String, item: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    let Value::Object(map) = item else {
        out.push_str(&format!("{indent}{}\n", text(item)));
        return;
    };
    let mut inner = String::new();
    for (key, value) in map {
        member(&mut inner, key, value, depth + 1);
    }
    let from = (depth + 1) * 2;
    out.push_str(&format!("{indent}- {}", inner.get(from..).unwrap_or_default()));
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "<none>".into(),
        Value::String(text) => text.replace('\n', " "),
        other => other.to_string(),
    }
}

/// `loadBalancer` as `Load Balancer`.
fn title(key: &str) -> String {
    if key.contains(['.', '/', '-']) {
        return key.to_owned();
    }
    let mut out = String::new();
    for (index, letter) in key.chars().enumerate() {
        let upper = letter.is_uppercase();
        let after_lower = out.chars().last().is_some_and(char::is_lowercase);
        if upper && after_lower {
            out.push(' ');
        }
        out.extend(if index == 0 { letter.to_uppercase().collect::<Vec<_>>() } else { vec![letter] });
    }
    out
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let object =
            json!({"kind": "Secret", "metadata": {"name": "s"}, "data": {"password": "aHVudGVyMg=="}});
        let shown = render(&object);
        assert!(shown.contains("password=7 bytes") && !shown.contains("aHVudGVyMg"), "{shown}");
    }

    #[test]
    fn an_outline() {
        let object = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"uid": "1", "name": "web", "labels": {"app.kubernetes.io/name": "web"}, "managedFields": []},
            "spec": {"ports": [{"port": 80, "targetPort": 8080}], "externalIPs": []},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
        });
        expect![[r"
            Name:  web
            Labels:
              app.kubernetes.io/name=web
            Api Version:  v1
            Kind:  Service
            Spec:
              External IPs:  <none>
              Ports:
                - Port:  80
                  Target Port:  8080
            Status:
              Load Balancer:
                Ingress:
                  - Ip:  192.0.2.1
        "]]
        .assert_eq(&render(&object));
    }
}
