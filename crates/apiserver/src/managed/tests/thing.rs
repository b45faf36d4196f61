//! A kind with every sort of field, for cases and properties.

use landfall_api::schema::{Field, Identity, ListType, MapType, Struct, StructRef, Type};
use serde_json::{Value, json};

pub(super) fn field(name: &str, ty: Type) -> Field {
    Field { name: name.into(), ty, ..Field::default() }
}

pub(super) fn object(mut fields: Vec<Field>) -> Struct {
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    Struct { fields: fields.into(), ..Struct::default() }
}

pub(super) fn nested(fields: Vec<Field>) -> Type {
    Type::Struct(StructRef::owned(object(fields)))
}

pub(super) fn list(item: Type, identity: Identity) -> Type {
    Type::List(ListType { item, identity, ..ListType::default() }.into())
}

pub(super) fn map(value: Type, atomic: bool) -> Type {
    Type::Map(MapType { value, atomic }.into())
}

pub(super) fn keys(names: &[(&str, Option<Value>)]) -> Identity {
    Identity::Keys(names.iter().map(|(name, default)| ((*name).into(), default.clone())).collect())
}

pub(super) fn free() -> Type {
    Type::Struct(StructRef::owned(Struct { preserve_unknown: true, ..Struct::default() }))
}

/// `example.com/v1`, kind `Thing`.
pub(super) fn thing() -> Struct {
    let texts = || list(Type::String, Identity::Set);
    let pair = |one: &str, other: &str| vec![field(one, Type::String), field(other, Type::Int64)];
    let item = nested(vec![
        field("name", Type::String),
        field("v", Type::Int64),
        field("w", Type::String),
        field("inner", texts()),
        field("sub", nested(vec![field("x", Type::Int64), field("y", Type::Int64)])),
        field("extra", map(Type::String, false)),
    ]);
    let port =
        nested(vec![field("id", Type::Int64), field("proto", Type::String), field("val", Type::Int64)]);
    let mut deep = pair("c", "d");
    deep.push(field("e", texts()));
    let mut st = pair("a", "b");
    st.push(field("deep", nested(deep)));
    let atomic = Struct { atomic: true, ..object(pair("a", "b")) };
    let spec = nested(vec![
        field("s", Type::String),
        field("n", Type::Int64),
        field("b", Type::Bool),
        field("set", texts()),
        field("nums", list(Type::Int64, Identity::Set)),
        field("list", list(item, keys(&[("name", None)]))),
        field("dlist", list(port, keys(&[("id", None), ("proto", Some(json!("TCP")))]))),
        field("alist", list(Type::String, Identity::Atomic)),
        field("aobjs", list(nested(pair("a", "b")), Identity::Atomic)),
        field("map", map(Type::String, false)),
        field("mapmap", map(map(Type::String, false), false)),
        field("maplist", map(texts(), false)),
        field("amap", map(Type::String, true)),
        field("st", nested(st)),
        field("ast", Type::Struct(StructRef::owned(atomic))),
        field("ios", Type::IntOrString),
        field("free", free()),
    ]);
    let metadata = nested(vec![
        field("name", Type::String),
        field("namespace", Type::String),
        field("uid", Type::String),
        field("labels", map(Type::String, false)),
        field("annotations", map(Type::String, false)),
        field("managedFields", list(free(), Identity::Atomic)),
    ]);
    object(vec![
        field("apiVersion", Type::String),
        field("kind", Type::String),
        field("metadata", metadata),
        field("spec", spec),
    ])
}
