//! How Kubernetes prints its own form of a template: with Go's names, in Go's order, and what is absent too.
//!
//! Errors about changed jobs show it, and a few others. The names are in `go_form.txt`.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::OnceLock;

use serde_json::Value;

use super::super::read::{at, is_zero, items, selector_json};

const TABLE: &str = include_str!("go_form.txt");

/// Deeper structs than any of the table's are not followed.
const DEPTH_MAX: usize = 16;

/// One field of a struct.
struct Field {
    go: &'static str,
    json: &'static str,
    kind: &'static str,
}

fn structs() -> &'static HashMap<&'static str, Vec<Field>> {
    static STRUCTS: OnceLock<HashMap<&'static str, Vec<Field>>> = OnceLock::new();
    STRUCTS.get_or_init(|| {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.split_once(' ')).map(|(name, fields)| (name, parse(fields))).collect()
    })
}

fn parse(fields: &'static str) -> Vec<Field> {
    let field = |text: &'static str| {
        let (name, kind) = text.split_once(':').unwrap_or((text, ""));
        let (go, json) = name.split_once('=').unwrap_or((name, name));
        Field { go, json, kind }
    };
    fields.split(' ').map(field).collect()
}

/// The text that stands in an error for a field of a job's spec (`podSpec` is a template's spec) or for one of the
/// structs named here.
pub(in super::super) fn write(field: &str, value: &Value) -> String {
    let name = match field {
        "template" => "PodTemplateSpec",
        "podSpec" => "PodSpec",
        "podFailurePolicy" => "PodFailurePolicy",
        "successPolicy" => "SuccessPolicy",
        "SecurityContext" | "SeccompProfile" | "PodResourceClaim" => field,
        _ => return value.to_string(),
    };
    if value.is_null() {
        return "null".into();
    }
    let mut out = String::new();
    write_struct(&mut out, name, value, &Value::Null, 0);
    out
}

fn write_struct(out: &mut String, name: &str, value: &Value, parent: &Value, depth: usize) {
    let Some(fields) = structs().get(name).filter(|_| depth < DEPTH_MAX) else {
        out.push_str("null");
        return;
    };
    out.push('{');
    let mut first = true;
    for field in fields {
        if field.go == "+metadata" {
            write_metadata(out, at(value, "metadata"), &mut first);
            continue;
        }
        if !first {
            out.push(',');
        }
        first = false;
        let (go, holder) = match field.go.strip_prefix('^') {
            Some(go) => (go, parent),
            None => (field.go, value),
        };
        let _ = write!(out, "\"{go}\":");
        let found = lookup(holder, field.json.trim_start_matches('^'));
        write_field(out, field.kind, found, value, depth);
    }
    out.push('}');
}

/// A field by its name, whatever its case.
fn lookup<'a>(value: &'a Value, name: &str) -> &'a Value {
    let found = value.as_object().into_iter().flatten().find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map_or(&Value::Null, |(_, value)| value)
}

fn write_field(out: &mut String, kind: &str, value: &Value, parent: &Value, depth: usize) {
    let absent = value.is_null();
    match kind {
        "s" if absent => out.push_str("\"\""),
        "i" if absent => out.push('0'),
        "b" if absent => out.push_str("false"),
        "q" if absent => out.push_str("\"0\""),
        "s" | "i" | "b" | "q" => out.push_str(&value.to_string()),
        "p" if is_zero(value) && !value.is_number() && !value.is_boolean() && !value.is_string() => {
            out.push_str("null");
        }
        "p" => out.push_str(&value.to_string()),
        "selector" => out.push_str(&selector_json(value)),
        _ => write_nested(out, kind, value, parent, depth),
    }
}

fn write_nested(out: &mut String, kind: &str, value: &Value, parent: &Value, depth: usize) {
    if let Some(name) = kind.strip_prefix('@') {
        write_struct(out, name, value, parent, depth + 1);
    } else if let Some(name) = kind.strip_prefix('*') {
        if value.is_null() {
            out.push_str("null");
        } else {
            write_struct(out, name, value, parent, depth + 1);
        }
    } else {
        let name = kind.trim_matches(['[', ']']);
        let Some(list) = value.as_array().filter(|list| !list.is_empty()) else {
            out.push_str("null");
            return;
        };
        out.push('[');
        for (index, item) in list.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            write_struct(out, name, item, parent, depth + 1);
        }
        out.push(']');
    }
}

/// Metadata has the names that clients know, and leaves out what is absent.
fn write_metadata(out: &mut String, metadata: &Value, first: &mut bool) {
    for field in ["name", "generateName", "namespace", "labels", "annotations", "finalizers"] {
        let value = at(metadata, field);
        if is_zero(value) || (field == "finalizers" && items(metadata, field).is_empty()) {
            continue;
        }
        if !*first {
            out.push(',');
        }
        *first = false;
        let _ = write!(out, "\"{field}\":{value}");
    }
}
