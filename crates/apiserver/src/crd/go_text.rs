//! Values inside messages that Kubernetes prints from its unversioned Go structs: every field, in Go's order and case.

use landfall_api::field::{ErrorList, ErrorType, Path};
use serde_json::Value;

use super::schema::{go_quoted, list};

/// Go's fields of a schema with their JSON names, in order.
const FIELDS: [(&str, &str, Zero); 44] = [
    ("ID", "id", Zero::Text),
    ("Schema", "$schema", Zero::Text),
    ("Ref", "$ref", Zero::Null),
    ("Description", "description", Zero::Text),
    ("Type", "type", Zero::Text),
    ("Nullable", "nullable", Zero::False),
    ("Format", "format", Zero::Text),
    ("Title", "title", Zero::Text),
    ("Default", "default", Zero::Null),
    ("Maximum", "maximum", Zero::Null),
    ("ExclusiveMaximum", "exclusiveMaximum", Zero::False),
    ("Minimum", "minimum", Zero::Null),
    ("ExclusiveMinimum", "exclusiveMinimum", Zero::False),
    ("MaxLength", "maxLength", Zero::Null),
    ("MinLength", "minLength", Zero::Null),
    ("Pattern", "pattern", Zero::Text),
    ("MaxItems", "maxItems", Zero::Null),
    ("MinItems", "minItems", Zero::Null),
    ("UniqueItems", "uniqueItems", Zero::False),
    ("MultipleOf", "multipleOf", Zero::Null),
    ("Enum", "enum", Zero::Null),
    ("MaxProperties", "maxProperties", Zero::Null),
    ("MinProperties", "minProperties", Zero::Null),
    ("Required", "required", Zero::Null),
    ("Items", "items", Zero::Items),
    ("AllOf", "allOf", Zero::Schemas),
    ("OneOf", "oneOf", Zero::Schemas),
    ("AnyOf", "anyOf", Zero::Schemas),
    ("Not", "not", Zero::Schema),
    ("Properties", "properties", Zero::Map),
    ("AdditionalProperties", "additionalProperties", Zero::Additional),
    ("PatternProperties", "patternProperties", Zero::Map),
    ("Dependencies", "dependencies", Zero::Null),
    ("AdditionalItems", "additionalItems", Zero::Additional),
    ("Definitions", "definitions", Zero::Map),
    ("ExternalDocs", "externalDocs", Zero::Null),
    ("Example", "example", Zero::Null),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", Zero::Null),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", Zero::False),
    ("XIntOrString", "x-kubernetes-int-or-string", Zero::False),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Zero::Null),
    ("XListType", "x-kubernetes-list-type", Zero::Null),
    ("XMapType", "x-kubernetes-map-type", Zero::Null),
    ("XValidations", "x-kubernetes-validations", Zero::Rules),
];

/// What an absent field looks like, and how a present one is written.
#[derive(Clone, Copy)]
enum Zero {
    Text,
    False,
    Null,
    Schema,
    Schemas,
    Map,
    Items,
    Additional,
    Rules,
}

/// `Invalid value: <text>: <detail>`, for text that is written already.
pub(super) fn invalid(errors: &mut ErrorList, path: &Path<'_>, shown: &str, detail: &str) {
    errors.add(ErrorType::Invalid, path, None, format!("{shown}: {detail}"));
}

/// A schema.
pub(super) fn schema(raw: &Value) -> String {
    let parts: Vec<String> =
        FIELDS.iter().map(|(go, key, zero)| format!("\"{go}\":{}", one(raw.get(key), *zero))).collect();
    format!("{{{}}}", parts.join(","))
}

