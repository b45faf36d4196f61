//! What a user reads at the federation.

use landfall_api::rules;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const NOW: &str = "2026-05-01T10:00:00Z";
const LATER: &str = "2026-05-01T11:00:00Z";

/// A member in a test: its name, the shard's status, and whether it is offline (`!`) or behind (`<`).
fn shard(name: &str, status: &Value) -> (String, Value) {
    let object = json!({ "metadata": { "generation": 1 }, "status": status });
    (name.to_owned(), object)
}

fn shards(given: &[(String, Value)]) -> Vec<Shard<'_>> {
    let one =
        |(name, object): &'_ (String, Value)| (name.trim_end_matches(['!', '<']).len(), object.is_object());
    given
        .iter()
        .map(|given| Shard {
            cluster: given.0.get(..one(given).0).unwrap_or(""),
            object: &given.1,
            offline: given.0.contains('!'),
            current: !given.0.contains('<'),
        })
        .collect()
}

fn group(kind: &str) -> &'static str {
    match kind {
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" => "apps",
        "Job" | "CronJob" => "batch",
        "HorizontalPodAutoscaler" => "autoscaling",
        "PodDisruptionBudget" => "policy",
        "Ingress" => "networking.k8s.io",
        _ => "",
    }
}

/// Aggregates, and checks what holds always: the hub takes it, and its own output changes nothing.
#[track_caller]
fn run(kind: &str, object: &Value, members: &[(String, Value)]) -> Value {
    let shards = shards(members);
    let federated =
        Federated { kind, object, hostname: Some("web.default.fed.svc.example.com"), edges: &[], now: NOW };
    let status = aggregate(&federated, &shards).unwrap();
    let mut next = object.clone();
    next["status"] = status.clone();
    let errors = rules::rules(group(kind), kind).validate_status(&next, object);
    assert_eq!(errors.len(), 0, "the hub refuses {status}: {errors:?}");
    let again = Federated { object: &next, now: LATER, ..federated };
    assert_eq!(aggregate(&again, &shards).unwrap(), status, "fed back");
    status
}

fn hub(spec: &Value) -> Value {
    json!({ "metadata": { "generation": 7 }, "spec": spec })
}

/// The fields named, in this order, as text.
fn show(status: &Value, fields: &str) -> String {
    let one = |field: &str| {
        let value = child(status, field);
        value.as_str().map_or_else(|| value.to_string(), str::to_owned)
    };
    fields.split(' ').map(one).collect::<Vec<_>>().join(" ")
}

fn condition(status: &Value, kind: &str) -> String {
    let found = conditions::find(list(status, "conditions"), kind);
    show(found, "status reason message")
}

fn deployment(replicas: i64, updated: i64, available: i64, progressing: &str) -> Value {
    let enough = if available >= replicas { "True" } else { "False" };
    let stuck = if progressing == "ProgressDeadlineExceeded" { "False" } else { "True" };
    json!({
        "observedGeneration": 1, "replicas": replicas, "updatedReplicas": updated, "readyReplicas": available,
        "availableReplicas": available, "unavailableReplicas": replicas - available,
        "conditions": [
            { "type": "Available", "status": enough, "reason": "R", "message": format!("{available} of {replicas}") },
            { "type": "Progressing", "status": stuck, "reason": progressing, "message": "m" },
        ],
    })
}

#[test]
fn deployments_are_sums() {
    let object = hub(&json!({ "replicas": 6 }));
    let done = "NewReplicaSetAvailable";
    let all = [
        shard("b", &deployment(2, 2, 2, done)),
        shard("a", &deployment(3, 3, 3, done)),
        shard("c", &deployment(1, 1, 1, done)),
    ];
    let status = run("Deployment", &object, &all);
    let fields =
        "replicas updatedReplicas readyReplicas availableReplicas unavailableReplicas observedGeneration";
    assert_eq!(show(&status, fields), "6 6 6 6 null 7");
    assert_eq!(
        condition(&status, "Available"),
        "True MinimumReplicasAvailable Deployment has minimum availability in 3 clusters."
    );
    assert_eq!(
        condition(&status, "Progressing"),
        "True NewReplicaSetAvailable The newest template is rolled out in 3 clusters."
    );
    assert_eq!(condition(&status, MEMBERS_REACHABLE), "null null null");
}

