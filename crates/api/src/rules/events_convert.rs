//! One event, two shapes: core/v1, in which it is stored, and events.k8s.io/v1. Nothing is lost either way.

use serde_json::{Map, Value};

/// The names that differ: core's, and events.k8s.io's.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Core's name of a field of events.k8s.io/v1; none when it is the same.
pub fn core_name(field: &str) -> Option<&'static str> {
    NAMES.iter().find(|(_, events)| *events == field).map(|(core, _)| *core)
}

/// Turns an events.k8s.io/v1 event into the core/v1 one. Times that were left out are null there.
pub fn to_core(event: &mut Value) {
    convert(event, "v1", |(core, events)| (events, core));
}

/// Turns a core/v1 event into the events.k8s.io/v1 one.
pub fn to_events(event: &mut Value) {
    convert(event, "events.k8s.io/v1", |names| names);
    // Always there in core's shape; left out when empty in this one.
    if let Some(map) = event.as_object_mut() {
        for name in ["reportingController", "reportingInstance"] {
            if map.get(name).is_some_and(|value| value == "") {
                map.remove(name);
            }
        }
    }
}

fn convert(
    event: &mut Value,
    api_version: &str,
    order: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Some(map) = event.as_object_mut() else { return };
    for (from, to) in NAMES.map(order) {
        rename(map, from, to);
    }
    map.insert("apiVersion".into(), api_version.into());
}

fn rename(map: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = map.remove(from) {
        map.insert(to.into(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn there_and_back() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"},
            "message": "m", "reason": "r", "source": {"component": "c"}, "firstTimestamp": null, "lastTimestamp": "t",
            "count": 3, "type": "Normal", "eventTime": null, "reportingComponent": "x", "reportingInstance": "y",
            "series": {"count": 2}, "action": "a", "related": {"kind": "Node"},
        });
        let events = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "regarding": {"kind": "Pod"},
            "note": "m", "reason": "r", "deprecatedSource": {"component": "c"}, "deprecatedFirstTimestamp": null,
            "deprecatedLastTimestamp": "t", "deprecatedCount": 3, "type": "Normal", "eventTime": null,
            "reportingController": "x", "reportingInstance": "y", "series": {"count": 2}, "action": "a",
            "related": {"kind": "Node"},
        });
        let mut event = core.clone();
        to_events(&mut event);
        assert_eq!(event, events);
        to_core(&mut event);
        assert_eq!(event, core);
        let mut anonymous = json!({"reportingComponent": "", "reportingInstance": ""});
        to_events(&mut anonymous);
        assert_eq!(anonymous, json!({"apiVersion": "events.k8s.io/v1"}));
    }
}
