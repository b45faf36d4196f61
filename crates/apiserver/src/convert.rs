//! Kinds that are served in another shape than they are stored in.

use landfall_api::Kind;
use landfall_api::rules::events_convert;
use landfall_api::rules::workloads::hpa_convert;
use serde_json::Value;

/// How one served kind maps to its stored shape.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    /// Stored shape to served shape.
    pub read: fn(&Value) -> Value,
    /// Served shape to stored shape.
    pub write: fn(&Value) -> Value,
    /// A served field's stored name; none when it is the same.
    pub name: fn(&str) -> Option<&'static str>,
}

/// The conversion of a kind; none when the shapes are the same.
pub fn of(kind: &Kind) -> Option<Conversion> {
    match (&*kind.group, &*kind.version, &*kind.kind) {
        ("events.k8s.io", "v1", "Event") => {
            Some(Conversion { read: to_events, write: to_core, name: events_convert::core_name })
        }
        ("autoscaling", "v1", "HorizontalPodAutoscaler") => {
            Some(Conversion { read: hpa_convert::to_v1, write: hpa_convert::to_v2, name: |_| None })
        }
        _ => None,
    }
}

fn to_events(event: &Value) -> Value {
    let mut event = event.clone();
    events_convert::to_events(&mut event);
    event
}

fn to_core(event: &Value) -> Value {
    let mut event = event.clone();
    events_convert::to_core(&mut event);
    event
}
