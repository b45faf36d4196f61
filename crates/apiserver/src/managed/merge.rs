//! Merges a configuration into a live object. Nothing is removed; items keep the order upstream gives them.

use std::collections::BTreeMap;

use landfall_api::schema::{ListType, Struct};
use serde_json::{Map, Value};

use super::element::Element;
use super::shape::{Atom, Fields, Items, Place, item_element};

/// The live object with the configuration's fields in it, or why a list cannot be merged.
pub(super) fn merge(schema: &Struct, live: &Value, config: &Value) -> Result<Value, String> {
    let merged = merge_at(Place::Struct(schema), Some(live), Some(config))?;
    Ok(merged.unwrap_or(Value::Null))
}

type Side<'a> = Option<&'a Value>;

fn merge_at(place: Place<'_>, live: Side<'_>, config: Side<'_>) -> Result<Option<Value>, String> {
    match place.atom(config.or(live)) {
        Atom::Scalar => Ok(config.or(live).cloned()),
        Atom::List(items) => merge_list(items, live, config),
        Atom::Map(fields) => merge_map(fields, live, config),
    }
}

fn merge_map(fields: Fields<'_>, live: Side<'_>, config: Side<'_>) -> Result<Option<Value>, String> {
    let (live_map, config_map) = (live.and_then(Value::as_object), config.and_then(Value::as_object));
    let empty = |map: Option<&Map<String, Value>>| map.is_none_or(Map::is_empty);
    if fields.atomic() || (empty(live_map) && empty(config_map)) {
        return Ok(config.or(live).cloned());
    }
    let mut out = Map::new();
    let keys = live_map.into_iter().flat_map(Map::keys);
    let new = config_map.into_iter().flat_map(Map::keys);
    for key in keys.chain(new.filter(|key| live_map.is_none_or(|map| !map.contains_key(*key)))) {
        let (live, config) = (live_map.and_then(|m| m.get(key)), config_map.and_then(|m| m.get(key)));
        if let Some(value) = merge_at(fields.place_or_deduced(key), live, config)? {
            out.insert(key.clone(), value);
        }
    }
    Ok((!out.is_empty()).then_some(Value::Object(out)))
}

fn merge_list(items: Items<'_>, live: Side<'_>, config: Side<'_>) -> Result<Option<Value>, String> {
    let array = |side: Side<'_>| side.and_then(Value::as_array).is_none_or(Vec::is_empty);
    let Some(list) = items.associative() else { return Ok(config.or(live).cloned()) };
    if array(live) && array(config) {
        return Ok(config.or(live).cloned());
    }
    let out = Lists::new(list, live, config)?.merge()?;
    Ok((!out.is_empty()).then_some(Value::Array(out)))
}

/// Two lists with identity on their way into one.
struct Lists<'a> {
    place: Place<'a>,
    live: Vec<(Element, &'a Value)>,
    config: Vec<(Element, &'a Value)>,
    /// Live items by identity; none for those that are there twice, which are not merged with anything.
    live_by: BTreeMap<Element, Option<&'a Value>>,
    config_by: BTreeMap<Element, &'a Value>,
}

impl<'a> Lists<'a> {
    fn new(list: &'a ListType, live: Side<'a>, config: Side<'a>) -> Result<Self, String> {
        let elements = |side: Side<'a>| -> Result<Vec<(Element, &'a Value)>, String> {
            let items = side.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let pairs = items.iter().enumerate().map(|(at, item)| {
                let element = item_element(list, item).map_err(|why| format!("element {at}: {why}"))?;
                Ok((element, item))
            });
            pairs.collect()
        };
        let (live, config) = (elements(live)?, elements(config)?);
        let mut live_by = BTreeMap::new();
        for (element, item) in &live {
            live_by.entry(element.clone()).and_modify(|twice| *twice = None).or_insert(Some(*item));
        }
        let mut config_by = BTreeMap::new();
        for (element, item) in &config {
            if config_by.insert(element.clone(), *item).is_some() {
                return Err(format!("duplicate entries for key {element}"));
            }
        }
        Ok(Self { place: Place::Type(&list.item), live, config, live_by, config_by })
    }

    /// Walks both lists at once: the configuration's items in its order, live items where they stood
    /// relative to the items both have.
    fn merge(&self) -> Result<Vec<Value>, String> {
        let mut shared =
            self.config.iter().map(|(e, _)| e).filter(|e| self.live_by.contains_key(*e)).peekable();
        let mut done: std::collections::BTreeSet<&Element> = std::collections::BTreeSet::new();
        let mut out = Vec::with_capacity(self.live.len().max(self.config.len()));
        let (mut live, mut config) = (self.live.iter().peekable(), self.config.iter().peekable());
        while live.peek().is_some() || config.peek().is_some() {
            if let (Some((left, _)), Some((right, _))) = (live.peek(), config.peek()) {
                if left == right {
                    done.insert(right);
                    out.extend(self.both(right)?);
                    live.next();
                    config.next();
                    shared.next();
                    continue;
                }
                let other = shared.peek().is_some_and(|next| *next != left);
                if self.config_by.contains_key(left) && other {
                    live.next();
                    continue;
                }
            }
            if let Some((element, item)) = live.peek() {
                if !self.config_by.contains_key(element) {
                    out.extend(merge_at(self.place, Some(item), None)?);
                    live.next();
                    continue;
                } else if done.contains(element) {
                    live.next();
                }
            }
            if let Some((element, _)) = config.next() {
                done.insert(element);
                out.extend(self.both(element)?);
                if shared.peek() == Some(&element) {
                    shared.next();
                }
            }
        }
        Ok(out)
    }

    fn both(&self, element: &Element) -> Result<Option<Value>, String> {
        let live = self.live_by.get(element).copied().flatten();
        merge_at(self.place, live, self.config_by.get(element).copied())
    }
}
