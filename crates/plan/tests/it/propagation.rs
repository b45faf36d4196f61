//! Propagation, as a table: what is wanted, what is seen, what is done.

use landfall_plan::placement::Verdict;
use landfall_plan::propagation::{
    Case, Debt, Decision, Deletion, Found, Intent, Mark, Memory, Observed, Origin, Refused, Step, decide,
    intent, origin, settle,
};
use proptest::prelude::*;
use serde_json::json;

const NOW: i64 = 10_000_000;
const PRESENT: Intent = Intent::Present { hash: 7 };

fn found(mark: Option<(&str, Origin, u64)>) -> Found {
    let mark = mark.map(|(of, origin, hash)| Mark { federation: of.into(), origin, hash: Some(hash) });
    Found { uid: "u1".into(), mark, ..Found::default() }
}

fn run(intent: Intent, observed: &Observed, memory: &Memory, offline: bool) -> Decision {
    decide(&Case {
        federation: "prod",
        intent,
        adopt: true,
        offline_since_ms: offline.then_some(NOW - 3_600_000),
        observed,
        memory,
        now_ms: NOW,
    })
}

/// The step and the reason's word.
#[track_caller]
fn check(intent: Intent, observed: &Observed, step: &Step, code: &str) {
    let memory = Memory { uid: Some("u1".into()), ..Memory::default() };
    let decision = run(intent, observed, &memory, false);
    assert_eq!((&decision.step, decision.reason.code), (step, code), "{intent:?} {observed:?}");
}

#[test]
fn a_shard_that_is_wanted() {
    let created = |hash| found(Some(("prod", Origin::Created, hash)));
    check(PRESENT, &Observed::Unknown, &Step::Wait, "NotSynced");
    check(PRESENT, &Observed::Missing, &Step::Apply, "Vanished");
    assert_eq!(run(PRESENT, &Observed::Missing, &Memory::default(), false).reason.code, "Missing");
    check(PRESENT, &Observed::Found(created(7)), &Step::Nothing, "InSync");
    check(PRESENT, &Observed::Found(created(6)), &Step::Apply, "Outdated");
    let drifted = Found { drift: vec!["spec.type".into()], ..created(7) };
    check(PRESENT, &Observed::Found(drifted), &Step::Apply, "Drifted");
    check(PRESENT, &Observed::Found(Found { deleting: true, ..created(7) }), &Step::Wait, "Terminating");
    check(PRESENT, &Observed::Found(found(None)), &Step::Apply, "Unmarked");
    let theirs = Found { uid: "u2".into(), ..found(None) };
    check(PRESENT, &Observed::Found(theirs), &Step::Adopt, "Adopted");
    check(PRESENT, &Observed::Found(found(Some(("test", Origin::Created, 7)))), &Step::Wait, "Conflict");
    check(PRESENT, &Observed::Found(found(Some(("prod", Origin::Adopted, 7)))), &Step::Nothing, "InSync");
}

#[test]
fn a_shard_that_is_not_wanted() {
    let delete = Step::Delete { uid: "u1".into() };
    let created = found(Some(("prod", Origin::Created, 7)));
    let adopted = found(Some(("prod", Origin::Adopted, 7)));
    check(Intent::Absent, &Observed::Unknown, &Step::Wait, "NotSynced");
    check(Intent::Absent, &Observed::Missing, &Step::Nothing, "Gone");
    check(Intent::Absent, &Observed::Found(created.clone()), &delete, "Deleted");
    check(Intent::Absent, &Observed::Found(adopted), &Step::Orphan, "Released");
    check(Intent::Absent, &Observed::Found(found(None)), &Step::Nothing, "NotOurs");
    check(
        Intent::Absent,
        &Observed::Found(found(Some(("test", Origin::Created, 7)))),
        &Step::Nothing,
        "NotOurs",
    );
    let shelter = Found { shelters: Some("configmaps/notes".into()), ..created.clone() };
    check(Intent::Absent, &Observed::Found(shelter), &Step::Orphan, "Shelters");
    let other = Found { uid: "u2".into(), ..created.clone() };
    check(Intent::Absent, &Observed::Found(other), &Step::Orphan, "Replaced");
    check(Intent::Released, &Observed::Found(created), &Step::Orphan, "Released");
    check(Intent::Released, &Observed::Found(found(None)), &Step::Nothing, "NotOurs");
}

