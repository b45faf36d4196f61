//! Addresses: stories as tables, and what holds whatever comes.

use proptest::prelude::*;

use super::*;

fn range(name: &str, cidrs: &[&str], exclude: &[&str], clusters: &[&str]) -> Range {
    let own = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
    let spec = IngressVIPRangeSpec { cidrs: own(cidrs), exclude: own(exclude), clusters: None };
    let clusters: BTreeSet<String> = own(clusters).into_iter().collect();
    Range::new(name, &spec, (!clusters.is_empty()).then_some(clusters))
}

fn group(name: &str, clusters: &[&str]) -> Group {
    let clusters = clusters.iter().map(|one| (*one).to_owned()).collect();
    Group { name: name.into(), created: name.into(), clusters, ..Group::default() }
}

fn wanting(name: &str, address: &str) -> Group {
    Group { wanted: vec![(None, address.into())], ..group(name, &["a"]) }
}

/// What every group has, as `group=cluster/address …`, and the words of what is wrong.
#[track_caller]
fn check(groups: &[Group], ranges: &[Range], expected: &str) -> BTreeMap<String, Allocation> {
    let made = allocate(groups, ranges);
    let one = |(name, made): (&String, &Allocation)| {
        let vips = made.vips.iter().map(|vip| format!("{name}={}/{}", vip.cluster, vip.address));
        let troubles = made.troubles.iter().map(|reason| format!("{name}!{}", reason.code));
        vips.chain(troubles).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(made.iter().map(one).collect::<Vec<_>>().join(" "), expected);
    made
}

#[test]
fn one_address_for_each_group_and_member() {
    let ranges = [range("r", &["192.0.2.0/29"], &["192.0.2.1", "192.0.2.3-"], &[])];
    assert_eq!(ranges[0].problems, ["\"192.0.2.3-\" is neither an address nor a range"]);
    // The first is the network's, the second is excluded, the last is everybody's.
    check(
        &[group("g", &["a", "b"]), group("h", &["a"])],
        &ranges,
        "g=a/192.0.2.2 g=b/192.0.2.3 h=a/192.0.2.4",
    );
    check(&[group("g", &[])], &ranges, "");
    check(&[group("g", &["a"])], &[], "g!NoVIPRange");
    check(&[group("g", &["a"])], &[range("r", &["192.0.2.0/29"], &[], &["b"])], "g!NoVIPRange");
    let both = Group { families: vec![IpFamily::IPv6, IpFamily::IPv4], ..group("g", &["a"]) };
    check(std::slice::from_ref(&both), &ranges, "g=a/192.0.2.2 g!NoVIPRange");
    let ranges = [range("r", &["192.0.2.0/29", "2001:db8::/64"], &[], &[])];
    check(&[both], &ranges, "g=a/192.0.2.1 g=a/2001:db8::1");
    let named = Group { range: Some("s".into()), ..group("g", &["a"]) };
    check(std::slice::from_ref(&named), &ranges, "g!NoVIPRange");
    check(&[named], &[ranges[0].clone(), range("s", &["198.51.100.7/32"], &[], &[])], "g=a/198.51.100.7");
}

#[test]
fn what_is_asked_for_is_given_or_the_reason_is() {
    let ranges = [range("r", &["192.0.2.0/29"], &["192.0.2.6"], &[])];
    // The younger one asks for what the older would have taken.
    check(&[group("a", &["a"]), wanting("b", "192.0.2.1")], &ranges, "a=a/192.0.2.2 b=a/192.0.2.1");
    check(&[wanting("a", "192.0.2.5"), wanting("b", "192.0.2.5")], &ranges, "a=a/192.0.2.5 b!VIPConflict");
    for (address, reason) in [
        ("192.0.2.6", "a!VIPOutsideRanges"),
        ("192.0.2.0", "a!VIPOutsideRanges"),
        ("203.0.113.1", "a!VIPOutsideRanges"),
        ("many", "a!InvalidVIP"),
    ] {
        check(&[wanting("a", address)], &ranges, reason);
    }
    check(
        &[Group { clusters: vec!["a".into(), "b".into()], ..wanting("g", "192.0.2.5") }],
        &ranges,
        "g=a/192.0.2.1 g=b/192.0.2.2 g!VIPAmbiguous",
    );
    let several = Group { wanted: vec![(Some("b".into()), "192.0.2.5".into())], ..group("g", &["a", "b"]) };
    check(&[several], &ranges, "g=a/192.0.2.1 g=b/192.0.2.5");
}

#[test]
fn what_was_given_stays_and_what_is_gone_is_free() {
    let ranges = [range("r", &["192.0.2.0/30"], &[], &[])];
    let made = check(&[group("b", &["a"]), group("c", &["a"])], &ranges, "b=a/192.0.2.1 c=a/192.0.2.2");
    let keeping = |name: &str| Group { held: made[name].vips.clone(), ..group(name, &["a"]) };
    // An older one comes: it finds nothing. One goes: it finds that.
    let full = "a!VIPsExhausted b=a/192.0.2.1 c=a/192.0.2.2";
    check(&[group("a", &["a"]), keeping("b"), keeping("c")], &ranges, full);
    check(&[group("a", &["a"]), keeping("c")], &ranges, "a=a/192.0.2.1 c=a/192.0.2.2");
    // The range goes: they keep what they have, and say so.
    check(&[keeping("c")], &[], "c=a/192.0.2.2 c!VIPOutsideRanges");
    // It leaves the member, or asks for another address.
    check(&[Group { clusters: vec!["z".into()], ..keeping("c") }], &ranges, "c=z/192.0.2.1");
    let other = Group { wanted: vec![(None, "192.0.2.1".into())], ..keeping("c") };
    check(&[other], &ranges, "c=a/192.0.2.1");
    // Two say that they have the same: the older has it.
    let stolen = Group { held: made["b"].vips.clone(), ..group("z", &["a"]) };
    check(&[keeping("b"), stolen], &ranges, "b=a/192.0.2.1 z=a/192.0.2.2");
}

#[test]
fn what_an_edge_may_hold_is_nobody_elses() {
    let ranges = [range("r", &["192.0.2.0/30"], &[], &[])];
    let made = check(&[group("b", &["a"])], &ranges, "b=a/192.0.2.1");
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    let told = |revision, vips: &[IpAddr]| Told { revision, vips: vips.iter().copied().collect() };
    let edge = |revision, vips: &[IpAddr]| Follower { revision, vips: vips.iter().copied().collect() };
    // It is deleted, or leaves the member: it runs nowhere.
    let going = Group { held: made["b"].vips.clone(), told: told(3, &[address]), ..group("b", &[]) };
    let (with, without) = ([address], []);
    for (story, told, followers, free) in [
        ("its edges are still told to hold it", told(3, &with), vec![], false),
        ("nobody is", told(4, &without), vec![], true),
        ("an edge has not heard of it", told(4, &without), vec![edge(3, &with)], false),
        (
            "an edge had just come, and may have heard the plan before",
            told(4, &without),
            vec![edge(0, &without)],
            false,
        ),
        ("an edge has heard of it, and is letting go", told(4, &without), vec![edge(4, &with)], false),
        ("one of two", told(4, &without), vec![edge(4, &without), edge(3, &with)], false),
        ("all have let go", told(4, &without), vec![edge(4, &without), edge(5, &without)], true),
    ] {
        let going = Group { told, followers, ..going.clone() };
        let later = Group { held: Vec::new(), releasing: made["b"].vips.clone(), ..going.clone() };
        for going in [going, later] {
            let made = allocate(&[going.clone(), wanting("z", "192.0.2.1")], &ranges);
            let expected = if free { "192.0.2.1" } else { "VIPConflict" };
            let own = &made["z"];
            let seen = own.vips.first().map_or_else(|| own.troubles[0].code, |vip| vip.address.as_str());
            assert_eq!(seen, expected, "{story}");
            assert_eq!(made["b"].releasing.len(), usize::from(!free), "{story}");
            assert_ne!(
                made["b"].releasing.first().map(|vip| vip.router_id),
                Some(own.vips.first().and_then(|vip| vip.router_id))
            );
            // By chance it is given to nobody either; and the same group may have it back.
            let chance = allocate(&[going.clone(), group("z", &["a"])], &ranges);
            assert_eq!(chance["z"].vips[0].address, if free { "192.0.2.1" } else { "192.0.2.2" }, "{story}");
            let back = Group { clusters: vec!["a".into()], ..going };
            check(&[back], &ranges, "b=a/192.0.2.1");
        }
    }
}

#[test]
fn ranges_tell_what_they_gave() {
    let ranges = [
        range("r", &["192.0.2.0/29"], &["192.0.2.4/31"], &[]),
        range("s", &["192.0.2.4/30"], &[], &[]),
        range("t", &["2001:db8::/64"], &[], &[]),
    ];
    let made = allocate(&[group("g", &["a"])], &ranges);
    let given = given(&ranges, &made);
    let told: Vec<(&str, i64, usize, String)> = given
        .iter()
        .map(|(name, one)| (name.as_str(), one.total, one.given.len(), one.overlaps.join(" ")))
        .collect();
    assert_eq!(
        told,
        [("r", 4, 1, "s".to_owned()), ("s", 2, 0, "r".to_owned()), ("t", i64::MAX, 0, String::new()),]
    );
}

#[test]
fn numbers_stay_and_differ_on_a_link() {
    let ranges = [range("r", &["10.0.0.0/16"], &[], &[])];
    let names: Vec<String> = (0..256).map(|at| format!("g{at:03}")).collect();
    let groups: Vec<Group> = names.iter().map(|name| group(name, &["a"])).collect();
    let made = allocate(&groups, &ranges);
    let ids: BTreeSet<i32> = made.values().filter_map(|made| made.vips[0].router_id).collect();
    assert_eq!(ids.len(), 255);
    assert_eq!(
        made.values().filter(|made| made.troubles.iter().any(|t| t.code == "RouterIDsExhausted")).count(),
        1
    );
    let again: Vec<Group> = groups
        .iter()
        .map(|group| Group { held: made[&group.name].vips.clone(), ..group.clone() })
        .skip(7)
        .collect();
    let later = allocate(&again, &ranges);
    for group in again.iter().filter(|group| made[&group.name].vips[0].router_id.is_some()) {
        assert_eq!(made[&group.name].vips, later[&group.name].vips);
    }
    // Other members, same range: others while there are some, and no trouble when there are none.
    let elsewhere: Vec<Group> = names.iter().map(|name| group(name, &[name])).collect();
    assert!(allocate(&elsewhere, &ranges).values().all(|made| made.vips[0].router_id.is_some()));
}

#[test]
fn edges_keep_their_priority() {
    let set = |names: &str| names.split(' ').map(str::to_owned).collect::<BTreeSet<String>>();
    let first = priorities(&BTreeMap::new(), &set("b c"));
    assert_eq!((first["b"], first["c"]), (100, 1));
    let more = priorities(&first, &set("a b c"));
    assert_eq!((more["a"], more["b"], more["c"]), (51, 100, 1));
    let less = priorities(&more, &set("a c d"));
    assert_eq!((less["a"], less["c"], less["d"]), (51, 1, 100));
    let many: BTreeSet<String> = (0..300).map(|at| format!("e{at}")).collect();
    assert!(priorities(&BTreeMap::new(), &many).values().all(|one| (1..=100).contains(one)));
    // Those of an earlier version, too high to wait for a holder that ends.
    let high = BTreeMap::from([("b".to_owned(), 254), ("c".to_owned(), 99)]);
    let lower = priorities(&high, &set("b c"));
    assert_eq!((lower["b"], lower["c"]), (1, 99));
}

fn some_group() -> impl Strategy<Value = Group> {
    let held = proptest::collection::vec((0..3_u8, 0..20_u8), 0..3);
    let wanted = proptest::option::of(0..20_u8);
    let addresses = || {
        let some = proptest::collection::btree_set(0..20_u8, 0..3);
        some.prop_map(|all| all.iter().map(|at| IpAddr::from([192, 0, 2, *at])).collect::<BTreeSet<IpAddr>>())
    };
    let told = (0..3_i64, addresses()).prop_map(|(revision, vips)| Told { revision, vips });
    let follower = (0..4_i64, addresses()).prop_map(|(revision, vips)| Follower { revision, vips });
    let edges = (told, proptest::collection::vec(follower, 0..3));
    (0..12_u8, proptest::collection::btree_set(0..3_u8, 0..3), held, wanted, edges).prop_map(
        |(name, clusters, held, wanted, (told, followers))| Group {
            told,
            followers,
            name: format!("g{name}"),
            created: format!("{}", name % 4),
            clusters: clusters.iter().map(|one| format!("m{one}")).collect(),
            wanted: wanted.map(|at| (None, format!("192.0.2.{at}"))).into_iter().collect(),
            held: held
                .iter()
                .map(|(cluster, at)| GroupVip {
                    address: format!("192.0.2.{at}"),
                    cluster: format!("m{cluster}"),
                    ..GroupVip::default()
                })
                .collect(),
            ..Group::default()
        },
    )
}

proptest! {
    /// No address is given twice, everything given is wanted, and the same again changes nothing.
    #[test]
    fn never_twice_and_always_the_same(
        groups in proptest::collection::vec(some_group(), 0..12),
        sizes in proptest::collection::vec((0..24_u8, 27..33_u8), 0..3),
    ) {
        let mut seen = BTreeSet::new();
        let groups: Vec<Group> = groups.into_iter().filter(|group| seen.insert(group.name.clone())).collect();
        let ranges: Vec<Range> = sizes
            .iter()
            .enumerate()
            .map(|(at, (base, length))| range(&format!("r{at}"), &[&format!("192.0.2.{base}/{length}")], &["192.0.2.5"], &[]))
            .collect();
        let made = allocate(&groups, &ranges);
        let all: Vec<&GroupVip> =
            made.values().flat_map(|made| made.vips.iter().chain(&made.releasing)).collect();
        let distinct: BTreeSet<&str> = all.iter().map(|vip| vip.address.as_str()).collect();
        prop_assert_eq!(all.len(), distinct.len());
        for group in &groups {
            let own = &made[&group.name];
            prop_assert!(own.vips.iter().all(|vip| group.clusters.contains(&vip.cluster)));
            let clusters: BTreeSet<&String> = own.vips.iter().map(|vip| &vip.cluster).collect();
            prop_assert_eq!(clusters.len(), own.vips.len(), "one for each member");
            prop_assert!(own.vips.len() == group.clusters.len() || !own.troubles.is_empty(), "or it says why");
            // What it had and does not keep stays its own while one of its edges may hold it, unless it was another's already.
            for vip in &group.held {
                let address: IpAddr = vip.address.parse().unwrap();
                prop_assert!(!group.may_hold(address) || distinct.contains(vip.address.as_str()));
            }
            prop_assert!(own.releasing.iter().all(|vip| group.may_hold(vip.address.parse().unwrap())));
        }
        let keep = |group: &Group| {
            let Allocation { vips, releasing, .. } = made[&group.name].clone();
            Group { held: vips, releasing, ..group.clone() }
        };
        let again = allocate(&groups.iter().map(keep).collect::<Vec<_>>(), &ranges);
        for (name, made) in &made {
            prop_assert_eq!((&made.vips, &made.releasing), (&again[name].vips, &again[name].releasing));
        }
        // All edges follow what they are told, and let go: nothing is kept back.
        let follow = |group: &Group| {
            let vips: BTreeSet<IpAddr> =
                made[&group.name].vips.iter().map(|vip| vip.address.parse().unwrap()).collect();
            let told = Told { revision: group.told.revision + 1, vips };
            let edge = Follower { revision: told.revision, vips: told.vips.clone() };
            Group { followers: vec![edge], told, ..keep(group) }
        };
        let followed = allocate(&groups.iter().map(follow).collect::<Vec<_>>(), &ranges);
        prop_assert!(followed.values().all(|made| made.releasing.is_empty()));
    }
}
