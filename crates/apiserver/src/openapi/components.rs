//! Components: the schemas of built-in structs, from their shape and what is said about them.

use std::sync::Arc;

use landfall_api::Kind;
use landfall_api::schema::{self, Field, Identity, SchemaOr, Struct, StructRef, Type};
use serde_json::{Map, Value, json};

use super::descriptions::Descriptions;
use super::facts;

pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";

/// The schemas of one document, gathered from its kinds.
pub(super) struct Components {
    words: Descriptions,
    schemas: Map<String, Value>,
}

impl Components {
    /// None yet.
    pub(super) fn new(words: Descriptions) -> Self {
        Self { words, schemas: Map::new() }
    }

    /// A built-in kind, its list, and all they refer to.
    pub(super) fn add_kind(&mut self, kind: &Kind) {
        let name = self.add_struct(kind.schema.get());
        self.mark(&name, &kind.group, &kind.version, &kind.kind);
        if !kind.verbs.is_empty() {
            self.add_list(kind, &name, &json!({"default": {}, "allOf": [reference(&name)]}));
        }
    }

    /// The list of a kind.
    pub(super) fn add_list(&mut self, kind: &Kind, name: &str, item: &Value) {
        let name_of_list = list_name(name);
        let list_meta = self.add_struct(schema::builtin(&format!("{META}.ListMeta")));
        let properties = json!({
            "apiVersion": self.type_meta("apiVersion"),
            "kind": self.type_meta("kind"),
            "metadata": {
                "description": "Standard list metadata.", "default": {}, "allOf": [reference(&list_meta)],
            },
            "items": {"description": format!("List of {}.", kind.plural), "type": "array", "items": item},
        });
        let list = json!({
            "description": format!("{} is a list of {}.", kind.list_kind, kind.kind),
            "type": "object", "required": ["items"], "properties": properties,
        });
        self.schemas.insert(name_of_list.clone(), list);
        self.mark(&name_of_list, &kind.group, &kind.version, &kind.list_kind);
    }

    /// A schema that is already complete.
    pub(super) fn insert(&mut self, name: &str, schema: Value) {
        self.schemas.insert(name.to_owned(), schema);
    }

    /// A built-in struct of that full name; gives back the name.
    pub(super) fn add_named(&mut self, name: &str) -> String {
        self.add_struct(schema::builtin(name))
    }

    /// Says that a schema is the shape of a kind.
    pub(super) fn mark(&mut self, name: &str, group: &str, version: &str, kind: &str) {
        let Some(schema) = self.schemas.get_mut(name).and_then(Value::as_object_mut) else { return };
        let kinds = schema.entry("x-kubernetes-group-version-kind").or_insert_with(|| json!([]));
        let marker = json!({"group": group, "kind": kind, "version": version});
        if let Some(list) = kinds.as_array_mut()
            && !list.contains(&marker)
        {
            list.push(marker);
        }
    }

    /// `apiVersion` or `kind` of any object.
    pub(super) fn type_meta(&self, field: &str) -> Value {
        let said = self.words.get(&format!("{META}.Status")).and_then(|words| words.fields.get(field));
        json!({"description": said.map_or("", String::as_str), "type": "string"})
    }

    /// All schemas; the ones that every group has are marked as kinds of this one.
    pub(super) fn finish(mut self, kinds: &[Arc<Kind>]) -> Map<String, Value> {
        let names = [format!("{META}.DeleteOptions"), format!("{META}.Status")];
        for (name, kind) in names.iter().zip(["DeleteOptions", "Status"]) {
            self.mark(name, "", "v1", kind);
        }
        if let Some(kind) = kinds.first() {
            self.mark(&names[0], &kind.group, &kind.version, "DeleteOptions");
        }
        self.schemas
    }

