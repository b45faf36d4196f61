//! Pods, Services and slices that make no sense: nothing that reads them fails.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::probe::{PURPOSES, Probe};
use super::program::{Programs, decide};
use super::{resume, status};
use crate::forward::hostile_plan;

/// Words that mean something to whoever reads these objects.
const WORDS: &[&str] = &[
    "metadata",
    "name",
    "namespace",
    "uid",
    "labels",
    "spec",
    "status",
    "containers",
    "initContainers",
    "image",
    "command",
    "args",
    "ports",
    "containerPort",
    "protocol",
    "UDP",
    "restartPolicy",
    "Always",
    "Never",
    "OnFailure",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "httpGet",
    "tcpSocket",
    "grpc",
    "exec",
    "port",
    "path",
    "host",
    "periodSeconds",
    "initialDelaySeconds",
    "failureThreshold",
    "containerStatuses",
    "initContainerStatuses",
    "state",
    "running",
    "terminated",
    "waiting",
    "lastState",
    "restartCount",
    "exitCode",
    "startedAt",
    "2026-01-01T00:00:00Z",
    "conditions",
    "type",
    "Ready",
    "True",
    "readinessGates",
    "conditionType",
    "podIP",
    "127.1.8.1",
    "sleep",
    "sh",
    "-c",
    "exit 1; sleep 1e9",
    "clusterIP",
    "clusterIPs",
    "endpoints",
    "addresses",
    "kubernetes.io/service-name",
    "loadBalancer",
    "ingress",
    "ip",
    "nodePort",
    "sessionAffinity",
    "ClientIP",
    "sessionAffinityConfig",
    "clientIP",
    "timeoutSeconds",
    "",
    "\u{0}",
    "é",
];

fn word() -> impl Strategy<Value = String> {
    prop_oneof![9 => proptest::sample::select(WORDS).prop_map(str::to_owned), 1 => ".{0,8}"]
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0..70_000_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word(), inner), 0..6).prop_map(|pairs| Value::from(Map::from_iter(pairs))),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_fails(spec in json_value(), state in json_value(), container in json_value(), more in json_value()) {
        let pod = json!({"metadata": {"name": "p"}, "status": state, "spec": {
            "containers": [container, spec.clone()], "initContainers": [more], "readinessGates": spec}});
        let state = resume::state(&pod, None, 0);
        for pod in [&pod, &spec] {
            let _ = status::status(pod, &state, i64::MAX);
        }
        for spec in [&container, &spec] {
            let _ = decide(spec, true, &Programs::default());
            for purpose in PURPOSES {
                let _ = Probe::parse(spec, purpose, [127, 1, 8, 1].into());
            }
        }
        let labelled = json!({"metadata": {"labels": {"kubernetes.io/service-name": "p"}}, "ports": [container],
            "endpoints": [more]});
        hostile_plan(&[Arc::new(pod), Arc::new(spec)], &[Arc::new(labelled), Arc::new(more)]);
    }
}
