//! What this edge says of itself at the hub: its `Edge` object's status, whole or only that it is alive.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use landfall_api::landfall::{EdgeStatus, Load, RoundTrip, ServiceLoad, Vote, VoteGroup};
use landfall_health::Opinion;
use landfall_plan::quorum::target_group;
use serde_json::{Value, json};

use super::vips::VipsTold;

/// So many votes are told one by one, with all that is known of each: first those that say down. Where there are more, the others are
/// told in groups.
const VOTES_WHOLE_MAX: usize = 1_000;
/// The groups take so many bytes at most: a store takes objects of a megabyte and a half.
const GROUPS_BYTES_MAX: usize = 1_000_000;
/// What a target takes in a group besides its name, and a group besides its targets.
const TARGET_BYTES: usize = 3;
const GROUP_BYTES: usize = 100;
/// So many problems are told of at most.
const PROBLEMS_MAX: usize = 10;
/// So many loads are told of at most: it is told every second. Where there are more, those come first of which the hub knows least well,
/// and so many are kept for the others, one after the other.
const LOADS_MAX: usize = 1_000;
const LOADS_IN_TURN: usize = 100;

/// What is told.
pub(crate) struct Report<'a> {
    /// What this edge thinks of its targets.
    pub(crate) opinions: &'a BTreeMap<String, Opinion>,
    /// How far other members are, in milliseconds.
    pub(crate) round_trips: &'a BTreeMap<String, f64>,
    /// Since when this edge runs, in milliseconds since 1970.
    pub(crate) began_ms: i64,
    /// Whether it follows plans.
    pub(crate) follows: bool,
    /// What it cannot carry as it is wanted.
    pub(crate) problems: &'a [String],
    /// How it stands to its group's virtual IPs, if it has to do with any.
    pub(crate) vips: Option<VipsTold>,
}

/// A merge patch that says only that the edge is alive.
pub(crate) fn alive(now_ms: i64) -> Value {
    json!({"status": {"heartbeatTime": micro_time(now_ms)}})
}

/// What the hub was told of loads.
#[derive(Debug, Default)]
pub(crate) struct LoadsTold {
    /// The rates of services, while not all of them find room.
    rates: BTreeMap<String, f64>,
    /// The last service that had its turn.
    last: String,
}

/// Adds what the edge carries: by service, and all together.
pub(crate) fn carrying(mut told: Value, services: Vec<ServiceLoad>, before: &mut LoadsTold) -> Value {
    let sum = |of: fn(&Load) -> Option<f64>| services.iter().filter_map(|one| of(&one.load)).sum::<f64>();
    // Beside what else may be told of the load.
    told["status"]["load"]["requestsPerSecond"] = json!(rounded(sum(|load| load.requests_per_second)));
    told["status"]["load"]["concurrency"] = json!(rounded(sum(|load| load.concurrency)));
    let (services, untold) = before.choose(services);
    told["status"]["services"] = json!(services);
    // A merge patch takes away what is null.
    told["status"]["servicesUntold"] = json!((untold > 0).then_some(untold));
    told
}

impl LoadsTold {
    /// What is told this time, each service as a whole, and how many are left out.
    fn choose(&mut self, mut loads: Vec<ServiceLoad>) -> (Vec<ServiceLoad>, usize) {
        for one in &mut loads {
            let load = &mut one.load;
            let all = [&mut load.requests_per_second, &mut load.errors_per_second, &mut load.concurrency];
            all.into_iter().chain([&mut load.latency_ms]).for_each(|number| *number = number.map(rounded));
        }
        if loads.len() <= LOADS_MAX {
            *self = Self::default();
            return (loads, 0);
        }
        let mut services: BTreeMap<String, (f64, Vec<ServiceLoad>)> = BTreeMap::new();
        for one in loads {
            let (rate, loads) = services.entry(one.service.clone()).or_default();
            *rate += one.load.requests_per_second.unwrap_or(0.0);
            loads.push(one);
        }
        self.rates.retain(|service, _| services.contains_key(service));
        let news = |(service, (rate, _)): &(&String, &(f64, Vec<ServiceLoad>))| {
            (*rate - self.rates.get(*service).unwrap_or(&0.0)).abs()
        };
        let mut by_news: Vec<_> = services.iter().collect();
        by_news.sort_by(|a, b| news(b).total_cmp(&news(a)));
        let mut chosen: BTreeSet<String> = BTreeSet::new();
        let mut count = 0;
        let mut takes = |service: &String, loads: usize, most: usize| {
            let fits = count + loads <= most && !chosen.contains(service);
            if fits {
                count += loads;
                chosen.insert(service.clone());
            }
            fits
        };
        for (service, (_, loads)) in by_news {
            if !takes(service, loads.len(), LOADS_MAX - LOADS_IN_TURN) {
                break;
            }
        }
        let after = services.range::<String, _>((Bound::Excluded(&self.last), Bound::Unbounded));
        let mut last = self.last.clone();
        for (service, (_, loads)) in after.chain(services.range::<String, _>(..=&self.last)) {
            if takes(service, loads.len(), LOADS_MAX) {
                last.clone_from(service);
            }
        }
        self.last = last;
        let untold = services.len() - chosen.len();
        let mut told = Vec::with_capacity(LOADS_MAX);
        for (service, (rate, mut loads)) in services {
            if chosen.contains(&service) {
                self.rates.insert(service, rate);
                told.append(&mut loads);
            }
        }
        (told, untold)
    }
}

