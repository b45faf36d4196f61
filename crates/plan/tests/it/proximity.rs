//! Who is near to whom.

use landfall_api::landfall::{Coordinates, LocalityBy, PlanMember, PlanPrefix, RoundTrip};
use landfall_plan::proximity::{Atlas, Distance, RoundTrips, Vantage};
use proptest::prelude::*;

fn member(name: &str, region: &str, zone: &str, point: Option<(f64, f64)>) -> PlanMember {
    PlanMember {
        name: name.into(),
        region: (!region.is_empty()).then(|| region.into()),
        zones: if zone.is_empty() { vec![] } else { vec![zone.into()] },
        coordinates: point.map(|(latitude, longitude)| Coordinates { latitude, longitude }),
    }
}

fn world() -> Vec<PlanMember> {
    vec![
        member("dublin", "europe-west", "", Some((53.3, -6.3))),
        member("frankfurt", "europe-central", "", Some((50.1, 8.7))),
        member("oregon", "us-west", "", Some((45.5, -122.7))),
        member("tokyo", "asia-east", "", Some((35.7, 139.7))),
        member("virginia", "us-east", "", Some((38.9, -77.5))),
    ]
}

fn trips(list: &[(&str, &str, f64)]) -> RoundTrips {
    let one = |(_, to, ms): &(&str, &str, f64)| vec![RoundTrip { cluster: (*to).into(), milliseconds: *ms }];
    let reports: Vec<Vec<RoundTrip>> = list.iter().map(one).collect();
    RoundTrips::measured(list.iter().map(|(from, ..)| *from).zip(reports.iter().map(Vec::as_slice)))
}

#[track_caller]
fn check(atlas: &Atlas, vantage: &Vantage, expected: &str) {
    let order = atlas.order(vantage);
    let told: Vec<String> = order.iter().map(|(name, far)| format!("{name} ({far})")).collect();
    assert_eq!(told.join(", "), expected, "{vantage:?}");
}

fn at(name: &str) -> Vantage {
    Vantage::Member(name.into())
}

#[test]
fn by_the_globe_where_nothing_was_measured() {
    let atlas = Atlas::new(&world(), &[], RoundTrips::default(), LocalityBy::Measured);
    check(
        &atlas,
        &at("dublin"),
        "dublin (the same cluster), frankfurt (1091 km away), virginia (5471 km away), oregon (7485 km away), tokyo (9590 km away)",
    );
    check(
        &atlas,
        &Vantage::Region("us-west".into()),
        "oregon (in the same region), virginia (3744 km away), dublin (7485 km away), tokyo (7791 km away), frankfurt (8399 km away)",
    );
}

#[test]
fn by_measure_where_there_is_one() {
    // Somebody laid a cable.
    let measured =
        trips(&[("dublin", "tokyo", 9.04), ("tokyo", "frankfurt", 31.2), ("frankfurt", "virginia", 88.0)]);
    let atlas = Atlas::new(&world(), &[], measured.clone(), LocalityBy::Measured);
    check(
        &atlas,
        &at("dublin"),
        "dublin (the same cluster), tokyo (9.0 ms away), frankfurt (1091 km away), virginia (5471 km away), oregon (7485 km away)",
    );
    check(
        &atlas,
        &at("frankfurt"),
        "frankfurt (the same cluster), dublin (1091 km away), tokyo (31 ms away), virginia (88 ms away), oregon (8399 km away)",
    );
    let blind = Atlas::new(&world(), &[], measured, LocalityBy::Coordinates);
    assert_eq!(blind.order(&at("dublin"))[1].0, "frankfurt");
}

/// Three clusters in one building, each with a region of its own: clients of a region were led to the neighbours, whose measured
/// half millisecond was less than what sharing a region counts for.
#[test]
fn who_stands_in_a_region_is_not_led_out_of_it() {
    let members = [member("a", "left", "", None), member("b", "right", "", None)];
    let atlas = Atlas::new(&members, &[], trips(&[("a", "b", 0.1)]), LocalityBy::Measured);
    check(&atlas, &Vantage::Region("left".into()), "a (in the same region), b (0.1 ms away)");
    check(&atlas, &Vantage::Region("right".into()), "b (in the same region), a (0.1 ms away)");
}

