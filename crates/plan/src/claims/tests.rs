//! The life of claims, step by step, and that nothing is left over.

use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proptest::prelude::*;

use super::*;

fn claim(name: &str, ingresses: &[&str], policy: ReclaimPolicy) -> Claim {
    let named = ingresses.iter().map(|name| LocalObjectReference { name: (*name).into() });
    Claim {
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("u-{name}"),
        created: name.into(),
        spec: IngressClaimSpec {
            ingresses: named.collect(),
            reclaim_policy: policy,
            ..IngressClaimSpec::default()
        },
        ..Claim::default()
    }
}

fn ingress(name: &str) -> Ingress {
    Ingress {
        namespace: "shop".into(),
        name: name.into(),
        labels: [("team".to_owned(), "x".to_owned())].into(),
    }
}

/// A world that does what is decided.
#[derive(Default)]
struct World {
    claims: Vec<Claim>,
    groups: Vec<Group>,
    ingresses: Vec<Ingress>,
    addresses: u8,
}

impl World {
    /// One look; whether anything was done.
    fn step(&mut self) -> bool {
        let (outcomes, _) = decide(&self.claims, &self.groups, &self.ingresses);
        let mut busy = false;
        for (at, outcome) in outcomes.iter().enumerate() {
            let claim = &mut self.claims[at];
            claim.phase = outcome.phase;
            claim.served.clone_from(&outcome.serves);
            let uid = claim.uid.clone();
            busy |= outcome.step != Step::Nothing;
            match &outcome.step {
                Step::Nothing => {}
                Step::AddFinalizer => claim.finalizer = true,
                Step::RemoveFinalizer => claim.finalizer = false,
                Step::Make { group } => {
                    assert!(self.groups.iter().all(|one| one.name != *group), "made twice: {group}");
                    let spec = claim.spec.ingress_replica_set_spec.clone();
                    self.groups.push(Group { name: group.clone(), claim: uid, spec, ..Group::default() });
                }
                Step::Take { group } | Step::Resume { group } => {
                    let group = self.groups.iter_mut().find(|one| one.name == *group).expect("there");
                    group.claim = uid;
                    group.released.clear();
                }
                Step::Release { group, policy } => {
                    let at = self.groups.iter().position(|one| one.name == *group).expect("there");
                    match policy {
                        ReclaimPolicy::Delete => drop(self.groups.remove(at)),
                        ReclaimPolicy::Retain => self.groups[at].released = "Retained".into(),
                        ReclaimPolicy::Recycle => self.groups[at].released = "Recycled".into(),
                    }
                }
            }
        }
        self.claims.retain(|claim| !claim.deleting || claim.finalizer);
        for group in self.groups.iter_mut().filter(|group| group.vips.is_empty()) {
            self.addresses += 1;
            group.vips.push(format!("192.0.2.{}", self.addresses));
            busy = true;
        }
        busy
    }

    fn settle(&mut self) {
        assert!((0..40).any(|_| !self.step()), "it never comes to rest");
        self.step();
    }

