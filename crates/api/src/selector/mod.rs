//! Selectors: label selectors as texts and as objects, field selectors, and matching without allocation.
//!
//! ```text
//!   "app=web,tier in (a,b)" ──► Selector ──► matches(labels)
//!   {"matchLabels": …}      ──►
//!   "metadata.name=x"       ──► FieldSelector ──► check(kind) ──► matches(object)
//! ```

mod fields;

use std::fmt::{self, Display};

use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::names;

pub use fields::{FieldSelector, Term};

/// How a requirement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// One of the values.
    In,
    /// None of the values, or no such label.
    NotIn,
    /// `=`.
    Equals,
    /// `==`, the same as `=`, but written back as it was.
    DoubleEquals,
    /// `!=`.
    NotEquals,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
    /// A whole number above.
    GreaterThan,
    /// A whole number below.
    LessThan,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: Box<str>,
    /// How to compare.
    pub operator: Operator,
    /// What to compare with, sorted.
    pub values: Box<[Box<str>]>,
}

/// A label selector: all requirements must hold. Without any it selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

impl Selector {
    /// Selects everything.
    pub const fn everything() -> Self {
        Self { requirements: Vec::new(), nothing: false }
    }

    /// Selects nothing.
    pub const fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    /// Reads a selector text; the error is Kubernetes' sentence, to be sent with 400.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { tokens: scan(text), at: 0 };
        let mut requirements = parser.selector()?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements, nothing: false })
    }

    /// Reads a `LabelSelector` object; none (null) selects nothing, an empty one everything.
    pub fn from_object(selector: Option<&Value>) -> Result<Self, String> {
        let Some(selector) = selector.filter(|s| !s.is_null()) else { return Ok(Self::nothing()) };
        let mut requirements = Vec::new();
        for (key, value) in crate::labels::pairs(selector.get("matchLabels")) {
            requirements.push(requirement(key, Operator::Equals, vec![value.into()])?);
        }
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            requirements.push(from_expression(expression)?);
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements, nothing: false })
    }

    /// Reads a plain map of labels, as Services and ReplicationControllers have it; empty selects everything.
    pub fn from_map(map: Option<&Value>) -> Self {
        let of = |(key, value): (&str, &str)| Requirement {
            key: key.into(),
            operator: Operator::Equals,
            values: Box::new([value.into()]),
        };
        Self { requirements: crate::labels::pairs(map).map(of).collect(), nothing: false }
    }

    /// The same, and a label must be there.
    #[must_use]
    pub fn having(mut self, key: &str) -> Self {
        let values = Box::new([]);
        self.requirements.push(Requirement { key: key.into(), operator: Operator::Exists, values });
        self.requirements.sort_by(|a, b| a.key.cmp(&b.key));
        self
    }

    /// Whether it selects everything.
    pub const fn is_everything(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// The requirements, by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether labels (a JSON map, or none) satisfy it.
    pub fn matches(&self, labels: Option<&Value>) -> bool {
        self.matches_with(|key| labels?.get(key)?.as_str())
    }

    /// Whether an object's `metadata.labels` satisfy it.
    pub fn matches_object(&self, object: &Value) -> bool {
        self.is_everything() || self.matches(object.get("metadata").and_then(|m| m.get("labels")))
    }

    /// Whether labels that `lookup` finds satisfy it.
    pub fn matches_with<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(lookup(&r.key)))
    }
}

impl Requirement {
    /// Whether a label's value (none: no such label) satisfies it.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let is_one = |value: &str| self.values.iter().any(|v| &**v == value);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(is_one),
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(is_one),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compare(value).is_some_and(|(is, bound)| is > bound),
            Operator::LessThan => self.compare(value).is_some_and(|(is, bound)| is < bound),
        }
    }

    fn compare(&self, value: Option<&str>) -> Option<(i64, i64)> {
        Some((value?.parse().ok()?, self.values.first()?.parse().ok()?))
    }
}

impl Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = match self.operator {
            Operator::Exists => return f.write_str(&self.key),
            Operator::DoesNotExist => return write!(f, "!{}", self.key),
            Operator::In => (" in (", ")"),
            Operator::NotIn => (" notin (", ")"),
            Operator::Equals => ("=", ""),
            Operator::DoubleEquals => ("==", ""),
            Operator::NotEquals => ("!=", ""),
            Operator::GreaterThan => (">", ""),
            Operator::LessThan => ("<", ""),
        };
        write!(f, "{}{before}{}{after}", self.key, self.values.join(","))
    }
}

fn from_expression(expression: &Value) -> Result<Requirement, String> {
    let text = |field| expression.get(field).and_then(Value::as_str).unwrap_or("");
    let operator = match text("operator") {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => return Err(format!("{other:?} is not a valid label selector operator")),
    };
    let values = expression.get("values").and_then(Value::as_array);
    let values = values.into_iter().flatten().map(|v| v.as_str().unwrap_or("").into()).collect();
    requirement(text("key"), operator, values)
}