fn one(value: Option<&Value>, zero: Zero) -> String {
    let Some(value) = value.filter(|v| !v.is_null()) else {
        return match zero {
            Zero::Text => "\"\"".into(),
            Zero::False => "false".into(),
            _ => "null".into(),
        };
    };
    match (zero, value) {
        (Zero::Schema, value) => schema(value),
        (Zero::Schemas, Value::Array(all)) => all_of(all),
        (Zero::Map, Value::Object(map)) => {
            let parts: Vec<String> =
                map.iter().map(|(name, v)| format!("{}:{}", Value::from(name.as_str()), schema(v))).collect();
            format!("{{{}}}", parts.join(","))
        }
        (Zero::Items, Value::Array(all)) => format!("{{\"Schema\":null,\"JSONSchemas\":{}}}", all_of(all)),
        (Zero::Items, value) => format!("{{\"Schema\":{},\"JSONSchemas\":null}}", schema(value)),
        (Zero::Additional, Value::Bool(allows)) => format!("{{\"Allows\":{allows},\"Schema\":null}}"),
        (Zero::Additional, value) => format!("{{\"Allows\":true,\"Schema\":{}}}", schema(value)),
        (Zero::Rules, _) => {
            let holder = super::schema::Schema::read(&serde_json::json!({"x-kubernetes-validations": value}));
            let rules: Vec<String> = holder.rules.iter().map(super::schema::RuleText::go_text).collect();
            format!("[{}]", rules.join(","))
        }
        (_, Value::String(text)) => go_quoted(text),
        (_, value) => value.to_string(),
    }
}

fn all_of(all: &[Value]) -> String {
    let parts: Vec<String> = all.iter().map(schema).collect();
    format!("[{}]", parts.join(","))
}

/// The versions; `shared` says which of schema, subresources, columns and selectable fields stand at the top.
pub(super) fn versions(versions: &[Value], shared: [bool; 4]) -> String {
    let parts: Vec<String> = versions.iter().map(|version| one_version(version, shared)).collect();
    if parts.is_empty() { "null".into() } else { format!("[{}]", parts.join(",")) }
}

fn one_version(version: &Value, shared: [bool; 4]) -> String {
    let [schema_shared, sub_shared, columns_shared, fields_shared] = shared;
    let plain = |key: &str, zero| one(version.get(key), zero);
    let own =
        |is_shared: bool, text: Option<String>| text.filter(|_| !is_shared).unwrap_or_else(|| "null".into());
    let schema =
        version.pointer("/schema/openAPIV3Schema").map(|s| format!("{{\"OpenAPIV3Schema\":{}}}", schema(s)));
    let sub = version.get("subresources").filter(|s| s.is_object()).map(subresources);
    let columns = Some(list(version, "additionalPrinterColumns")).filter(|c| !c.is_empty()).map(columns);
    let fields = Some(list(version, "selectableFields")).filter(|f| !f.is_empty()).map(|fields| {
        let one = |f: &Value| format!("{{\"JSONPath\":{}}}", f.get("jsonPath").unwrap_or(&Value::Null));
        format!("[{}]", fields.iter().map(one).collect::<Vec<_>>().join(","))
    });
    format!(
        "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{},\"Subresources\":{},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
        plain("name", Zero::Text),
        plain("served", Zero::False),
        plain("storage", Zero::False),
        plain("deprecated", Zero::False),
        plain("deprecationWarning", Zero::Null),
        own(schema_shared, schema),
        own(sub_shared, sub),
        own(columns_shared, columns),
        own(fields_shared, fields),
    )
}

fn subresources(value: &Value) -> String {
    let status = value.get("status").filter(|s| !s.is_null()).map_or("null", |_| "{}");
    let scale = value.get("scale").filter(|s| s.is_object()).map_or_else(
        || "null".into(),
        |scale| {
            format!(
                "{{\"SpecReplicasPath\":{},\"StatusReplicasPath\":{},\"LabelSelectorPath\":{}}}",
                one(scale.get("specReplicasPath"), Zero::Text),
                one(scale.get("statusReplicasPath"), Zero::Text),
                one(scale.get("labelSelectorPath"), Zero::Null)
            )
        },
    );
    format!("{{\"Status\":{status},\"Scale\":{scale}}}")
}

fn columns(columns: &[Value]) -> String {
    let one = |c: &Value| {
        format!(
            "{{\"Name\":{},\"Type\":{},\"Format\":{},\"Description\":{},\"Priority\":{},\"JSONPath\":{}}}",
            one(c.get("name"), Zero::Text),
            one(c.get("type"), Zero::Text),
            one(c.get("format"), Zero::Text),
            one(c.get("description"), Zero::Text),
            c.get("priority").and_then(Value::as_i64).unwrap_or(0),
            one(c.get("jsonPath"), Zero::Text)
        )
    };
    format!("[{}]", columns.iter().map(one).collect::<Vec<_>>().join(","))
}
