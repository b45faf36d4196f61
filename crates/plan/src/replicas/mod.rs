//! Replicas: how many of them each cluster runs, and the next safe step towards that.
//!
//! ```text
//!   observations ─► who counts (offline, cordoned, draining, room) ─► divide ─► goals ─► step ─► what to write now
//! ```
//!
//! What Federation v1 got wrong and this does not: pods that are pending or crash-looping are no room and hold no
//! place; a rolling update moves nothing, because what a shard asks for counts and not what happens to be ready; a new
//! cluster gets its share; a cluster that is offline for a moment keeps its replicas; one that returns gets back
//! what it had, and those that stood in for it shrink; one that does not take its shard keeps what it has, and the others
//! run the rest until it does.
//!
//! The goal is written to the shard ([`GOAL_ANNOTATION`]) and read back as [`Observation::goal`]: a step that is
//! bounded by the surge is continued by whoever looks next.

mod divide;
mod jobs;
mod kinds;
mod policy;
mod preferences;
mod reasons;
mod step;

use crate::reason::Reason;

pub use divide::{Slot, divide, order};
pub use jobs::{JobShard, completions};
pub use kinds::{SCALABLES, Scalable};
pub use policy::{ANNOTATION as POLICY_ANNOTATION, OnLoss, Policy, PolicyError};
pub use preferences::{ClusterPreferences, EVERY, NUMBER_MAX, Preferences, PreferencesError};

use step::{Bounds, Silent, Way};

/// The annotation of a shard that says how many replicas it shall have in the end, as [`Share::noted`] has it.
pub const GOAL_ANNOTATION: &str = "landfall.dev/replicas-goal";

/// How long what a cluster showed to have room for is held for true. Once its replicas that cannot run are given up, nothing
/// there shows it any more; and those who run them instead are written to one after another.
const SHOWED_MS: i64 = 60_000;

/// What is wanted, and what is seen.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `namespace/name` of the federated object: ties are broken by it.
    pub key: &'a str,
    /// How many replicas are asked for.
    pub replicas: u32,
    /// How they are wished to be divided.
    pub preferences: &'a Preferences,
    /// How they are treated.
    pub policy: &'a Policy,
    /// An autoscaler in each cluster rules the number there.
    pub autoscaled: bool,
    /// The clusters that placement chose, each once.
    pub clusters: &'a [Observation],
    /// The present.
    pub now_ms: i64,
}

/// What is seen of one cluster and its shard. For a cluster that is offline: what was last seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The cluster's name.
    pub cluster: String,
    /// What its shard asks for; none when there is no shard yet.
    pub spec: Option<u32>,
    /// What its shard shall ask for in the end, as [`GOAL_ANNOTATION`] says.
    pub goal: Option<u32>,
    /// How many are ready.
    pub ready: u32,
    /// Since when fewer are ready than asked for.
    pub unready_since_ms: Option<i64>,
    /// How many are of the newest template, for kinds that roll out.
    pub updated: Option<u32>,
    /// Since when each pod that the scheduler finds no node for waits.
    pub unschedulable_since_ms: Vec<i64>,
    /// How many crash again and again.
    pub crash_looping: u32,
    /// Since when its API does not answer.
    pub offline_since_ms: Option<i64>,
    /// Since when it does not take its shard: admission, quota, or an error refuses it.
    pub refuses_since_ms: Option<i64>,
    /// No more replicas here.
    pub cordoned: bool,
    /// Replicas leave: a drain, or a taint that is not tolerated.
    pub draining: bool,
    /// How many have room here in all, where that is known.
    pub capacity: Option<u32>,
    /// How many it showed to have room for, as [`Share::shows`] said, and when.
    pub showed: Option<(u32, i64)>,
}

/// How many each cluster runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One per cluster, in the order they were given.
    pub shares: Vec<Share>,
    /// How many are to run in all: more than asked for when overprovisioned.
    pub wanted: u32,
    /// How many found no place; they wait as overflow where there is some.
    pub unplaced: u32,
    /// When a decision may change although nothing else does.
    pub look_again_ms: Option<i64>,
}