    fn add_struct(&mut self, item: &Struct) -> String {
        let name = item.name.to_string();
        if self.schemas.contains_key(&name) {
            return name;
        }
        // Some structs contain themselves: the place is taken before their fields are looked at.
        self.schemas.insert(name.clone(), Value::Null);
        let mut properties = Map::new();
        for field in &item.fields {
            let schema = self.property(&name, field);
            properties.insert(field.name.to_string(), schema);
        }
        let required: Vec<&str> = item.fields.iter().filter(|f| f.required).map(|f| &*f.name).collect();
        let mut schema = json!({"type": "object", "properties": properties});
        if let Some(about) = self.about(&name) {
            schema["description"] = about;
        }
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        if item.atomic {
            schema["x-kubernetes-map-type"] = json!("atomic");
        }
        self.schemas.insert(name.clone(), schema);
        name
    }

    fn property(&mut self, owner: &str, field: &Field) -> Value {
        let mut schema = self.schema_of(&field.ty, &field.go.ty);
        let mut said = self.words.get(owner).and_then(|words| words.fields.get(&*field.name)).cloned();
        if let Some(values) = facts::values(owner, &field.name) {
            let listed = schema.get("items").is_some();
            innermost(&mut schema)["enum"] = json!(values);
            // What the items of a list may be is not repeated in words.
            said = said.map(|said| if listed { said } else { with_values(&said, values) });
        }
        let mut beside = extensions(field);
        beside.extend(said.filter(|said| !said.is_empty()).map(|said| ("description", json!(said))));
        beside.extend(default_of(owner, field).map(|default| ("default", default)));
        // In OpenAPI 3.0 a reference stands alone, so it goes one level down when there is more to say.
        if !beside.is_empty() && schema.get("$ref").is_some() {
            schema = json!({"allOf": [schema]});
        }
        for (key, value) in beside {
            schema[key] = value;
        }
        schema
    }

    fn schema_of(&mut self, ty: &Type, go: &str) -> Value {
        match ty {
            Type::Bool => json!({"type": "boolean"}),
            Type::Int32 => json!({"type": "integer", "format": "int32"}),
            Type::Int64 => json!({"type": "integer", "format": "int64"}),
            Type::Double => json!({"type": "number", "format": "double"}),
            Type::String => json!({"type": "string"}),
            Type::Bytes => json!({"type": "string", "format": "byte"}),
            Type::Any => self.any(go),
            Type::IntOrString => self.scalar(
                "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
            ),
            Type::Quantity => self.scalar(
                "io.k8s.apimachinery.pkg.api.resource.Quantity",
                json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            ),
            Type::Time => {
                self.scalar(&format!("{META}.Time"), json!({"type": "string", "format": "date-time"}))
            }
            Type::MicroTime => {
                self.scalar(&format!("{META}.MicroTime"), json!({"type": "string", "format": "date-time"}))
            }
            Type::SchemaOr(or) => {
                let name = match or {
                    SchemaOr::Bool => "JSONSchemaPropsOrBool",
                    SchemaOr::Schemas => "JSONSchemaPropsOrArray",
                    SchemaOr::Strings => "JSONSchemaPropsOrStringArray",
                };
                self.scalar(&format!("{EXTENSIONS}.{name}"), json!({}))
            }
            Type::Struct(item) => self.struct_of(item),
            Type::List(list) => {
                let of = go.strip_prefix("[]").unwrap_or("");
                json!({"type": "array", "items": self.inner(&list.item, of)})
            }
            Type::Map(map) => json!({"type": "object", "additionalProperties": self.inner(&map.value, "")}),
        }
    }

    fn struct_of(&mut self, item: &StructRef) -> Value {
        let item = item.get();
        if item.name.is_empty() {
            return json!({"type": "object"});
        }
        reference(&self.add_struct(item))
    }

    /// What is inside a list or map; Go's zero value is its default.
    fn inner(&mut self, ty: &Type, go: &str) -> Value {
        let schema = self.schema_of(ty, go);
        match ty {
            Type::Struct(_) => json!({"default": {}, "allOf": [schema]}),
            Type::String => json!({"type": "string", "default": ""}),
            Type::Int32 | Type::Int64 => {
                let mut schema = schema;
                schema["default"] = json!(0);
                schema
            }
            _ => schema,
        }
    }

