//! The Swagger 2.0 document, from the OpenAPI 3 ones: for clients that know nothing newer.

use serde_json::{Map, Value, json};

/// How deep a schema may be nested; deeper parts of a custom schema are left out.
const DEPTH_MAX: usize = 64;

/// One document of many.
pub(super) fn merge(documents: impl Iterator<Item = Value>) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for mut document in documents {
        if let Some(Value::Object(found)) = document.get_mut("paths").map(Value::take) {
            paths.extend(found.into_iter().map(|(path, item)| (path, path_item(item))));
        }
        if let Some(Value::Object(found)) = document.pointer_mut("/components/schemas").map(Value::take) {
            for (name, schema) in found {
                let schema = convert(schema, 0);
                definitions.entry(name).and_modify(|old| more_kinds(old, &schema)).or_insert(schema);
            }
        }
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Landfall", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": {"BearerToken": {
            "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header",
        }},
        "security": [{"BearerToken": []}],
    })
}

/// A struct such as `DeleteOptions` is a kind of every group.
fn more_kinds(old: &mut Value, new: &Value) {
    const KEY: &str = "x-kubernetes-group-version-kind";
    let Some(markers) = new.get(KEY).and_then(Value::as_array) else { return };
    let Some(have) = old.get_mut(KEY).and_then(Value::as_array_mut) else { return };
    for marker in markers {
        if !have.contains(marker) {
            have.push(marker.clone());
        }
    }
}

fn path_item(item: Value) -> Value {
    let Value::Object(item) = item else { return item };
    let convert = |(key, value): (String, Value)| match key.as_str() {
        "parameters" => (key, parameters(value)),
        _ => (key, operation(value)),
    };
    Value::Object(item.into_iter().map(convert).collect())
}

fn operation(mut operation: Value) -> Value {
    let mut list = match operation.get_mut("parameters").map(Value::take).map(parameters) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    let body = operation.as_object_mut().and_then(|o| o.remove("requestBody"));
    if let Some(content) = body.as_ref().and_then(|body| body.get("content")).and_then(Value::as_object) {
        let types: Vec<&String> = content.keys().collect();
        let schema = content.values().next().and_then(|c| c.get("schema")).cloned().unwrap_or_default();
        let required = body.as_ref().is_some_and(|body| body.get("required") == Some(&Value::Bool(true)));
        let mut parameter = json!({"name": "body", "in": "body", "schema": convert(schema, 0)});
        if required {
            parameter["required"] = json!(true);
        }
        operation["consumes"] = json!(types);
        list.insert(0, parameter);
    }
    operation["produces"] = json!(["application/json"]);
    operation["schemes"] = json!(["https"]);
    if list.is_empty() {
        operation.as_object_mut().map(|o| o.remove("parameters"));
    } else {
        operation["parameters"] = Value::Array(list);
    }
    for response in operation.get_mut("responses").and_then(Value::as_object_mut).into_iter().flatten() {
        let schema = response.1.pointer("/content/application~1json/schema").cloned();
        response.1.as_object_mut().map(|r| r.remove("content"));
        if let Some(schema) = schema {
            response.1["schema"] = convert(schema, 0);
        }
    }
    operation
}

/// Swagger has a parameter's type beside its name.
fn parameters(list: Value) -> Value {
    let Value::Array(list) = list else { return list };
    let flat = |mut parameter: Value| {
        let schema = parameter.as_object_mut().and_then(|p| p.remove("schema"));
        if let (Some(Value::Object(schema)), Some(parameter)) = (schema, parameter.as_object_mut()) {
            parameter.extend(schema);
        }
        parameter
    };
    Value::Array(list.into_iter().map(flat).collect())
}

/// A schema in Swagger's words: references stand beside descriptions, and there are no unions.
fn convert(schema: Value, depth: usize) -> Value {
    let Value::Object(mut map) = schema else { return schema };
    if depth > DEPTH_MAX {
        return json!({});
    }
    map.remove("oneOf").map(|_| map.entry("type").or_insert_with(|| json!("string")));
    for key in ["anyOf", "not", "nullable", "x-kubernetes-validations"] {
        map.remove(key);
    }
    let only = match map.get("allOf") {
        Some(Value::Array(list)) => list.first().and_then(|first| first.get("$ref")).cloned(),
        _ => None,
    };
    if map.remove("allOf").is_some()
        && let Some(target) = only
    {
        map.insert("$ref".into(), target);
        map.remove("default");
    }
    if let Some(Value::String(target)) = map.get_mut("$ref") {
        *target = target.replace("#/components/schemas/", "#/definitions/");
    }
    for (key, value) in &mut map {
        match (key.as_str(), value.take()) {
            ("properties", Value::Object(fields)) => {
                *value = Value::Object(fields.into_iter().map(|(n, s)| (n, convert(s, depth + 1))).collect());
            }
            ("items" | "additionalProperties", inner) => *value = convert(inner, depth + 1),
            (_, other) => *value = other,
        }
    }
    Value::Object(map)
}
