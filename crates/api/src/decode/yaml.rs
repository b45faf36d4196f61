//! YAML into a `Value`, as Kubernetes' YAML library reads it: version 1.1 scalars, merge keys, the first document.
//!
//! The parser's events are pulled one by one, so that nesting is bounded here and not by the machine's stack.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Tag};
use serde_json::{Map, Number, Value};

use super::{DEPTH_MAX, DUPLICATES_MAX, DecodeError, Decoded, Duplicate, json};

/// Values that aliases may copy in one body: a small text must not become a large object.
const ALIASED_MAX: usize = 100_000;

pub(super) fn parse(body: &[u8]) -> Result<Decoded, DecodeError> {
    let text =
        std::str::from_utf8(body).map_err(|_| DecodeError::Yaml("invalid UTF-8 in the body".into()))?;
    if let Some(decoded) = as_json(text) {
        return Ok(decoded);
    }
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| scan_error(&error))?;
        if event == Event::DocumentEnd {
            break;
        }
        builder.event(event, span.start.line()).map_err(DecodeError::Yaml)?;
    }
    Ok(Decoded { value: builder.root.unwrap_or(Value::Null), duplicates: builder.duplicates })
}

/// The same of a body that is JSON, as most of those are that programs send: it is read without YAML's own parser. Nothing, where
/// YAML reads it in another way: fractions, and keys that are there twice.
fn as_json(text: &str) -> Option<Decoded> {
    if !text.trim_start().starts_with('{') {
        return None;
    }
    let decoded = json::read(text).ok()?;
    (decoded.duplicates.is_empty() && !fractions(&decoded.value)).then_some(decoded)
}

fn fractions(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(fractions),
        Value::Object(map) => map.values().any(fractions),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

fn scan_error(error: &ScanError) -> DecodeError {
    DecodeError::Yaml(format!("line {}: {}", error.marker().line(), error.info()))
}

/// A list or map that is not yet closed.
enum Open {
    List(Vec<Value>),
    Map { map: Map<String, Value>, key: Option<String>, merge: Vec<Value> },
}

struct Frame {
    open: Open,
    anchor: usize,
}

#[derive(Default)]
struct Builder {
    root: Option<Value>,
    stack: Vec<Frame>,
    anchors: HashMap<usize, (Value, usize)>,
    aliased: usize,
    duplicates: Vec<Duplicate>,
}

/// The key under which maps are merged into this one; no plain key can be this.
const MERGE: &str = "<<";

impl Builder {
    fn event(&mut self, event: Event<'_>, line: usize) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if self.wants_key() {
                    return self.key(&text, style, tag.as_deref(), anchor, line);
                }
                let value = scalar(&text, style, tag.as_deref())?;
                self.value(value, anchor)
            }
            Event::Alias(anchor) => {
                let (value, size) = self.anchors.get(&anchor).cloned().ok_or("unknown anchor")?;
                self.aliased = self.aliased.saturating_add(size);
                if self.aliased > ALIASED_MAX {
                    return Err("document contains excessive aliasing".into());
                }
                match (self.wants_key(), &value) {
                    (true, Value::String(text)) => self.key(text, ScalarStyle::DoubleQuoted, None, 0, line),
                    (true, _) => Err("unsupported map key".into()),
                    (false, _) => self.value(value, 0),
                }
            }
            Event::SequenceStart(anchor, _) => self.open(Open::List(Vec::new()), anchor),
            Event::MappingStart(anchor, _) => {
                self.open(Open::Map { map: Map::new(), key: None, merge: Vec::new() }, anchor)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            _ => Ok(()),
        }
    }

    fn wants_key(&self) -> bool {
        matches!(self.stack.last(), Some(Frame { open: Open::Map { key: None, .. }, .. }))
    }

    fn open(&mut self, open: Open, anchor: usize) -> Result<(), String> {
        if self.wants_key() {
            return Err("unsupported map key".into());
        }
        if self.stack.len() >= DEPTH_MAX {
            return Err("exceeded max depth".into());
        }
        self.stack.push(Frame { open, anchor });
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        let Frame { open, anchor } = self.stack.pop().ok_or("unbalanced document")?;
        let value = match open {
            Open::List(items) => Value::Array(items),
            Open::Map { mut map, merge, .. } => {
                for from in merge {
                    merge_into(&mut map, from)?;
                }
                Value::Object(map)
            }
        };
        self.value(value, anchor)
    }

    fn key(
        &mut self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
        anchor: usize,
        line: usize,
    ) -> Result<(), String> {
        let plain = style == ScalarStyle::Plain;
        let name = match scalar(text, style, tag)? {
            _ if plain && text == MERGE => MERGE.to_owned(),
            Value::String(name) => name,
            Value::Bool(truth) => truth.to_string(),
            Value::Number(number) => number.to_string(),
            _ => return Err("unsupported map key".into()),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, (Value::String(name.clone()), 1));
        }
        if let Some(Frame { open: Open::Map { map, key, .. }, .. }) = self.stack.last_mut() {
            if map.contains_key(&name) && self.duplicates.len() < DUPLICATES_MAX {
                self.duplicates.push(Duplicate::Yaml(line, name.clone()));
            }
            *key = Some(name);
        }
        Ok(())
    }

    fn value(&mut self, value: Value, anchor: usize) -> Result<(), String> {
        if anchor != 0 {
            let size = size(&value);
            self.anchors.insert(anchor, (value.clone(), size));
        }
        match self.stack.last_mut().map(|frame| &mut frame.open) {
            None => self.root = Some(value),
            Some(Open::List(items)) => items.push(value),
            Some(Open::Map { map, key, merge }) => match key.take() {
                Some(name) if name == MERGE => merge.push(value),
                Some(name) => {
                    map.insert(name, value);
                }
                None => return Err("unsupported map key".into()),
            },
        }
        Ok(())
    }
}