/// Checks and makes one requirement; values are sorted and each kept once.
fn requirement(key: &str, operator: Operator, mut values: Vec<Box<str>>) -> Result<Requirement, String> {
    values.sort_unstable();
    values.dedup();
    let mut errors = ErrorList::new();
    key_errors(key, &Path::new("key"), &mut errors);
    let path = Path::new("values");
    let shown = || values.iter().map(|v| Value::from(&**v)).collect::<Value>();
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            errors.invalid(&path, shown(), "for 'in', 'notin' operators, values set can't be empty");
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            errors.invalid(&path, shown(), "values set must be empty for exists and does not exist");
        }
        Operator::GreaterThan | Operator::LessThan => {
            for (at, value) in values.iter().enumerate().filter(|(_, v)| v.parse::<i64>().is_err()) {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.invalid(&path.index(at), &**value, detail);
            }
        }
        _ => {}
    }
    for (at, value) in values.iter().enumerate() {
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            errors.invalid(&path.index(at).key(key), &**value, wrong.join("; "));
        }
    }
    if !errors.is_empty() {
        return Err(errors.summary());
    }
    Ok(Requirement { key: key.into(), operator, values: values.into() })
}

fn key_errors(key: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let wrong = names::qualified_name(key);
    if !wrong.is_empty() {
        errors.invalid(path, key, wrong.join("; "));
    }
}

// === the text of a label selector ===

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    End,
    Symbol(&'a str),
    Word(&'a str),
}

impl<'a> Token<'a> {
    const fn text(self) -> &'a str {
        match self {
            Self::End => "",
            Self::Symbol(text) | Self::Word(text) => text,
        }
    }
}

/// Cuts a text into tokens; the last is always `End`. A NUL ends the text.
fn scan(text: &str) -> Vec<Token<'_>> {
    let special = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<');
    let blank = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let mut rest = text.split('\0').next().unwrap_or("");
    let mut tokens = Vec::new();
    loop {
        rest = rest.trim_start_matches(blank);
        let Some(first) = rest.chars().next() else { break };
        let symbol = special(first);
        let length = match rest.get(..2) {
            Some("==" | "!=") => 2,
            _ if symbol => 1,
            _ => rest.find(|c| special(c) || blank(c)).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(if symbol { Token::Symbol(token) } else { Token::Word(token) });
        rest = after;
    }
    tokens.push(Token::End);
    tokens
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Symbol("!") => {
                    let one = self.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
                    requirements.push(one);
                }
                Token::End => return Ok(requirements),
                Token::Symbol(text) => {
                    return Err(format!("found '{text}', expected: !, identifier, or 'end of string'"));
                }
            }
            match self.next() {
                Token::End => return Ok(requirements),
                Token::Symbol(",") if !matches!(self.peek(), Token::Word(_) | Token::Symbol("!")) => {
                    return Err(format!("found '{}', expected: identifier after ','", self.peek().text()));
                }
                Token::Symbol(",") => {}
                other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek() == Token::Symbol("!");
        if negated {
            self.at += 1;
        }
        let key = match self.next() {
            Token::Word(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        let mut errors = ErrorList::new();
        // Kubernetes has no path here, and shows it as Go shows an absent one.
        key_errors(key, &Path::new("<nil>"), &mut errors);
        if !errors.is_empty() {
            return Err(errors.summary());
        }
        if negated {
            return requirement(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return requirement(key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.set()?,
            _ => vec![self.exact()?],
        };
        requirement(key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        Ok(match self.next().text() {
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            "=" => Operator::Equals,
            "==" => Operator::DoubleEquals,
            "!=" => Operator::NotEquals,
            ">" => Operator::GreaterThan,
            "<" => Operator::LessThan,
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        })
    }

    fn exact(&mut self) -> Result<Box<str>, String> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok("".into());
        }
        match self.next() {
            Token::Word(value) => Ok(value.into()),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// `(a,,b)`: an empty place is the empty value.
    fn set(&mut self) -> Result<Vec<Box<str>>, String> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        match self.peek() {
            Token::Word(_) | Token::Symbol(",") => {}
            Token::Symbol(")") => {
                self.at += 1;
                return Ok(vec!["".into()]);
            }
            other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
        }
        let mut values = Vec::<Box<str>>::new();
        loop {
            match (self.next(), self.peek()) {
                (Token::Word(value), Token::Symbol("," | ")")) => values.push(value.into()),
                (Token::Word(_), other) => {
                    return Err(format!("found '{}', expected: ',' or ')'", other.text()));
                }
                (Token::Symbol(","), next) => {
                    if values.is_empty() || matches!(next, Token::Symbol("," | ")")) {
                        values.push("".into());
                    }
                }
                (other, _) => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
            }
            if self.peek() == Token::Symbol(")") {
                self.at += 1;
                return Ok(values);
            }
        }
    }
}

#[cfg(test)]
mod tests;
