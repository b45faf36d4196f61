//! Membership: whether every member is well, where it stands, and how it leaves.
//!
//! Reads:      Cluster, the Secrets they name; members' /readyz, /version and nodes
//! Decides:    plan::membership
//! Writes:     status of Cluster, its finalizer, Events
//! Wakes on:   a Cluster or its Secret changing, and every probe period (2 s)
//! Guarantees: members are probed beside each other; region and zones survive going offline; a changed address or changed
//!             credentials are used at once; a cluster leaves only after its shards were taken away or let go
//! Limits:     2 s for a probe; of one member as many at once as it takes to find it offline

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use landfall_api::landfall::{ApiProbe, Cluster};
use landfall_plan::membership::{Condition, Health, Probe, State, Thresholds, Truth};
use landfall_runtime::clock;
use serde_json::{Value, json};

use crate::client::{self, Ask, Credentials, Opening, Trouble, ask};
use crate::debts;
use crate::events::{self, Happening};
use crate::facts::{self, Facts};
use crate::federation::{Federation, cluster_key, cluster_row, now_ms, rfc3339};
use crate::member::Member;
use crate::probing;
use crate::propagation;

/// Holds a `Cluster` that is deleted until its shards are gone.
pub const FINALIZER: &str = "landfall.dev/member";
/// Says of a `Cluster` that is deleted: what is there stays.
pub const ORPHAN_ANNOTATION: &str = "landfall.dev/orphan";
/// Says of a `Cluster` that is deleted: it never comes back; what it is owed is dropped.
pub const FORGET_ANNOTATION: &str = "landfall.dev/forget";

const TIMEOUT: Duration = Duration::from_secs(10);
/// How soon a member is asked again whose answer was not the usual one.
const DOUBT: Duration = Duration::from_millis(500);
/// So often a member is asked before it counts as offline, where its `spec.probe` says nothing.
const ATTEMPTS: usize = 3;
/// How often nodes and version are read again.
const FACTS_EVERY_MS: i64 = 30_000;
/// How often the time of the last probe is written when nothing else changed.
const HEARTBEAT_MS: i64 = 60_000;

/// Brings the members in line with the `Cluster` objects; probes the new ones. Whether anything changed that placement
/// looks at: what we write ourselves is no news.
pub fn sync(federation: &Arc<Federation>) -> bool {
    let clusters = federation.clusters.keys();
    let mut members = federation.members.write();
    let mut news = false;
    members.retain(|name, member| {
        let stays = clusters.iter().any(|key| *key.name == **name);
        if !stays {
            member.disconnect();
            member.changed.notify_one();
            news = true;
        }
        stays
    });
    for key in clusters {
        let Some(cluster) = federation.cluster(&key.name) else { continue };
        match members.get(&*key.name) {
            Some(member) => {
                let before = std::mem::replace(&mut *member.cluster.write(), Arc::new(cluster.clone()));
                if wishes(&before) != wishes(&cluster) {
                    member.changed.notify_one();
                    news = true;
                }
            }
            None => {
                news = true;
                let member = Arc::new(Member::new(cluster.clone(), resume(&cluster)));
                members.insert(key.name.to_string(), member.clone());
                let own = federation.clone();
                federation.tasks.spawn_until_stop(async move { watch_over(&own, &member).await });
            }
        }
    }
    news
}

/// What users say about a cluster; the rest is ours.
fn wishes(cluster: &Cluster) -> impl PartialEq {
    let Cluster { metadata, spec, .. } = cluster;
    let (labels, annotations) = (metadata.labels.clone(), metadata.annotations.clone());
    (spec.clone(), labels, annotations, metadata.deletion_timestamp.is_some())
}

/// What the last leader knew. A member that was ready must answer once before it is believed again.
fn resume(cluster: &Cluster) -> Health {
    let mut conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    let offline = conditions.find(|c| c.type_ == "Offline" && c.status == "True");
    match offline {
        Some(condition) => Health::resume(State::Offline, condition.last_transition_time.0.as_millisecond()),
        None => Health::resume(State::Unknown, now_ms()),
    }
}

/// What is kept between two probes of one member.
#[derive(Default)]
struct Round {
    opening: Option<Opening>,
    client: Option<kube::Client>,
    /// The member is connected by this client.
    connected: bool,
    endpoint: usize,
    facts: Option<Facts>,
    facts_ms: i64,
    written: Option<Value>,
    written_ms: i64,
}

