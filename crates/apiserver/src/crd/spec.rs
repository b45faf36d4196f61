//! What is wrong with the `spec` of a definition.

use landfall_api::field::{ErrorList, ErrorType, Path};
use landfall_api::names;
use serde_json::Value;

use super::schema::{Schema, list};
use super::{cel, flag, go_text, openapi, structural, text};

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
/// Fields that the root of a schema may have beside a status subresource, in Go's spelling.
const AT_ROOT: &str = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled";
const NOT_AT_ROOT: [&str; 22] = [
    "id",
    "$schema",
    "$ref",
    "nullable",
    "default",
    "enum",
    "maxProperties",
    "minProperties",
    "allOf",
    "oneOf",
    "anyOf",
    "not",
    "additionalProperties",
    "patternProperties",
    "dependencies",
    "additionalItems",
    "definitions",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
];
const SELECTABLE_MAX: usize = 8;

/// Checks a whole `spec`.
pub fn validate(spec: &Value, errors: &mut ErrorList) {
    Definition { spec, errors }.validate();
}

/// What is wrong with the names of a definition, wanted or accepted.
pub fn validate_names(names: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    for key in ["plural", "singular"] {
        label(text(names, key), &path.child(key), errors);
    }
    for key in ["kind", "listKind"] {
        let name = text(names, key);
        let wrong = names::dns1035_label(&name.to_lowercase());
        if !name.is_empty() && !wrong.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
            errors.invalid(&path.child(key), name, detail);
        }
    }
    for (at, name) in list(names, "shortNames").iter().enumerate() {
        required_label(name.as_str().unwrap_or(""), &path.child("shortNames").index(at), errors);
    }
    let kind = text(names, "kind");
    if !kind.is_empty() && kind == text(names, "listKind") {
        errors.invalid(&path.child("listKind"), kind, "kind and listKind may not be the same");
    }
    for (at, name) in list(names, "categories").iter().enumerate() {
        required_label(name.as_str().unwrap_or(""), &path.child("categories").index(at), errors);
    }
}

fn label(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if !name.is_empty() {
        required_label(name, path, errors);
    }
}

fn required_label(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let wrong = names::dns1035_label(name);
    if !wrong.is_empty() {
        errors.invalid(path, name, wrong.join(","));
    }
}

struct Definition<'a> {
    spec: &'a Value,
    errors: &'a mut ErrorList,
}

/// What versions may share; shared parts are checked once, at the top.
const SHARED: [(&str, &str); 4] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

