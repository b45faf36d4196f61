//! Whole stories of replicas: loss and return, no room, rollouts, new clusters, drains.

use landfall_plan::replicas::{Observation, OnLoss, Plan, Policy, Preferences, Request, plan};

const NOW: i64 = 1_000_000_000;

/// A world of clusters that do at once what they are told, unless told otherwise.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) clusters: Vec<Observation>,
    pub(crate) replicas: u32,
    pub(crate) preferences: Preferences,
    pub(crate) policy: Policy,
    pub(crate) now_ms: i64,
}

impl World {
    pub(crate) fn new(names: &str, replicas: u32) -> Self {
        let cluster = |name: &str| Observation { cluster: name.to_owned(), ..Observation::default() };
        Self {
            clusters: names.split(' ').map(cluster).collect(),
            replicas,
            preferences: Preferences::default(),
            policy: Policy::default(),
            now_ms: NOW,
        }
    }

    pub(crate) fn rebalancing(mut self) -> Self {
        self.preferences.rebalance = true;
        self
    }

    pub(crate) fn at(&mut self, name: &str) -> &mut Observation {
        self.clusters.iter_mut().find(|c| c.cluster == name).expect("a cluster of this world")
    }

    pub(crate) fn plan(&self) -> Plan {
        plan(&Request {
            key: "shop/web",
            replicas: self.replicas,
            preferences: &self.preferences,
            policy: &self.policy,
            autoscaled: false,
            clusters: &self.clusters,
            now_ms: self.now_ms,
        })
    }

    /// Plans and does it; clusters that are online make everything ready at once.
    pub(crate) fn turn(&mut self) -> Plan {
        let plan = self.plan();
        for (seen, share) in self.clusters.iter_mut().zip(&plan.shares) {
            assert!(seen.offline_since_ms.is_none() || share.replicas.is_none(), "written to though offline");
            seen.showed = share.shows.map(|room| (room, self.now_ms)).or(seen.showed);
            if let Some(replicas) = share.replicas.filter(|_| seen.refuses_since_ms.is_none()) {
                seen.spec = Some(replicas);
                seen.goal = Some(share.noted);
                seen.ready = replicas.min(seen.capacity.unwrap_or(u32::MAX));
            }
        }
        plan
    }

    /// Turns until nothing changes.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100 {
            let before = self.clusters.clone();
            self.turn();
            if self.clusters == before {
                return;
            }
        }
        panic!("never comes to rest: {:?}", self.clusters);
    }

    pub(crate) fn specs(&self) -> Vec<u32> {
        self.clusters.iter().map(|c| c.spec.unwrap_or(0)).collect()
    }

    /// What exists in clusters that answer.
    pub(crate) fn live(&self) -> u32 {
        self.clusters.iter().filter(|c| c.offline_since_ms.is_none()).filter_map(|c| c.spec).sum()
    }
}

fn code(plan: &Plan, at: usize) -> &str {
    plan.shares[at].reason.code
}

#[test]
fn six_over_three_as_the_design_of_2015_prints_it() {
    let mut world = World::new("cluster-1 cluster-2 cluster-3", 6);
    world.settle();
    assert_eq!(world.specs(), [2, 2, 2]);
    assert_eq!(world.plan().shares[0].reason.to_string(), "Spread: 2 of 6: weight 1 of 3");
}

#[test]
fn a_lost_cluster_is_stood_in_for_and_returns_without_both_copies_staying() {
    let mut world = World::new("a b c", 6);
    world.settle();
    world.at("b").offline_since_ms = Some(NOW);
    let held = world.turn();
    assert_eq!((code(&held, 1), held.look_again_ms), ("OfflineHeld", Some(NOW + 60_000)));
    assert_eq!(world.specs(), [2, 2, 2], "held for a minute");
    world.now_ms = NOW + 60_000;
    let lost = world.plan();
    assert_eq!(code(&lost, 1), "OfflineMigrated");
    assert!(lost.shares[1].reason.message.contains("no proof that its pods are dead"));
    world.settle();
    assert_eq!(world.specs(), [3, 2, 3], "nothing is written to b");
    assert_eq!(world.live(), 6);
    // It is back, but its pods are not ready yet: the others go on.
    world.at("b").offline_since_ms = None;
    world.at("b").ready = 0;
    world.at("b").unready_since_ms = Some(world.now_ms);
    let back = world.plan();
    assert_eq!(back.shares.iter().map(|s| s.replicas.unwrap()).collect::<Vec<_>>(), [3, 2, 3]);
    assert_eq!(back.look_again_ms, Some(world.now_ms + 600_000));
    world.at("b").ready = 2;
    world.settle();
    assert_eq!(world.specs(), [2, 2, 2]);
}

