//! One look at one service: gathers, asks `plan`, has its plan written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use landfall_api::landfall::{
    AffinityMode, LocalityBy, ObjectReference, PlanCluster, PlanVote, SessionAffinity, TrafficPlan,
    TrafficPlanSpec, TrafficPolicySpec, Verdict,
};
use landfall_api::rules::read::{child, text};
use landfall_plan::quorum::{self, Case, Ruling, Witness};
use landfall_plan::traffic::policies::{Subject, pick};
use landfall_plan::traffic::summary::summary;
use landfall_plan::traffic::{Candidate, Question, canary, capacity, fence, plan, probe, settled_load};
use serde_json::{Value, json};

use super::edges::Demand;
use super::geography::Facts;
use super::write::{Work, submit};
use super::{NOWHERE, SOON, gather};
use crate::events::Happening;
use crate::federation::{Federation, now_ms};
use crate::kinds::{self, PLANS};
use crate::shelf::{Key, Seen};

/// The plan before, and where it stands.
struct Before {
    seen: Arc<Seen>,
    /// None where it is about another service of the same name, or cannot be read.
    spec: Option<TrafficPlanSpec>,
}

/// What was decided about a service.
struct Decided {
    spec: TrafficPlanSpec,
    happenings: Vec<Happening>,
    again_ms: Option<i64>,
}

/// Looks at one service.
pub(super) fn look(federation: &Arc<Federation>, key: &Key) {
    let traffic = &federation.traffic;
    let Some(seen) = federation.shelf(key.kind).get(key) else {
        // Its plan goes with it.
        return;
    };
    let service = federation.recent.read(&seen);
    let row = federation.kinds.get(key.kind);
    let external = text(child(&service, "spec"), "type") == "ExternalName";
    if !kinds::eligible(&row, &service) || external || seen.deleting {
        return;
    }
    let plan_key = Key { kind: PLANS, ..key.clone() };
    if traffic.writer.busy(&plan_key) {
        // What it is about to be is not what it is.
        traffic.queue.push_after(key, SOON);
        return;
    }
    let before = traffic.plans.get(&plan_key).map(|plan| Before::read(plan, &seen.uid));
    let previous = before.as_ref().and_then(|before| before.spec.as_ref());
    let mut decided = decide(federation, key, &service, previous);
    if let Some(again_ms) = decided.again_ms {
        let wait = u64::try_from(again_ms - now_ms()).unwrap_or(0);
        traffic.queue.push_after(key, Duration::from_millis(wait + 1));
    }
    if before.is_none() && decided.spec.clusters.is_empty() && age(&service) < NOWHERE {
        traffic.queue.push_after(key, NOWHERE);
        return;
    }
    let revision = previous.map_or(0, |previous| previous.revision);
    decided.spec.revision = revision;
    if previous == Some(&decided.spec) {
        return;
    }
    decided.spec.revision = revision.saturating_add(1);
    let verdicts = u64::try_from(decided.happenings.len()).unwrap_or(0);
    federation.metrics.verdicts.add(verdicts);
    let owner = json!([{
        "apiVersion": "v1", "kind": "Service", "name": &*key.name, "uid": &*seen.uid,
    }]);
    let uid = seen.uid.to_string();
    let happenings =
        decided.happenings.into_iter().map(|happening| (key.clone(), uid.clone(), happening)).collect();
    let mut object =
        object(&plan_key, before.as_ref().map(|before| &*before.seen), &decided.spec, Some(owner));
    let told = serde_json::from_value(child(&object, "status").clone()).unwrap_or_default();
    let status = summary(&decided.spec, &told, now_ms());
    object["status"] = serde_json::to_value(status).unwrap_or_default();
    let work = Work { object: Some(object), happenings, ..Work::new(key) };
    submit(federation, &plan_key, work);
}

