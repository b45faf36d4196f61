//! The operators and functions of CEL that rules use, with those that Kubernetes adds.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use super::eval::{Budget, Result, Stop, error};
use super::value::{Val, timestamp};
use super::{go_duration, library};
use crate::crd::check::go_float;
use crate::crd::schema::compile;

const NO_OVERLOAD: &str = "no such overload";

/// Calls an operator or function. `method`: the first argument stood before the dot.
pub fn call<'a>(name: &str, method: bool, args: &[Val<'a>], budget: &Budget) -> Result<'a> {
    budget.spend(1 + args.iter().map(weight).sum::<usize>())?;
    if let Some(result) = operator(name, args) {
        return result;
    }
    if let Some(result) = convert(name, args).filter(|_| !method) {
        return result;
    }
    if let Some(result) = optional(name, args) {
        return result;
    }
    let found = match args {
        [Val::Text(text), rest @ ..] => strings(name, text, rest, budget),
        [Val::Timestamp(at), rest @ ..] => library::time(name, *at, rest),
        [Val::Duration(span), rest @ ..] => library::span(name, *span, rest),
        _ => None,
    };
    let found = found.or_else(|| common(name, args)).or_else(|| lists(name, args, budget));
    found.or_else(|| library::call(name, args)).unwrap_or_else(|| error(NO_OVERLOAD))
}

/// What it costs to look at a value: texts by their length, lists and maps by their entries.
fn weight(value: &Val<'_>) -> usize {
    let size = value.size().unwrap_or(0);
    if matches!(value, Val::Text(_) | Val::Bytes(_)) { size / 10 } else { size }
}

fn operator<'a>(name: &str, args: &[Val<'a>]) -> Option<Result<'a>> {
    let order = |wanted: fn(Ordering) -> bool, a: &Val<'a>, b: &Val<'a>| match a.order(b) {
        Some(order) => Ok(Val::Bool(wanted(order))),
        None if matches!((a, b), (Val::Double(_), _) | (_, Val::Double(_))) => Ok(Val::Bool(false)),
        None => error(NO_OVERLOAD),
    };
    Some(match (name, args) {
        ("_==_", [a, b]) => Ok(Val::Bool(a.equals(b))),
        ("_!=_", [a, b]) => Ok(Val::Bool(!a.equals(b))),
        ("_<_", [a, b]) => order(Ordering::is_lt, a, b),
        ("_<=_", [a, b]) => order(Ordering::is_le, a, b),
        ("_>_", [a, b]) => order(Ordering::is_gt, a, b),
        ("_>=_", [a, b]) => order(Ordering::is_ge, a, b),
        ("!_", [Val::Bool(b)]) => Ok(Val::Bool(!b)),
        ("-_", [Val::Int(i)]) => whole(i.checked_neg()),
        ("-_", [Val::Double(d)]) => Ok(Val::Double(-d)),
        ("-_", [Val::Duration(d)]) => {
            d.checked_neg().map_or_else(|| error("duration overflow"), |d| Ok(Val::Duration(d)))
        }
        ("@in", [item, Val::List(items)]) => Ok(Val::Bool(items.iter().any(|i| i.equals(item)))),
        ("@in", [item, of @ Val::Array(..)]) => {
            Ok(Val::Bool(of.items().unwrap_or_default().iter().any(|i| i.equals(item))))
        }
        ("@in", [key, of @ (Val::Map(_) | Val::Object(..))]) => {
            Ok(Val::Bool(key.to_key().is_some_and(|key| of.at_key(&key).is_some())))
        }
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [a, b]) => arithmetic(name, a, b),
        _ => return None,
    })
}

fn whole<'a>(value: Option<i64>) -> Result<'a> {
    value.map_or_else(|| error("integer overflow"), |value| Ok(Val::Int(value)))
}

fn unsigned<'a>(value: Option<u64>) -> Result<'a> {
    value.map_or_else(|| error("unsigned integer overflow"), |value| Ok(Val::Uint(value)))
}