/// One cluster's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The cluster's name.
    pub cluster: String,
    /// What its shard shall ask for now; none: leave what is there.
    pub replicas: Option<u32>,
    /// What it shall ask for in the end.
    pub goal: u32,
    /// What is noted of that at the shard. A drain is not: when it is called off, nothing goes on leaving.
    pub noted: u32,
    /// How many of these have no room and wait for it.
    pub overflow: u32,
    /// How many it shows to have room for now; whoever looks next gives it back as [`Observation::showed`].
    pub shows: Option<u32>,
    /// Why.
    pub reason: Reason,
}

/// What part a cluster has in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is written to.
    Live,
    /// It is offline, but counts with what it has.
    Held { until_ms: Option<i64> },
    /// It is offline and the others stand in for it.
    Lost,
    /// It is written to, but takes nothing: it counts with what it has.
    Refusing,
}

/// One cluster, judged.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    /// Where it stood in the request.
    at: usize,
    seen: &'a Observation,
    wished: Option<ClusterPreferences>,
    is: Standing,
    /// How many of its replicas wait for room, or crash again and again.
    stuck: u32,
    /// How many it showed to have room for a while ago.
    showed: Option<u32>,
}

/// Plans the replicas of one federated object.
pub fn plan(request: &Request<'_>) -> Plan {
    let wanted = wanted(request);
    let rows = rows(request);
    let mut slots: Vec<Slot> = rows.iter().map(slot).collect();
    let mut held = hold(request, wanted, &rows, &mut slots);
    let live_wanted = wanted.saturating_sub(held.sum);
    let unplaced = divide(live_wanted, request.preferences.rebalance, &mut slots);
    if rows.iter().any(|row| row.is == Standing::Lost) {
        // They would have had a place there.
        held.silent.counted = held.silent.counted.saturating_add(unplaced);
        held.silent.lost = unplaced;
    }
    if request.preferences.rebalance {
        probe(unplaced, &mut slots);
    }
    let mut ways = ways(request, live_wanted, &rows, &slots, held.silent);
    ask_again(request, live_wanted, &rows, &held.fair, &mut ways);
    let weights = slots.iter().filter(|slot| slot.max != Some(0)).map(|slot| u64::from(slot.weight)).sum();
    let mut cases: Vec<(usize, reasons::Case<'_>)> = Vec::with_capacity(rows.len());
    let mut look_again_ms = None;
    for ((row, slot), way) in rows.iter().zip(&slots).zip(&ways) {
        cases.push((row.at, reasons::Case { row, slot, way, wanted, weights }));
        look_again_ms = crate::earlier(look_again_ms, look_again(request, row, way));
    }
    cases.sort_unstable_by_key(|(at, _)| *at);
    let shares = cases.iter().map(|(_, case)| share(request, case)).collect();
    Plan { shares, wanted, unplaced, look_again_ms }
}

/// The clusters in the order they are served.
fn rows<'a>(request: &Request<'a>) -> Vec<Row<'a>> {
    let wished: Vec<_> = request.clusters.iter().map(|seen| request.preferences.of(&seen.cluster)).collect();
    let weight = |wished: &Option<ClusterPreferences>| wished.map_or(0, |wished| wished.weight);
    let names = request.clusters.iter().map(|seen| seen.cluster.as_str());
    let proven = request.clusters.iter().any(proves);
    let row = |at: usize| {
        let seen = request.clusters.get(at)?;
        let is = standing(request, seen);
        let wished = wished.get(at).copied().flatten();
        Some(Row { at, seen, wished, is, stuck: stuck(request, seen, proven), showed: showed(request, seen) })
    };
    order(request.key, names.zip(wished.iter().map(weight))).into_iter().filter_map(row).collect()
}

