//! Evaluates expressions, within a budget of steps.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::functions;
use super::parser::{Expr, Literal, Node};
use super::value::{Key, Val};
use crate::crd::schema::Schema;

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Something is wrong with the values.
    Error(String),
    /// The budget is used up.
    Budget,
}

/// A value, or why not.
pub type Result<'a> = std::result::Result<Val<'a>, Stop>;

/// An error with this sentence.
pub fn error<T>(sentence: impl Into<String>) -> std::result::Result<T, Stop> {
    Err(Stop::Error(sentence.into()))
}

/// Steps that are left.
pub struct Budget(pub Cell<u64>);

impl Budget {
    /// Uses some up.
    pub fn spend(&self, steps: usize) -> std::result::Result<(), Stop> {
        let left = self.0.get().checked_sub(u64::try_from(steps).unwrap_or(u64::MAX));
        self.0.set(left.unwrap_or(0));
        left.map(drop).ok_or(Stop::Budget)
    }
}

/// Names and their values, innermost first.
pub struct Scope<'s, 'a> {
    name: &'s str,
    value: Val<'a>,
    outer: Option<&'s Self>,
}

impl<'s, 'a> Scope<'s, 'a> {
    /// A scope with one more name.
    pub fn new(name: &'s str, value: Val<'a>, outer: Option<&'s Self>) -> Self {
        Self { name, value, outer }
    }

    fn find(&self, name: &str) -> Option<&Val<'a>> {
        if self.name == name { Some(&self.value) } else { self.outer?.find(name) }
    }
}

/// Types that are named like values.
const TYPES: [&str; 10] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"];

/// The value of an expression.
pub fn eval<'a>(expr: &Expr, scope: &Scope<'_, 'a>, budget: &Budget) -> Result<'a> {
    budget.spend(1)?;
    match &expr.node {
        Node::Literal(value) => Ok(constant(value)),
        Node::Name(name) => named(name, scope),
        Node::Select { of, field, test, optional } => {
            let of = eval(of, scope, budget)?;
            select(&of, field, *test, *optional)
        }
        Node::Index { of, index, optional } => {
            let of = eval(of, scope, budget)?;
            let index = eval(index, scope, budget)?;
            at_index(&of, &index, *optional)
        }
        Node::Call { on, name, args } => call(on.as_deref(), name, args, scope, budget),
        Node::List(items) => list(items, scope, budget),
        Node::Map(entries) => map(entries, scope, budget),
        Node::Macro { name, of, vars, args } => walk(name, of, vars, args, scope, budget),
    }
}

fn constant<'a>(value: &Literal) -> Val<'a> {
    match value {
        Literal::Null => Val::Null,
        Literal::Bool(b) => Val::Bool(*b),
        Literal::Int(i) => Val::Int(*i),
        Literal::Uint(u) => Val::Uint(*u),
        Literal::Double(d) => Val::Double(*d),
        Literal::Text(text) => Val::text(text),
        Literal::Bytes(bytes) => Val::Bytes(bytes.as_slice().into()),
    }
}

fn named<'a>(name: &str, scope: &Scope<'_, 'a>) -> Result<'a> {
    if let Some(value) = scope.find(name) {
        return Ok(value.clone());
    }
    let ty = TYPES.iter().find(|ty| **ty == name);
    ty.map_or_else(|| error(format!("no such attribute: {name}")), |ty| Ok(Val::Type(ty)))
}

fn list<'a>(items: &[(Expr, bool)], scope: &Scope<'_, 'a>, budget: &Budget) -> Result<'a> {
    let mut out = Vec::new();
    for (item, optional) in items {
        match (eval(item, scope, budget)?, optional) {
            (Val::Optional(value), true) => out.extend(value.map(|v| (*v).clone())),
            (value, _) => out.push(value),
        }
    }
    Ok(Val::list(out))
}

fn map<'a>(entries: &[(Expr, Expr)], scope: &Scope<'_, 'a>, budget: &Budget) -> Result<'a> {
    let mut out = BTreeMap::new();
    for (key, value) in entries {
        let key = eval(key, scope, budget)?;
        let Some(key) = key.to_key() else { return error("unsupported key type") };
        out.insert(key, eval(value, scope, budget)?);
    }
    Ok(Val::Map(Arc::new(out)))
}

/// Names that the language reserves, and how fields so named are written.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The field that an escaped name means: `__dash__` for `-`, and so on.
pub fn unescape(name: &str) -> String {
    let reserved = name.strip_prefix("__").and_then(|n| n.strip_suffix("__"));
    if let Some(word) = reserved.filter(|word| RESERVED.contains(word)) {
        return word.into();
    }
    if !name.contains("__") {
        return name.into();
    }
    let escapes = [("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")];
    let (mut out, mut rest) = (String::new(), name);
    while !rest.is_empty() {
        if let Some((escape, plain)) = escapes.iter().find(|(escape, _)| rest.starts_with(escape)) {
            out.push_str(plain);
            rest = rest.get(escape.len()..).unwrap_or("");
        } else {
            let mut chars = rest.chars();
            out.extend(chars.next());
            rest = chars.as_str();
        }
    }
    out
}