fn arithmetic<'a>(name: &str, a: &Val<'a>, b: &Val<'a>) -> Result<'a> {
    match (name, a, b) {
        ("_/_", _, Val::Int(0) | Val::Uint(0)) => error("division by zero"),
        ("_%_", _, Val::Int(0) | Val::Uint(0)) => error("modulus by zero"),
        ("_+_", Val::Int(a), Val::Int(b)) => whole(a.checked_add(*b)),
        ("_-_", Val::Int(a), Val::Int(b)) => whole(a.checked_sub(*b)),
        ("_*_", Val::Int(a), Val::Int(b)) => whole(a.checked_mul(*b)),
        ("_/_", Val::Int(a), Val::Int(b)) => whole(a.checked_div(*b)),
        ("_%_", Val::Int(a), Val::Int(b)) => whole(a.checked_rem(*b)),
        ("_+_", Val::Uint(a), Val::Uint(b)) => unsigned(a.checked_add(*b)),
        ("_-_", Val::Uint(a), Val::Uint(b)) => unsigned(a.checked_sub(*b)),
        ("_*_", Val::Uint(a), Val::Uint(b)) => unsigned(a.checked_mul(*b)),
        ("_/_", Val::Uint(a), Val::Uint(b)) => unsigned(a.checked_div(*b)),
        ("_%_", Val::Uint(a), Val::Uint(b)) => unsigned(a.checked_rem(*b)),
        ("_+_", Val::Double(a), Val::Double(b)) => Ok(Val::Double(a + b)),
        ("_-_", Val::Double(a), Val::Double(b)) => Ok(Val::Double(a - b)),
        ("_*_", Val::Double(a), Val::Double(b)) => Ok(Val::Double(a * b)),
        ("_/_", Val::Double(a), Val::Double(b)) => Ok(Val::Double(a / b)),
        ("_+_", Val::Text(a), Val::Text(b)) => Ok(Val::Text(format!("{a}{b}").into())),
        ("_+_", Val::Bytes(a), Val::Bytes(b)) => Ok(Val::Bytes([&**a, &**b].concat().into())),
        ("_+_", a, b) if a.items().is_some() && b.items().is_some() => {
            let mut all = a.items().unwrap_or_default();
            all.extend(b.items().unwrap_or_default());
            Ok(Val::list(all))
        }
        _ => library::arithmetic(name, a, b),
    }
}

fn convert<'a>(name: &str, args: &[Val<'a>]) -> Option<Result<'a>> {
    let [value] = args else { return None };
    Some(match (name, value) {
        ("dyn", value) => Ok(value.clone()),
        ("type", value) => Ok(Val::Type(value.type_name())),
        ("int", value) => to_int(value),
        ("uint", Val::Uint(u)) => Ok(Val::Uint(*u)),
        ("uint", Val::Int(i)) => unsigned(u64::try_from(*i).ok()),
        ("uint", Val::Text(text)) => {
            text.parse().map_or_else(|_| error("type conversion error"), |u| Ok(Val::Uint(u)))
        }
        ("double", Val::Double(d)) => Ok(Val::Double(*d)),
        ("double", Val::Int(i)) => Ok(Val::Double(*i as f64)),
        ("double", Val::Uint(u)) => Ok(Val::Double(*u as f64)),
        ("double", Val::Text(text)) => {
            text.parse().map_or_else(|_| error("type conversion error"), |d| Ok(Val::Double(d)))
        }
        ("bool", Val::Bool(b)) => Ok(Val::Bool(*b)),
        ("bool", Val::Text(text)) => match &**text {
            "1" | "t" | "true" | "TRUE" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "false" | "FALSE" | "False" => Ok(Val::Bool(false)),
            _ => error("type conversion error from 'string' to 'bool'"),
        },
        ("bytes", Val::Text(text)) => Ok(Val::Bytes(text.as_bytes().into())),
        ("string", Val::List(_) | Val::Array(..) | Val::Map(_) | Val::Object(..)) => error(NO_OVERLOAD),
        ("string", value) => Ok(Val::text(&shown(value))),
        ("duration", Val::Duration(d)) => Ok(Val::Duration(*d)),
        ("duration", Val::Text(text)) => go_duration(text)
            .map_or_else(|| error(format!("time: invalid duration {text:?}")), |d| Ok(Val::Duration(d))),
        ("timestamp", Val::Timestamp(t)) => Ok(Val::Timestamp(*t)),
        ("timestamp", Val::Text(text)) => timestamp(text)
            .map_or_else(|| error("type conversion error from 'string' to 'google.protobuf.Timestamp'"), Ok),
        _ => return None,
    })
}