/// How many are to run in all.
fn wanted(request: &Request<'_>) -> u32 {
    match request.policy.on_loss {
        OnLoss::Overprovision { percent } => {
            let many = (u64::from(request.replicas) * u64::from(percent.max(100))).div_ceil(100);
            u32::try_from(many).unwrap_or(NUMBER_MAX).min(NUMBER_MAX)
        }
        OnLoss::Autoscale | OnLoss::Migrate { .. } => request.replicas.min(NUMBER_MAX),
    }
}

fn standing(request: &Request<'_>, seen: &Observation) -> Standing {
    let Some(since_ms) = seen.offline_since_ms else {
        let waited =
            |since_ms: i64| since_ms.saturating_add(request.policy.unschedulable_ms) <= request.now_ms;
        let refuses = seen.refuses_since_ms.is_some_and(waited) && !autoscaled(request, seen);
        return if refuses { Standing::Refusing } else { Standing::Live };
    };
    match request.policy.on_loss {
        OnLoss::Overprovision { .. } | OnLoss::Autoscale => Standing::Held { until_ms: None },
        OnLoss::Migrate { hold_down_ms } => {
            let until_ms = since_ms.saturating_add(hold_down_ms);
            if request.now_ms < until_ms {
                Standing::Held { until_ms: Some(until_ms) }
            } else {
                Standing::Lost
            }
        }
    }
}

/// What a cluster brings into the division.
fn slot(row: &Row<'_>) -> Slot {
    let wished = row.wished.unwrap_or_default();
    let current = row.seen.goal.filter(|_| row.seen.spec.is_some()).or(row.seen.spec);
    let mut max = wished.max_replicas;
    if row.seen.cordoned {
        max = Some(max.unwrap_or(u32::MAX).min(current.unwrap_or(0)));
    }
    if row.seen.draining || row.is == Standing::Lost || row.wished.is_none() {
        max = Some(0);
    }
    let min = wished.min_replicas.min(max.unwrap_or(u32::MAX));
    Slot { weight: wished.weight, min, max, capacity: room(row), current, ..Slot::default() }
}

/// How many have room in a cluster, where that is known: what it is estimated to hold, and no more than what it
/// shows to hold, or showed a while ago.
fn room(row: &Row<'_>) -> Option<u32> {
    match (row.seen.capacity, shows(row).or(row.showed)) {
        (Some(estimate), Some(shown)) => Some(estimate.min(shown)),
        (one, None) | (None, one) => one,
    }
}

/// How many a cluster shows to hold, when some do not run. While a rollout is under way nothing is judged: a bad template is
/// bad in every cluster.
fn shows(row: &Row<'_>) -> Option<u32> {
    let spec = row.seen.spec.unwrap_or(0);
    let lacking = if rolling(row.seen) { 0 } else { row.stuck.min(spec.saturating_sub(row.seen.ready)) };
    (lacking > 0).then(|| spec - lacking)
}

/// How many it showed to hold, while that still counts.
fn showed(request: &Request<'_>, seen: &Observation) -> Option<u32> {
    let (room, at_ms) = seen.showed?;
    (request.now_ms < at_ms.saturating_add(SHOWED_MS)).then_some(room)
}

/// Whether a rollout is under way.
fn rolling(seen: &Observation) -> bool {
    seen.updated.is_some_and(|updated| updated < seen.spec.unwrap_or(0))
}

/// Whether a cluster proves that the program can run at all. If none does, crashes are the program's fault and not
/// a cluster's, and moving it would only pile it up where it has not crashed yet (kubernetes#39856).
fn proves(seen: &Observation) -> bool {
    seen.offline_since_ms.is_none() && seen.ready > 0 && seen.crash_looping == 0
}

/// How many have been without a node for too long, or crash where others do not.
fn stuck(request: &Request<'_>, seen: &Observation, proven: bool) -> u32 {
    let late = |since_ms: &&i64| since_ms.saturating_add(request.policy.unschedulable_ms) <= request.now_ms;
    let pending = seen.unschedulable_since_ms.iter().filter(late).count();
    let crashing = if proven { seen.crash_looping } else { 0 };
    crashing.saturating_add(u32::try_from(pending).unwrap_or(u32::MAX))
}

