//! Tests of choosing.

use std::collections::BTreeMap;

use landfall_api::landfall::{
    AffinityMode, PlanCanary, PlanChoice, PlanCluster, PlanVantage, SessionAffinity, TrafficPlanSpec,
};
use proptest::prelude::*;

use super::*;

/// A plan in words: one vantage a line, `cluster:NAME`, `region:NAME` or `nowhere`, then `NAME=FRACTION(REASON)`.
fn plan(lines: &[&str]) -> TrafficPlanSpec {
    let mut plan = TrafficPlanSpec::default();
    for line in lines {
        let mut words = line.split_whitespace();
        let at = words.next().unwrap();
        let mut vantage = PlanVantage {
            cluster: at.strip_prefix("cluster:").map(str::to_owned),
            region: at.strip_prefix("region:").map(str::to_owned),
            choices: Vec::new(),
        };
        for word in words {
            let (cluster, rest) = word.split_once('=').unwrap();
            let (fraction, reason) = rest.split_once('/').unwrap_or((rest, ""));
            let (cluster, fraction) = (cluster.to_owned(), fraction.parse().unwrap());
            if plan.clusters.iter().all(|known| known.name != cluster) {
                plan.clusters.push(PlanCluster { name: cluster.clone(), ..PlanCluster::default() });
            }
            vantage.choices.push(PlanChoice { cluster, fraction, reason: format!("{reason}: because") });
        }
        plan.vantages.push(vantage);
    }
    plan
}

/// Who takes how much of 10,000 requests, in percent, when some fail or were tried; with the reasons.
fn shares(chooser: &Chooser, down: &[&str], tried: &[u16]) -> String {
    let mut counts: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for number in 0..10_000_u64 {
        let ask = Ask { luck: hash::mix(number), tried, ..Ask::default() };
        let usable = |at: u16| !down.contains(&chooser.choice(at).unwrap().cluster.as_str());
        let key = chooser
            .pick(&ask, usable)
            .map(|(at, why)| (chooser.choice(at).unwrap().cluster.as_str(), why.word()));
        *counts.entry(key.unwrap_or(("-", "-"))).or_default() += 1;
    }
    let percent = |((cluster, why), count): ((&str, &str), u32)| {
        format!("{cluster} {} {why}", (f64::from(count) / 1000.0).round() * 10.0)
    };
    counts.into_iter().map(percent).collect::<Vec<_>>().join(", ")
}

#[test]
fn requests_go_by_fractions_and_fail_over_in_order() {
    let overflow = &["cluster:a a=0.7/Local b=0.3/Overflow c=0/Standby d=0/Standby"][..];
    let spread = &["nowhere a=0.5/Spread b=0.3/Spread c=0.2/Spread d=0/Standby"][..];
    let canary = &["cluster:a x=0.1/Canary a=0.9/Local b=0/Standby"][..];
    let none = &["cluster:a a=0/Standby b=0/Standby"][..];
    for (plan_of, down, tried, expected) in [
        (overflow, &[][..], &[][..], "a 70 Local, b 30 Overflow"),
        (overflow, &["a"], &[], "b 70 Avoided, b 30 Overflow"),
        (overflow, &["b"], &[], "a 70 Local, c 30 Avoided"),
        (overflow, &["b", "c", "d"], &[], "a 30 Avoided, a 70 Local"),
        (overflow, &[], &[0], "b 100 Retry"),
        (overflow, &["b"], &[0, 2], "d 100 Retry"),
        (overflow, &["a", "b", "c", "d"], &[], "- 100 -"),
        (overflow, &[], &[0, 1, 2, 3], "- 100 -"),
        (spread, &[], &[], "a 50 Spread, b 30 Spread, c 20 Spread"),
        (spread, &["a"], &[], "b 30 Avoided, b 30 Spread, c 20 Avoided, c 20 Spread"),
        (spread, &["a", "b", "c"], &[], "d 100 Avoided"),
        (canary, &[], &[], "a 90 Local, x 10 Canary"),
        (canary, &["a"], &[], "b 90 Avoided, x 10 Canary"),
        (canary, &["x"], &[], "a 10 Avoided, a 90 Local"),
        (none, &[], &[], "a 100 Standby"),
        (none, &["a"], &[], "b 100 Avoided"),
    ] {
        let chooser = Chooser::new(&plan(plan_of), "a", None);
        assert_eq!(shares(&chooser, down, tried), expected, "{plan_of:?} without {down:?} after {tried:?}");
    }
}

