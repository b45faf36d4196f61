//! Components of custom kinds: the CRD's schema with what every object has.

use std::sync::Arc;

use landfall_api::Kind;
use serde_json::{Value, json};

use super::CustomSchemas;
use super::components::{Components, META, reference};

/// The schemas of all versions of a CustomResourceDefinition, as [`super::OpenApi::new`] takes them.
pub fn schemas_of(definition: &Value) -> CustomSchemas {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    let schema = |version: &Value| {
        let name = version.get("name").and_then(Value::as_str)?.to_owned();
        let schema = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default();
        Some(((text("/spec/group"), name, text("/spec/names/kind")), Arc::new(schema)))
    };
    versions.filter_map(schema).collect()
}

/// The component name of a custom kind: `test.example.v1.Boat` for `example.test/v1`.
pub(super) fn name(kind: &Kind) -> String {
    let mut labels: Vec<&str> = kind.group.split('.').collect();
    labels.reverse();
    format!("{}.{}.{}", labels.join("."), kind.version, kind.kind)
}

const METADATA: &str = "Standard object's metadata. More info: \
https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// Adds a custom kind and its list.
pub(super) fn add(components: &mut Components, kind: &Kind, schema: &Value) {
    let name = name(kind);
    let object_meta = components.add_named(&format!("{META}.ObjectMeta"));
    let mut schema = if schema.is_object() { schema.clone() } else { json!({}) };
    schema["type"] = json!("object");
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema["properties"] = json!({});
    }
    schema["properties"]["apiVersion"] = components.type_meta("apiVersion");
    schema["properties"]["kind"] = components.type_meta("kind");
    schema["properties"]["metadata"] = json!({"description": METADATA, "allOf": [reference(&object_meta)]});
    components.insert(&name, schema);
    components.mark(&name, &kind.group, &kind.version, &kind.kind);
    components.add_list(kind, &name, &reference(&name));
}
