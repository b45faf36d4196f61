//! StatefulSet: pods with names and an order.
//!
//! Reads:      StatefulSets, Pods, ControllerRevisions
//! Decides:    here: the first thing to do in order; everything at once when the set is Parallel
//! Writes:     Pods, ControllerRevisions, status; events SuccessfulCreate, SuccessfulDelete
//! Guarantees: never two pods with one name; in order, one change at a time, each after the one before is ready
//! Limits:     500 pods made or deleted for one Parallel set at once
//! Absent:     claims of volumes: pods name them, nobody makes them

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use landfall_api::meta;
use landfall_api::selector::Selector;
use serde_json::{Value, json};

use super::action::{Action, Deed, Note, Plan};
use super::read::{int, items, omit_empty, replicas, set as put, text};
use super::revisions::{HASH, Revisions};
use super::{Context, Controller, owned, pods};
use crate::view::Known;

/// Its row.
pub(super) const CONTROLLER: Controller = Controller {
    name: "statefulset-controller",
    reads: &[Known::StatefulSet, Known::Pod, Known::ControllerRevision],
    decide,
};

/// Pods made or deleted for one Parallel set at once, as for other owners.
const BURST: usize = 500;

fn decide(context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    for set in context.view.all(Known::StatefulSet) {
        reconcile(context, set, &mut plan);
    }
    plan
}

/// A set with its pods by number.
struct Ranks<'a> {
    set: &'a Value,
    pods: BTreeMap<i64, &'a Value>,
    wanted: Range<i64>,
    /// The name of the revision that was in force before the update.
    current: String,
    /// The name of the revision of the set's template.
    update: String,
    parallel: bool,
    now: i64,
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
    let start = int(set, "/spec/ordinals/start");
    let current = text(set, "/status/currentRevision");
    let ranks = Ranks {
        set,
        pods: claimed.iter().filter_map(|pod| Some((ordinal(set, pod)?, &***pod))).collect(),
        wanted: start..start.saturating_add(replicas(set)),
        current: if current.is_empty() { revisions.name.clone() } else { current.to_owned() },
        update: revisions.name.clone(),
        parallel: text(set, "/spec/podManagementPolicy") == "Parallel",
        now: context.now,
    };
    let before = plan.actions.len();
    if ranks.fill(&revisions, plan) && ranks.shrink(plan) && plan.actions.len() == before {
        ranks.renew(plan);
    }
    let status = ranks.status(plan);
    let in_use: BTreeSet<&str> =
        claimed.iter().filter_map(|pod| meta::label(pod, HASH)).chain([&*ranks.current]).collect();
    revisions.clean_up(set, &in_use, plan);
    plan.status(Known::StatefulSet, set, status, "what was counted");
}

/// The number of a pod in a set.
fn ordinal(set: &Value, pod: &Value) -> Option<i64> {
    meta::name(pod).strip_prefix(meta::name(set))?.strip_prefix('-')?.parse().ok()
}