#[test]
fn a_rollout_is_waited_for() {
    let mut object = hub(&json!({ "replicas": 4 }));
    object["status"] = json!({ "observedGeneration": 6 });
    let done = "NewReplicaSetAvailable";
    // One member does not carry the newest intent: what it calls updated is the old template.
    let status = run(
        "Deployment",
        &object,
        &[shard("a", &deployment(2, 2, 2, done)), shard("b<", &deployment(2, 2, 2, done))],
    );
    assert_eq!(show(&status, "replicas updatedReplicas availableReplicas observedGeneration"), "4 2 4 6");
    assert!(condition(&status, "Progressing").starts_with("True ReplicaSetUpdated"), "{status}");
    // It carries it, but its controller has not seen it yet.
    let mut late = shard("b", &deployment(2, 2, 2, done));
    late.1["metadata"]["generation"] = 2.into();
    let status = run("Deployment", &object, &[shard("a", &deployment(2, 2, 2, done)), late]);
    assert_eq!(show(&status, "observedGeneration"), "6");
    // The shard is not there yet.
    let status =
        run("Deployment", &object, &[shard("a", &deployment(2, 2, 2, done)), ("b".into(), Value::Null)]);
    assert_eq!(show(&status, "replicas observedGeneration"), "2 6");
    // Stuck in one cluster: stuck.
    let stuck = "ProgressDeadlineExceeded";
    let status = run(
        "Deployment",
        &object,
        &[shard("a", &deployment(2, 2, 2, done)), shard("b", &deployment(2, 1, 1, stuck))],
    );
    assert_eq!(show(&status, "observedGeneration"), "7");
    assert_eq!(condition(&status, "Progressing"), "False ProgressDeadlineExceeded b: m");
    assert_eq!(condition(&status, "Available"), "False R b: 1 of 2");
}

#[test]
fn offline_members_count_as_there_but_not_as_ready() {
    let object = hub(&json!({ "replicas": 6 }));
    let done = "NewReplicaSetAvailable";
    let mut all = vec![shard("a", &deployment(3, 3, 3, done)), shard("b!", &deployment(3, 3, 3, done))];
    let status = run("Deployment", &object, &all);
    let fields =
        "replicas updatedReplicas readyReplicas availableReplicas unavailableReplicas observedGeneration";
    assert_eq!(show(&status, fields), "6 6 3 3 3 7");
    assert_eq!(
        condition(&status, "Available"),
        "Unknown MembersOffline b is offline; nobody knows what is available there"
    );
    assert_eq!(
        condition(&status, MEMBERS_REACHABLE),
        "False MembersOffline b is offline: the replicas it last reported are counted, but none as ready or available"
    );
    // Enough elsewhere: available, whatever is there.
    all[0] = shard("a", &deployment(6, 6, 6, done));
    let status = run("Deployment", &object, &all);
    assert!(condition(&status, "Available").starts_with("True"), "{status}");
    // Nobody answers: nothing new was observed.
    let status = run("Deployment", &object, &all[1..]);
    assert_eq!(show(&status, "observedGeneration replicas"), "null 3");
    // It is back: nothing to say any more.
    let mut after = object.clone();
    after["status"] = status;
    let status = run("Deployment", &after, &[shard("b", &deployment(3, 3, 3, done))]);
    assert_eq!(condition(&status, MEMBERS_REACHABLE), "null null null");
}

#[test]
fn conditions_of_others_are_kept_and_times_stay() {
    let mut list = vec![json!({ "type": "Propagated", "status": "True", "lastTransitionTime": "then" })];
    assert!(set_condition(&mut list, "Ready", "True", "R", "m", NOW));
    assert!(!set_condition(&mut list, "Ready", "True", "R", "m", LATER));
    assert!(set_condition(&mut list, "Ready", "True", "R", "other", LATER));
    assert_eq!(text_of(&list, "Ready"), NOW);
    assert!(set_condition(&mut list, "Ready", "False", "R", "other", LATER));
    assert_eq!(
        (text_of(&list, "Ready"), text_of(&list, "Propagated")),
        (LATER.to_owned(), "then".to_owned())
    );
    let mut object = hub(&json!({}));
    object["status"] = json!({ "collisionCount": 3, "conditions": list });
    let status = run("Deployment", &object, &[shard("a", &deployment(1, 1, 1, "NewReplicaSetAvailable"))]);
    assert_eq!(status["collisionCount"], 3);
    assert_eq!(text_of(status["conditions"].as_array().unwrap(), "Propagated"), "then");
}

fn text_of(list: &[Value], kind: &str) -> String {
    show(conditions::find(list, kind), "lastTransitionTime")
}

