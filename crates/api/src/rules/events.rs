//! Events, in both shapes. Those of events.k8s.io are held to more on create, and hardly change.

use serde_json::Value;

use super::read::{self, child, field, int, same, text};
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::{meta, names};

/// Most bytes of an action, a reason or the name of an instance.
const WORD_BYTES_MAX: usize = 128;
/// Most bytes of the message of an event that has an `eventTime`.
const NOTE_BYTES_MAX: usize = 1024;

/// The rules of Events.
pub struct Event {
    /// Whether this is the shape of events.k8s.io.
    pub strict: bool,
}

impl Event {
    /// The name a field of core has in this shape.
    const fn name(&self, core: &'static str, events: &'static str) -> &'static str {
        if self.strict { events } else { core }
    }
}

impl Rules for Event {
    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let namespace = meta::namespace(object);
        let involved = text(child(object, self.name("involvedObject", "regarding")), "namespace");
        let involved_object = Path::new("involvedObject");
        let timed = has_time(object, "eventTime");
        let agree = match (timed, involved) {
            (false, "") => matches!(namespace, "" | "default"),
            (false, involved) => namespace == involved,
            (true, "") => matches!(namespace, "default" | "kube-system"),
            (true, _) => true,
        };
        if !agree {
            let path = involved_object.child("namespace");
            errors.invalid(&path, involved, "does not match event.namespace");
        }
        if timed {
            self.validate_timed(object, &mut errors);
        }
        read::sentences(names::dns1123_subdomain(namespace), namespace, &Path::new("namespace"), &mut errors);
        errors
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        if !self.strict {
            return errors;
        }
        validate_series(object, &mut errors);
        if !has_time(object, "eventTime") {
            errors.required(&Path::new("eventTime"), "");
        }
        let ty = text(object, "type");
        if !matches!(ty, "Normal" | "Warning") {
            errors.invalid(&Path::new("type"), "", format!("has invalid value: {ty}"));
        }
        let source = child(object, "deprecatedSource");
        let unset = [
            ("firstTimestamp", has_time(object, "deprecatedFirstTimestamp")),
            ("lastTimestamp", has_time(object, "deprecatedLastTimestamp")),
            ("count", int(object, "deprecatedCount") != 0),
            ("source", !text(source, "component").is_empty() || !text(source, "host").is_empty()),
        ];
        for (name, _) in unset.iter().filter(|(_, set)| *set) {
            errors.invalid(&Path::new(name), "", "needs to be unset");
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        if !self.strict {
            return errors;
        }
        if !same(object.get("series"), old.get("series")) {
            validate_series(object, &mut errors);
        }
        // Named as they are in core, which is what is stored.
        for (name, shown) in [
            ("regarding", "involvedObject"),
            ("reason", "reason"),
            ("note", "message"),
            ("deprecatedSource", "source"),
            ("deprecatedFirstTimestamp", "firstTimestamp"),
            ("deprecatedLastTimestamp", "lastTimestamp"),
            ("deprecatedCount", "count"),
            ("type", "type"),
            ("eventTime", "eventTime"),
            ("action", "action"),
            ("related", "related"),
            ("reportingController", "reportingController"),
            ("reportingInstance", "reportingInstance"),
        ] {
            if !same(object.get(name), old.get(name)) {
                let value = shown_in_go(name, object.get(name));
                read::invalid_shown(&mut errors, &Path::new(shown), &value, "field is immutable");
            }
        }
        errors
    }

    /// Only the newer shape checks names; the older takes what clients made up for years.
    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        if self.strict { names::name_is_subdomain(name, prefix) } else { names::path_segment(name, prefix) }
    }
}

impl Event {
    fn validate_timed(&self, object: &Value, errors: &mut ErrorList) {
        let controller = self.name("reportingComponent", "reportingController");
        let path = Path::new(controller);
        let name = text(object, controller);
        if name.is_empty() {
            errors.required(&path, "");
        }
        read::sentences(names::qualified_name(name), name, &path, errors);
        for word in ["reportingInstance", "action", "reason"] {
            let path = Path::new(word);
            if text(object, word).is_empty() {
                errors.required(&path, "");
            }
            if text(object, word).len() > WORD_BYTES_MAX {
                errors.invalid(&path, "", format!("can have at most {WORD_BYTES_MAX} characters"));
            }
        }
        if text(object, self.name("message", "note")).len() > NOTE_BYTES_MAX {
            let detail = format!("can have at most {NOTE_BYTES_MAX} characters");
            errors.invalid(&Path::new("message"), "", detail);
        }
    }
}

/// A field as Go shows it, which knows nothing of its JSON names here.
fn shown_in_go(name: &str, value: Option<&Value>) -> String {
    let value = value.unwrap_or(&Value::Null);
    let show = |names: &[(&str, &str)]| {
        let fields: Vec<String> =
            names.iter().map(|(go, json)| format!("{go:?}:{}", Value::from(text(value, json)))).collect();
        format!("{{{}}}", fields.join(","))
    };
    match name {
        "related" if value.is_null() => "null".into(),
        "regarding" | "related" => show(&[
            ("Kind", "kind"),
            ("Namespace", "namespace"),
            ("Name", "name"),
            ("UID", "uid"),
            ("APIVersion", "apiVersion"),
            ("ResourceVersion", "resourceVersion"),
            ("FieldPath", "fieldPath"),
        ]),
        "deprecatedSource" => show(&[("Component", "component"), ("Host", "host")]),
        "deprecatedCount" => value.as_i64().unwrap_or(0).to_string(),
        "eventTime" | "deprecatedFirstTimestamp" | "deprecatedLastTimestamp" => value.to_string(),
        _ => Value::from(value.as_str().unwrap_or("")).to_string(),
    }
}

fn has_time(object: &Value, name: &str) -> bool {
    !text(object, name).is_empty()
}

fn validate_series(object: &Value, errors: &mut ErrorList) {
    let Some(series) = field(object, "series") else { return };
    if int(series, "count") < 2 {
        errors.invalid(&Path::new("series.count"), "", "should be at least 2");
    }
    if !has_time(series, "lastObservedTime") {
        errors.required(&Path::new("series.lastObservedTime"), "");
    }
}
