//! Checks a value against a schema, with the sentences and the order of Kubernetes' OpenAPI validator.
//!
//! On an update, what was wrong before and has not changed is tolerated (ratcheting): a node that is equal to its old
//! self, found by field name or list-map key, loses its errors.

use std::collections::HashMap;

use landfall_api::field::{Error, ErrorList, ErrorType};
use serde_json::Value;

use super::formats;
use super::schema::{Additional, Schema};

/// How many errors one object may give; more help nobody, and finding doubles among them takes long.
const FINDINGS_MAX: usize = 500;

/// What is wrong with a value. `prefix` is the field that the value stands in; empty for a whole object.
pub fn check(schema: &Schema, value: &Value, old: Option<&Value>, prefix: &str) -> ErrorList {
    let outcome = node(schema, value, old, "");
    let mut errors = ErrorList::new();
    for finding in outcome.findings {
        errors.push(finding.into_error(prefix));
    }
    errors
}

/// What one subtree gave: what is wrong, and how many checks were passed (to pick the nearest of `anyOf`).
#[derive(Default)]
struct Outcome {
    findings: Vec<Finding>,
    passed: usize,
}

struct Finding {
    class: ErrorType,
    /// The path; none where upstream does not know it.
    name: Option<String>,
    value: Option<Value>,
    message: String,
    /// What makes two findings the same.
    identity: String,
}

impl Outcome {
    fn valid(&self) -> bool {
        self.findings.is_empty()
    }
    fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        for finding in other.findings {
            self.push(finding);
        }
    }
    fn push(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS_MAX
            && !self.findings.iter().any(|known| known.identity == finding.identity)
        {
            self.findings.push(finding);
        }
    }
    fn invalid(&mut self, path: &str, value: Value, message: String) {
        self.push(Finding::new(ErrorType::Invalid, path, Some(value), message));
    }
    /// A sentence about the whole, without a field.
    fn general(&mut self, message: String) {
        let identity = message.clone();
        let value = Some(Value::from(""));
        self.push(Finding { class: ErrorType::Invalid, name: None, value, message, identity });
    }
}

impl Finding {
    fn new(class: ErrorType, path: &str, value: Option<Value>, message: String) -> Self {
        let identity = format!("{path} {message}");
        Self { class, name: Some(path.to_owned()), value, message, identity }
    }

    fn into_error(self, prefix: &str) -> Error {
        let name = self.name.unwrap_or_default();
        let name = name.strip_prefix('.').unwrap_or(&name);
        let field = match (prefix, name) {
            ("", "") => "<nil>".to_owned(),
            ("", name) => name.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, name) => format!("{prefix}.{name}"),
        };
        Error { class: self.class, field, value: self.value.map(plain), detail: self.message }
    }
}

/// Whole numbers are shown without a fraction, as Go prints them.
pub fn plain(value: Value) -> Value {
    match value.as_f64() {
        Some(f) if value.is_f64() && f.fract() == 0.0 && f.abs() < 9e15 => Value::from(f as i64),
        _ => value,
    }
}

fn node(schema: &Schema, value: &Value, old: Option<&Value>, path: &str) -> Outcome {
    let mut all = Outcome::default();
    if value.is_null() {
        if let Some(finding) = null(schema, path) {
            all.push(finding);
        } else {
            all.passed += 1;
        }
        common(schema, value, path, &mut all);
    } else {
        kind(schema, value, path, &mut all);
        combined(schema, value, old, path, &mut all);
        match value {
            Value::String(text) => string(schema, text, path, &mut all),
            Value::Number(_) => number(schema, value, path, &mut all),
            Value::Array(items) => list(schema, items, old, path, &mut all),
            _ => {}
        }
        common(schema, value, path, &mut all);
        all.passed += 1;
        if let Value::Object(_) = value {
            object(schema, value, old, path, &mut all);
        }
        all.passed += 1;
    }
    if old == Some(value) {
        all.findings.clear();
    }
    all
}

fn types(schema: &Schema) -> Vec<&str> {
    match (schema.int_or_string, schema.ty.as_str()) {
        (true, _) => vec!["integer", "string"],
        (false, "") => Vec::new(),
        (false, ty) => vec![ty],
    }
}

fn null(schema: &Schema, path: &str) -> Option<Finding> {
    let types = types(schema);
    (!types.is_empty() && !schema.nullable).then(|| wrong_type(path, &types.join(","), "null"))
}