#[test]
fn placement_and_deletion_say_what_is_wanted() {
    let deleted =
        |finalizers: &[&str]| json!({ "metadata": { "deletionTimestamp": "t", "finalizers": finalizers } });
    assert_eq!(Deletion::of(&json!({ "metadata": {} })), None);
    assert_eq!(Deletion::of(&deleted(&["x"])), Some(Deletion::Cascade));
    assert_eq!(Deletion::of(&deleted(&["x", "orphan"])), Some(Deletion::Orphan));
    assert_eq!(intent(Verdict::Keep, None, 7), Some(PRESENT));
    assert_eq!(intent(Verdict::Remove, None, 7), Some(Intent::Absent));
    assert_eq!(intent(Verdict::Release, None, 7), Some(Intent::Released));
    assert_eq!(intent(Verdict::Skip, None, 7), None);
    assert_eq!(intent(Verdict::Keep, Some(Deletion::Cascade), 7), Some(Intent::Absent));
    assert_eq!(intent(Verdict::Keep, Some(Deletion::Orphan), 7), Some(Intent::Released));
}

#[test]
fn who_made_a_shard_is_never_guessed_in_our_favour() {
    let nothing = Memory::default();
    assert_eq!(origin(&Observed::Missing, &nothing), Origin::Created);
    assert_eq!(origin(&Observed::Found(found(None)), &nothing), Origin::Adopted);
    assert_eq!(
        origin(&Observed::Found(found(Some(("prod", Origin::Created, 1)))), &nothing),
        Origin::Created
    );
    let made =
        |uid: &str| Memory { uid: Some(uid.into()), origin: Some(Origin::Created), ..Memory::default() };
    assert_eq!(origin(&Observed::Found(found(None)), &made("u1")), Origin::Created);
    assert_eq!(origin(&Observed::Found(found(None)), &made("u2")), Origin::Adopted);
}

#[test]
fn a_member_that_is_offline_holds_nothing_up() {
    let memory = Memory { uid: Some("u1".into()), ..Memory::default() };
    let owed = |intent| run(intent, &Observed::Unknown, &memory, true);
    assert_eq!(owed(PRESENT).step, Step::Owe(Debt::Apply));
    assert_eq!(owed(Intent::Absent).step, Step::Owe(Debt::Delete { uid: Some("u1".into()) }));
    assert_eq!(owed(Intent::Released).step, Step::Owe(Debt::Orphan));
    assert!(owed(Intent::Absent).lets_go() && owed(Intent::Released).lets_go());
    assert!(owed(Intent::Absent).reason.message.starts_with("deleted when its API answers again"));
    let never = run(Intent::Absent, &Observed::Unknown, &Memory::default(), true);
    assert_eq!((never.step, never.reason.code), (Step::Nothing, "NeverThere"));
    // The object was made anew at the federation while the member was away: the debt is void.
    assert_eq!(settle(&Debt::Delete { uid: None }, PRESENT), PRESENT);
    assert_eq!(settle(&Debt::Orphan, Intent::Absent), Intent::Released);
}

