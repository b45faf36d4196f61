//! HorizontalPodAutoscaler: as many replicas as the load asks for.
//!
//! Reads:      HorizontalPodAutoscalers, what they scale, its Pods; the load that the world reports
//! Decides:    [`desired`] (how many the load asks for), `behaviour` (how fast)
//! Writes:     spec.replicas of the target; status; events SuccessfulRescale
//! Wakes on:   every `timings.autoscaler`
//! Guarantees: within minReplicas and maxReplicas, whether or not any load is known; within them no load reported means
//!             no change
//! Limits:     CPU only. What was recommended lately is remembered in memory, as in Kubernetes: a restart forgets it

mod behaviour;

use std::collections::HashMap;

use landfall_api::meta;
use landfall_api::selector::Selector;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::action::{Action, Deed, Note, Plan};
use super::read::{Millis, int, items, replicas, text, time_text};
use super::{Context, Controller, conditions, pods};
use crate::member::config::Loads;
use crate::scheduler::resources;
use crate::view::Known;
pub(crate) use behaviour::Past;

/// Its row.
pub(super) const CONTROLLER: Controller =
    Controller { name: "horizontal-pod-autoscaler", reads: &[Known::HorizontalPodAutoscaler], decide };

/// How far the load may be from the target before anything changes, in percent.
const TOLERANCE: i64 = 10;

/// What autoscalers remember, by their uids.
#[derive(Debug, Default)]
pub struct Memory(Mutex<HashMap<String, Past>>);

fn decide(context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    let every = i64::try_from(context.settings.timings.autoscaler.as_millis()).unwrap_or(i64::MAX);
    let mut memory = context.settings.scaling.0.lock();
    memory.retain(|uid, _| {
        context.view.all(Known::HorizontalPodAutoscaler).any(|scaler| meta::uid(scaler) == uid)
    });
    for scaler in context.view.all(Known::HorizontalPodAutoscaler) {
        let past = memory.entry(meta::uid(scaler).to_owned()).or_default();
        let due = past.looked.saturating_add(every);
        if due > context.now {
            plan.again(due);
            continue;
        }
        past.looked = context.now;
        plan.again(context.now.saturating_add(every));
        reconcile(context, scaler, past, &mut plan);
    }
    plan
}

/// The load of a target, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Pods whose load is known.
    pub known: i64,
    /// Ready or starting pods whose load is not.
    pub missing: i64,
    /// What the known ones use, in thousandths of a CPU.
    pub used: i64,
    /// What the known ones ask for.
    pub asked: i64,
    /// What the missing ones ask for.
    pub asked_missing: i64,
}

/// What a metric asks of each pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Percent of what the pod asks for.
    Utilization(i64),
    /// Thousandths of a CPU.
    Average(i64),
}

/// How many replicas a load asks for; none when nothing is known.
pub fn desired(load: Load, target: Target, current: i64) -> Option<i64> {
    let (wanted, scale) = match target {
        Target::Utilization(percent) if load.asked > 0 => (percent.saturating_mul(load.asked), 100),
        Target::Average(milli) => (milli.saturating_mul(load.known), 1),
        Target::Utilization(_) => return None,
    };
    if load.known == 0 || wanted <= 0 {
        return None;
    }
    // Used over wanted, in millionths.
    let ratio =
        |used: i64, wanted: i64| i128::from(used) * i128::from(scale) * 1_000_000 / i128::from(wanted);
    let within = |r: i128| (r - 1_000_000).abs() <= i128::from(TOLERANCE) * 10_000;
    let first = ratio(load.used, wanted);
    let ceil = |r: i128, count: i64| {
        i64::try_from((r * i128::from(count) + 999_999) / 1_000_000).unwrap_or(i64::MAX)
    };
    if load.missing == 0 {
        return Some(if within(first) { current } else { ceil(first, load.known) });
    }
    // Of those nobody knows about the opposite is assumed: idle when scaling up, full when scaling down.
    let count = load.known + load.missing;
    let (per_pod, assumed) = match target {
        Target::Utilization(percent) => {
            (percent.saturating_mul(load.asked.saturating_add(load.asked_missing)), load.asked_missing)
        }
        Target::Average(milli) => (milli.saturating_mul(count), milli.saturating_mul(load.missing)),
    };
    let used = if first < 1_000_000 { load.used.saturating_add(assumed) } else { load.used };
    let second = ratio(used, per_pod.max(1));
    let turned = (first < 1_000_000) != (second < 1_000_000);
    let wanted = ceil(second, count);
    // And what was assumed must not turn the direction.
    let wrong = (second < 1_000_000 && wanted > current) || (second > 1_000_000 && wanted < current);
    Some(if within(second) || turned || wrong { current } else { wanted })
}