/// Adds what the edge uses of its machine. What it carries is told more often, and stays as it is.
pub(crate) fn using(mut told: Value, load: &Load, capacity: &BTreeMap<String, Quantity>) -> Value {
    told["status"]["load"] = json!(load);
    told["status"]["capacity"] = json!(capacity);
    told
}

/// A merge patch that says everything.
pub(crate) fn everything(report: &Report<'_>, now_ms: i64) -> Value {
    let Votes { whole, groups, untold } = votes(report.opinions);
    let round_trips: Vec<RoundTrip> = report
        .round_trips
        .iter()
        .map(|(cluster, ms)| RoundTrip { cluster: cluster.clone(), milliseconds: rounded(*ms) })
        .collect();
    let (status, reason, message) = match report.follows {
        true => ("True", "Serving", "it follows the hub's plans"),
        false => ("False", "NoPlans", "it has seen no plan of the federation yet"),
    };
    let ready = Condition {
        type_: "Ready".into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: time(report.began_ms),
        observed_generation: None,
    };
    let carries = match report.problems {
        [] => condition(&ready, "Carrying", "True", "AllIsWell", "what routes want is carried".into()),
        problems => {
            let message = problems.iter().take(PROBLEMS_MAX).cloned().collect::<Vec<_>>().join("; ");
            condition(&ready, "Carrying", "False", "Problems", message)
        }
    };
    let voting = voting(&ready, untold);
    let mut conditions = vec![ready, carries, voting];
    let (mut vips, mut group_revision) = (Vec::new(), None);
    if let Some(told) = &report.vips {
        vips.clone_from(&told.vips);
        group_revision = told.revision;
        conditions.push(told.condition.clone());
    }
    let status = EdgeStatus {
        version: Some(env!("CARGO_PKG_VERSION").into()),
        heartbeat_time: Some(micro_time(now_ms)),
        votes: whole,
        vote_groups: groups,
        round_trips,
        vips,
        group_revision,
        conditions,
        ..EdgeStatus::default()
    };
    let mut status = serde_json::to_value(status).unwrap_or_default();
    // A merge patch leaves alone what it does not name: what is empty now may not have been.
    for list in ["votes", "voteGroups", "roundTrips", "vips"] {
        if status.get(list).is_none() {
            status[list] = json!([]);
        }
    }
    if group_revision.is_none() {
        status["groupRevision"] = Value::Null;
    }
    json!({"status": status})
}

/// Whether all votes are told.
fn voting(like: &Condition, untold: usize) -> Condition {
    if untold == 0 {
        return condition(like, "Voting", "True", "AllIsTold", "every target it probes has its vote".into());
    }
    let message = format!("{untold} votes find no room: more edges would share the targets");
    condition(like, "Voting", "False", "TooManyTargets", message)
}

/// Another condition of the same time.
fn condition(like: &Condition, type_: &str, status: &str, reason: &str, message: String) -> Condition {
    let (type_, status, reason) = (type_.into(), status.into(), reason.into());
    Condition { type_, status, reason, message, ..like.clone() }
}

/// Votes as they are told.
#[derive(Default)]
struct Votes {
    whole: Vec<Vote>,
    groups: Vec<VoteGroup>,
    /// So many are not.
    untold: usize,
}

