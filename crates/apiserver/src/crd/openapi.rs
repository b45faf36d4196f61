//! What is wrong with a definition's schema beyond its structure: what Kubernetes does not support, lists and maps,
//! defaults, and the rules in CEL.

use landfall_api::field::{ErrorList, ErrorType, Path};
use serde_json::Value;

use super::check::check;
use super::schema::{Additional, Schema};
use super::{cel, lists, prune};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// What the surroundings of a node forbid.
#[derive(Clone, Default)]
struct Around {
    /// Why defaults may not be set here.
    no_defaults: Option<String>,
    /// Inside of apiVersion, kind or metadata of an object.
    in_meta: bool,
    /// The nearest list or map whose parts cannot be found again in the old object.
    uncorrelated: Option<String>,
}

/// Unsupported fields, list types and keys, forbidden defaults, and the form of rules. `programs`: rules are compiled
/// and what is wrong with them is said too.
pub fn validate(schema: &Schema, path: &Path<'_>, programs: bool) -> ErrorList {
    let mut walk = Walk { errors: ErrorList::new(), rules: ErrorList::new(), programs };
    walk.node(schema, path, true, &Around::default());
    let mut errors = walk.errors;
    errors.extend(walk.rules);
    errors
}

struct Walk {
    errors: ErrorList,
    rules: ErrorList,
    programs: bool,
}

