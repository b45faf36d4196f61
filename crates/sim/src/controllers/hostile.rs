//! Odd objects: whatever stands in a member's objects, no controller panics.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::testing::{Bench, node};
use super::{Controller, TABLE};
use crate::view::Known;

/// Actions of one plan that are done, so that a case stays small.
const ACTIONS_MAX: usize = 20;

/// What may stand where something else is expected.
fn odd() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(i32::MAX),
        json!(1e300),
        json!(""),
        json!("x"),
        json!("9223372036854775807"),
        json!("-9223372036854775808"),
        json!("9223372036854775807%"),
        json!("-5%"),
        json!("1e400"),
        json!("1970-01-01T00:00:00Z"),
        json!("9999-12-31T23:59:59Z"),
        json!("-009999-01-01T00:00:00Z"),
        json!("*/18446744073709551615 * * * *"),
        json!("@every 9223372036854775807h"),
        json!("59 23 31 2 *"),
        json!([]),
        json!({}),
        json!([null]),
        json!([{}]),
        json!({"x": null}),
        json!("ü".repeat(70)),
    ]
}

/// One object of every kind that controllers look at, with every field that they read.
fn usual() -> Vec<(Known, Value)> {
    [nodes(), services(), replicated(), numbered(), timed(), policies()].concat()
}

// === What objects have in common ===

fn owner(kind: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": kind, "name": "x", "uid": kind, "controller": true}])
}

fn named(kind: &str) -> Value {
    json!({"name": "x", "namespace": "a", "uid": kind, "generation": 2, "labels": {"app": "x"},
        "annotations": {"deployment.kubernetes.io/revision": "1", "deployment.kubernetes.io/desired-replicas": "2",
            "deployment.kubernetes.io/max-replicas": "3", "k": "v"}})
}

fn owned(kind: &str, by: &str) -> Value {
    let mut metadata = named(kind);
    metadata["ownerReferences"] = owner(by);
    metadata
}

fn selector() -> Value {
    json!({"matchLabels": {"app": "x"}})
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "x"}, "annotations": {}}, "spec": {"restartPolicy": "OnFailure",
        "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "100m"}}}]}})
}