fn to_int<'a>(value: &Val<'a>) -> Result<'a> {
    match value {
        Val::Int(i) => Ok(Val::Int(*i)),
        Val::Uint(u) => whole(i64::try_from(*u).ok()),
        Val::Double(d) => whole((d.abs() < 9.223_372_036_854_775e18).then_some(*d as i64)),
        Val::Timestamp(t) => whole(i64::try_from(t.div_euclid(1_000_000_000)).ok()),
        Val::Duration(d) => Ok(Val::Int(*d)),
        Val::Text(text) => text
            .parse()
            .map_or_else(|_| error("type conversion error from 'string' to 'int'"), |i| Ok(Val::Int(i))),
        _ => error(NO_OVERLOAD),
    }
}

/// A value as `string()` writes it.
pub fn shown(value: &Val<'_>) -> String {
    match value {
        Val::Null => "null".into(),
        Val::Bool(b) => b.to_string(),
        Val::Int(i) => i.to_string(),
        Val::Uint(u) => u.to_string(),
        Val::Double(d) => go_float(*d),
        Val::Text(text) | Val::Url(text) | Val::Format(text) => text.to_string(),
        Val::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Val::Duration(ns) => format!("{}s", go_float(*ns as f64 / 1e9)),
        Val::Timestamp(ns) => {
            jiff::Timestamp::from_nanosecond(*ns).map_or_else(|_| String::new(), |t| t.to_string())
        }
        Val::Ip(ip) => ip.to_string(),
        Val::Cidr(ip, bits) => format!("{ip}/{bits}"),
        Val::Quantity(nano) => go_float(*nano as f64 / 1e9),
        Val::Type(name) => (*name).into(),
        Val::List(_) | Val::Array(..) => {
            let items: Vec<String> = value.items().unwrap_or_default().iter().map(shown).collect();
            format!("[{}]", items.join(", "))
        }
        Val::Map(_) | Val::Object(..) => {
            let entries = value.entries().unwrap_or_default();
            let each: Vec<String> =
                entries.iter().map(|(k, v)| format!("{}: {}", shown(&k.to_val()), shown(v))).collect();
            format!("{{{}}}", each.join(", "))
        }
        Val::Optional(_) => "optional".into(),
    }
}

fn optional<'a>(name: &str, args: &[Val<'a>]) -> Option<Result<'a>> {
    let some = |value: &Val<'a>| Ok(Val::Optional(Some(Arc::new(value.clone()))));
    Some(match (name, args) {
        ("optional.none", []) => Ok(Val::Optional(None)),
        ("optional.of", [value]) => some(value),
        ("optional.ofNonZeroValue", [value]) => {
            let zero = match value {
                Val::Null | Val::Bool(false) | Val::Int(0) | Val::Uint(0) => true,
                Val::Double(d) => *d == 0.0,
                value => value.size() == Some(0),
            };
            if zero { Ok(Val::Optional(None)) } else { some(value) }
        }
        ("hasValue", [Val::Optional(value)]) => Ok(Val::Bool(value.is_some())),
        ("value", [Val::Optional(value)]) => {
            value.as_ref().map_or_else(|| error("optional.none() dereference"), |v| Ok((**v).clone()))
        }
        ("orValue", [Val::Optional(value), other]) => {
            Ok(value.as_ref().map_or_else(|| other.clone(), |v| (**v).clone()))
        }
        ("or", [value @ Val::Optional(inner), other]) => {
            Ok(if inner.is_some() { value.clone() } else { other.clone() })
        }
        _ => return None,
    })
}