#[test]
fn other_workloads() {
    let object = hub(&json!({ "replicas": 4 }));
    let rs = |n: i64| {
        json!({ "observedGeneration": 1, "replicas": n, "fullyLabeledReplicas": n, "readyReplicas": n,
            "availableReplicas": n, "terminatingReplicas": 0 })
    };
    let fields = "replicas fullyLabeledReplicas readyReplicas availableReplicas terminatingReplicas observedGeneration";
    let all = [shard("a", &rs(2)), shard("b!", &rs(2))];
    assert_eq!(show(&run("ReplicaSet", &object, &all), fields), "4 4 2 2 0 7");
    assert_eq!(show(&run("ReplicationController", &object, &[]), fields), "0 null null null null 7");
    let ds = |n: i64| {
        json!({ "observedGeneration": 1, "desiredNumberScheduled": n, "currentNumberScheduled": n, "numberReady": n,
            "numberAvailable": n, "updatedNumberScheduled": n, "numberMisscheduled": 0 })
    };
    let fields = "desiredNumberScheduled currentNumberScheduled numberReady numberAvailable numberUnavailable \
                  updatedNumberScheduled numberMisscheduled";
    let status = run("DaemonSet", &object, &[shard("a", &ds(2)), shard("b!", &ds(3))]);
    assert_eq!(show(&status, fields), "5 5 2 2 3 5 0");
    let sts = |n: i64, current: &str, update: &str| {
        json!({ "observedGeneration": 1, "replicas": n, "readyReplicas": n, "availableReplicas": n, "currentReplicas": n,
            "updatedReplicas": n, "currentRevision": current, "updateRevision": update })
    };
    let status = run("StatefulSet", &object, &[shard("a", &sts(2, "x", "x")), shard("b", &sts(2, "y", "y"))]);
    assert_eq!(show(&status, "replicas availableReplicas currentRevision updateRevision"), "4 4 x x");
    let status = run("StatefulSet", &object, &[shard("a", &sts(2, "x", "x")), shard("b", &sts(2, "w", "y"))]);
    assert_eq!(show(&status, "currentRevision updateRevision"), "w y");
    let pdb = |n: i64| {
        json!({ "disruptionsAllowed": n, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3,
            "observedGeneration": 1 })
    };
    let status = run("PodDisruptionBudget", &object, &[shard("a", &pdb(1)), shard("b!", &pdb(1))]);
    assert_eq!(show(&status, "disruptionsAllowed currentHealthy desiredHealthy expectedPods"), "1 3 4 6");
    assert_eq!(condition(&status, "DisruptionAllowed"), "True SufficientPods ");
}

#[test]
fn jobs_end_when_all_do() {
    let object = hub(&json!({ "completions": 4, "parallelism": 4 }));
    let runs = json!({ "active": 2, "ready": 1, "terminating": 0, "startTime": "2026-05-01T09:00:00Z" });
    let ended = |what: &str, aim: &str| {
        json!({ "succeeded": 2, "ready": 0, "terminating": 0, "startTime": "2026-05-01T08:00:00Z",
            "completionTime": if what == "Complete" { json!("2026-05-01T09:30:00Z") } else { Value::Null },
            "conditions": [{ "type": aim, "status": "True" },
                { "type": what, "status": "True", "reason": "BackoffLimitExceeded", "message": "too often" }] })
    };
    let done = ended("Complete", "SuccessCriteriaMet");
    let failed = ended("Failed", "FailureTarget");
    let fields = "active ready succeeded startTime completionTime";
    let status = run("Job", &object, &[shard("a", &done), shard("b", &runs)]);
    assert_eq!(show(&status, fields), "2 1 2 2026-05-01T08:00:00Z null");
    assert_eq!(condition(&status, "Complete"), "null null null");
    let status = run("Job", &object, &[shard("a", &done), shard("b!", &done)]);
    assert_eq!(show(&status, fields), "null 0 4 2026-05-01T08:00:00Z 2026-05-01T09:30:00Z");
    assert!(condition(&status, "Complete").starts_with("True CompletionsReached"));
    // A finished Job stays as it is, though its shards go.
    let mut finished = object.clone();
    finished["status"] = status.clone();
    assert_eq!(run("Job", &finished, &[]), status);
    // It will fail while another member still works, and has failed when that is at rest.
    let status = run("Job", &object, &[shard("a", &failed), shard("b", &runs)]);
    assert_eq!(condition(&status, "Failed"), "null null null");
    assert_eq!(condition(&status, "FailureTarget"), "True BackoffLimitExceeded a: too often");
    let mut later = object.clone();
    later["status"] = status;
    let status = run("Job", &later, &[shard("a", &failed), shard("b", &done)]);
    assert_eq!(condition(&status, "Failed"), "True BackoffLimitExceeded a: too often");
    // Members that leave take nothing back.
    let mut counted = object.clone();
    counted["status"] = json!({ "succeeded": 3, "failed": 1, "startTime": "2026-05-01T07:00:00Z" });
    assert_eq!(
        show(&run("Job", &counted, &[shard("b", &runs)]), "succeeded failed startTime"),
        "3 1 2026-05-01T07:00:00Z"
    );
    let cron = |at: &str, name: &str| json!({ "lastScheduleTime": at, "active": [{ "name": name }] });
    let status = run(
        "CronJob",
        &object,
        &[
            shard("a", &cron("2026-05-01T07:00:00Z", "x")),
            shard("b", &cron("2026-05-01T08:00:00Z", "y")),
            shard("c", &cron("zzz", "z")),
        ],
    );
    assert_eq!(
        show(&status, "lastScheduleTime active"),
        r#"2026-05-01T08:00:00Z [{"name":"x"},{"name":"y"},{"name":"z"}]"#
    );
}

