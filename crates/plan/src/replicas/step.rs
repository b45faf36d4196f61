//! The next safe step from what runs to what is planned: grow first, and shrink what has been made up for.
//!
//! At no moment do clusters that can be written to hold more than was asked for plus the surge (unless they held
//! more before), and what is ready is not given up before as much is ready elsewhere.

/// One cluster on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// What its shard asks for.
    pub(super) now: u32,
    /// How many of these are ready.
    pub(super) ready: u32,
    /// What it shall have in the end.
    pub(super) goal: u32,
    /// Its replicas that are not ready are no longer waited for.
    pub(super) overdue: bool,
    /// It is drained: nobody has asked for fewer, they shall only be elsewhere.
    pub(super) leaves: bool,
    /// Result: what its shard shall ask for next.
    pub(super) next: u32,
}

/// How far a step may stray from what was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How many replicas were asked for.
    pub(super) wanted: u32,
    /// So many more may exist.
    pub(super) surge: u32,
    /// So many fewer may be ready.
    pub(super) unavailable: u32,
    /// What clusters that do not answer are counted with, and how many of these were ready when they last did.
    pub(super) silent: Silent,
}

/// Replicas in clusters that cannot be written to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silent {
    pub(super) counted: u32,
    pub(super) ready: u32,
    /// The part of them that are given up, and have no place elsewhere.
    pub(super) lost: u32,
}

/// Fills in what comes next for each cluster.
pub(super) fn step(bounds: Bounds, ways: &mut [Way]) {
    grow(bounds, ways);
    shrink(bounds, ways);
}

/// Room is counted by what exists: what another cluster gives up in this same step may take a while to go.
fn grow(bounds: Bounds, ways: &mut [Way]) {
    let exist: u64 = ways.iter().map(|way| u64::from(way.now)).sum();
    let goals: u64 = ways.iter().map(|way| u64::from(way.goal)).sum();
    let most = goals.max(u64::from(bounds.wanted)) + u64::from(bounds.surge);
    let mut room = most.saturating_sub(exist);
    for way in ways.iter_mut() {
        let more = u64::from(way.goal.saturating_sub(way.now)).min(room);
        room -= more;
        // `more` is at most goal - now, which is a u32.
        way.next = way.now + u32::try_from(more).unwrap_or(0);
    }
}