async fn watch_over(federation: &Arc<Federation>, member: &Arc<Member>) {
    let mut round = Round::default();
    loop {
        let known =
            federation.members.read().get(&member.name).is_some_and(|known| Arc::ptr_eq(known, member));
        if !known {
            return;
        }
        let cluster = member.cluster.read().clone();
        if !hold(federation, &cluster).await {
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        }
        let began = clock::instant();
        round.look(federation, member, &cluster).await;
        if cluster.metadata.deletion_timestamp.is_some() {
            leave(federation, member, &cluster).await;
        }
        // Who gives a period means it.
        let hurry = cluster.spec.probe.is_none() && member.health.lock().is_in_doubt();
        let period = if hurry { DOUBT } else { settings(&cluster).0 };
        // Woken early when its address or its credentials change; probes do not come faster than four a second. One that
        // waited in vain was part of the period: a machine that says nothing at all is found as soon as one that refuses.
        tokio::time::sleep(Duration::from_millis(250)).await;
        let rest = period.saturating_sub(began.elapsed());
        let _ = tokio::time::timeout(rest, member.changed.notified()).await;
    }
}

/// Period, timeout and thresholds.
fn settings(cluster: &Cluster) -> (Duration, Duration, Thresholds) {
    let probe = cluster.spec.probe.clone().unwrap_or_default();
    let ApiProbe { period_seconds, timeout_seconds, failure_threshold, success_threshold } = probe;
    let number = |given: Option<i32>, default: u32| {
        given.and_then(|n| u32::try_from(n).ok()).unwrap_or(default).max(1)
    };
    let seconds = |given: Option<i32>| Duration::from_secs(u64::from(number(given, 2)));
    let thresholds =
        Thresholds { failures: number(failure_threshold, 3), successes: number(success_threshold, 1) };
    (seconds(period_seconds), seconds(timeout_seconds), thresholds)
}

impl Round {
    async fn look(&mut self, federation: &Arc<Federation>, member: &Arc<Member>, cluster: &Cluster) {
        let (_, timeout, thresholds) = settings(cluster);
        let offline = member.health.lock().state == State::Offline;
        let probes = match self.open(federation, cluster).await {
            Ok(client) => self.ask(cluster, offline, &client, timeout).await,
            Err(problem) => vec![Probe::Unwell(problem)],
        };
        let Some(probe) = probes.last() else { return };
        if matches!(probe, Probe::Unreachable(_)) {
            self.endpoint += 1;
        }
        let (before, health) = {
            let mut health = member.health.lock();
            let before = health.state;
            for probe in &probes {
                *health = health.after(probe, thresholds, now_ms());
            }
            (before, health.clone())
        };
        member.hear(health.state, now_ms());
        self.connect(federation, member, before, &health, probe);
        if health.state != before {
            let members = federation.all_members();
            let ready = members.iter().filter(|member| member.health.lock().state == State::Ready).count();
            federation.metrics.ready.set(i64::try_from(ready).unwrap_or(i64::MAX));
        }
        if health.state == State::Ready && now_ms() - self.facts_ms >= FACTS_EVERY_MS {
            self.read_facts(cluster).await;
        }
        self.tell(federation, member, cluster, before, &health).await;
    }

    /// Asks whether it is well: over the connection that is there, and while that says nothing over others.
    async fn ask(
        &self,
        cluster: &Cluster,
        offline: bool,
        client: &kube::Client,
        timeout: Duration,
    ) -> Vec<Probe> {
        // Who says how it is probed means it: one at a time. One that is offline is in nobody's way.
        let once = cluster.spec.probe.is_some() || cluster.spec.endpoints.len() > 1 || offline;
        let attempt = |number: usize| async move {
            let Some(opening) = self.opening.as_ref().filter(|_| number > 0) else {
                return probing::probe(client, timeout).await;
            };
            match client::open(opening).await {
                Ok(client) => probing::probe(&client, timeout).await,
                Err(error) => Probe::Unreachable(error.to_string()),
            }
        };
        probing::attempts(if once { 1 } else { ATTEMPTS }, attempt).await
    }