#[test]
fn autoscalers_average_by_replicas() {
    let hpa = |n: i64, percent: i64, value: &str| {
        json!({ "currentReplicas": n, "desiredReplicas": n + 1, "lastScaleTime": "2026-05-01T07:00:00Z",
            "currentMetrics": [{ "type": "Resource", "resource": { "name": "cpu",
                "current": { "averageUtilization": percent, "averageValue": value } } }],
            "conditions": [{ "type": "AbleToScale", "status": "True" },
                { "type": "ScalingLimited", "status": "True", "reason": "TooFewReplicas", "message": "m" }] })
    };
    let object = hub(&json!({}));
    let all =
        [shard("a", &hpa(1, 30, "300m")), shard("b", &hpa(3, 70, "700m")), shard("c!", &hpa(2, 99, "1"))];
    let status = run("HorizontalPodAutoscaler", &object, &all);
    assert_eq!(show(&status, "currentReplicas desiredReplicas lastScaleTime"), "6 9 2026-05-01T07:00:00Z");
    assert_eq!(
        status["currentMetrics"],
        json!([{ "type": "Resource", "resource": { "name": "cpu",
            "current": { "averageUtilization": 60, "averageValue": "600m" } } }])
    );
    assert_eq!(condition(&status, "ScalingLimited"), "True TooFewReplicas a: m; b: m");
    assert!(run("HorizontalPodAutoscaler", &object, &[])["currentMetrics"].is_null());
}

#[test]
fn addresses_of_services_and_ingresses() {
    let with = |entries: Value| json!({ "loadBalancer": { "ingress": entries } });
    let all = [
        shard("b", &with(json!([{ "ip": "10.0.0.2" }, { "ip": "10.0.0.1", "ipMode": "Proxy" }]))),
        shard("a", &with(json!([{ "ip": "10.0.0.1", "ipMode": "VIP" }, { "ip": "nonsense" }, {}]))),
        shard("c!", &with(json!([{ "ip": "10.0.0.3" }]))),
        shard("d", &with(json!([{ "hostname": "lb.example.com", "ipMode": "VIP" }]))),
    ];
    let status = run("Service", &hub(&json!({ "type": "LoadBalancer" })), &all);
    assert_eq!(
        status["loadBalancer"],
        json!({ "ingress": [{ "hostname": "web.default.fed.svc.example.com" }, { "ip": "10.0.0.1", "ipMode": "VIP" },
            { "ip": "10.0.0.2", "ipMode": "VIP" }, { "hostname": "lb.example.com" }] })
    );
    assert_eq!(
        condition(&status, MEMBERS_REACHABLE),
        "False MembersOffline c is offline: its addresses are left out"
    );
    assert_eq!(run("Service", &hub(&json!({ "type": "ClusterIP" })), &all), json!({ "loadBalancer": {} }));
    let port = |n: i64| json!({ "port": n, "protocol": "TCP" });
    let all = [
        shard("a", &with(json!([{ "ip": "10.0.0.1", "ports": [port(80)] }]))),
        shard(
            "b",
            &with(json!([{ "ip": "10.0.0.1", "ports": [port(80), port(443)] }, { "ip": "10.0.0.2" }])),
        ),
    ];
    assert_eq!(
        run("Ingress", &hub(&json!({})), &all),
        json!({ "loadBalancer": { "ingress": [{ "ip": "10.0.0.1", "ports": [port(80), port(443)] }, { "ip": "10.0.0.2" }] } })
    );
    for kind in ["ConfigMap", "Secret", "Namespace", "NetworkPolicy", "ServiceAccount"] {
        let object = hub(&json!({}));
        let federated = Federated { kind, object: &object, hostname: None, edges: &[], now: NOW };
        assert_eq!(aggregate(&federated, &shards(&all)), None, "{kind}");
    }
}

