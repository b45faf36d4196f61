//! `Voice`: tells clients where plans send them, by answering names.
//!
//! Only what has changed since the last time is compiled again. Load balancers that have host names instead of addresses are
//! resolved beside that, again and again, and what was found last is answered with.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt as _, stream};
use imbl::ordmap::DiffItem;
use landfall_api::landfall::TrafficPlanSpec;
use landfall_dns::{Config, Server};
use landfall_plan::records::Resolved;
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;
use parking_lot::Mutex;
use tokio::net::lookup_host;
use tokio::sync::Notify;

use super::book::Plans;
use super::core;

/// How often host names of load balancers are resolved, and how long that may take.
const RESOLVE_EVERY: Duration = Duration::from_secs(20);
const RESOLVE_MAX: Duration = Duration::from_secs(5);
/// So many are resolved at once, and so many are known at most.
const TOGETHER_MAX: usize = 16;
const HOSTS_MAX: usize = 10_000;

/// Tells clients where to go.
pub(crate) struct Voice {
    /// None where no names are answered.
    server: Option<Server>,
    spoken: Mutex<Spoken>,
    /// There may be host names that were never resolved.
    news: Notify,
}

/// What is answered now.
#[derive(Default)]
struct Spoken {
    plans: Plans,
    resolved: Resolved,
}

impl Voice {
    /// Answers names as an edge was told to.
    pub(crate) fn start(edge: &core::Config, registry: &Registry, tasks: &Tasks) -> Result<Self> {
        let config = Config {
            listen: edge.dns.clone(),
            listen_inside: edge.dns_inside.clone(),
            threads: edge.dns_threads,
            cluster: Some(edge.cluster.clone()),
            inside: edge.inside.clone(),
            nsid: Some(edge.name.clone()),
            keys: edge.transfer_keys.clone(),
            secondaries: edge.secondaries.clone(),
            world: edge.geo_database.clone(),
            ..Config::default()
        };
        let silent = edge.dns.is_empty() && edge.dns_inside.is_empty();
        let server = if silent { None } else { Some(landfall_dns::start(&config, tasks, registry)?) };
        Ok(Self { server, spoken: Mutex::default(), news: Notify::new() })
    }

    /// Follows these plans from now on.
    pub(crate) fn publish(&self, plans: &Plans) {
        let mut spoken = self.spoken.lock();
        let before = std::mem::replace(&mut spoken.plans, plans.clone());
        let Some(server) = &self.server else { return };
        let Some(federation) = &plans.federation else { return };
        let same = before.federation.as_ref().is_some_and(|old| Arc::ptr_eq(old, federation));
        let known = before.federation.is_some() && (same || server.federation(federation));
        if known {
            change(server, &before, plans);
        } else {
            speak_anew(server, &spoken);
        }
        drop(spoken);
        self.news.notify_one();
    }

    /// The plans that are followed.
    pub(crate) fn followed(&self) -> Plans {
        self.spoken.lock().plans.clone()
    }

    /// Where names are answered.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        self.server.as_ref().map(|server| server.addresses()).unwrap_or_default()
    }

    /// Resolves host names of load balancers, for ever.
    pub(crate) async fn resolve(&self) {
        loop {
            let (plans, known) = {
                let spoken = self.spoken.lock();
                (spoken.plans.clone(), spoken.resolved.clone())
            };
            let wanted: BTreeSet<String> = hosts(&plans).take(HOSTS_MAX).map(str::to_owned).collect();
            let found = found(wanted, &known).await;
            if found != known {
                let mut spoken = self.spoken.lock();
                spoken.resolved = found;
                if let Some(server) = self.server.as_ref().filter(|_| spoken.plans.federation.is_some()) {
                    speak_anew(server, &spoken);
                }
            }
            let new = async {
                loop {
                    self.news.notified().await;
                    let spoken = self.spoken.lock();
                    if hosts(&spoken.plans).any(|host| !spoken.resolved.contains_key(host)) {
                        return;
                    }
                }
            };
            // A name that cannot be resolved is not asked for over and over.
            let pause = tokio::time::sleep(Duration::from_secs(1));
            pause.await;
            let _ = tokio::time::timeout(RESOLVE_EVERY, new).await;
        }
    }
}

fn speak_anew(server: &Server, spoken: &Spoken) {
    let Some(federation) = &spoken.plans.federation else { return };
    let plans = spoken.plans.services.iter().map(|((namespace, _), plan)| (namespace.as_str(), &**plan));
    server.publish(federation, plans, spoken.resolved.clone());
}

/// Compiles what differs.
fn change(server: &Server, before: &Plans, now: &Plans) {
    let differs = before.services.diff(&now.services).filter_map(|item| match item {
        DiffItem::Add((namespace, _), plan) => Some((namespace, service(plan), Some(&**plan))),
        DiffItem::Update { old: (_, old), new: ((namespace, _), plan) } => {
            (!Arc::ptr_eq(old, plan)).then(|| (namespace, service(plan), Some(&**plan)))
        }
        DiffItem::Remove((namespace, _), plan) => Some((namespace, service(plan), None)),
    });
    let differs: Vec<_> = differs.map(|(namespace, name, plan)| (namespace.as_str(), name, plan)).collect();
    if !differs.is_empty() {
        server.change(differs);
    }
}

fn service(plan: &TrafficPlanSpec) -> &str {
    &plan.target_ref.name
}

/// Host names that load balancers have.
fn hosts(plans: &Plans) -> impl Iterator<Item = &str> {
    let clusters = plans.services.values().flat_map(|plan| &plan.clusters);
    let addresses = clusters.flat_map(|cluster| cluster.addresses.iter().chain(&cluster.ingress_addresses));
    addresses.filter(|address| address.ip.is_none()).filter_map(|address| address.hostname.as_deref())
}

/// What they resolve to. What cannot be resolved now is as it was: an outage of somebody else's DNS must not become ours.
async fn found(wanted: BTreeSet<String>, known: &Resolved) -> Resolved {
    let looks: Vec<_> = wanted.into_iter().map(|host| async { (look(&host).await, host) }).collect();
    let mut looks = stream::iter(looks).buffer_unordered(TOGETHER_MAX);
    let mut found = Resolved::new();
    while let Some((addresses, host)) = looks.next().await {
        let addresses = addresses.or_else(|| known.get(&host).cloned()).unwrap_or_default();
        found.insert(host, addresses);
    }
    found
}

async fn look(host: &str) -> Option<Vec<IpAddr>> {
    let found = tokio::time::timeout(RESOLVE_MAX, lookup_host((host, 0))).await.ok()?.ok()?;
    let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    (!addresses.is_empty()).then_some(addresses)
}