fn load(context: &Context<'_>, loads: &Loads, namespace: &str, selector: &Selector) -> Load {
    let mut load = Load::default();
    let live = context.view.within(Known::Pod, namespace).filter(|pod| selector.matches_object(pod));
    for pod in live.filter(|pod| pods::is_active(pod)) {
        let asked = resources::requests(pod).get("cpu");
        match loads.cpu_milli(namespace, meta::name(pod)).filter(|_| pods::is_ready(pod)) {
            Some(used) => {
                load.known += 1;
                load.used = load.used.saturating_add(used);
                load.asked = load.asked.saturating_add(asked);
            }
            None => {
                load.missing += 1;
                load.asked_missing = load.asked_missing.saturating_add(asked);
            }
        }
    }
    load
}

fn reconcile(context: &Context<'_>, scaler: &Value, past: &mut Past, plan: &mut Plan) {
    let (namespace, name) = (meta::namespace(scaler), text(scaler, "/spec/scaleTargetRef/name"));
    let known = Known::named(text(scaler, "/spec/scaleTargetRef/kind"));
    let target = known.and_then(|known| Some((known, context.view.get(known, namespace, name)?)));
    let mut status = Status::of(scaler, context.now);
    let Some((known, target)) = target else {
        let what = format!("{} {name:?} not found", text(scaler, "/spec/scaleTargetRef/kind"));
        let why = format!("the HPA controller was unable to get the target's current scale: {what}");
        status.set("AbleToScale", false, "FailedGetScale", &why);
        return status.finish(plan);
    };
    let current = replicas(target);
    status.able("SucceededGetScale", "the HPA controller was able to get the target's current scale");
    status.current(int(target, "/status/replicas"));
    if current == 0 {
        let why = "scaling is disabled since the replica count of the target is zero";
        status.set("ScalingActive", false, "ScalingDisabled", why);
        status.desired(0);
        return status.finish(plan);
    }
    if let Some((wanted, reason)) = beyond(scaler, current) {
        status.metrics(&[]);
        let change = Change { known, target, from: current, to: wanted, reason };
        rescale(&change, context.now, past, &mut status, plan);
        return status.finish(plan);
    }
    let selector = match known {
        Known::ReplicationController => Selector::from_map(target.pointer("/spec/selector")),
        _ => Selector::from_object(target.pointer("/spec/selector")).unwrap_or(Selector::nothing()),
    };
    let load = load(context, &context.settings.loads, namespace, &selector);
    let Some(wanted) = measure(scaler, load, current, &mut status) else {
        status.desired(current);
        return status.finish(plan);
    };
    let step =
        behaviour::limit(scaler, current, wanted, past, context.now, context.settings.timings.downscale);
    status.able(step.able.0, step.able.1);
    status.set("ScalingLimited", step.limited, step.limit.0, step.limit.1);
    status.desired(step.replicas);
    if step.replicas != current {
        let reason = if step.replicas > current {
            "cpu resource utilization (percentage of request) above target"
        } else {
            "All metrics below target"
        };
        let change = Change { known, target, from: current, to: step.replicas, reason };
        rescale(&change, context.now, past, &mut status, plan);
    }
    status.finish(plan);
}

/// The bound that a target is beyond, with why it is brought back: for that no load needs to be known.
fn beyond(scaler: &Value, current: i64) -> Option<(i64, &'static str)> {
    let (least, most) = behaviour::bounds(scaler);
    if current > most {
        return Some((most, "Current number of replicas above Spec.MaxReplicas"));
    }
    (current < least).then_some((least, "Current number of replicas below Spec.MinReplicas"))
}

/// A change of a target's size.
struct Change<'a> {
    known: Known,
    target: &'a Value,
    from: i64,
    to: i64,
    reason: &'static str,
}

