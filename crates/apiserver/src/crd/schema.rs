//! The OpenAPI v3 schema of one version of a custom resource, read once from its definition.
//!
//! Reading is lenient: what upstream forbids is kept as a mark, so that [`super::structural`] can refuse it with
//! the right sentence. A schema that passed those checks is what upstream calls structural.

use std::collections::BTreeMap;
use std::sync::Arc;

use regex::Regex;
use serde_json::Value;

/// How deep schemas may nest; JSON bodies are limited to about as much.
pub const DEPTH_MAX: usize = 128;
/// The compiled size of one pattern, in bytes; larger ones are refused when the definition is made.
const PATTERN_SIZE_MAX: usize = 1 << 20;

/// One node of a schema.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// `type`, or empty.
    pub ty: String,
    /// `format`, or empty.
    pub format: String,
    /// Whether `null` is allowed.
    pub nullable: bool,
    /// The default, never null.
    pub default: Option<Value>,
    /// `title` is set.
    pub titled: bool,
    /// `description` is set.
    pub described: bool,
    /// `maximum` and whether it is excluded.
    pub maximum: Option<f64>,
    /// See `maximum`.
    pub exclusive_maximum: bool,
    /// `minimum` and whether it is excluded.
    pub minimum: Option<f64>,
    /// See `minimum`.
    pub exclusive_minimum: bool,
    /// `multipleOf`.
    pub multiple_of: Option<f64>,
    /// `maxLength`, in characters.
    pub max_length: Option<i64>,
    /// `minLength`, in characters.
    pub min_length: Option<i64>,
    /// `maxItems`.
    pub max_items: Option<i64>,
    /// `minItems`.
    pub min_items: Option<i64>,
    /// `maxProperties`.
    pub max_properties: Option<i64>,
    /// `minProperties`.
    pub min_properties: Option<i64>,
    /// `uniqueItems`.
    pub unique_items: bool,
    /// `pattern`, or empty, and what it compiles to.
    pub pattern: String,
    /// The compiled pattern, or why it does not compile.
    pub regex: Option<Result<Regex, String>>,
    /// `enum`.
    pub allowed: Vec<Value>,
    /// `required`.
    pub required: Vec<String>,
    /// `properties`, by name.
    pub properties: BTreeMap<String, Self>,
    /// `additionalProperties`.
    pub additional: Option<Additional>,
    /// `items`, when it is one schema.
    pub items: Option<Box<Self>>,
    /// `allOf`.
    pub all_of: Vec<Self>,
    /// `anyOf`.
    pub any_of: Vec<Self>,
    /// `oneOf`.
    pub one_of: Vec<Self>,
    /// `not`.
    pub not: Option<Box<Self>>,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve: Option<bool>,
    /// `x-kubernetes-embedded-resource`.
    pub embedded: bool,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// `x-kubernetes-list-type`.
    pub list_type: Option<String>,
    /// `x-kubernetes-list-map-keys`.
    pub list_keys: Vec<String>,
    /// `x-kubernetes-map-type`.
    pub map_type: Option<String>,
    /// `x-kubernetes-validations`.
    pub rules: Vec<RuleText>,
    /// The rules, compiled; filled by [`super::cel`] when the schema is taken into use.
    pub programs: Arc<[super::cel::Program]>,
    /// Fields that are set but not supported, such as `$ref`; for `items`, that it is a list of schemas.
    pub unsupported: Vec<&'static str>,
    /// Nested deeper than [`DEPTH_MAX`]; nothing below was read.
    pub too_deep: bool,
}

/// `additionalProperties`.
#[derive(Clone, Debug)]
pub enum Additional {
    /// A plain yes or no.
    Allowed(bool),
    /// A schema that all values follow.
    Schema(Box<Schema>),
}

/// One entry of `x-kubernetes-validations`, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleText {
    /// The expression.
    pub rule: String,
    /// What to say when it does not hold.
    pub message: String,
    /// An expression that makes what to say.
    pub message_expression: String,
    /// The class of the error, or empty.
    pub reason: String,
    /// The field to blame, below the one the rule stands on.
    pub field_path: String,
    /// Whether `oldSelf` is an optional.
    pub optional_old_self: Option<bool>,
}

