//! Placement: selectors, taints, cordons, and that only what we made is taken away.

use std::collections::BTreeMap;

use landfall_api::landfall::{Taint, TaintEffect};
use landfall_plan::placement::{Has, Member, Selection, Verdict, Wish, place, tolerations};
use proptest::prelude::*;
use serde_json::{Value, json};

fn member(name: &str) -> Member {
    let labels =
        BTreeMap::from([("region".to_owned(), name[..2].to_owned()), ("size".to_owned(), "7".to_owned())]);
    Member { name: name.to_owned(), labels, ..Member::default() }
}

fn wish(annotations: &Value) -> Result<Wish, String> {
    let object = json!({ "metadata": { "annotations": annotations } });
    let selection = Selection::of(&object).map_err(|error| error.to_string())?;
    Ok(Wish { selection, tolerations: tolerations(&object).map_err(|error| error.to_string())? })
}

fn taint(key: &str, effect: TaintEffect) -> Taint {
    Taint { key: key.to_owned(), value: "yes".to_owned(), effect }
}

/// Who gets a shard of an object with Federation v1's annotation, or what is wrong with it.
#[track_caller]
fn check(selector: &str, expected: &str) {
    let shown = match wish(&json!({ "federation.alpha.kubernetes.io/cluster-selector": selector })) {
        Err(error) => error.replace("federation.alpha.kubernetes.io/cluster-selector", "v1"),
        Ok(wish) => {
            let decided = place(&wish, &["eu-1", "eu-2", "us-1"].map(member));
            let placed = decided.iter().filter(|d| d.verdict == Verdict::Place);
            placed.map(|d| d.cluster.as_str()).collect::<Vec<_>>().join(" ")
        }
    };
    assert_eq!(shown, expected, "{selector}");
}

