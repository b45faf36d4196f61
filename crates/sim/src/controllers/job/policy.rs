//! A Job's podFailurePolicy: the first rule that fits a failed pod says what its failure means.

use landfall_api::meta;
use serde_json::Value;

use crate::controllers::read::{items, text};

/// Why one of these failed pods fails the whole Job, if one does.
pub(super) fn fails(job: &Value, failed: &[&Value]) -> Option<String> {
    let rules = rules(job);
    failed.iter().find_map(|pod| match verdict(rules, pod) {
        Some(("FailJob", message)) => Some(message),
        _ => None,
    })
}

/// How many of these failed pods count against the backoff limit.
pub(super) fn counted(job: &Value, failed: &[&Value]) -> usize {
    let rules = rules(job);
    failed.iter().filter(|pod| !matches!(verdict(rules, pod), Some(("Ignore", _)))).count()
}

fn rules(job: &Value) -> &[Value] {
    items(job, "/spec/podFailurePolicy/rules")
}

/// The action of the first rule that fits, and how a Job tells about it.
fn verdict<'a>(rules: &'a [Value], pod: &Value) -> Option<(&'a str, String)> {
    rules.iter().enumerate().find_map(|(index, rule)| {
        let action = text(rule, "/action");
        let why = match rule.get("onExitCodes").filter(|codes| codes.is_object()) {
            Some(codes) => exited(codes, pod),
            None => conditioned(items(rule, "/onPodConditions"), pod),
        }?;
        Some((action, format!("{why} matching {action} rule at index {index}")))
    })
}

fn exited(codes: &Value, pod: &Value) -> Option<String> {
    let (name, place) = (text(codes, "/containerName"), place(pod));
    let all =
        items(pod, "/status/containerStatuses").iter().chain(items(pod, "/status/initContainerStatuses"));
    let mut fitting =
        all.filter(|status| name.is_empty() || text(status, "/name") == name).filter_map(|status| {
            let code = status.pointer("/state/terminated/exitCode")?.as_i64().filter(|code| *code != 0)?;
            let listed = items(codes, "/values").iter().any(|value| value.as_i64() == Some(code));
            let fits = match text(codes, "/operator") {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            };
            fits.then(|| {
                format!("Container {} for pod {place} failed with exit code {code}", text(status, "/name"))
            })
        });
    fitting.next()
}

fn conditioned(patterns: &[Value], pod: &Value) -> Option<String> {
    let fits = |condition: &&Value| {
        patterns.iter().any(|p| p["type"] == condition["type"] && p["status"] == condition["status"])
    };
    let condition = items(pod, "/status/conditions").iter().find(fits)?;
    Some(format!("Pod {} has condition {}", place(pod), text(condition, "/type")))
}

fn place(pod: &Value) -> String {
    format!("{}/{}", meta::namespace(pod), meta::name(pod))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(code: i64) -> Value {
        json!({"metadata": {"name": "p", "namespace": "a"}, "status": {"phase": "Failed",
            "conditions": [{"type": "DisruptionTarget", "status": if code == 0 { "True" } else { "False" }}],
            "containerStatuses": [{"name": "side", "state": {"terminated": {"exitCode": 0}}},
                {"name": "main", "state": {"terminated": {"exitCode": code}}}]}})
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let codes = |action: &str, operator: &str, values: &[i64], name: Option<&str>| {
            let mut rule = json!({"action": action, "onExitCodes": {"operator": operator, "values": values}});
            if let Some(name) = name {
                rule["onExitCodes"]["containerName"] = json!(name);
            }
            rule
        };
        let disrupted =
            json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
        let job = json!({"spec": {"podFailurePolicy": {"rules": [
            codes("FailJob", "In", &[42], Some("main")), codes("FailJob", "In", &[43], Some("other")),
            codes("Ignore", "In", &[1, 43], None), disrupted, codes("Count", "NotIn", &[7], None),
            codes("FailJob", "In", &[8], None)]}}});
        for (code, fails_with, counts) in [
            (
                42,
                Some("Container main for pod a/p failed with exit code 42 matching FailJob rule at index 0"),
                1,
            ),
            (43, None, 0),
            (1, None, 0),
            (0, None, 0),
            (7, None, 1),
            (8, None, 1),
        ] {
            let pod = pod(code);
            assert_eq!(fails(&job, &[&pod]).as_deref(), fails_with, "{code}");
            assert_eq!(counted(&job, &[&pod]), counts, "{code}");
            assert_eq!((fails(&json!({}), &[&pod]), counted(&json!({}), &[&pod])), (None, 1), "no policy");
        }
        let rule =
            json!({"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
        let job = json!({"spec": {"podFailurePolicy": {"rules": [rule]}}});
        let why = "Pod a/p has condition DisruptionTarget matching FailJob rule at index 0";
        assert_eq!(fails(&job, &[&pod(42), &pod(0)]).as_deref(), Some(why));
    }
}