fn wrong_type(path: &str, wanted: &str, found: &str) -> Finding {
    let message = format!("{path} in body must be of type {wanted}: {found:?}");
    Finding::new(ErrorType::TypeInvalid, path, Some(Value::from(found)), message)
}

/// The JSON type of a value and its width, in the validator's words.
fn kind_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(n) if n.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

fn effective_format(schema: &Schema) -> &str {
    formats::effective(if schema.int_or_string { "" } else { &schema.ty }, &schema.format)
}

fn kind(schema: &Schema, value: &Value, path: &str, all: &mut Outcome) {
    let types = types(schema);
    let format = effective_format(schema);
    if types.is_empty() && format.is_empty() {
        return;
    }
    all.passed += 1;
    let (found, width) = kind_of(value);
    let numeric = types.contains(&"number") || types.contains(&"integer");
    let fits = types.contains(&found)
        || (found == "number" && types.contains(&"integer") && value.as_f64().is_some_and(is_whole))
        || (found == "integer" && types.contains(&"number"));
    let textual = matches!(found, "string" | "array");
    if !textual && !format.is_empty() && !fits && width != format {
        all.push(wrong_type(path, format, width));
    } else if !numeric && !format.is_empty() && textual || fits {
        all.passed += 1;
    } else {
        all.push(wrong_type(path, &types.join(","), found));
    }
}

/// Whether a float stands for an integer, within the validator's tolerance.
fn is_whole(f: f64) -> bool {
    const SAFE: f64 = 9_007_199_254_740_991.0;
    if !f.is_finite() || f.abs() > SAFE {
        return false;
    }
    let (size, whole) = (f.abs(), f.abs().trunc());
    let gap = (size - whole).abs();
    size == whole || gap / (size + whole).min(f64::MAX) < 1e-9
}

fn combined(schema: &Schema, value: &Value, old: Option<&Value>, path: &str, all: &mut Outcome) {
    all.passed += 2;
    if !schema.any_of.is_empty() {
        any_of(schema, value, old, path, all);
    }
    if !schema.one_of.is_empty() {
        one_of(schema, value, old, path, all);
    }
    if !schema.all_of.is_empty() {
        let mut valid = 0;
        for part in &schema.all_of {
            let outcome = inner(part, value, old, path);
            valid += usize::from(outcome.valid());
            all.merge(outcome);
        }
        if valid != schema.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            all.general(format!("{path:?} must validate all the schemas (allOf){none}"));
        }
    }
    if let Some(not) = &schema.not
        && inner(not, value, old, path).valid()
    {
        all.general(format!("{path:?} must not validate the schema (not)"));
    }
}

/// A part of a combination: its fields are ratcheted, it itself is not.
fn inner(schema: &Schema, value: &Value, old: Option<&Value>, path: &str) -> Outcome {
    // Equality at this level is the parent's to use, so the old value is passed on for the fields only.
    match old {
        Some(old) if old == value => node(schema, value, None, path),
        old => node(schema, value, old, path),
    }
}

fn any_of(schema: &Schema, value: &Value, old: Option<&Value>, path: &str, all: &mut Outcome) {
    let mut best: Option<Outcome> = None;
    for part in &schema.any_of {
        let outcome = inner(part, value, old, path);
        if outcome.valid() {
            all.merge(outcome);
            return;
        }
        if best.as_ref().is_none_or(|best| outcome.passed > best.passed) {
            best = Some(outcome);
        }
    }
    all.general(format!("{path:?} must validate at least one schema (anyOf)"));
    if let Some(best) = best {
        all.merge(best);
    }
}

fn one_of(schema: &Schema, value: &Value, old: Option<&Value>, path: &str, all: &mut Outcome) {
    let (mut valid, mut best, mut first) = (0, None::<Outcome>, None::<Outcome>);
    for part in &schema.one_of {
        let outcome = inner(part, value, old, path);
        if outcome.valid() {
            valid += 1;
            best = None;
            first.get_or_insert(outcome);
        } else if valid == 0 && best.as_ref().is_none_or(|best| outcome.passed > best.passed) {
            best = Some(outcome);
        }
    }
    if valid != 1 {
        let found = if valid == 0 {
            "Found none valid".to_owned()
        } else {
            format!("Found {valid} valid alternatives")
        };
        all.general(format!("{path:?} must validate one and only one schema (oneOf). {found}"));
    }
    if let Some(outcome) = if valid == 1 { first } else { best } {
        all.merge(outcome);
    }
}