#[test]
fn by_labels_where_nothing_else_is_known() {
    let members = [
        member("a", "eu-west", "x", None),
        member("b", "eu-west", "x", None),
        member("c", "eu-west", "y", None),
        member("d", "eu-north", "z", None),
        member("e", "us-east", "q", None),
    ];
    let atlas = Atlas::new(&members, &[], RoundTrips::default(), LocalityBy::Measured);
    check(
        &atlas,
        &at("a"),
        "a (the same cluster), b (in the same zone), c (in the same region), \
         d (in a region of the same part of the world), e (at an unknown distance)",
    );
}

#[test]
fn a_region_without_members_is_where_its_prefixes_say() {
    let prefix = PlanPrefix {
        cidr: "198.51.100.0/24".into(),
        region: Some("korea".into()),
        coordinates: Some(Coordinates { latitude: 37.6, longitude: 127.0 }),
        ..PlanPrefix::default()
    };
    let atlas = Atlas::new(&world(), &[prefix], RoundTrips::default(), LocalityBy::Measured);
    assert_eq!(atlas.order(&Vantage::Region("korea".into()))[0].0, "tokyo");
}

#[test]
fn ties_do_not_all_go_to_the_first_by_name() {
    let members: Vec<PlanMember> = (0..40).map(|at| member(&format!("m{at:02}"), "", "", None)).collect();
    let atlas = Atlas::new(&members, &[], RoundTrips::default(), LocalityBy::Measured);
    let seconds: std::collections::BTreeSet<&str> =
        members.iter().map(|member| atlas.order(&at(&member.name))[1].0).collect();
    assert!(seconds.len() > 15, "{seconds:?}");
}

fn any_members() -> impl Strategy<Value = Vec<PlanMember>> {
    let one = (
        "[a-h]",
        prop::option::of(prop::sample::select(vec!["eu-a", "eu-b", "us"])),
        prop::option::of((-100.0..100.0_f64, -200.0..200.0_f64)),
    );
    let one = one.prop_map(|(name, region, point)| member(&name, region.unwrap_or(""), "", point));
    prop::collection::vec(one, 0..10)
}

fn any_trips() -> impl Strategy<Value = RoundTrips> {
    let odd = prop_oneof![0.0..300.0_f64, Just(f64::NAN), Just(-1.0), Just(f64::INFINITY)];
    prop::collection::vec(("[a-i]", "[a-i]", odd), 0..20).prop_map(|all| {
        let list: Vec<(&str, &str, f64)> =
            all.iter().map(|(a, b, ms)| (a.as_str(), b.as_str(), *ms)).collect();
        trips(&list)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everybody_is_in_every_order_once_from_near_to_far(
        members in any_members(), trips in any_trips(),
        by in prop::sample::select(vec![LocalityBy::Measured, LocalityBy::Coordinates, LocalityBy::Topology, LocalityBy::Ignore]),
    ) {
        let atlas = Atlas::new(&members, &[], trips, by);
        let names: std::collections::BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
        for vantage in atlas.vantages() {
            let order = atlas.order(vantage);
            let seen: std::collections::BTreeSet<&str> = order.iter().map(|(name, _)| *name).collect();
            prop_assert_eq!((&seen, order.len()), (&names, names.len()));
            // Nobody is led out of the region where they stand, however near the neighbours are.
            // Of two with one name the last counts.
            let region = |name: &str| members.iter().rev().find(|member| member.name == name)?.region.as_ref();
            let stands = |name: &str| matches!(vantage, Vantage::Region(own) if region(name) == Some(own));
            let far = |(name, far): &(&str, Distance)| (!stands(name) || by == LocalityBy::Ignore, far.milliseconds());
            prop_assert!(order.is_sorted_by(|a, b| far(a) <= far(b)), "{:?}: {:?}", vantage, order);
            if let Vantage::Member(name) = vantage && by != LocalityBy::Ignore {
                prop_assert_eq!(order[0].1.milliseconds(), 0.0);
                prop_assert!(order.iter().any(|(other, far)| other == name && far.milliseconds() == 0.0));
            }
        }
    }
}
