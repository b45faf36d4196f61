//! How long the replicas of one object take to plan: `cargo run --release -p landfall-plan --example replicas`.
#![expect(clippy::print_stdout, reason = "a measurement is printed")]

use std::hint::black_box;
use std::time::Instant;

use landfall_plan::replicas::{ClusterPreferences, Observation, Policy, Preferences, Request, plan};

// As in the hub.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CLUSTERS: u32 = 1_000;
/// Rounds of one turn, and turns, of which the middle one counts: what else the machine does comes in bursts.
const ROUNDS: u32 = 200;
const TURNS: usize = 5;

fn main() {
    let new: Vec<Observation> = (0..CLUSTERS).map(|at| seen(at, None)).collect();
    let steady: Vec<Observation> = (0..CLUSTERS).map(|at| seen(at, Some(10))).collect();
    let mut lost = steady.clone();
    lost.iter_mut().step_by(3).for_each(|seen| seen.offline_since_ms = Some(0));
    let mut crowded = steady.clone();
    crowded.iter_mut().step_by(2).for_each(|seen| seen.capacity = Some(3));
    let even = Preferences::default();
    let rebalance = Preferences { rebalance: true, ..Preferences::default() };
    let mut uneven = Preferences::default();
    for (at, seen) in (1_u32..).zip(&new) {
        let wished = ClusterPreferences { weight: at, min_replicas: at % 3, max_replicas: Some(8 + at % 17) };
        uneven.clusters.insert(seen.cluster.clone(), wished);
    }
    measure("first placement", &new, &even, 10_000);
    measure("nothing changes", &steady, &even, 10_000);
    measure("a third is lost", &lost, &even, 10_000);
    measure("half have no room", &crowded, &even, 10_000);
    measure("half have no room, rebalancing", &crowded, &rebalance, 10_000);
    measure("weights, minimums and maximums", &steady, &uneven, 14_000);
}

fn seen(at: u32, spec: Option<u32>) -> Observation {
    let cluster = format!("cluster-{at:04}");
    Observation { cluster, spec, goal: spec, ready: spec.unwrap_or(0), ..Observation::default() }
}

fn measure(name: &str, clusters: &[Observation], preferences: &Preferences, replicas: u32) {
    let policy = Policy::default();
    let (key, autoscaled, now_ms) = ("shop/web", false, 1_000_000);
    let request = Request { key, replicas, preferences, policy: &policy, autoscaled, clusters, now_ms };
    let turn = || {
        let mut times: Vec<u128> = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                black_box(plan(black_box(&request)));
                start.elapsed().as_micros()
            })
            .collect();
        times.sort_unstable();
        let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or(0);
        (at(99), at(50))
    };
    let mut turns: Vec<(u128, u128)> = (0..TURNS).map(|_| turn()).collect();
    turns.sort_unstable();
    let (high, median) = turns.get(TURNS / 2).copied().unwrap_or_default();
    println!("{name:<32} {CLUSTERS} clusters: median {median} µs, P99 {high} µs");
}