impl Definition<'_> {
    fn validate(&mut self) {
        let path = Path::new("spec");
        let spec = self.spec;
        let versions = list(spec, "versions");
        self.group_and_scope(&path);
        for (at, version) in versions.iter().enumerate() {
            if !version.pointer("/schema/openAPIV3Schema").is_some_and(Value::is_object) {
                let path = path.child("versions");
                let path = path.index(at);
                let path = path.child("schema");
                self.errors.required(&path.child("openAPIV3Schema"), "");
            }
        }
        let shared = |key: &str| {
            let of = |v: &Value| {
                v.get(key).filter(|v| !v.is_null() && v.as_array().is_none_or(|a| !a.is_empty())).cloned()
            };
            let first = versions.first().and_then(of);
            versions.iter().all(|v| of(v) == first)
        };
        let shared = SHARED.map(|(key, _)| shared(key));
        for (at, version) in versions.iter().enumerate() {
            let path = path.child("versions");
            let path = path.index(at);
            required_label(text(version, "name"), &path.child("name"), self.errors);
            self.deprecation(version, &path);
            for ((key, _), shared) in SHARED.iter().zip(shared) {
                if !shared {
                    self.part(key, version, &path.child(key), &path);
                }
            }
        }
        self.version_set(versions, shared, &path);
        self.names(&path);
        if let Some(first) = versions.first() {
            for ((key, top), shared) in SHARED.iter().zip(shared) {
                if shared {
                    self.part(key, first, &path.child(top), &path);
                }
            }
        }
        self.conversion(versions.len(), &path.child("conversion"));
    }

    fn group_and_scope(&mut self, path: &Path<'_>) {
        let (group, scope) = (text(self.spec, "group"), text(self.spec, "scope"));
        let at = path.child("group");
        let wrong = names::dns1123_subdomain(group);
        if group.is_empty() {
            self.errors.required(&at, "");
        } else if !wrong.is_empty() {
            self.errors.invalid(&at, group, wrong.join(","));
        } else if !group.contains('.') {
            self.errors.invalid(&at, group, "should be a domain with at least one dot");
        }
        match scope {
            "" => self.errors.required(&path.child("scope"), ""),
            "Cluster" | "Namespaced" => {}
            other => self.errors.not_supported(&path.child("scope"), other, &["Cluster", "Namespaced"]),
        }
    }

    fn deprecation(&mut self, version: &Value, path: &Path<'_>) {
        let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return };
        let path = path.child("deprecationWarning");
        let mut wrong = |detail: &str| self.errors.invalid(&path, warning, detail);
        if !flag(version, "deprecated") {
            wrong("can only be set for deprecated versions");
            return;
        }
        if warning.len() > 256 {
            wrong("must be <= 256 characters long");
        }
        if warning.is_empty() {
            wrong("must not be an empty string");
        }
        let hidden = |c: char| c.is_control() || (c.is_whitespace() && c != ' ');
        if let Some((at, _)) = warning.char_indices().find(|(_, c)| hidden(*c)) {
            wrong(&format!(
                "must only contain printable UTF-8 characters; non-printable character found at index {at}"
            ));
        }
    }

    /// One shared or own part of a version.
    fn part(&mut self, key: &str, version: &Value, path: &Path<'_>, parent: &Path<'_>) {
        match key {
            "schema" => self.schema(version, path),
            "subresources" => self.subresources(version, path),
            "additionalPrinterColumns" => {
                for (at, column) in list(version, key).iter().enumerate() {
                    self.column(column, &path.index(at));
                }
            }
            _ => self.selectable(version, path, parent),
        }
    }

    fn schema(&mut self, version: &Value, path: &Path<'_>) {
        let Some(raw) = version.pointer("/schema/openAPIV3Schema").filter(|s| s.is_object()) else { return };
        let before = self.errors.len();
        let has_status = version.pointer("/subresources/status").is_some_and(|s| !s.is_null());
        if has_status {
            self.root_of_status(raw, path);
        }
        if flag(raw, "nullable") {
            let path = path.child("openAPIV3Schema.nullable");
            self.errors.forbidden(&path, "nullable cannot be true at the root");
        }
        let path = path.child("openAPIV3Schema");
        let mut schema = Schema::read(raw);
        let readable = !schema.any(&mut |node| !node.unsupported.is_empty() || node.preserve == Some(false));
        let mut sound = false;
        if readable {
            let structural = structural::validate(&schema, &path);
            sound = structural.is_empty();
            self.errors.extend(structural);
        }
        if sound {
            cel::compile(&mut schema);
            let defaults = openapi::validate_defaults(&schema, &path);
            sound = defaults.is_empty();
            self.errors.extend(defaults);
        }
        self.errors.extend(openapi::validate(&schema, &path, sound));
        if self.errors.len() == before && schema.any(&mut |node| node.unsupported.contains(&"$schema")) {
            self.errors.invalid(&path, "", "OpenAPIV3Schema 'schema' is not supported");
        }
    }

    fn root_of_status(&mut self, raw: &Value, path: &Path<'_>) {
        let ty = text(raw, "type");
        let set = |key: &str| match raw.get(key) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::String(text)) => !text.is_empty(),
            Some(_) => true,
        };
        if !ty.is_empty() && ty != "object" {
            let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            self.errors.invalid(&path.child("openAPIV3Schema.type"), ty, detail);
        } else if NOT_AT_ROOT.iter().any(|key| set(key)) {
            go_text::invalid(self.errors, &path.child("openAPIV3Schema"), &go_text::schema(raw), AT_ROOT);
        }
    }

    fn version_set(&mut self, versions: &[Value], shared: [bool; 4], path: &Path<'_>) {
        let at = path.child("versions");
        let unique = versions
            .iter()
            .enumerate()
            .all(|(at, v)| !versions.iter().take(at).any(|earlier| text(earlier, "name") == text(v, "name")));
        if !unique {
            let shown = go_text::versions(versions, shared);
            go_text::invalid(self.errors, &at, &shown, "must contain unique version names");
        }
        if versions.iter().filter(|v| flag(v, "storage")).count() != 1 {
            let detail = "must have exactly one version marked as storage version";
            go_text::invalid(self.errors, &at, &go_text::versions(versions, shared), detail);
        }
        if let Some(first) = versions.first() {
            label(text(first, "name"), &path.child("version"), self.errors);
        }
    }

    fn names(&mut self, path: &Path<'_>) {
        let null = Value::Null;
        let names = self.spec.get("names").unwrap_or(&null);
        let path = path.child("names");
        for key in ["plural", "singular", "kind", "listKind"] {
            if text(names, key).is_empty() {
                self.errors.required(&path.child(key), "");
            }
        }
        validate_names(names, &path, self.errors);
    }

    fn column(&mut self, column: &Value, path: &Path<'_>) {
        if text(column, "name").is_empty() {
            self.errors.required(&path.child("name"), "");
        }
        let one_of = |all: &[&str]| format!("must be one of {}", all.join(","));
        match text(column, "type") {
            "" => self.errors.required(&path.child("type"), one_of(&COLUMN_TYPES)),
            ty if COLUMN_TYPES.contains(&ty) => {}
            ty => self.errors.invalid(&path.child("type"), ty, one_of(&COLUMN_TYPES)),
        }
        let format = text(column, "format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            self.errors.invalid(&path.child("format"), format, one_of(&COLUMN_FORMATS));
        }
        let at = path.child("JSONPath");
        match text(column, "jsonPath") {
            "" => self.errors.required(&at, ""),
            source => self.simple_path(source, &at),
        }
    }

    fn simple_path(&mut self, source: &str, path: &Path<'_>) {
        if !source.starts_with('.') {
            self.errors.invalid(path, source, "must be a simple json path starting with .");
        }
    }

    fn subresources(&mut self, version: &Value, path: &Path<'_>) {
        let Some(scale) = version.pointer("/subresources/scale").filter(|s| s.is_object()) else { return };
        for (key, name, within, required) in [
            ("specReplicasPath", "scale.specReplicasPath", &[".spec."][..], true),
            ("statusReplicasPath", "scale.statusReplicasPath", &[".status."], true),
            ("labelSelectorPath", "scale.labelSelectorPath", &[".spec.", ".status."], false),
        ] {
            let (at, source) = (path.child(name), text(scale, key));
            match source {
                "" if required => self.errors.required(&at, ""),
                "" => {}
                source if !source.starts_with('.') => self.simple_path(source, &at),
                source if !within.iter().any(|prefix| source.starts_with(prefix)) => {
                    let detail = match within {
                        [one] => format!("should be a json path under {}", one.trim_end_matches('.')),
                        _ => "should be a json path under either .spec or .status".into(),
                    };
                    self.errors.invalid(&at, source, detail);
                }
                _ => {}
            }
        }
    }

    fn selectable(&mut self, version: &Value, path: &Path<'_>, _parent: &Path<'_>) {
        let fields = list(version, "selectableFields");
        if fields.is_empty() {
            return;
        }
        let schema = Schema::read(version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null));
        let mut seen = Vec::new();
        for (at, field) in fields.iter().enumerate() {
            let source = text(field, "jsonPath");
            let index = path.index(at);
            let at = index.child("jsonPath");
            if source.is_empty() {
                self.errors.required(&at, "");
                continue;
            }
            let (shown, found) = match openapi::field_path(source, &schema, false) {
                Ok(found) => found,
                Err(why) => {
                    self.errors.invalid(&at, source, format!("is an invalid path: {why}"));
                    continue;
                }
            };
            if shown == "metadata" || shown.starts_with("metadata.") || shown.starts_with("metadata[") {
                self.errors.invalid(&at, source, "must not point to fields in metadata");
            }
            if !found.is_some_and(|s| matches!(s.ty.as_str(), "string" | "boolean" | "integer")) {
                let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
                self.errors.invalid(&at, source, detail);
            }
            if seen.contains(&shown) {
                self.errors.duplicate(&at, source);
            } else {
                seen.push(shown);
            }
        }
        if seen.len() > SELECTABLE_MAX {
            let detail = format!("must have at most {SELECTABLE_MAX} items");
            self.errors.add(ErrorType::TooMany, path, Some(seen.len().into()), detail);
        }
    }

    /// Conversion by webhook is not done here: definitions that rely on it are refused rather than served wrong.
    fn conversion(&mut self, versions: usize, path: &Path<'_>) {
        let Some(conversion) = self.spec.get("conversion").filter(|c| c.is_object()) else { return };
        let at = path.child("strategy");
        let webhook = conversion.get("webhook").filter(|w| w.is_object());
        match text(conversion, "strategy") {
            "" => self.errors.required(&at, ""),
            "Webhook" if versions > 1 => self.errors.not_supported(&at, "Webhook", &["None"]),
            "Webhook" => {
                if webhook.and_then(|w| w.get("clientConfig")).is_none() {
                    let path = path.child("webhookClientConfig");
                    self.errors.required(&path, "required when strategy is set to Webhook");
                }
                if webhook.is_none_or(|w| list(w, "conversionReviewVersions").is_empty()) {
                    self.errors.required(&path.child("conversionReviewVersions"), "");
                }
            }
            "None" => {
                let detail = "should not be set when strategy is not set to Webhook";
                if webhook.is_some_and(|w| w.get("clientConfig").is_some()) {
                    self.errors.forbidden(&path.child("webhookClientConfig"), detail);
                }
                if webhook.is_some_and(|w| !list(w, "conversionReviewVersions").is_empty()) {
                    self.errors.forbidden(&path.child("conversionReviewVersions"), detail);
                }
            }
            other => self.errors.not_supported(&at, other, &["None", "Webhook"]),
        }
    }
}