fn common<'a>(name: &str, args: &[Val<'a>]) -> Option<Result<'a>> {
    match (name, args) {
        ("size", [value]) => value.size().map(|size| whole(i64::try_from(size).ok())),
        ("matches", [Val::Text(text), Val::Text(pattern)]) => {
            Some(regex(pattern).map(|r| Val::Bool(r.is_match(text))))
        }
        ("find", [Val::Text(text), Val::Text(pattern)]) => {
            Some(regex(pattern).map(|r| Val::text(r.find(text).map_or("", |m| m.as_str()))))
        }
        ("findAll", [Val::Text(text), Val::Text(pattern)]) => Some(
            regex(pattern).map(|r| Val::list(r.find_iter(text).map(|m| Val::text(m.as_str())).collect())),
        ),
        _ => None,
    }
}

/// Compiled patterns, because rules over lists use the same one many times; emptied when it is full.
static PATTERNS: LazyLock<Mutex<HashMap<String, regex::Regex>>> = LazyLock::new(Mutex::default);
const PATTERNS_MAX: usize = 256;

fn regex(pattern: &str) -> std::result::Result<regex::Regex, Stop> {
    if let Some(known) = PATTERNS.lock().get(pattern) {
        return Ok(known.clone());
    }
    let made = compile(pattern).map_err(|why| Stop::Error(format!("error parsing regexp: {why}")))?;
    let mut known = PATTERNS.lock();
    if known.len() >= PATTERNS_MAX {
        known.clear();
    }
    known.insert(pattern.to_owned(), made.clone());
    Ok(made)
}

fn strings<'a>(name: &str, text: &str, args: &[Val<'a>], budget: &Budget) -> Option<Result<'a>> {
    if let Err(stop) = budget.spend(growth(name, text, args)) {
        return Some(Err(stop));
    }
    let place = |at: Option<usize>| {
        Ok(Val::Int(at.map_or(-1, |at| i64::try_from(text[..at].chars().count()).unwrap_or(-1))))
    };
    Some(match (name, args) {
        ("contains", [Val::Text(part)]) => Ok(Val::Bool(text.contains(&**part))),
        ("startsWith", [Val::Text(part)]) => Ok(Val::Bool(text.starts_with(&**part))),
        ("endsWith", [Val::Text(part)]) => Ok(Val::Bool(text.ends_with(&**part))),
        ("lowerAscii", []) => Ok(Val::text(&text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Val::text(&text.to_ascii_uppercase())),
        ("trim", []) => Ok(Val::text(text.trim())),
        ("reverse", []) => Ok(Val::text(&text.chars().rev().collect::<String>())),
        ("indexOf", [Val::Text(part)]) => place(text.find(&**part)),
        ("lastIndexOf", [Val::Text(part)]) => place(text.rfind(&**part)),
        ("charAt", [Val::Int(at)]) => {
            usize::try_from(*at).ok().filter(|at| *at <= text.chars().count()).map_or_else(
                || error(format!("index out of range: {at}")),
                |at| Ok(Val::text(&text.chars().nth(at).map_or_else(String::new, |c| c.to_string()))),
            )
        }
        ("replace", [Val::Text(from), Val::Text(to)]) => Ok(Val::text(&text.replace(&**from, to))),
        ("replace", [Val::Text(from), Val::Text(to), Val::Int(count)]) => {
            Ok(Val::text(&match usize::try_from(*count) {
                Ok(count) => text.replacen(&**from, to, count),
                Err(_) => text.replace(&**from, to),
            }))
        }
        ("split", [Val::Text(by)]) => Ok(split(text, by, None)),
        ("split", [Val::Text(by), Val::Int(count)]) => Ok(split(text, by, usize::try_from(*count).ok())),
        ("substring", [Val::Int(from)]) => substring(text, *from, None),
        ("substring", [Val::Int(from), Val::Int(to)]) => substring(text, *from, Some(*to)),
        ("format", [values]) => library::format(text, &values.items()?, budget),
        _ => return None,
    })
}

