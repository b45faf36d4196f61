//! The order of merged lists in a strategic merge patch.

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

    fn index(&self, list: &[Value], item: &Value) -> Option<usize> {
        let key = self.key(item);
        list.iter().position(|other| self.key(other) == key)
    }
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
    let directive = |item: &Value| item.get("$patch").is_some();
    let mut left = wanted.iter();
    for item in patch {
        if !merge_key.is_empty() && !item.is_object() {
            return Err(Wrong::bad_type("map[string]interface {}", item));
        }
        if directive(item) {
            continue;
        }
        let mut found = false;
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
    for item in items {
        let found = if merge_key.is_empty() {
            by.contains(&item)
        } else {
            let Some(map) = item.as_object() else {
                return Err(Wrong::bad_type("map[string]interface {}", &item));
            };
            let key = map.get(merge_key).ok_or_else(|| Wrong::no_merge_key(&item, merge_key))?;
            if let Some(at) = by.iter().position(|other| !other.is_object()) {
                return Err(Wrong::Other(format!("value for key {at} is not a map")));
            }
            by.iter().any(|other| other.get(merge_key) == Some(key))
        };
        if found { parts.0.push(item) } else { parts.1.push(item) }
    }
    Ok(parts)
}

/// Sorts the patch's items by `patch_order` and the others by `live_order`, and puts the others before the
/// first of the patch's items that stood behind them in the live list.
pub(super) fn interleave(
    mut patched: Vec<Value>,
    mut others: Vec<Value>,
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
    patched.sort_by_key(|item| items.index(patch_order, item));
    others.sort_by_key(|item| items.index(live_order, item));
    let mut out = Vec::with_capacity(patched.len().saturating_add(others.len()));
    let (mut left, mut right) = (others.into_iter().peekable(), patched.into_iter().peekable());
    loop {
        let from_left = match (left.peek(), right.peek()) {
            (None, None) => return Ok(out),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(l), Some(r)) => {
                let places = (items.index(live_order, l), items.index(live_order, r));
                matches!(places, (Some(l), Some(r)) if l < r)
            }
        };
        out.extend(if from_left { left.next() } else { right.next() });
    }
}
