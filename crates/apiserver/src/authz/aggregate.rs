//! Aggregated ClusterRoles: their rules are those of all ClusterRoles their selectors choose.

use landfall_api::meta;
use serde_json::{Value, json};

use super::Rule;

/// How often aggregated roles may feed other aggregated roles (`view` → `edit` → `admin`) in one go; the rest is
/// done when the change is seen.
const ROUNDS_MAX: usize = 8;

/// The rules an aggregated ClusterRole should have, if they are not those it has; none for other roles.
pub fn aggregate(role: &Value, all: &[Value]) -> Option<Vec<Value>> {
    let selectors = role.get("aggregationRule")?.get("clusterRoleSelectors").and_then(Value::as_array);
    let mut rules: Vec<Rule> = Vec::new();
    for selector in selectors.into_iter().flatten() {
        let mut chosen: Vec<&Value> = all
            .iter()
            .filter(|other| meta::name(other) != meta::name(role) && selects(selector, other))
            .collect();
        chosen.sort_by_key(|other| meta::name(other));
        for rule in chosen.into_iter().flat_map(Rule::parse_all) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    (rules != Rule::parse_all(role)).then(|| rules.iter().map(Rule::to_value).collect())
}

/// Sets the rules of every aggregated role among `all` and gives the names of those that changed.
pub fn aggregate_all(all: &mut [Value]) -> Vec<String> {
    let mut changed = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let mut settled = true;
        for at in 0..all.len() {
            let Some(rules) = all.get(at).and_then(|role| aggregate(role, all)) else { continue };
            if let Some(role) = all.get_mut(at) {
                role["rules"] = json!(rules);
                let name = meta::name(role).to_owned();
                if !changed.contains(&name) {
                    changed.push(name);
                }
                settled = false;
            }
        }
        if settled {
            break;
        }
    }
    changed
}

/// Whether a LabelSelector chooses an object; one that makes no sense chooses nothing.
fn selects(selector: &Value, object: &Value) -> bool {
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    labels.into_iter().flatten().all(|(key, value)| meta::label(object, key) == value.as_str())
        && expressions.into_iter().flatten().all(|expression| holds(expression, object))
}

fn holds(expression: &Value, object: &Value) -> bool {
    let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
    let values = super::rule::strings(expression.get("values"));
    let label = meta::label(object, text("key"));
    match text("operator") {
        "In" => label.is_some_and(|l| values.iter().any(|v| v == l)),
        "NotIn" => label.is_none_or(|l| values.iter().all(|v| v != l)),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, labels: &Value, selector: Option<Value>, verbs: &[&str]) -> Value {
        let mut role = json!({"metadata": {"name": name, "labels": labels}});
        if !verbs.is_empty() {
            role["rules"] = json!([{"verbs": verbs, "apiGroups": [""], "resources": ["pods"]}]);
        }
        if let Some(selector) = selector {
            role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
        }
        role
    }

    #[test]
    fn rules_flow_through_several_roles() {
        let mut all = [
            role("admin", &json!({}), Some(json!({"matchLabels": {"to": "admin"}})), &[]),
            role("edit", &json!({"to": "admin"}), Some(json!({"matchLabels": {"to": "edit"}})), &[]),
            role("part", &json!({"to": "edit"}), None, &["get"]),
            role("other", &json!({}), None, &["delete"]),
        ];
        assert_eq!(aggregate_all(&mut all), ["edit", "admin"]);
        assert_eq!(all[0]["rules"], all[2]["rules"]);
        assert_eq!(aggregate_all(&mut all), Vec::<String>::new());
        all[2]["rules"] = json!([]);
        assert_eq!(aggregate_all(&mut all), ["edit", "admin"]);
        assert_eq!(all[0]["rules"], json!([]));
    }

    #[test]
    fn selectors_choose_by_label() {
        let check = |selector: Value, expected: bool| {
            let object = role("x", &json!({"a": "1"}), None, &[]);
            assert_eq!(selects(&selector, &object), expected, "{selector}");
        };
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        check(json!({"matchLabels": {"a": "1"}}), true);
        check(json!({"matchLabels": {"a": "2"}}), false);
        check(expression("In", json!(["1", "2"])), true);
        check(expression("NotIn", json!(["1"])), false);
        check(expression("Exists", json!(null)), true);
        check(expression("DoesNotExist", json!(null)), false);
        check(expression("Resembles", json!(["1"])), false);
        check(json!({}), true);
    }

    #[test]
    fn a_role_does_not_feed_itself_and_others_are_left_alone() {
        let mut all = [
            role("self", &json!({"to": "self"}), Some(json!({"matchLabels": {"to": "self"}})), &["get"]),
            role("plain", &json!({}), None, &["get"]),
        ];
        assert_eq!(aggregate_all(&mut all), ["self"]);
        assert_eq!(all[0]["rules"], json!([]));
    }
}
