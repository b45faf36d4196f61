//! `landfall join`: an account for the hub in the member, and a `Cluster` at the hub.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use landfall_api::landfall::{Cluster, SYSTEM_NAMESPACE};
use landfall_api::names;
use landfall_api::rules::read::{child, text};
use landfall_runtime::clock;
use serde_json::{Map, Value, json};

use super::account::{self, Token};
use super::hub::{Hub, cluster_path, condition, name_of, secret_name, secret_path};
use super::member::{Member, Seen, identity};
use super::options::JoinOptions;
use crate::say::say;

/// The annotation of a `Cluster` with the identity it joined with; the hub tells it in the status when it has seen it.
const IDENTITY_ANNOTATION: &str = "landfall.dev/cluster-id";
const REGION_LABEL: &str = "topology.kubernetes.io/region";
/// How long the hub may take to find it ready before we say so.
const READY_TIMEOUT: Duration = Duration::from_secs(15);
const YEAR_S: i64 = 365 * 24 * 3600;
const READY_EVERY: Duration = Duration::from_millis(250);

pub(super) async fn run(options: &JoinOptions) -> Result<()> {
    let name = &options.name;
    if let Some(wrong) = names::dns1035_label(name).into_iter().next() {
        bail!("{name:?} cannot be a cluster's name: {wrong}");
    }
    let hub = Hub::beside(&options.hub, &options.member).await?;
    let member = Member::find(&options.member, name).await?;
    let seen = member.look().await?;
    let server = options.server.as_deref().unwrap_or(&member.server);
    let (hub_id, clusters) = tokio::try_join!(identity(&hub.target), hub.clusters())?;
    if let Some(why) = refusal(name, server, &seen.id, &hub_id, &clusters, options.force) {
        bail!("{why}");
    }
    say(&described(name, server, &seen));
    account::make(&member.target, &options.grants).await?;
    let token = token(&hub, &member, name, &seen.id).await?;
    if let Some(until) = token.expires.as_deref().filter(|until| ends_soon(until, clock::epoch_s())) {
        say(&format!("The member's token for the hub is good until {until}; join again before that."));
    }
    register(options, &hub, &member, &seen, &token.token).await?;
    say(&format!("cluster.landfall.dev/{name} joined"));
    if options.no_wait { Ok(()) } else { wait(&hub, name).await }
}

/// Whether a time is within a year.
fn ends_soon(until: &str, now_s: i64) -> bool {
    landfall_api::age::seconds(Some(until)).is_none_or(|until_s| until_s.saturating_sub(now_s) < YEAR_S)
}

/// Why a member may not join under a name; none when it may.
fn refusal(
    name: &str,
    server: &str,
    id: &str,
    hub_id: &str,
    clusters: &[Cluster],
    force: bool,
) -> Option<String> {
    if id == hub_id {
        return Some("the member is the hub itself; give the member's context with --context".into());
    }
    let same = |cluster: &Cluster| {
        identity_of(cluster).map_or_else(|| leads_to(cluster, server), |known| known == id)
    };
    if let Some(other) = clusters.iter().find(|cluster| name_of(cluster) != name && same(cluster)) {
        let other = name_of(other);
        return Some(format!(
            "this cluster has joined already, as {other:?}; `landfall unjoin {other}` first"
        ));
    }
    let holder = clusters.iter().find(|cluster| name_of(cluster) == name)?;
    if holder.metadata.deletion_timestamp.is_some() {
        return Some(format!("{name:?} is leaving; wait until it has left, or `landfall forget {name}`"));
    }
    (!same(holder) && !force).then(|| {
        format!(
            "another cluster is called {name:?} already; give another name, `landfall unjoin {name}` first, or take \
             the name over with --force"
        )
    })
}

/// The identity that a cluster is known by, if it is: the one it joined with, which a name that was taken over has at
/// once, or the one that the hub has seen.
fn identity_of(cluster: &Cluster) -> Option<&str> {
    let joined = cluster.metadata.annotations.as_ref().and_then(|all| all.get(IDENTITY_ANNOTATION));
    let seen = || cluster.status.as_ref().and_then(|status| status.cluster_id.as_deref());
    joined.map(String::as_str).or_else(seen).filter(|id| !id.is_empty())
}

fn leads_to(cluster: &Cluster, server: &str) -> bool {
    cluster.spec.endpoints.iter().any(|endpoint| endpoint.server == server)
}

fn described(name: &str, server: &str, seen: &Seen) -> String {
    let nodes = if seen.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", seen.nodes) };
    let region = seen.topology.region.as_deref().map(|region| format!(" in {region}")).unwrap_or_default();
    format!("{name}: Kubernetes {} at {server}, {nodes}{region}", seen.version)
}

/// The token that the hub has already, if it still opens the member; else a new one, which must.
async fn token(hub: &Hub, member: &Member, name: &str, id: &str) -> Result<Token> {
    // Whoever may not read what is kept gives a new one.
    let secret = hub.target.glance(&secret_path(name)).await?.flatten();
    let kept = secret.as_ref().and_then(|secret| child(child(secret, "data"), "token").as_str());
    if let Some(kept) = kept.and_then(|data| account::decode(data).ok())
        && identity(&member.with_token(&kept).await?).await.is_ok_and(|found| found == id)
    {
        return Ok(Token { token: kept, expires: None });
    }
    let token = account::token(&member.target).await?;
    let found = identity(&member.with_token(&token.token).await?).await;
    found.context("the member does not accept the token it made for the hub")?;
    Ok(token)
}

