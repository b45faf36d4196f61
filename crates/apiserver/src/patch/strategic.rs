//! Strategic merge patch: a merge patch that knows which lists are merged, and by which key.
//!
//! Directives: `$patch: replace|delete`, `$retainKeys`, `$deleteFromPrimitiveList/<field>` and
//! `$setElementOrder/<field>`. The order of a merged list is that of `$setElementOrder`, then of the patch, then of
//! the live list.

use std::collections::{HashMap, HashSet};

use landfall_api::schema::{Field, Struct, Type};
use landfall_api::status::{Reason, Status};
use serde_json::{Map, Value};

use super::golang::{plain, text, type_name};
use super::order::{self, Items};
use super::{object, unprocessable};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// The document after the patch. 400 for what is not a patch of this kind, 422 for lists of lists, 500 for a
/// patch that does not fit the schema, as upstream.
pub fn apply(schema: &Struct, document: Value, patch: &[u8]) -> Result<Value, Status> {
    let patch = object(patch, "")?.unwrap_or_default();
    let Value::Object(document) = document else { return Err(Status::bad_request("invalid JSON document")) };
    let merged = merge_maps(Level::Struct(schema), document, patch).map_err(Wrong::into_status)?;
    let mut merged = Value::Object(merged);
    super::drop_nulls(schema, &mut merged);
    Ok(merged)
}

/// Why a patch does not apply.
#[derive(Debug)]
pub(super) enum Wrong {
    /// 400 with this message.
    Format(&'static str),
    /// 422.
    ListOfLists,
    /// 500 with this message.
    Other(String),
}

impl Wrong {
    fn into_status(self) -> Status {
        match self {
            Self::Format(message) => Status::bad_request(message),
            Self::ListOfLists => unprocessable(),
            Self::Other(message) => Status::new(Reason::Unknown, message),
        }
    }

    pub(super) fn no_merge_key(item: &Value, key: &str) -> Self {
        Self::Other(format!("map: {} does not contain declared merge key: {key}", plain(item)))
    }

    pub(super) fn bad_type(expected: &str, actual: &Value) -> Self {
        let actual = if actual.is_null() { "%!s(<nil>)" } else { type_name(actual) };
        Self::Other(format!("expected a {expected}, but received a {actual}"))
    }

    const fn bad_order() -> Self {
        Self::Format("invalid patch format of setElementOrder list")
    }
}

/// What is known about an object being patched.
#[derive(Clone, Copy)]
enum Level<'a> {
    Struct(&'a Struct),
    Type(&'a Type),
}

impl<'a> Level<'a> {
    fn field(self, key: &str) -> Result<&'a Field, Wrong> {
        let fields = match self {
            Self::Struct(item) => item,
            Self::Type(Type::Struct(item)) => item.get(),
            Self::Type(other) => {
                let kind = go_kind(other);
                return Err(Wrong::Other(format!(
                    "merging an object in json but data type is not struct, instead is: {kind}"
                )));
            }
        };
        fields.field(key).ok_or_else(|| {
            let name = fields.name.rsplit('.').next().unwrap_or("");
            Wrong::Other(format!("unable to find api field in struct {name} for the json field {key:?}"))
        })
    }

    /// The field as a list, with the level of its items.
    fn list(self, key: &str) -> Result<(&'a Field, Self), Wrong> {
        let field = self.field(key)?;
        match &field.ty {
            Type::List(list) => Ok((field, Self::Type(&list.item))),
            _ => Err(Wrong::Other("expected slice or array type, but got: struct".into())),
        }
    }
}

const fn go_kind(ty: &Type) -> &'static str {
    match ty {
        Type::Map(_) => "map",
        Type::List(_) | Type::Bytes => "slice",
        Type::Bool => "bool",
        Type::Int32 => "int32",
        Type::Int64 => "int64",
        Type::Double => "float64",
        Type::String => "string",
        Type::Any
        | Type::IntOrString
        | Type::Quantity
        | Type::Time
        | Type::MicroTime
        | Type::Struct(_)
        | Type::SchemaOr(_) => "struct",
    }
}

type Object = Map<String, Value>;

fn merge_maps(level: Level<'_>, mut original: Object, mut patch: Object) -> Result<Object, Wrong> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    set_element_order(level, &mut original, &mut patch)?;
    for (key, value) in patch {
        merge_member(level, &mut original, &key, value)?;
    }
    Ok(original)
}