/// How old an object is, by its creation; nothing for one of the future.
fn age(object: &Value) -> Duration {
    let created: Option<Timestamp> = text(child(object, "metadata"), "creationTimestamp").parse().ok();
    let ms = created.map_or(i64::MAX, |created| now_ms().saturating_sub(created.as_millisecond()));
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// A plan as it is written: on top of what is there.
pub(super) fn object(key: &Key, seen: Option<&Seen>, spec: &TrafficPlanSpec, owner: Option<Value>) -> Value {
    let mut object = match seen {
        Some(seen) => seen.value(),
        None => json!({
            "apiVersion": landfall_api::landfall::API_VERSION, "kind": "TrafficPlan",
            "metadata": {"name": &*key.name, "namespace": &*key.namespace},
        }),
    };
    if let Some(owner) = owner {
        object["metadata"]["ownerReferences"] = owner;
    }
    object["spec"] = serde_json::to_value(spec).unwrap_or_default();
    object
}

impl Before {
    fn read(seen: Arc<Seen>, uid: &str) -> Self {
        let value = seen.value();
        let owners = value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let mine = owners.into_iter().flatten().any(|owner| text(owner, "uid") == uid);
        let plan = serde_json::from_value::<TrafficPlan>(value).ok().filter(|_| mine);
        Self { spec: plan.map(|plan| plan.spec), seen }
    }
}

fn decide(
    federation: &Arc<Federation>,
    key: &Key,
    service: &Value,
    previous: Option<&TrafficPlanSpec>,
) -> Decided {
    let traffic = &federation.traffic;
    let labels: BTreeMap<String, String> =
        serde_json::from_value(child(child(service, "metadata"), "labels").clone()).unwrap_or_default();
    let policies = traffic.index.policies(key);
    let policy = pick(&policies, &Subject { name: &key.name, labels: &labels });
    let policy = policy.map(|policy| policy.spec.clone()).unwrap_or_default();
    let (hosts, ingresses) = traffic.index.hosts(key);
    let members = traffic.geography.members();
    let mut spec = TrafficPlanSpec {
        target_ref: ObjectReference {
            kind: "Service".into(),
            name: key.name.to_string(),
            ..Default::default()
        },
        ports: probe::ports(service),
        clusters: gather::clusters(federation, key, &ingresses, previous),
        fence: fence(&policy, members.iter().map(|facts| (facts.place.name.as_str(), &facts.labels))),
        session_affinity: policy.session_affinity.clone().or_else(|| affinity(service)),
        when_all_down: policy.when_all_down,
        dns_answer: policy.dns.as_ref().map(|dns| dns.answer).unwrap_or_default(),
        dns_ttl_seconds: policy
            .dns
            .as_ref()
            .and_then(|dns| dns.ttl_seconds)
            .or_else(|| federation.config.dns_ttl_s.and_then(|ttl_s| i32::try_from(ttl_s).ok())),
        dns_failover_ttl_seconds: policy.dns.as_ref().and_then(|dns| dns.failover_ttl_seconds),
        hosts,
        balance: policy.balance.clone(),
        limits: policy.limits.clone(),
        outlier: policy.outlier.clone(),
        retries: policy.retries.clone(),
        timeouts: policy.timeouts.clone(),
        endpoint_capacity: policy.capacity.clone(),
        canary: canary(&policy, members.iter().map(|facts| (facts.place.name.as_str(), &facts.labels))),
        health_check: policy.health_check.clone().or_else(|| traffic.index.health_check(key, service)),
        ..TrafficPlanSpec::default()
    };
    let demand = traffic.edges.demand(&key.path());
    let facts = |name: &str| members.iter().find(|facts| facts.place.name == name);
    for cluster in &mut spec.clusters {
        describe(cluster, facts(&cluster.name), &policy, &demand);
    }
    let (happenings, again_ms, inside) = judge(federation, key, &mut spec, previous, &members);
    lead(federation, &mut spec, &policy, &demand, previous, &members, &inside);
    Decided { spec, happenings, again_ms }
}

/// What is known of a member, and of what it carries of the service.
fn describe(cluster: &mut PlanCluster, facts: Option<&Facts>, policy: &TrafficPolicySpec, demand: &Demand) {
    if let Some(facts) = facts {
        cluster.region = facts.place.region.clone();
        cluster.zones = facts.place.zones.clone();
        cluster.coordinates = facts.place.coordinates.clone();
        cluster.cordoned = facts.cordoned || facts.draining;
    }
    let load = demand.to.get(&cluster.name).cloned().unwrap_or_default();
    let endpoints = u32::try_from(cluster.endpoints).unwrap_or(0);
    let used_percent = load.utilization.map(|used| used * 100.0);
    let room = capacity(policy.capacity.as_ref(), endpoints, &load, used_percent);
    // What is measured is not known to more than two digits.
    let measured = policy.capacity.as_ref().is_some_and(|limit| limit.requests_per_second.is_none());
    cluster.capacity = match measured {
        true => settled_load(cluster.capacity, room),
        false => room.map(|room| (room * 1000.0).round() / 1000.0),
    };
    cluster.load = settled_load(cluster.load, load.requests_per_second);
}

/// Asks for the verdict on the service in every member. Gives what happened, when to ask again, and where the members' own
/// edges see it up.
fn judge(
    federation: &Federation,
    key: &Key,
    spec: &mut TrafficPlanSpec,
    previous: Option<&TrafficPlanSpec>,
    members: &[Facts],
) -> (Vec<Happening>, Option<i64>, Vec<bool>) {
    let port = quorum::probed_port(spec.health_check.as_ref(), &spec.ports);
    let (mut happenings, mut again_ms, mut inside) = (Vec::new(), None, Vec::new());
    federation.traffic.edges.judge(|court| {
        for cluster in &mut spec.clusters {
            let known =
                previous.and_then(|plan| plan.clusters.iter().find(|known| known.name == cluster.name));
            let before = known.map(|known| &known.verdict);
            let Some(port) = port else {
                let reason = "NotProbed: it has no port that speaks TCP".to_owned();
                cluster.verdict = Verdict { up: true, reason, ..Verdict::default() };
                inside.push(true);
                continue;
            };
            let target = quorum::target(&cluster.name, &key.namespace, &key.name, port);
            let witness =
                members.iter().find(|facts| facts.place.name == cluster.name).map(|facts| facts.witness);
            let case = Case {
                target: &target,
                previous: before,
                witness: witness.unwrap_or(Witness::Silent),
                unseen: !court.roster.sees(cluster),
            };
            let ruling = quorum::verdict(&case, court, now_ms());
            again_ms = again_ms.into_iter().chain(ruling.again_ms).min();
            happenings.extend(happening(&cluster.name, &ruling));
            inside.push(quorum::own_word(&target, &ruling.verdict, court.roster) == Some(true));
            cluster.verdict = ruling.verdict;
        }
    });
    (happenings, again_ms, inside)
}

/// Asks where clients go.
fn lead(
    federation: &Federation,
    spec: &mut TrafficPlanSpec,
    policy: &TrafficPolicySpec,
    demand: &Demand,
    previous: Option<&TrafficPlanSpec>,
    members: &[Facts],
    inside: &[bool],
) {
    let by = policy.locality.as_ref().map_or(LocalityBy::Measured, |locality| locality.by);
    let atlas = federation.traffic.geography.atlas(by);
    let none = BTreeMap::new();
    let linked = federation.traffic.edges.linked();
    let candidates: Vec<Candidate<'_>> = spec
        .clusters
        .iter()
        .zip(inside)
        .map(|(cluster, up_inside)| {
            let facts = members.iter().find(|facts| facts.place.name == cluster.name);
            Candidate {
                name: &cluster.name,
                labels: facts.map_or(&none, |facts| &facts.labels),
                up: cluster.verdict.up,
                up_inside: *up_inside,
                endpoints: u32::try_from(cluster.endpoints).unwrap_or(0),
                inside: !cluster.cluster_ips.is_empty() || !cluster.pods.is_empty(),
                outside: ![&cluster.addresses, &cluster.ingress_addresses].iter().all(|of| of.is_empty())
                    || !cluster.pods.is_empty()
                    || linked.contains(&cluster.name),
                capacity: cluster.capacity,
                cordoned: facts.is_some_and(|facts| facts.cordoned),
                draining: facts.is_some_and(|facts| facts.draining),
            }
        })
        .collect();
    let previous = previous.map(|plan| plan.vantages.as_slice()).unwrap_or_default();
    let answer = plan(&Question { candidates: &candidates, policy, demand: &demand.from, previous }, &atlas);
    for (cluster, left_out) in spec.clusters.iter_mut().zip(answer.left_out) {
        cluster.left_out = left_out.map(|reason| reason.to_string());
    }
    spec.vantages = answer.vantages;
}

/// What is told when a verdict changes.
fn happening(cluster: &str, ruling: &Ruling) -> Option<Happening> {
    if !ruling.changed {
        return None;
    }
    let verdict = &ruling.verdict;
    let vote = |vote: &PlanVote| {
        let word = if vote.up { "up" } else { "down" };
        let why = if vote.reason.is_empty() { String::new() } else { format!(" ({})", vote.reason) };
        format!("{} {word}{why}", vote.edge)
    };
    let votes: Vec<String> = verdict.votes.iter().map(vote).collect();
    let votes = if votes.is_empty() { String::new() } else { format!(": {}", votes.join(", ")) };
    let (warning, reason, word) =
        if verdict.up { (false, "ClusterUp", "up") } else { (true, "ClusterDown", "down") };
    Some(Happening { warning, reason, message: format!("{cluster} is {word}: {}{votes}", verdict.reason) })
}

/// Whether a client stays where it was, by what the Service itself says.
fn affinity(service: &Value) -> Option<SessionAffinity> {
    let spec = child(service, "spec");
    if text(spec, "sessionAffinity") != "ClientIP" {
        return None;
    }
    let seconds = spec.pointer("/sessionAffinityConfig/clientIP/timeoutSeconds").and_then(Value::as_i64);
    let ttl_seconds = seconds.and_then(|seconds| i32::try_from(seconds).ok());
    Some(SessionAffinity { mode: AffinityMode::ClientIp, cookie_name: None, ttl_seconds })
}
