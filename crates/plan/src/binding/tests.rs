//! Binding: stories as vectors, and what holds whatever comes.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Groups as words: `blue:zone=eu:10:30` has a label, room for ten, and 30 % load; `!` has no edge, `*` a claim.
fn groups(text: &str) -> Vec<Group> {
    let one = |word: &str| {
        let mut parts = word.trim_end_matches(['!', '*']).split(':');
        let name = parts.next().unwrap_or_default().to_owned();
        let label = parts.next().and_then(|label| label.split_once('='));
        let capacity = parts.next().and_then(|most| most.parse().ok());
        let load = parts.next().and_then(|load| load.parse::<f64>().ok());
        Group {
            name,
            labels: label.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect(),
            capacity,
            load: load
                .map_or_else(Measured::default, |load| Measured { used: load / 100.0, of: "connections" }),
            overload: 0.95,
            ready: !word.ends_with('!'),
            claimed: word.ends_with('*'),
        }
    };
    text.split_whitespace().map(one).collect()
}

/// An Ingress as words: what it asks for, and what it is bound to after an arrow: `zone=eu → blue`.
fn want(text: &str, at: usize) -> Want {
    let (asked, bound) = text.split_once('→').unwrap_or((text, ""));
    let asked = asked.trim();
    let (count, asked) = asked.split_once('×').map_or(("1", asked), |(count, rest)| (count, rest.trim()));
    let annotations = match asked.strip_prefix('@') {
        Some(names) => json!({"landfall.dev/ingress-replicaset": names}),
        None if asked == "-" => json!({}),
        None => {
            json!({"landfall.dev/ingress-selector": asked, "landfall.dev/ingress-replicasets-wanted": count})
        }
    };
    let ask = match asked.strip_prefix('$') {
        Some(group) => Ask::Claim(group.to_owned()),
        None => asks(&json!({"metadata": {"annotations": annotations}})),
    };
    let bound = bound.split_whitespace().map(str::to_owned).collect();
    Want { key: format!("i{at:05}"), created: format!("{at:05}"), ask, bound }
}

/// Binds; gives `groups` of each, with the word of the reason, if there is one.
#[track_caller]
fn check(all: &str, wants: &[&str], budget: usize, expected: &[&str]) -> Vec<Bound> {
    let wants: Vec<Want> = wants.iter().zip(0..).map(|(text, at)| want(text, at)).collect();
    let made = bind(&groups(all), &wants, budget);
    let told: Vec<String> = made
        .iter()
        .map(|one| {
            let word = one.reason.as_ref().map(|reason| format!(" {}", reason.code)).unwrap_or_default();
            format!("{}{word}", one.groups.join("+"))
        })
        .collect();
    assert_eq!(told, expected, "{all}");
    made
}

#[test]
fn selector_count_and_load_decide() {
    let all = "blue:zone=eu:10 green:zone=eu:10 red:zone=us:10";
    check(
        all,
        &["zone=eu", "zone=eu", "zone=eu"],
        0,
        &["blue Scheduled", "green Scheduled", "blue Scheduled"],
    );
    let made = check(
        all,
        &["zone=us", "", "zone in (eu,us)"],
        0,
        &["red Scheduled", "blue Scheduled", "green Scheduled"],
    );
    let reason = made[1].reason.as_ref().unwrap();
    assert_eq!(
        reason.message,
        "3 of 3 groups match; blue is best: blue has 1 of 10 ingresses; green has 0 of 10 ingresses; red has 1 of 10 ingresses"
    );
    // The bigger one has more room, and so has the one that does less.
    check(
        "big::100 small::2",
        &["", "", "", ""],
        0,
        &["big Scheduled", "small Scheduled", "big Scheduled", "big Scheduled"],
    );
    check("busy::10:60 idle::10:10", &["", "", ""], 0, &["idle Scheduled"; 3]);
    check("a b", &["", "", ""], 0, &["a Scheduled", "b Scheduled", "a Scheduled"]);
    check("a b c", &["2× ", "2× "], 0, &["a+b Scheduled", "a+c Scheduled"]);
}

