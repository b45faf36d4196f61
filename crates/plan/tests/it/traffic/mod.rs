//! Who goes where: stories; what holds for every input is in `properties`.

mod properties;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use landfall_api::landfall::{
    Canary, ClusterSelection, EndpointCapacity, Load, Locality, LocalityBy, Overflow, OverflowMode,
    PlanMember, PlanVantage, RoundTrip, TrafficPolicySpec, Weight, WhenAllDown,
};
use landfall_plan::proximity::{Atlas, RoundTrips};
use landfall_plan::traffic::{Answer, Candidate, Question, capacity, fence, plan, settled_load};

/// Clusters on a line: a at 0 ms, b at 10 ms, c at 20 ms, and so on; regions `west` (a, b) and `east` (the rest).
fn line(count: usize, by: LocalityBy) -> Atlas {
    let names: Vec<String> = NAMES.iter().take(count).map(|name| (*name).to_owned()).collect();
    let members: Vec<PlanMember> = names
        .iter()
        .enumerate()
        .map(|(at, name)| PlanMember {
            name: name.clone(),
            region: Some(if at < 2 { "west" } else { "east" }.into()),
            ..PlanMember::default()
        })
        .collect();
    let trips = |from: usize| -> Vec<RoundTrip> {
        let far = |to: usize| RoundTrip {
            cluster: names[to].clone(),
            milliseconds: 10.0 * (from.abs_diff(to)) as f64,
        };
        (0..count).filter(|to| *to != from).map(far).collect()
    };
    let all: Vec<Vec<RoundTrip>> = (0..count).map(trips).collect();
    let trips = RoundTrips::measured(names.iter().map(String::as_str).zip(all.iter().map(Vec::as_slice)));
    Atlas::new(&members, &[], trips, by)
}

const NAMES: &[&str] = &["a", "b", "c", "d", "e", "f", "g", "h"];

/// A service and its surroundings, easily changed.
#[derive(Clone, Debug)]
struct Scene {
    clusters: Vec<Cluster>,
    policy: TrafficPolicySpec,
    demand: BTreeMap<String, f64>,
    members: usize,
}

#[derive(Clone, Debug)]
struct Cluster {
    up: bool,
    up_inside: bool,
    endpoints: u32,
    inside: bool,
    outside: bool,
    capacity: Option<f64>,
    cordoned: bool,
    draining: bool,
    labels: BTreeMap<String, String>,
}

impl Default for Cluster {
    fn default() -> Self {
        let labels = BTreeMap::new();
        Self {
            up: true,
            up_inside: false,
            endpoints: 1,
            inside: true,
            outside: true,
            capacity: None,
            cordoned: false,
            draining: false,
            labels,
        }
    }
}

impl Scene {
    fn new(count: usize) -> Self {
        let policy = TrafficPolicySpec::default();
        Self { clusters: vec![Cluster::default(); count], policy, demand: BTreeMap::new(), members: count }
    }

    /// With capacities and demands, in the order of the clusters.
    fn loaded(capacities: &[f64], demands: &[f64]) -> Self {
        let mut scene = Self::new(capacities.len());
        for (cluster, capacity) in scene.clusters.iter_mut().zip(capacities) {
            cluster.capacity = Some(*capacity);
        }
        scene.demand =
            NAMES.iter().zip(demands).map(|(name, demand)| ((*name).to_owned(), *demand)).collect();
        scene
    }

    fn plan(&self, previous: &[PlanVantage]) -> Answer {
        let candidates: Vec<Candidate<'_>> = NAMES
            .iter()
            .zip(&self.clusters)
            .map(|(name, one)| Candidate {
                name,
                labels: &one.labels,
                up: one.up,
                up_inside: one.up_inside,
                endpoints: one.endpoints,
                inside: one.inside,
                outside: one.outside,
                capacity: one.capacity,
                cordoned: one.cordoned,
                draining: one.draining,
            })
            .collect();
        let by = self.policy.locality.as_ref().map_or(LocalityBy::Measured, |locality| locality.by);
        let question =
            Question { candidates: &candidates, policy: &self.policy, demand: &self.demand, previous };
        plan(&question, &line(self.members, by))
    }
}