    /// The client for the endpoint in turn; a new one when anything about it changed.
    async fn open(&mut self, federation: &Federation, cluster: &Cluster) -> Result<kube::Client, String> {
        let opening = opening(federation, cluster, self.endpoint)?;
        if self.opening.as_ref() != Some(&opening) {
            let client = client::open(&opening).await.map_err(|error| error.to_string())?;
            (self.opening, self.client) = (Some(opening), Some(client));
            (self.connected, self.facts_ms) = (false, 0);
        }
        self.client.clone().ok_or_else(|| "there is no client".to_owned())
    }

    /// Connects a member that is back, and disconnects one that is not there.
    fn connect(
        &mut self,
        federation: &Arc<Federation>,
        member: &Arc<Member>,
        before: State,
        health: &Health,
        probe: &Probe,
    ) {
        match (health.state, before) {
            // Watches must not outlive the credentials they were opened with.
            (State::Ready, _) if *probe == Probe::Well && (!self.connected || member.session().is_none()) => {
                let Some(client) = self.client.clone() else { return };
                member.connect(federation, client);
                self.connected = true;
                federation.look_at_everything();
            }
            // Watches that were let in may not be any more.
            (State::NotReady, before) if before != State::NotReady && matches!(probe, Probe::Refused(_)) => {
                member.disconnect();
                federation.look_at_everything();
            }
            (State::Offline, before) if before != State::Offline => {
                member.disconnect();
                federation.look_at_everything();
            }
            _ => {}
        }
    }

    async fn read_facts(&mut self, cluster: &Cluster) {
        let Some(client) = &self.client else { return };
        self.facts_ms = now_ms();
        match facts::read(client, cluster).await {
            Ok(facts) => self.facts = Some(facts),
            Err(trouble) => {
                tracing::debug!(cluster = cluster.metadata.name, %trouble, "cannot read a member's nodes")
            }
        }
    }

    async fn tell(
        &mut self,
        federation: &Arc<Federation>,
        member: &Member,
        cluster: &Cluster,
        before: State,
        health: &Health,
    ) {
        let mut status = json!({"conditions": conditions(cluster, &health.conditions())});
        if let Some(facts) = &self.facts {
            facts.write(&mut status);
        }
        if let Some(opening) = &self.opening {
            status["endpoint"] = opening.server.clone().into();
        }
        let due = now_ms() - self.written_ms >= HEARTBEAT_MS;
        if self.written.as_ref() == Some(&status) && !due {
            return;
        }
        let mut patch = json!({"status": status.clone()});
        patch["status"]["lastProbeTime"] = rfc3339(health.last_probe_ms).into();
        let path = format!("{}/status", cluster_row().path("", &member.name));
        let request = Ask::with(Method::PATCH, &path, "application/merge-patch+json", &patch);
        match ask(&federation.client, request, TIMEOUT).await {
            Ok(_) => (self.written, self.written_ms) = (Some(status), now_ms()),
            Err(trouble) => {
                tracing::debug!(cluster = member.name, %trouble, "cannot write a cluster's status")
            }
        }
        if health.state != before {
            announce(federation, member, health).await;
        }
    }
}

/// Where a member's API is, and who we are to it.
fn opening(federation: &Federation, cluster: &Cluster, endpoint: usize) -> Result<Opening, String> {
    let spec = &cluster.spec;
    let at = endpoint.checked_rem(spec.endpoints.len()).unwrap_or(0);
    let server = spec.endpoints.get(at).ok_or("spec.endpoints is empty: no address to ask")?.server.clone();
    let credentials = match &spec.credentials {
        None => Credentials::None,
        Some(reference) => {
            let missing = || format!("the Secret {} with its credentials is not there", reference.name);
            let secret =
                federation.secret(reference.namespace.as_deref(), &reference.name).ok_or_else(missing)?;
            Credentials::of_secret(&secret).map_err(|error| error.to_string())?
        }
    };
    let (ca_bundle, tls_server_name) = (spec.ca_bundle.clone(), spec.tls_server_name.clone());
    Ok(Opening { server, ca_bundle, tls_server_name, credentials })
}