#[test]
fn shares_are_what_luck_gives() {
    for (line, down) in [
        ("cluster:a a=0.7/Local b=0.3/Overflow c=0/Standby", "a"),
        ("cluster:a a=0.7/Local b=0.3/Overflow c=0/Standby", "b"),
        ("nowhere a=0.5/Spread b=0.25/Spread c=0.25/Spread", "a"),
        ("cluster:a a=0/Standby b=0/Standby", "a"),
    ] {
        let chooser = Chooser::new(&plan(&[line]), "a", None);
        let mut counts = vec![0.0; chooser.choices().len()];
        for number in 0..10_000_u64 {
            let ask = Ask { luck: hash::mix(number), ..Ask::default() };
            let (at, _) = chooser.pick(&ask, |at| chooser.choice(at).unwrap().cluster != down).unwrap();
            counts[usize::from(at)] += 1.0 / 10_000.0;
        }
        for (share, count) in chooser.shares(|choice| choice.cluster != down).iter().zip(counts) {
            assert!((share - count).abs() < 0.02, "{line} without {down}: {share} {count}");
        }
    }
}

#[test]
fn a_member_without_a_word_of_its_own_hears_its_regions() {
    let plan = plan(&["cluster:a a=1", "region:eu b=1", "nowhere c=1"]);
    for (own, region, expected) in [
        ("a", Some("eu"), "a 100 Local"),
        ("z", Some("eu"), "b 100 Nearest"),
        ("z", Some("us"), "c 100 Nearest"),
        ("z", None, "c 100 Nearest"),
    ] {
        assert_eq!(shares(&Chooser::new(&plan, own, region), &[], &[]), expected, "{own} {region:?}");
    }
    assert_eq!(shares(&Chooser::new(&TrafficPlanSpec::default(), "a", None), &[], &[]), "- 100 -");
}

#[test]
fn nothing_leaves_the_fence_or_goes_to_strangers() {
    let mut plan = plan(&["nowhere a=0.5 b=0.5 c=0"]);
    plan.fence = vec!["b".into()];
    let chooser = Chooser::new(&plan, "a", None);
    assert_eq!(shares(&chooser, &[], &[]), "b 100 Nearest");
    assert_eq!(shares(&chooser, &["b"], &[]), "- 100 -");
    plan.fence.clear();
    plan.clusters.retain(|cluster| cluster.name != "a");
    assert_eq!(shares(&Chooser::new(&plan, "a", None), &[], &[]), "b 100 Nearest");
}

#[test]
fn headers_lead_to_the_canary_while_it_is_well() {
    let mut plan = plan(&["cluster:a a=1/Local b=0/Standby c=0/Standby"]);
    let headers = [("X-Canary".to_owned(), "yes".to_owned())].into();
    plan.canary = Some(PlanCanary { clusters: vec!["c".into(), "z".into()], headers });
    let chooser = Chooser::new(&plan, "a", None);
    assert!(chooser.leads_to_canary(|name, value| (name, value) == ("x-canary", "yes")));
    assert!(!chooser.leads_to_canary(|_, _| false));
    let ask = Ask { canary: true, affinity: Some(1), ..Ask::default() };
    assert_eq!(chooser.pick(&ask, |_| true), Some((2, Why::CanaryHeader)));
    assert_eq!(chooser.pick(&ask, |at| at != 2), Some((1, Why::Affinity)));
    assert_eq!(chooser.pick(&Ask { affinity: None, ..ask }, |at| at != 2), Some((0, Why::Local)));
}