impl Walk {
    fn node(&mut self, schema: &Schema, path: &Path<'_>, root: bool, around: &Around) {
        let before = self.errors.len();
        self.plain(schema, path, around);
        self.additional(schema, path, around);
        for (name, child) in &schema.properties {
            let mut inside = around.clone();
            if (root || schema.embedded) && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
                inside.in_meta = true;
                if root {
                    inside.no_defaults = Some(format!("in top-level {name}"));
                }
            }
            self.node(child, &path.child("properties").key(name), false, &inside);
        }
        self.parts(schema, path, around);
        if let Some(items) = &schema.items {
            let mut inside = around.clone();
            if schema.list_type.as_deref() != Some("map") {
                inside.uncorrelated.get_or_insert_with(|| path.to_string());
            }
            self.node(items, &path.child("items"), false, &inside);
        }
        if schema.preserve == Some(false) {
            let path = path.child("x-kubernetes-preserve-unknown-fields");
            self.errors.invalid(&path, false, "must be true or undefined");
        }
        map_type(schema, path, &mut self.errors);
        list_type(schema, path, &mut self.errors);
        list_keys(schema, path, &mut self.errors);
        map_list_items(schema, path, &mut self.errors);
        self.rules(schema, path, around, (before, root));
    }

    fn plain(&mut self, schema: &Schema, path: &Path<'_>, around: &Around) {
        let errors = &mut self.errors;
        if !schema.ty.is_empty() && !TYPES.contains(&schema.ty.as_str()) {
            errors.not_supported(&path.child("type"), schema.ty.as_str(), &TYPES);
        }
        if let (Some(why), true) = (&around.no_defaults, schema.default.is_some()) {
            errors.forbidden(&path.child("default"), format!("must not be set {why}"));
        }
        for name in &schema.unsupported {
            match *name {
                "$schema" => {}
                "items" => {
                    errors.forbidden(&path.child("items"), "items must be a schema object and not an array");
                }
                name => errors.forbidden(&path.child(name), format!("{name} is not supported")),
            }
        }
        if schema.too_deep {
            errors.forbidden(path, "schemas may not be nested so deep");
        }
        if schema.ty == "null" {
            let detail = "type cannot be set to null, use nullable as an alternative";
            errors.forbidden(&path.child("type"), detail);
        }
        if around.in_meta && schema.embedded {
            let path = path.child("x-kubernetes-embedded-resource");
            errors.forbidden(&path, "must not be used inside of resource meta");
        }
        if schema.unique_items {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            errors.forbidden(&path.child("uniqueItems"), detail);
        }
    }

    fn additional(&mut self, schema: &Schema, path: &Path<'_>, around: &Around) {
        let Some(additional) = &schema.additional else { return };
        let below = path.child("additionalProperties");
        if !schema.properties.is_empty() && !matches!(additional, Additional::Allowed(true)) {
            let detail = "additionalProperties and properties are mutual exclusive";
            self.errors.forbidden(&below, detail);
        }
        if let Additional::Schema(child) = additional {
            let mut inside = around.clone();
            if around.in_meta {
                inside.no_defaults = Some("inside additionalProperties applying to object metadata".into());
            }
            self.node(child, &below, false, &inside);
        }
    }

    fn parts(&mut self, schema: &Schema, path: &Path<'_>, around: &Around) {
        // Rules inside combinations are refused as not structural, so they are not compiled.
        let programs = std::mem::replace(&mut self.programs, false);
        if let Some(not) = &schema.not {
            self.node(not, &path.child("not"), false, around);
        }
        for (name, parts) in [("allOf", &schema.all_of), ("oneOf", &schema.one_of), ("anyOf", &schema.any_of)]
        {
            for (at, part) in parts.iter().enumerate() {
                self.node(part, &path.child(name).index(at), false, around);
            }
        }
        self.programs = programs;
    }

    fn rules(&mut self, schema: &Schema, path: &Path<'_>, around: &Around, (before, root): (usize, bool)) {
        let list = path.child("x-kubernetes-validations");
        for (at, rule) in schema.rules.iter().enumerate() {
            let path = list.index(at);
            rule_form(schema, rule, &path, &mut self.errors);
        }
        if !self.programs || self.errors.len() > before {
            return;
        }
        for (at, rule) in schema.rules.iter().enumerate() {
            let path = list.index(at);
            let found = cel::check_rule(schema, rule, root);
            for (field, detail) in found.errors {
                let detail = format!("{}: {detail}", rule.go_text());
                self.rules.add(ErrorType::Invalid, &path.child(field), None, detail);
            }
            match (&around.uncorrelated, found.uses_old_self) {
                (Some(within), true) => self.rules.invalid(
                    &path.child("rule"),
                    rule.rule.as_str(),
                    format!(
                        "oldSelf cannot be used on the uncorrelatable portion of the schema within {within}"
                    ),
                ),
                (_, false) => {
                    if let Some(optional) = rule.optional_old_self {
                        let detail = "may not be set if oldSelf is not used in rule";
                        self.rules.invalid(&path.child("optionalOldSelf"), optional, detail);
                    }
                }
                (None, true) => {}
            }
        }
    }
}

fn map_type(schema: &Schema, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(map_type) = &schema.map_type else { return };
    let detail = "must be object if x-kubernetes-map-type is specified";
    match schema.ty.as_str() {
        "object" => {}
        "" => errors.required(&path.child("type"), detail),
        other => errors.invalid(&path.child("type"), other, detail),
    }
    if !matches!(map_type.as_str(), "atomic" | "granular") {
        let path = path.child("x-kubernetes-map-type");
        errors.not_supported(&path, map_type.as_str(), &["atomic", "granular"]);
    }
}

fn list_type(schema: &Schema, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(list_type) = schema.list_type.as_deref() else { return };
    let detail = "must be array if x-kubernetes-list-type is specified";
    match (schema.ty.as_str(), list_type, &schema.items) {
        ("array", "set", Some(items)) => set_items(items, &path.child("items"), errors),
        ("array", ..) => {}
        ("", ..) => errors.required(&path.child("type"), detail),
        (other, ..) => errors.invalid(&path.child("type"), other, detail),
    }
    if !matches!(list_type, "atomic" | "set" | "map") {
        let detail = "supported values: \"atomic\", \"set\", \"map\"";
        let path = path.child("x-kubernetes-list-type");
        errors.add(ErrorType::NotSupported, &path, Some(list_type.into()), detail);
    }
}