#[test]
fn scaling_while_a_cluster_is_briefly_offline_takes_nothing_from_it() {
    let mut world = World::new("a b c", 6);
    world.settle();
    world.at("b").offline_since_ms = Some(NOW);
    world.replicas = 12;
    world.settle();
    assert_eq!(world.specs(), [5, 2, 5]);
    world.at("b").offline_since_ms = None;
    world.settle();
    assert_eq!(world.specs(), [5, 2, 5], "nothing that runs is moved");
    // Scaled down to less than the unreachable cluster holds: not everything is there.
    world.at("b").offline_since_ms = Some(NOW);
    world.replicas = 3;
    world.settle();
    assert_eq!(world.specs(), [1, 2, 1]);
}

#[test]
fn a_brief_outage_moves_nothing_however_uneven_things_are() {
    let mut world = World::new("a b c", 6);
    for (name, count) in [("a", 4), ("b", 1), ("c", 1)] {
        let seen = world.at(name);
        (seen.spec, seen.ready) = (Some(count), count);
    }
    world.at("a").offline_since_ms = Some(NOW);
    world.settle();
    assert_eq!(world.specs(), [4, 1, 1]);
}

#[test]
fn overprovisioning_places_more_and_moves_nothing() {
    let mut world = World::new("a b c", 6);
    world.policy.on_loss = OnLoss::Overprovision { percent: 150 };
    world.settle();
    assert_eq!(world.specs(), [3, 3, 3]);
    world.at("a").offline_since_ms = Some(0);
    assert_eq!(code(&world.plan(), 0), "OfflineOverprovisioned");
    world.settle();
    assert_eq!(world.specs(), [3, 3, 3]);
    assert_eq!(world.live(), 6, "what was asked for is still there");
}

#[test]
fn autoscalers_are_left_alone() {
    let world = World::new("a b", 4);
    let mut clusters = world.clusters.clone();
    let request = |clusters: &[Observation]| {
        let policy = Policy { on_loss: OnLoss::Autoscale, ..world.policy };
        let preferences = &world.preferences;
        let request = Request {
            key: "",
            replicas: 4,
            preferences,
            policy: &policy,
            autoscaled: true,
            clusters,
            now_ms: NOW,
        };
        plan(&request).shares.iter().map(|s| s.replicas).collect::<Vec<_>>()
    };
    assert_eq!(request(&clusters), [Some(2), Some(2)], "a first number");
    clusters[0].spec = Some(7);
    assert_eq!(request(&clusters)[0], None);
    clusters[0].draining = true;
    assert!(request(&clusters)[0].is_some(), "a drain is stronger");
}

#[test]
fn a_new_cluster_gets_its_share_although_nobody_rebalances() {
    let mut world = World::new("a b", 12);
    world.settle();
    assert_eq!(world.specs(), [6, 6]);
    world.clusters.push(Observation { cluster: "c".into(), ..Observation::default() });
    let mut most = 0;
    for _ in 0..20 {
        world.turn();
        most = most.max(world.live());
    }
    assert_eq!(world.specs(), [4, 4, 4]);
    assert_eq!(most, 15, "a quarter more while they move");
}

#[test]
fn unschedulable_replicas_move_where_there_is_room_and_do_not_come_back_at_once() {
    let mut world = World::new("a b c", 6);
    world.settle();
    world.replicas = 12;
    world.settle();
    assert_eq!(world.specs(), [4, 4, 4]);
    world.at("a").ready = 1;
    world.at("a").unschedulable_since_ms = vec![NOW - 59_000; 3];
    let waits = world.plan();
    assert_eq!(waits.look_again_ms, Some(NOW + 1_000));
    assert_eq!(waits.shares[0].replicas, Some(4));
    world.now_ms = NOW + 1_000;
    let moves = world.plan();
    assert_eq!(moves.shares[0].reason.to_string(), "NoRoom: 1 of 12: no room for more, 3 unschedulable");
    let now: Vec<_> = moves.shares.iter().map(|s| s.replicas.unwrap()).collect();
    assert_eq!(now[0], 1, "what never ran is given up at once");
    world.turn();
    world.at("a").unschedulable_since_ms.clear();
    world.settle();
    assert_eq!((world.specs()[0], world.live()), (1, 12));
}