#[test]
fn what_a_member_refuses_is_not_asked_for_again_at_once() {
    let refused = Refused {
        hash: 7,
        message: "exceeded quota".into(),
        since_ms: NOW,
        retry_ms: NOW + 5_000,
        transient: false,
    };
    let memory = Memory { refused: Some(refused), ..Memory::default() };
    let waits = run(PRESENT, &Observed::Missing, &memory, false);
    assert_eq!((waits.step, waits.look_again_ms), (Step::Wait, Some(NOW + 5_000)));
    assert_eq!(waits.reason.to_string(), "Refused: the member refused it: exceeded quota");
    let corrected = run(Intent::Present { hash: 8 }, &Observed::Missing, &memory, false);
    assert_eq!(corrected.step, Step::Apply, "a correction is tried at once");
}

/// Federation v1 wrote the same over and over where a member kept values in its own way (kubefed#982).
#[test]
fn what_a_member_writes_in_its_own_way_is_not_written_over_and_over() {
    let drift = vec!["spec.resources.cpu".to_owned()];
    let memory = Memory { uid: Some("u1".into()), residue: drift.clone(), ..Memory::default() };
    let seen = Observed::Found(Found { drift, ..found(Some(("prod", Origin::Created, 7))) });
    assert_eq!(run(PRESENT, &seen, &memory, false).step, Step::Nothing);
}

/// An autoscaler or another deployer in a member that changes what is ours, each time we put it right.
#[test]
fn a_fight_over_fields_is_fought_less_and_less_often() {
    let drifted = Found { drift: vec!["spec.replicas".into()], ..found(Some(("prod", Origin::Created, 7))) };
    let (mut memory, mut now_ms, mut writes) =
        (Memory { uid: Some("u1".into()), ..Memory::default() }, NOW, 0);
    let case = |observed: &Observed, memory: &Memory, now_ms| {
        let intent = PRESENT;
        decide(&Case {
            federation: "prod",
            intent,
            adopt: true,
            offline_since_ms: None,
            observed,
            memory,
            now_ms,
        })
    };
    let mut told = String::new();
    while now_ms < NOW + 3_600_000 {
        let seen = Observed::Found(drifted.clone());
        let decision = case(&seen, &memory, now_ms);
        if decision.heals() {
            writes += 1;
            memory.heals = memory.heals.after(now_ms, Some("kube-controller-manager".into()));
            // It is changed again a moment later.
            now_ms += 100;
        } else {
            assert_eq!((&decision.step, decision.reason.code), (&Step::Wait, "Contested"));
            told = decision.reason.to_string();
            now_ms = decision.look_again_ms.expect("it is tried again");
        }
    }
    assert!((10..25).contains(&writes), "{writes} writes in an hour");
    assert_eq!(
        told,
        "Contested: spec.replicas is changed in the member again and again (last by \"kube-controller-manager\"); it is put \
         right less and less often"
    );
    let changed = found(Some(("prod", Origin::Created, 6)));
    assert_eq!(
        case(&Observed::Found(changed), &memory, now_ms).step,
        Step::Apply,
        "a new intent does not wait"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_deleted_that_is_not_ours(
        intent in prop_oneof![Just(PRESENT), Just(Intent::Absent), Just(Intent::Released)],
        mark in prop::option::of((prop_oneof![Just("prod"), Just("test")], any::<bool>())),
        state in 0_u8..3, remembered: bool, deleting: bool, offline: bool,
    ) {
        let mark = mark.map(|(of, made)| (of, if made { Origin::Created } else { Origin::Adopted }, 7));
        let observed = match state {
            0 => Observed::Unknown,
            1 => Observed::Missing,
            _ => Observed::Found(Found { deleting, ..found(mark) }),
        };
        let memory = Memory { uid: remembered.then(|| "u1".into()), ..Memory::default() };
        let decision = run(intent, &observed, &memory, offline);
        if matches!(decision.step, Step::Delete { .. }) {
            prop_assert!(intent == Intent::Absent && state == 2 && !offline);
            prop_assert_eq!(mark, Some(("prod", Origin::Created, 7)));
        }
        if offline && intent != PRESENT {
            prop_assert!(decision.lets_go(), "a dead member never blocks");
        }
    }
}