    fn any(&mut self, go: &str) -> Value {
        match go {
            "v1.FieldsV1" => self.scalar(&format!("{META}.FieldsV1"), json!({"type": "object"})),
            "v1.JSON" => self.scalar(&format!("{EXTENSIONS}.JSON"), json!({})),
            _ => self.scalar("io.k8s.apimachinery.pkg.runtime.RawExtension", json!({"type": "object"})),
        }
    }

    /// A component for a value that has a name but no fields.
    fn scalar(&mut self, name: &str, mut schema: Value) -> Value {
        if !self.schemas.contains_key(name) {
            if let Some(about) = self.about(name) {
                schema["description"] = about;
            }
            self.schemas.insert(name.to_owned(), schema);
        }
        reference(name)
    }

    fn about(&self, name: &str) -> Option<Value> {
        self.words
            .get(name)
            .map(|words| &words.about)
            .filter(|about| !about.is_empty())
            .map(|about| json!(about))
    }
}

/// `#/components/schemas/<name>`.
pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The component of a kind's list.
pub(super) fn list_name(name: &str) -> String {
    format!("{name}List")
}

/// The items of a list, the values of a map, or the schema itself.
fn innermost(schema: &mut Value) -> &mut Value {
    for inside in ["items", "additionalProperties"] {
        if schema.get(inside).is_some() {
            return &mut schema[inside];
        }
    }
    schema
}

/// A description with the values that a field takes.
fn with_values(said: &str, values: &[&str]) -> String {
    let list: Vec<String> = values.iter().map(|value| format!(" - `\"{value}\"`")).collect();
    format!("{said}\n\nPossible enum values:\n{}", list.join("\n"))
}

/// The declared default, or Go's zero value where the field is always written.
fn default_of(owner: &str, field: &Field) -> Option<Value> {
    if field.default.is_some() {
        return field.default.clone();
    }
    let declared = facts::defaults_to_zero(owner, &field.name);
    if field.go.pointer && !declared {
        return None;
    }
    let written = declared || (!field.go.omit_empty && !field.go.omit_zero);
    match &field.ty {
        Type::Struct(_) => Some(json!({})),
        Type::String if written => Some(json!("")),
        Type::Int32 | Type::Int64 if written => Some(json!(0)),
        Type::Bool if written => Some(json!(false)),
        _ => None,
    }
}

/// What patches and server-side apply need to know.
fn extensions(field: &Field) -> Vec<(&'static str, Value)> {
    let mut found = Vec::new();
    match &field.ty {
        Type::List(list) => match &list.identity {
            Identity::Atomic => found.push(("x-kubernetes-list-type", json!("atomic"))),
            Identity::Set => found.push(("x-kubernetes-list-type", json!("set"))),
            Identity::Keys(keys) => {
                let keys: Vec<&str> = keys.iter().map(|(key, _)| &**key).collect();
                found.push(("x-kubernetes-list-type", json!("map")));
                found.push(("x-kubernetes-list-map-keys", json!(keys)));
            }
        },
        Type::Map(map) if map.atomic => found.push(("x-kubernetes-map-type", json!("atomic"))),
        _ => {}
    }
    let patch = &field.patch;
    let strategies = [(patch.replace, "replace"), (patch.merge, "merge"), (patch.retain_keys, "retainKeys")];
    let words: Vec<&str> = strategies.iter().filter(|(has, _)| *has).map(|(_, word)| *word).collect();
    if !words.is_empty() {
        found.push(("x-kubernetes-patch-strategy", json!(words.join(","))));
    }
    if !patch.merge_key.is_empty() {
        found.push(("x-kubernetes-patch-merge-key", json!(patch.merge_key)));
    }
    found
}