/// Any member's status: counts that fit, counts that do not, and nonsense.
fn any_status() -> impl Strategy<Value = Value> {
    let number = prop_oneof![3 => (0_i64..20).prop_map(Value::from), 1 => any::<i64>().prop_map(Value::from),
        1 => Just(Value::Null), 1 => Just(json!("x"))];
    let fields = prop::sample::select(vec![
        "replicas",
        "readyReplicas",
        "availableReplicas",
        "updatedReplicas",
        "unavailableReplicas",
        "active",
        "ready",
        "succeeded",
        "failed",
        "terminating",
        "numberReady",
        "desiredNumberScheduled",
        "currentReplicas",
        "desiredReplicas",
        "observedGeneration",
        "currentHealthy",
        "disruptionsAllowed",
    ]);
    let kinds = prop::sample::select(vec![
        "Available",
        "Progressing",
        "ReplicaFailure",
        "Complete",
        "Failed",
        "FailureTarget",
        "SuccessCriteriaMet",
        "Suspended",
        "AbleToScale",
        "ScalingLimited",
    ]);
    let truths = prop::sample::select(vec!["True", "False", "Unknown"]);
    let condition =
        (kinds, truths).prop_map(|(kind, status)| json!({ "type": kind, "status": status, "reason": "R" }));
    let times =
        prop::option::of(prop::sample::select(vec!["2026-05-01T09:00:00Z", "2026-05-01T08:00:00Z", "?"]));
    (
        prop::collection::btree_map(fields, number, 0..12),
        prop::collection::vec(condition, 0..4),
        times.clone(),
        times,
    )
        .prop_map(|(numbers, conditions, start, end)| {
            let mut status = json!({ "conditions": conditions, "startTime": start, "completionTime": end });
            for (field, value) in numbers {
                status[field] = value;
            }
            status
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_members_say_the_hub_takes_it_and_sums_are_sums(
        rounds in prop::collection::vec(
            prop::collection::vec((prop::sample::select(vec!["", "!", "<", "!<"]), any_status()), 0..5), 1..4),
    ) {
        for (kind, _) in KINDS {
            let mut object = hub(&json!({ "replicas": 5, "type": "LoadBalancer", "completions": 5 }));
            for round in &rounds {
                let names = round.iter().enumerate();
                let all: Vec<_> = names.map(|(at, (mark, status))| shard(&format!("c{at}{mark}"), status)).collect();
                let status = run(kind, &object, &all);
                if *kind == "Deployment" || *kind == "ReplicaSet" {
                    let told = |(_, s): &(String, Value)| int(&s["status"], "replicas").clamp(0, i64::from(i32::MAX));
                    let sum = all.iter().map(told).sum::<i64>().min(i64::from(i32::MAX));
                    prop_assert_eq!(int(&status, "replicas"), sum);
                }
                object["status"] = status;
            }
        }
    }
}

#[test]
fn edges_tell_where_what_they_carry_is_reached() {
    let address = |ip: &str| Address { ip: Some(ip.to_owned()), hostname: None };
    let edges = [address("192.0.2.1"), address("nonsense"), address("192.0.2.2"), address("192.0.2.1")];
    let member = json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}}});
    let shards = [Shard { cluster: "a", object: &member, offline: false, current: true }];
    let service = |class: &str| json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": class}});
    for (kind, object, edges, expected) in [
        ("Ingress", json!({}), &edges[..], "192.0.2.1 192.0.2.2"),
        ("Ingress", json!({}), &[], "198.51.100.1"),
        ("Service", service(""), &edges, "198.51.100.1"),
        ("Service", service("landfall.dev/edge"), &edges, "192.0.2.1 192.0.2.2"),
    ] {
        let federated = Federated { kind, object: &object, hostname: None, edges, now: NOW };
        let status = aggregate(&federated, &shards).unwrap();
        let list = status.pointer("/loadBalancer/ingress").and_then(Value::as_array).unwrap();
        let ips: Vec<&str> = list.iter().filter_map(|one| one["ip"].as_str()).collect();
        assert_eq!(ips.join(" "), expected, "{kind} {object}");
    }
}