/// Tells votes one by one as long as there are few, and then, of those that say down, as many as may be.
fn votes(opinions: &BTreeMap<String, Opinion>) -> Votes {
    let mut told = Votes::default();
    // Who never saw a group's address answer says nothing of it: it may be on none of its networks.
    let knows = |target: &str, opinion: &Opinion| opinion.seen_up || target_group(target).is_none();
    let sure = opinions.iter().filter(|(target, one)| one.up.is_some() && knows(target, one));
    let few = sure.clone().count() <= VOTES_WHOLE_MAX;
    let mut grouped: BTreeMap<(&str, bool, i64), Vec<String>> = BTreeMap::new();
    let mut bytes = 0;
    for (target, opinion) in sure {
        let up = opinion.up == Some(true);
        let split = target.split_once('/');
        let (false, Some((cluster, rest))) = (few || (!up && told.whole.len() < VOTES_WHOLE_MAX), split)
        else {
            told.whole.extend(vote((target, opinion)));
            continue;
        };
        let group = grouped.entry((cluster, up, opinion.since_ms.div_euclid(1_000)));
        let new = if matches!(group, Entry::Vacant(_)) { GROUP_BYTES + cluster.len() } else { 0 };
        let takes = new + TARGET_BYTES + rest.len();
        if bytes + takes > GROUPS_BYTES_MAX {
            told.untold += 1;
            continue;
        }
        bytes += takes;
        group.or_default().push(rest.to_owned());
    }
    let group = |((cluster, up, since_s), targets): ((&str, bool, i64), Vec<String>)| VoteGroup {
        cluster: cluster.to_owned(),
        up,
        since: Some(time(since_s.saturating_mul(1_000))),
        targets,
    };
    told.groups = grouped.into_iter().map(group).collect();
    told
}

fn vote((target, opinion): (&String, &Opinion)) -> Option<Vote> {
    Some(Vote {
        target: target.clone(),
        up: opinion.up?,
        since: Some(time(opinion.since_ms)),
        reason: opinion.reason.clone(),
        latency_ms: Some(rounded(opinion.latency_ms)),
    })
}

/// No more digits than are known.
fn rounded(ms: f64) -> f64 {
    (ms * 100.0).round() / 100.0
}

pub(super) fn time(ms: i64) -> Time {
    Time(Timestamp::from_second(ms.div_euclid(1_000)).unwrap_or_default())
}

