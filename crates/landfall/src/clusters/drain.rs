//! `landfall cordon`, `uncordon` and `drain`: keeping traffic and replicas away from a cluster, and moving them off it.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use landfall_api::landfall::{Cluster, Edge, ServiceLoad, TrafficPlan};
use landfall_plan::Reason;
use landfall_plan::drain::{Standing, standing};
use landfall_runtime::clock;
use serde_json::{Value, json};

use super::MANAGER;
use super::federated::DRAINED;
use super::hub::{Hub, cluster_path, condition};
use super::options::{CordonOptions, DrainOptions};
use crate::say::say;

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// So many looks in a row must find no room elsewhere.
const CROWDED_LOOKS: u32 = 4;
/// Reasons that are told.
const OBSTACLES_TOLD: usize = 3;

pub(super) async fn cordon(options: &CordonOptions) -> Result<()> {
    let hub = Hub::find(&options.connection).await?;
    let already = hub.expect(&options.name).await?.spec.cordoned;
    set(&hub, &options.name, &json!({"cordoned": true})).await?;
    tell(&options.name, already, "cordoned");
    Ok(())
}

pub(super) async fn uncordon(options: &CordonOptions) -> Result<()> {
    let hub = Hub::find(&options.connection).await?;
    let spec = hub.expect(&options.name).await?.spec;
    set(&hub, &options.name, &json!({"cordoned": null, "draining": null})).await?;
    tell(&options.name, !spec.cordoned && !spec.draining, "uncordoned");
    Ok(())
}

pub(super) async fn drain(options: &DrainOptions) -> Result<()> {
    let name = &options.name;
    let hub = Hub::find(&options.connection).await?;
    let before = hub.expect(name).await?.spec;
    if !options.force {
        let standing = traffic(&hub, name).await?;
        if !standing.obstacles.is_empty() {
            bail!("{name} is not drained: {}. --force drains it nevertheless", told(&standing.obstacles));
        }
    }
    set(&hub, name, &json!({"cordoned": true, "draining": true})).await?;
    tell(name, before.draining, "draining");
    if options.no_wait {
        return Ok(());
    }
    let watched = watch(&hub, options).await;
    if let Err(Stopped::NoRoom(why)) = watched {
        // As it was: what has moved already moves back in its own time.
        set(&hub, name, &json!({"cordoned": before.cordoned.then_some(true), "draining": null})).await?;
        bail!("the drain of {name} is called off: {why}");
    }
    match watched {
        Ok(()) => say(&format!("cluster.landfall.dev/{name} drained")),
        Err(Stopped::Other(error)) => return Err(error),
        Err(Stopped::NoRoom(_)) => {}
    }
    Ok(())
}

/// Why a drain is not waited for any longer.
enum Stopped {
    /// The others have no room.
    NoRoom(String),
    /// Something else.
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Stopped {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

/// Waits until nothing is left, and tells how far it is: by what edges measure, and by replicas.
async fn watch(hub: &Hub, options: &DrainOptions) -> Result<(), Stopped> {
    let name = &options.name;
    let (began, timeout) = (clock::instant(), Duration::from_secs(options.timeout));
    let (mut before, mut crowded) = (String::new(), 0);
    loop {
        let (replicas, objects) = left(hub, name).await?;
        let standing = traffic(hub, name).await?;
        if replicas == 0 && standing.is_quiet() {
            return Ok(());
        }
        let progress = progress(name, &standing, replicas, objects);
        if progress != before {
            say(&progress);
            before = progress;
        }
        // One look may fall between what was measured there and what was measured here.
        crowded = if standing.obstacles.is_empty() { 0 } else { crowded + 1 };
        if crowded >= CROWDED_LOOKS && !options.force {
            return Err(Stopped::NoRoom(told(&standing.obstacles)));
        }
        if !hub.expect(name).await?.spec.draining {
            return Err(anyhow!("the drain of {name} was called off").into());
        }
        if began.elapsed() > timeout {
            let waited = timeout.as_secs();
            return Err(anyhow!("{before} after {waited} s; they go on leaving").into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn progress(name: &str, standing: &Standing, replicas: u64, objects: usize) -> String {
    let replicas = format!("{replicas} replicas of {objects} objects left");
    if standing.is_quiet() {
        return format!("{name}: {replicas}");
    }
    // In steps that mean something.
    let rate = standing.requests_per_second.ceil();
    format!("{name}: {rate} requests/s of {} services and {replicas}", standing.services)
}

fn told(obstacles: &[Reason]) -> String {
    let mut words: Vec<String> =
        obstacles.iter().take(OBSTACLES_TOLD).map(|one| one.message.to_string()).collect();
    if obstacles.len() > words.len() {
        words.push(format!("and {} more", obstacles.len() - words.len()));
    }
    words.join("; ")
}

/// What edges carry to a cluster, and whether it can go elsewhere.
async fn traffic(hub: &Hub, name: &str) -> Result<Standing> {
    let plans: Vec<TrafficPlan> = hub.list("trafficplans").await?;
    let edges: Vec<Edge> = hub.list("edges").await?;
    let federation = plans.iter().find_map(|plan| plan.spec.federation.as_ref());
    let alive = |edge: &&Edge| {
        let roster = federation.map(|federation| federation.edges.as_slice()).unwrap_or_default();
        roster.iter().any(|known| known.alive && Some(&known.name) == edge.metadata.name.as_ref())
    };
    let loads: Vec<ServiceLoad> = edges
        .iter()
        .filter(alive)
        .flat_map(|edge| edge.status.iter().flat_map(|status| status.services.clone()))
        .collect();
    let names: Vec<String> = plans
        .iter()
        .map(|plan| {
            let of = &plan.metadata;
            format!("{}/{}", of.namespace.as_deref().unwrap_or(""), of.name.as_deref().unwrap_or(""))
        })
        .collect();
    let plans = names.iter().map(String::as_str).zip(plans.iter().map(|plan| &plan.spec));
    let clusters: Vec<Cluster> = hub.list("clusters").await?;
    let ready = clusters.iter().filter(|cluster| condition(cluster, "Ready").0 == "True");
    let ready = ready.filter_map(|cluster| cluster.metadata.name.clone()).collect();
    Ok(standing(name, plans, &loads, &ready))
}

async fn set(hub: &Hub, name: &str, spec: &Value) -> Result<()> {
    hub.target.merge(&cluster_path(name), &json!({"spec": spec}), MANAGER).await.map(drop)
}

fn tell(name: &str, already: bool, what: &str) {
    let already = if already { "already " } else { "" };
    say(&format!("cluster.landfall.dev/{name} {already}{what}"));
}

/// How many replicas of how many objects a cluster still has.
async fn left(hub: &Hub, name: &str) -> Result<(u64, usize)> {
    let shards = hub.shards(name, |kind| DRAINED.contains(&kind.kind.as_str())).await?;
    let there = shards.iter().map(|(_, line)| u64::from(line.replicas)).filter(|count| *count > 0);
    let there: Vec<u64> = there.collect();
    Ok((there.iter().sum(), there.len()))
}