impl Ranks<'_> {
    fn is_healthy(&self, pod: &Value) -> bool {
        let min_ready_s = int(self.set, "/spec/minReadySeconds");
        pods::is_active(pod) && pods::is_available(pod, min_ready_s, self.now).is_ok()
    }

    /// Makes what is missing, lowest first; whether the order allows to go on.
    fn fill(&self, revisions: &Revisions<'_>, plan: &mut Plan) -> bool {
        let before = plan.actions.len();
        for rank in self.wanted.clone() {
            if plan.actions.len() - before >= BURST {
                return false;
            }
            match self.pods.get(&rank) {
                None => self.create(rank, revisions, plan),
                Some(pod) if pods::is_finished(pod) && !meta::deleting(pod) => {
                    let why = "it has ended and is made anew";
                    plan.act(Action::on(Known::Pod, pod, Deed::Delete(None), why));
                }
                Some(pod) if self.is_healthy(pod) => continue,
                Some(_) => {}
            }
            if !self.parallel {
                return false;
            }
        }
        true
    }

    /// Deletes what is too much, highest first; whether the order allows to go on.
    fn shrink(&self, plan: &mut Plan) -> bool {
        let surplus = self.pods.iter().rev().filter(|(rank, _)| !self.wanted.contains(rank)).take(BURST);
        for (_, pod) in surplus {
            if !meta::deleting(pod) {
                self.delete(pod, "beyond the wanted replicas", plan);
            }
            if !self.parallel {
                return false;
            }
        }
        true
    }

    /// Deletes the highest pod of an older template, if all above it are new and healthy.
    fn renew(&self, plan: &mut Plan) {
        if text(self.set, "/spec/updateStrategy/type") == "OnDelete" {
            return;
        }
        let partition = self.partition();
        for rank in self.wanted.clone().rev().filter(|rank| *rank >= partition) {
            let Some(pod) = self.pods.get(&rank) else { return };
            if meta::label(pod, HASH) != Some(&self.update) {
                if !meta::deleting(pod) {
                    self.delete(pod, "of an older template", plan);
                }
                return;
            }
            if !self.is_healthy(pod) {
                return;
            }
        }
    }

    fn partition(&self) -> i64 {
        int(self.set, "/spec/updateStrategy/rollingUpdate/partition")
    }

    fn create(&self, rank: i64, revisions: &Revisions<'_>, plan: &mut Plan) {
        let set = self.set;
        // Below the partition pods keep the template they had.
        let old = rank < self.partition() && self.current != self.update;
        let (revision, template) =
            if old { (&self.current, revisions.template(&self.current)) } else { (&self.update, None) };
        let template = template.unwrap_or_else(|| set["spec"]["template"].clone());
        let name = format!("{}-{rank}", meta::name(set));
        let mut pod = pods::from_template(set, &template, &name, Some(&format!("{}-", meta::name(set))));
        for (label, value) in [
            (HASH, json!(revision)),
            ("statefulset.kubernetes.io/pod-name", json!(name)),
            ("apps.kubernetes.io/pod-index", json!(rank.to_string())),
        ] {
            put(&mut pod, &["metadata", "labels", label], value);
        }
        put(&mut pod, &["spec", "hostname"], json!(name));
        if !text(set, "/spec/serviceName").is_empty() {
            put(&mut pod, &["spec", "subdomain"], set["spec"]["serviceName"].clone());
        }
        let mut volumes = items(&pod, "/spec/volumes").to_vec();
        for claim in items(set, "/spec/volumeClaimTemplates") {
            let volume = meta::name(claim);
            volumes.retain(|v| text(v, "/name") != volume);
            let claim_name = format!("{volume}-{name}");
            volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": claim_name}}));
        }
        if !volumes.is_empty() {
            put(&mut pod, &["spec", "volumes"], json!(volumes));
        }
        let message = format!("Create Pod {name} in StatefulSet {} successful", meta::name(set));
        let note = Note::normal(set, "SuccessfulCreate", message);
        plan.act(Action::create(Known::Pod, pod, format!("number {rank} is missing")).noting(note));
    }

    fn delete(&self, pod: &Value, why: &str, plan: &mut Plan) {
        let message =
            format!("Delete Pod {} in StatefulSet {} successful", meta::name(pod), meta::name(self.set));
        let note = Note::normal(self.set, "SuccessfulDelete", message);
        plan.act(Action::on(Known::Pod, pod, Deed::Delete(None), why).noting(note));
    }

    fn status(&self, plan: &mut Plan) -> Value {
        let min_ready_s = int(self.set, "/spec/minReadySeconds");
        let made: Vec<&Value> = self.pods.values().copied().collect();
        let count = |which: &dyn Fn(&Value) -> bool| made.iter().filter(|pod| which(pod)).count();
        let of =
            |revision: &str| count(&|pod| pods::is_active(pod) && meta::label(pod, HASH) == Some(revision));
        for pod in &made {
            if let Err(Some(due)) = pods::is_available(pod, min_ready_s, self.now) {
                plan.again(due);
            }
        }
        let ready = count(&|pod| pods::is_active(pod) && pods::is_ready(pod));
        let (updated, total) = (of(&self.update), made.len());
        let rolling = text(self.set, "/spec/updateStrategy/type") != "OnDelete";
        let done = rolling && updated == total && ready == total;
        let current = if done { &self.update } else { &self.current };
        let mut status = json!({
            "observedGeneration": meta::generation(self.set), "replicas": total, "readyReplicas": ready,
            "currentReplicas": of(current), "updatedReplicas": updated, "currentRevision": current,
            "updateRevision": self.update, "availableReplicas": count(&|pod| self.is_healthy(pod)),
        });
        omit_empty(&mut status, &["replicas", "availableReplicas"]);
        status["collisionCount"] = json!(0);
        status
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;

    fn set(replicas: i64, spec: &Value) -> Value {
        let mut object = json!({"metadata": {"name": "s", "namespace": "a"}, "spec": {
            "replicas": replicas, "serviceName": "s", "selector": {"matchLabels": {"app": "s"}},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [{"image": "1"}]}}}});
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        object
    }

    fn shown(bench: &Bench) -> Vec<String> {
        let line = |pod: &std::sync::Arc<Value>| {
            format!("{}={}", meta::name(pod), text(pod, "/spec/containers/0/image"))
        };
        bench.view.all(Known::Pod).map(line).collect()
    }

    fn run_all(bench: &mut Bench) {
        let all: Vec<Value> = bench.view.all(Known::Pod).map(|pod| (**pod).clone()).collect();
        for mut pod in all.into_iter().filter(|pod| !pods::is_ready(pod)) {
            pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            bench.put(Known::Pod, pod);
        }
        bench.settle(&CONTROLLER);
    }

    fn change(bench: &mut Bench, change: impl Fn(&mut Value)) {
        let mut object = (**bench.view.get(Known::StatefulSet, "a", "s").unwrap()).clone();
        change(&mut object["spec"]);
        bench.put(Known::StatefulSet, object);
        bench.settle(&CONTROLLER);
    }

    #[test]
    fn pods_come_and_go_in_order() {
        let mut bench = Bench::default();
        bench.put(Known::StatefulSet, set(2, &json!({})));
        bench.settle(&CONTROLLER);
        assert_eq!(shown(&bench), ["s-0=1"], "the second waits for the first");
        run_all(&mut bench);
        assert_eq!(shown(&bench), ["s-0=1", "s-1=1"]);
        run_all(&mut bench);
        let status = &bench.view.get(Known::StatefulSet, "a", "s").unwrap()["status"];
        assert_eq!((&status["readyReplicas"], &status["updatedReplicas"]), (&json!(2), &json!(2)));
        change(&mut bench, |spec| spec["replicas"] = json!(0));
        assert_eq!(shown(&bench), Vec::<String>::new());
    }

    /// One set with a million replicas held up everybody else: it planned all of them at once.
    #[test]
    fn a_parallel_set_makes_and_deletes_so_many_at_once() {
        let mut bench = Bench::default();
        bench.put(Known::StatefulSet, set(1_000_000, &json!({"podManagementPolicy": "Parallel"})));
        for made in [500, 1000] {
            let plan = bench.decide(&CONTROLLER);
            bench.perform(plan);
            assert_eq!(bench.view.all(Known::Pod).count(), made);
        }
        let mut object = (**bench.view.get(Known::StatefulSet, "a", "s").unwrap()).clone();
        object["spec"]["replicas"] = json!(0);
        bench.put(Known::StatefulSet, object);
        let plan = bench.decide(&CONTROLLER);
        bench.perform(plan);
        assert_eq!(bench.view.all(Known::Pod).count(), 500);
    }

    #[test]
    fn updates_go_from_the_highest_down_to_the_partition() {
        let mut bench = Bench::default();
        bench.put(Known::StatefulSet, set(3, &json!({"podManagementPolicy": "Parallel"})));
        bench.settle(&CONTROLLER);
        assert_eq!(shown(&bench).len(), 3, "all at once");
        run_all(&mut bench);
        change(&mut bench, |spec| {
            spec["template"]["spec"]["containers"][0]["image"] = json!("2");
            spec["updateStrategy"]["rollingUpdate"] = json!({"partition": 1});
        });
        assert_eq!(shown(&bench), ["s-0=1", "s-1=1", "s-2=2"], "the next waits");
        run_all(&mut bench);
        run_all(&mut bench);
        assert_eq!(shown(&bench), ["s-0=1", "s-1=2", "s-2=2"]);
        change(&mut bench, |spec| spec["updateStrategy"]["rollingUpdate"] = json!({"partition": 0}));
        run_all(&mut bench);
        assert_eq!(shown(&bench), ["s-0=2", "s-1=2", "s-2=2"]);
    }
}
