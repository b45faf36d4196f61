//! Takes paths out of an object.

use landfall_api::schema::{Struct, Type};
use serde_json::{Map, Value};

use super::set::Set;
use super::shape::{Atom, Items, Place, item_element};

/// The object without these fields and items. A container that loses everything becomes `null`.
pub(super) fn remove(schema: &Struct, object: Value, paths: &Set) -> Value {
    if paths.is_empty() {
        return object;
    }
    remove_at(Place::Struct(schema), object, paths)
}

fn remove_at(place: Place<'_>, value: Value, paths: &Set) -> Value {
    match (place.atom(Some(&value)), value) {
        (Atom::Scalar, value) => value,
        (Atom::List(items), Value::Array(values)) => {
            let Some(list) = items.associative() else { return Value::Null };
            let kept = values.into_iter().filter_map(|item| {
                let node = item_element(list, &item).ok().and_then(|element| paths.get(&element));
                match node {
                    Some(node) if node.member => None,
                    Some(node) => Some(remove_at(Place::Type(&list.item), item, &node.below)),
                    None => Some(item),
                }
            });
            let kept: Vec<Value> = kept.collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (Atom::Map(fields), Value::Object(map)) if !fields.atomic() => {
            let kept = map.into_iter().filter_map(|(key, value)| match paths.get_field(&key) {
                Some(node) if node.member => None,
                Some(node) => {
                    let value = remove_at(fields.place_or_deduced(&key), value, &node.below);
                    Some((key, value))
                }
                None => Some((key, value)),
            });
            let kept: Map<String, Value> = kept.collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (Atom::List(_) | Atom::Map(_), _) => Value::Null,
    }
}

/// Treats `null` as decoding a built-in object does: fields go away, keys of maps get the zero value.
pub(crate) fn drop_nulls(schema: &Struct, object: &mut Value) {
    if !schema.name.is_empty() {
        drop_at(Place::Struct(schema), object);
    }
}

fn drop_at(place: Place<'_>, value: &mut Value) {
    match (place.atom(Some(value)), value) {
        (Atom::Map(fields), Value::Object(map)) => {
            map.retain(|key, value| !(value.is_null() && fields.named(key).is_some()));
            for (key, value) in map.iter_mut() {
                if let Some(place @ Place::Type(ty)) = fields.place(key) {
                    if value.is_null() {
                        *value = zero(ty);
                    }
                    drop_at(place, value);
                }
            }
        }
        (Atom::List(Items::Known(list)), Value::Array(items)) => {
            items.iter_mut().for_each(|item| drop_at(Place::Type(&list.item), item));
        }
        _ => {}
    }
}

fn zero(ty: &Type) -> Value {
    match ty {
        Type::String => Value::String(String::new()),
        Type::Bool => Value::Bool(false),
        Type::Int32 | Type::Int64 | Type::Double => Value::from(0),
        Type::Quantity => Value::from("0"),
        Type::Struct(_) => Value::Object(Map::new()),
        Type::Any
        | Type::Bytes
        | Type::IntOrString
        | Type::Time
        | Type::MicroTime
        | Type::Map(_)
        | Type::List(_)
        | Type::SchemaOr(_) => Value::Null,
    }
}