/// What is set aside before the rest is divided.
#[derive(Debug, Default)]
struct Held {
    /// All of it.
    sum: u32,
    /// What each cluster would have if all answered and took what they are given; empty when all do.
    fair: Vec<u32>,
    /// The part of it that is in clusters that do not answer.
    silent: Silent,
}

/// Sets aside what clusters that are offline for a moment keep: what they would keep if they answered, so that an
/// outage alone moves nothing, and when less is asked for, not all of it is in clusters that cannot be told. Those that
/// do not take their shard keep what they have, and no more.
fn hold(request: &Request<'_>, wanted: u32, rows: &[Row<'_>], slots: &mut [Slot]) -> Held {
    let keeps = |row: &Row<'_>, slot: &Slot, fair: u32| match row.is {
        Standing::Held { .. } => slot.current.unwrap_or(0).min(fair),
        // All of it is there, and it does not take a smaller number either.
        Standing::Refusing => row.seen.spec.unwrap_or(0),
        Standing::Live | Standing::Lost => 0,
    };
    let apart = |row: &Row<'_>| matches!(row.is, Standing::Held { .. } | Standing::Refusing);
    if !rows.iter().any(apart) {
        return Held::default();
    }
    let (mut answering, mut even) = (slots.to_vec(), slots.to_vec());
    divide(wanted, request.preferences.rebalance, &mut answering);
    // What others have taken over from one that refuses is its own all the same.
    divide(wanted, true, &mut even);
    let mut held = Held::default();
    for (((row, slot), answering), even) in rows.iter().zip(slots).zip(answering).zip(even) {
        let mut fair = answering.planned.saturating_add(answering.overflow);
        if row.is == Standing::Refusing {
            fair = fair.max(even.planned);
        }
        held.fair.push(fair);
        if apart(row) {
            let kept = keeps(row, slot, fair);
            held.sum = held.sum.saturating_add(kept);
            if row.is != Standing::Refusing {
                held.silent.counted = held.silent.counted.saturating_add(kept);
                held.silent.ready = held.silent.ready.saturating_add(row.seen.ready.min(kept));
            }
            *slot = Slot { current: slot.current, max: Some(0), ..Slot::default() };
        }
    }
    held
}

/// A cluster that does not take its shard is asked for its share all the same, as far as the surge allows: when it takes it,
/// those that stood in for it shrink, and at no moment are there too many.
fn ask_again(request: &Request<'_>, wanted: u32, rows: &[Row<'_>], fair: &[u32], ways: &mut [Way]) {
    if !rows.iter().any(|row| row.is == Standing::Refusing) {
        return;
    }
    let sum = |of: fn(&Way) -> u32| ways.iter().map(|way| u64::from(of(way))).sum::<u64>();
    let exist = sum(|way| way.now).max(sum(|way| way.next)).max(sum(|way| way.goal));
    let surge = u64::from(percent_of(wanted, request.policy.surge_percent, u64::div_ceil));
    let mut room = (u64::from(wanted) + surge).saturating_sub(exist);
    for ((row, fair), way) in
        rows.iter().zip(fair).zip(ways).filter(|((row, _), _)| row.is == Standing::Refusing)
    {
        let has = row.seen.spec.unwrap_or(0);
        let more = u64::from(fair.saturating_sub(has)).min(room);
        room -= more;
        // `more` is at most fair - has, which is a u32.
        way.next = has.min(*fair) + u32::try_from(more).unwrap_or(0);
        (way.now, way.goal) = (has, *fair);
    }
}

fn percent_of(count: u32, percent: u32, divide: fn(u64, u64) -> u64) -> u32 {
    u32::try_from(divide(u64::from(count) * u64::from(percent), 100)).unwrap_or(u32::MAX)
}

