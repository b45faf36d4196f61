//! From the schema of a Rust type to one that a CustomResourceDefinition may have.
//!
//! Kubernetes wants schemas without references and unions, and defaults only where they are meant. Defaults that are
//! meant are written as `x-default` beside a field.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The structural schema of a type.
pub(super) fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    schema
}

/// The types are our own, so their nesting is bounded.
fn tidy(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    for key in ["title", "default", "components"] {
        map.remove(key);
    }
    if let Some(default) = map.remove("x-default") {
        map.insert("default".into(), default);
    }
    flatten_unions(map);
    if matches!(
        map.get("format").and_then(Value::as_str),
        Some("uint" | "uint8" | "uint16" | "uint32" | "uint64")
    ) {
        map.insert("format".into(), json!("int64"));
    }
    for (key, value) in map.iter_mut() {
        match (key.as_str(), value) {
            ("properties", Value::Object(fields)) => fields.values_mut().for_each(tidy),
            ("items" | "additionalProperties", inner) => tidy(inner),
            _ => {}
        }
    }
}

/// `oneOf` of texts becomes `enum`; a reference wrapped for a description, or a union with null, becomes what is inside.
fn flatten_unions(map: &mut Map<String, Value>) {
    if map.contains_key("x-kubernetes-int-or-string") {
        return;
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        let Some(Value::Array(parts)) = map.remove(key) else { continue };
        let mut texts = Vec::new();
        for mut part in parts {
            tidy(&mut part);
            let Value::Object(mut part) = part else { continue };
            if let Some(Value::Array(values)) = part.remove("enum") {
                texts.extend(values.into_iter().filter(|value| !value.is_null()));
                part.remove("description");
            }
            for (key, value) in part {
                map.entry(key).or_insert(value);
            }
        }
        if !texts.is_empty() {
            map.insert("enum".into(), Value::Array(texts));
        }
    }
}