fn set_items(items: &Schema, path: &Path<'_>, errors: &mut ErrorList) {
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let shown = items.list_type.as_deref().map_or(Value::Null, Into::into);
    match items.ty.as_str() {
        "array" if items.list_type.as_deref().is_some_and(|ty| ty != "atomic") => {
            errors.invalid(&path.child("x-kubernetes-list-type"), shown, detail);
        }
        "object" if items.map_type.as_deref() != Some("atomic") => {
            errors.invalid(&path.child("x-kubernetes-map-type"), shown, detail);
        }
        _ => {}
    }
}

fn list_keys(schema: &Schema, path: &Path<'_>, errors: &mut ErrorList) {
    let (ty, keys) = (path.child("x-kubernetes-list-type"), path.child("x-kubernetes-list-map-keys"));
    if !schema.list_keys.is_empty() {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match schema.list_type.as_deref() {
            None => errors.required(&ty, detail),
            Some("map") => {}
            Some(other) => errors.invalid(&ty, other, detail),
        }
    }
    if schema.list_type.as_deref() != Some("map") {
        return;
    }
    if schema.list_keys.is_empty() {
        errors.required(&keys, "must not be empty if x-kubernetes-list-type is map");
    }
    let path = path.child("items");
    let Some(items) = &schema.items else {
        if !schema.unsupported.contains(&"items") {
            errors.required(&path, "must have a schema if x-kubernetes-list-type is map");
        }
        return;
    };
    if items.ty != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.invalid(&path.child("type"), items.ty.as_str(), detail);
        return;
    }
    let shown: Value = schema.list_keys.clone().into();
    for (at, key) in schema.list_keys.iter().enumerate() {
        match items.properties.get(key) {
            None => errors.invalid(&keys, shown.clone(), "entries must all be names of item properties"),
            Some(property) if matches!(property.ty.as_str(), "array" | "object") => errors.invalid(
                &path.child("properties").key(key).child("type"),
                items.ty.as_str(),
                "must be a scalar type if parent array's x-kubernetes-list-type is map",
            ),
            Some(_) => {}
        }
        if schema.list_keys.iter().take(at).any(|earlier| earlier == key) {
            errors.invalid(&keys, shown.clone(), "must not contain duplicate entries");
        }
    }
}

fn map_list_items(schema: &Schema, path: &Path<'_>, errors: &mut ErrorList) {
    let (Some(list_type @ ("set" | "map")), Some(items)) = (schema.list_type.as_deref(), &schema.items)
    else {
        return;
    };
    let path = path.child("items");
    if items.nullable {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.forbidden(&path.child("nullable"), detail);
    }
    if list_type == "set" {
        return;
    }
    for key in &schema.list_keys {
        let Some(property) = items.properties.get(key) else { continue };
        let properties = path.child("properties");
        let path = properties.key(key);
        if !items.required.contains(key) && property.default.is_none() {
            errors.required(
                &path.child("default"),
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            );
        }
        if property.nullable {
            errors.forbidden(
                &path.child("nullable"),
                "this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            );
        }
    }
}

fn rule_form(schema: &Schema, rule: &super::schema::RuleText, path: &Path<'_>, errors: &mut ErrorList) {
    let lines = |text: &str| text.contains(['\n', '\r']);
    let (text, message) = (rule.rule.trim(), rule.message.trim());
    let at = path.child("message");
    if text.is_empty() {
        errors.required(&path.child("rule"), "rule is not specified");
    } else if !rule.message.is_empty() && message.is_empty() {
        errors.invalid(&at, rule.message.as_str(), "must be non-empty if specified");
    } else if lines(message) {
        errors.invalid(&at, rule.message.as_str(), "must not contain line breaks");
    } else if lines(text) && message.is_empty() {
        errors.required(&at, "message must be specified if rule contains line breaks");
    }
    if !rule.message_expression.is_empty() && rule.message_expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.required(&path.child("messageExpression"), detail);
    }
    if !rule.reason.is_empty() && !REASONS.contains(&rule.reason.as_str()) {
        errors.not_supported(&path.child("reason"), rule.reason.as_str(), &REASONS);
    }
    let at = path.child("fieldPath");
    if rule.field_path.is_empty() {
        return;
    }
    if rule.field_path.trim().is_empty() {
        errors.invalid(&at, rule.field_path.as_str(), "must be non-empty if specified");
    }
    if lines(&rule.field_path) {
        errors.invalid(&at, rule.field_path.as_str(), "must not contain line breaks");
    }
    if field_path(&rule.field_path, schema, true).is_err() {
        errors.invalid(&at, rule.field_path.as_str(), "must be a valid path");
    }
}

