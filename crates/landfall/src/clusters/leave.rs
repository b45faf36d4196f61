//! `landfall unjoin` and `landfall forget`: how a cluster leaves.
//!
//! The hub's controllers hold a `Cluster` that is deleted until nothing of ours is left there, or everything is let go.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use landfall_api::landfall::{Cluster, SYSTEM_NAMESPACE};
use landfall_runtime::clock;
use serde_json::{Value, json};

use super::hub::{Hub, cluster_path, condition, secret_name, secret_path};
use super::member::Member;
use super::options::{ForgetOptions, UnjoinOptions};
use super::{MANAGER, account};
use crate::edge::install;
use crate::say::say;

const LOOK_EVERY: Duration = Duration::from_millis(500);
const EDGES: &str = "/apis/landfall.dev/v1alpha1/edges";

pub(super) async fn unjoin(options: &UnjoinOptions) -> Result<()> {
    let name = &options.name;
    let hub = Hub::beside(&options.hub, &options.member).await?;
    // Whether the member can be reached is known before anything is taken away.
    let member = match &options.member.context {
        Some(_) => Some(Member::find(&options.member, name).await?),
        None => None,
    };
    if let Some(member) = &member {
        member.look().await?;
    }
    let cluster = hub.expect(name).await?;
    if options.orphan {
        annotate(&hub, name, "landfall.dev/orphan").await?;
    }
    delete(&hub, name, &cluster, options.timeout).await?;
    if let Some(member) = &member {
        install::remove(&member.target).await?;
        account::remove(&member.target).await?;
        say("the hub's account in the member removed");
    }
    Ok(())
}

pub(super) async fn forget(options: &ForgetOptions) -> Result<()> {
    let name = &options.name;
    let hub = Hub::find(&options.connection).await?;
    let cluster = hub.expect(name).await?;
    annotate(&hub, name, "landfall.dev/forget").await?;
    delete(&hub, name, &cluster, options.timeout).await
}

async fn annotate(hub: &Hub, name: &str, annotation: &str) -> Result<()> {
    let fields = json!({"metadata": {"annotations": {annotation: "true"}}});
    hub.target.merge(&cluster_path(name), &fields, MANAGER).await.map(drop)
}

/// Deletes a cluster at the hub, waits until it is gone, and removes what opened it.
async fn delete(hub: &Hub, name: &str, cluster: &Cluster, timeout_s: u64) -> Result<()> {
    if cluster.metadata.deletion_timestamp.is_none() {
        hub.target.remove(&cluster_path(name)).await?;
    }
    wait(hub, name, Duration::from_secs(timeout_s)).await?;
    // A Secret of another name was made by somebody else, and is theirs.
    let ours = cluster.spec.credentials.as_ref().is_some_and(|secret| {
        let namespace = secret.namespace.as_deref().unwrap_or(SYSTEM_NAMESPACE);
        namespace == SYSTEM_NAMESPACE && secret.name == secret_name(name)
    });
    if ours {
        hub.target.remove(&secret_path(name)).await.context("cannot remove its credentials at the hub")?;
    }
    edges(hub, name).await.context("cannot remove its edges at the hub")?;
    say(&format!("cluster.landfall.dev/{name} has left"));
    Ok(())
}

/// Removes the edges of a cluster that has left: those that came in go with it, those that somebody made by hand do not.
async fn edges(hub: &Hub, name: &str) -> Result<()> {
    let list = hub.target.get(EDGES, "application/json").await?;
    let all = list.get("items").and_then(Value::as_array);
    for edge in all.into_iter().flatten().filter(|edge| edge["spec"]["cluster"] == name) {
        if let Some(edge) = edge["metadata"]["name"].as_str() {
            hub.target.remove(&format!("{EDGES}/{edge}")).await?;
        }
    }
    Ok(())
}

/// Waits until a cluster is gone, and tells what still is there.
async fn wait(hub: &Hub, name: &str, timeout: Duration) -> Result<()> {
    let began = clock::instant();
    let (mut told, mut hinted) = (String::new(), false);
    loop {
        let Some(cluster) = hub.cluster(name).await? else { return Ok(()) };
        let left = left(hub, name).await?;
        if left != told {
            say(&format!("waiting for {name}: {left}"));
            told = left;
        }
        let forgotten =
            cluster.metadata.annotations.iter().flatten().any(|(key, _)| key == "landfall.dev/forget");
        let (offline, why) = condition(&cluster, "Offline");
        if offline == "True" && !forgotten && !hinted {
            say(&format!("{name} is offline: {why}. If it never returns: `landfall forget {name}`"));
            hinted = true;
        }
        if began.elapsed() > timeout {
            bail!("{name} has not left after {} s: {told}; it goes on leaving", timeout.as_secs());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What of ours is still in a cluster, in words.
async fn left(hub: &Hub, name: &str) -> Result<String> {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for (kind, _) in hub.shards(name, |_| true).await? {
        *kinds.entry(kind.plural.clone()).or_default() += 1;
    }
    if kinds.is_empty() {
        return Ok("nothing of ours is known to be there".into());
    }
    let each: Vec<String> = kinds.iter().map(|(plural, count)| format!("{count} {plural}")).collect();
    Ok(format!("still there: {}", each.join(", ")))
}