fn shrink(bounds: Bounds, ways: &mut [Way]) {
    let ready: u64 = ways.iter().map(|way| u64::from(way.ready.min(way.now))).sum();
    let goals: u64 = ways.iter().map(|way| u64::from(way.goal)).sum();
    let missing = |way: &&Way| u64::from(way.goal.saturating_sub(way.ready));
    let given_up: u64 = ways.iter().filter(|way| way.overdue).map(|way| missing(&way)).sum();
    let fewer = u64::from(bounds.unavailable) + given_up;
    let floor = goals.min(u64::from(bounds.wanted)).saturating_sub(fewer);
    let mut spare = ready.saturating_sub(floor);
    // Who stands in for those that leave may be silent: then they stay until it was seen that all are ready.
    let silent = bounds.silent;
    let proven = ready + u64::from(silent.ready.min(silent.counted));
    let mut spare_to_leave = proven.saturating_sub((goals + u64::from(silent.counted)).saturating_sub(fewer));
    for way in ways.iter_mut().rev().filter(|way| way.goal < way.now) {
        let excess = way.now - way.goal;
        // A member removes replicas that are not ready first.
        let idle = way.now.saturating_sub(way.ready).min(excess);
        // After a drain that was called off, too.
        let most = if way.leaves || silent.counted > silent.lost { spare.min(spare_to_leave) } else { spare };
        let busy = u64::from(excess - idle).min(most);
        spare -= busy;
        spare_to_leave = spare_to_leave.saturating_sub(busy);
        way.next = way.now - idle - u32::try_from(busy).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ways as `now/ready>goal`, `!` for overdue, and `-` as the goal of one that is drained.
    #[track_caller]
    fn check(bounds: (u32, u32, u32), ways: &str, expected: &[u32]) {
        check_beside(bounds, Silent::default(), ways, expected);
    }

    /// The same beside clusters that are silent.
    #[track_caller]
    fn check_beside(bounds: (u32, u32, u32), silent: Silent, ways: &str, expected: &[u32]) {
        let (wanted, surge, unavailable) = bounds;
        let read = |text: &str| {
            let (from, goal) = text.split_once('>').unwrap();
            let (now, ready) = from.split_once('/').unwrap();
            let number = |text: &str| text.trim_end_matches('!').parse().unwrap();
            let (overdue, leaves) = (goal.ends_with('!'), goal == "-");
            let goal = if leaves { 0 } else { number(goal) };
            Way { now: number(now), ready: number(ready), goal, overdue, leaves, next: 0 }
        };
        let mut parsed: Vec<Way> = ways.split(' ').map(read).collect();
        step(Bounds { wanted, surge, unavailable, silent }, &mut parsed);
        let next: Vec<u32> = parsed.iter().map(|way| way.next).collect();
        assert_eq!(next, expected, "{ways}");
    }

    #[test]
    fn steps_grow_before_they_shrink() {
        check((6, 2, 0), "0/0>2 0/0>2 0/0>2", &[2, 2, 2]);
        check((6, 2, 0), "2/2>2 2/2>2 2/2>2", &[2, 2, 2]);
        // A move of two: first there, then here.
        check((6, 2, 0), "4/4>2 2/2>4", &[4, 4]);
        check((6, 2, 0), "4/4>2 4/3>4", &[3, 4]);
        check((6, 2, 0), "4/4>2 4/4>4", &[2, 4]);
        // Only as far as the surge allows.
        check((6, 1, 0), "4/4>2 2/2>4", &[4, 3]);
        check((6, 0, 1), "4/4>2 2/2>4", &[3, 2]);
        check((6, 0, 1), "3/3>2 2/2>4", &[3, 3]);
        // A lost cluster is back with its old replicas: the others go as soon as these are ready.
        check((6, 2, 0), "3/3>2 3/3>2 2/0>2", &[3, 3, 2]);
        check((6, 2, 0), "3/3>2 3/3>2 2/1>2", &[3, 2, 2]);
        check((6, 2, 0), "3/3>2 3/3>2 2/2>2", &[2, 2, 2]);
        // They were waited for long enough.
        check((6, 2, 0), "3/3>2 3/3>2 2/0>2!", &[2, 2, 2]);
        // Less is asked for: what is not ready goes first.
        check((3, 1, 0), "2/2>1 2/1>1 2/0>1!", &[1, 1, 1]);
        check((0, 0, 0), "2/2>0 2/1>0", &[0, 0]);
    }

    /// Two of three clusters died while the third was drained: it gave up the last pods that were alive, for others that nobody had
    /// seen ready.
    #[test]
    fn nothing_leaves_for_replicas_that_nobody_has_seen() {
        let silent = |counted, ready| Silent { counted, ready, lost: 0 };
        check_beside((0, 2, 0), silent(6, 4), "2/2>-", &[2]);
        check_beside((0, 2, 0), silent(6, 5), "2/2>-", &[1]);
        check_beside((0, 2, 0), silent(6, 6), "2/2>-", &[0]);
        // What is not ready is nobody's loss.
        check_beside((0, 2, 0), silent(6, 4), "2/0>-", &[0]);
        // One that answers stands in for it.
        check_beside((4, 2, 0), silent(2, 2), "2/2>- 2/2>4", &[2, 4]);
        check_beside((4, 2, 0), silent(2, 2), "2/2>- 4/4>4", &[0, 4]);
        check_beside((4, 2, 0), silent(2, 1), "2/2>- 4/4>4", &[1, 4]);
        // The drain was called off: nothing leaves either, until as many were seen ready.
        check_beside((0, 2, 0), silent(6, 4), "2/2>0", &[2]);
        check_beside((1, 2, 0), silent(2, 0), "3/3>1", &[3]);
        check_beside((1, 2, 0), silent(2, 2), "3/3>1", &[1]);
        check((6, 2, 0), "2/2>- 2/2>3 2/2>3", &[2, 3, 3]);
        check((6, 2, 0), "2/2>- 3/3>3 3/3>3", &[0, 3, 3]);
    }
}