/// How much longer a result may be than what it is made of.
fn growth(name: &str, text: &str, args: &[Val<'_>]) -> usize {
    match (name, args) {
        ("replace", [Val::Text(from), Val::Text(to), ..]) => {
            text.matches(&**from).count().saturating_mul(to.len()) / 10
        }
        ("split", _) => text.len(),
        _ => 0,
    }
}

fn split<'a>(text: &str, by: &str, count: Option<usize>) -> Val<'a> {
    if by.is_empty() {
        return Val::list(text.chars().map(|c| Val::text(&c.to_string())).collect());
    }
    let parts: Vec<Val<'a>> = match count {
        Some(count) => text.splitn(count, by).map(Val::text).collect(),
        None => text.split(by).map(Val::text).collect(),
    };
    Val::list(parts)
}

fn substring<'a>(text: &str, from: i64, to: Option<i64>) -> Result<'a> {
    let chars: Vec<char> = text.chars().collect();
    let end = to.map_or(Some(chars.len()), |to| usize::try_from(to).ok());
    let part = usize::try_from(from).ok().zip(end).and_then(|(from, to)| chars.get(from..to));
    part.map_or_else(
        || error(format!("index out of range: {from}")),
        |part| Ok(Val::text(&part.iter().collect::<String>())),
    )
}

fn lists<'a>(name: &str, args: &[Val<'a>], budget: &Budget) -> Option<Result<'a>> {
    let items = args.first()?.items()?;
    let place = |at: Option<usize>| Ok(Val::Int(at.map_or(-1, |at| i64::try_from(at).unwrap_or(-1))));
    Some(match (name, args.get(1)) {
        ("isSorted", None) => {
            Ok(Val::Bool(items.is_sorted_by(|a, b| a.order(b).is_some_and(Ordering::is_le))))
        }
        ("sum", None) => items
            .iter()
            .try_fold(None, |sum: Option<Val<'a>>, item| match sum {
                None => Ok(Some(item.clone())),
                Some(sum) => arithmetic("_+_", &sum, item).map(Some),
            })
            .map(|sum| sum.unwrap_or(Val::Int(0))),
        ("min" | "max", None) => {
            let wanted = if name == "min" { Ordering::Less } else { Ordering::Greater };
            let best = items.iter().fold(None, |best: Option<&Val<'a>>, item| match best {
                Some(best) if item.order(best) != Some(wanted) => Some(best),
                _ => Some(item),
            });
            best.map_or_else(|| error(format!("{name} called on empty list")), |best| Ok(best.clone()))
        }
        ("indexOf", Some(value)) => place(items.iter().position(|item| item.equals(value))),
        ("lastIndexOf", Some(value)) => place(items.iter().rposition(|item| item.equals(value))),
        ("join", by) => {
            let by = by.map_or_else(String::new, shown);
            if let Err(stop) = budget.spend(items.len().saturating_mul(by.len()) / 10) {
                return Some(Err(stop));
            }
            Ok(Val::text(&items.iter().map(shown).collect::<Vec<_>>().join(&by)))
        }
        ("sets.contains" | "sets.equivalent" | "sets.intersects", Some(other)) => {
            let other = other.items()?;
            if let Err(stop) = budget.spend(items.len().saturating_mul(other.len())) {
                return Some(Err(stop));
            }
            let all = |a: &[Val<'a>], b: &[Val<'a>]| b.iter().all(|x| a.iter().any(|y| y.equals(x)));
            Ok(Val::Bool(match name {
                "sets.contains" => all(&items, &other),
                "sets.equivalent" => all(&items, &other) && all(&other, &items),
                _ => items.iter().any(|x| other.iter().any(|y| y.equals(x))),
            }))
        }
        _ => return None,
    })
}
