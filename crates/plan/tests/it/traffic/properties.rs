//! What holds for every service.

use std::collections::BTreeMap;

use landfall_api::landfall::{
    Canary, ClusterSelection, Locality, LocalityBy, Overflow, OverflowMode, PlanVantage, TrafficPolicySpec,
    Weight, WhenAllDown,
};
use landfall_plan::traffic::Answer;
use proptest::prelude::*;

use super::{Cluster, NAMES, Scene, european, line, named};

fn any_scene() -> impl Strategy<Value = Scene> {
    let cluster = (
        (prop::bool::weighted(0.8), any::<bool>(), 0_u32..4, any::<bool>(), prop::bool::weighted(0.8)),
        prop::option::of(0.0..200.0_f64),
        (prop::bool::weighted(0.1), prop::bool::weighted(0.1), any::<bool>()),
    );
    let cluster = cluster.prop_map(
        |((up, up_inside, endpoints, inside, outside), capacity, (cordoned, draining, eu))| {
            let labels = if eu { [("law".to_owned(), "eu".to_owned())].into() } else { BTreeMap::new() };
            Cluster { up, up_inside, endpoints, inside, outside, capacity, cordoned, draining, labels }
        },
    );
    let selection = prop_oneof![
        Just(named("a c e")),
        Just(named("zz")),
        Just(ClusterSelection { names: vec![], selector: Some(european()) }),
    ];
    let policy = (
        prop::option::of(selection.clone()),
        prop::option::of((selection.clone(), 0.0..100.0_f64)),
        prop::collection::vec((selection, 0..4_i32), 0..3),
        prop::sample::select(vec![OverflowMode::NextNearest, OverflowMode::Spread, OverflowMode::Never]),
        prop::sample::select(vec![LocalityBy::Measured, LocalityBy::Ignore]),
        any::<bool>(),
        1..=100_i32,
    );
    let policy = policy.prop_map(|(fence, canary, weights, mode, by, closed, threshold)| TrafficPolicySpec {
        fence,
        canary: canary.map(|(clusters, percent)| Canary { clusters, percent, headers: BTreeMap::new() }),
        weights: weights.into_iter().map(|(clusters, weight)| Weight { clusters, weight }).collect(),
        overflow: Some(Overflow { mode, threshold_percent: Some(threshold) }),
        locality: Some(Locality { by, prefer: vec!["d".into()] }),
        when_all_down: if closed { WhenAllDown::Closed } else { WhenAllDown::Open },
        ..TrafficPolicySpec::default()
    });
    (prop::collection::vec(cluster, 0..8), policy, prop::collection::vec(0.0..200.0_f64, 0..8)).prop_map(
        |(clusters, policy, demands)| Scene {
            members: 8,
            clusters,
            policy,
            demand: NAMES.iter().map(|name| (*name).to_owned()).zip(demands).collect(),
        },
    )
}

