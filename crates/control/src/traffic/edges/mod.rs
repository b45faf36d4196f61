//! The edges as this hub hears them: who is alive, what they say, what they carry, how far members are from them.

mod lost;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use landfall_api::landfall::{
    Address, Edge, EdgeSpec, EdgeStatus, Load, PlanEdge, RoundTrip, ServiceLoad, VipState,
};
use landfall_plan::proximity::RoundTrips;
use landfall_plan::quorum::{Ballots, Court, Roster, target_group};
use landfall_plan::traffic::unlike;
use parking_lot::Mutex;

/// An edge lapses so long after its heartbeat was last seen to change, by this hub's own clock.
const LAPSE: Duration = Duration::from_secs(4);
/// An edge that has lapsed for so long, and whose member answers, is gone for good: it is no longer counted among those of
/// whom more than half must be heard.
const RETIRE: Duration = Duration::from_secs(600);

/// An edge that does not tell of all services at once tells of each at least so often, or it carries nothing of that any more.
const UNTOLD_MAX: Duration = Duration::from_secs(600);

/// Endpoints are busier, or less busy, than before by more than so many percent of their capacity.
const USED_BAND: f64 = 5.0;

/// All edges.
#[derive(Debug, Default)]
pub(crate) struct Edges {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    known: BTreeMap<String, Known>,
    /// Only edges of members count.
    members: BTreeSet<String>,
    ballots: Ballots,
    told: Vec<PlanEdge>,
    roster: Roster,
    isolated: BTreeSet<String>,
    /// By service and edge.
    loads: HashMap<String, BTreeMap<String, Carried>>,
}

/// One edge.
#[derive(Debug)]
struct Known {
    uid: String,
    spec: EdgeSpec,
    heartbeat: Option<MicroTime>,
    heard: Instant,
    alive: bool,
    /// It belongs to a group, and has missed a heartbeat.
    silent: bool,
    retired: bool,
    trips: Vec<RoundTrip>,
    services: Vec<String>,
    /// What it says that matters to its group alone; not kept of edges of no group.
    status: EdgeStatus,
    /// When it was first heard to stand to virtual IPs as it does.
    said: Instant,
}

/// An edge of a group.
#[derive(Clone, Debug)]
pub(crate) struct Grouped {
    /// Its name.
    pub(crate) name: String,
    /// Its uid.
    pub(crate) uid: String,
    /// It has been silent for so long that it is gone for good.
    pub(crate) retired: bool,
    /// What it is.
    pub(crate) spec: EdgeSpec,
    /// It has spoken lately.
    pub(crate) alive: bool,
    /// Its load, what it has, and how it stands to virtual IPs.
    pub(crate) status: EdgeStatus,
    /// When it was first heard to stand to them so.
    pub(crate) said: Instant,
    /// When it last spoke.
    pub(crate) heard: Instant,
}

/// What an edge carries of one service.
#[derive(Debug, Default)]
struct Carried {
    /// Where it goes.
    to: Vec<(String, Load)>,
    /// Requests per second, all together, when that was last worth a look.
    told: f64,
    /// How much of their capacity endpoints used then, in percent, where they tell.
    told_used: f64,
    /// When it was last told of.
    heard: Option<Instant>,
}

/// What is different after an edge was heard.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Who is alive, or whose word does not count.
    pub roster: bool,
    /// Targets that votes changed on.
    pub targets: Vec<String>,
    /// Services, as `namespace/name`, whose load is clearly different.
    pub services: Vec<String>,
    /// A group has other edges, or one of them stands otherwise to a virtual IP.
    pub groups: bool,
}

/// What one service carries.
#[derive(Debug, Default)]
pub(super) struct Demand {
    /// What clients at each member's edges ask for, in requests per second.
    pub from: BTreeMap<String, f64>,
    /// What goes to each member.
    pub to: BTreeMap<String, Load>,
}

