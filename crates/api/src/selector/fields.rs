//! Field selectors: `metadata.name=x,status.phase!=Running`, matched against the object's JSON.

use serde_json::Value;

use crate::kind::Kind;

/// A field selector: each term compares one field of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

/// `field = value` or `field != value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Such as `metadata.name`.
    pub field: Box<str>,
    /// The wanted (or unwanted) text.
    pub value: Box<str>,
    /// Whether it must equal.
    pub equal: bool,
}

/// Selectable names that are kept elsewhere, or where something absent counts as zero.
const FIELDS: &[(&str, &str, &str)] =
    &[("status.successful", "status.succeeded", "0"), ("status.replicas", "status.replicas", "0")];

impl FieldSelector {
    /// Reads a selector text; the error is Kubernetes' sentence, to be sent with 400.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|p| !p.is_empty()) {
            let Some((field, equal, value)) = split_term(part) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{part}'"));
            };
            terms.push(Term { field: field.into(), value: unescape(value)?.into(), equal });
        }
        Ok(Self { terms })
    }

    /// Whether the kind can be selected by these fields.
    pub fn check(&self, kind: &Kind) -> Result<(), String> {
        let known = |f: &str| {
            matches!(f, "metadata.name" | "metadata.namespace") || kind.selectable.iter().any(|s| s == f)
        };
        let Some(term) = self.terms.iter().find(|t| !known(&t.field)) else { return Ok(()) };
        let field = &term.field;
        Err(if kind.kind == "Job" && kind.group == "batch" {
            format!("field label {field:?} not supported for Job")
        } else if kind.selectable.is_empty() && kind.strategic {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        } else {
            format!("field label not supported: {field}")
        })
    }

    /// Whether it selects everything.
    pub const fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// The terms.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The same selector for objects whose fields have other names: the first step of a path is looked up in `names`.
    #[must_use]
    pub fn renamed(mut self, names: impl Fn(&str) -> Option<&'static str>) -> Self {
        for term in &mut self.terms {
            let (first, rest) =
                term.field.split_once('.').map_or((&*term.field, None), |(a, b)| (a, Some(b)));
            if let Some(name) = names(first) {
                term.field = rest.map_or_else(|| name.into(), |rest| format!("{name}.{rest}").into());
            }
        }
        self
    }

    /// The value a field must have, if only one will do: lets a list of one name become a get.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|t| t.equal && &*t.field == field).map(|t| &*t.value)
    }

    /// Whether an object satisfies it.
    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|t| field_is(object, &t.field, &t.value) == t.equal)
    }
}

fn field_is(object: &Value, field: &str, wanted: &str) -> bool {
    if field == "source" {
        return event_source(object) == wanted;
    }
    let row = FIELDS.iter().find(|(name, ..)| *name == field);
    let (path, absent) = row.map_or((field, ""), |(_, path, absent)| (path, absent));
    let found = path.split('.').try_fold(object, |value, step| value.get(step));
    match found {
        Some(Value::String(text)) => text == wanted,
        Some(Value::Bool(yes)) => wanted == if *yes { "true" } else { "false" },
        Some(Value::Number(number)) => number.to_string() == wanted,
        _ => wanted == absent,
    }
}

/// Who reported a core event: newer events say it elsewhere.
fn event_source(object: &Value) -> &str {
    let component = object.get("source").and_then(|source| source.get("component"));
    let candidates = [component, object.get("reportingComponent")];
    candidates.into_iter().flatten().filter_map(Value::as_str).find(|text| !text.is_empty()).unwrap_or("")
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c| {
        let comma = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        comma
    })
    .collect()
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.char_indices().find_map(|(at, c)| {
        let rest = term.get(at..)?;
        (c == '=' || rest.starts_with("!=")).then_some(at)
    })?;
    let (field, rest) = term.split_at(at);
    let (operator, value) =
        rest.split_at(if rest.starts_with("!=") || rest.starts_with("==") { 2 } else { 1 });
    Some((field, operator != "!=", value))
}

fn unescape(value: &str) -> Result<String, String> {
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => text.push(c),
                other => {
                    let sequence = other.map(String::from).unwrap_or_default();
                    return Err(format!("invalid field selector: invalid escape sequence: \\{sequence}"));
                }
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                ));
            }
            c => text.push(c),
        }
    }
    Ok(text)
}