/// Whether a schema's objects have named fields (not a map with free keys).
fn is_struct(schema: Option<&Schema>) -> bool {
    schema.is_some_and(|s| s.additional_schema().is_none())
}

fn select<'a>(of: &Val<'a>, field: &str, test: bool, optional: bool) -> Result<'a> {
    if let Val::Optional(inner) = of {
        return match inner {
            None if test => Ok(Val::Bool(false)),
            None => Ok(Val::Optional(None)),
            Some(inner) => select(inner, field, test, true),
        };
    }
    let name = match of {
        Val::Object(_, schema) if is_struct(*schema) => unescape(field),
        Val::Object(..) | Val::Map(_) => field.to_owned(),
        _ => return error("no such overload"),
    };
    let found = of.at_key(&Key::Text(name.as_str().into()));
    match (test, optional, found) {
        (true, _, found) => Ok(Val::Bool(found.is_some())),
        (false, true, found) => Ok(Val::Optional(found.map(Arc::new))),
        (false, false, Some(found)) => Ok(found),
        (false, false, None) => error(format!("no such key: {name}")),
    }
}

fn at_index<'a>(of: &Val<'a>, index: &Val<'a>, optional: bool) -> Result<'a> {
    if let Val::Optional(inner) = of {
        return inner.as_ref().map_or(Ok(Val::Optional(None)), |inner| at_index(inner, index, true));
    }
    let whole = match index {
        Val::Int(at) => Some(*at),
        Val::Uint(at) => i64::try_from(*at).ok(),
        Val::Double(at) if at.fract() == 0.0 => Some(*at as i64),
        _ => None,
    };
    let found = match (of, whole) {
        (Val::List(items), Some(at)) => usize::try_from(at).ok().and_then(|at| items.get(at).cloned()),
        (Val::Array(items, schema), Some(at)) => {
            usize::try_from(at).ok().and_then(|at| items.get(at)).map(|item| Val::of(item, *schema))
        }
        (Val::Map(_) | Val::Object(..), _) => index.to_key().and_then(|key| of.at_key(&key)),
        _ => return error("no such overload"),
    };
    match (optional, found) {
        (true, found) => Ok(Val::Optional(found.map(Arc::new))),
        (false, Some(found)) => Ok(found),
        (false, None) if of.size().is_some() && of.entries().is_none() => {
            error(format!("index out of bounds: {}", whole.unwrap_or(-1)))
        }
        (false, None) => error(format!("no such key: {}", functions::shown(index))),
    }
}

fn call<'a>(
    on: Option<&Expr>,
    name: &str,
    args: &[Expr],
    scope: &Scope<'_, 'a>,
    budget: &Budget,
) -> Result<'a> {
    match (name, args) {
        ("_&&_", [a, b]) => return both(a, b, false, scope, budget),
        ("_||_", [a, b]) => return both(a, b, true, scope, budget),
        ("_?_:_", [condition, yes, no]) => {
            return match eval(condition, scope, budget)? {
                Val::Bool(true) => eval(yes, scope, budget),
                Val::Bool(false) => eval(no, scope, budget),
                _ => error("no such overload"),
            };
        }
        _ => {}
    }
    // `optional.of(x)`, `ip.isCanonical(x)`, `sets.contains(a, b)`: a name before the dot that is no value.
    let space = on.and_then(|on| match &on.node {
        Node::Name(space) if scope.find(space).is_none() => Some(space.as_str()),
        _ => None,
    });
    let mut values = Vec::new();
    if let (Some(on), None) = (on, space) {
        values.push(eval(on, scope, budget)?);
    }
    for arg in args {
        values.push(eval(arg, scope, budget)?);
    }
    match space {
        Some(space) => functions::call(&format!("{space}.{name}"), false, &values, budget),
        None => functions::call(name, on.is_some(), &values, budget),
    }
}

/// `&&` and `||`: one side that decides makes up for an error of the other.
fn both<'a>(a: &Expr, b: &Expr, decides: bool, scope: &Scope<'_, 'a>, budget: &Budget) -> Result<'a> {
    let first = eval(a, scope, budget);
    if matches!(first, Ok(Val::Bool(value)) if value == decides) || first == Err(Stop::Budget) {
        return first;
    }
    let second = eval(b, scope, budget);
    match (first, second) {
        (_, Ok(Val::Bool(value))) if value == decides => Ok(Val::Bool(decides)),
        (Err(why), _) | (Ok(_), Err(why)) => Err(why),
        (Ok(Val::Bool(_)), Ok(Val::Bool(_))) => Ok(Val::Bool(!decides)),
        _ => error("no such overload"),
    }
}