#[test]
fn names_and_claims_are_direct() {
    let all = "blue::1 green! claimed*";
    check(
        all,
        &["@green", "@blue", "@blue", "@gone", "@green,blue", "-"],
        0,
        &["green Named", "blue Named", " GroupsFull", " GroupNotFound", "green Named", ""],
    );
    check(
        all,
        &["$claimed", "@claimed", "", "$later"],
        0,
        &["claimed Claimed", " GroupsClaimed", "blue Scheduled", " ClaimPending"],
    );
}

#[test]
fn who_finds_no_room_is_told_why_and_waits() {
    check("", &[""], 0, &[" NoGroups"]);
    let made = check("a:zone=eu b:zone=eu", &["zone=us"], 0, &[" NoGroupMatches"]);
    assert_eq!(made[0].reason.as_ref().unwrap().message, "none of 2 groups matches zone=us");
    check("a!", &[""], 0, &[" NoReadyEdges"]);
    check("a:::99", &[""], 0, &[" GroupsOverloaded"]);
    let made = check("a::1 b!", &["→ a", ""], 0, &["a", " GroupsFull"]);
    assert_eq!(
        made[1].reason.as_ref().unwrap().message,
        "a is full (1 of 1 ingresses); no edge of b is ready"
    );
    check("a::2 b!", &["→ a", ""], 0, &["a", "a Scheduled"]);
    check("a b!", &["3× → a"], 0, &["a Partly"]);
    check("a", &["zone in ("], 0, &[" Invalid"]);
}

#[test]
fn who_is_bound_stays_until_there_is_a_reason() {
    // More room elsewhere is none, and neither is a limit that was lowered.
    check("a::1 b::100", &["→ a", "→ a"], 0, &["a", "a"]);
    check("b::100", &["→ a"], 0, &["b GroupGone"]);
    check("a b", &["→ a", "@b → a", "- → a"], 0, &["a", "b AskedOtherwise", " NotAsked"]);
    check("a:x=1 b:x=2", &["x=2 → a"], 0, &["b AskedOtherwise"]);
    check("a! b", &["→ a", "@a → a"], 0, &["b GroupSilent", "a"]);
    check("a! b!", &["→ a"], 0, &["a"]);
    check("a! b::1", &["→ b", "→ a"], 0, &["b", "a"]);
}

#[test]
fn the_overloaded_are_relieved_a_few_at_a_time() {
    let all = "hot:::120 cool:::10";
    let made = check(
        all,
        &["→ hot", "→ hot", "→ hot", "@hot → hot"],
        2,
        &["hot", "cool GroupOverloaded", "cool GroupOverloaded", "hot"],
    );
    assert!(made[1].relieved && !made[0].relieved);
    assert_eq!(
        made[2].reason.as_ref().unwrap().message,
        "hot has 4 ingresses and uses 120 % of its connections; cool has 0 ingresses and uses 10 % of its connections"
    );
    check(all, &["→ hot"], 0, &["hot"]);
    // Where it is nearly as hot, nobody is sent.
    check("hot:::120 warm:::80", &["→ hot"], 5, &["hot"]);
    check("hot:::120 cool:x=1:1:0", &["→ hot", "→ cool"], 5, &["hot", "cool"]);
}

#[test]
fn what_cannot_be_read_says_what() {
    let check = |annotations: serde_json::Value, expected: &str| {
        let Ask::Wrong(why) = asks(&json!({"metadata": {"annotations": annotations}})) else {
            panic!("{expected}")
        };
        assert_eq!(why, expected);
    };
    check(
        json!({"landfall.dev/ingress-replicaset": " , "}),
        "landfall.dev/ingress-replicaset names no group",
    );
    check(
        json!({"landfall.dev/ingress-replicaset": "A b"}),
        "landfall.dev/ingress-replicaset: \"A b\" cannot be the name of a group",
    );
    check(
        json!({"landfall.dev/ingress-selector": "", "landfall.dev/ingress-replicasets-wanted": "many"}),
        "landfall.dev/ingress-replicasets-wanted: \"many\" is no number from 1 to 16",
    );
}

