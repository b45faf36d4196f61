//! Rules in CEL (`x-kubernetes-validations`): compiled once per definition, run within a budget.
//!
//! ```text
//!   text ──lexer──► tokens ──parser──► Expr ──check──► sound? ──eval──► Val
//! ```
//!
//! The language is evaluated here and not by a crate: rules come from users and run inside the server, so depth, size
//! and steps are limited everywhere, and integers, times and field names follow the schema as Kubernetes does.
//!
//! Deliberately absent: the static estimate of cost (the budget at run time stands), and `semver`.

pub mod check;
pub mod eval;
pub mod functions;
pub mod lexer;
pub mod library;
pub mod parser;
pub mod rules;
pub mod value;

use landfall_api::field::ErrorList;
use serde_json::Value;

use super::schema::{Additional, RuleText, Schema};
use parser::Expr;

/// One compiled rule.
#[derive(Clone, Debug)]
pub struct Program {
    rule: Option<Expr>,
    message: Option<Expr>,
    uses_old_self: bool,
    field_path: String,
}

/// What compiling a rule found.
#[derive(Debug, Default)]
pub struct Found {
    /// What is wrong: the field of the rule, and why.
    pub errors: Vec<(&'static str, String)>,
    /// Whether the rule compares with the old object.
    pub uses_old_self: bool,
}

/// Compiles the rules of a schema in place, at every node.
pub fn compile(schema: &mut Schema) {
    let programs: Vec<Program> = schema.rules.iter().map(|rule| program(schema, rule)).collect();
    schema.programs = programs.into();
    schema.properties.values_mut().for_each(compile);
    if let Some(items) = &mut schema.items {
        compile(items);
    }
    if let Some(Additional::Schema(child)) = &mut schema.additional {
        compile(child);
    }
}

fn program(schema: &Schema, rule: &RuleText) -> Program {
    let parse = |text: &str| if text.trim().is_empty() { None } else { parser::parse(text).ok() };
    let parsed = parse(&rule.rule);
    let field_path =
        super::openapi::field_path(&rule.field_path, schema, true).map_or_else(|_| String::new(), |p| p.0);
    Program {
        uses_old_self: parsed.as_ref().is_some_and(check::uses_old_self),
        message: parse(&rule.message_expression),
        rule: parsed,
        field_path,
    }
}

/// Compiles one rule to see what is wrong with it. `root`: the schema is that of whole objects.
pub fn check_rule(schema: &Schema, rule: &RuleText, root: bool) -> Found {
    let mut found = Found::default();
    let optional = rule.optional_old_self == Some(true);
    match parser::parse(&rule.rule) {
        Ok(expr) => {
            found.uses_old_self = check::uses_old_self(&expr);
            let wrong = check::rule(&expr, schema, root, optional, &rule.rule);
            found.errors.extend(wrong.map(|why| ("rule", why)));
        }
        Err(wrong) => found.errors.push(("rule", compilation(&rule.rule, &wrong))),
    }
    if !rule.message_expression.trim().is_empty() {
        let wrong = match parser::parse(&rule.message_expression) {
            Ok(expr) => check::message(&expr, schema, root, optional, &rule.message_expression),
            Err(wrong) => {
                Some(format!("messageExpression {}", compilation(&rule.message_expression, &wrong)))
            }
        };
        found.errors.extend(wrong.map(|why| ("messageExpression", why)));
    }
    found
}

/// A compile error with the line it is in, as Kubernetes shows it.
fn compilation(source: &str, (sentence, at): &parser::Wrong) -> String {
    let before: String = source.chars().take(*at).collect();
    let line_number = before.matches('\n').count();
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count());
    let line = source.lines().nth(line_number).unwrap_or("");
    let dots = ".".repeat(column);
    format!(
        "compilation failed: ERROR: <input>:{}:{}: {sentence}\n | {line}\n | {dots}^",
        line_number + 1,
        column + 1
    )
}

/// Whether a schema has rules anywhere.
pub fn has_rules(schema: &Schema) -> bool {
    !schema.rules.is_empty()
        || schema.properties.values().any(has_rules)
        || schema.items.as_deref().is_some_and(has_rules)
        || schema.additional_schema().is_some_and(has_rules)
}

/// What the rules say about an object.
pub fn validate(schema: &Schema, object: &Value, old: Option<&Value>) -> ErrorList {
    rules::validate(schema, object, old, "")
}

/// What the rules say about a default value that stands at `path`.
pub fn validate_default(schema: &Schema, value: &Value, path: &str) -> ErrorList {
    rules::validate(schema, value, None, path)
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
    if rest.is_empty() {
        return None;
    }
    let mut total = 0.0f64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let number: f64 = number.parse().ok()?;
        let ends = |rest: &str| rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, scale) = UNITS.iter().find(|(unit, _)| after.strip_prefix(unit).is_some_and(ends))?;
        total += number * scale;
        rest = after.strip_prefix(unit)?;
    }
    (total < 9.223_372_036_854_775e18).then_some((sign * total) as i64)
}
