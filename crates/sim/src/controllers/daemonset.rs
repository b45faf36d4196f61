//! DaemonSet: one pod on every node that can take it.
//!
//! Reads:      DaemonSets, Nodes, Pods, ControllerRevisions
//! Writes:     Pods (the scheduler binds them), ControllerRevisions, status; events SuccessfulCreate, SuccessfulDelete
//! Guarantees: no more nodes without an available pod than maxUnavailable, nor with two pods than maxSurge, by its own doing
//! Limits:     250 pods made or deleted at once

use std::collections::{BTreeMap, BTreeSet};

use landfall_api::meta;
use landfall_api::selector::Selector;
use serde_json::{Value, json};

use super::action::{Action, Deed, Note, Plan};
use super::read::{created, int, items, scaled, set as put, text};
use super::revisions::{HASH, Revisions};
use super::{Context, Controller, owned, pods};
use crate::scheduler::{affinity, taints};
use crate::view::Known;

/// Its row.
pub(super) const CONTROLLER: Controller = Controller {
    name: "daemonset-controller",
    reads: &[Known::DaemonSet, Known::Node, Known::Pod, Known::ControllerRevision],
    decide,
};

/// Pods made or deleted at once, as in Kubernetes.
const BURST: usize = 250;

/// Taints that every daemon tolerates: they run where nothing else does.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

fn decide(context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    for set in context.view.all(Known::DaemonSet) {
        reconcile(context, set, &mut plan);
    }
    plan
}

/// A node as a DaemonSet sees it.
struct Spot<'a> {
    node: &'a Value,
    wanted: bool,
    pods: Vec<&'a Value>,
}

impl<'a> Spot<'a> {
    /// Its pods that are to stay: of the newest template, and of older ones.
    fn by_template(&self, hash: &str) -> (Vec<&'a Value>, Vec<&'a Value>) {
        let live = self.pods.iter().copied().filter(|pod| !meta::deleting(pod));
        live.partition(|pod| meta::label(pod, HASH) == Some(hash))
    }
}

fn reconcile(context: &Context<'_>, set: &Value, plan: &mut Plan) {
    let selector =
        Selector::from_object(set.pointer("/spec/selector")).unwrap_or_else(|_| Selector::nothing());
    if selector.is_everything() {
        return;
    }
    let claimed = owned::claim(context.view, Known::Pod, set, &selector, plan);
    if meta::deleting(set) {
        return;
    }
    let revisions = Revisions::of(context, set, plan);
    let mut by_node: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for pod in &claimed {
        by_node.entry(node_of(pod)).or_default().push(pod);
    }
    let daemon = daemon(set, &revisions.hash, None);
    let spots: Vec<Spot<'_>> = context
        .view
        .all(Known::Node)
        .map(|node| Spot {
            node,
            wanted: fits(&daemon, node, &["NoSchedule", "NoExecute"]),
            pods: by_node.remove(meta::name(node)).unwrap_or_default(),
        })
        .collect();
    let before = plan.actions.len();
    manage(context, set, &revisions.hash, &daemon, &spots, plan);
    if plan.actions.len() == before && text(set, "/spec/updateStrategy/type") != "OnDelete" {
        let wanted: Vec<&Spot<'_>> = spots.iter().filter(|spot| spot.wanted).collect();
        match surge_max(set, wanted.len()) {
            0 => replace(context, set, &revisions.hash, &wanted, plan),
            most => surge(context, set, &revisions.hash, &wanted, most, plan),
        }
    }
    let in_use: BTreeSet<&str> = claimed.iter().filter_map(|pod| meta::label(pod, HASH)).collect();
    revisions.clean_up(set, &in_use, plan);
    let status = status(context, set, &revisions.hash, &spots, plan);
    plan.status(Known::DaemonSet, set, status, "what was counted");
}

/// The node a daemon is on, or is meant for.
fn node_of(pod: &Value) -> &str {
    let bound = text(pod, "/spec/nodeName");
    if !bound.is_empty() {
        return bound;
    }
    text(
        pod,
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0",
    )
}

fn fits(daemon: &Value, node: &Value, effects: &[&str]) -> bool {
    affinity::node_matches(daemon, node) && taints::untolerated(daemon, node, effects).is_none()
}

