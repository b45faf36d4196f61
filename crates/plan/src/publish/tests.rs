//! Whatever a zone has and whatever is wanted: nobody else's records change, ours become what is wanted, and then it is quiet.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::records::sets::{Data, Service};

const MARK: &str = "heritage=landfall,federation=fed";

/// A zone as a server keeps it: it does what it is told only if what it is told upon is true.
fn obey(zone: &mut Found, change: &Change) -> Result<(), String> {
    let held = zone.get(&change.name).cloned().unwrap_or_default();
    let ours = held.owner.as_deref() == Some(MARK);
    let fits = match change.step {
        Step::Create => held == Held::default(),
        Step::Replace | Step::Remove => ours && held.sets == change.before,
    };
    if !fits {
        return Err(format!("{change:?} upon {held:?}"));
    }
    apply(MARK, zone, change);
    Ok(())
}

fn data() -> impl Strategy<Value = Data> {
    prop_oneof![
        vec(0..3_u8, 1..3)
            .prop_map(|ends| Data::A(ends.iter().map(|end| [192, 0, 2, *end].into()).collect())),
        vec(0..3_u16, 1..3).prop_map(|ends| Data::Aaaa(
            ends.iter().map(|end| [0x2001, 0xdb8, 0, 0, 0, 0, 0, *end].into()).collect()
        )),
        "[ab]".prop_map(Data::Cname),
        vec(0..3_u16, 1..3).prop_map(|ports| {
            let row = |port: &u16| Service { priority: *port, weight: 1, port: *port, target: "t".into() };
            Data::Srv(ports.iter().map(row).collect())
        }),
    ]
}

fn sets() -> impl Strategy<Value = Sets> {
    vec((1..3_u32, data()), 0..3).prop_map(|all| {
        let mut sets = Sets::new();
        for (ttl_s, data) in all {
            if data.of_type() == Type::Cname {
                sets.clear();
            }
            if !sets.contains_key(&Type::Cname) {
                sets.insert(data.of_type(), Set { ttl_s, data });
            }
        }
        sets
    })
}

fn held() -> impl Strategy<Value = Held> {
    let owner = prop_oneof![Just(None), Just(Some(MARK.to_owned())), Just(Some("heritage=other".to_owned()))];
    (owner, sets(), any::<bool>()).prop_map(|(owner, sets, others)| {
        // A server has no CNAME beside anything else.
        let others = others && !sets.contains_key(&Type::Cname);
        Held { owner, sets, others }
    })
}

fn name() -> impl Strategy<Value = String> {
    "[a-e]".prop_map(|label| format!("{label}.example.com"))
}

fn zone() -> impl Strategy<Value = Found> {
    let fuller = |zone: Found| zone.into_iter().filter(|(_, held)| *held != Held::default()).collect();
    btree_map(name(), held(), 0..5).prop_map(fuller)
}

fn asked() -> impl Strategy<Value = Wanted> {
    let fuller = |wanted: Wanted| wanted.into_iter().filter(|(_, sets)| !sets.is_empty()).collect();
    btree_map(name(), sets(), 0..5).prop_map(fuller)
}

proptest! {
    #[test]
    fn a_zone_converges_and_strangers_are_left_alone(before in zone(), wanted in asked(), later in asked()) {
        let mut zone = before.clone();
        for wanted in [&wanted, &later] {
            let decision = decide(MARK, wanted, &zone);
            for change in &decision.changes {
                prop_assert_eq!(obey(&mut zone, change), Ok(()));
            }
            // What made room may now be told as a conflict, but nothing is changed twice.
            let again = decide(MARK, wanted, &zone);
            prop_assert_eq!(&again.changes, &vec![]);
            for (name, sets) in wanted {
                let told = again.conflicts.iter().any(|(conflict, _)| conflict == name);
                let there = zone.get(name).is_some_and(|held| held.owner.as_deref() == Some(MARK) && held.sets == *sets);
                prop_assert!(told != there, "{} is {:?}", name, zone.get(name));
            }
            let stale = |(name, held): &(&String, &Held)| held.owner.as_deref() == Some(MARK) && !wanted.contains_key(*name);
            prop_assert_eq!(zone.iter().find(stale), None);
        }
        for (name, held) in &before {
            let after = zone.get(name).cloned().unwrap_or_default();
            prop_assert_eq!(held.others, after.others);
            if held.owner.as_deref() != Some(MARK) {
                prop_assert_eq!(held, &after);
            }
        }
    }

    #[test]
    fn the_order_of_records_does_not_matter(mut addresses in vec(any::<u32>(), 1..5)) {
        let data = |all: &[u32]| Data::A(all.iter().map(|ip| (*ip).into()).collect());
        let one = data(&addresses);
        addresses.reverse();
        prop_assert!(one.same_as(&data(&addresses)));
    }
}

#[test]
fn what_is_wrong_goes_before_what_is_missing() {
    let set =
        |end: u8| Sets::from([(Type::A, Set { ttl_s: 9, data: Data::A(vec![[192, 0, 2, end].into()]) })]);
    let ours = |end: u8| Held { owner: Some(MARK.into()), sets: set(end), others: false };
    let foreign = Held { sets: set(9), ..Held::default() };
    let found = Found::from([
        ("b".into(), ours(1)),
        ("c".into(), ours(2)),
        ("d".into(), foreign),
        ("e".into(), ours(5)),
    ]);
    let wanted = Wanted::from([
        ("a".into(), set(1)),
        ("c".into(), set(3)),
        ("d".into(), set(4)),
        ("e".into(), set(5)),
    ]);
    let decision = decide(MARK, &wanted, &found);
    let steps: Vec<String> =
        decision.changes.iter().map(|c| format!("{:?} {} {}", c.step, c.name, c.reason.code)).collect();
    assert_eq!(steps, ["Replace c Different", "Remove b Unwanted", "Create a Missing"]);
    let conflicts: Vec<_> = decision.conflicts.iter().map(|(name, why)| (name.as_str(), why.code)).collect();
    assert_eq!(conflicts, [("d", "Foreign")]);
}
