//! Edges of groups: in every simulated cluster where an IngressReplicaSet has an address, as many as it asks for. Elsewhere the hub's
//! StatefulSets and kubelets do that.
//!
//! ```text
//!   IngressVIPRange of each cluster (made here) ──► hub ──► IngressReplicaSet with addresses ──► edges started and stopped
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event};
use landfall_api::landfall::{
    API_VERSION, Address, GROUP, IngressReplicaSetSpec, IngressReplicaSetStatus, VERSION,
};
use landfall_health::{Road, Source};
use landfall_runtime::tasks::Tasks;
use landfall_sim::gate::{Gate, Origin, Passage};
use landfall_sim::world::{Site, World};
use serde_json::json;
use tokio::sync::watch;

use super::edges::{self, ADMIN_PORT, HTTP_PORT, HTTPS_PORT, Roads};
use super::home::Home;
use crate::basics::target::Target;
use crate::edge::carrier::Carriage;
use crate::edge::core::Config;
use crate::edge::vips::Keeping;

/// Between two attempts.
const RETRY: Duration = Duration::from_secs(1);
/// Edges of a group in one cluster when it does not say.
const REPLICAS: i32 = 2;

/// An edge that should be: of which group, in which cluster, and which one of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Post {
    group: String,
    cluster: String,
    number: i32,
}

/// An edge that is.
struct Manned {
    /// The place of its address among those of the cluster.
    place: u32,
    /// It leaves for good when it is told so here, and stops when this is dropped.
    leave: watch::Sender<bool>,
}

/// All edges of groups.
struct Crew {
    home: PathBuf,
    hub: Arc<Target>,
    world: Arc<World>,
    road: Arc<dyn Road>,
    groups: BTreeMap<String, DynamicObject>,
    /// The groups of a list that has not ended yet.
    listed: Option<BTreeMap<String, DynamicObject>>,
    posts: BTreeMap<Post, Manned>,
    /// Each gives its post when it has ended.
    lives: FuturesUnordered<BoxFuture<'static, Post>>,
}

/// Gives every cluster a range of addresses, and runs edges for groups that have some, until the tasks stop.
pub(super) async fn start(home: &Home, hub: Target, world: &Arc<World>, tasks: &Tasks) -> Result<()> {
    for site in world.sites() {
        let name = site.member.name();
        let range = json!({
            "apiVersion": API_VERSION, "kind": "IngressVIPRange", "metadata": {"name": name},
            "spec": {"cidrs": [site.block().virtual_ips().to_string()], "clusters": {"names": [name]}},
        });
        hub.apply(&format!("/apis/{API_VERSION}/ingressvipranges/{name}"), &range, true)
            .await
            .with_context(|| format!("no virtual IPs for {name}"))?;
    }
    let crew = Crew {
        home: home.join(""),
        hub: Arc::new(hub),
        world: world.clone(),
        road: Arc::new(Roads::of(world)),
        groups: BTreeMap::new(),
        listed: None,
        posts: BTreeMap::new(),
        lives: FuturesUnordered::new(),
    };
    let stopping = tasks.stopping();
    tasks.spawn(crew.run(stopping));
    Ok(())
}

impl Crew {
    async fn run(mut self, stop: impl Future<Output = ()> + Send) {
        let kind = GroupVersionKind::gvk(GROUP, VERSION, "IngressReplicaSet");
        let resource = ApiResource::from_gvk_with_plural(&kind, "ingressreplicasets");
        let api: Api<DynamicObject> = Api::all_with(self.hub.client(), &resource);
        let mut events = watcher::watcher(api, watcher::Config::default()).boxed();
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => self.hear(event),
                    Some(Err(error)) => {
                        tracing::debug!(%error, "a watch of groups failed and is begun again");
                        tokio::time::sleep(RETRY).await;
                    }
                    None => return,
                },
                Some(post) = self.lives.next() => drop(self.posts.remove(&post)),
                () = &mut stop => break,
            }
            self.settle();
        }
        // The playground ends: they stop, and are not forgotten.
        self.groups.clear();
        self.posts.clear();
        while self.lives.next().await.is_some() {}
    }

    fn hear(&mut self, event: Event<DynamicObject>) {
        let name = |group: &DynamicObject| group.metadata.name.clone().unwrap_or_default();
        match event {
            Event::Init => self.listed = Some(BTreeMap::new()),
            Event::InitApply(group) => {
                self.listed.get_or_insert_default().insert(name(&group), group);
            }
            Event::InitDone => self.groups = self.listed.take().unwrap_or_default(),
            Event::Apply(group) => {
                self.groups.insert(name(&group), group);
            }
            Event::Delete(group) => {
                self.groups.remove(&name(&group));
            }
        }
    }

    /// Starts what should be, and lets leave what should not.
    fn settle(&mut self) {
        let wanted: BTreeSet<Post> = self.groups.values().flat_map(posts).collect();
        for (post, manned) in &self.posts {
            if !wanted.contains(post) {
                manned.leave.send_replace(true);
            }
        }
        for post in wanted {
            if !self.posts.contains_key(&post) {
                self.man(post);
            }
        }
    }

    fn man(&mut self, post: Post) {
        let world = self.world.clone();
        let Some(at) = world.sites().iter().position(|site| site.member.name() == post.cluster) else {
            return;
        };
        let room = world.sites()[at].block().group_edges();
        let near: BTreeSet<u32> = self
            .posts
            .iter()
            .filter(|(other, _)| other.cluster == post.cluster)
            .map(|(_, one)| one.place)
            .collect();
        let Some(place) = (0..room.count()).find(|place| !near.contains(place)) else {
            return tracing::warn!(
                cluster = post.cluster,
                group = post.group,
                "no address is left for an edge"
            );
        };
        let (leave, left) = watch::channel(false);
        self.posts.insert(post.clone(), Manned { place, leave });
        let (home, hub, road) = (self.home.clone(), self.hub.clone(), self.road.clone());
        let life = async move {
            let site = &world.sites()[at];
            if let Err(error) = serve(&post, site, place, (&home, &hub, &road), left).await {
                let error = format!("{error:#}");
                tracing::warn!(
                    group = post.group,
                    cluster = post.cluster,
                    error,
                    "an edge of a group has trouble"
                );
                tokio::time::sleep(RETRY).await;
            }
            post
        };
        self.lives.push(life.boxed());
    }
}

