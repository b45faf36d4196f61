//! Pruning and defaulting of custom objects by their schema.

use serde_json::{Map, Value};

use super::schema::Schema;

/// What every whole object has; pruning leaves it alone.
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes what the schema does not know from a whole object; gives the paths removed, sorted.
pub fn prune(object: &mut Value, schema: &Schema) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), removed: Vec::new() };
    pruner.value(object, Some(schema), true);
    pruner.removed.sort_unstable();
    pruner.removed
}

/// Whether pruning would change a default value.
pub fn is_pruned(value: &Value, schema: &Schema) -> bool {
    let mut copy = value.clone();
    let mut pruner = Pruner { path: String::new(), removed: Vec::new() };
    pruner.value(&mut copy, Some(schema), schema.embedded);
    copy == *value
}

struct Pruner {
    path: String,
    removed: Vec<String>,
}

impl Pruner {
    /// `whole`: the value is an object with apiVersion, kind and metadata.
    fn value(&mut self, value: &mut Value, schema: Option<&Schema>, whole: bool) {
        match value {
            Value::Object(map) => self.object(map, schema, whole),
            Value::Array(items) => {
                // Below a list that keeps unknown fields, items keep theirs too.
                let keep = schema.is_some_and(Schema::preserves);
                let item = schema.and_then(|s| s.items.as_deref());
                if keep && item.is_none() {
                    return;
                }
                for (at, value) in items.iter_mut().enumerate() {
                    let mark = self.enter(format_args!("[{at}]"));
                    if keep {
                        self.kept(value, item);
                    } else {
                        self.value(value, item, item.is_some_and(|s| s.embedded));
                    }
                    self.path.truncate(mark);
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, map: &mut Map<String, Value>, schema: Option<&Schema>, whole: bool) {
        let Some(schema) = schema else {
            for name in map.keys() {
                self.removed.push(join(&self.path, name));
            }
            map.clear();
            return;
        };
        if !schema.preserves() {
            let root = self.path.is_empty();
            map.retain(|name, _| {
                let known = (whole && META.contains(&name.as_str()))
                    || schema.properties.contains_key(name)
                    || schema.additional.is_some();
                if !(known || root && META.contains(&name.as_str())) {
                    self.removed.push(join(&self.path, name));
                }
                known
            });
        }
        self.fields(map, schema, whole);
    }

    /// An item of a list that keeps unknown fields: only what is below named fields is pruned.
    fn kept(&mut self, value: &mut Value, schema: Option<&Schema>) {
        let Some(schema) = schema else { return };
        match value {
            Value::Object(map) => self.fields(map, schema, schema.embedded),
            Value::Array(items) => {
                for (at, value) in items.iter_mut().enumerate() {
                    let mark = self.enter(format_args!("[{at}]"));
                    self.kept(value, schema.items.as_deref());
                    self.path.truncate(mark);
                }
            }
            _ => {}
        }
    }

    fn fields(&mut self, map: &mut Map<String, Value>, schema: &Schema, whole: bool) {
        for (name, value) in map.iter_mut() {
            if whole && META.contains(&name.as_str()) {
                continue;
            }
            let mark = self.path.len();
            let child = match (schema.properties.get(name), &schema.additional) {
                (Some(child), _) => Some(child),
                (None, Some(_)) => schema.additional_schema(),
                (None, None) => continue,
            };
            self.path = join(&self.path, name);
            self.value(value, child, child.is_some_and(|s| s.embedded));
            self.path.truncate(mark);
        }
    }

    fn enter(&mut self, step: std::fmt::Arguments<'_>) -> usize {
        let mark = self.path.len();
        self.path.push_str(&step.to_string());
        mark
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Writes `2.0` as `2`, as Go does when it writes JSON.
pub fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(_) => *value = super::check::plain(std::mem::take(value)),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// Drops nulls that are not allowed and have no default, then fills in defaults.
pub fn default(value: &mut Value, schema: &Schema) {
    drop_nulls(value, schema);
    fill(value, schema);
}

fn bad_null(value: &Value, schema: Option<&Schema>) -> bool {
    value.is_null() && schema.is_some_and(|s| !s.nullable)
}

fn drop_nulls(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            map.retain(|name, value| match schema.properties.get(name) {
                Some(child) => !bad_null(value, Some(child)) || child.default.is_some(),
                None => {
                    let child = schema.additional_schema();
                    !bad_null(value, child) || child.is_some_and(|s| s.default.is_some())
                }
            });
            for (name, value) in map.iter_mut() {
                if let Some(child) = schema.child(name) {
                    drop_nulls(value, child);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child) = schema.items.as_deref() {
                items.iter_mut().for_each(|value| drop_nulls(value, child));
            }
        }
        _ => {}
    }
}

fn fill(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            for (name, child) in &schema.properties {
                let Some(default) = &child.default else { continue };
                if map.get(name).is_none_or(|value| bad_null(value, Some(child))) {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in map.iter_mut() {
                let Some(child) = schema.child(name) else { continue };
                replace_null(value, child);
                fill(value, child);
            }
        }
        Value::Array(items) => {
            let Some(child) = schema.items.as_deref() else { return };
            for value in items {
                replace_null(value, child);
                fill(value, child);
            }
        }
        _ => {}
    }
}

fn replace_null(value: &mut Value, schema: &Schema) {
    if let (true, Some(default)) = (bad_null(value, Some(schema)), &schema.default) {
        *value = default.clone();
    }
}