impl Edges {
    /// Says which members there are.
    pub(super) fn set_members(&self, members: BTreeSet<String>) -> bool {
        let mut inner = self.inner.lock();
        inner.members = members;
        inner.refresh()
    }

    /// Hears an edge, or that it is gone. Of one that is new, `was_alive` tells whether it was when somebody else listened;
    /// none when it has only just come.
    pub(super) fn hear(
        &self,
        name: &str,
        edge: Option<&Edge>,
        was_alive: Option<bool>,
        now: Instant,
    ) -> News {
        let mut inner = self.inner.lock();
        let Some(edge) = edge else {
            let targets = inner.ballots.set(name, &[]);
            let services = inner.carry(name, &[], false, now);
            let groups =
                inner.known.remove(name).is_some_and(|known| known.spec.ingress_replica_set.is_some());
            return News { roster: inner.refresh(), targets, services, groups };
        };
        let status = edge.status.clone().unwrap_or_default();
        let heartbeat = status.heartbeat_time.clone();
        let before = inner.known.get(name);
        let spoke = heartbeat.is_some() && before.is_none_or(|before| before.heartbeat != heartbeat);
        let (heard, alive) = match (before, spoke) {
            (None, spoke) => (now, spoke && was_alive.unwrap_or(true)),
            (Some(_), true) => (now, true),
            (Some(before), false) => (before.heard, before.alive && heartbeat.is_some()),
        };
        let retired = before.is_some_and(|before| before.retired) && !alive;
        let (was_silent, silent) = before.map_or((false, false), |one| (one.silent, one.silent && !spoke));
        let mut carried: Vec<String> = status.services.iter().map(|load| load.service.clone()).collect();
        let cut = status.services_untold.is_some_and(|untold| untold > 0);
        if cut {
            carried.extend(before.into_iter().flat_map(|before| before.services.iter().cloned()));
            carried.sort();
        }
        carried.dedup();
        let trips = status.round_trips.clone();
        let groups =
            before.and_then(|before| of_group(&before.spec, &before.status)) != of_group(&edge.spec, &status);
        let same = |before: &&Known| stands(&before.status) == stands(&status);
        let said = before.filter(same).map_or(now, |before| before.said);
        let mut known = Known {
            status: of_group_alone(&edge.spec, &status),
            said,
            uid: edge.metadata.uid.clone().unwrap_or_default(),
            spec: edge.spec.clone(),
            heartbeat,
            heard,
            alive,
            silent,
            retired,
            trips,
            services: carried,
        };
        let services = inner.carry(name, &status.services, cut, now);
        let of_edge =
            |service: &String| inner.loads.get(service).is_some_and(|edges| edges.contains_key(name));
        known.services.retain(of_edge);
        inner.known.insert(name.to_owned(), known);
        let targets = inner.ballots.set(name, &status.all_votes());
        let roster = inner.refresh();
        let isolation = !targets.is_empty() && !roster && inner.reconsider();
        let groups =
            groups || was_silent != silent || targets.iter().any(|target| target_group(target).is_some());
        News { roster: roster || isolation, targets, services, groups }
    }

    /// Lets edges lapse that have not spoken for too long; whether anyone did. `answers` tells whether a member's API does.
    pub(super) fn lapse(&self, now: Instant, answers: impl Fn(&str) -> bool) -> bool {
        let mut inner = self.inner.lock();
        let mut news = false;
        for known in inner.known.values_mut() {
            let silent = now.saturating_duration_since(known.heard);
            let lapsed = known.alive && silent > LAPSE;
            let retires = !known.alive && !known.retired && silent > RETIRE && answers(&known.spec.cluster);
            known.alive &= !lapsed;
            known.retired |= retires;
            news |= lapsed || retires;
        }
        news && inner.refresh()
    }

    /// The roster, as plans carry it.
    pub(super) fn roster(&self) -> Vec<PlanEdge> {
        self.inner.lock().told.clone()
    }

