//! Runs the rules of a schema over an object.

use std::cell::Cell;
use std::sync::Arc;

use landfall_api::field::{Error, ErrorList, ErrorType};
use serde_json::Value;

use super::Program;
use super::eval::{Budget, Scope, Stop, eval};
use super::value::Val;
use crate::crd::check::{Correlation, plain};
use crate::crd::schema::{RuleText, Schema};

/// Steps for all rules of one object.
const OBJECT_STEPS: u64 = 10_000_000;
/// Steps for one rule.
const RULE_STEPS: u64 = 1_000_000;
/// The longest message an expression may make, in bytes.
const MESSAGE_MAX: usize = 5 * 1024;
const EXHAUSTED: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Runs all rules. `path`: where the value stands.
pub fn validate(schema: &Schema, value: &Value, old: Option<&Value>, path: &str) -> ErrorList {
    let mut run = Run { errors: ErrorList::new(), left: OBJECT_STEPS };
    let at = Place { path, old, unchanged: false };
    // An exhausted budget ends the run; what was found until then is told.
    let _ = run.node(schema, value, &at);
    run.errors
}

struct Run {
    errors: ErrorList,
    left: u64,
}

/// Where a value stands, and what it was before.
#[derive(Clone, Copy)]
struct Place<'p> {
    path: &'p str,
    old: Option<&'p Value>,
    /// The nearest part that can be found in the old object is equal to it.
    unchanged: bool,
}

/// The budget is used up.
struct Exhausted;

impl Run {
    fn node(&mut self, schema: &Schema, value: &Value, at: &Place<'_>) -> Result<(), Exhausted> {
        if value.is_null() {
            return Ok(());
        }
        let here = Place { unchanged: at.old.map_or(at.unchanged, |old| old == value), ..*at };
        for (rule, program) in schema.rules.iter().zip(&*schema.programs) {
            self.rule(schema, rule, program, value, &here)?;
        }
        match value {
            Value::Array(items) => {
                let Some(child) = schema.items.as_deref().filter(|s| super::has_rules(s)) else {
                    return Ok(());
                };
                let before = here.old.map(|old| Correlation::of(schema, old));
                for (index, item) in items.iter().enumerate() {
                    let old = before.as_ref().and_then(|before| before.find(schema, item));
                    let path = format!("{}[{index}]", here.path);
                    self.node(child, item, &Place { path: &path, old, ..here })?;
                }
            }
            Value::Object(map) => {
                for (name, item) in map {
                    let named = schema.properties.get(name);
                    let Some(child) = named.or_else(|| schema.additional_schema()) else { continue };
                    let path = match (named, here.path) {
                        (Some(_), "") => name.clone(),
                        (Some(_), path) => format!("{path}.{name}"),
                        (None, path) => format!("{path}[{name}]"),
                    };
                    let old = here.old.and_then(|old| old.get(name));
                    self.node(child, item, &Place { path: &path, old, ..here })?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn rule(
        &mut self,
        schema: &Schema,
        rule: &RuleText,
        program: &Program,
        value: &Value,
        at: &Place<'_>,
    ) -> Result<(), Exhausted> {
        let Some(expr) = &program.rule else { return Ok(()) };
        let optional = rule.optional_old_self == Some(true);
        if program.uses_old_self && at.old.is_none() && !optional {
            return Ok(());
        }
        let before = at.old.map_or(Val::Null, |old| Val::of(old, Some(schema)));
        let before = match (optional, at.old) {
            (true, old) => Val::Optional(old.map(|_| Arc::new(before))),
            (false, _) => before,
        };
        let outer = Scope::new("self", Val::of(value, Some(schema)), None);
        let scope = Scope::new("oldSelf", before, Some(&outer));
        let path = if at.path.is_empty() { "<nil>" } else { at.path };
        let said = if rule.message.is_empty() { rule.rule.trim() } else { rule.message.trim() };
        let detail = match self.run(expr, &scope) {
            Ok(Val::Bool(true)) => return Ok(()),
            Ok(_) => None,
            Err(Stop::Budget) => {
                self.wrong(path, &schema.ty, EXHAUSTED.into());
                return Err(Exhausted);
            }
            Err(Stop::Error(why)) if why.starts_with("no such overload") => Some(format!(
                "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {said}"
            )),
            Err(Stop::Error(why)) => Some(format!("{why} evaluating rule: {said}")),
        };
        if let Some(detail) = detail {
            self.wrong(path, &schema.ty, detail);
            return Ok(());
        }
        if at.unchanged && !program.uses_old_self {
            // What was wrong before and has not changed is tolerated.
            return Ok(());
        }
        let made = program.message.as_ref().and_then(|message| self.message(message, &scope));
        let detail = made.unwrap_or_else(|| {
            if rule.message.is_empty() { format!("failed rule: {said}") } else { said.to_owned() }
        });
        let field = match (at.path, program.field_path.as_str()) {
            (_, "") => path.to_owned(),
            ("", below) => below.to_owned(),
            (path, below) => format!("{path}.{below}"),
        };
        let shown = (!matches!(schema.ty.as_str(), "object" | "array")).then(|| plain(value.clone()));
        self.errors.push(broken(&rule.reason, field, shown, detail));
        Ok(())
    }

    fn run<'a>(&mut self, expr: &super::Expr, scope: &Scope<'_, 'a>) -> super::eval::Result<'a> {
        let given = self.left.min(RULE_STEPS);
        let budget = Budget(Cell::new(given));
        let result = eval(expr, scope, &budget);
        self.left -= given - budget.0.get();
        result
    }

    /// A message that an expression makes, if it is one that can be shown.
    fn message(&mut self, expr: &super::Expr, scope: &Scope<'_, '_>) -> Option<String> {
        let Ok(Val::Text(text)) = self.run(expr, scope) else { return None };
        let text = text.trim();
        let fine = !text.is_empty() && text.len() <= MESSAGE_MAX && !text.contains('\n');
        fine.then(|| text.to_owned())
    }

    fn wrong(&mut self, field: &str, ty: &str, detail: String) {
        let value = Some(Value::from(ty));
        self.errors.push(Error { class: ErrorType::Invalid, field: field.into(), value, detail });
    }
}

fn broken(reason: &str, field: String, value: Option<Value>, detail: String) -> Error {
    match reason {
        "FieldValueForbidden" => Error { class: ErrorType::Forbidden, field, value: None, detail },
        "FieldValueRequired" => Error { class: ErrorType::Required, field, value: None, detail },
        "FieldValueDuplicate" => Error { class: ErrorType::Duplicate, field, value, detail: String::new() },
        _ => Error { class: ErrorType::Invalid, field, value, detail },
    }
}
