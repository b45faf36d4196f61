//! Taints and tolerations.

use serde_json::Value;

use crate::controllers::read::{items, text};

/// Whether a toleration (of pod `pod`) covers a taint.
pub fn tolerates(pod: &Value, taint: &Value) -> bool {
    items(pod, "/spec/tolerations").iter().any(|toleration| covers(toleration, taint))
}

/// Whether a toleration covers a taint.
pub fn covers(toleration: &Value, taint: &Value) -> bool {
    let (effect, key) = (text(toleration, "/effect"), text(toleration, "/key"));
    if !effect.is_empty() && effect != text(taint, "/effect") {
        return false;
    }
    if !key.is_empty() && key != text(taint, "/key") {
        return false;
    }
    match text(toleration, "/operator") {
        "" | "Equal" => !key.is_empty() && text(toleration, "/value") == text(taint, "/value"),
        "Exists" => true,
        _ => false,
    }
}

/// The first taint with one of these effects that a pod does not tolerate.
pub fn untolerated<'a>(pod: &Value, node: &'a Value, effects: &[&str]) -> Option<&'a Value> {
    let taints = items(node, "/spec/taints").iter();
    taints.filter(|taint| effects.contains(&text(taint, "/effect"))).find(|taint| !tolerates(pod, taint))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tolerations_cover_what_they_name() {
        let taint = json!({"key": "a", "value": "b", "effect": "NoSchedule"});
        for (toleration, expected) in [
            (json!({"key": "a", "value": "b", "effect": "NoSchedule"}), true),
            (json!({"key": "a", "operator": "Equal", "value": "b"}), true),
            (json!({"key": "a", "value": "c"}), false),
            (json!({"key": "a", "operator": "Exists"}), true),
            (json!({"operator": "Exists"}), true),
            (json!({"operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "x", "operator": "Exists"}), false),
        ] {
            assert_eq!(covers(&toleration, &taint), expected, "{toleration}");
        }
    }
}