impl PartialEq for Val<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.equals(other)
    }
}

/// A macro: walks a list or map with one or two variables.
fn walk<'a>(
    name: &str,
    of: &Expr,
    vars: &[String],
    args: &[Expr],
    scope: &Scope<'_, 'a>,
    budget: &Budget,
) -> Result<'a> {
    let of = eval(of, scope, budget)?;
    let (Some(var), Some(last)) = (vars.first(), args.last()) else { return error("no such overload") };
    match (name, &of) {
        ("bind", _) => return eval(last, &Scope::new(var, of, Some(scope)), budget),
        ("optMap" | "optFlatMap", Val::Optional(None)) => return Ok(of),
        ("optMap" | "optFlatMap", Val::Optional(Some(inner))) => {
            let made = eval(last, &Scope::new(var, (**inner).clone(), Some(scope)), budget)?;
            return Ok(if name == "optMap" { Val::Optional(Some(Arc::new(made))) } else { made });
        }
        _ => {}
    }
    let Some(pairs) = pairs(&of, vars.len() > 1) else { return error("no such overload") };
    let mut fold = Fold::new(name, of.entries().is_some());
    for (key, value) in pairs {
        budget.spend(1)?;
        let inner = Scope::new(var, key.clone(), Some(scope));
        let both;
        let scope = match vars.get(1) {
            Some(second) => {
                both = Scope::new(second, value, Some(&inner));
                &both
            }
            None => &inner,
        };
        if let [filter, _] = args
            && !matches!(eval(filter, scope, budget)?, Val::Bool(true))
        {
            continue;
        }
        if fold.step(key, eval(last, scope, budget))? {
            break;
        }
    }
    fold.finish()
}

/// What the variables take: items; keys of a map; or place and item, key and value.
fn pairs<'a>(of: &Val<'a>, two: bool) -> Option<Vec<(Val<'a>, Val<'a>)>> {
    if let Some(items) = of.items() {
        let place = |at: usize| Val::Int(i64::try_from(at).unwrap_or(i64::MAX));
        let pair = |(at, item): (usize, Val<'a>)| if two { (place(at), item) } else { (item, Val::Null) };
        return Some(items.into_iter().enumerate().map(pair).collect());
    }
    Some(of.entries()?.into_iter().map(|(key, value)| (key.to_val(), value)).collect())
}

/// What a macro gathers while it walks.
struct Fold<'n, 'a> {
    name: &'n str,
    list: Vec<Val<'a>>,
    map: BTreeMap<Key, Val<'a>>,
    count: usize,
    decided: bool,
    failed: Option<Stop>,
}

impl<'n, 'a> Fold<'n, 'a> {
    fn new(name: &'n str, _of_map: bool) -> Self {
        Self { name, list: Vec::new(), map: BTreeMap::new(), count: 0, decided: false, failed: None }
    }

    /// Takes one result; true when the rest cannot matter.
    fn step(&mut self, key: Val<'a>, result: Result<'a>) -> std::result::Result<bool, Stop> {
        let decides = self.name == "exists";
        match (self.name, result) {
            (_, Err(Stop::Budget)) => return Err(Stop::Budget),
            ("all" | "exists", Ok(Val::Bool(value))) => {
                self.decided |= value == decides;
                return Ok(self.decided);
            }
            ("all" | "exists", result) => {
                self.failed = Some(result.err().unwrap_or_else(|| Stop::Error("no such overload".into())));
            }
            (_, Err(why)) => return Err(why),
            ("exists_one" | "existsOne", Ok(value)) => self.count += usize::from(value == Val::Bool(true)),
            ("filter", Ok(value)) => self.list.extend((value == Val::Bool(true)).then_some(key)),
            ("transformMap", Ok(value)) => drop(key.to_key().map(|key| self.map.insert(key, value))),
            (_, Ok(value)) => self.list.push(value),
        }
        Ok(false)
    }

    fn finish(self) -> Result<'a> {
        match (self.name, self.failed) {
            ("all" | "exists", _) if self.decided => Ok(Val::Bool(self.name == "exists")),
            ("all" | "exists", Some(why)) => Err(why),
            ("all" | "exists", None) => Ok(Val::Bool(self.name == "all")),
            ("exists_one" | "existsOne", _) => Ok(Val::Bool(self.count == 1)),
            ("transformMap", _) => Ok(Val::Map(Arc::new(self.map))),
            _ => Ok(Val::list(self.list)),
        }
    }
}