fn unknown_directive(directive: &Value, patch: &Object) -> Wrong {
    let (directive, patch) = (text(directive), plain(&Value::Object(patch.clone())));
    Wrong::Other(format!("unknown patch type: {directive} in map: {patch}"))
}

fn merge_member(level: Level<'_>, original: &mut Object, key: &str, mut value: Value) -> Result<(), Wrong> {
    let deletes = key.starts_with(DELETE_FROM);
    let key = match key.strip_prefix(DELETE_FROM) {
        Some(rest) => {
            rest.strip_prefix('/').ok_or(Wrong::Format("invalid patch format of primitive list"))?
        }
        None => key,
    };
    if value.is_null() {
        original.remove(key);
        return Ok(());
    }
    let Some(current) = original.get_mut(key) else {
        if !deletes {
            insert_new(original, key, value);
        }
        return Ok(());
    };
    match (current, value) {
        (Value::Object(current), Value::Object(patch)) => {
            let field = level.field(key)?;
            if field.patch.replace {
                *current = patch;
                return Ok(());
            }
            *current = merge_maps(Level::Type(&field.ty), std::mem::take(current), patch)?;
        }
        (Value::Array(current), Value::Array(patch)) => {
            let (field, items) = level.list(key)?;
            let live = std::mem::take(current);
            *current = if deletes {
                let gone = order::keys_of(&patch, "");
                live.into_iter().filter(|item| !gone.contains(&item.to_string())).collect()
            } else if field.patch.merge {
                merge_lists(items, live, patch, &field.patch.merge_key)?
            } else {
                patch
            };
        }
        (_, other) => {
            value = other;
            if !deletes {
                insert_new(original, key, value);
            }
        }
    }
    Ok(())
}

/// Takes the patch's value, without nulls and directives; a value that is a directive itself removes the member.
fn insert_new(original: &mut Object, key: &str, mut value: Value) {
    drop_nulls(&mut value);
    match without_directives(value) {
        Some(value) => original.insert(key.to_owned(), value),
        None => original.remove(key),
    };
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let kept = map.into_iter().filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(items.into_iter().filter_map(without_directives).collect()),
        scalar => Some(scalar),
    }
}

/// `$retainKeys`: members of the original that it does not list go away; the patch may hold no others.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), Wrong> {
    const BAD: Wrong = Wrong::Format("invalid patch format of retainKeys");
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let retained = retained.as_array().ok_or(BAD)?;
    let listed = |key: &str| retained.iter().any(|item| item.as_str() == Some(key));
    let free = |key: &str| key.starts_with(DELETE_FROM) || key.starts_with(SET_ORDER);
    if patch.iter().any(|(key, value)| !(value.is_null() || free(key) || listed(key))) {
        return Err(BAD);
    }
    original.retain(|key, _| listed(key));
    Ok(())
}

/// `$setElementOrder/<field>`: merges that field's lists and puts the items in the order given.
fn set_element_order(level: Level<'_>, original: &mut Object, patch: &mut Object) -> Result<(), Wrong> {
    let keys: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for key in keys {
        let wanted = match patch.remove(&key) {
            Some(Value::Array(wanted)) => wanted,
            other => return Err(Wrong::bad_type("[]interface {}", &other.unwrap_or_default())),
        };
        let name = key.strip_prefix(SET_ORDER).and_then(|rest| rest.strip_prefix('/'));
        let name = name.ok_or(Wrong::bad_order())?;
        let live = take_list(original.get(name))?;
        let patched = take_list(patch.get(name))?;
        let (field, items) = level.list(name)?;
        let merge_key = &*field.patch.merge_key;
        order::check(patched.as_deref().unwrap_or(&[]), &wanted, merge_key)?;
        let merged = match (live.clone(), patched.clone()) {
            (None, None) => continue,
            (Some(live), None) => live,
            (None, Some(patched)) => patched.into_iter().filter_map(without_directives).collect(),
            (Some(live), Some(patched)) if field.patch.merge => merge_lists(items, live, patched, merge_key)?,
            (Some(_), Some(patched)) => patched,
        };
        let live = reused(live.unwrap_or_default(), patched.as_deref().unwrap_or(&[]), merge_key);
        let kind = order::kind_of([&live, patched.as_deref().unwrap_or(&[])])?;
        let (first, rest) = order::partition(merged, &wanted, merge_key)?;
        let both = order::interleave(first, rest, &wanted, &live, Items { kind, merge_key })?;
        original.insert(name.to_owned(), Value::Array(both));
        patch.remove(name);
    }
    Ok(())
}

