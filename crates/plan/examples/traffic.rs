//! How long the traffic of one service takes to plan: `cargo run --release -p landfall-plan --example traffic`.
#![expect(clippy::print_stdout, reason = "a measurement is printed")]

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::time::Instant;

use landfall_api::landfall::{Coordinates, LocalityBy, PlanEdge, PlanMember, TrafficPolicySpec};
use landfall_plan::proximity::{Atlas, RoundTrips};
use landfall_plan::quorum::{Ballots, Case, Court, Roster, Witness, target, verdict};
use landfall_plan::traffic::{Candidate, Question, plan};

const MEMBERS: u32 = 1_000;
const ROUNDS: usize = 20;

fn main() {
    let members: Vec<PlanMember> = (0..MEMBERS).map(member).collect();
    measure("atlas of 1,000 members", || {
        Atlas::new(&members, &[], RoundTrips::default(), LocalityBy::Measured)
    });
    let atlas = Atlas::new(&members, &[], RoundTrips::default(), LocalityBy::Measured);
    let busy: BTreeMap<String, f64> = members.iter().map(|member| (member.name.clone(), 100.0)).collect();
    let policy = TrafficPolicySpec::default();
    for (clusters, capacity) in [(3, None), (3, Some(50_000.0)), (1_000, None), (1_000, Some(120.0))] {
        let labels = BTreeMap::new();
        let candidates: Vec<Candidate<'_>> =
            members.iter().take(clusters).map(|member| candidate(&member.name, &labels, capacity)).collect();
        let question = Question { candidates: &candidates, policy: &policy, demand: &busy, previous: &[] };
        let first = plan(&question, &atlas);
        measure(&format!("plan for {clusters} clusters, capacity {capacity:?}"), || plan(&question, &atlas));
        let again = Question { previous: &first.vantages, ..question };
        measure("  the same again", || plan(&again, &atlas));
    }
    let edges: Vec<PlanEdge> = (0..2 * MEMBERS).map(edge).collect();
    let roster = Roster::new(&edges);
    let targets: Vec<String> = members.iter().map(|member| target(&member.name, "shop", "web", 80)).collect();
    let (ballots, isolated) = (Ballots::default(), BTreeSet::new());
    let court = Court { roster: &roster, ballots: &ballots, isolated: &isolated };
    measure("1,000 verdicts, 2,000 edges", || {
        let case = |target: &String| {
            verdict(&Case { target, previous: None, witness: Witness::Silent, unseen: false }, &court, 0)
        };
        targets.iter().map(case).collect::<Vec<_>>()
    });
}

fn member(at: u32) -> PlanMember {
    let coordinates =
        Coordinates { latitude: f64::from(at % 170) - 85.0, longitude: f64::from(at % 350) - 175.0 };
    let region = Some(format!("region-{}", at % 20));
    PlanMember { name: format!("cluster-{at:04}"), region, zones: Vec::new(), coordinates: Some(coordinates) }
}

fn edge(at: u32) -> PlanEdge {
    let cluster = format!("cluster-{:04}", at / 2);
    PlanEdge { name: format!("edge-{at:04}"), cluster, alive: true, ..PlanEdge::default() }
}

fn candidate<'a>(
    name: &'a str,
    labels: &'a BTreeMap<String, String>,
    capacity: Option<f64>,
) -> Candidate<'a> {
    Candidate {
        name,
        labels,
        up: true,
        up_inside: true,
        endpoints: 3,
        inside: true,
        outside: true,
        capacity,
        cordoned: false,
        draining: false,
    }
}

fn measure<T>(name: &str, run: impl Fn() -> T) {
    let mut times: Vec<u128> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            black_box(run());
            start.elapsed().as_micros()
        })
        .collect();
    times.sort_unstable();
    let median = times.get(ROUNDS / 2).copied().unwrap_or(0);
    println!("{name:<48} median {median} µs");
}
