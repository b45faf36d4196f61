//! Reading shards as the planners of replicas, autoscalers and rollouts want to see them.

use landfall_plan::replicas::{GOAL_ANNOTATION, Scalable};
use landfall_plan::{autoscale, replicas, rollout};
use serde_json::Value;

use super::sight::Sight;

/// The annotation of a shard with the hash of the pod template it was last given, for rollouts in turn.
pub const TEMPLATE_ANNOTATION: &str = "landfall.dev/template";

/// Most pods that are counted as refused.
const NEVER_MADE_MAX: u32 = 100_000;

fn number(object: &Value, path: &str) -> Option<u32> {
    u32::try_from(object.pointer(path)?.as_i64()?).ok()
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

/// The replicas that a shard asks for.
pub(super) fn spec_replicas(scalable: &Scalable, object: &Value) -> Option<u32> {
    number(object, &format!("/spec/{}", scalable.field))
}

/// How many are ready.
pub(super) fn ready(object: &Value) -> u32 {
    let field =
        if object.get("kind").and_then(Value::as_str) == Some("Job") { "ready" } else { "readyReplicas" };
    number(object, &format!("/status/{field}")).unwrap_or(0)
}

/// Whether the shard's own controller has seen what it was last given.
pub(super) fn settled(object: &Value) -> bool {
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
    object.pointer("/status/observedGeneration").and_then(Value::as_i64).unwrap_or(0) >= generation
}

/// One cluster for `plan::replicas`.
pub(super) fn replicas(scalable: &Scalable, sight: &Sight, draining: bool) -> replicas::Observation {
    let spec = &sight.cluster.spec;
    let mut seen = replicas::Observation {
        cluster: sight.member.name.clone(),
        offline_since_ms: sight.offline_since_ms,
        cordoned: spec.cordoned,
        draining: draining || spec.draining,
        unready_since_ms: sight.note.unready_since_ms,
        showed: sight.note.showed,
        ..replicas::Observation::default()
    };
    if let Some(found) = sight.found().filter(|_| sight.seen.as_ref().is_some_and(|seen| seen.mark.is_some()))
    {
        seen.spec = spec_replicas(scalable, found);
        seen.goal = annotation(found, GOAL_ANNOTATION).and_then(|goal| goal.parse().ok());
        seen.ready = ready(found);
        if found.get("kind").and_then(Value::as_str) == Some("Deployment") {
            let updated = number(found, "/status/updatedReplicas").unwrap_or(0);
            seen.updated = Some(if settled(found) { updated } else { 0 });
        }
    } else if let Some(count) = sight.line.as_ref().and_then(|line| line.count).filter(|_| !sight.synced) {
        // Not read yet, or not to be read: it counts with what was told last.
        seen.spec = Some(count.wanted);
    }
    if scalable.kind != "Job" {
        // The completions of a Job cannot be given to others once they have theirs.
        seen.refuses_since_ms = sight.note.memory.refused.as_ref().map(|refused| refused.since_ms);
    }
    if !sight.synced {
        // Nobody shrinks for the sake of what may not be there any more.
        seen.ready = 0;
    }
    if let Some(pods) = sight.note.fresh_pods() {
        seen.unschedulable_since_ms.clone_from(&pods.unschedulable_since_ms);
        seen.crash_looping = pods.crash_looping;
    }
    if let Some(found) = sight.found().filter(|_| seen.spec.is_some() && sight.synced) {
        seen.unschedulable_since_ms.extend(never_made_since_ms(found, seen.spec.unwrap_or(0)));
    }
    seen
}

/// Since when each pod that should be there is refused: a quota, a limit, an admission rule.
fn never_made_since_ms(object: &Value, wanted: u32) -> Vec<i64> {
    let failure = condition(object, "ReplicaFailure")
        .filter(|failure| failure.get("status").and_then(Value::as_str) == Some("True"));
    let time = failure
        .and_then(|failure| failure.get("lastTransitionTime")?.as_str()?.parse::<jiff::Timestamp>().ok());
    let Some(time) = time else { return Vec::new() };
    let lacking = wanted.saturating_sub(number(object, "/status/replicas").unwrap_or(0)).min(NEVER_MADE_MAX);
    vec![time.as_millisecond(); usize::try_from(lacking).unwrap_or(0)]
}

/// One cluster for `plan::autoscale`.
pub(super) fn autoscaler(sight: &Sight) -> autoscale::Observation {
    let found = sight.found();
    let of = |path: &str| found.and_then(|found| number(found, path));
    let time = |path: &str| {
        let text = found?.pointer(path)?.as_str()?;
        Some(text.parse::<jiff::Timestamp>().ok()?.as_millisecond())
    };
    let bounds = of("/spec/maxReplicas")
        .map(|max| autoscale::Bounds { min: of("/spec/minReplicas").unwrap_or(1), max });
    autoscale::Observation {
        cluster: sight.member.name.clone(),
        weight: 1,
        bounds,
        current: of("/status/currentReplicas").unwrap_or(0),
        desired: of("/status/desiredReplicas").unwrap_or(0),
        last_scale_ms: time("/status/lastScaleTime"),
        offline_since_ms: sight.offline_since_ms,
        draining: sight.cluster.spec.draining,
    }
}

/// One cluster for `plan::rollout`.
pub(super) fn rollout(sight: &Sight) -> rollout::Observation {
    let mut seen = rollout::Observation {
        cluster: sight.member.name.clone(),
        offline: sight.offline_since_ms.is_some(),
        ..rollout::Observation::default()
    };
    let Some(found) = sight.found() else { return seen };
    let of = |path: &str| number(found, path).unwrap_or(0);
    // A shard that was given its template before turns were asked for has none of the hashes.
    let given = annotation(found, TEMPLATE_ANNOTATION).and_then(|hash| u64::from_str_radix(hash, 16).ok());
    seen.template = Some(given.unwrap_or(0));
    seen.observed = settled(found);
    seen.replicas = of("/spec/replicas");
    seen.updated = of("/status/updatedReplicas");
    // While old ones are there, it is them who are available.
    let old = of("/status/replicas").saturating_sub(seen.updated);
    seen.available = of("/status/availableReplicas").saturating_sub(old);
    let progressing = condition(found, "Progressing");
    let text = |key: &str| progressing.and_then(|condition| condition.get(key)).and_then(Value::as_str);
    if text("reason") == Some("NewReplicaSetAvailable") {
        let time = text("lastUpdateTime").and_then(|time| time.parse::<jiff::Timestamp>().ok());
        seen.complete_since_ms = time.map(jiff::Timestamp::as_millisecond);
    }
    if text("reason") == Some("ProgressDeadlineExceeded") {
        seen.failed = Some(text("message").unwrap_or("no progress before the deadline").to_owned());
    } else if let Some(pods) = sight.note.fresh_pods().filter(|pods| pods.crash_looping > 0) {
        seen.failed = Some(format!("{} pods crash again and again", pods.crash_looping));
    }
    seen
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition.get("type").and_then(Value::as_str) == Some(kind))
}