/// The live order that upstream sorts by: it deletes items in place, and new items of the patch take the room
/// they leave.
fn reused(live: Vec<Value>, patch: &[Value], merge_key: &str) -> Vec<Value> {
    let says = |item: &Value, what: &str| item.get(DIRECTIVE).and_then(Value::as_str) == Some(what);
    if merge_key.is_empty() || !patch.iter().any(|item| says(item, "delete")) {
        return live;
    }
    let gone = order::keys_of(patch.iter().filter(|item| says(item, "delete")), merge_key);
    let is_gone = |item: &Value| order::key_of(item, merge_key).is_some_and(|key| gone.contains(&key));
    let length = live.len();
    let mut order: Vec<Value> = live.into_iter().filter(|item| !is_gone(item)).collect();
    if !patch.iter().any(|item| says(item, "replace")) {
        let kept = order::keys_of(&order, merge_key);
        let added = patch.iter().filter(|item| item.get(DIRECTIVE).is_none());
        let added = added.filter(|item| order::key_of(item, merge_key).is_some_and(|k| !kept.contains(&k)));
        let room = length.saturating_sub(order.len());
        order.extend(added.take(room).cloned());
    }
    order
}

fn take_list(value: Option<&Value>) -> Result<Option<Vec<Value>>, Wrong> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        Some(other) => Err(Wrong::bad_type("[]interface {}", other)),
    }
}

fn merge_lists(
    level: Level<'_>,
    live: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
) -> Result<Vec<Value>, Wrong> {
    if live.is_empty() && patch.is_empty() {
        return Ok(live);
    }
    let kind = order::kind_of([&live, &patch])?;
    let (merged, live, patch) = if kind == order::Kind::Map {
        if merge_key.is_empty() {
            let name = match level {
                Level::Type(ty) => go_kind(ty),
                Level::Struct(_) => "struct",
            };
            return Err(Wrong::Other(format!("cannot merge lists without merge key for {name}")));
        }
        let (live, patch) = special_items(live, patch, merge_key)?;
        (merge_items(level, live.clone(), patch.clone(), merge_key)?, live, patch)
    } else {
        let mut seen = HashSet::new();
        let both = live.iter().chain(&patch).filter(|item| seen.insert(item.to_string()));
        (both.cloned().collect(), live, patch)
    };
    let (first, rest) = order::partition(merged, &patch, merge_key)?;
    order::interleave(first, rest, &patch, &live, Items { kind, merge_key })
}

/// Carries out items that are directives: `delete` takes items out, `replace` empties the live list.
fn special_items(
    mut live: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Wrong> {
    let mut plain_items = Vec::with_capacity(patch.len());
    let mut gone = HashSet::new();
    let mut replace = false;
    for item in patch {
        let Some(directive) = item.get(DIRECTIVE) else {
            plain_items.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let key = order::key_of(&item, merge_key);
                gone.insert(key.ok_or_else(|| Wrong::no_merge_key(&item, merge_key))?);
            }
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(Wrong::Other("merging lists cannot yet be specified in the patch".into()));
            }
            _ => {
                let map = item.as_object().cloned().unwrap_or_default();
                return Err(unknown_directive(directive, &map));
            }
        }
    }
    live.retain(|item| order::key_of(item, merge_key).is_none_or(|key| !gone.contains(&key)));
    Ok(if replace { (plain_items, Vec::new()) } else { (live, plain_items) })
}

fn merge_items(
    level: Level<'_>,
    mut live: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
) -> Result<Vec<Value>, Wrong> {
    let mut places: HashMap<String, usize> = HashMap::with_capacity(live.len());
    for (at, item) in live.iter().enumerate() {
        if let Some(key) = order::key_of(item, merge_key) {
            places.entry(key).or_insert(at);
        }
    }
    for item in patch {
        let key = order::key_of(&item, merge_key).ok_or_else(|| Wrong::no_merge_key(&item, merge_key))?;
        let next = live.len();
        let at = *places.entry(key).or_insert(next);
        match (live.get_mut(at), item) {
            (Some(Value::Object(current)), Value::Object(item)) => {
                *current = merge_maps(level, std::mem::take(current), item)?;
            }
            (_, item) => live.push(item),
        }
    }
    Ok(live)
}

#[cfg(test)]
#[path = "strategic_tests.rs"]
mod tests;