#[test]
fn load_is_what_is_used_most() {
    let spec: landfall_api::landfall::IngressReplicaSetSpec = serde_json::from_value(json!({
        "capacity": {"requestsPerSecond": 1000, "connections": 100, "bandwidth": "1M"},
        "resources": {"limits": {"cpu": "2"}},
    }))
    .unwrap();
    let edge = |load: serde_json::Value| -> landfall_api::landfall::EdgeStatus {
        serde_json::from_value(json!({"load": load, "capacity": {"cpu": "64", "memory": "1Gi"}})).unwrap()
    };
    let one = edge(
        json!({"cpu": "500m", "memory": "512Mi", "bandwidth": "100k", "connections": 10, "requestsPerSecond": 300}),
    );
    let two = edge(json!({"cpu": "1", "memory": "128Mi", "connections": 20}));
    let (total, used) = measure(&spec, &[&one, &two]);
    // 1.5 of 4 cores, 640 MB of 2 GB, 300 of 1000 requests.
    assert_eq!((used.of, (used.used * 1000.0).round()), ("processor", 375.0));
    assert_eq!((total.connections, total.cpu.unwrap().0.as_str()), (Some(30), "1500m"));
    let (_, used) = measure(&spec, &[&edge(json!({"connections": 90}))]);
    assert_eq!((used.of, used.used), ("connections", 0.9));
    assert_eq!(measure(&spec, &[]).1, Measured::default());
}

proptest! {
    /// Nobody is bound beyond a limit, or to what does not match; the same again moves nobody; nobody waits while there is room.
    #[test]
    fn limits_hold_and_it_comes_to_rest(
        sizes in proptest::collection::vec((0..4_u32, 0..3_u8, any::<bool>(), 0..130_u32), 1..8),
        asked in proptest::collection::vec((0..4_u8, 1..3_usize), 0..40),
    ) {
        let text: Vec<String> = sizes
            .iter()
            .enumerate()
            .map(|(at, (most, label, ready, load))| {
                format!("g{at}:x={label}:{}:{load}{}", most + 1, if *ready { "" } else { "!" })
            })
            .collect();
        let all = groups(&text.join(" "));
        let mut wants: Vec<Want> = asked
            .iter()
            .enumerate()
            .map(|(at, (label, count))| want(&if *label == 3 { format!("{count}× ") } else { format!("{count}×x={label}") }, at))
            .collect();
        let made = bind(&all, &wants, 3);
        for group in &all {
            let count = made.iter().filter(|one| one.groups.contains(&group.name)).count();
            prop_assert!(count <= group.capacity.unwrap_or(u32::MAX) as usize, "{}", group.name);
        }
        for (one, (label, _)) in made.iter().zip(&asked) {
            for name in &one.groups {
                let group = all.iter().find(|group| group.name == *name).expect("there");
                prop_assert!(*label == 3 || group.labels["x"] == label.to_string());
                prop_assert!(group.ready && group.load.used < group.overload);
            }
            let open = all.iter().any(|group| {
                let count = made.iter().filter(|one| one.groups.contains(&group.name)).count();
                let room = count < group.capacity.unwrap_or(u32::MAX) as usize;
                room && group.ready && group.load.used < group.overload && (*label == 3 || group.labels["x"] == label.to_string())
            });
            prop_assert!(!one.groups.is_empty() || !open && one.reason.is_some());
        }
        for (want, one) in wants.iter_mut().zip(&made) {
            want.bound.clone_from(&one.groups);
        }
        let again = bind(&all, &wants, 3);
        for (one, two) in made.iter().zip(&again) {
            prop_assert_eq!(&one.groups, &two.groups);
        }
    }
}