fn conditions(cluster: &Cluster, decided: &[Condition]) -> Vec<Value> {
    let generation = cluster.metadata.generation.unwrap_or(0);
    let word = |truth: Truth| match truth {
        Truth::True => "True",
        Truth::False => "False",
        Truth::Unknown => "Unknown",
    };
    let write = |condition: &Condition| {
        json!({
            "type": condition.kind, "status": word(condition.status), "reason": condition.reason.code,
            "message": condition.reason.message, "observedGeneration": generation,
            "lastTransitionTime": rfc3339(condition.since_ms),
        })
    };
    decided.iter().map(write).collect()
}

async fn announce(federation: &Federation, member: &Member, health: &Health) {
    let [ready, _] = health.conditions();
    let (warning, reason) = match health.state {
        State::Ready => (false, "ClusterReady"),
        State::NotReady => (true, "ClusterNotReady"),
        State::Offline => (true, "ClusterOffline"),
        State::Unknown => return,
    };
    tracing::info!(cluster = member.name, reason, message = %ready.reason.message, "a cluster changed");
    say(federation, member, Happening { warning, reason, message: ready.reason.message.into_owned() }).await;
}

/// Tells something about a cluster.
async fn say(federation: &Federation, member: &Member, happening: Happening) {
    let uid = member.cluster.read().metadata.uid.clone().unwrap_or_default();
    let (path, event) = events::event(&cluster_row(), &cluster_key(&member.name), &uid, &happening);
    let request = Ask::with(Method::POST, &path, "application/json", &event);
    let _ = ask(&federation.client, request, TIMEOUT).await;
}

/// Takes hold of a `Cluster` before anything is written to it; whether it is held.
async fn hold(federation: &Federation, cluster: &Cluster) -> bool {
    let finalizers = cluster.metadata.finalizers.clone().unwrap_or_default();
    if finalizers.iter().any(|name| name == FINALIZER) {
        return true;
    }
    if cluster.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let kept: Vec<String> = finalizers.into_iter().chain([FINALIZER.to_owned()]).collect();
    set_finalizers(federation, cluster, &kept).await.is_ok()
}

async fn set_finalizers(federation: &Federation, cluster: &Cluster, kept: &[String]) -> Result<(), Trouble> {
    let name = cluster.metadata.name.as_deref().unwrap_or("");
    let version = cluster.metadata.resource_version.clone().unwrap_or_default();
    let patch = json!({"metadata": {"finalizers": kept, "resourceVersion": version}});
    let path = cluster_row().path("", name);
    let request = Ask::with(Method::PATCH, &path, "application/merge-patch+json", &patch);
    ask(&federation.client, request, TIMEOUT).await.map(drop)
}

/// Whether a `Cluster` that is deleted is never to be asked again.
pub fn forgotten(cluster: &Cluster) -> bool {
    annotated(cluster, FORGET_ANNOTATION)
}

/// Whether what is in a cluster that leaves stays there.
pub fn orphaned(cluster: &Cluster) -> bool {
    annotated(cluster, ORPHAN_ANNOTATION)
}

fn annotated(cluster: &Cluster, name: &str) -> bool {
    let annotations = cluster.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(name)).is_some_and(|value| value == "true")
}

/// Lets a `Cluster` go when nothing of ours is left there.
async fn leave(federation: &Arc<Federation>, member: &Arc<Member>, cluster: &Cluster) {
    if !forgotten(cluster) && shards_left(federation, member) != Some(0) {
        // Every object is looked at again: each takes its own shard away. What nobody knows goes too.
        propagation::take_strays(federation, member);
        federation.look_at_everything();
        return;
    }
    if debts::forgive(&federation.client, &federation.debts, &member.name).await.is_err() {
        return;
    }
    let finalizers = cluster.metadata.finalizers.iter().flatten();
    let kept: Vec<String> = finalizers.filter(|name| *name != FINALIZER).cloned().collect();
    if set_finalizers(federation, cluster, &kept).await.is_ok() {
        member.disconnect();
        federation.look_at_everything();
    }
}

/// How many shards a member has; none when that is not known.
fn shards_left(federation: &Arc<Federation>, member: &Arc<Member>) -> Option<usize> {
    member.session()?;
    let mut left = 0;
    for row in federation.kinds.all() {
        let shelf = member.shelf(federation, row.id);
        if !shelf.synced() {
            return None;
        }
        left += member.shards(federation, row.id).len();
    }
    Some(left)
}