fn vantage<'a>(answer: &'a Answer, name: &str) -> &'a PlanVantage {
    let is = |one: &&PlanVantage| match name {
        "west" | "east" => one.region.as_deref() == Some(name),
        "" => one.cluster.is_none() && one.region.is_none(),
        _ => one.cluster.as_deref() == Some(name),
    };
    answer.vantages.iter().find(is).unwrap_or_else(|| panic!("no vantage {name}"))
}

/// Choices as words, such as `a 0.7 Local, b 0.3 Overflow`.
fn told(vantage: &PlanVantage) -> String {
    let one = |choice: &landfall_api::landfall::PlanChoice| {
        format!("{} {} {}", choice.cluster, choice.fraction, choice.reason.split(':').next().unwrap_or(""))
    };
    vantage.choices.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[track_caller]
fn check(scene: &Scene, from: &str, expected: &str) {
    assert_eq!(told(vantage(&scene.plan(&[]), from)), expected, "from {from:?}");
}

fn named(names: &str) -> ClusterSelection {
    let names = names.split_whitespace().map(str::to_owned).collect();
    ClusterSelection { names, selector: None }
}

fn european() -> LabelSelector {
    LabelSelector {
        match_labels: Some([("law".to_owned(), "eu".to_owned())].into()),
        ..LabelSelector::default()
    }
}

#[test]
fn local_first_then_near_to_far() {
    let scene = Scene::new(3);
    check(&scene, "a", "a 1 Local, b 0 Standby, c 0 Standby");
    check(&scene, "c", "c 1 Local, b 0 Standby, a 0 Standby");
    check(&scene, "east", "c 1 Nearest, b 0 Standby, a 0 Standby");
    // Nobody knows where these are: everyone takes a share.
    let anywhere = vantage(&scene.plan(&[]), "").clone();
    assert!(anywhere.choices.iter().all(|choice| (0.333..=0.334).contains(&choice.fraction)), "{anywhere:?}");
    assert!(anywhere.choices.iter().all(|choice| choice.reason.starts_with("Spread:")));
}

#[test]
fn what_is_down_or_empty_or_has_no_address_is_left_out() {
    let mut scene = Scene::new(4);
    scene.clusters[0].up = false;
    scene.clusters[1].endpoints = 0;
    (scene.clusters[2].inside, scene.clusters[2].outside) = (false, false);
    check(&scene, "a", "d 1 Nearest");
    let left_out = scene.plan(&[]).left_out;
    let said: Vec<String> =
        left_out.iter().map(|one| one.as_ref().map_or("-", |reason| reason.code).to_owned()).collect();
    assert_eq!(said.join(" "), "Down NoEndpoints NoAddress -");
}

#[test]
fn clients_inside_need_no_address_outside() {
    let mut scene = Scene::new(2);
    scene.clusters[0].outside = false;
    check(&scene, "a", "a 1 Local, b 0 Standby");
    check(&scene, "b", "b 1 Local");
    check(&scene, "west", "b 1 Nearest");
}

#[test]
fn a_dead_gateway_does_not_drive_out_clients_inside() {
    let mut scene = Scene::new(3);
    (scene.clusters[0].up, scene.clusters[0].up_inside) = (false, true);
    check(&scene, "a", "a 1 Local, b 0 Standby, c 0 Standby");
    check(&scene, "b", "b 1 Local, c 0 Standby");
}

#[test]
fn what_the_nearest_has_no_room_for_overflows() {
    let scene = Scene::loaded(&[100.0, 100.0, 100.0], &[150.0, 60.0, 0.0]);
    check(&scene, "a", "a 0.667 Local, b 0.267 Overflow, c 0.066 Overflow");
    check(&scene, "b", "b 1 Local, c 0 Standby, a 0 Standby");
    // Nothing is known of the demand here: the nearest is full, so the next.
    check(&scene, "west", "c 1 Overflow, b 0 Standby, a 0 Standby");
    check(&scene, "", "c 1 Spread, b 0 Standby, a 0 Standby");
    let mut early = scene.clone();
    early.policy.overflow = Some(Overflow { threshold_percent: Some(50), ..Overflow::default() });
    early.demand = [("a".to_owned(), 100.0)].into();
    check(&early, "a", "a 0.5 Local, b 0.5 Overflow, c 0 Standby");
}

#[test]
fn overflow_as_the_policy_says() {
    let mut scene = Scene::loaded(&[100.0, 100.0, 300.0], &[200.0, 50.0]);
    scene.policy.overflow = Some(Overflow { mode: OverflowMode::Spread, threshold_percent: None });
    check(&scene, "a", "a 0.5 Local, b 0.071 Overflow, c 0.429 Overflow");
    scene.policy.overflow = Some(Overflow { mode: OverflowMode::Never, threshold_percent: None });
    check(&scene, "a", "a 1 Local, b 0 Standby, c 0 Standby");
}

#[test]
fn if_everything_is_full_by_capacity() {
    let scene = Scene::loaded(&[100.0, 300.0], &[400.0, 400.0]);
    let answer = scene.plan(&[]);
    assert_eq!(told(vantage(&answer, "a")), "a 0.438 Full, b 0.562 Full");
    // Everyone is overloaded alike: a has 175 and 25, twice what it can; so has b with 225 and 375.
    assert_eq!(told(vantage(&answer, "b")), "b 0.938 Full, a 0.062 Full");
}

#[test]
fn cordoned_and_drained_only_when_nothing_else_is_healthy() {
    let mut scene = Scene::new(3);
    scene.clusters[0].cordoned = true;
    scene.clusters[1].draining = true;
    check(&scene, "a", "c 1 Nearest");
    let codes = |scene: &Scene| -> Vec<Option<&str>> {
        scene.plan(&[]).left_out.iter().map(|one| one.as_ref().map(|reason| reason.code)).collect()
    };
    assert_eq!(codes(&scene), [Some("Cordoned"), Some("Draining"), None]);
    scene.clusters[2].up = false;
    check(&scene, "a", "a 1 LastResort, b 0 LastResort");
    assert_eq!(codes(&scene), [None, None, Some("Down")]);
}

#[test]
fn if_everything_is_down_open_or_closed() {
    let mut scene = Scene::new(2);
    scene.clusters.iter_mut().for_each(|cluster| cluster.up = false);
    check(&scene, "a", "a 1 FailOpen, b 0 FailOpen");
    scene.policy.when_all_down = WhenAllDown::Closed;
    check(&scene, "a", "");
}

#[test]
fn the_fence_is_never_left() {
    let mut scene = Scene::loaded(&[10.0, 100.0, 100.0], &[50.0]);
    scene.policy.fence = Some(named("a c"));
    check(&scene, "a", "a 0.2 Local, c 0.8 Overflow");
    check(&scene, "b", "c 1 Nearest, a 0 Standby");
    scene.clusters[0].up = false;
    scene.clusters[2].up = false;
    check(&scene, "a", "a 0.2 FailOpen, c 0.8 FailOpen");
    scene.policy.fence = Some(named("x"));
    check(&scene, "a", "");
    let labels = BTreeMap::new();
    let members = || ["a", "b"].into_iter().map(|name| (name, &labels));
    assert_eq!(fence(&scene.policy, members()), ["-"]);
    scene.policy.fence = Some(named("b x"));
    assert_eq!(fence(&scene.policy, members()), ["b"]);
    scene.policy.fence = Some(ClusterSelection { names: vec![], selector: Some(european()) });
    scene.clusters[1].labels.insert("law".into(), "eu".into());
    check(&scene, "a", "b 1 Nearest");
    // What cannot be read lets nobody in.
    let selector =
        serde_json::from_value(serde_json::json!({"matchExpressions": [{"key": "law", "operator": "Like"}]}));
    scene.policy.fence = Some(ClusterSelection { names: vec![], selector: Some(selector.unwrap()) });
    check(&scene, "a", "");
}

#[test]
fn weights_instead_of_nearness() {
    let mut scene = Scene::new(3);
    let weight = |names: &str, weight: i32| Weight { clusters: named(names), weight };
    scene.policy.weights = vec![weight("a", 1), weight("b", 3)];
    check(&scene, "c", "b 0.75 Weighted, a 0.25 Weighted, c 0 Standby");
    check(&scene, "", "b 0.75 Weighted, a 0.25 Weighted, c 0 Standby");
    scene.clusters[1].up = false;
    check(&scene, "c", "a 1 Weighted, c 0 Standby");
    scene.clusters[0].up = false;
    check(&scene, "c", "c 1 Spread");
}

#[test]
fn weights_know_limits() {
    let mut scene = Scene::loaded(&[10.0, 100.0, 100.0], &[60.0, 20.0]);
    scene.policy.weights = vec![Weight { clusters: named(""), weight: 1 }];
    check(&scene, "a", "a 0.125 Weighted, b 0.438 Weighted, c 0.437 Weighted");
}

#[test]
fn a_canary_takes_its_part() {
    let mut scene = Scene::new(3);
    scene.policy.canary = Some(Canary { clusters: named("c"), percent: 10.0, headers: BTreeMap::new() });
    check(&scene, "a", "a 0.9 Local, c 0.1 Canary, b 0 Standby");
    check(&scene, "c", "c 0.1 Canary, b 0.9 Nearest, a 0 Standby");
    scene.clusters[2].up = false;
    check(&scene, "a", "a 1 Local, b 0 Standby");
    // With requests under way it was said that everything was full: nobody had room for the part of a canary that was gone.
    scene.demand.insert("a".into(), 50.0);
    check(&scene, "a", "a 1 Local, b 0 Standby");
    scene.policy.weights = vec![Weight { clusters: named("a"), weight: 1 }];
    check(&scene, "a", "a 1 Weighted, b 0 Standby");
    scene.policy.weights.clear();
    scene.demand.clear();
    scene.clusters[2].up = true;
    scene.clusters[0].up = false;
    scene.clusters[1].up = false;
    check(&scene, "a", "c 1 Canary");
}

#[test]
fn locality_as_the_policy_says() {
    let mut scene = Scene::new(3);
    scene.policy.locality = Some(Locality { by: LocalityBy::Measured, prefer: vec!["c".into(), "b".into()] });
    check(&scene, "a", "c 1 Preferred, b 0 Standby, a 0 Standby");
    scene.policy.locality = Some(Locality { by: LocalityBy::Ignore, prefer: vec![] });
    scene.clusters[0].endpoints = 2;
    let answer = scene.plan(&[]);
    let of =
        |name: &str| vantage(&answer, "b").choices.iter().find(|one| one.cluster == name).unwrap().fraction;
    assert_eq!((of("a"), of("b"), of("c")), (0.5, 0.25, 0.25));
}

#[test]
fn little_moves_nobody() {
    let before = Scene::loaded(&[100.0, 1000.0], &[100.0]);
    let plan = before.plan(&[]);
    assert_eq!(told(vantage(&plan, "a")), "a 1 Local, b 0 Standby");
    let little = Scene::loaded(&[100.0, 1000.0], &[104.0]).plan(&plan.vantages);
    assert_eq!(told(vantage(&little, "a")), "a 1 Local, b 0 Standby");
    let more = Scene::loaded(&[100.0, 1000.0], &[150.0]).plan(&plan.vantages);
    assert_eq!(told(vantage(&more, "a")), "a 0.667 Local, b 0.333 Overflow");
    let back = Scene::loaded(&[100.0, 1000.0], &[144.0]).plan(&more.vantages);
    assert_eq!(told(vantage(&back, "a")), "a 0.667 Local, b 0.333 Overflow");
    // But a percentage that somebody wrote down is meant.
    let mut canary = before.clone();
    canary.policy.canary = Some(Canary { clusters: named("b"), percent: 1.0, headers: BTreeMap::new() });
    let one = canary.plan(&plan.vantages);
    assert_eq!(told(vantage(&one, "a")), "a 0.99 Local, b 0.01 Canary");
    // Whoever goes away moves everybody.
    let mut down = before;
    down.clusters[0].up = false;
    assert_eq!(told(vantage(&down.plan(&plan.vantages), "a")), "b 1 Nearest");
}

#[test]
fn a_vantage_of_unknown_demand_does_not_go_to_and_fro() {
    let at = |demand: f64, previous: &[PlanVantage]| {
        Scene::loaded(&[1000.0, 1000.0, 100.0], &[0.0, 0.0, demand]).plan(previous)
    };
    let first = at(99.0, &[]);
    assert_eq!(vantage(&first, "east").choices[0].cluster, "c");
    let full = at(130.0, &first.vantages);
    assert_eq!(vantage(&full, "east").choices[0].cluster, "b");
    let nearly = at(97.0, &full.vantages);
    assert_eq!(vantage(&nearly, "east").choices[0].cluster, "b");
    let free = at(80.0, &nearly.vantages);
    assert_eq!(vantage(&free, "east").choices[0].cluster, "c");
}

#[test]
fn members_without_the_service_that_say_nothing_new_say_nothing() {
    let mut scene = Scene::new(1);
    scene.members = 4;
    let answer = scene.plan(&[]);
    let from: Vec<String> = answer
        .vantages
        .iter()
        .map(|one| one.cluster.clone().or_else(|| one.region.clone()).unwrap_or_default())
        .collect();
    assert_eq!(from, ["a", "east", "west", ""]);
    assert_eq!(scene.plan(&answer.vantages), answer);
}

#[test]
fn capacity_is_the_first_limit_that_is_reached() {
    let policy = |rate: Option<f64>, flights: Option<i32>, used: Option<i32>| EndpointCapacity {
        requests_per_second: rate,
        concurrency: flights,
        utilization_percent: used,
    };
    let load = Load { requests_per_second: Some(100.0), concurrency: Some(20.0), ..Load::default() };
    let quiet = Load::default();
    for (policy, load, used, expected) in [
        (policy(Some(50.0), None, None), &quiet, None, Some(150.0)),
        (policy(None, Some(10), None), &load, None, Some(150.0)),
        (policy(None, Some(10), None), &quiet, None, None),
        (policy(None, None, Some(80)), &load, Some(40.0), Some(200.0)),
        (policy(Some(50.0), Some(5), Some(80)), &load, Some(40.0), Some(75.0)),
        (policy(Some(f64::NAN), None, None), &quiet, None, None),
        (policy(Some(-5.0), None, None), &quiet, None, Some(0.0)),
    ] {
        assert_eq!(capacity(Some(&policy), 3, load, used), expected, "{policy:?}");
    }
    assert_eq!(capacity(None, 3, &load, None), None);
}

#[test]
fn a_load_is_told_when_it_is_clearly_different() {
    for (previous, now, expected) in [
        (None, Some(1234.0), Some(1200.0)),
        (Some(1200.0), Some(1400.0), Some(1200.0)),
        (Some(1200.0), Some(1500.0), Some(1500.0)),
        (Some(1200.0), None, None),
        (None, Some(0.0), None),
        (None, Some(f64::NAN), None),
        (None, Some(0.034), Some(0.034)),
    ] {
        assert_eq!(settled_load(previous, now), expected, "{previous:?} {now:?}");
    }
}
