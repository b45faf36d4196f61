//! Rules in CEL (`x-kubernetes-validations`).

use landfall_api::field::ErrorList;
use serde_json::Value;

use super::schema::{RuleText, Schema};

/// One compiled rule.
#[derive(Clone, Debug)]
pub struct Program;

/// What compiling a rule found.
#[derive(Debug, Default)]
pub struct Found {
    /// What is wrong: the field of the rule, and why.
    pub errors: Vec<(&'static str, String)>,
    /// Whether the rule compares with the old object.
    pub uses_old_self: bool,
}

/// Compiles the rules of a schema in place.
pub fn compile(_schema: &mut Schema) {}

/// Compiles one rule to see what is wrong with it.
pub fn check_rule(_schema: &Schema, rule: &RuleText) -> Found {
    Found { uses_old_self: rule.rule.contains("oldSelf"), ..Found::default() }
}

/// Whether a schema has rules anywhere.
pub fn has_rules(_schema: &Schema) -> bool {
    false
}

/// What the rules say about an object.
pub fn validate(_schema: &Schema, _object: &Value, _old: Option<&Value>) -> ErrorList {
    ErrorList::new()
}

/// What the rules say about a default value that stands at `path`.
pub fn validate_default(_schema: &Schema, _value: &Value, _path: &str) -> ErrorList {
    ErrorList::new()
}

/// A duration as Go writes it (`1h30m`), in nanoseconds.
pub fn go_duration(text: &str) -> Option<i64> {
    const UNITS: [(&str, f64); 8] = [
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("μs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("m", 6e10),
        ("h", 3.6e12),
    ];
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0.0f64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let number: f64 = number.parse().ok()?;
        let (unit, scale) = UNITS.iter().find(|(unit, _)| {
            after
                .strip_prefix(unit)
                .is_some_and(|r| r.is_empty() || r.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
        })?;
        total += number * scale;
        rest = after.strip_prefix(unit)?;
    }
    (total < 9.223_372_036_854_775e18).then_some((sign * total) as i64)
}