async fn register(options: &JoinOptions, hub: &Hub, member: &Member, seen: &Seen, token: &str) -> Result<()> {
    let name = &options.name;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}});
    hub.target.apply(&format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}"), &namespace, true).await?;
    let mut data = Map::new();
    data.insert("token".into(), BASE64.encode(token).into());
    if let Some(authority) = &member.ca_bundle {
        data.insert("ca.crt".into(), authority.as_str().into());
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
        "metadata": {"name": secret_name(name), "namespace": SYSTEM_NAMESPACE},
    });
    keep(hub, name, &secret).await.context("cannot keep the token at the hub")?;
    let cluster = cluster(options, member, seen);
    hub.target
        .apply(&cluster_path(name), &cluster, true)
        .await
        .context("cannot make the Cluster at the hub")?;
    Ok(())
}

async fn keep(hub: &Hub, name: &str, secret: &Value) -> Result<()> {
    let path = secret_path(name);
    match hub.target.glance(&path).await? {
        // Only administrators read members' credentials, and a patch would read; others put theirs in the place of what is there.
        None => {
            hub.target.remove(&path).await?;
            let all = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets");
            return hub.target.post(&all, secret).await.map(drop);
        }
        // A Secret's type cannot be changed: one that was made in another way has to go first.
        Some(Some(before)) if text(&before, "type") != "Opaque" => drop(hub.target.remove(&path).await?),
        Some(_) => {}
    }
    hub.target.apply(&path, secret, true).await.map(drop)
}

fn cluster(options: &JoinOptions, member: &Member, seen: &Seen) -> Value {
    let mut labels = Map::new();
    let region = options.region.as_deref().or(seen.topology.region.as_deref());
    if let Some(region) = region.filter(|region| names::label_value(region).is_empty()) {
        labels.insert(REGION_LABEL.into(), region.into());
    }
    labels.extend(options.labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())));
    let server = options.server.as_deref().unwrap_or(&member.server);
    let mut spec = json!({
        "endpoints": [{"server": server}],
        "credentials": {"namespace": SYSTEM_NAMESPACE, "name": secret_name(&options.name)},
    });
    let given = [
        ("caBundle", member.ca_bundle.clone().map(Value::from)),
        ("tlsServerName", member.tls_server_name.clone().map(Value::from)),
        ("region", options.region.clone().map(Value::from)),
        ("zones", (!options.zones.is_empty()).then(|| json!(options.zones))),
    ];
    for (field, value) in given {
        if let Some(value) = value {
            spec[field] = value;
        }
    }
    json!({
        "apiVersion": "landfall.dev/v1alpha1", "kind": "Cluster", "spec": spec,
        "metadata": {"name": options.name, "labels": labels, "annotations": {IDENTITY_ANNOTATION: seen.id}},
    })
}

/// Waits until the hub has found it ready. If it does not, that is told, and no failure: it has joined.
async fn wait(hub: &Hub, name: &str) -> Result<()> {
    let began = clock::instant();
    let mut told = String::new();
    while began.elapsed() < READY_TIMEOUT {
        let Some(cluster) = hub.cluster(name).await? else {
            bail!("{name} was removed at the hub meanwhile")
        };
        let (status, message) = condition(&cluster, "Ready");
        if status == "True" {
            say(&format!("{name} is ready."));
            return Ok(());
        }
        message.clone_into(&mut told);
        tokio::time::sleep(READY_EVERY).await;
    }
    let why = if told.is_empty() { "nobody has probed it".to_owned() } else { told };
    say(&format!("{name} is not ready yet: {why}. See `landfall status`."));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clusters as `name=identity` or `name@server`; a `~` says that it is leaving.
    #[track_caller]
    fn check(name: &str, id: &str, clusters: &str, force: bool, expected: &str) {
        let one = |word: &str| {
            let (word, leaving) = (word.trim_end_matches('~'), word.ends_with('~'));
            let (name, rest) = word.split_once(['=', '@']).unwrap();
            let mut object = json!({"metadata": {"name": name}, "spec": {}});
            if word.contains('=') {
                object["status"] = json!({"clusterId": rest});
            } else {
                object["spec"]["endpoints"] = json!([{"server": rest}]);
            }
            if leaving {
                object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            serde_json::from_value::<Cluster>(object).unwrap()
        };
        let clusters: Vec<Cluster> = clusters.split_whitespace().map(one).collect();
        let why = refusal(name, "https://a", id, "hub", &clusters, force).unwrap_or_default();
        assert!(
            if expected.is_empty() { why.is_empty() } else { why.contains(expected) },
            "{why:?}, not {expected:?}"
        );
    }

    #[test]
    fn who_may_join() {
        check("a", "1", "", false, "");
        check("a", "1", "a=1 b=2", false, "");
        check("a", "hub", "", true, "the member is the hub itself");
        check("a", "1", "b=1", true, "has joined already, as \"b\"");
        check("a", "1", "b@https://a", false, "has joined already, as \"b\"");
        check("a", "1", "a=2", false, "another cluster is called \"a\" already");
        check("a", "1", "a=2", true, "");
        check("a", "1", "a@https://a", false, "");
        check("a", "1", "a@https://b", false, "another cluster is called \"a\" already");
        check("a", "1", "a=1~", false, "is leaving");
    }
}
