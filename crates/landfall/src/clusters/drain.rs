//! `landfall cordon`, `uncordon` and `drain`: keeping replicas away from a cluster, and moving them off it.

use std::time::Duration;

use anyhow::{Result, bail};
use landfall_runtime::clock;
use serde_json::{Value, json};

use super::MANAGER;
use super::federated::DRAINED;
use super::hub::{Hub, cluster_path};
use super::options::{CordonOptions, DrainOptions};
use crate::say::say;

const LOOK_EVERY: Duration = Duration::from_millis(500);

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
    let already = hub.expect(name).await?.spec.draining;
    set(&hub, name, &json!({"cordoned": true, "draining": true})).await?;
    tell(name, already, "draining");
    if options.no_wait {
        return Ok(());
    }
    let (began, timeout) = (clock::instant(), Duration::from_secs(options.timeout));
    let mut told = None;
    loop {
        let (replicas, objects) = left(&hub, name).await?;
        if replicas == 0 {
            say(&format!("cluster.landfall.dev/{name} drained"));
            return Ok(());
        }
        if told != Some((replicas, objects)) {
            say(&format!("{name}: {replicas} replicas of {objects} objects left"));
            told = Some((replicas, objects));
        }
        if !hub.expect(name).await?.spec.draining {
            bail!("the drain of {name} was called off");
        }
        if began.elapsed() > timeout {
            bail!("{name} still has {replicas} replicas after {} s; they go on leaving", timeout.as_secs());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
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
