//! The JSONPath dialect of printer columns and selectable fields: `.a.b`, `['a']`, `[0]`, `[1:3]`, `[*]`, `..a`
//! and filters `[?(@.type=="Ready")]`.

use std::cmp::Ordering;

use serde_json::Value;

/// How many values one path may pass through in one object.
const VISITS_MAX: usize = 100_000;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Fields(Vec<String>),
    Slice { from: Option<i64>, to: Option<i64>, step: usize },
    Index(i64),
    Wildcard,
    Descend,
    Filter(Filter),
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Term,
    operator: Option<(Operator, Term)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    Path(JsonPath),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

impl JsonPath {
    /// Reads a path; none when it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        Self::parse_at(text.trim(), 0)
    }

    /// The first value the path leads to.
    pub fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.find(value).first().copied()
    }

    /// Every value the path leads to, in order; none when a step does not fit what it meets.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut current = vec![value];
        let mut visits = 0;
        for step in &self.0 {
            let mut next = Vec::new();
            for value in current {
                if step.apply(value, &mut next, &mut visits).is_none() {
                    return Vec::new();
                }
            }
            current = next;
        }
        current
    }

    fn parse_at(text: &str, depth: usize) -> Option<Self> {
        if depth > 4 {
            return None;
        }
        let mut steps = Vec::new();
        let mut rest = text.strip_prefix(['$', '@']).unwrap_or(text);
        while let Some(first) = rest.chars().next() {
            rest = match first {
                '.' => {
                    let after = rest.strip_prefix('.').unwrap_or(rest);
                    if let Some(after) = after.strip_prefix('.') {
                        steps.push(Step::Descend);
                        name(after, &mut steps)?
                    } else if after.starts_with('[') || after.is_empty() {
                        after
                    } else {
                        name(after, &mut steps)?
                    }
                }
                '[' => {
                    let (inside, after) = bracket(rest)?;
                    steps.push(subscript(inside.trim(), depth)?);
                    after
                }
                _ if steps.is_empty() => name(rest, &mut steps)?,
                _ => return None,
            };
        }
        Some(Self(steps))
    }
}

/// A plain name up to the next dot or bracket; `\.` is a dot in it.
fn name<'a>(text: &'a str, steps: &mut Vec<Step>) -> Option<&'a str> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => out.push(chars.next()?.1),
            '.' | '[' => {
                end = at;
                break;
            }
            ' ' | '\t' | '{' | '}' | '(' | ')' | '"' | '\'' => return None,
            c => out.push(c),
        }
    }
    match out.as_str() {
        "" if text.starts_with('[') => {}
        "" => return None,
        "*" => steps.push(Step::Wildcard),
        _ => steps.push(Step::Field(out)),
    }
    text.get(end..)
}

/// Splits `[inside]after`, with quotes and nested brackets inside.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let (mut depth, mut quote) = (0usize, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some((text.get(1..at)?, text.get(at + 1..)?));
                }
            }
            _ => {}
        }
    }
    None
}

fn subscript(inside: &str, depth: usize) -> Option<Step> {
    if inside == "*" {
        return Some(Step::Wildcard);
    }
    if let Some(filter) = inside.strip_prefix("?(").and_then(|f| f.strip_suffix(')')) {
        return filter_of(filter.trim(), depth).map(Step::Filter);
    }
    if inside.starts_with(['\'', '"']) {
        let mut names: Vec<String> =
            inside.split(',').map(|part| unquote(part.trim())).collect::<Option<_>>()?;
        return if names.len() == 1 { names.pop().map(Step::Field) } else { Some(Step::Fields(names)) };
    }
    if let Ok(index) = inside.parse() {
        return Some(Step::Index(index));
    }
    let bound = |text: Option<&str>| match text.map(str::trim) {
        None | Some("") => Some(None),
        Some(text) => text.parse().ok().map(Some),
    };
    let mut parts = inside.split(':');
    let (from, to, step) = (bound(parts.next())?, bound(parts.next())?, bound(parts.next())?);
    let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0)?;
    (inside.contains(':') && parts.next().is_none()).then_some(Step::Slice { from, to, step })
}

fn unquote(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    Some(inner.replace("\\.", ".").replace(&format!("\\{quote}"), &quote.to_string()))
}

fn filter_of(text: &str, depth: usize) -> Option<Filter> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, _) => {
                let rest = text.get(at..)?;
                if let Some((sign, operator)) = OPERATORS.iter().find(|(sign, _)| rest.starts_with(sign)) {
                    let right = term(rest.get(sign.len()..)?.trim(), depth)?;
                    let left = term(text.get(..at)?.trim(), depth)?;
                    return Some(Filter { left, operator: Some((*operator, right)) });
                }
            }
        }
    }
    Some(Filter { left: term(text, depth)?, operator: None })
}