#[test]
fn crash_looping_replicas_hold_no_place() {
    let mut world = World::new("a b c", 6);
    world.settle();
    world.at("a").ready = 0;
    world.at("a").crash_looping = 2;
    world.turn();
    world.at("a").crash_looping = 0;
    world.settle();
    assert_eq!(world.specs(), [0, 3, 3]);
    // The same everywhere is the program's fault: nothing moves.
    for seen in &mut world.clusters {
        (seen.crash_looping, seen.ready) = (seen.spec.unwrap(), 0);
    }
    let plan = world.plan();
    assert_eq!(plan.shares.iter().map(|s| s.goal).collect::<Vec<_>>(), [0, 3, 3]);
    assert_eq!(plan.unplaced, 0);
}

/// Once, the cluster whose pods crash was written to first: nothing crashed there any more, the others did not yet have what
/// it had, and it got one of it back, and lost it again.
#[test]
fn what_crashed_does_not_come_back_before_the_others_are_written_to() {
    let mut world = World::new("a b c", 6);
    world.settle();
    (world.at("a").ready, world.at("a").crash_looping) = (0, 2);
    let first = world.plan();
    assert_eq!((first.shares[0].replicas, first.shares[0].shows), (Some(0), Some(0)));
    let seen = world.at("a");
    (seen.spec, seen.goal, seen.crash_looping) = (Some(0), Some(0), 0);
    seen.showed = Some((0, NOW));
    let shares = |world: &World| world.plan().shares.iter().map(|s| s.replicas.unwrap()).collect::<Vec<_>>();
    assert_eq!(shares(&world), [0, 3, 3]);
    assert_eq!(code(&world.plan(), 0), "NoRoom");
    // Nobody took it over: after a while it is tried there again.
    world.now_ms = NOW + 60_000;
    assert_eq!(shares(&world), [2, 2, 2]);
}

#[test]
fn a_rolling_update_moves_nothing() {
    let mut world = World::new("a b c", 12);
    world.settle();
    let seen = world.at("a");
    (seen.updated, seen.ready, seen.crash_looping) = (Some(1), 3, 1);
    seen.unschedulable_since_ms = vec![0];
    let plan = world.plan();
    assert_eq!(plan.shares.iter().map(|s| s.replicas).collect::<Vec<_>>(), [Some(4); 3]);
    assert_eq!(code(&plan, 0), "RollingOut");
}

#[test]
fn a_full_cluster_keeps_one_waiting_when_rebalancing() {
    let mut world = World::new("a b c", 30).rebalancing();
    world.settle();
    let seen = world.at("a");
    (seen.ready, seen.unschedulable_since_ms) = (6, vec![0; 4]);
    let plan = world.plan();
    assert_eq!((plan.shares[0].goal, plan.shares[0].overflow), (7, 1));
    assert_eq!(plan.shares.iter().map(|s| s.goal - s.overflow).sum::<u32>(), 30);
}

#[test]
fn a_drained_cluster_gives_up_only_what_is_ready_elsewhere() {
    let mut world = World::new("a b c", 6);
    world.settle();
    world.at("c").draining = true;
    let first = world.turn();
    assert_eq!((code(&first, 2), first.shares[2].replicas), ("Draining", Some(2)));
    let ready = world.clusters.iter().map(|c| c.ready).sum::<u32>();
    assert!(ready >= 6);
    world.settle();
    assert_eq!(world.specs(), [3, 3, 0]);
    // Cordoned ones get no more.
    world.at("c").draining = false;
    world.at("c").cordoned = true;
    world.replicas = 9;
    world.settle();
    assert_eq!(world.specs()[2], 0);
}

/// A drain that was called off went on: what had not left yet left all the same, because that it shall leave was noted at the shard.
#[test]
fn a_drain_that_is_called_off_goes_no_further() {
    for cordoned in [false, true] {
        let mut world = World::new("a b c", 6);
        world.settle();
        world.at("c").draining = true;
        let share = &world.turn().shares[2];
        assert_eq!((share.replicas, share.goal, share.noted), (Some(2), 0, 2));
        assert_eq!(world.specs(), [3, 3, 2], "others were told to stand in");
        world.at("c").draining = false;
        world.at("c").cordoned = cordoned;
        world.settle();
        assert_eq!(world.specs(), [2, 2, 2]);
    }
}