    /// Where clients reach the edges that belong to no group: also those that are silent now, so that the addresses stay.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.inner.lock().addresses(|_| true)
    }

    /// The edges that belong to groups, also those that are gone for good.
    pub(crate) fn grouped(&self) -> Vec<Grouped> {
        let inner = self.inner.lock();
        let counts = |known: &Known| {
            known.spec.ingress_replica_set.is_some() && inner.members.contains(&known.spec.cluster)
        };
        let all = inner.known.iter().filter(|(_, known)| counts(known));
        let one = |(name, known): (&String, &Known)| Grouped {
            name: name.clone(),
            uid: known.uid.clone(),
            retired: known.retired,
            spec: known.spec.clone(),
            alive: known.alive,
            status: known.status.clone(),
            said: known.said,
            heard: known.heard,
        };
        all.map(one).collect()
    }

    /// Where clients reach the edges of one member now: those that are alive, or all while nobody is.
    pub(crate) fn reached(&self, member: &str) -> Vec<Address> {
        let inner = self.inner.lock();
        let nobody = !inner.known.values().any(|known| known.alive && known.spec.carries);
        inner.addresses(|known| known.spec.cluster == member && (known.alive || nobody))
    }

    /// Which members other edges reach through a living edge there.
    pub(super) fn linked(&self) -> BTreeSet<String> {
        let inner = self.inner.lock();
        let linked =
            inner.told.iter().filter(|edge| edge.alive && edge.linked && edge.peer_address.is_some());
        linked.map(|edge| edge.cluster.clone()).collect()
    }

    /// The edges that carry requests and need a port, such as `80/TCP`, themselves.
    pub(crate) fn reserving(&self, port: &str) -> Vec<String> {
        let inner = self.inner.lock();
        let needs = |known: &Known| {
            let member = inner.members.contains(&known.spec.cluster);
            member && !known.retired && known.spec.reserved_ports.iter().any(|own| own == port)
        };
        inner.known.iter().filter(|(_, known)| needs(known)).map(|(name, _)| name.clone()).collect()
    }

    /// How many are alive.
    pub(super) fn alive(&self) -> usize {
        self.inner.lock().roster.alive().count()
    }

    /// What edges have measured.
    pub(super) fn trips(&self) -> RoundTrips {
        let inner = self.inner.lock();
        let alive = inner.known.values().filter(|known| known.alive);
        RoundTrips::measured(alive.map(|known| (known.spec.cluster.as_str(), known.trips.as_slice())))
    }

    /// Decides something by what edges say.
    pub(super) fn judge<T>(&self, decide: impl FnOnce(&Court<'_>) -> T) -> T {
        let inner = self.inner.lock();
        decide(&Court { roster: &inner.roster, ballots: &inner.ballots, isolated: &inner.isolated })
    }

    /// What a service carries, given as `namespace/name`.
    pub(super) fn demand(&self, service: &str) -> Demand {
        let inner = self.inner.lock();
        let mut demand = Demand::default();
        let mut used_by: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for (edge, carried) in inner.loads.get(service).into_iter().flatten() {
            let Some(known) = inner.known.get(edge).filter(|known| known.alive) else { continue };
            for (to, load) in &carried.to {
                *demand.from.entry(known.spec.cluster.clone()).or_default() += rate(load);
                let sum = demand.to.entry(to.clone()).or_default();
                let add = |a: Option<f64>, b: Option<f64>| a.map_or(b, |a| Some(a + b.unwrap_or(0.0)));
                sum.requests_per_second = add(sum.requests_per_second, load.requests_per_second);
                sum.concurrency = add(sum.concurrency, load.concurrency);
                if let Some(used) = load.utilization.filter(|used| used.is_finite()) {
                    let (parts, weight) = used_by.entry(to.clone()).or_insert((0.0, 0.0));
                    *parts += used * rate(load);
                    *weight += rate(load);
                }
            }
        }
        // What endpoints say of themselves counts by how many requests heard it.
        for (to, (parts, weight)) in used_by {
            let used = (weight > 0.0).then(|| parts / weight);
            demand.to.entry(to).or_default().utilization = used;
        }
        demand
    }
}