impl Schema {
    /// Reads `openAPIV3Schema`.
    pub fn read(value: &Value) -> Self {
        Self::read_at(value, 0)
    }

    /// The schema of values that are not named in `properties`.
    pub fn additional_schema(&self) -> Option<&Self> {
        match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        }
    }

    /// Whether unknown fields are kept.
    pub fn preserves(&self) -> bool {
        self.preserve == Some(true)
    }

    /// The schema of one field, named or not.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or_else(|| self.additional_schema())
    }

    /// Calls `see` on this node and on all below it, until it says true.
    pub fn any(&self, see: &mut dyn FnMut(&Self) -> bool) -> bool {
        see(self) || self.below().into_iter().any(|node| node.any(see))
    }

    fn below(&self) -> Vec<&Self> {
        let mut nodes: Vec<&Self> = Vec::new();
        nodes.extend(self.items.as_deref());
        nodes.extend(self.all_of.iter().chain(&self.any_of).chain(&self.one_of));
        nodes.extend(self.not.as_deref());
        nodes.extend(self.properties.values());
        nodes.extend(self.additional_schema());
        nodes
    }

    fn read_at(value: &Value, depth: usize) -> Self {
        if depth > DEPTH_MAX {
            return Self { too_deep: true, ..Self::default() };
        }
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
        let flag = |key: &str| value.get(key).and_then(Value::as_bool).unwrap_or(false);
        let number = |key: &str| value.get(key).and_then(Value::as_f64);
        let count = |key: &str| value.get(key).and_then(Value::as_i64);
        let mut schema = Self {
            ty: text("type"),
            format: text("format"),
            nullable: flag("nullable"),
            default: value.get("default").filter(|d| !d.is_null()).cloned(),
            titled: !text("title").is_empty(),
            described: !text("description").is_empty(),
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            unique_items: flag("uniqueItems"),
            pattern: text("pattern"),
            allowed: list(value, "enum").to_vec(),
            required: texts(value, "required"),
            preserve: value.get("x-kubernetes-preserve-unknown-fields").and_then(Value::as_bool),
            embedded: flag("x-kubernetes-embedded-resource"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            list_type: value.get("x-kubernetes-list-type").and_then(Value::as_str).map(Into::into),
            list_keys: texts(value, "x-kubernetes-list-map-keys"),
            map_type: value.get("x-kubernetes-map-type").and_then(Value::as_str).map(Into::into),
            rules: list(value, "x-kubernetes-validations").iter().map(RuleText::read).collect(),
            unsupported: unsupported(value),
            ..Self::default()
        };
        schema.regex = (!schema.pattern.is_empty()).then(|| compile(&schema.pattern));
        schema.read_below(value, depth + 1);
        schema
    }

    fn read_below(&mut self, value: &Value, depth: usize) {
        let all = |key: &str| list(value, key).iter().map(|v| Self::read_at(v, depth)).collect::<Vec<_>>();
        (self.all_of, self.any_of, self.one_of) = (all("allOf"), all("anyOf"), all("oneOf"));
        self.not = value.get("not").filter(|v| v.is_object()).map(|v| Box::new(Self::read_at(v, depth)));
        self.items = value.get("items").filter(|v| v.is_object()).map(|v| Box::new(Self::read_at(v, depth)));
        self.additional = match value.get("additionalProperties") {
            Some(Value::Bool(allowed)) => Some(Additional::Allowed(*allowed)),
            Some(v @ Value::Object(_)) => Some(Additional::Schema(Box::new(Self::read_at(v, depth)))),
            _ => None,
        };
        if let Some(Value::Object(properties)) = value.get("properties") {
            self.properties =
                properties.iter().map(|(name, v)| (name.clone(), Self::read_at(v, depth))).collect();
        }
    }
}

impl RuleText {
    fn read(value: &Value) -> Self {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
        Self {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old_self: value.get("optionalOldSelf").and_then(Value::as_bool),
        }
    }

