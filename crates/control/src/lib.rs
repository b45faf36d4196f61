//! The reconcilers: observe, ask `plan`, apply. They run in the hub that leads, and stop at once when it leads no longer.
//!
//! ```text
//!   hub's API ──watch──► shelves ─┐                     ┌─► hub (marks, status, Events, debts)
//!                                 ├─► queue ─► look ────┤
//!   members ───watch──► shelves ──┘    (plan decides)   └─► lanes, one per member ─► shards
//!
//!   membership: probes every member beside the others, connects and disconnects them
//! ```
//!
//! Reading order: [`kinds`] (what is federated), [`shelf`] (what is seen), [`watch`], [`federation`] (all that is shared),
//! [`membership`], [`member`] (and its [`brake`]), [`propagation`] (the look), [`warnings`], [`shards`] and [`hub`] (the writes), [`debts`]; [`traffic`] and
//! [`routes`] (what edges are told), [`groups`] (groups of edges: addresses, bindings, claims), [`publish`] (what other DNS
//! servers are told).
//!
//! Deliberately absent: decisions. What becomes of an object is asked of `plan`; what is here gathers, sends and remembers.
//! No memory that a new leader could not rebuild: what must survive stands in objects at the hub and in marks on shards.

pub mod brake;
pub mod client;
pub mod debts;
pub mod events;
pub mod facts;
pub mod federation;
pub mod groups;
pub mod hub;
pub mod kinds;
pub mod lane;
mod lean;
pub mod member;
pub mod membership;
pub mod metrics;
pub mod packed;
mod patience;
pub mod pods;
mod probing;
pub mod propagation;
pub mod publish;
pub mod queue;
pub mod routes;
pub mod shards;
pub mod shelf;
pub mod sources;
pub mod traffic;
pub mod warnings;
pub mod watch;
mod writer;

use std::sync::Arc;

use landfall_runtime::metrics::Registry;

use federation::Federation;
use metrics::Metrics;

/// What the reconcilers are told.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The federation's name: a label that every shard bears, and a part of host names.
    pub federation: String,
    /// The domain under which federated Services have their names; none: they have none.
    pub domain: Option<String>,
    /// How many seconds answers may be kept when no policy says; 180 when not given.
    pub dns_ttl_s: Option<u32>,
    /// Opens other people's etcd, to publish names there; none: that cannot be done here.
    pub keys: Option<publish::skydns::OpenKeys>,
    /// Makes tokens that edges come in with; none: groups are not run in members.
    pub mint: Option<groups::Mint>,
}

impl Config {
    /// The label selector of our shards.
    pub fn shard_labels(&self) -> String {
        format!("{}={}", landfall_plan::propagation::FEDERATION_LABEL, self.federation)
    }

    /// The name of a federated Service.
    pub fn hostname(&self, name: &str, namespace: &str) -> Option<String> {
        Some(format!("{name}.{namespace}.{}.{}", self.federation, self.domain.as_ref()?))
    }
}

/// Runs all reconcilers against the hub that `config` connects to, until dropped.
pub async fn run(config: Config, hub: &kube::Config, registry: &Registry) {
    let client = match client::connect(hub) {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(%error, "cannot talk to our own API");
            return;
        }
    };
    let federation = Arc::new(Federation::new(config, client, Metrics::new(registry)));
    // Whatever was begun is dropped with this future.
    let _stop = Stop(federation.clone());
    sources::follow(&federation).await;
    let own = federation.clone();
    // Beside propagation: a verdict does not wait for shards.
    federation.tasks.spawn_until_stop(async move { traffic::run(&own).await });
    let own = federation.clone();
    federation.tasks.spawn_until_stop(async move { routes::run(&own).await });
    let own = federation.clone();
    federation.tasks.spawn_until_stop(async move { groups::run(&own).await });
    // Beside it as well: other people's servers may be slow.
    tokio::join!(propagation::run(&federation), publish::run(&federation, registry));
}

struct Stop(Arc<Federation>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.tasks.stop();
        for member in self.0.all_members() {
            member.disconnect();
        }
    }
}
