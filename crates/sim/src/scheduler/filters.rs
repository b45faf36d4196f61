//! Which nodes can take a pod: the filters in Kubernetes' order, with its words.

use serde_json::Value;

use super::spread::{self, Broken};
use super::{Room, affinity, resources, taints};
use crate::controllers::read::{is_true, items, text};

/// Why a node cannot take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// In Kubernetes' words.
    pub(super) reasons: Vec<String>,
    /// Whether no pod that went away could help.
    pub(super) for_good: bool,
}

type Filter = fn(&Value, &Room<'_>, &[Room<'_>]) -> Result<(), Refusal>;

/// The filters; the first that refuses is the one that is heard.
const FILTERS: &[Filter] = &[unschedulable, taint, node_affinity, ports, fit, topology_spread, pod_affinity];

/// Whether a node can take a pod.
pub(super) fn check(pod: &Value, room: &Room<'_>, rooms: &[Room<'_>]) -> Result<(), Refusal> {
    FILTERS.iter().try_for_each(|filter| filter(pod, room, rooms))
}

fn refuse(when: bool, reason: &str, for_good: bool) -> Result<(), Refusal> {
    if when { Err(Refusal { reasons: vec![reason.into()], for_good }) } else { Ok(()) }
}

fn unschedulable(pod: &Value, room: &Room<'_>, _: &[Room<'_>]) -> Result<(), Refusal> {
    let taint = serde_json::json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    let closed = is_true(room.node, "/spec/unschedulable") && !taints::tolerates(pod, &taint);
    refuse(closed, "node(s) were unschedulable", true)
}

fn taint(pod: &Value, room: &Room<'_>, _: &[Room<'_>]) -> Result<(), Refusal> {
    let tainted = taints::untolerated(pod, room.node, &["NoSchedule", "NoExecute"]).is_some();
    refuse(tainted, "node(s) had untolerated taint(s)", true)
}

fn node_affinity(pod: &Value, room: &Room<'_>, _: &[Room<'_>]) -> Result<(), Refusal> {
    let matches = affinity::node_matches(pod, room.node);
    refuse(!matches, "node(s) didn't match Pod's node affinity/selector", true)
}

fn ports(pod: &Value, room: &Room<'_>, _: &[Room<'_>]) -> Result<(), Refusal> {
    let wanted: Vec<_> = host_ports(pod).collect();
    let taken = room.pods.iter().flat_map(|other| host_ports(other)).any(|theirs| {
        wanted.iter().any(|ours| {
            let same_ip = ours.2 == theirs.2 || ours.2 == "0.0.0.0" || theirs.2 == "0.0.0.0";
            ours.0 == theirs.0 && ours.1 == theirs.1 && same_ip
        })
    });
    refuse(taken, "node(s) didn't have free ports for the requested pod ports", false)
}

/// Port, protocol and address of the node that a pod's containers take.
fn host_ports(pod: &Value) -> impl Iterator<Item = (i64, &str, &str)> {
    let ports = items(pod, "/spec/containers").iter().flat_map(|c| items(c, "/ports"));
    ports.filter_map(|port| {
        let number = port.get("hostPort")?.as_i64().filter(|number| *number > 0)?;
        let protocol = Some(text(port, "/protocol")).filter(|p| !p.is_empty()).unwrap_or("TCP");
        let ip = Some(text(port, "/hostIP")).filter(|ip| !ip.is_empty()).unwrap_or("0.0.0.0");
        Some((number, protocol, ip))
    })
}

fn fit(pod: &Value, room: &Room<'_>, _: &[Room<'_>]) -> Result<(), Refusal> {
    let (has, wanted) = (resources::allocatable(room.node), resources::requests(pod));
    let mut reasons = Vec::new();
    if i64::try_from(room.pods.len()).unwrap_or(i64::MAX) >= has.get("pods") {
        reasons.push("Too many pods".to_owned());
    }
    // What could never fit is not helped by other pods going away.
    let mut for_good = false;
    for (name, amount) in wanted.iter().filter(|(_, amount)| *amount > 0) {
        if amount > has.get(name).saturating_sub(room.used.get(name)) {
            reasons.push(format!("Insufficient {name}"));
            for_good |= amount > has.get(name);
        }
    }
    if reasons.is_empty() { Ok(()) } else { Err(Refusal { reasons, for_good }) }
}

fn topology_spread(pod: &Value, room: &Room<'_>, rooms: &[Room<'_>]) -> Result<(), Refusal> {
    const REASON: &str = "node(s) didn't match pod topology spread constraints";
    match spread::check(pod, room, rooms) {
        Ok(()) => Ok(()),
        Err(Broken::Skew) => refuse(true, REASON, false),
        Err(Broken::NoLabel) => refuse(true, &format!("{REASON} (missing required label)"), true),
    }
}

fn pod_affinity(pod: &Value, room: &Room<'_>, rooms: &[Room<'_>]) -> Result<(), Refusal> {
    let company = affinity::has_company(pod, room, rooms);
    refuse(!company, "node(s) didn't match pod affinity rules", true)?;
    let bothered = affinity::is_bothered(pod, room, rooms);
    refuse(bothered, "node(s) didn't match pod anti-affinity rules", false)?;
    let bothers = affinity::bothers_others(pod, room, rooms);
    refuse(bothers, "node(s) didn't satisfy existing pods anti-affinity rules", false)
}
