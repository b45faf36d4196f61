//! What holds for every input.

use landfall_plan::autoscale;
use landfall_plan::replicas::{ClusterPreferences, Observation, Policy, Preferences, Slot, divide};
use proptest::prelude::*;

use super::replicas::World;

fn preferences() -> impl Strategy<Value = Preferences> {
    let one =
        (0_u32..5, 0_u32..4, prop::option::of(4_u32..40)).prop_map(|(weight, min_replicas, max_replicas)| {
            ClusterPreferences { weight, min_replicas, max_replicas }
        });
    (any::<bool>(), one.clone(), prop::collection::btree_map("[a-f]", one, 0..4)).prop_map(
        |(rebalance, every, named)| {
            let mut clusters = named;
            clusters.insert("*".to_owned(), every);
            Preferences { rebalance, clusters }
        },
    )
}

fn slots() -> impl Strategy<Value = Vec<Slot>> {
    let slot = (
        0_u32..5,
        0_u32..10,
        prop::option::of(0_u32..30),
        prop::option::of(0_u32..30),
        prop::option::of(0_u32..30),
    )
        .prop_map(|(weight, min, max, capacity, current)| {
            let max = max.map(|max| max.max(min));
            Slot { weight, min, max, capacity, current, ..Slot::default() }
        });
    prop::collection::vec(slot, 0..12)
}

