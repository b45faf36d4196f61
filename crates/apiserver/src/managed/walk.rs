//! The paths an object has, and whether it has the shape its schema says.

use landfall_api::schema::{ListType, Struct, Type};
use serde_json::{Map, Value};

use super::element::Element;
use super::set::Set;
use super::shape::{Atom, Fields, Items, Place, item_element};
use crate::patch::golang;

/// Every leaf and item that a configuration mentions.
pub(super) fn field_set(schema: &Struct, object: &Value) -> Set {
    paths(Place::Struct(schema), object).1
}

/// Whether the place itself is mentioned, and what is below it.
fn paths(place: Place<'_>, value: &Value) -> (bool, Set) {
    match place.atom(Some(value)) {
        Atom::Scalar => (true, Set::EMPTY),
        Atom::List(items) => match (items.associative(), value) {
            (None, _) => (true, Set::EMPTY),
            (Some(list), Value::Array(items)) => (false, item_paths(list, items)),
            _ => (false, Set::EMPTY),
        },
        Atom::Map(fields) => match value {
            _ if fields.atomic() => (true, Set::EMPTY),
            Value::Object(map) => (false, map_paths(fields, map)),
            _ => (false, Set::EMPTY),
        },
    }
}

fn map_paths(fields: Fields<'_>, map: &Map<String, Value>) -> Set {
    let mut set = Set::EMPTY;
    for (key, value) in map {
        let (member, below) = paths(fields.place_or_deduced(key), value);
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        set.push(Element::field(key), member || empty || fields.named(key).is_none(), below);
    }
    set
}

fn item_paths(list: &ListType, items: &[Value]) -> Set {
    let mut elements: Vec<(Element, &Value)> = Vec::with_capacity(items.len());
    elements.extend(items.iter().filter_map(|item| Some((item_element(list, item).ok()?, item))));
    elements.sort_by(|a, b| a.0.cmp(&b.0));
    let mut set = Set::EMPTY;
    for group in elements.chunk_by(|a, b| a.0 == b.0) {
        let below = match group {
            [(_, item)] => paths(Place::Type(&list.item), item).1,
            _ => Set::EMPTY,
        };
        if let Some((element, _)) = group.first() {
            set.push(element.clone(), true, below);
        }
    }
    set
}

/// Everything in a configuration that its schema does not allow, in the words of server-side apply.
pub(super) fn validate(schema: &Struct, object: &Value) -> Result<(), String> {
    let mut errors = Errors(Vec::new());
    errors.visit(Place::Struct(schema), object, &mut String::new());
    match errors.0.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(many.iter().fold("errors:".to_owned(), |text, error| format!("{text}\n  {error}"))),
    }
}

struct Errors(Vec<String>);

impl Errors {
    fn add(&mut self, path: &str, message: &str) {
        self.0.push(if path.is_empty() { message.to_owned() } else { format!("{path}: {message}") });
    }

    fn visit(&mut self, place: Place<'_>, value: &Value, path: &mut String) {
        match place.atom(Some(value)) {
            Atom::Scalar => {
                if let Some(wrong) = wrong_scalar(place, value) {
                    self.add(path, &wrong);
                }
            }
            Atom::List(items) => match value {
                Value::Null => {}
                Value::Array(values) => self.visit_items(items, values, path),
                _ => self.add(path, &format!("expected list, got &{{{}}}", golang::plain(value))),
            },
            Atom::Map(fields) => match value {
                Value::Null => {}
                Value::Object(map) => self.visit_fields(fields, map, path),
                _ => self.add(path, &format!("expected map, got &{{{}}}", golang::plain(value))),
            },
        }
    }

    fn visit_fields(&mut self, fields: Fields<'_>, map: &Map<String, Value>, path: &mut String) {
        let length = path.len();
        for (key, value) in map {
            path.push('.');
            path.push_str(key);
            match fields.place(key) {
                Some(place) => self.visit(place, value, path),
                None => self.add(path, "field not declared in schema"),
            }
            path.truncate(length);
            if fields.place(key).is_none() {
                return;
            }
        }
    }

    fn visit_items(&mut self, items: Items<'_>, values: &[Value], path: &mut String) {
        let Items::Known(list) = items else { return };
        let length = path.len();
        let mut seen = std::collections::BTreeSet::new();
        for (at, value) in values.iter().enumerate() {
            let step = if items.associative().is_none() {
                format!("[{at}]")
            } else {
                match item_element(list, value) {
                    Err(why) => return self.add(path, &format!("element {at}: {why}")),
                    Ok(element) => {
                        let step = element.to_string();
                        if !seen.insert(element) {
                            self.add(path, &format!("duplicate entries for key {step}"));
                        }
                        step
                    }
                }
            };
            path.push_str(&step);
            self.visit(Place::Type(&list.item), value, path);
            path.truncate(length);
        }
    }
}

fn wrong_scalar(place: Place<'_>, value: &Value) -> Option<String> {
    let Place::Type(ty) = place else { return None };
    match (ty, value) {
        (_, Value::Null)
        | (Type::Bool, Value::Bool(_))
        | (Type::Int32 | Type::Int64 | Type::Double, Value::Number(_))
        | (Type::String | Type::Bytes, Value::String(_)) => None,
        (Type::Bool, _) => Some(format!("expected boolean, got &{{{}}}", golang::plain(value))),
        (Type::Int32 | Type::Int64 | Type::Double, _) => {
            Some(format!("expected numeric (int or float), got {}", golang::type_name(value)))
        }
        (Type::String | Type::Bytes, _) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", golang::syntax(value)))
        }
        (_, Value::Array(_) | Value::Object(_)) => {
            Some(format!("expected any scalar, got &{{{}}}", golang::plain(value)))
        }
        _ => None,
    }
}