/// Follows a path such as `.spec.x` or `.m['k']` through a schema; gives the path as errors show it, and where it ends.
pub fn field_path<'a>(
    text: &str,
    schema: &'a Schema,
    brackets: bool,
) -> Result<(String, Option<&'a Schema>), String> {
    let (mut shown, mut at) = (String::new(), Some(schema));
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let name;
        (name, rest) = match first {
            '[' if !brackets => return Err("array notation is not allowed".into()),
            '[' => quoted(rest)?,
            '.' => {
                let after = rest.get(1..).unwrap_or("");
                let end = after.find(['.', '[', ']']).unwrap_or(after.len());
                if after.is_empty() {
                    return Err("unexpected end of JSON path".into());
                }
                (after.get(..end).unwrap_or("").to_owned(), after.get(end..).unwrap_or(""))
            }
            _ => {
                let end = rest.find(['.', '[', ']']).filter(|end| *end > 0).unwrap_or(rest.len());
                return Err(format!("expected [ or . but got: {}", rest.get(..end).unwrap_or(rest)));
            }
        };
        let here = at.filter(|s| !s.properties.is_empty() || s.additional.is_some());
        let here = here.ok_or("does not refer to a valid field")?;
        if here.properties.is_empty() {
            shown.push_str(&format!("[{name}]"));
            at = here.additional_schema();
        } else {
            at = Some(here.properties.get(&name).ok_or("does not refer to a valid field")?);
            shown.push_str(if shown.is_empty() { "" } else { "." });
            shown.push_str(&name);
        }
    }
    Ok((shown, at))
}

/// `['name']` at the start of a path.
fn quoted(rest: &str) -> Result<(String, &str), String> {
    let inner = rest.strip_prefix("['").ok_or("expected single quoted string")?;
    let mut name = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            '\'' => {
                let after = inner.get(at + 1..).unwrap_or("");
                let after = after.strip_prefix(']').ok_or("unexpected end of JSON path")?;
                return Ok((name, after));
            }
            c => name.push(c),
        }
    }
    Err("unexpected end of JSON path".into())
}

/// Default values must themselves be right.
pub fn validate_defaults(schema: &Schema, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    defaults(schema, path, &mut errors);
    errors
}

fn defaults(schema: &Schema, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(value) = &schema.default {
        let at = path.child("default");
        if !prune::is_pruned(value, schema) {
            errors.invalid(&at, value.clone(), "must not have unknown fields");
        }
        let mut found = ErrorList::new();
        lists::embedded(schema, value, &at, &mut found);
        if found.is_empty() {
            found = check(schema, value, None, &at.to_string());
        }
        if found.is_empty() && cel::has_rules(schema) {
            found = cel::validate_default(schema, value, &at.to_string());
        }
        errors.extend(found);
    }
    if let Some(items) = &schema.items {
        defaults(items, &path.child("items"), errors);
    }
    for (name, child) in &schema.properties {
        defaults(child, &path.child("properties").key(name), errors);
    }
}