/// The label selector of a workload's pods, as a query has it.
pub(super) fn pod_selector(object: &Value) -> Option<String> {
    let selector = object.pointer("/spec/selector")?;
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    // A ReplicationController's selector is its labels.
    let plain = selector.get("matchLabels").is_none() && expressions.is_none();
    let labels = if plain { Some(selector) } else { selector.get("matchLabels") };
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let pairs = labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    let expressions = expressions.into_iter().flatten().filter_map(expression);
    Some(pairs.chain(expressions).collect::<Vec<_>>().join(",")).filter(|text| !text.is_empty())
}

/// One of a selector's expressions, as a query has it.
fn expression(expression: &Value) -> Option<String> {
    let key = expression.get("key")?.as_str()?;
    let values = expression.get("values").and_then(Value::as_array);
    let values = values.into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(",");
    match expression.get("operator")?.as_str()? {
        "In" => Some(format!("{key} in ({values})")),
        "NotIn" => Some(format!("{key} notin ({values})")),
        "Exists" => Some(key.to_owned()),
        "DoesNotExist" => Some(format!("!{key}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_become_queries() {
        let check = |selector: Value, expected: Option<&str>| {
            assert_eq!(pod_selector(&json!({"spec": {"selector": selector}})).as_deref(), expected);
        };
        let some = json!([
            {"key": "tier", "operator": "In", "values": ["a", "b"]}, {"key": "old", "operator": "NotIn", "values": ["x"]},
            {"key": "web", "operator": "Exists"}, {"key": "test", "operator": "DoesNotExist"},
        ]);
        let all = "tier in (a,b),old notin (x),web,!test";
        check(json!({"run": "web", "at": "x"}), Some("at=x,run=web"));
        check(json!({"matchLabels": {"run": "web"}}), Some("run=web"));
        check(json!({"matchExpressions": some}), Some(all));
        check(
            json!({"matchLabels": {"run": "web"}, "matchExpressions": some}),
            Some(&format!("run=web,{all}")),
        );
        check(json!({}), None);
    }
}
