//! The hub's account in a member: who it is there, and what it may do.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use landfall_api::landfall::SYSTEM_NAMESPACE;
use landfall_api::rules::read::{child, text};
use landfall_control::kinds::Kinds;
use landfall_runtime::clock;
use serde_json::{Value, json};

use crate::basics::target::Target;

/// The name of everything that is made in a member.
const NAME: &str = "landfall-hub";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// How long the member's controller may take to make the token.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(5);
const TOKEN_EVERY: Duration = Duration::from_millis(100);
/// How long a token shall be good that has to be asked for: ten years. The member may make it less.
const TOKEN_LIFE_S: i64 = 10 * 365 * 24 * 3600;

/// Everything that is done to federated objects.
const MANAGE: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];
const READ: &[&str] = &["get", "list", "watch"];
/// What the hub only looks at.
const LOOKED_AT: &[(&str, &[&str])] = &[
    ("", &["pods", "persistentvolumeclaims", "nodes", "events", "endpoints"]),
    ("events.k8s.io", &["events"]),
    ("discovery.k8s.io", &["endpointslices"]),
];
const PROBED: &[&str] = &["/healthz", "/readyz", "/livez", "/version"];

/// A token, and until when it is good, if that is known to end.
pub(super) struct Token {
    pub(super) token: String,
    pub(super) expires: Option<String>,
}

/// Makes the account, or brings it up to date.
pub(super) async fn make(member: &Target, grants: &[(String, String)]) -> Result<()> {
    for (path, object) in objects(grants) {
        let what = text(&object, "kind").to_owned();
        member
            .apply(&path, &object, true)
            .await
            .with_context(|| format!("cannot make the {what} in the member"))?;
    }
    Ok(())
}

/// Removes the account; the namespace stays, for it may hold more than ours.
pub(super) async fn remove(member: &Target) -> Result<()> {
    let account = objects(&[]);
    let last_first = account.iter().rev().filter(|(_, object)| text(object, "kind") != "Namespace");
    for (path, object) in last_first {
        let what = text(object, "kind");
        member.remove(path).await.with_context(|| format!("cannot remove the {what} in the member"))?;
    }
    Ok(())
}

/// A token for the account: a lasting one, made by the member's token controller, or one that is asked for.
pub(super) async fn token(member: &Target) -> Result<Token> {
    let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/{NAME}");
    let began = clock::instant();
    while began.elapsed() < TOKEN_TIMEOUT {
        let secret = member.get(&path, "application/json").await?;
        if let Some(token) = child(child(&secret, "data"), "token").as_str() {
            return Ok(Token { token: decode(token)?, expires: None });
        }
        tokio::time::sleep(TOKEN_EVERY).await;
    }
    let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts/{NAME}/token");
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "metadata": {"name": NAME}, "spec": {"expirationSeconds": TOKEN_LIFE_S},
    });
    let answer = member.post(&path, &request).await.context("cannot get a token for the account")?;
    let status = child(&answer, "status");
    let token = text(status, "token").to_owned();
    ensure!(!token.is_empty(), "the member made no token for the account");
    Ok(Token { token, expires: child(status, "expirationTimestamp").as_str().map(str::to_owned) })
}

/// The token in a Secret's data.
pub(super) fn decode(data: &str) -> Result<String> {
    let bytes = BASE64.decode(data).context("the token is not base64")?;
    String::from_utf8(bytes).context("the token is not text")
}

/// What is made in a member, in order.
fn objects(grants: &[(String, String)]) -> Vec<(String, Value)> {
    let inside = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}");
    let metadata = |namespaced: bool| {
        let labels = json!({"app.kubernetes.io/managed-by": "landfall"});
        let namespace = namespaced.then_some(SYSTEM_NAMESPACE);
        json!({"name": NAME, "namespace": namespace, "labels": labels})
    };
    let mut secret = metadata(true);
    secret["annotations"] = json!({"kubernetes.io/service-account.name": NAME});
    vec![
        (
            inside.clone(),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}),
        ),
        (
            format!("{inside}/serviceaccounts/{NAME}"),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(true)}),
        ),
        (
            format!("{RBAC}/clusterroles/{NAME}"),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata(false),
                "rules": rules(grants),
            }),
        ),
        (
            format!("{RBAC}/clusterrolebindings/{NAME}"),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": metadata(false),
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
                "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": SYSTEM_NAMESPACE}],
            }),
        ),
        (
            format!("{inside}/secrets/{NAME}"),
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": secret,
                "type": "kubernetes.io/service-account-token",
            }),
        ),
    ]
}

/// What the hub may do: manage federated kinds and what was granted, look at a few more, and probe.
fn rules(grants: &[(String, String)]) -> Vec<Value> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    let kinds = Kinds::default().all();
    let built_in = kinds.iter().map(|row| (row.group.as_str(), row.plural.as_str()));
    let granted = grants.iter().map(|(plural, group)| (group.as_str(), plural.as_str()));
    for (group, plural) in built_in.chain(granted) {
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, resources)) => resources.push(plural),
            None => groups.push((group, vec![plural])),
        }
    }
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let managed = groups.iter().map(|(group, resources)| rule(group, resources, MANAGE));
    let read = LOOKED_AT.iter().map(|(group, resources)| rule(group, resources, READ));
    let probed = json!({"nonResourceURLs": PROBED, "verbs": ["get"]});
    managed.chain(read).chain([probed]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_privilege() {
        let rules = rules(&[("widgets".into(), "example.com".into())]);
        let text = serde_json::to_string(&rules).unwrap();
        assert!(!text.contains('*'), "no wildcards: {text}");
        for word in
            ["rbac.authorization.k8s.io", "roles", "escalate", "bind", "impersonate", "exec", "tokenreviews"]
        {
            assert!(!text.contains(word), "{word}: {text}");
        }
        let writes = |plural: &str| {
            let names =
                |rule: &&Value| rule["resources"].as_array().is_some_and(|all| all.contains(&plural.into()));
            let verbs = |rule: &Value| rule["verbs"].as_array().unwrap().contains(&"create".into());
            rules.iter().find(names).map(verbs)
        };
        assert_eq!((writes("deployments"), writes("widgets")), (Some(true), Some(true)));
        assert_eq!((writes("pods"), writes("nodes")), (Some(false), Some(false)));
    }
}