/// The pod of a DaemonSet, for a node if one is given.
fn daemon(set: &Value, hash: &str, node: Option<(&str, &str)>) -> Value {
    let prefix = format!("{}-", meta::name(set));
    let name = node.map_or("", |(_, name)| name);
    let mut pod = pods::from_template(set, &set["spec"]["template"], name, Some(&prefix));
    put(&mut pod, &["metadata", "labels", HASH], json!(hash));
    let generation = meta::annotation(set, "deprecated.daemonset.template.generation").unwrap_or("1");
    put(&mut pod, &["metadata", "labels", "pod-template-generation"], json!(generation));
    let mut tolerations = items(&pod, "/spec/tolerations").to_vec();
    for (key, effect) in TOLERATED {
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        tolerations.retain(|t| !(text(t, "/key") == key && text(t, "/effect") == effect));
        tolerations.push(toleration);
    }
    put(&mut pod, &["spec", "tolerations"], json!(tolerations));
    if let Some((node, _)) = node {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let terms = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
        put(&mut pod, &["spec", "affinity", "nodeAffinity", required], terms);
    }
    pod
}

/// A pod where one is missing; none where it should not be.
fn manage(
    context: &Context<'_>,
    set: &Value,
    hash: &str,
    daemon_pod: &Value,
    spots: &[Spot<'_>],
    plan: &mut Plan,
) {
    let mut count = 0;
    for spot in spots {
        let (node, name) = (spot.node, meta::name(spot.node));
        let mut live: Vec<&Value> = spot.pods.iter().copied().filter(|pod| !meta::deleting(pod)).collect();
        live.sort_by_key(|pod| (created(pod), meta::name(pod)));
        let may_stay = spot.wanted || fits(daemon_pod, node, &["NoExecute"]);
        let (failed, live): (Vec<_>, Vec<_>) =
            live.into_iter().partition(|pod| text(pod, "/status/phase") == "Failed");
        for pod in &failed {
            let place = format!("{}/{}", meta::namespace(pod), meta::name(pod));
            let message = format!("Found failed daemon pod {place} on node {name}, will try to kill it");
            let note = Note::warning(set, "FailedDaemonPod", message);
            plan.act(Action::on(Known::Pod, pod, Deed::Delete(None), "it failed").noting(note));
        }
        let surplus = if may_stay { surplus(context, set, hash, live) } else { live };
        for pod in surplus {
            delete(set, pod, "the node should not have it", plan);
            count += 1;
        }
        if spot.wanted && spot.pods.is_empty() && count < BURST {
            create(context, set, hash, name, "has none", plan);
            count += 1;
        }
    }
}

/// Those of a node's pods, the oldest first, that are too many: the oldest stays. Where new ones come before old ones go,
/// so does the oldest of the others, until it is not needed any more.
fn surplus<'a>(context: &Context<'_>, set: &Value, hash: &str, live: Vec<&'a Value>) -> Vec<&'a Value> {
    // Of one node or of a hundred: what counts is whether there is any.
    if surge_max(set, 1) == 0 {
        return live.into_iter().skip(1).collect();
    }
    let (new, old): (Vec<_>, Vec<_>) = live.into_iter().partition(|pod| meta::label(pod, HASH) == Some(hash));
    let replaced = match (new.first(), old.first()) {
        (Some(new), Some(old)) => !pods::is_ready(old) || is_available(context, set, new),
        _ => false,
    };
    let kept = usize::from(!replaced);
    new.into_iter().skip(1).chain(old.into_iter().skip(kept)).collect()
}

fn create(context: &Context<'_>, set: &Value, hash: &str, node: &str, why: &str, plan: &mut Plan) {
    let prefix = format!("{}-", meta::name(set));
    let name = context.settings.luck.name(meta::namespace(set), &prefix);
    let note = Note::normal(set, "SuccessfulCreate", format!("Created pod: {name}"));
    let pod = daemon(set, hash, Some((node, &name)));
    plan.act(Action::create(Known::Pod, pod, format!("{node} {why}")).noting(note));
}

fn delete(set: &Value, pod: &Value, why: &str, plan: &mut Plan) {
    let note = Note::normal(set, "SuccessfulDelete", format!("Deleted pod: {}", meta::name(pod)));
    plan.act(Action::on(Known::Pod, pod, Deed::Delete(None), why).noting(note));
}

fn is_available(context: &Context<'_>, set: &Value, pod: &Value) -> bool {
    let min_ready_s = int(set, "/spec/minReadySeconds");
    pods::is_active(pod) && pods::is_available(pod, min_ready_s, context.now).is_ok()
}

/// How many nodes may have a new pod beside an old one that still works.
fn surge_max(set: &Value, nodes: usize) -> i64 {
    if text(set, "/spec/updateStrategy/type") == "OnDelete" {
        return 0;
    }
    let total = i64::try_from(nodes).unwrap_or(i64::MAX);
    scaled(set.pointer("/spec/updateStrategy/rollingUpdate/maxSurge"), total, true).max(0)
}

/// Makes new pods beside those of an older template: beside those that are not available, and beside so many others.
/// The old ones go once the new ones are available.
fn surge(context: &Context<'_>, set: &Value, hash: &str, wanted: &[&Spot<'_>], most: i64, plan: &mut Plan) {
    let waits = |spot: &&&Spot<'_>| {
        let (new, old) = spot.by_template(hash);
        !old.is_empty() && new.iter().any(|pod| !is_available(context, set, pod))
    };
    let waiting = wanted.iter().filter(waits).count();
    let mut room = most.saturating_sub(i64::try_from(waiting).unwrap_or(i64::MAX));
    for spot in wanted {
        let (new, old) = spot.by_template(hash);
        let (true, Some(old)) = (new.is_empty(), old.first()) else { continue };
        if !is_available(context, set, old) {
            create(context, set, hash, meta::name(spot.node), "has an older one that is not available", plan);
        } else if room > 0 {
            room -= 1;
            create(context, set, hash, meta::name(spot.node), "has an older one", plan);
        }
    }
}