fn term(text: &str, depth: usize) -> Option<Term> {
    if text.starts_with(['@', '$']) {
        return JsonPath::parse_at(text, depth + 1).map(Term::Path);
    }
    if text.starts_with(['\'', '"']) {
        return unquote(text).map(|text| Term::Literal(text.into()));
    }
    match serde_json::from_str::<Value>(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => Some(Term::Literal(value)),
        _ => None,
    }
}

impl Step {
    /// Adds what this step leads to. None: it does not fit the value, and the whole path gives nothing.
    fn apply<'a>(&self, value: &'a Value, next: &mut Vec<&'a Value>, visits: &mut usize) -> Option<()> {
        *visits += 1;
        if *visits > VISITS_MAX {
            return None;
        }
        match self {
            Self::Field(name) => next.extend(value.get(name)),
            Self::Fields(names) => next.extend(names.iter().filter_map(|name| value.get(name))),
            Self::Wildcard => match value {
                Value::Object(map) => next.extend(map.values()),
                Value::Array(items) => next.extend(items),
                _ => {}
            },
            Self::Descend => descend(value, next, visits)?,
            Self::Index(index) => {
                let items = value.as_array()?;
                let at = resolve(*index, items.len())?;
                next.push(items.get(at)?);
            }
            Self::Slice { from, to, step } => {
                let items = value.as_array()?;
                let from = from.map_or(Some(0), |from| resolve(from, items.len()))?;
                let to = to.map_or(Some(items.len()), |to| resolve(to, items.len()))?;
                next.extend(items.get(from..to)?.iter().step_by(*step));
            }
            Self::Filter(filter) => {
                for item in value.as_array()? {
                    *visits += 1;
                    if filter.holds(item) {
                        next.push(item);
                    }
                }
            }
        }
        Some(())
    }
}

fn resolve(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { index + length } else { index }).ok()
}

fn descend<'a>(value: &'a Value, next: &mut Vec<&'a Value>, visits: &mut usize) -> Option<()> {
    *visits += 1;
    if *visits > VISITS_MAX {
        return None;
    }
    next.push(value);
    match value {
        Value::Object(map) => map.values().try_for_each(|value| descend(value, next, visits)),
        Value::Array(items) => items.iter().try_for_each(|value| descend(value, next, visits)),
        _ => Some(()),
    }
}

impl Filter {
    fn holds(&self, item: &Value) -> bool {
        let of = |term: &Term| match term {
            Term::Path(path) => path.first(item).cloned(),
            Term::Literal(value) => Some(value.clone()),
        };
        let Some(left) = of(&self.left) else { return false };
        let Some((operator, right)) = &self.operator else { return true };
        let Some(right) = of(right) else { return false };
        let order = match (&left, &right) {
            (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            _ => None,
        };
        match (operator, order) {
            (Operator::NotEqual, order) => order != Some(Ordering::Equal),
            (_, None) => false,
            (Operator::Equal, Some(order)) => order.is_eq(),
            (Operator::Less, Some(order)) => order.is_lt(),
            (Operator::LessOrEqual, Some(order)) => order.is_le(),
            (Operator::Greater, Some(order)) => order.is_gt(),
            (Operator::GreaterOrEqual, Some(order)) => order.is_ge(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_where_they_should() {
        let object = json!({"spec": {"a": 1, "l": [10, 20, 30], "x.y": "dotted",
            "c": [{"type": "Ready", "status": "True"}, {"type": "Synced", "status": "False"}]}});
        for (path, expected) in [
            (".spec.a", json!([1])),
            ("$.spec.a", json!([1])),
            ("spec.a", json!([1])),
            (".spec.missing", json!([])),
            (".spec.l[0]", json!([10])),
            (".spec.l[-1]", json!([30])),
            (".spec.l[9]", json!([])),
            (".spec.l[1:]", json!([20, 30])),
            (".spec.l[*]", json!([10, 20, 30])),
            (r".spec.x\.y", json!(["dotted"])),
            (".spec['x.y']", json!(["dotted"])),
            (".spec.c[?(@.type==\"Ready\")].status", json!(["True"])),
            (".spec.c[?(@.type == 'Synced')].status", json!(["False"])),
            (".spec.c[?(@.type==\"None\")].status", json!([])),
            ("..status", json!(["True", "False"])),
        ] {
            let found = JsonPath::parse(path).map(|p| json!(p.find(&object)));
            assert_eq!(found, Some(expected), "{path}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in [".a[", ".a[?(@.b==)]", ".a b", ".a[1:2:0]", "[?(]"] {
            assert_eq!(JsonPath::parse(path), None, "{path}");
        }
    }
}