/// A rebalancing plan leaves one replica waiting where there is no room: when it starts, there is room again.
/// Federation v1 left all of them waiting, and they could all start at once.
fn probe(mut unplaced: u32, slots: &mut [Slot]) {
    for slot in slots {
        slot.overflow = slot.overflow.min(unplaced.max(1));
        unplaced = unplaced.saturating_sub(slot.overflow);
    }
}

fn ways(request: &Request<'_>, wanted: u32, rows: &[Row<'_>], slots: &[Slot], silent: Silent) -> Vec<Way> {
    let way = |(row, slot): (&Row<'_>, &Slot)| {
        let patience_ms = request.policy.patience_ms;
        let late = |since_ms: i64| since_ms.saturating_add(patience_ms) <= request.now_ms;
        match row.is {
            Standing::Live => Way {
                now: row.seen.spec.unwrap_or(0),
                ready: row.seen.ready,
                goal: slot.planned.saturating_add(slot.overflow),
                overdue: row.seen.unready_since_ms.is_some_and(late) || row.stuck > 0,
                leaves: row.seen.draining,
                next: 0,
            },
            Standing::Held { .. } | Standing::Lost | Standing::Refusing => Way::default(),
        }
    };
    let mut ways: Vec<Way> = rows.iter().zip(slots).map(way).collect();
    let surge = percent_of(wanted, request.policy.surge_percent, u64::div_ceil);
    let unavailable = percent_of(wanted, request.policy.unavailable_percent, |all, by| all / by);
    // With neither, nothing could ever move.
    let unavailable = if request.policy.surge_percent == 0 { unavailable.max(1) } else { unavailable };
    step::step(Bounds { wanted, surge, unavailable, silent }, &mut ways);
    ways
}

fn share(request: &Request<'_>, case: &reasons::Case<'_>) -> Share {
    let seen = case.row.seen;
    let keeps = seen.goal.or(seen.spec).unwrap_or(0);
    let (replicas, goal) = match case.row.is {
        Standing::Live if autoscaled(request, seen) => (None, seen.spec.unwrap_or(0)),
        Standing::Live | Standing::Refusing => (Some(case.way.next), case.way.goal),
        Standing::Held { .. } => (None, keeps),
        Standing::Lost => (None, 0),
    };
    let noted = replicas.filter(|_| seen.draining).unwrap_or(goal);
    let overflow = if replicas.is_some() { case.slot.overflow } else { 0 };
    let shows = if case.row.is == Standing::Live { shows(case.row) } else { None };
    let (cluster, reason) = (seen.cluster.clone(), reasons::reason(request, case));
    Share { cluster, replicas, goal, noted, overflow, shows, reason }
}

/// Whether a cluster's number is its own autoscaler's. A drain is stronger.
fn autoscaled(request: &Request<'_>, seen: &Observation) -> bool {
    request.autoscaled && seen.spec.is_some() && !seen.draining
}

/// When the judgement of one cluster may change by itself.
fn look_again(request: &Request<'_>, row: &Row<'_>, way: &Way) -> Option<i64> {
    match row.is {
        Standing::Held { until_ms } => until_ms,
        // Whoever writes to it looks again when it is asked again.
        Standing::Lost | Standing::Refusing => None,
        Standing::Live => {
            let later = |since_ms: i64, wait_ms: i64| {
                Some(since_ms.saturating_add(wait_ms)).filter(|time| *time > request.now_ms)
            };
            let room = |since_ms: &i64| later(*since_ms, request.policy.unschedulable_ms);
            let waits = row.seen.unschedulable_since_ms.iter().map(room).fold(None, crate::earlier);
            let refused = row.seen.refuses_since_ms.and_then(|since_ms| room(&since_ms));
            let patience = row.seen.unready_since_ms.filter(|_| way.ready < way.goal);
            let patience = patience.and_then(|since_ms| later(since_ms, request.policy.patience_ms));
            let showed = row.seen.showed.and_then(|(_, at_ms)| later(at_ms, SHOWED_MS));
            [waits, refused, patience, showed].into_iter().fold(None, crate::earlier)
        }
    }
}