pub(super) fn micro_time(ms: i64) -> MicroTime {
    MicroTime(Timestamp::from_millisecond(ms).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use landfall_health::{Check, Outcome};

    use super::*;

    #[test]
    fn everything_is_told_also_that_there_is_nothing() {
        let nothing = Report {
            opinions: &BTreeMap::new(),
            round_trips: &BTreeMap::new(),
            began_ms: 1_000,
            follows: false,
            problems: &[],
            vips: None,
        };
        let told = everything(&nothing, 1_234);
        assert_eq!(told["status"]["votes"], json!([]));
        assert_eq!(told["status"]["heartbeatTime"], "1970-01-01T00:00:01.234000Z");
        assert_eq!(told["status"]["conditions"][0]["status"], "False");
        let check = Check { down_threshold: 1, ..Check::default() };
        let opinion = Opinion::default().step(&Outcome::down("refused", 1.2345), &check, 5_000);
        let opinions =
            [("a/default/web:80".to_owned(), opinion), ("unsure".to_owned(), Opinion::default())].into();
        let round_trips = [("b".to_owned(), 12.3456)].into();
        let told = everything(&Report { opinions: &opinions, round_trips: &round_trips, ..nothing }, 0);
        assert_eq!(
            told["status"]["votes"],
            json!([{"target": "a/default/web:80", "up": false, "since": "1970-01-01T00:00:05Z", "reason": "refused",
                "latencyMs": 1.23}])
        );
        assert_eq!(told["status"]["roundTrips"], json!([{"cluster": "b", "milliseconds": 12.35}]));
    }

    fn load(service: usize, cluster: &str, rate: f64) -> ServiceLoad {
        ServiceLoad {
            service: format!("shop/{service:04}"),
            cluster: cluster.to_owned(),
            load: Load { requests_per_second: Some(rate), concurrency: Some(1.0 / 3.0), ..Load::default() },
        }
    }

    #[test]
    fn loads_are_told_whole_where_there_is_room() {
        let loads = vec![load(0, "a", 0.0), load(1, "a", 1.0 / 3.0), load(1, "b", 2.0)];
        let told = carrying(alive(0), loads, &mut LoadsTold::default());
        assert_eq!(
            told["status"]["services"][1],
            json!({"service": "shop/0001", "cluster": "a", "load": {"requestsPerSecond": 0.33, "concurrency": 0.33}})
        );
        assert_eq!(told["status"]["services"].as_array().unwrap().len(), 3);
        assert_eq!(told["status"]["servicesUntold"], Value::Null);
        assert_eq!(told["status"]["load"]["requestsPerSecond"], 2.33);
    }

    /// Where there is not, what has changed comes first, and each has its turn.
    #[test]
    fn of_many_loads_none_is_never_told() {
        let mut before = LoadsTold::default();
        let mut rates: Vec<f64> = (0..1_400).map(f64::from).collect();
        let mut tell = |rates: &[f64]| -> EdgeStatus {
            let loads =
                rates.iter().enumerate().flat_map(|(at, rate)| [load(at, "a", *rate), load(at, "b", 0.0)]);
            let told = carrying(alive(0), loads.collect(), &mut before);
            assert!(told.to_string().len() < 150_000, "{}", told.to_string().len());
            serde_json::from_value(told["status"].clone()).unwrap()
        };
        let named = |status: &EdgeStatus| {
            let whole = status.services.chunks(2).map(|pair| {
                assert_eq!((&pair[0].service, pair[0].cluster.as_str()), (&pair[1].service, "a"));
                (pair[0].service.clone(), pair[0].load.requests_per_second.unwrap())
            });
            whole.collect::<BTreeMap<_, _>>()
        };
        let first = tell(&rates);
        assert_eq!((first.services.len(), first.services_untold), (LOADS_MAX, Some(900)));
        let busiest = named(&first);
        assert!((950..1_400).all(|at| busiest.contains_key(&format!("shop/{at:04}"))));
        // One after the other, though nothing changes.
        let mut heard = busiest;
        for _ in 0..(1_400 * 2 / LOADS_IN_TURN) {
            heard.extend(named(&tell(&rates)));
        }
        assert_eq!(heard.len(), 1_400);
        // Whoever falls silent is told of at once.
        rates[1_399] = 0.0;
        assert_eq!(named(&tell(&rates)).get("shop/1399"), Some(&0.0));
    }

    /// Ten thousand services in three clusters, and six edges of which five vote: all of it fits into one object.
    #[test]
    fn many_votes_are_told_in_few_words() {
        let check = Check { down_threshold: 1, up_threshold: 1, ..Check::default() };
        let opinion = |at: usize| {
            let down = at.is_multiple_of(10);
            let outcome = if down { Outcome::down("192.0.2.1:80: refused", 1.0) } else { Outcome::up(1.0) };
            let seconds = i64::try_from(at % 30).unwrap();
            Opinion::default().step(&outcome, &check, 1_700_000_000_000 + seconds * 1_000)
        };
        let of = |count: usize| -> BTreeMap<String, Opinion> {
            let name = |at: usize| {
                let cluster = ["asia-east", "eu-west", "us-east"][at % 3];
                format!("{cluster}/namespace-{:03}/service-{at:05}:8080", at % 200)
            };
            (0..count).map(|at| (name(at), opinion(at))).collect()
        };
        let tell = |opinions: &BTreeMap<String, Opinion>| {
            let round_trips = BTreeMap::new();
            let report = Report {
                opinions,
                round_trips: &round_trips,
                began_ms: 0,
                follows: true,
                problems: &[],
                vips: None,
            };
            everything(&report, 0)["status"].clone()
        };
        let opinions = of(25_000);
        let told = tell(&opinions);
        assert!(told.to_string().len() < 1_300_000, "{}", told.to_string().len());
        assert_eq!(told["conditions"][2]["status"], "True");
        let status: EdgeStatus = serde_json::from_value(told).unwrap();
        assert_eq!(status.votes.len(), VOTES_WHOLE_MAX);
        assert!(status.votes.iter().all(|vote| !vote.up && !vote.reason.is_empty()));
        let mut votes = status.all_votes();
        votes.sort_by(|a, b| a.target.cmp(&b.target));
        let heard: Vec<_> = votes.iter().map(|v| (v.target.as_str(), v.up, v.since.clone())).collect();
        let meant: Vec<_> =
            opinions.iter().map(|(name, o)| (name.as_str(), o.up.unwrap(), Some(time(o.since_ms)))).collect();
        assert_eq!(heard, meant);
        // Few are told one by one; too many are told of as far as there is room, and that there is not.
        let few: EdgeStatus = serde_json::from_value(tell(&of(VOTES_WHOLE_MAX))).unwrap();
        assert_eq!((few.votes.len(), few.vote_groups.len()), (VOTES_WHOLE_MAX, 0));
        let most = tell(&of(60_000));
        assert!(most.to_string().len() < 1_500_000);
        assert_eq!(most["conditions"][2]["reason"], "TooManyTargets");
    }
}