fn string(schema: &Schema, text: &str, path: &str, all: &mut Outcome) {
    all.passed += 1;
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if let Some(max) = schema.max_length.filter(|max| length > *max) {
        let bytes = if max == 1 { "byte" } else { "bytes" };
        let message = format!("may not be more than {max} {bytes}");
        all.push(Finding::new(ErrorType::TooLong, path, None, message));
    } else if let Some(min) = schema.min_length.filter(|min| length < *min) {
        all.invalid(path, text.into(), format!("{path} in body should be at least {min} chars long"));
    } else if let Some(Ok(regex)) = &schema.regex
        && !regex.is_match(text)
    {
        all.invalid(path, text.into(), format!("{path} in body should match '{}'", schema.pattern));
    }
    let format = effective_format(schema);
    if !format.is_empty() {
        all.passed += 1;
        if !formats::matches(format, text) {
            all.push(wrong_type(path, format, text));
        }
    }
}

fn common(schema: &Schema, value: &Value, path: &str, all: &mut Outcome) {
    if schema.allowed.is_empty() || schema.allowed.iter().any(|allowed| same(allowed, value)) {
        return;
    }
    let shown = |v: &Value| v.as_str().map_or_else(|| v.to_string(), Into::into);
    let supported: Vec<String> = schema.allowed.iter().map(|v| format!("{:?}", shown(v))).collect();
    let message = format!("supported values: {}", supported.join(", "));
    all.push(Finding::new(ErrorType::NotSupported, path, Some(value.clone()), message));
}

/// Equal, numbers by value; null is never an allowed value.
fn same(allowed: &Value, value: &Value) -> bool {
    match (allowed, value) {
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (a, b) => a == b,
    }
}

fn object(schema: &Schema, value: &Value, old: Option<&Value>, path: &str, all: &mut Outcome) {
    let Value::Object(map) = value else { return };
    let size = i64::try_from(map.len()).unwrap_or(i64::MAX);
    if let Some(min) = schema.min_properties.filter(|min| size < *min) {
        all.invalid(path, size.into(), format!("{path} in body should have at least {min} properties"));
    }
    if let Some(max) = schema.max_properties.filter(|max| size > *max) {
        all.push(too_many(path, size, max));
    }
    let before = |name: &str| old.and_then(|old| old.get(name));
    for (name, value) in map {
        match &schema.additional {
            _ if schema.properties.contains_key(name) => {}
            Some(Additional::Allowed(false)) => {
                let message = format!("{path}.{name} in body is a forbidden property");
                all.invalid(path, name.as_str().into(), message);
            }
            Some(Additional::Schema(child)) => {
                all.merge(node(child, value, before(name), &format!("{path}.{name}")));
            }
            Some(Additional::Allowed(true)) | None => {}
        }
    }
    for (name, child) in &schema.properties {
        let Some(value) = map.get(name) else { continue };
        let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        // The version in which both are read is not a change of the object.
        let fixed = path.is_empty() && matches!(name.as_str(), "kind" | "apiVersion");
        all.merge(node(child, value, before(name).filter(|_| !fixed), &below));
    }
    for name in &schema.required {
        if !map.contains_key(name) {
            all.push(Finding::new(ErrorType::Required, &format!("{path}.{name}"), None, String::new()));
        }
    }
    all.passed += 1;
}

fn too_many(path: &str, size: i64, max: i64) -> Finding {
    let items = if max == 1 { "item" } else { "items" };
    Finding::new(ErrorType::TooMany, path, Some(size.into()), format!("must have at most {max} {items}"))
}

fn list(schema: &Schema, items: &[Value], old: Option<&Value>, path: &str, all: &mut Outcome) {
    if let Some(child) = &schema.items {
        let before = old.map(|old| Correlation::of(schema, old));
        for (at, value) in items.iter().enumerate() {
            let before = before.as_ref().and_then(|before| before.find(schema, value));
            all.merge(node(child, value, before, &format!("{path}[{at}]")));
        }
    }
    let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if let Some(min) = schema.min_items.filter(|min| size < *min) {
        all.invalid(path, size.into(), format!("{path} in body should have at least {min} items"));
    }
    if let Some(max) = schema.max_items.filter(|max| size > *max) {
        all.push(too_many(path, size, max));
    }
    all.passed += 2;
}

/// The items of an old list by their keys; empty unless the list is of type map, as only those know their items.
pub struct Correlation<'a>(HashMap<String, &'a Value>);