fn world() -> impl Strategy<Value = World> {
    (1_usize..7, 0_u32..60, preferences()).prop_map(|(count, replicas, preferences)| {
        let names = ["a", "b", "c", "d", "e", "f"].into_iter().take(count).collect::<Vec<_>>().join(" ");
        World { preferences, ..World::new(&names, replicas) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_are_conserved_and_limits_kept(total in 0_u32..200, rebalance: bool, mut slots in slots()) {
        let unplaced = divide(total, rebalance, &mut slots);
        prop_assert_eq!(slots.iter().map(|s| s.planned).sum::<u32>() + unplaced, total);
        for slot in &slots {
            prop_assert!(slot.max.is_none_or(|max| slot.planned <= max));
            prop_assert!(slot.capacity.is_none_or(|room| slot.planned <= room));
        }
        let minimums: u32 = slots.iter().map(|s| s.min.min(s.capacity.unwrap_or(u32::MAX))).sum();
        if minimums <= total {
            for slot in &slots {
                prop_assert!(slot.planned >= slot.min.min(slot.capacity.unwrap_or(u32::MAX)));
            }
        }
        if !rebalance {
            prop_assert!(slots.iter().map(|s| s.overflow).sum::<u32>() <= unplaced);
        }
        let open = slots.iter().any(|s| s.weight > 0 && s.max.is_none() && s.capacity.is_none());
        prop_assert!(!open || unplaced == 0);
    }

    #[test]
    fn as_few_as_possible_move_without_rebalancing(total in 0_u32..200, mut slots in slots()) {
        for slot in &mut slots {
            slot.min = 0;
            slot.current = slot.current.or(Some(0));
        }
        let may_stay = |s: &Slot| s.current.unwrap().min(s.max.unwrap_or(u32::MAX)).min(s.capacity.unwrap_or(u32::MAX));
        let could_stay = slots.iter().map(may_stay).sum::<u32>().min(total);
        divide(total, false, &mut slots);
        let stay: u32 = slots.iter().map(|s| s.planned.min(s.current.unwrap())).sum();
        prop_assert_eq!(stay, could_stay);
    }

    #[test]
    fn worlds_come_to_rest_and_then_nothing_changes(mut world in world()) {
        world.settle();
        let before = world.clusters.clone();
        let plan = world.turn();
        prop_assert_eq!(&world.clusters, &before);
        prop_assert_eq!(world.live() + plan.unplaced, world.replicas);
        for seen in &world.clusters {
            let wished = world.preferences.of(&seen.cluster).unwrap();
            prop_assert!(seen.spec.unwrap() <= wished.max_replicas.unwrap_or(u32::MAX));
        }
    }

    #[test]
    fn plans_do_not_depend_on_the_order_of_clusters(mut world in world(), turns in 0_usize..3) {
        for _ in 0..turns {
            world.turn();
        }
        let mut plan = world.plan();
        world.clusters.reverse();
        let mut reversed = world.plan();
        plan.shares.sort_by(|a, b| a.cluster.cmp(&b.cluster));
        reversed.shares.sort_by(|a, b| a.cluster.cmp(&b.cluster));
        prop_assert_eq!(plan, reversed);
    }

    #[test]
    fn a_new_cluster_gets_its_fair_share(count in 1_usize..6, replicas in 0_u32..60) {
        let names = ["a", "b", "c", "d", "e"].into_iter().take(count).collect::<Vec<_>>().join(" ");
        let mut world = World::new(&names, replicas);
        world.settle();
        world.clusters.push(Observation { cluster: "new".into(), ..Observation::default() });
        let most = replicas + replicas.div_ceil(4);
        for _ in 0..60 {
            world.turn();
            prop_assert!(world.live() <= most, "{} of at most {}", world.live(), most);
        }
        let share = world.at("new").spec.unwrap();
        let parts = u32::try_from(count).unwrap() + 1;
        prop_assert!(share >= replicas / parts && share <= replicas.div_ceil(parts));
        prop_assert_eq!(world.live(), replicas);
    }

    #[test]
    fn clusters_that_refuse_and_take_again_never_make_too_many(
        count in 2_usize..6, replicas in 0_u32..60, surge_percent in 0_u32..50, begun: bool,
        refusals in prop::collection::vec((0_usize..6, any::<bool>()), 0..12),
    ) {
        let names = ["a", "b", "c", "d", "e"].into_iter().take(count).collect::<Vec<_>>().join(" ");
        let mut world = World::new(&names, replicas);
        world.policy = Policy { surge_percent, ..Policy::default() };
        if begun {
            world.settle();
        }
        let most = replicas + (replicas * surge_percent).div_ceil(100);
        let long_ago = world.now_ms - 3_600_000;
        for (at, refuses) in refusals {
            world.clusters[at % count].refuses_since_ms = refuses.then_some(long_ago);
            for _ in 0..3 {
                world.turn();
                prop_assert!(world.live() <= most, "{:?} of at most {}", world.specs(), most);
            }
        }
        for seen in &mut world.clusters {
            seen.refuses_since_ms = None;
        }
        for _ in 0..80 {
            world.turn();
            prop_assert!(world.live() <= most, "{:?} of at most {}", world.specs(), most);
        }
        prop_assert_eq!(world.live(), replicas);
    }

    #[test]
    fn replicas_that_crash_leave_once_in_whatever_order_writes_arrive(
        count in 2_usize..6, replicas in 2_u32..60, surge_percent in 0_u32..50,
        order in prop::collection::vec(0_usize..5, 1..120),
    ) {
        let names = ["a", "b", "c", "d", "e"].into_iter().take(count).collect::<Vec<_>>().join(" ");
        let mut world = World::new(&names, replicas);
        world.policy = Policy { surge_percent, ..Policy::default() };
        world.settle();
        let most = replicas + (replicas * surge_percent).div_ceil(100);
        let mut fewest = world.clusters[0].spec.unwrap();
        // Each look is followed by the write of one shard, while all others still are as they were.
        for at in order.into_iter().chain((0..5).cycle().take(400)) {
            let crashing = &mut world.clusters[0];
            (crashing.ready, crashing.crash_looping) = (0, crashing.spec.unwrap());
            let plan = world.plan();
            let at = at % count;
            for (seen, share) in world.clusters.iter_mut().zip(&plan.shares) {
                seen.showed = share.shows.map(|room| (room, world.now_ms)).or(seen.showed);
            }
            let (seen, share) = (&mut world.clusters[at], &plan.shares[at]);
            (seen.spec, seen.goal) = (share.replicas, Some(share.noted));
            seen.ready = share.replicas.unwrap();
            let left = world.clusters[0].spec.unwrap();
            prop_assert!(left <= fewest, "{left} after {fewest}: {:?}", world.specs());
            prop_assert!(world.live() <= most, "{:?} of at most {most}", world.specs());
            fewest = left;
        }
        prop_assert_eq!((fewest, world.live()), (0, replicas));
    }

    #[test]
    fn a_dead_cluster_comes_back_without_both_copies_staying(
        count in 2_usize..6, replicas in 0_u32..60, dead in 0_usize..2, surge_percent in 0_u32..50,
    ) {
        let names = ["a", "b", "c", "d", "e"].into_iter().take(count).collect::<Vec<_>>().join(" ");
        let mut world = World::new(&names, replicas);
        world.policy = Policy { surge_percent, ..Policy::default() };
        world.settle();
        let before = world.specs();
        let most = replicas + (replicas * surge_percent).div_ceil(100);
        world.clusters[dead].offline_since_ms = Some(world.now_ms);
        world.now_ms += 60_000;
        for _ in 0..80 {
            world.turn();
            prop_assert!(world.live() <= most, "{} of at most {}", world.live(), most);
        }
        prop_assert_eq!(world.live(), replicas, "the others stand in");
        world.clusters[dead].offline_since_ms = None;
        let mut last = world.live();
        for _ in 0..80 {
            world.turn();
            prop_assert!(world.live() <= last.max(most), "it only gets fewer");
            last = world.live();
        }
        prop_assert_eq!(world.specs(), before);
    }

    #[test]
    fn autoscalers_never_have_more_together_than_was_allowed(
        min in 0_u32..20, more in 0_u32..60,
        demand in prop::collection::vec((0_u32..30, any::<bool>()), 1..7),
    ) {
        let max = min + more;
        let cluster = |(at, (_, draining)): (usize, &(u32, bool))| autoscale::Observation {
            cluster: format!("c{at}"), weight: 1, draining: *draining, ..autoscale::Observation::default()
        };
        let mut clusters: Vec<_> = demand.iter().enumerate().map(cluster).collect();
        let mut before = Vec::new();
        for round in 0..60 {
            let (hold_down_ms, window_ms) = (60_000, 0);
            let request = autoscale::Request { key: "", min, max, clusters: &clusters, hold_down_ms, window_ms, now_ms: round };
            let parts = autoscale::split(&request).parts;
            let mut sum = 0;
            for ((seen, part), (demand, _)) in clusters.iter_mut().zip(&parts).zip(&demand) {
                seen.bounds = None;
                if let autoscale::Step::Set(bounds) = part.step {
                    prop_assert!(1 <= bounds.min && bounds.min <= bounds.max, "{:?}", bounds);
                    sum += bounds.max;
                    seen.bounds = Some(bounds);
                    seen.desired = (*demand).clamp(bounds.min, bounds.max);
                    seen.current = seen.desired;
                }
            }
            prop_assert!(sum <= max, "{} of {}", sum, max);
            let live = clusters.iter().filter(|seen| !seen.draining).count();
            prop_assert!(sum == max || live == 0, "{} of {}", sum, max);
            if round == 58 {
                before = parts.iter().map(|part| part.step).collect();
            }
            if round == 59 {
                prop_assert_eq!(&before, &parts.iter().map(|part| part.step).collect::<Vec<_>>(), "comes to rest");
            }
        }
    }

    #[test]
    fn whatever_happens_nobody_gets_more_than_allowed_and_the_end_is_right(
        mut world in world(), events in prop::collection::vec((0_u8..6, 0_usize..6, 0_u32..60), 0..20),
    ) {
        for (event, at, number) in events {
            let at = at % world.clusters.len();
            let now_ms = world.now_ms;
            match event {
                0 => world.clusters[at].offline_since_ms = Some(now_ms),
                1 => world.clusters[at].offline_since_ms = None,
                2 => world.replicas = number,
                3 => world.clusters[at].draining = number % 2 == 0,
                4 => world.clusters[at].cordoned = number % 2 == 0,
                _ => world.now_ms += 45_000,
            }
            let before = world.live();
            world.turn();
            let most = world.replicas + world.replicas.div_ceil(4);
            prop_assert!(world.live() <= before.max(most), "{} after {before}, at most {most}", world.live());
        }
        for seen in &mut world.clusters {
            (seen.offline_since_ms, seen.draining, seen.cordoned) = (None, false, false);
        }
        world.settle();
        let unplaced = world.plan().unplaced;
        prop_assert_eq!(world.live() + unplaced, world.replicas);
    }
}