    /// As Kubernetes shows a rule inside an error.
    pub fn go_text(&self) -> String {
        let quoted = go_quoted;
        let reason = if self.reason.is_empty() { "null".into() } else { quoted(&self.reason) };
        let optional = self.optional_old_self.map_or_else(|| "null".into(), |o| o.to_string());
        format!(
            "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{reason},\"FieldPath\":{},\"OptionalOldSelf\":{optional}}}",
            quoted(&self.rule),
            quoted(&self.message),
            quoted(&self.message_expression),
            quoted(&self.field_path),
        )
    }
}

/// A text as Go writes it in JSON, safe to stand in HTML.
pub fn go_quoted(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// A list inside a value; empty when it is absent or something else.
pub fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The texts of a list inside a value.
pub fn texts(value: &Value, key: &str) -> Vec<String> {
    list(value, key).iter().filter_map(Value::as_str).map(Into::into).collect()
}

/// A pattern in Go's dialect. Both are linear-time engines of one family; what differs is `\z` spelled alike and
/// `\d`, `\w`, `\s`, `\b`, which Go reads as ASCII.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let rust = ascii_classes(pattern);
    regex::RegexBuilder::new(&rust)
        .size_limit(PATTERN_SIZE_MAX)
        .build()
        .map_err(|e| e.to_string().lines().last().unwrap_or("error").trim().to_owned())
}

/// Rewrites Perl classes to their ASCII meaning, inside and outside of brackets.
fn ascii_classes(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match (chars.next(), in_class) {
                (Some('d'), _) => out.push_str("[0-9]"),
                (Some('w'), _) => out.push_str("[0-9A-Za-z_]"),
                (Some('s'), _) => out.push_str("[\\t\\n\\f\\r ]"),
                (Some('D'), _) => out.push_str("[^0-9]"),
                (Some('W'), _) => out.push_str("[^0-9A-Za-z_]"),
                (Some('S'), _) => out.push_str("[^\\t\\n\\f\\r ]"),
                (Some('b'), false) => out.push_str("(?-u:\\b)"),
                (Some('Q'), false) => {
                    let rest: String = chars.by_ref().collect();
                    let (quoted, after) = rest.split_once("\\E").unwrap_or((&rest, ""));
                    out.push_str(&regex::escape(quoted));
                    out.push_str(&ascii_classes(after));
                }
                (Some(other), _) => out.extend(['\\', other]),
                (None, _) => out.push('\\'),
            },
            // Go reads these as plain characters inside brackets; this engine has set operations there.
            '[' if in_class && !chars.as_str().starts_with(':') => out.push_str("\\["),
            '[' => {
                out.push(c);
                if !in_class {
                    in_class = true;
                    open_class(&mut chars, &mut out);
                } else if let Some((name, _)) = chars.as_str().split_once(":]") {
                    let taken = name.chars().count() + 2;
                    out.extend(chars.by_ref().take(taken));
                }
            }
            ']' if in_class => {
                in_class = false;
                out.push(c);
            }
            '&' | '~' if in_class => out.extend(['\\', c]),
            '-' if in_class && chars.as_str().starts_with('-') => out.push_str("\\-"),
            other => out.push(other),
        }
    }
    out
}

/// After `[`: a leading `^`, and a `]` that stands first and is therefore meant literally.
fn open_class(chars: &mut std::str::Chars<'_>, out: &mut String) {
    if chars.as_str().starts_with('^') {
        out.extend(chars.next());
    }
    if chars.as_str().starts_with(']') {
        chars.next();
        out.push_str("\\]");
    }
}

fn unsupported(value: &Value) -> Vec<&'static str> {
    let set = |key: &str| match value.get(key) {
        None | Some(Value::Null) => false,
        Some(Value::String(s)) => !s.is_empty(),
        Some(Value::Object(m)) => !m.is_empty() || key == "additionalItems" || key == "dependencies",
        Some(Value::Array(a)) => !a.is_empty(),
        Some(_) => true,
    };
    let mut found = Vec::new();
    for key in
        ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"]
    {
        if set(key) {
            found.push(key);
        }
    }
    if value.get("items").is_some_and(Value::is_array) {
        found.push("items");
    }
    found
}
