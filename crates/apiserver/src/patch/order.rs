//! The order of merged lists in a strategic merge patch.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::golang::plain;
use super::strategic::Wrong;

/// What the items of a list are; all of one list are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Map,
    Bool,
    Integer,
    Float,
    Text,
}

/// How items are told apart: objects by their merge key, scalars by themselves.
#[derive(Clone, Copy)]
pub(super) struct Items<'a> {
    pub(super) kind: Kind,
    pub(super) merge_key: &'a str,
}

impl Items<'_> {
    fn key<'v>(&self, item: &'v Value) -> Option<&'v Value> {
        if self.kind == Kind::Map { item.get(self.merge_key) } else { Some(item) }
    }

    /// Where each item first stands.
    fn places(&self, list: &[Value]) -> HashMap<String, usize> {
        let mut places = HashMap::with_capacity(list.len());
        for (at, item) in list.iter().enumerate() {
            places.entry(self.text(item)).or_insert(at);
        }
        places
    }

    fn text(&self, item: &Value) -> String {
        self.key(item).map(Value::to_string).unwrap_or_default()
    }
}

/// The keys of the items of a list, as text, to look up others by.
pub(super) fn keys_of<'a>(list: impl IntoIterator<Item = &'a Value>, merge_key: &str) -> HashSet<String> {
    list.into_iter().filter_map(|item| key_of(item, merge_key)).collect()
}

/// The key of an item, as text; none when it lacks it.
pub(super) fn key_of(item: &Value, merge_key: &str) -> Option<String> {
    if merge_key.is_empty() { Some(item.to_string()) } else { item.get(merge_key).map(Value::to_string) }
}

/// The kind of the items of several lists together.
pub(super) fn kind_of(lists: [&[Value]; 2]) -> Result<Kind, Wrong> {
    let mut found = None;
    for item in lists.into_iter().flatten() {
        let kind = match item {
            Value::Object(_) => Some(Kind::Map),
            Value::Bool(_) => Some(Kind::Bool),
            Value::Number(number) if number.is_f64() => Some(Kind::Float),
            Value::Number(_) => Some(Kind::Integer),
            Value::String(_) => Some(Kind::Text),
            Value::Array(_) if found.is_none() => return Err(Wrong::ListOfLists),
            Value::Array(_) | Value::Null => None,
        };
        if kind.is_none() || found.is_some_and(|found| Some(found) != kind) {
            let lists: Vec<String> = lists.iter().map(|list| plain(&Value::Array(list.to_vec()))).collect();
            let lists = lists.join(" ");
            return Err(Wrong::Other(format!("list element types are not identical: [{lists}]")));
        }
        found = kind;
    }
    found.ok_or_else(|| Wrong::Other("no elements in any of the given slices".into()))
}

/// Whether the patch's items stand in `$setElementOrder`'s list, in the same order.
pub(super) fn check(patch: &[Value], wanted: &[Value], merge_key: &str) -> Result<(), Wrong> {
    if patch.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    let mut left = wanted.iter();
    for item in patch {
        if !merge_key.is_empty() && !item.is_object() {
            return Err(Wrong::bad_type("map[string]interface {}", item));
        }
        let directive = item.get("$patch");
        if !merge_key.is_empty() && directive.and_then(Value::as_str) == Some("delete") {
            continue;
        }
        // Other directives have no place of their own, but there must be one left.
        let mut found = directive.is_some() && !left.as_slice().is_empty();
        if found {
            continue;
        }
        for other in left.by_ref() {
            if same_key(item, other, merge_key)? {
                found = true;
                break;
            }
        }
        if !found {
            let (patch, wanted) =
                (plain(&Value::Array(patch.to_vec())), plain(&Value::Array(wanted.to_vec())));
            return Err(Wrong::Other(format!(
                "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{wanted}\n"
            )));
        }
    }
    Ok(())
}

fn same_key(a: &Value, b: &Value, merge_key: &str) -> Result<bool, Wrong> {
    if merge_key.is_empty() {
        return Ok(a == b);
    }
    let key = |item: &Value| -> Result<Value, Wrong> {
        if !item.is_object() {
            return Err(Wrong::bad_type("map[string]interface {}", item));
        }
        item.get(merge_key).cloned().ok_or_else(|| Wrong::no_merge_key(item, merge_key))
    };
    Ok(key(a)? == key(b)?)
}

/// The items that stand in `by`, and the rest.
pub(super) fn partition(
    items: Vec<Value>,
    by: &[Value],
    merge_key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Wrong> {
    let mut parts = (Vec::new(), Vec::new());
    let known = keys_of(by, merge_key);
    let odd = by.iter().position(|other| !merge_key.is_empty() && !other.is_object());
    for item in items {
        if !merge_key.is_empty() && !item.is_object() {
            return Err(Wrong::bad_type("map[string]interface {}", &item));
        }
        let key = key_of(&item, merge_key).ok_or_else(|| Wrong::no_merge_key(&item, merge_key))?;
        if let Some(at) = odd {
            return Err(Wrong::Other(format!("value for key {at} is not a map")));
        }
        if known.contains(&key) { parts.0.push(item) } else { parts.1.push(item) }
    }
    Ok(parts)
}

/// Sorts the patch's items by `patch_order` and the others by `live_order`, and puts the others before the
/// first of the patch's items that stood behind them in the live list.
pub(super) fn interleave(
    patched: Vec<Value>,
    others: Vec<Value>,
    patch_order: &[Value],
    live_order: &[Value],
    items: Items<'_>,
) -> Result<Vec<Value>, Wrong> {
    if items.kind == Kind::Map {
        for item in patched.iter().chain(&others).chain(patch_order).chain(live_order) {
            if !item.is_object() {
                return Err(Wrong::bad_type("map[string]interface {}", item));
            }
            if items.key(item).is_none() {
                return Err(Wrong::no_merge_key(item, items.merge_key));
            }
        }
    }
    let live = items.places(live_order);
    let patched = sort(patched, &items.places(patch_order), items);
    let others = sort(others, &live, items);
    let mut out = Vec::with_capacity(patched.len().saturating_add(others.len()));
    let (mut left, mut right) = (others.into_iter().peekable(), patched.into_iter().peekable());
    loop {
        let from_left = match (left.peek(), right.peek()) {
            (None, None) => return Ok(out),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some((l, _)), Some((r, _))) => {
                matches!((live.get(l), live.get(r)), (Some(l), Some(r)) if l < r)
            }
        };
        out.extend(if from_left { left.next() } else { right.next() }.map(|(_, item)| item));
    }
}

/// Lists up to this long are sorted by insertion in Go, which shows where items have no place.
const INSERTION_MAX: usize = 20;

/// Items by their places, with their keys. Items without a place (an empty `$setElementOrder`) end up in front,
/// last first: what upstream's comparison makes of short lists.
fn sort(list: Vec<Value>, places: &HashMap<String, usize>, items: Items<'_>) -> Vec<(String, Value)> {
    let mut list: Vec<(String, Value)> = list.into_iter().map(|item| (items.text(&item), item)).collect();
    let lost = list.iter().any(|(key, _)| !places.contains_key(key));
    if !lost || list.len() > INSERTION_MAX {
        list.sort_by_key(|(key, _)| places.get(key).copied());
        return list;
    }
    let less = |a: &str, b: &str| match (places.get(a), places.get(b)) {
        (Some(a), Some(b)) => a < b,
        _ => true,
    };
    for end in 1..list.len() {
        let mut at = end;
        while at > 0 && less(&list[at].0, &list[at - 1].0) {
            list.swap(at, at - 1);
            at -= 1;
        }
    }
    list
}