    /// Claims with phase, group's address and ingresses; groups with what they are.
    fn told(&self) -> String {
        let (outcomes, bound) = decide(&self.claims, &self.groups, &self.ingresses);
        let claim = |(claim, outcome): (&Claim, &Outcome)| {
            format!("{}:{:?}:{}", claim.name, outcome.phase, outcome.vip.as_deref().unwrap_or("-"))
        };
        let claims = self.claims.iter().zip(&outcomes).map(claim);
        let group = |group: &Group| format!("[{}:{}]", group.vips.join(","), group.released);
        let bound = bound.keys().map(|key| format!("{key}!"));
        claims.chain(self.groups.iter().map(group)).chain(bound).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn a_claim_lives_and_its_group_is_disposed_of() {
    for (policy, gone, after) in [
        (ReclaimPolicy::Delete, "a:Released:-", ""),
        (ReclaimPolicy::Retain, "a:Released:192.0.2.1 [192.0.2.1:Retained]", "[192.0.2.1:Retained]"),
        (ReclaimPolicy::Recycle, "a:Released:- [192.0.2.1:Recycled]", "[192.0.2.1:Recycled]"),
    ] {
        let mut world = World { claims: vec![claim("a", &["web"], policy)], ..World::default() };
        world.settle();
        assert_eq!(world.told(), "a:Bound:192.0.2.1 [192.0.2.1:]", "before there is an ingress");
        world.ingresses.push(ingress("web"));
        world.settle();
        assert_eq!(world.told(), "a:Bound:192.0.2.1 [192.0.2.1:] shop/web!");
        world.ingresses.clear();
        world.settle();
        assert_eq!(world.told(), gone);
        world.claims[0].deleting = true;
        world.settle();
        assert_eq!(world.told(), after);
        // The next one: it takes what is recycled, and nothing else.
        world.claims.push(claim("b", &["web"], policy));
        world.settle();
        let told = world.told();
        let expected = match policy {
            ReclaimPolicy::Delete => "b:Bound:192.0.2.2 [192.0.2.2:]",
            ReclaimPolicy::Retain => "b:Bound:192.0.2.2 [192.0.2.1:Retained] [192.0.2.2:]",
            ReclaimPolicy::Recycle => "b:Bound:192.0.2.1 [192.0.2.1:]",
        };
        assert_eq!(told, expected);
    }
}

#[test]
fn an_ingress_that_comes_back_finds_its_group() {
    let mut world = World { claims: vec![claim("a", &["web"], ReclaimPolicy::Retain)], ..World::default() };
    world.ingresses.push(ingress("web"));
    world.settle();
    world.ingresses.clear();
    world.settle();
    world.ingresses.push(ingress("web"));
    world.settle();
    assert_eq!(world.told(), "a:Bound:192.0.2.1 [192.0.2.1:] shop/web!");
}

#[test]
fn what_another_claim_has_is_its_own() {
    let mut by_label = claim("b", &[], ReclaimPolicy::Delete);
    let labels = LabelSelector {
        match_labels: Some([("team".to_owned(), "x".to_owned())].into()),
        ..LabelSelector::default()
    };
    by_label.spec.ingress_selector = Some(labels);
    let claims = vec![claim("a", &["web", "gone"], ReclaimPolicy::Delete), by_label];
    let mut world = World { claims, ingresses: vec![ingress("web"), ingress("api")], ..World::default() };
    world.settle();
    let (outcomes, bound) = decide(&world.claims, &world.groups, &world.ingresses);
    assert_eq!((outcomes[0].own.1.code, outcomes[1].own.1.code), ("IngressNotFound", "ClaimedElsewhere"));
    assert_eq!(outcomes[1].own.1.message, "other claims in shop have web (a)");
    let groups: BTreeSet<&String> = bound.values().collect();
    assert_eq!((bound.len(), groups.len()), (2, 2));
}

/// An older claim whose selector began to match took an Ingress away from the claim that served it.
#[test]
fn whoever_serves_an_ingress_keeps_it() {
    let labels = |team: &str| LabelSelector {
        match_labels: Some([("team".to_owned(), team.to_owned())].into()),
        ..LabelSelector::default()
    };
    let mut older = claim("a", &[], ReclaimPolicy::Retain);
    older.spec.ingress_selector = Some(labels("y"));
    let claims = vec![older, claim("b", &["web"], ReclaimPolicy::Retain)];
    let mut world = World { claims, ingresses: vec![ingress("web")], ..World::default() };
    world.settle();
    assert_eq!(world.told(), "a:Bound:192.0.2.1 b:Bound:192.0.2.2 [192.0.2.1:] [192.0.2.2:] shop/web!");
    world.claims[0].spec.ingress_selector = Some(labels("x"));
    world.settle();
    let served = |world: &World| decide(&world.claims, &world.groups, &world.ingresses).1;
    assert_eq!(served(&world)["shop/web"], group_name("u-b"));
    // It means it no more: the other may have it.
    world.claims[1].spec.ingresses.clear();
    world.settle();
    assert_eq!(served(&world)["shop/web"], group_name("u-a"));
}

#[test]
fn what_users_may_ask_for_is_limited() {
    let check = |spec: serde_json::Value, beyond_it: bool| {
        let read: IngressReplicaSetSpec = serde_json::from_value(spec.clone()).expect("a spec");
        assert_eq!(beyond(&read).is_some(), beyond_it, "{spec}");
    };
    use serde_json::json;
    check(json!({}), false);
    let plain = json!({"replicas": 4, "clusters": {"names": ["a"]}, "capacity": {"ingresses": 5}, "ipFamilies": ["IPv6"]});
    check(plain, false);
    for more in [
        json!({"replicas": 5}),
        json!({"nodeSelector": {"role": "control-plane"}}),
        json!({"tolerations": [{"operator": "Exists"}]}),
        json!({"vip": "192.0.2.1"}),
        json!({"vips": [{"cluster": "a", "address": "192.0.2.1"}]}),
        json!({"vipRange": "office"}),
        json!({"interface": "eth0"}),
        json!({"resources": {"limits": {"cpu": "64"}}}),
    ] {
        check(more, true);
    }
}

#[test]
fn what_cannot_be_is_told() {
    let mut wrong = claim("a", &[], ReclaimPolicy::Delete);
    wrong.finalizer = true;
    wrong.spec.ingress_selector = serde_json::from_value(serde_json::json!({
        "matchExpressions": [{"key": "a", "operator": "Sometimes"}],
    }))
    .expect("a selector");
    let (outcomes, _) = decide(&[wrong], &[], &[]);
    assert_eq!((outcomes[0].phase, outcomes[0].provisioned.1.code), (ClaimPhase::Failed, "Invalid"));
    let mut waits = claim("a", &["web"], ReclaimPolicy::Delete);
    waits.finalizer = true;
    let none = Reason::new("VIPsExhausted", "no address is left");
    let group =
        Group { name: group_name("u-a"), claim: "u-a".into(), troubles: vec![none], ..Group::default() };
    let (outcomes, _) = decide(&[waits.clone()], std::slice::from_ref(&group), &[]);
    assert_eq!((outcomes[0].phase, outcomes[0].provisioned.1.code), (ClaimPhase::Pending, "VIPsExhausted"));
    let strange = Group { claim: "somebody".into(), ..group };
    let (outcomes, _) = decide(&[waits], &[strange], &[]);
    assert_eq!(outcomes[0].step, Step::Make { group: "claim-u-a-2".into() });
}

/// A claim whose recycled group had become another's could have none any more: its name was taken, and it failed for good.
#[test]
fn a_claim_whose_recycled_group_is_anothers_gets_a_new_one() {
    let [first, other] = ["a", "b"].map(|name| claim(name, &[name], ReclaimPolicy::Recycle));
    let mut world = World { claims: vec![first], ingresses: vec![ingress("a")], ..World::default() };
    world.settle();
    world.ingresses.clear();
    world.settle();
    assert_eq!(world.told(), "a:Released:- [192.0.2.1:Recycled]");
    // The other one comes first in order, and both look at once.
    world.claims.push(Claim { created: "0".into(), finalizer: true, ..other });
    world.ingresses.push(ingress("a"));
    world.settle();
    assert_eq!(world.told(), "a:Bound:192.0.2.2 b:Bound:192.0.2.1 [192.0.2.1:] [192.0.2.2:] shop/a!");
    assert_eq!(world.groups[1].name, "claim-u-a-2");
}

proptest! {
    /// Whatever comes and goes: no group serves two claims, and without claims only what was retained or recycled is left.
    #[test]
    fn nothing_leaks(acts in proptest::collection::vec((0..5_u8, 0..4_u8, 0..3_u8), 0..40)) {
        let mut world = World::default();
        let mut kept = false;
        for (act, which, policy) in acts {
            let name = format!("c{which}");
            let policy = [ReclaimPolicy::Retain, ReclaimPolicy::Recycle, ReclaimPolicy::Delete][usize::from(policy)];
            match act {
                0 if world.claims.iter().all(|claim| claim.name != name) => {
                    kept |= policy != ReclaimPolicy::Delete;
                    let mut made = claim(&name, &["web", &format!("i{which}")], policy);
                    made.uid = format!("{name}-{}", world.addresses);
                    world.claims.push(made);
                }
                1 => world.claims.iter_mut().filter(|claim| claim.name == name).for_each(|claim| claim.deleting = true),
                2 => world.ingresses.push(ingress(&format!("i{which}"))),
                3 => world.ingresses.clear(),
                _ => drop(world.step()),
            }
            let mut serving = BTreeSet::new();
            for group in world.groups.iter().filter(|group| group.released.is_empty()) {
                prop_assert!(serving.insert(group.claim.clone()), "two groups for one claim");
            }
        }
        world.claims.iter_mut().for_each(|claim| claim.deleting = true);
        world.settle();
        prop_assert!(world.claims.is_empty());
        prop_assert!(world.groups.iter().all(|group| kept && !group.released.is_empty()));
    }
}
