//! Removes what is over, as Kubernetes' own controllers do: bootstrap tokens that have expired, and requests for
//! certificates that were settled an hour ago or that nobody settled in a day.

use std::sync::Arc;

use landfall_api::rules::read::{child, list, text};
use landfall_api::{age, meta};
use landfall_store::Snapshot;
use serde_json::Value;

use super::objects;
use crate::api::Api;
use crate::authn::bootstrap_token;
use crate::housekeeping::ObjectClient as _;
use crate::housekeeping::client::{Delete, Place, Propagation};
use crate::inside::Inside;
use crate::{certificates, encode, keys};

/// How long a request is kept once it was approved or denied.
const SETTLED_S: i64 = 3600;
/// How long a request may wait for somebody to settle it.
const PENDING_S: i64 = 24 * 3600;

/// Removes it; what cannot be removed now is found again.
pub async fn run(api: &Arc<Api>, snapshot: &Snapshot, now_s: i64) {
    let inside = Inside(api.clone());
    for (place, object) in over(snapshot, now_s) {
        let how = Delete {
            uid: meta::uid(&object).into(),
            resource_version: meta::resource_version(&object).into(),
            propagation: Propagation::Background,
        };
        if let Err(status) = inside.delete(place, how).await {
            tracing::debug!(why = status.message, "cannot remove what is over");
        }
    }
}

/// Everything that is over.
fn over(snapshot: &Snapshot, now_s: i64) -> Vec<(Place, Value)> {
    let requests = objects(snapshot, certificates::GROUP, certificates::PLURAL).into_iter();
    let requests =
        requests.map(|(object, _)| object).filter(|request| is_over(request, now_s)).map(|object| {
            (Place::new(certificates::GROUP, certificates::PLURAL, "", meta::name(&object)), object)
        });
    let prefix = keys::object("", "secrets", bootstrap_token::NAMESPACE, bootstrap_token::SECRET_PREFIX);
    let namespace = keys::namespace("", "secrets", bootstrap_token::NAMESPACE);
    let tokens = snapshot.range(&namespace, "").filter(|entry| entry.key.starts_with(&prefix));
    let tokens = tokens.filter_map(|entry| encode::decode(entry).ok()).filter(|secret| {
        text(secret, "type") == bootstrap_token::SECRET_TYPE && bootstrap_token::expired(secret, now_s)
    });
    let tokens = tokens
        .map(|object| (Place::new("", "secrets", bootstrap_token::NAMESPACE, meta::name(&object)), object));
    requests.chain(tokens).collect()
}

fn is_over(request: &Value, now_s: i64) -> bool {
    let conditions = list(child(request, "status"), "conditions").iter();
    let settled = conditions.filter(|c| matches!(text(c, "type"), "Approved" | "Denied" | "Failed"));
    let settled_s = settled.filter_map(|c| age::seconds(Some(text(c, "lastUpdateTime")))).max();
    let made_s = age::seconds(Some(meta::string(request, "creationTimestamp")));
    let before = |since_s: Option<i64>, kept_s: i64| {
        since_s.is_some_and(|since_s| now_s.saturating_sub(since_s) > kept_s)
    };
    before(settled_s, SETTLED_S) || settled_s.is_none() && before(made_s, PENDING_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_are_kept_for_a_while() {
        let now_s = age::seconds(Some("2026-01-02T00:00:00Z")).expect("a time");
        let check = |made: &str, settled: Option<&str>, expected: bool| {
            let mut request = json!({"metadata": {"creationTimestamp": made}});
            if let Some(settled) = settled {
                request["status"] = json!({"conditions": [{"type": "Denied", "lastUpdateTime": settled}]});
            }
            assert_eq!(is_over(&request, now_s), expected, "{made} {settled:?}");
        };
        check("2026-01-01T00:30:00Z", None, false);
        check("2025-12-31T23:30:00Z", None, true);
        check("2026-01-01T22:00:00Z", Some("2026-01-01T23:30:00Z"), false);
        check("2026-01-01T22:00:00Z", Some("2026-01-01T22:30:00Z"), true);
    }
}
