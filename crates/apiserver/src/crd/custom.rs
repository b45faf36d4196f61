//! `CustomRules`: what is particular about one version of a custom resource.

use landfall_api::field::{Error, ErrorList, ErrorType, Path};
use landfall_api::{Rules, names};
use serde_json::Value;

use super::check::check;
use super::schema::Schema;
use super::{cel, lists, prune};

const UNCHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// The rules of one served version, made once per change of its definition.
pub struct CustomRules {
    /// Its schema.
    pub schema: Schema,
    /// Whether it has `/status`.
    pub has_status: bool,
    /// Where `/scale` looks, as written in the definition.
    pub scale: Option<Scale>,
    /// Said along with every answer when the version is deprecated.
    pub deprecated: Option<String>,
}

/// The paths of `/scale` in dot notation.
pub struct Scale {
    /// Wanted replicas, such as `.spec.replicas`.
    pub spec: String,
    /// Seen replicas.
    pub status: String,
    /// The selector; empty for none.
    pub selector: String,
}

impl Rules for CustomRules {
    fn default(&self, object: &mut Value) {
        prune::default(object, &self.schema);
    }

    fn prune(&self, object: &mut Value) -> Option<Vec<String>> {
        let mut removed = prune::prune(object, &self.schema);
        let mut in_metadata = Vec::new();
        lists::coerce_embedded(&self.schema, object, "", &mut in_metadata);
        in_metadata.sort_unstable();
        removed.extend(in_metadata);
        prune::whole_numbers(object);
        Some(removed)
    }

    fn update_alone(&self) -> bool {
        true
    }

    fn prepare_create(&self, object: &mut Value) {
        if let (true, Some(map)) = (self.has_status, object.as_object_mut()) {
            map.remove("status");
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        let Some(map) = object.as_object_mut().filter(|_| self.has_status) else { return };
        match old.get("status") {
            Some(status) => map.insert("status".into(), status.clone()),
            None => map.remove("status"),
        };
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = check(&self.schema, object, None, "");
        self.scale_spec(object, &mut errors);
        self.scale_status(object, &mut errors);
        lists::embedded(&self.schema, object, &Path::ROOT, &mut errors);
        lists::doubles(&self.schema, object, &Path::ROOT, &mut errors);
        self.rules(object, None, &mut errors);
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = check(&self.schema, object, Some(old), "");
        self.scale_spec(object, &mut errors);
        self.scale_status(object, &mut errors);
        lists::embedded(&self.schema, object, &Path::ROOT, &mut errors);
        self.new_doubles(object, old, &mut errors);
        self.rules(object, Some(old), &mut errors);
        errors
    }

    fn validate_status(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        if let (Some(schema), Some(status)) = (self.schema.properties.get("status"), object.get("status")) {
            errors.extend(check(schema, status, old.get("status"), "status"));
        }
        self.scale_status(object, &mut errors);
        self.new_doubles(object, old, &mut errors);
        self.rules(object, Some(old), &mut errors);
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }

    fn deprecation(&self) -> Option<String> {
        self.deprecated.clone()
    }
}

impl CustomRules {
    /// Lists that held doubles already may go on holding them.
    fn new_doubles(&self, object: &Value, old: &Value, errors: &mut ErrorList) {
        let mut before = ErrorList::new();
        lists::doubles(&self.schema, old, &Path::ROOT, &mut before);
        if before.is_empty() {
            lists::doubles(&self.schema, object, &Path::ROOT, errors);
        }
    }

    fn scale_spec(&self, object: &Value, errors: &mut ErrorList) {
        if let Some(scale) = &self.scale {
            replicas(object, &scale.spec, errors);
        }
    }

    fn scale_status(&self, object: &Value, errors: &mut ErrorList) {
        let Some(scale) = &self.scale else { return };
        replicas(object, &scale.status, errors);
        if scale.selector.is_empty() {
            return;
        }
        if let Some(other) = at(object, &scale.selector).filter(|v| !v.is_string()) {
            let detail = format!(
                "{} accessor error: {} is of the type {}, expected string",
                scale.selector,
                go_value(other),
                go_type(other)
            );
            errors.invalid(&Path::new(&scale.selector), "", detail);
        }
    }

    /// The rules in CEL; not when the shape is wrong already, because they rely on it.
    fn rules(&self, object: &Value, old: Option<&Value>, errors: &mut ErrorList) {
        if !cel::has_rules(&self.schema) {
            return;
        }
        let blocked = errors.iter().any(|error| {
            matches!(
                error.class,
                ErrorType::NotSupported
                    | ErrorType::Required
                    | ErrorType::TooLong
                    | ErrorType::TooMany
                    | ErrorType::TypeInvalid
            )
        });
        if blocked {
            errors.push(Error {
                class: ErrorType::Invalid,
                field: "<nil>".into(),
                value: Some(Value::Null),
                detail: UNCHECKED.into(),
            });
        } else {
            errors.extend(cel::validate(&self.schema, object, old));
        }
    }
}

/// The value under a path such as `.spec.replicas`.
fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.strip_prefix('.').unwrap_or(path).split('.').try_fold(object, |value, name| value.get(name))
}

fn replicas(object: &Value, path: &str, errors: &mut ErrorList) {
    let Some(value) = at(object, path) else { return };
    let field = Path::new(path);
    match value.as_i64() {
        Some(count) if count < 0 => errors.invalid(&field, count, "should be a non-negative integer"),
        Some(count) if count > i64::from(i32::MAX) => {
            errors.invalid(&field, count, format!("should be less than or equal to {}", i32::MAX));
        }
        Some(_) => {}
        None => {
            let detail = format!(
                "{path} accessor error: {} is of the type {}, expected int64",
                go_value(value),
                go_type(value)
            );
            errors.invalid(&field, 0, detail);
        }
    }
}

fn go_value(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| if value.is_null() { "<nil>".into() } else { value.to_string() }, Into::into)
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