/// What each cluster is given of what all members ask for.
fn loads(scene: &Scene, answer: &Answer) -> BTreeMap<String, f64> {
    let mut loads = BTreeMap::new();
    for vantage in &answer.vantages {
        let demand = vantage.cluster.as_ref().and_then(|name| scene.demand.get(name)).copied().unwrap_or(0.0);
        for choice in &vantage.choices {
            *loads.entry(choice.cluster.clone()).or_default() += demand * choice.fraction;
        }
    }
    loads
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn fractions_add_up_and_no_fence_leaks(scene in any_scene(), before in any_scene()) {
        let previous = before.plan(&[]);
        for answer in [scene.plan(&[]), scene.plan(&previous.vantages)] {
            for vantage in &answer.vantages {
                let sum: f64 = vantage.choices.iter().map(|choice| choice.fraction).sum();
                prop_assert!(vantage.choices.is_empty() || (sum - 1.0).abs() < 1e-9, "{vantage:?}");
                for choice in &vantage.choices {
                    prop_assert!((0.0..=1.0).contains(&choice.fraction) && !choice.reason.is_empty());
                    let at = NAMES.iter().position(|name| *name == choice.cluster).unwrap();
                    let cluster = &scene.clusters[at];
                    let selection = scene.policy.fence.as_ref();
                    let inside = selection.is_none_or(|fence| match &fence.selector {
                        Some(_) => cluster.labels.contains_key("law"),
                        None => fence.names.contains(&choice.cluster),
                    });
                    prop_assert!(inside, "{choice:?} is outside the fence");
                    let here = vantage.cluster.as_ref() == Some(&choice.cluster);
                    prop_assert!(cluster.outside || here && cluster.inside);
                }
                let mut seen: Vec<&str> = vantage.choices.iter().map(|choice| choice.cluster.as_str()).collect();
                seen.sort_unstable();
                seen.dedup();
                prop_assert_eq!(seen.len(), vantage.choices.len());
            }
            prop_assert_eq!(answer.left_out.len(), scene.clusters.len());
        }
    }

    #[test]
    fn never_empty_while_something_is_healthy(scene in any_scene()) {
        let mut scene = scene;
        scene.policy.fence = None;
        let answer = scene.plan(&[]);
        let healthy = |one: &Cluster| one.up && one.endpoints > 0 && one.outside;
        if scene.clusters.iter().any(healthy) {
            let first = |one: &PlanVantage| one.choices.first().is_some_and(|choice| choice.fraction > 0.0);
            prop_assert!(answer.vantages.iter().all(first));
            // And nobody is sent to what is down, except from within.
            for vantage in &answer.vantages {
                for choice in &vantage.choices {
                    let at = NAMES.iter().position(|name| *name == choice.cluster).unwrap();
                    let one = &scene.clusters[at];
                    let here = vantage.cluster.as_ref() == Some(&choice.cluster) && one.up_inside;
                    prop_assert!((one.up || here) && one.endpoints > 0, "{choice:?}");
                }
            }
        }
    }

    #[test]
    fn no_change_in_no_change_out(scene in any_scene(), before in any_scene()) {
        let first = scene.plan(&before.plan(&[]).vantages);
        let second = scene.plan(&first.vantages);
        prop_assert_eq!(&scene.plan(&second.vantages), &second);
        prop_assert_eq!(&first, &second);
    }

    #[test]
    fn capacity_is_kept_while_it_suffices_and_the_nearest_is_used_first(
        capacities in prop::collection::vec(0.0..200.0_f64, 1..8), demands in prop::collection::vec(0.0..200.0_f64, 8),
        spread: bool,
    ) {
        let mut scene = Scene::loaded(&capacities, &demands);
        scene.members = 8;
        let mode = if spread { OverflowMode::Spread } else { OverflowMode::NextNearest };
        scene.policy.overflow = Some(Overflow { mode, threshold_percent: None });
        let answer = scene.plan(&[]);
        let loads = loads(&scene, &answer);
        let (total, room): (f64, f64) = (scene.demand.values().sum(), capacities.iter().sum());
        // Members without the service may say nothing of their own; their demand goes with their region's.
        let told: f64 = answer.vantages.iter().filter_map(|one| scene.demand.get(one.cluster.as_ref()?)).sum();
        prop_assert!((loads.values().sum::<f64>() - told).abs() < 1e-6, "demand is conserved");
        let slack = 0.001 * total + 1e-6;
        let full = |name: &str| {
            let at = NAMES.iter().position(|one| *one == name).unwrap();
            loads.get(name).copied().unwrap_or(0.0) >= capacities[at] - slack
        };
        if total <= room && told == total {
            for (name, load) in &loads {
                let at = NAMES.iter().position(|one| one == name).unwrap();
                prop_assert!(*load <= capacities[at] + slack, "{name} has {load} of {}", capacities[at]);
            }
            if !spread {
                for vantage in answer.vantages.iter().filter(|one| one.cluster.is_some()) {
                    let order = line(8, LocalityBy::Measured);
                    let from = landfall_plan::proximity::Vantage::Member(vantage.cluster.clone().unwrap());
                    let order: Vec<&str> = order.order(&from).into_iter().map(|(name, _)| name).collect();
                    let serving = |name: &&&str| NAMES.iter().take(capacities.len()).any(|one| one == *name);
                    let last = order.iter().rposition(|name| {
                        vantage.choices.iter().any(|one| one.cluster == **name && one.fraction > 0.0)
                    });
                    for nearer in order.iter().take(last.unwrap_or(0)).filter(serving) {
                        prop_assert!(full(nearer), "{nearer} has room, but {vantage:?} goes on");
                    }
                }
            }
        }
    }
}
