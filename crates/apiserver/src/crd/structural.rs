//! Whether a schema is structural: its shape is spelled out once, and combinations only narrow values.

use landfall_api::field::{ErrorList, Path};

use super::schema::Schema;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// What keeps a schema from being structural, sorted.
pub fn validate(schema: &Schema, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    invariants(schema, Level::Root, path, &mut errors);
    complete(schema, path, &mut errors);
    let mut sorted: Vec<_> = errors.into_iter().collect();
    sorted.sort_by_key(ToString::to_string);
    let mut errors = ErrorList::new();
    sorted.into_iter().for_each(|error| errors.push(error));
    errors
}

fn invariants(schema: &Schema, level: Level, path: &Path<'_>, errors: &mut ErrorList) {
    if schema.ty == "array" && schema.items.is_none() {
        errors.required(&path.child("items"), "must be specified");
    }
    if let Some(items) = &schema.items {
        invariants(items, Level::Item, &path.child("items"), errors);
    }
    for (name, child) in &schema.properties {
        invariants(child, Level::Field, &path.child("properties").key(name), errors);
    }
    if schema.additional.is_some() {
        if level == Level::Root {
            errors.forbidden(&path.child("additionalProperties"), "must not be used at the root");
        }
        if let Some(child) = schema.additional_schema() {
            invariants(child, Level::Field, &path.child("additionalProperties"), errors);
        }
    }
    extensions(schema, path, errors);
    let skip = Skip { any_of: is_int_or_string(&schema.any_of), first_all_of: starts_int_or_string(schema) };
    value_rules(schema, skip, path, errors);
    own_type(schema, level, path, errors);
    metadata(schema, level, path, errors);
    if schema.embedded && !schema.preserves() && schema.properties.is_empty() {
        errors.required(
            &path.child("properties"),
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        );
    }
}

fn extensions(schema: &Schema, path: &Path<'_>, errors: &mut ErrorList) {
    let detail = "must be false if x-kubernetes-int-or-string is true";
    if schema.int_or_string && schema.preserves() {
        errors.invalid(&path.child("x-kubernetes-preserve-unknown-fields"), true, detail);
    }
    if schema.int_or_string && schema.embedded {
        errors.invalid(&path.child("x-kubernetes-embedded-resource"), true, detail);
    }
}

fn own_type(schema: &Schema, level: Level, path: &Path<'_>, errors: &mut ErrorList) {
    let ty = path.child("type");
    if schema.embedded && schema.ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        match schema.ty.as_str() {
            "" => errors.required(&ty, detail),
            other => errors.invalid(&ty, other, detail),
        }
    } else if schema.ty.is_empty() && !schema.int_or_string && !schema.preserves() {
        errors.required(
            &ty,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        );
    }
    if schema.embedded && schema.additional.is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.forbidden(&path.child("additionalProperties"), detail);
    }
    if level == Level::Root && !schema.ty.is_empty() && schema.ty != "object" {
        errors.invalid(&ty, schema.ty.as_str(), "must be object at the root");
    }
}

fn metadata(schema: &Schema, level: Level, path: &Path<'_>, errors: &mut ErrorList) {
    let checked = level == Level::Root || schema.embedded;
    let properties = path.child("properties");
    for name in ["kind", "apiVersion"] {
        if let Some(child) = schema.properties.get(name).filter(|child| checked && child.ty != "string") {
            errors.invalid(&properties.key(name).child("type"), child.ty.as_str(), "must be string");
        }
    }
    let Some(metadata) = schema.properties.get("metadata") else { return };
    let path = properties.key("metadata");
    if checked && metadata.ty != "object" {
        errors.invalid(&path.child("type"), metadata.ty.as_str(), "must be object");
    }
    if level == Level::Root && !names_only(metadata) {
        errors.forbidden(
            &path,
            "must not specify anything other than name and generateName, but metadata is implicitly specified",
        );
    }
}

/// `metadata` may restrict the name and the generateName, and nothing else.
fn names_only(metadata: &Schema) -> bool {
    let mut rest = metadata.clone();
    if rest.properties.keys().all(|name| matches!(name.as_str(), "name" | "generateName")) {
        rest.properties.clear();
    }
    rest.ty.clear();
    rest.default = None;
    is_bare(&rest)
}

/// Whether nothing at all is said. Patterns cannot be compared, so their text is.
fn is_bare(schema: &Schema) -> bool {
    format!("{schema:?}") == format!("{:?}", Schema::default())
}

/// `anyOf: [{type: integer}, {type: string}]`, the one combination that may name types.
fn is_int_or_string(any_of: &[Schema]) -> bool {
    let only = |schema: &Schema, ty: &str| {
        let mut rest = schema.clone();
        rest.ty.clear();
        schema.ty == ty && is_bare(&rest)
    };
    matches!(any_of, [first, second] if only(first, "integer") && only(second, "string"))
}