fn counts() -> Value {
    json!({"replicas": 2, "readyReplicas": 1, "availableReplicas": 1, "updatedReplicas": 1,
        "terminatingReplicas": 0, "observedGeneration": 1, "collisionCount": 1, "currentRevision": "x-1", "conditions": [
            {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated",
             "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
}

fn spec(more: &Value) -> Value {
    let mut spec = json!({"replicas": 2, "minReadySeconds": 5, "revisionHistoryLimit": 0, "progressDeadlineSeconds": 600,
        "selector": selector(), "template": template()});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

fn rolling() -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%", "partition": 1}})
}

fn pod(name: &str, by: &str, node: &str) -> Value {
    let mut metadata = owned(name, by);
    metadata["name"] = json!(name);
    metadata["labels"]["pod-index"] = json!("0");
    metadata["annotations"] = json!({"batch.kubernetes.io/job-completion-index": "0",
        "controller.kubernetes.io/pod-deletion-cost": "1"});
    json!({"metadata": metadata, "spec": {"nodeName": node, "priority": 1, "hostname": "h", "subdomain": "x",
        "containers": template()["spec"]["containers"], "tolerations": [
            {"key": "k", "operator": "Exists", "tolerationSeconds": 30}],
        "topologySpreadConstraints": [{"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "minDomains": 2,
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector()}]},
        "status": {"phase": "Running", "podIP": "127.1.8.1", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "containerStatuses": [{"restartCount": 1, "state": {"terminated": {"finishedAt": "2026-01-01T00:00:00Z"}}}]}})
}

// === The objects ===

fn nodes() -> Vec<(Known, Value)> {
    let taints = json!([{"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]);
    let mut machine = node("n", json!({"taints": taints, "unschedulable": false}));
    machine["metadata"]["uid"] = json!("Node");
    let lease = json!({"metadata": {"name": "n", "namespace": "kube-node-lease"},
        "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}});
    vec![
        (Known::Node, machine),
        (Known::Lease, lease),
        (Known::Pod, pod("x-0", "StatefulSet", "n")),
        (Known::Pod, pod("j-0", "Job", "n")),
        (Known::Pod, pod("r-0", "ReplicaSet", "")),
    ]
}

fn services() -> Vec<(Known, Value)> {
    let service = json!({"metadata": named("Service"), "spec": {"type": "LoadBalancer", "clusterIP": "127.1.4.1",
        "selector": {"app": "x"}, "ports": [{"name": "w", "port": 80, "targetPort": "http", "protocol": "TCP"}]},
        "status": {"loadBalancer": {"ingress": []}}});
    let endpoints = json!({"metadata": named("Endpoints"), "subsets": [{"addresses": [{"ip": "127.1.8.1"}],
        "ports": [{"name": "w", "port": 80, "protocol": "TCP"}]}]});
    let slice = json!({"metadata": owned("EndpointSlice", "Service"), "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.1.8.1"]}], "ports": []});
    vec![(Known::Service, service), (Known::Endpoints, endpoints), (Known::EndpointSlice, slice)]
}

fn replicated() -> Vec<(Known, Value)> {
    let deployment = json!({"metadata": named("Deployment"), "spec": spec(&json!({"strategy": rolling()})),
        "status": counts()});
    let set =
        json!({"metadata": owned("ReplicaSet", "Deployment"), "spec": spec(&json!({})), "status": counts()});
    let old = json!({"metadata": {"name": "old", "namespace": "a", "uid": "old", "labels": {"app": "x"},
        "annotations": {"deployment.kubernetes.io/revision": "1", "deployment.kubernetes.io/desired-replicas": "1",
            "deployment.kubernetes.io/max-replicas": "3"}, "ownerReferences": owner("Deployment")},
        "spec": spec(&json!({"replicas": 3, "template": {"metadata": {"labels": {"app": "x"}}}})), "status": counts()});
    let controller = json!({"metadata": named("ReplicationController"),
        "spec": spec(&json!({"selector": {"app": "x"}})), "status": counts()});
    vec![
        (Known::Deployment, deployment),
        (Known::ReplicaSet, set),
        (Known::ReplicaSet, old),
        (Known::ReplicationController, controller),
    ]
}

fn numbered() -> Vec<(Known, Value)> {
    let daemons =
        json!({"metadata": named("DaemonSet"), "spec": spec(&json!({"updateStrategy": rolling()}))});
    let set = json!({"metadata": named("StatefulSet"), "status": counts(), "spec": spec(&json!({
        "updateStrategy": rolling(), "podManagementPolicy": "Parallel", "serviceName": "x",
        "ordinals": {"start": 0}, "volumeClaimTemplates": [{"metadata": {"name": "v"}}]}))});
    let revision = json!({"metadata": owned("ControllerRevision", "StatefulSet"), "revision": 1,
        "data": {"spec": {"template": template()}}});
    vec![(Known::DaemonSet, daemons), (Known::StatefulSet, set), (Known::ControllerRevision, revision)]
}

fn timed() -> Vec<(Known, Value)> {
    let job = json!({"metadata": named("Job"), "spec": spec(&json!({"parallelism": 2, "completions": 3,
        "podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}}]},
        "backoffLimit": 1, "completionMode": "Indexed", "activeDeadlineSeconds": 100,
        "ttlSecondsAfterFinished": 10})), "status": {"startTime": "2026-01-01T00:00:00Z", "conditions": [
            {"type": "Suspended", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let cron = json!({"metadata": named("CronJob"), "spec": {"schedule": "*/5 * * * *", "timeZone": "UTC",
        "startingDeadlineSeconds": 1000, "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1,
        "jobTemplate": {"metadata": {"labels": {}, "annotations": {}}, "spec": {}}},
        "status": {"lastScheduleTime": "2027-01-14T00:00:00Z", "active": [{"uid": "x"}]}});
    vec![(Known::Job, job), (Known::CronJob, cron)]
}

fn policies() -> Vec<(Known, Value)> {
    let autoscaler = json!({"metadata": named("HorizontalPodAutoscaler"), "spec": {
        "minReplicas": 1, "maxReplicas": 10, "scaleTargetRef": {"kind": "Deployment", "name": "x"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 50}}}],
        "behavior": {"scaleUp": {"stabilizationWindowSeconds": 0, "policies": [
            {"type": "Percent", "value": 100, "periodSeconds": 15}]}, "scaleDown": {"selectPolicy": "Max"}}},
        "status": {"currentReplicas": 1, "conditions": [
            {"type": "AbleToScale", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let budget = json!({"metadata": named("PodDisruptionBudget"), "spec": {"minAvailable": "50%",
        "maxUnavailable": 1, "selector": selector()}, "status": {"disruptedPods": {"x-0": "2027-01-15T07:59:00Z"}}});
    vec![(Known::HorizontalPodAutoscaler, autoscaler), (Known::PodDisruptionBudget, budget)]
}

/// Every place in an object but its root, by JSON pointer.
fn places(object: &Value, at: &str, into: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match object {
        Value::Object(map) => map.iter().map(|(k, v)| (super::read::segment(k), v)).collect(),
        Value::Array(list) => list.iter().enumerate().map(|(k, v)| (k.to_string(), v)).collect(),
        _ => Vec::new(),
    };
    for (key, child) in children {
        let place = format!("{at}/{key}");
        places(child, &place, into);
        into.push(place);
    }
}

/// Controllers decide about these objects, and again about what came of it.
fn run(objects: Vec<(Known, Value)>, which: impl Fn(&Controller) -> bool) {
    let mut bench = Bench::default();
    for name in ["x-0", "j-0", "r-0"] {
        bench.settings.loads.set("a", name, i64::MAX);
    }
    for (known, object) in objects {
        bench.put(known, object);
    }
    for _ in 0..2 {
        for controller in TABLE.iter().filter(|controller| which(controller)) {
            let mut plan = bench.decide(controller);
            plan.actions.truncate(ACTIONS_MAX);
            bench.perform(plan);
        }
        bench.now += 60_000;
    }
}

/// A template that is back becomes the newest revision, even when there is no larger number.
#[test]
fn revisions_end_at_the_largest_number() {
    let mut bench = Bench::default();
    let set = usual().into_iter().find(|(known, _)| *known == Known::StatefulSet).unwrap();
    bench.put(set.0, set.1);
    let decide = |bench: &mut Bench| {
        let plan = bench.decide(&super::statefulset::CONTROLLER);
        bench.perform(plan);
    };
    decide(&mut bench);
    let mut other = (**bench.view.all(Known::ControllerRevision).next().unwrap()).clone();
    let name = landfall_api::meta::name(&other).to_owned();
    other["metadata"]["name"] = json!("other");
    other["revision"] = json!(i64::MAX);
    bench.put(Known::ControllerRevision, other);
    decide(&mut bench);
    assert_eq!(bench.view.get(Known::ControllerRevision, "a", &name).unwrap()["revision"], json!(i64::MAX));
}

/// A Deployment whose revision was the largest number ended a member's controllers for good.
#[test]
fn every_field_may_be_odd() {
    let usual = usual();
    run(usual.clone(), |_| true);
    for at in 0..usual.len() {
        let mut pointers = Vec::new();
        places(&usual[at].1, "", &mut pointers);
        for pointer in pointers {
            for value in [json!(i64::MAX), json!(i64::MIN), json!("9223372036854775807"), json!([null])] {
                let mut objects = usual.clone();
                *objects[at].1.pointer_mut(&pointer).unwrap() = value;
                run(objects, |controller| controller.reads.contains(&usual[at].0));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn many_fields_may_be_odd(changes in prop::collection::vec((any::<prop::sample::Index>(),
        any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..40)) {
        let mut objects = usual();
        let values = odd();
        for (object, place, value) in changes {
            let object = &mut objects[object.index(usual().len())].1;
            let mut pointers = Vec::new();
            places(object, "", &mut pointers);
            let Some(at) = pointers.get(place.index(pointers.len().max(1))) else { continue };
            *object.pointer_mut(at).unwrap() = value.get(&values).clone();
        }
        run(objects, |_| true);
    }
}