/// The edges that a group should have in this playground.
fn posts(group: &DynamicObject) -> Vec<Post> {
    let read = |field: &str| group.data.get(field).cloned().unwrap_or_default();
    let spec: IngressReplicaSetSpec = serde_json::from_value(read("spec")).unwrap_or_default();
    let status: IngressReplicaSetStatus = serde_json::from_value(read("status")).unwrap_or_default();
    if group.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let name = group.metadata.name.clone().unwrap_or_default();
    let clusters: BTreeSet<String> = status.vips.into_iter().map(|vip| vip.cluster).collect();
    let each = |cluster: String| {
        let group = name.clone();
        let all = 0..spec.replicas.unwrap_or(REPLICAS);
        all.map(move |number| Post { group: group.clone(), cluster: cluster.clone(), number })
    };
    clusters.into_iter().flat_map(each).collect()
}

/// Runs an edge until it should leave for good, and then forgets it; or until nobody can tell it so any more. A cluster that is cut
/// off from the hub is not told to start or to end anything.
async fn serve(
    post: &Post,
    site: &Site,
    place: u32,
    (home, hub, road): (&Path, &Target, &Arc<dyn Road>),
    left: watch::Receiver<bool>,
) -> Result<()> {
    let told = site.gate().until(|faults| faults.passage(Origin::Hub) == Passage::Open);
    tokio::select! {
        () = told => {}
        _ = over(left.clone(), site.gate()) => return Ok(()),
    }
    let token = edges::token(hub, site).await.context("no token")?;
    let own = site.block().group_edges().get(place).context("no address")?;
    let config = config(edges::config(home, site, &token, road), post, own);
    let (name, data_dir) = (config.name.clone(), config.data_dir.clone());
    let mut for_good = None;
    edges::live(config, site.gate(), async { for_good = Some(over(left, site.gate()).await) }).await;
    match for_good {
        Some(true) => {
            hub.remove(&format!("/apis/{API_VERSION}/edges/{name}")).await?;
            std::fs::remove_dir_all(&data_dir)
                .with_context(|| format!("cannot remove {}", data_dir.display()))
        }
        Some(false) => Ok(()),
        None => anyhow::bail!("{name} ended"),
    }
}

/// Waits until an edge should end; whether for good.
async fn over(mut left: watch::Receiver<bool>, gate: &Gate) -> bool {
    if left.wait_for(|left| *left).await.is_err() {
        return false;
    }
    tokio::select! {
        () = gate.until(|faults| faults.passage(Origin::Hub) == Passage::Open) => true,
        // Nobody is left who could say anything.
        () = async { while left.changed().await.is_ok() {} } => false,
    }
}

/// As the edge of its cluster, at an address of its own and for its group.
fn config(like: Config, post: &Post, own: Ipv4Addr) -> Config {
    let at = |port: u16| SocketAddr::from((own, port));
    let name = format!("{}-{}-{}", post.group, post.cluster, post.number);
    let doors = vec![at(HTTP_PORT), at(HTTPS_PORT)];
    Config {
        data_dir: like.data_dir.with_file_name(&name),
        name,
        group: Some(post.group.clone()),
        dns: Vec::new(),
        admin: Some(at(ADMIN_PORT)),
        addresses: vec![Address { ip: Some(own.to_string()), hostname: None }],
        link_addresses: vec![own.into()],
        keeping: Keeping::Loopback(doors),
        // Other members come in through the edge of the cluster.
        peer_address: None,
        source: Source { address: Some(own.into()), ..like.source },
        carriage: Carriage {
            http: vec![at(HTTP_PORT)],
            https: vec![at(HTTPS_PORT)],
            peer: Vec::new(),
            ports_on: Vec::new(),
            ..like.carriage
        },
        ..like
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn edges_are_where_addresses_are() {
        let check = |group: Value, expected: &str| {
            let group: DynamicObject = serde_json::from_value(group).unwrap();
            let one = |post: &Post| format!("{}-{}-{}", post.group, post.cluster, post.number);
            assert_eq!(posts(&group).iter().map(one).collect::<Vec<_>>().join(" "), expected);
        };
        let vips =
            json!([{"address": "127.1.0.129", "cluster": "a"}, {"address": "127.1.16.129", "cluster": "b"}]);
        let mut group = json!({"metadata": {"name": "g"}, "spec": {"replicas": 1}, "status": {"vips": vips}});
        check(group.clone(), "g-a-0 g-b-0");
        group["spec"] = json!({});
        check(group.clone(), "g-a-0 g-a-1 g-b-0 g-b-1");
        group["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        check(group, "");
        check(json!({"metadata": {"name": "g"}, "spec": {"replicas": 3}}), "");
    }
}
