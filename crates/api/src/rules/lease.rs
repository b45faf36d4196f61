//! Leases and PriorityClasses.

use serde_json::Value;

use super::read::{self, default_absent, field, flag, int, same, text};
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::{meta, names};

const SPEC: Path<'static> = Path::new("spec");
/// Fields of coordinated leader election, which is off unless a cluster turns it on.
const COORDINATED: [&str; 2] = ["strategy", "preferredHolder"];

/// The rules of Leases.
pub struct Lease;

impl Rules for Lease {
    fn prepare_create(&self, object: &mut Value) {
        let Some(spec) = read::map_mut(object, "spec") else { return };
        for name in COORDINATED {
            spec.remove(name);
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        let Some(spec) = read::map_mut(object, "spec") else { return };
        for name in COORDINATED {
            if field(read::spec(old), name).is_none() {
                spec.remove(name);
            }
        }
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let spec = read::spec(object);
        if let Some(duration) = field(spec, "leaseDurationSeconds").and_then(Value::as_i64)
            && duration <= 0
        {
            errors.invalid(&SPEC.child("leaseDurationSeconds"), duration, "must be greater than 0");
        }
        if let Some(count) = field(spec, "leaseTransitions").and_then(Value::as_i64)
            && count < 0
        {
            let detail = "must be greater than or equal to 0";
            errors.invalid(&SPEC.child("leaseTransitions"), count, detail);
        }
        if !text(spec, "preferredHolder").is_empty() && text(spec, "strategy").is_empty() {
            let detail = "may only be specified if `strategy` is defined";
            errors.forbidden(&SPEC.child("preferredHolder"), detail);
        }
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }
}

/// The rules of PriorityClasses.
pub struct PriorityClass;

/// Highest priority a user may define.
const PRIORITY_MAX: i64 = 1_000_000_000;
/// The classes that every cluster has.
const SYSTEM: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

impl Rules for PriorityClass {
    fn default(&self, object: &mut Value) {
        if let Some(class) = object.as_object_mut() {
            default_absent(class, "preemptionPolicy", "PreemptLowerPriority");
        }
    }

    /// Nothing that was right can become wrong: what is checked on create cannot change.
    fn validate(&self, _object: &Value) -> ErrorList {
        ErrorList::new()
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let value = int(object, "value");
        if meta::name(object).starts_with("system-") {
            if let Some(why) = not_a_system_class(object) {
                let metadata = Path::new("metadata");
                let detail = format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
                );
                errors.forbidden(&metadata.child("name"), detail);
            }
        } else if value > PRIORITY_MAX {
            let detail = format!("maximum allowed value of a user defined priority is {PRIORITY_MAX}");
            errors.forbidden(&Path::new("value"), detail);
        }
        match field(object, "preemptionPolicy").and_then(Value::as_str) {
            None | Some("PreemptLowerPriority" | "Never") => {}
            Some("") => errors.required(&Path::new("preemptionPolicy"), ""),
            Some(other) => {
                let policies = ["PreemptLowerPriority", "Never"];
                read::unsupported(&mut errors, &Path::new("preemptionPolicy"), other, &policies);
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        if !same(object.get("value"), old.get("value")) {
            errors.forbidden(&Path::new("value"), "may not be changed in an update.");
        }
        read::immutable(object, old, "preemptionPolicy", &mut errors);
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }
}

fn not_a_system_class(object: &Value) -> Option<String> {
    let name = meta::name(object);
    let Some((_, value)) = SYSTEM.iter().find(|(system, _)| *system == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if *value != int(object, "value") {
        return Some(format!("value of {name} PriorityClass must be {value}"));
    }
    flag(object, "globalDefault").then(|| format!("globalDefault of {name} PriorityClass must be false"))
}
