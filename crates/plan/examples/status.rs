//! How long the status of one Deployment takes to add up: `cargo run --release -p landfall-plan --example status`.
#![expect(clippy::print_stdout, reason = "a measurement is printed")]

use std::hint::black_box;
use std::time::Instant;

use landfall_plan::status::{Federated, Shard, aggregate};
use serde_json::{Value, json};

const CLUSTERS: usize = 100;
const ROUNDS: u32 = 2_000;

fn main() {
    let names: Vec<String> = (0..CLUSTERS).map(|at| format!("cluster-{at:04}")).collect();
    let object = json!({
        "metadata": {"generation": 1},
        "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2,
            "availableReplicas": 2, "conditions": [
                {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "m"},
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": "m"},
            ]},
    });
    let shards: Vec<Shard<'_>> = names
        .iter()
        .map(|cluster| Shard { cluster, object: &object, offline: false, current: true })
        .collect();
    let mut hub = json!({"metadata": {"generation": 1}, "spec": {"replicas": 200}});
    hub["status"] = add_up(&hub, &shards);
    let start = Instant::now();
    for _ in 0..ROUNDS {
        black_box(add_up(black_box(&hub), black_box(&shards)));
    }
    println!("{CLUSTERS} clusters: {} µs", start.elapsed().as_micros() / u128::from(ROUNDS));
}

fn add_up(hub: &Value, shards: &[Shard<'_>]) -> Value {
    let federated = Federated {
        kind: "Deployment",
        object: hub,
        hostname: None,
        edges: &[],
        now: "2026-01-01T00:00:00Z",
    };
    aggregate(&federated, shards).unwrap_or_default()
}