fn starts_int_or_string(schema: &Schema) -> bool {
    schema.all_of.first().is_some_and(|first| is_int_or_string(&first.any_of))
}

/// Which part of a combination is the exception for ints or strings.
#[derive(Clone, Copy, Default)]
struct Skip {
    any_of: bool,
    first_all_of: bool,
}

fn value_rules(schema: &Schema, skip: Skip, path: &Path<'_>, errors: &mut ErrorList) {
    if !skip.any_of {
        for (at, part) in schema.any_of.iter().enumerate() {
            nested(part, Skip::default(), &path.child("anyOf").index(at), errors);
        }
    }
    for (at, part) in schema.all_of.iter().enumerate() {
        let skip = Skip { any_of: skip.first_all_of && at == 0, first_all_of: false };
        nested(part, skip, &path.child("allOf").index(at), errors);
    }
    for (at, part) in schema.one_of.iter().enumerate() {
        nested(part, Skip::default(), &path.child("oneOf").index(at), errors);
    }
    if let Some(part) = &schema.not {
        nested(part, Skip::default(), &path.child("not"), errors);
    }
    if let Some(Err(why)) = &schema.regex {
        let detail = format!("must be a valid regular expression, but isn't: error parsing regexp: {why}");
        errors.invalid(&path.child("pattern"), schema.pattern.as_str(), detail);
    }
}

/// A part of a combination may say nothing about the shape.
fn nested(schema: &Schema, skip: Skip, path: &Path<'_>, errors: &mut ErrorList) {
    value_rules(schema, skip, path, errors);
    if let Some(items) = &schema.items {
        nested(items, Skip::default(), &path.child("items"), errors);
    }
    for (name, child) in &schema.properties {
        nested(child, Skip::default(), &path.child("properties").key(name), errors);
    }
    let preserve = schema.preserves();
    for (set, name, detail) in [
        (!schema.ty.is_empty(), "type", "must be empty to be structural"),
        (schema.additional.is_some(), "additionalProperties", "must be undefined to be structural"),
        (schema.default.is_some(), "default", "must be undefined to be structural"),
        (schema.titled, "title", "must be empty to be structural"),
        (schema.described, "description", "must be empty to be structural"),
        (schema.nullable, "nullable", "must be false to be structural"),
        (preserve, "x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        (schema.embedded, "x-kubernetes-embedded-resource", "must be false to be structural"),
        (schema.int_or_string, "x-kubernetes-int-or-string", "must be false to be structural"),
        (!schema.list_keys.is_empty(), "x-kubernetes-list-map-keys", "must be empty to be structural"),
        (schema.list_type.is_some(), "x-kubernetes-list-type", "must be undefined to be structural"),
        (schema.map_type.is_some(), "x-kubernetes-map-type", "must be undefined to be structural"),
        (!schema.rules.is_empty(), "x-kubernetes-validations", "must be empty to be structural"),
    ] {
        if set {
            errors.forbidden(&path.child(name), detail);
        }
    }
    if schema.properties.contains_key("metadata") {
        errors.forbidden(
            &path.child("properties").key("metadata"),
            "must not be specified in a nested context",
        );
    }
}

/// Every field and list that a combination at the root talks about must be spelled out outside of it. (Kubernetes does
/// not look at combinations further down.)
fn complete(schema: &Schema, path: &Path<'_>, errors: &mut ErrorList) {
    parts_covered(schema, schema, path, path, errors);
}

fn parts_covered(part: &Schema, shape: &Schema, at: &Path<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(not) = &part.not {
        covered(not, Some(shape), &at.child("not"), path, errors);
    }
    for (name, parts) in [("allOf", &part.all_of), ("anyOf", &part.any_of), ("oneOf", &part.one_of)] {
        for (index, part) in parts.iter().enumerate() {
            covered(part, Some(shape), &at.child(name).index(index), path, errors);
        }
    }
}

/// `at` is where the part stands, `path` where its shape should be.
fn covered(part: &Schema, shape: Option<&Schema>, at: &Path<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(shape) = shape else {
        errors.required(path, format!("because it is defined in {at}"));
        return;
    };
    parts_covered(part, shape, at, path, errors);
    if let Some(items) = &part.items {
        covered(items, shape.items.as_deref(), &at.child("items"), &path.child("items"), errors);
    }
    for (name, child) in &part.properties {
        let (at, path) = (at.child("properties"), path.child("properties"));
        covered(child, shape.properties.get(name), &at.key(name), &path.key(name), errors);
    }
}