impl<'a> Correlation<'a> {
    /// Of an old value of that schema.
    pub fn of(schema: &Schema, old: &'a Value) -> Self {
        let known = schema.list_type.as_deref() == Some("map") && !schema.list_keys.is_empty();
        let items = old.as_array().filter(|_| known).map_or(&[][..], Vec::as_slice);
        Self(items.iter().map(|item| (Self::key(schema, item), item)).collect())
    }
    /// The old item with the same keys.
    pub fn find(&self, schema: &Schema, item: &Value) -> Option<&'a Value> {
        if self.0.is_empty() { None } else { self.0.get(&Self::key(schema, item)).copied() }
    }
    fn key(schema: &Schema, item: &Value) -> String {
        let keys: Vec<&Value> =
            schema.list_keys.iter().map(|key| item.get(key).unwrap_or(&Value::Null)).collect();
        serde_json::to_string(&keys).unwrap_or_default()
    }
}

fn number(schema: &Schema, value: &Value, path: &str, all: &mut Outcome) {
    let format = effective_format(schema);
    let ty = if schema.int_or_string { "" } else { schema.ty.as_str() };
    in_range(value, ty, format, "Checked", path, all);
    // An integer is compared with limits cut to integers, unless the type forbids such limits.
    let mut cut = |limit: f64, what: &str| {
        let fits = in_range(&Value::from(limit), ty, format, what, path, all);
        if fits && value.is_i64() { limit.trunc() } else { limit }
    };
    let factor = schema.multiple_of.map(|factor| cut(factor, "MultipleOf"));
    let minimum = schema.minimum.map(|min| cut(min, "Minimum boundary"));
    let maximum = schema.maximum.map(|max| cut(max, "Maximum boundary"));
    if let Some(factor) = factor {
        multiple(value, factor, path, all);
    }
    if let Some(min) = minimum {
        let low = |d: f64, m: f64| d < m || (schema.exclusive_minimum && d <= m);
        let words = if schema.exclusive_minimum { "greater than" } else { "greater than or equal to" };
        bound(value, min, low, words, path, all);
    }
    if let Some(max) = maximum {
        let high = |d: f64, m: f64| d > m || (schema.exclusive_maximum && d >= m);
        let words = if schema.exclusive_maximum { "less than" } else { "less than or equal to" };
        bound(value, max, high, words, path, all);
    }
    all.passed += 2;
}

fn bound(
    value: &Value,
    limit: f64,
    breaks: impl Fn(f64, f64) -> bool,
    words: &str,
    path: &str,
    all: &mut Outcome,
) {
    if value.as_f64().is_some_and(|d| breaks(d, limit)) {
        let message = format!("{path} in body should be {words} {}", go_float(limit));
        all.invalid(path, value.clone(), message);
    }
}

fn multiple(value: &Value, factor: f64, path: &str, all: &mut Outcome) {
    let Some(data) = value.as_f64() else { return };
    if factor <= 0.0 {
        let message = format!("factor MultipleOf declared for {path} must be positive: {}", go_float(factor));
        all.invalid(path, Value::from(factor), message);
        return;
    }
    let ok = match value.as_i64() {
        Some(int) if factor.fract() == 0.0 && factor < 9e15 => int % (factor as i64) == 0,
        _ => is_whole(if factor < 1.0 { 1.0 / factor * data } else { data / factor }),
    };
    if !ok {
        let message = format!("{path} in body should be a multiple of {}", go_float(factor));
        all.invalid(path, value.clone(), message);
    }
}

/// Whether a number fits the width that type and format name.
fn in_range(value: &Value, ty: &str, format: &str, what: &str, path: &str, all: &mut Outcome) -> bool {
    let Some(number) = value.as_f64() else { return true };
    let whole = value.is_i64() || number.fract() == 0.0;
    let ok = match (ty, format) {
        ("integer", "int32") => whole && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number),
        ("integer", _) => whole && (value.is_i64() || number.abs() < 9.223_372_036_854_775e18),
        (_, "float") => number.abs() <= f64::from(f32::MAX),
        _ => true,
    };
    if !ok {
        let of =
            if format.is_empty() { " (default format)".to_owned() } else { format!(" with format {format}") };
        all.general(format!("{what} value must be of type {ty}{of} in {path}"));
    }
    ok
}

/// A number as Go's `%v` writes it.
pub fn go_float(f: f64) -> String {
    let size = f.abs();
    if size != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{f:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, power) = exponent.strip_prefix('-').map_or(("+", exponent), |p| ("-", p));
        return format!("{digits}e{sign}{power:0>2}");
    }
    format!("{f}")
}