/// Deletes pods of an older template: those that are not available, and of the others as many as may be missing.
fn replace(context: &Context<'_>, set: &Value, hash: &str, wanted: &[&Spot<'_>], plan: &mut Plan) {
    let total = i64::try_from(wanted.len()).unwrap_or(i64::MAX);
    let most = set.pointer("/spec/updateStrategy/rollingUpdate/maxUnavailable");
    let most = scaled(most, total, true).max(1);
    let missing = wanted.iter().filter(|s| !s.pods.iter().any(|pod| is_available(context, set, pod))).count();
    let mut room = most - i64::try_from(missing).unwrap_or(i64::MAX);
    for spot in wanted {
        let old = spot.pods.iter().filter(|p| !meta::deleting(p) && meta::label(p, HASH) != Some(hash));
        for pod in old {
            if !is_available(context, set, pod) {
                delete(set, pod, "of an older template and not available", plan);
            } else if room > 0 {
                room -= 1;
                delete(set, pod, "of an older template", plan);
            }
        }
    }
}

fn status(context: &Context<'_>, set: &Value, hash: &str, spots: &[Spot<'_>], plan: &mut Plan) -> Value {
    let (mut current, mut wrong, mut ready, mut updated, mut available) = (0, 0, 0, 0, 0);
    for spot in spots {
        let mut live: Vec<&Value> = spot.pods.iter().copied().filter(|pod| pods::is_active(pod)).collect();
        live.sort_by_key(|pod| (created(pod), meta::name(pod)));
        let Some(pod) = live.first() else { continue };
        if !spot.wanted {
            wrong += 1;
            continue;
        }
        current += 1;
        ready += i64::from(pods::is_ready(pod));
        updated += i64::from(meta::label(pod, HASH) == Some(hash));
        match pods::is_available(pod, int(set, "/spec/minReadySeconds"), context.now) {
            Ok(()) => available += 1,
            Err(Some(due)) => plan.again(due),
            Err(None) => {}
        }
    }
    let desired = i64::try_from(spots.iter().filter(|spot| spot.wanted).count()).unwrap_or(i64::MAX);
    let mut status = json!({
        "currentNumberScheduled": current, "numberMisscheduled": wrong, "desiredNumberScheduled": desired,
        "numberReady": ready, "observedGeneration": meta::generation(set),
        "updatedNumberScheduled": updated, "numberAvailable": available,
        "numberUnavailable": desired - available,
    });
    super::read::omit_empty(
        &mut status,
        &["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"],
    );
    status
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, deeds, node};
    use super::*;

    fn bench() -> Bench {
        let mut bench = Bench::default();
        for name in ["n1", "n2"] {
            bench.put(Known::Node, node(name, json!({})));
        }
        let dedicated = json!({"taints": [{"key": "dedicated", "effect": "NoSchedule"}]});
        bench.put(Known::Node, node("n3", dedicated));
        bench.put(
            Known::DaemonSet,
            json!({"metadata": {"name": "d", "namespace": "a"}, "spec": {
                "selector": {"matchLabels": {"app": "d"}}, "updateStrategy": {"type": "RollingUpdate"},
                "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"image": "1"}]}}}}),
        );
        bench
    }

    /// Binds every pod to the node it is meant for, running and ready.
    fn run_all(bench: &mut Bench) {
        let all: Vec<Value> = bench.view.all(Known::Pod).map(|pod| (**pod).clone()).collect();
        for mut pod in all {
            pod["spec"]["nodeName"] = json!(node_of(&pod).to_owned());
            pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            bench.put(Known::Pod, pod);
        }
    }

    fn on(bench: &Bench) -> Vec<(String, String)> {
        let mut on: Vec<_> = bench
            .view
            .all(Known::Pod)
            .map(|p| (node_of(p).to_owned(), text(p, "/spec/containers/0/image").to_owned()))
            .collect();
        on.sort();
        on
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn every_node_that_can_has_one_and_updates_go_one_by_one() {
        let mut bench = bench();
        bench.settle(&CONTROLLER);
        assert_eq!(on(&bench), pairs(&[("n1", "1"), ("n2", "1")]), "n3 is for others");
        run_all(&mut bench);
        bench.settle(&CONTROLLER);
        let mut set = (**bench.view.get(Known::DaemonSet, "a", "d").unwrap()).clone();
        assert_eq!(set["status"]["numberAvailable"], json!(2));
        set["spec"]["template"]["spec"]["containers"][0]["image"] = json!("2");
        bench.put(Known::DaemonSet, set);
        let deleted = bench.decide(&CONTROLLER);
        assert_eq!(deeds(&deleted).iter().filter(|d| d.starts_with("delete Pod")).count(), 1);
        bench.settle(&CONTROLLER);
        assert_eq!(on(&bench), pairs(&[("n1", "2"), ("n2", "1")]), "the next waits for the first");
        run_all(&mut bench);
        bench.settle(&CONTROLLER);
        run_all(&mut bench);
        bench.settle(&CONTROLLER);
        assert_eq!(on(&bench), pairs(&[("n1", "2"), ("n2", "2")]));
        assert_eq!(bench.view.all(Known::ControllerRevision).count(), 2);
    }

    /// New pods once waited for old ones to go, whatever maxSurge said.
    #[test]
    fn a_surge_has_two_pods_until_the_new_one_is_available() {
        let mut bench = bench();
        let change = |bench: &mut Bench, how: &dyn Fn(&mut Value)| {
            bench.now += 1000;
            let mut set = (**bench.view.get(Known::DaemonSet, "a", "d").unwrap()).clone();
            how(&mut set);
            bench.put(Known::DaemonSet, set);
        };
        let image = |version: &'static str| {
            move |set: &mut Value| set["spec"]["template"]["spec"]["containers"][0]["image"] = json!(version)
        };
        change(&mut bench, &|set| {
            set["spec"]["updateStrategy"]["rollingUpdate"] = json!({"maxSurge": 1, "maxUnavailable": 0});
        });
        bench.settle(&CONTROLLER);
        run_all(&mut bench);
        bench.settle(&CONTROLLER);
        change(&mut bench, &image("2"));
        bench.settle(&CONTROLLER);
        assert_eq!(on(&bench), pairs(&[("n1", "1"), ("n1", "2"), ("n2", "1")]), "one more at a time");
        run_all(&mut bench);
        bench.settle(&CONTROLLER);
        assert_eq!(
            on(&bench),
            pairs(&[("n1", "2"), ("n2", "1"), ("n2", "2")]),
            "the old one goes, the next comes"
        );
        // One that is not there yet is not waited for when the template changes again.
        change(&mut bench, &image("3"));
        bench.settle(&CONTROLLER);
        assert!(on(&bench).contains(&("n2".into(), "1".into())), "what works stays: {:?}", on(&bench));
        for _ in 0..3 {
            run_all(&mut bench);
            bench.settle(&CONTROLLER);
        }
        assert_eq!(on(&bench), pairs(&[("n1", "3"), ("n2", "3")]));
    }

    #[test]
    fn a_node_that_must_be_left_is_left() {
        let mut bench = bench();
        bench.settle(&CONTROLLER);
        run_all(&mut bench);
        let gone = json!({"taints": [{"key": "out", "effect": "NoExecute"}]});
        bench.put(Known::Node, node("n1", gone));
        bench.settle(&CONTROLLER);
        assert_eq!(on(&bench), pairs(&[("n2", "1")]));
    }
}