/// Merged maps give what the map itself does not say.
fn merge_into(map: &mut Map<String, Value>, from: Value) -> Result<(), String> {
    match from {
        Value::Object(from) => {
            for (key, value) in from {
                map.entry(key).or_insert(value);
            }
            Ok(())
        }
        Value::Array(items) => items.into_iter().try_for_each(|item| match item {
            Value::Object(_) => merge_into(map, item),
            _ => Err("map merge requires map or sequence of maps as the value".into()),
        }),
        _ => Err("map merge requires map or sequence of maps as the value".into()),
    }
}

/// How many values a value is made of.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let core = tag.filter(|tag| tag.is_yaml_core_schema()).map(|tag| tag.suffix.as_str());
    match (core, style) {
        (Some("str" | "binary"), _) => Ok(Value::String(text.to_owned())),
        (Some(_), _) | (None, ScalarStyle::Plain) => plain(text),
        _ => Ok(Value::String(text.to_owned())),
    }
}

fn plain(text: &str) -> Result<Value, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => return Err("json: unsupported value: NaN".into()),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Err("json: unsupported value: +Inf".into());
        }
        "-.inf" | "-.Inf" | "-.INF" => return Err("json: unsupported value: -Inf".into()),
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    })
}

/// Integers in Go's notations (`0x1f`, `0o17`, `017`, `0b1`, `1_000`), then decimal fractions.
fn number(text: &str) -> Option<Number> {
    text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')).then_some(())?;
    let clean = text.replace('_', "");
    let (negative, digits) = match clean.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, clean.strip_prefix('+').unwrap_or(&clean)),
    };
    if let Some(magnitude) = integer(digits) {
        return if negative {
            0i64.checked_sub_unsigned(magnitude).map(Number::from)
        } else {
            Some(magnitude.into())
        };
    }
    let style = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    let float: f64 = clean.parse().ok().filter(|_| clean.chars().all(style))?;
    let mut number = Number::from_f64(float)?;
    crate::schema::write_whole(&mut number);
    Some(number)
}

fn integer(digits: &str) -> Option<u64> {
    let prefixes = [("0x", 16), ("0X", 16), ("0o", 8), ("0O", 8), ("0b", 2), ("0B", 2), ("0", 8)];
    let (radix, rest) = prefixes
        .iter()
        .find_map(|(prefix, radix)| {
            Some((*radix, digits.strip_prefix(prefix).filter(|rest| !rest.is_empty())?))
        })
        .unwrap_or((10, digits));
    rest.chars().all(|c| c.is_digit(radix)).then(|| u64::from_str_radix(rest, radix).ok())?
}