#[test]
fn a_cookie_holds_while_its_cluster_is_there() {
    let mut before = plan(&["cluster:a a=0.9/Local b=0.1/Overflow"]);
    before.session_affinity = Some(SessionAffinity { mode: AffinityMode::Cookie, ..Default::default() });
    let chooser = Chooser::new(&before, "a", None);
    assert_eq!(*chooser.affinity(), Affinity::Cookie { name: COOKIE_NAME.into(), ttl_s: None });
    let token = chooser.choice(1).unwrap().token.clone();
    let after = Chooser::new(&plan(&["cluster:a c=1 a=0 b=0"]), "a", None);
    let affinity = after.by_token(token.as_bytes());
    assert_eq!(affinity, Some(2), "the same token, wherever it stands");
    let ask = Ask { affinity, ..Ask::default() };
    assert_eq!(after.pick(&ask, |_| true), Some((2, Why::Affinity)));
    assert_eq!(after.pick(&ask, |at| at != 2), Some((0, Why::Nearest)), "it fails: by the fractions again");
    assert_eq!(after.pick(&Ask { tried: &[2], ..ask }, |_| true), Some((0, Why::Retry)));
    assert_eq!(Chooser::new(&plan(&["cluster:a a=1"]), "a", None).by_token(token.as_bytes()), None);
    assert_eq!(chooser.pick(&Ask { affinity: Some(9), ..Ask::default() }, |_| true), Some((0, Why::Local)));
}

#[test]
fn every_reason_has_its_number() {
    for (at, why) in Why::ALL.iter().enumerate() {
        assert_eq!(*why as usize, at, "{why}");
    }
}

proptest! {
    #[test]
    fn a_choice_is_found_whenever_one_is_left(
        fractions in proptest::collection::vec(prop_oneof![Just(0.0), 0.0..1.0, Just(f64::NAN), Just(-1.0), Just(7.0)], 0..20),
        reasons in proptest::collection::vec(0_usize..7, 20),
        fence in proptest::collection::vec(any::<bool>(), 20),
        down in proptest::collection::vec(any::<bool>(), 20),
        tried in proptest::collection::vec(0_u16..20, 0..4),
        luck in any::<u64>(),
        affinity in proptest::option::of(0_u16..30),
        canary in any::<bool>(),
    ) {
        let words = ["Local", "Overflow", "Spread", "Weighted", "Canary", "FailOpen", ""];
        let mut spec = TrafficPlanSpec::default();
        let mut vantage = PlanVantage::default();
        for (at, fraction) in fractions.iter().enumerate() {
            let cluster = format!("c{at}");
            spec.clusters.push(PlanCluster { name: cluster.clone(), ..PlanCluster::default() });
            if fence[at] {
                spec.fence.push(cluster.clone());
            }
            vantage.choices.push(PlanChoice { cluster, fraction: *fraction, reason: format!("{}: x", words[reasons[at]]) });
        }
        spec.vantages.push(vantage);
        let chooser = Chooser::new(&spec, "c0", None);
        let usable = |at: u16| chooser.choice(at).is_some_and(|choice| !down[choice.place]);
        let ask = Ask { luck, canary, affinity, tried: &tried };
        let left = (0..chooser.choices().len()).any(|at| usable(at as u16) && !tried.contains(&(at as u16)));
        let picked = chooser.pick(&ask, usable);
        prop_assert_eq!(picked.is_some(), left, "something is chosen whenever something is left");
        if let Some((at, why)) = picked {
            let choice = chooser.choice(at).unwrap();
            prop_assert!(usable(at) && !tried.contains(&at));
            prop_assert!(spec.fence.is_empty() || spec.fence.contains(&choice.cluster));
            prop_assert_eq!(why == Why::Retry, !tried.is_empty());
        }
        prop_assert_eq!(chooser.pick(&ask, usable), picked, "the same luck, the same choice");
    }

    #[test]
    fn fractions_are_kept(weights in proptest::collection::vec(0.01_f64..1.0, 1..8)) {
        let whole: f64 = weights.iter().sum();
        let words: Vec<String> = weights.iter().enumerate().map(|(at, weight)| format!("c{at}={}", weight / whole)).collect();
        let chooser = Chooser::new(&plan(&[&format!("nowhere {}", words.join(" "))]), "x", None);
        let mut counts = vec![0_u32; weights.len()];
        for step in 0..4096_u64 {
            let (at, _) = chooser.pick(&Ask { luck: step << 52, ..Ask::default() }, |_| true).unwrap();
            counts[usize::from(at)] += 1;
        }
        for (count, weight) in counts.iter().zip(&weights) {
            prop_assert!((f64::from(*count) / 4096.0 - weight / whole).abs() < 0.001);
        }
    }
}
