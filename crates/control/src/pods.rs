//! Looks into members where a shard alone does not tell: at the pods that are not ready, and into namespaces before they go.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use landfall_plan::propagation::FEDERATION_LABEL;
use serde_json::Value;

use crate::client::{Ask, Trouble, ask_json};
use crate::federation::{Federation, now_ms};
use crate::kinds::{self, Row};
use crate::member::{Member, Pods};
use crate::shelf::Key;

/// How long one look may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most pods that are looked at; with more, the first ones speak for all.
const PODS_MAX: usize = 500;

/// Looks at the pods of a shard that has too few.
pub async fn look(member: &Member, client: &kube::Client, key: &Key, selector: &str) -> Result<(), Trouble> {
    let query = selector.replace('%', "%25").replace(' ', "%20").replace('=', "%3D").replace(',', "%2C");
    let path = format!("/api/v1/namespaces/{}/pods?limit={PODS_MAX}&labelSelector={query}", key.namespace);
    // What is found is how they were when they were asked for.
    let at_ms = now_ms();
    let list = ask_json(client, Ask::new(Method::GET, &path), TIMEOUT).await?;
    let pods = list.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let found = Pods {
        at_ms,
        unschedulable_since_ms: pods.iter().filter_map(unschedulable_since_ms).collect(),
        crash_looping: u32::try_from(pods.iter().filter(|pod| crash_looping(pod)).count())
            .unwrap_or(u32::MAX),
    };
    member.noting(key, |note| note.pods = Some(Box::new(found)));
    Ok(())
}

fn unschedulable_since_ms(pod: &Value) -> Option<i64> {
    let conditions = pod.get("status")?.get("conditions")?.as_array()?;
    let text = |condition: &Value, key: &str| condition.get(key).and_then(Value::as_str).map(str::to_owned);
    let condition = conditions.iter().find(|c| text(c, "type").as_deref() == Some("PodScheduled"))?;
    let unschedulable = text(condition, "status").as_deref() == Some("False")
        && text(condition, "reason").as_deref() == Some("Unschedulable");
    let since = text(condition, "lastTransitionTime")?.parse::<jiff::Timestamp>().ok()?;
    unschedulable.then(|| since.as_millisecond())
}

/// What a container waits for that will not come by waiting.
const IN_VAIN: &[&str] = &[
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

fn crash_looping(pod: &Value) -> bool {
    let statuses =
        |kind: &str| pod.get("status").and_then(|status| status.get(kind)).and_then(Value::as_array);
    let all = ["initContainerStatuses", "containerStatuses"].into_iter().filter_map(statuses).flatten();
    let waits = |container: &Value| container.pointer("/state/waiting/reason")?.as_str().map(str::to_owned);
    all.filter_map(waits).any(|reason| IN_VAIN.contains(&reason.as_str()))
}

/// Kinds that are not federated, and hold what nobody wants to lose: (path, kind).
const HELD: &[(&str, &str)] = &[("persistentvolumeclaims", "PersistentVolumeClaim"), ("pods", "Pod")];

/// Looks for something in a namespace that is not ours and would go with it. What cannot be seen may be there.
pub async fn look_inside(
    federation: &Arc<Federation>,
    member: &Member,
    client: &kube::Client,
    key: &Key,
) -> Result<(), Trouble> {
    let rows = federation.kinds.all();
    let federated =
        rows.iter().filter(|row| row.namespaced).map(|row| (row.collection(&key.name), row.kind.as_str()));
    let held = HELD.iter().map(|(plural, kind)| (format!("/api/v1/namespaces/{}/{plural}", key.name), *kind));
    let mut found = None;
    for (path, kind) in federated.chain(held) {
        let row = rows.iter().find(|row| row.kind == kind);
        found = stranger_among(federation, client, &path, kind, row.map(|row| &**row)).await?;
        if found.is_some() {
            break;
        }
    }
    member.noting(key, |note| note.shelters = Some(found));
    Ok(())
}

/// The first stranger of one kind, page by page.
async fn stranger_among(
    federation: &Federation,
    client: &kube::Client,
    path: &str,
    kind: &str,
    row: Option<&Row>,
) -> Result<Option<String>, Trouble> {
    let mut next = String::new();
    loop {
        // Shards of other federations are strangers too.
        let own = &federation.config.federation;
        let query = format!("limit={PODS_MAX}&labelSelector={FEDERATION_LABEL}%21%3D{own}&continue={next}");
        let list = match ask_json(client, Ask::new(Method::GET, &format!("{path}?{query}")), TIMEOUT).await {
            Ok(list) => list,
            // Not served there, so nothing of it is there.
            Err(trouble) if trouble.code() == Some(404) => return Ok(None),
            Err(trouble) if trouble.code() == Some(403) => {
                return Ok(Some(format!("a {kind} that we may not see")));
            }
            Err(trouble) => return Err(trouble),
        };
        let items = list.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if let Some(name) = items.iter().find_map(|item| stranger(row, item)) {
            return Ok(Some(format!("{kind} {name}")));
        }
        match list.pointer("/metadata/continue").and_then(Value::as_str).filter(|token| !token.is_empty()) {
            // Such tokens are made of characters that may stand in a query, except these.
            Some(token) => next = token.replace('+', "%2B").replace('=', "%3D").replace('/', "%2F"),
            None => return Ok(None),
        }
    }
}

/// The name of an object that somebody else made on purpose: not what a cluster or a controller makes by itself.
fn stranger(row: Option<&Row>, object: &Value) -> Option<String> {
    let metadata = object.get("metadata")?;
    let owned =
        metadata.get("ownerReferences").and_then(Value::as_array).is_some_and(|owners| !owners.is_empty());
    let name = metadata.get("name")?.as_str()?;
    (!owned && row.is_none_or(|row| kinds::eligible(row, object))).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_that_wait_and_pods_that_crash() {
        let waiting = json!({"status": {"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "lastTransitionTime": "1970-01-01T00:00:05Z",
        }]}});
        assert_eq!(unschedulable_since_ms(&waiting), Some(5_000));
        assert_eq!(unschedulable_since_ms(&json!({"status": {"conditions": []}})), None);
        let state = |reason: &str| json!({"status": {"containerStatuses": [{"state": {"waiting": {"reason": reason}}}]}});
        assert!(crash_looping(&state("CrashLoopBackOff")));
        assert!(crash_looping(&state("InvalidImageName")));
        assert!(!crash_looping(&state("ContainerCreating")));
        let first = json!({"state": {"waiting": {"reason": "CreateContainerConfigError"}}});
        let waits = json!({"state": {"waiting": {"reason": "PodInitializing"}}});
        assert!(crash_looping(
            &json!({"status": {"initContainerStatuses": [first], "containerStatuses": [waits]}})
        ));
        assert!(!crash_looping(&json!({})));
    }
}