/// What of an edge matters to its group at once, if it has one.
fn of_group(spec: &EdgeSpec, status: &EdgeStatus) -> Option<impl PartialEq + use<>> {
    let group = spec.ingress_replica_set.clone()?;
    let EdgeSpec { cluster, node, link_addresses, http_port, .. } = spec.clone();
    Some((group, cluster, node, link_addresses, http_port, status.vips.clone(), status.group_revision))
}

/// What is kept of what an edge says because it matters to its group alone.
fn of_group_alone(spec: &EdgeSpec, status: &EdgeStatus) -> EdgeStatus {
    if spec.ingress_replica_set.is_none() {
        return EdgeStatus::default();
    }
    EdgeStatus {
        load: status.load.clone(),
        capacity: status.capacity.clone(),
        vips: status.vips.clone(),
        group_revision: status.group_revision,
        conditions: status.conditions.iter().filter(|one| one.type_ == "VirtualIP").cloned().collect(),
        ..EdgeStatus::default()
    }
}

/// How an edge stands to virtual IPs.
fn stands(status: &EdgeStatus) -> Vec<(&str, VipState)> {
    status.vips.iter().map(|vip| (vip.address.as_str(), vip.state)).collect()
}

impl Inner {
    /// Where clients reach edges that carry, of those that count.
    fn addresses(&self, counts: impl Fn(&Known) -> bool) -> Vec<Address> {
        let carries = |known: &&Known| {
            let spec = &known.spec;
            let free = spec.carries && spec.ingress_replica_set.is_none();
            free && !known.retired && self.members.contains(&spec.cluster) && counts(known)
        };
        let mut all: Vec<Address> = Vec::new();
        for address in self.known.values().filter(carries).flat_map(|known| &known.spec.addresses) {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        all
    }

    /// Makes the roster again; whether it is different.
    fn refresh(&mut self) -> bool {
        let counts = |known: &Known| !known.retired && self.members.contains(&known.spec.cluster);
        let told: Vec<PlanEdge> = self
            .known
            .iter()
            .filter(|(_, known)| counts(known))
            .map(|(name, known)| PlanEdge {
                name: name.clone(),
                uid: known.uid.clone(),
                cluster: known.spec.cluster.clone(),
                addresses: known.spec.addresses.clone(),
                peer_address: known.spec.peer_address.clone(),
                carries: known.spec.carries,
                linked: known.spec.linked,
                alive: known.alive,
            })
            .collect();
        if told == self.told {
            return false;
        }
        self.roster = Roster::new(&told);
        self.told = told;
        self.reconsider();
        true
    }

    /// Finds out again whose word does not count; whether that is different.
    fn reconsider(&mut self) -> bool {
        let isolated = self.ballots.isolated(&self.roster);
        let news = isolated != self.isolated;
        self.isolated = isolated;
        news
    }

    /// Takes over what an edge carries; gives the services for which that is clearly different. Where not all is told, those that are
    /// left out carry what they did.
    fn carry(&mut self, edge: &str, loads: &[ServiceLoad], cut: bool, heard: Instant) -> Vec<String> {
        let mut now: BTreeMap<&str, Vec<(String, Load)>> = BTreeMap::new();
        for load in loads {
            now.entry(&load.service).or_default().push((load.cluster.clone(), load.load.clone()));
        }
        let before = self.known.get(edge).map(|known| known.services.clone()).unwrap_or_default();
        let gone = before.iter().filter(|service| !now.contains_key(service.as_str()));
        let mut news: Vec<String> = Vec::new();
        for service in gone {
            let Some(edges) = self.loads.get_mut(service) else { continue };
            let lately = |then: Instant| heard.saturating_duration_since(then) < UNTOLD_MAX;
            if cut && edges.get(edge).and_then(|carried| carried.heard).is_some_and(lately) {
                continue;
            }
            if edges.remove(edge).is_some_and(|carried| unlike(carried.told, 0.0)) {
                news.push(service.clone());
            }
            if edges.is_empty() {
                self.loads.remove(service);
            }
        }
        for (service, to) in now {
            let carried =
                self.loads.entry(service.to_owned()).or_default().entry(edge.to_owned()).or_default();
            let total = to.iter().map(|(_, load)| rate(load)).sum();
            let used = to.iter().filter_map(|(_, load)| load.utilization).fold(0.0, f64::max) * 100.0;
            if unlike(carried.told, total) || (used - carried.told_used).abs() > USED_BAND {
                (carried.told, carried.told_used) = (total, used);
                news.push(service.to_owned());
            }
            (carried.to, carried.heard) = (to, Some(heard));
        }
        news
    }
}

fn rate(load: &Load) -> f64 {
    load.requests_per_second.filter(|rate| rate.is_finite()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    pub(super) fn edge(cluster: &str, beat: u32, up: bool, rate: f64) -> Edge {
        let object = json!({
            "apiVersion": "landfall.dev/v1alpha1", "kind": "Edge", "metadata": {"name": "e"},
            "spec": {"cluster": cluster},
            "status": {
                "heartbeatTime": format!("2026-01-01T00:00:{beat:02}.000000Z"),
                "votes": [{"target": "b/shop/web:80", "up": up}],
                "services": [{"service": "shop/web", "cluster": "b", "load": {"requestsPerSecond": rate}}],
            },
        });
        serde_json::from_value(object).expect("an edge")
    }

    fn alive(edges: &Edges) -> String {
        edges
            .roster()
            .iter()
            .map(|edge| format!("{}{}", edge.name, if edge.alive { "+" } else { "-" }))
            .collect()
    }

    #[test]
    fn an_edge_lives_as_long_as_its_heart_beats() {
        let edges = Edges::default();
        let begin = landfall_runtime::clock::instant();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        edges.set_members(["a".to_owned(), "b".to_owned()].into());
        assert!(edges.hear("x", Some(&edge("a", 1, true, 0.0)), None, at(0)).roster);
        // Somebody else saw it lapse; what it said last is old.
        assert!(edges.hear("y", Some(&edge("b", 1, true, 0.0)), Some(false), at(0)).roster);
        assert!(!edges.hear("z", Some(&edge("unknown", 1, true, 0.0)), None, at(0)).roster);
        assert_eq!(alive(&edges), "x+y-");
        // The same heartbeat again is no heartbeat.
        assert!(!edges.hear("x", Some(&edge("a", 1, true, 0.0)), None, at(4)).roster);
        assert!(!edges.lapse(at(4), |_| true));
        assert!(edges.lapse(at(5), |_| true));
        assert_eq!(alive(&edges), "x-y-");
        assert!(edges.hear("x", Some(&edge("a", 2, true, 0.0)), None, at(7)).roster);
        assert_eq!(alive(&edges), "x+y-");
        // One that is gone for good is not waited for, unless its member does not answer either.
        assert!(!edges.lapse(at(5), |_| true));
        assert!(edges.lapse(at(700), |cluster| cluster == "a"));
        assert_eq!(alive(&edges), "x-y-");
        assert!(edges.lapse(at(701), |cluster| cluster == "a"));
        assert_eq!(alive(&edges), "y-");
        assert!(edges.hear("x", Some(&edge("a", 3, true, 0.0)), None, at(702)).roster);
        assert_eq!(alive(&edges), "x+y-");
        assert!(edges.hear("x", None, None, at(703)).roster);
        assert_eq!(alive(&edges), "y-");
    }

    #[test]
    fn what_changed_is_told_and_nothing_else() {
        let edges = Edges::default();
        let now = landfall_runtime::clock::instant();
        edges.set_members(["a".to_owned()].into());
        let first = edges.hear("x", Some(&edge("a", 1, true, 100.0)), None, now);
        assert_eq!((first.targets.len(), first.services.as_slice()), (1, &["shop/web".to_owned()][..]));
        assert_eq!(edges.hear("x", Some(&edge("a", 2, true, 110.0)), None, now), News::default());
        let down = edges.hear("x", Some(&edge("a", 3, false, 119.0)), None, now);
        assert_eq!((down.targets.len(), down.services.len(), down.roster), (1, 0, false));
        let more = edges.hear("x", Some(&edge("a", 4, false, 130.0)), None, now);
        assert_eq!((more.targets.len(), more.services.len()), (0, 1));
        let demand = edges.demand("shop/web");
        assert_eq!((demand.from.get("a"), demand.to["b"].requests_per_second), (Some(&130.0), Some(130.0)));
        edges.hear("x", None, None, now);
        assert!(edges.demand("shop/web").from.is_empty());
    }

    /// An edge may not tell of all at once; nobody takes the others for idle.
    #[test]
    fn what_is_left_out_carries_what_it_did_for_a_while() {
        let edges = Edges::default();
        let now = landfall_runtime::clock::instant();
        edges.set_members(["a".to_owned()].into());
        let told = |at: u64, rates: &[(&str, f64)], untold: Option<i64>| {
            let mut edge = edge("a", 1, true, 0.0);
            let status = edge.status.as_mut().expect("a status");
            let load = |rate| Load { requests_per_second: Some(rate), ..Load::default() };
            let one = |(service, rate): &(&str, f64)| ServiceLoad {
                service: format!("shop/{service}"),
                cluster: "b".into(),
                load: load(*rate),
            };
            status.services = rates.iter().map(one).collect();
            status.services_untold = untold;
            edges.hear("x", Some(&edge), None, now + Duration::from_secs(at)).services
        };
        let rate = |service: &str| edges.demand(&format!("shop/{service}")).from.get("a").copied();
        told(1, &[("big", 300.0), ("web", 100.0)], None);
        assert!(told(2, &[("big", 300.0)], Some(1)).is_empty());
        assert_eq!((rate("big"), rate("web")), (Some(300.0), Some(100.0)));
        // It is still known when all is told again.
        assert_eq!(told(3, &[("big", 40.0)], None), ["shop/web", "shop/big"]);
        assert_eq!((rate("big"), rate("web")), (Some(40.0), None));
        told(4, &[("big", 40.0), ("web", 100.0)], None);
        assert!(told(603, &[("big", 40.0)], Some(1)).is_empty());
        assert_eq!(told(604, &[("big", 40.0)], Some(1)), ["shop/web"]);
        assert_eq!((rate("big"), rate("web")), (Some(40.0), None));
    }

    #[test]
    fn what_endpoints_say_of_themselves_counts_by_how_many_heard_it() {
        let edges = Edges::default();
        let now = landfall_runtime::clock::instant();
        edges.set_members(["a".to_owned(), "b".to_owned()].into());
        let busy = |cluster: &str, beat: u32, rate: f64, used: Option<f64>| {
            let mut edge = edge(cluster, beat, true, rate);
            let status = edge.status.as_mut().expect("a status");
            status.services[0].load.utilization = used;
            edge
        };
        edges.hear("x", Some(&busy("a", 1, 300.0, Some(0.8))), None, now);
        edges.hear("y", Some(&busy("b", 1, 100.0, Some(0.4))), None, now);
        edges.hear("z", Some(&busy("b", 1, 100.0, None)), None, now);
        let load = edges.demand("shop/web").to["b"].clone();
        assert_eq!(load.requests_per_second, Some(500.0));
        assert!((load.utilization.expect("somebody told") - 0.7).abs() < 1e-9, "{load:?}");
        // As many requests as before, but each costs more.
        let more = edges.hear("x", Some(&busy("a", 2, 300.0, Some(0.9))), None, now);
        assert_eq!(more.services, ["shop/web"]);
        assert_eq!(edges.hear("x", Some(&busy("a", 3, 300.0, Some(0.91))), None, now), News::default());
    }
}
