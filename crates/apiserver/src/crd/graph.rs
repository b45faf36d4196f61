//! The type graph of a custom resource, made from its schema: what server-side apply and OpenAPI walk.

use std::sync::Arc;

use landfall_api::schema::{Field, Identity, ListType, MapType, Struct, StructRef, Type};

use super::lists::OBJECT_META;
use super::schema::{Additional, Schema};

/// The shape of whole objects of that schema.
pub fn root(schema: &Schema) -> StructRef {
    StructRef::owned(whole(schema, true))
}

fn of(schema: &Schema) -> Type {
    if schema.int_or_string {
        return Type::IntOrString;
    }
    match schema.ty.as_str() {
        "boolean" => Type::Bool,
        "integer" => Type::Int64,
        "number" => Type::Double,
        "string" => Type::String,
        "array" => Type::List(Arc::new(ListType {
            item: schema.items.as_deref().map_or(Type::Any, of),
            identity: identity(schema),
            ..ListType::default()
        })),
        "object" => object(schema),
        _ => Type::Any,
    }
}

fn object(schema: &Schema) -> Type {
    let atomic = schema.map_type.as_deref() == Some("atomic");
    match &schema.additional {
        Some(Additional::Schema(value)) => Type::Map(Arc::new(MapType { value: of(value), atomic })),
        Some(Additional::Allowed(true)) if schema.properties.is_empty() => {
            Type::Map(Arc::new(MapType { value: Type::Any, atomic }))
        }
        _ => Type::Struct(StructRef::owned(whole(schema, schema.embedded))),
    }
}

fn whole(schema: &Schema, with_meta: bool) -> Struct {
    let mut fields: Vec<Field> = schema
        .properties
        .iter()
        .filter(|(name, _)| !with_meta || !matches!(name.as_str(), "apiVersion" | "kind" | "metadata"))
        .map(|(name, child)| Field {
            name: name.as_str().into(),
            ty: of(child),
            required: schema.required.contains(name),
            nullable: child.nullable,
            default: child.default.clone(),
            ..Field::default()
        })
        .collect();
    if with_meta {
        let field = |name: &str, ty| Field { name: name.into(), ty, ..Field::default() };
        fields.push(field("apiVersion", Type::String));
        fields.push(field("kind", Type::String));
        fields.push(field("metadata", Type::Struct(StructRef::named(OBJECT_META))));
        fields.sort_by(|a, b| a.name.cmp(&b.name));
    }
    Struct {
        fields: fields.into(),
        atomic: schema.map_type.as_deref() == Some("atomic"),
        preserve_unknown: schema.preserves(),
        embedded: schema.embedded,
        ..Struct::default()
    }
}

fn identity(schema: &Schema) -> Identity {
    match schema.list_type.as_deref() {
        Some("set") => Identity::Set,
        Some("map") => {
            let default = |key: &String| {
                schema.items.as_ref()?.properties.get(key).and_then(|property| property.default.clone())
            };
            let keys = schema.list_keys.iter().map(|key| (key.as_str().into(), default(key)));
            Identity::Keys(keys.collect())
        }
        _ => Identity::Atomic,
    }
}