#[test]
fn federation_v1_selectors() {
    check("[]", "eu-1 eu-2 us-1");
    check(r#"[{"key":"region","operator":"In","values":["eu","asia"]}]"#, "eu-1 eu-2");
    check(r#"[{"Key":"region","Operator":"notin","Values":["eu"]}]"#, "us-1");
    check(
        r#"[{"key":"region","operator":"exists"},{"key":"size","operator":"gt","values":["6"]}]"#,
        "eu-1 eu-2 us-1",
    );
    check(r#"[{"key":"size","operator":"Lt","values":["7"]}]"#, "");
    check(r#"[{"key":"region","operator":"=","values":["us"]}]"#, "us-1");
    check(r#"[{"key":"region","operator":"!="  ,"values":["us"]}]"#, "eu-1 eu-2");
    check(r#"[{"key":"edge","operator":"!"}]"#, "eu-1 eu-2 us-1");
    check(r#"[{"key":"kubernetes.io/metadata.name","operator":"in","values":["eu-2"]}]"#, "eu-2");
    check("federation.kubernetes.io/federation-control-plane=true", "");
    check("region=eu", "v1: not JSON: expected value at line 1 column 1");
    check("{}", "v1: must be a list of {key, operator, values}");
    check(
        r#"[{"key":"region","operator":"like","values":["eu"]}]"#,
        r#"v1[0].operator: "like" is no operator; known are In, NotIn, Exists, DoesNotExist, =, ==, !=, Gt, Lt"#,
    );
    check(r#"[{"key":"a","operator":"in","values":[]}]"#, "v1[0].values: must not be empty");
    check(
        r#"[{"key":"a","operator":"in","values":["x"]},{"key":"a","operator":"gt","values":["x"]}]"#,
        "v1[1].values: must be exactly one whole number",
    );
    check(
        r#"[{"key":"a","operator":"in","value":["x"]}]"#,
        "v1[0].value: no such field; known are key, operator, values",
    );
    check(r#"[{"operator":"exists"}]"#, "v1[0].key: must be a text");
}

#[test]
fn our_selector_is_what_kubectl_takes() {
    let wish = wish(&json!({ "landfall.dev/cluster-selector": "region in (eu),!edge" })).unwrap();
    let decided = place(&wish, &["eu-1", "us-1"].map(member));
    assert_eq!(decided[0].verdict, Verdict::Place);
    assert_eq!(decided[1].reason.to_string(), "NotSelected: not selected: !edge,region in (eu)");
}

#[test]
fn a_changed_selector_takes_away_only_what_we_made() {
    let wish = wish(&json!({ "landfall.dev/cluster-selector": "region=asia" })).unwrap();
    let rows =
        [(Has::Nothing, Verdict::Skip), (Has::Created, Verdict::Remove), (Has::Adopted, Verdict::Release)];
    for (has, verdict) in rows {
        assert_eq!(place(&wish, &[Member { has, ..member("eu-1") }])[0].verdict, verdict);
    }
}

#[test]
fn taints_cordons_and_drains() {
    let tainted = |effect, has, replicas| Member {
        taints: vec![taint("gpu", effect)],
        has,
        replicas,
        ..member("eu-1")
    };
    let plain = wish(&json!({})).unwrap();
    let one = |member: Member| place(&plain, &[member])[0].verdict;
    assert_eq!(one(tainted(TaintEffect::NoSchedule, Has::Nothing, None)), Verdict::Skip);
    assert_eq!(one(tainted(TaintEffect::NoSchedule, Has::Created, None)), Verdict::Keep);
    assert_eq!(one(tainted(TaintEffect::NoExecute, Has::Created, Some(3))), Verdict::Evict);
    assert_eq!(one(tainted(TaintEffect::NoExecute, Has::Created, Some(0))), Verdict::Remove);
    assert_eq!(one(tainted(TaintEffect::NoExecute, Has::Adopted, None)), Verdict::Release);
    assert_eq!(
        one(tainted(TaintEffect::PreferNoSchedule, Has::Nothing, None)),
        Verdict::Place,
        "there is no other"
    );
    let two = [tainted(TaintEffect::PreferNoSchedule, Has::Nothing, None), member("us-1")];
    assert_eq!(
        place(&plain, &two)[0].reason.to_string(),
        "Avoided: others are preferred by the taint gpu=yes:PreferNoSchedule"
    );
    assert_eq!(one(Member { cordoned: true, ..member("eu-1") }), Verdict::Skip);
    assert_eq!(one(Member { cordoned: true, has: Has::Created, ..member("eu-1") }), Verdict::Keep);
    assert_eq!(one(Member { draining: true, has: Has::Created, ..member("eu-1") }), Verdict::Keep);
    assert_eq!(one(Member { unserved: true, ..member("eu-1") }), Verdict::Skip);
    let tolerant =
        wish(&json!({ "landfall.dev/tolerations": r#"[{"key":"gpu","operator":"Exists"}]"# })).unwrap();
    assert_eq!(
        place(&tolerant, &[tainted(TaintEffect::NoExecute, Has::Nothing, None)])[0].verdict,
        Verdict::Place
    );
    let wrong = wish(&json!({ "landfall.dev/tolerations": r#"[{"value":"x"}]"# })).unwrap_err();
    assert_eq!(wrong, "landfall.dev/tolerations: [0].operator: must be Exists when key is empty");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn placement_does_not_depend_on_order(
        rows in prop::collection::vec((any::<bool>(), any::<bool>(), 0_u8..4, 0_u8..3), 1..8), eu_only: bool,
    ) {
        let make = |(at, (cordoned, draining, tainted, has)): (usize, &(bool, bool, u8, u8))| Member {
            cordoned: *cordoned,
            draining: *draining,
            taints: [TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::NoExecute]
                .into_iter().nth(usize::from(*tainted)).map(|effect| taint("x", effect)).into_iter().collect(),
            has: [Has::Nothing, Has::Created, Has::Adopted][usize::from(*has)],
            ..member(&format!("{}-{at}", if at % 2 == 0 { "eu" } else { "us" }))
        };
        let mut members: Vec<Member> = rows.iter().enumerate().map(make).collect();
        let annotations = if eu_only { json!({ "landfall.dev/cluster-selector": "region=eu" }) } else { json!({}) };
        let wish = wish(&annotations).unwrap();
        let mut decided = place(&wish, &members);
        members.reverse();
        let mut reversed = place(&wish, &members);
        reversed.reverse();
        prop_assert_eq!(&decided, &reversed);
        decided.retain(|d| matches!(d.verdict, Verdict::Remove | Verdict::Release | Verdict::Evict));
        for decision in decided {
            let member = members.iter().find(|m| m.name == decision.cluster).unwrap();
            prop_assert!(member.has != Has::Nothing, "only what is ours is touched");
            prop_assert!(decision.verdict != Verdict::Remove || member.has == Has::Created);
        }
    }
}