fn rescale(change: &Change<'_>, now: Millis, past: &mut Past, status: &mut Status<'_>, plan: &mut Plan) {
    let Change { known, target, from, to, reason } = *change;
    let note = Note::normal(status.scaler, "SuccessfulRescale", format!("New size: {to}; reason: {reason}"));
    let deed = Deed::Set(vec![("/spec/replicas".into(), Some(json!(to)))]);
    plan.act(Action::on(known, target, deed, format!("{from} replicas, {to} wanted")).noting(note));
    past.scaled.push((now, to.saturating_sub(from)));
    let message = format!("the HPA controller was able to update the target scale to {to}");
    status.able("SucceededRescale", &message);
    status.desired(to);
    status.scaled();
}

/// The most that any metric asks for; none when none can be computed.
fn measure(scaler: &Value, load: Load, current: i64, status: &mut Status<'_>) -> Option<i64> {
    let mut most = None;
    let mut shown = Vec::new();
    for metric in items(scaler, "/spec/metrics") {
        let target = match metric.pointer("/resource/target") {
            Some(target) if text(metric, "/resource/name") == "cpu" => target,
            _ => continue,
        };
        let target = match target.get("averageUtilization").and_then(Value::as_i64) {
            Some(percent) => Target::Utilization(percent),
            None => {
                let value = target.get("averageValue").and_then(landfall_api::quantity::Quantity::from_value);
                Target::Average(value.map_or(0, landfall_api::quantity::Quantity::milli))
            }
        };
        let Some(wanted) = desired(load, target, current) else { continue };
        most = most.max(Some(wanted));
        let average = load.used / load.known.max(1);
        let mut seen = json!({"averageValue": format!("{average}m")});
        if let Target::Utilization(_) = target {
            seen["averageUtilization"] = json!(load.used.saturating_mul(100) / load.asked.max(1));
        }
        shown.push(json!({"type": "Resource", "resource": {"name": "cpu", "current": seen}}));
    }
    status.metrics(&shown);
    if most.is_some() {
        let why = "the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)";
        status.set("ScalingActive", true, "ValidMetricFound", why);
    } else {
        let why = "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API";
        status.set("ScalingActive", false, "FailedGetResourceMetric", why);
    }
    most
}

/// An autoscaler's status as it will be.
struct Status<'a> {
    scaler: &'a Value,
    now: String,
    status: Value,
    conditions: Vec<Value>,
}

impl<'a> Status<'a> {
    fn of(scaler: &'a Value, now: Millis) -> Self {
        let mut status = scaler.get("status").filter(|s| s.is_object()).cloned().unwrap_or_else(|| json!({}));
        status["observedGeneration"] = json!(meta::generation(scaler));
        if meta::generation(scaler) == 0
            && let Some(map) = status.as_object_mut()
        {
            map.remove("observedGeneration");
        }
        Self { scaler, now: time_text(now), status, conditions: items(scaler, "/status/conditions").to_vec() }
    }

    fn able(&mut self, reason: &str, message: &str) {
        self.set("AbleToScale", true, reason, message);
    }

    fn current(&mut self, count: i64) {
        self.status["currentReplicas"] = json!(count);
    }

    fn desired(&mut self, count: i64) {
        self.status["desiredReplicas"] = json!(count);
    }

    fn scaled(&mut self) {
        self.status["lastScaleTime"] = json!(self.now);
    }

    fn metrics(&mut self, shown: &[Value]) {
        self.status["currentMetrics"] = json!(shown);
    }