/// The others died while a cluster was drained: it gave up the last replicas there were.
#[test]
fn a_drained_cluster_keeps_its_replicas_while_the_others_are_lost() {
    let mut world = World::new("a b c", 6);
    world.settle();
    world.at("c").draining = true;
    // They are told to run three each, and die before the third is ready.
    for name in ["a", "b"] {
        let seen = world.at(name);
        (seen.spec, seen.goal, seen.ready) = (Some(3), Some(3), 2);
        seen.offline_since_ms = Some(NOW);
    }
    world.settle();
    assert_eq!(world.specs()[2], 2, "as long as they may be back in a moment");
    world.at("c").draining = false;
    world.settle();
    assert_eq!(world.specs()[2], 2, "and when the drain is called off");
    world.at("c").draining = true;
    world.now_ms += 3_600_000;
    world.settle();
    assert_eq!(world.specs()[2], 2, "and when they are given up");
    for name in ["a", "b"] {
        world.at(name).offline_since_ms = None;
    }
    world.settle();
    assert_eq!(world.specs(), [3, 3, 0]);
}

#[test]
fn nobody_to_place_on_is_said_and_not_divided_by() {
    let plan = World::new("a", 3).plan();
    assert_eq!(plan.shares[0].replicas, Some(3));
    let mut nobody = World::new("a", u32::MAX);
    nobody.preferences.clusters.clear();
    let plan = nobody.plan();
    assert_eq!((code(&plan, 0), plan.shares[0].replicas), ("NotPreferred", Some(0)));
    nobody.clusters.clear();
    assert_eq!(nobody.plan().unplaced, i32::MAX as u32);
}

/// A quota or an admission rule keeps a shard out of one cluster: the others run its share until it is let in.
#[test]
fn a_cluster_that_refuses_its_shard_is_stood_in_for_until_it_takes_it() {
    let mut world = World::new("a b c", 6);
    world.at("b").refuses_since_ms = Some(NOW);
    let first = world.turn();
    assert_eq!((world.specs(), first.look_again_ms), (vec![2, 0, 2], Some(NOW + 60_000)), "it is given time");
    world.now_ms = NOW + 60_000;
    world.settle();
    assert_eq!(world.specs(), [3, 0, 3]);
    let plan = world.plan();
    assert_eq!(
        plan.shares[1].reason.to_string(),
        "RefusedHeld: 0 of the 2 that it should have are here, other clusters run the rest"
    );
    // It goes on being asked for its share, and nothing else changes: nobody flaps.
    assert_eq!((plan.shares[1].replicas, plan.shares[1].goal), (Some(2), 2));
    let seen: Vec<_> = (0..5).map(|_| world.turn().shares).collect();
    assert!(seen.iter().all(|shares| *shares == plan.shares));

    // It takes it: they come back, and there are never more than the surge allows.
    (world.at("b").spec, world.at("b").goal) = (plan.shares[1].replicas, Some(2));
    world.at("b").refuses_since_ms = None;
    assert!(world.live() <= 8, "{:?}", world.specs());
    assert_eq!(world.plan().shares[0].replicas, Some(3), "not before its own are ready");
    world.at("b").ready = 2;
    world.settle();
    assert_eq!(world.specs(), [2, 2, 2]);
}

#[test]
fn a_cluster_that_refuses_a_change_keeps_what_it_has() {
    let mut world = World::new("a b c", 6);
    world.settle();
    world.at("b").refuses_since_ms = Some(NOW);
    world.now_ms = NOW + 60_000;
    assert_eq!(world.turn().shares[1].replicas, Some(2));
    assert_eq!(world.specs(), [2, 2, 2], "nothing moves that runs");
    world.replicas = 12;
    world.settle();
    assert_eq!(world.specs(), [5, 2, 5]);
    assert_eq!(world.plan().shares[1].goal, 4);
    world.replicas = 3;
    world.settle();
    assert_eq!((world.live(), world.at("b").spec, world.plan().shares[1].replicas), (3, Some(2), Some(2)));
}

#[test]
fn without_surge_a_cluster_that_takes_its_shard_again_begins_with_none() {
    let mut world = World::new("a b", 4);
    world.policy.surge_percent = 0;
    world.at("b").refuses_since_ms = Some(NOW - 60_000);
    world.settle();
    assert_eq!(world.specs(), [4, 0]);
    let share = world.plan().shares[1].clone();
    assert_eq!((share.replicas, share.goal), (Some(0), 2));
    (world.at("b").spec, world.at("b").goal) = (Some(0), Some(2));
    world.at("b").refuses_since_ms = None;
    while world.specs() != [2, 2] {
        world.turn();
        assert!(world.live() <= 4, "{:?}", world.specs());
    }
}