    fn set(&mut self, ty: &str, status: bool, reason: &str, message: &str) {
        let status = if status { "True" } else { "False" };
        let fresh = json!({"type": ty, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": self.now});
        conditions::put(&mut self.conditions, fresh);
    }

    fn finish(mut self, plan: &mut Plan) {
        self.status["conditions"] = json!(self.conditions);
        if self.status.get("desiredReplicas").is_none() {
            self.status["desiredReplicas"] = json!(0);
        }
        plan.status(Known::HorizontalPodAutoscaler, self.scaler, self.status, "what was measured");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;

    fn check(load: (i64, i64, i64), percent: i64, current: i64, expected: Option<i64>) {
        let (known, missing, used) = load;
        let load = Load { known, missing, used, asked: known * 100, asked_missing: missing * 100 };
        assert_eq!(desired(load, Target::Utilization(percent), current), expected, "{load:?}");
    }

    #[test]
    fn the_load_asks_for_replicas() {
        check((2, 0, 200), 50, 2, Some(4));
        check((2, 0, 105), 50, 2, Some(2));
        check((2, 0, 120), 50, 2, Some(3));
        check((4, 0, 100), 50, 4, Some(2));
        check((0, 2, 0), 50, 2, None);
        check((2, 2, 400), 50, 4, Some(8));
        check((2, 2, 120), 50, 4, Some(4));
        check((2, 2, 20), 50, 4, Some(4));
        let load = Load { known: 2, used: 300, ..Load::default() };
        assert_eq!(desired(load, Target::Average(100), 2), Some(3));
    }

    #[test]
    fn a_target_grows_at_once_and_shrinks_after_the_window() {
        let mut bench = Bench::default();
        bench.put(
            Known::Deployment,
            json!({"metadata": {"name": "web", "namespace": "a"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}}, "status": {"replicas": 2}}),
        );
        bench.put(
            Known::HorizontalPodAutoscaler,
            json!({"metadata": {"name": "h", "namespace": "a"}, "spec": {"minReplicas": 1, "maxReplicas": 10,
            "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "metrics": [{"type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}}),
        );
        for name in ["p1", "p2"] {
            let mut pod = super::super::testing::pod_on(name, "n", true);
            pod["metadata"]["labels"] = json!({"app": "web"});
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("100m");
            bench.put(Known::Pod, pod);
        }
        let size = |bench: &Bench| replicas(bench.view.get(Known::Deployment, "a", "web").unwrap());
        let look = |bench: &mut Bench, used: i64| {
            for name in ["p1", "p2"] {
                bench.settings.loads.set("a", name, used);
            }
            bench.now += 15_000;
            let plan = bench.decide(&CONTROLLER);
            bench.perform(plan);
        };
        let plan = bench.decide(&CONTROLLER);
        bench.perform(plan);
        assert_eq!(size(&bench), 2, "no load is known");
        look(&mut bench, 100);
        assert_eq!(size(&bench), 4);
        look(&mut bench, 10);
        assert_eq!(size(&bench), 4, "not yet");
        for _ in 0..21 {
            look(&mut bench, 10);
        }
        assert_eq!(size(&bench), 1, "after five minutes");
        let scaler = bench.view.get(Known::HorizontalPodAutoscaler, "a", "h").unwrap();
        assert_eq!(scaler["status"]["desiredReplicas"], json!(1));
    }

    /// Without metrics, as in every new member, the bounds meant nothing.
    #[test]
    fn bounds_hold_without_any_load() {
        for (replicas_now, expected, reason) in [
            (12, 10, "New size: 10; reason: Current number of replicas above Spec.MaxReplicas"),
            (1, 3, "New size: 3; reason: Current number of replicas below Spec.MinReplicas"),
            (5, 5, ""),
            (0, 0, ""),
        ] {
            let mut bench = Bench::default();
            bench.put(
                Known::Deployment,
                json!({"metadata": {"name": "web", "namespace": "a"}, "spec": {"replicas": replicas_now}}),
            );
            bench.put(
                Known::HorizontalPodAutoscaler,
                json!({"metadata": {"name": "h", "namespace": "a"}, "spec": {"minReplicas": 3, "maxReplicas": 10,
                    "scaleTargetRef": {"kind": "Deployment", "name": "web"}}}),
            );
            let plan = bench.decide(&CONTROLLER);
            let told: Vec<&str> =
                plan.actions.iter().filter_map(|a| Some(a.note.as_ref()?.message.as_str())).collect();
            assert_eq!(told.join(""), reason);
            bench.perform(plan);
            assert_eq!(replicas(bench.view.get(Known::Deployment, "a", "web").unwrap()), expected);
            let scaler = bench.view.get(Known::HorizontalPodAutoscaler, "a", "h").unwrap();
            assert_eq!(scaler["status"]["desiredReplicas"], json!(expected));
        }
    }
}
