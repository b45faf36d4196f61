//! What a service's names are answered with: members that may be named, and their order for each vantage.
//!
//! Who may be named: members inside the fence with an address for whoever asks, of these the well ones; only if there are none,
//! those without ready endpoints, then those that nothing new should go to, then, if the policy fails open, all. So an answer is
//! never empty while something is well that the client could be sent to.
//!
//! Clients inside the edge's own member have an address there that nobody else has. So who may be named is decided twice: what
//! is only reached inside does not keep others from an answer, nor the other way round.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use landfall_api::landfall::{Coordinates, DnsAnswer, PlanCluster, PlanPort, TrafficPlanSpec, WhenAllDown};

use super::names::Scope;
use super::places::{Place, Places, distance_km, is_label};
use super::{Scene, TTL_DEFAULT_S, TTL_FAILOVER_S};
use crate::Reason;

/// What the host names of load balancers resolve to.
pub type Resolved = BTreeMap<String, Vec<IpAddr>>;

/// At most so many members are in one answer: the nearest.
pub const TARGETS_MAX: usize = 16;
/// At most so many addresses of one member are in an answer.
pub const ADDRESSES_MAX: usize = 255;
/// Longer than a day, nothing that can fail should be kept.
const TTL_MAX_S: u32 = 86_400;

/// A member that may be named in answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Target<'a> {
    /// The member.
    pub cluster: &'a PlanCluster,
    /// Its number, if the federation knows it.
    pub member: Option<u16>,
    /// Where clients outside reach it.
    pub addresses: Vec<IpAddr>,
    /// A host name where clients outside reach it, only if there is no address.
    pub hostname: Option<&'a str>,
    /// Where clients inside it reach it.
    pub local: Vec<IpAddr>,
    /// Its pods, where the service is headless: name and addresses.
    pub pods: Vec<(Cow<'a, str>, Vec<IpAddr>)>,
    /// Whether clients elsewhere are told of it.
    pub outside: bool,
    /// Whether clients inside the edge's own member are.
    pub inside: bool,
}

impl Target<'_> {
    /// Whether a client is told of it: one `inside` the edge's own member, or elsewhere.
    pub fn is_for(&self, inside: bool) -> bool {
        if inside { self.inside } else { self.outside }
    }
}

/// One member in an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The member, by its place among the targets.
    pub target: u16,
    /// Its share of the traffic, of 65535.
    pub weight: u16,
    /// Why it stands there.
    pub why: Why,
}

/// Why a member stands where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The plan says so: this choice of this vantage.
    Planned {
        /// The vantage, by its place in the plan.
        vantage: u16,
        /// The choice, by its place in the vantage.
        choice: u16,
    },
    /// The plan does not say: nearer ones first.
    Nearness,
}

/// Which members could be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Those that are well.
    Well,
    /// None is well: those that are up, though without ready endpoints.
    NoEndpoints,
    /// None else is up: those that nothing new should go to.
    Cordoned,
    /// All are down, and the policy fails open.
    DownButOpen,
    /// All are down, and the policy fails closed; or there is none.
    Nothing,
}

/// What a service's names are answered with.
#[derive(Clone, Debug, PartialEq)]
pub struct Answers<'a> {
    /// How long answers may be kept.
    pub ttl_s: u32,
    /// Which members of an order are in an answer.
    pub policy: DnsAnswer,
    /// How well those are that can be named.
    pub standing: Standing,
    /// Members that may be named, in the plan's order.
    pub targets: Vec<Target<'a>>,
    /// Orders of targets; several vantages may have the same.
    pub orders: Vec<Vec<Choice>>,
    /// The order for each slot of [`Places`].
    pub by_slot: Vec<u16>,
    /// The service's ports.
    pub ports: &'a [PlanPort],
    /// Members that are not named, and why.
    pub left_out: Vec<(&'a str, Reason)>,
}

impl<'a> Answers<'a> {
    /// The answers of one plan.
    pub fn new(scene: &Scene, plan: &'a TrafficPlanSpec, resolved: &'a Resolved) -> Self {
        let (standing, targets, left_out) = stand(scene, plan, resolved);
        let (orders, by_slot) = orders(&scene.places, plan, &targets);
        let ports = &plan.ports;
        let ttl_s = ttl_s(plan);
        Self { ttl_s, policy: plan.dns_answer, standing, targets, orders, by_slot, ports, left_out }
    }

    /// The order for clients that stand there.
    pub fn order(&self, places: &Places, place: Place) -> &[Choice] {
        let order = self.by_slot.get(places.slot(place)).and_then(|at| self.orders.get(usize::from(*at)));
        order.map_or(&[], Vec::as_slice)
    }

    /// Whether a target lies in a scope.
    pub fn within(places: &Places, member: Option<u16>, scope: Scope) -> bool {
        let member = || member.and_then(|number| places.members.get(usize::from(number)));
        match scope {
            Scope::All => true,
            Scope::Region(region) => member().is_some_and(|member| member.region == Some(region)),
            Scope::Zone(zone) => member().is_some_and(|member| member.zones.contains(&zone)),
        }
    }

    /// The order for clients that stand there, of targets in a scope that they are told of; empty only if the scope has none.
    /// `inside`: in the edge's own member.
    pub fn view(&self, places: &Places, place: Place, scope: Scope, inside: bool) -> Vec<Choice> {
        let within = |target: u16| {
            let target = self.targets.get(usize::from(target));
            target.is_some_and(|target| target.is_for(inside) && Self::within(places, target.member, scope))
        };
        let order = self.order(places, place).iter().copied();
        let mut view: Vec<Choice> = order.filter(|choice| within(choice.target)).collect();
        if view.is_empty() {
            // The order names only the nearest; whoever asks for a far region means it.
            let all = (0_u16..).take(self.targets.len()).filter(|target| within(*target)).take(TARGETS_MAX);
            view.extend(all.map(|target| Choice { target, weight: 0, why: Why::Nearness }));
        }
        view
    }
}

/// How long the answers of a plan may be kept: less where others of its clusters are not in the answer, or are to come back.
fn ttl_s(plan: &TrafficPlanSpec) -> u32 {
    let seconds = |given: Option<i32>, usual| given.and_then(|ttl| u32::try_from(ttl).ok()).unwrap_or(usual);
    let ttl_s = seconds(plan.dns_ttl_seconds, TTL_DEFAULT_S).min(TTL_MAX_S);
    let some = match plan.dns_answer {
        DnsAnswer::NearestOnly | DnsAnswer::Weighted => true,
        DnsAnswer::NearestFirst | DnsAnswer::All => false,
    };
    if some || plan.clusters.iter().any(|cluster| !cluster.verdict.up) {
        return ttl_s.min(seconds(plan.dns_failover_ttl_seconds, TTL_FAILOVER_S));
    }
    ttl_s
}

/// Whether a member's shard is well: fit to be named without further questions.
pub fn well(cluster: &PlanCluster) -> bool {
    cluster.verdict.up && !cluster.cordoned && cluster.endpoints > 0
}

/// Who may be named, how well they are, and who is left out.
type Stood<'a> = (Standing, Vec<Target<'a>>, Vec<(&'a str, Reason)>);

/// Finds out who may be named: to clients elsewhere, and to those inside the edge's own member.
fn stand<'a>(scene: &Scene, plan: &'a TrafficPlanSpec, resolved: &'a Resolved) -> Stood<'a> {
    let places = &scene.places;
    let fenced = |cluster: &PlanCluster| plan.fence.is_empty() || plan.fence.contains(&cluster.name);
    let mut all: Vec<Target<'a>> = Vec::with_capacity(plan.clusters.len());
    let mut left_out = Vec::new();
    for cluster in &plan.clusters {
        if !fenced(cluster) {
            left_out
                .push((&*cluster.name, Reason::new("OutsideFence", "its traffic may not leave the fence")));
            continue;
        }
        match target(places, cluster, resolved) {
            Some(target) => all.push(target),
            None => left_out.push((&*cluster.name, Reason::new("NoAddress", "it has no address there"))),
        }
    }
    let own = |target: &Target<'_>| target.member.is_some() && target.member == places.own;
    let named = |target: &Target<'_>| !target.addresses.is_empty() || target.hostname.is_some();
    let elsewhere = |target: &Target<'_>| named(target).then(|| standing(target.cluster));
    let within = |target: &Target<'_>| match own(target) {
        true => (!target.local.is_empty() || named(target)).then(|| own_standing(plan, target.cluster)),
        false => elsewhere(target),
    };
    let best = |of: &dyn Fn(&Target<'_>) -> Option<Standing>| {
        let best = all.iter().filter_map(of).min().unwrap_or(Standing::Nothing);
        let closed = best == Standing::DownButOpen && plan.when_all_down == WhenAllDown::Closed;
        if closed { Standing::Nothing } else { best }
    };
    let (outside, inside) = (best(&elsewhere), best(&within));
    let fit = |standing: Option<Standing>, best| {
        best != Standing::Nothing && standing.is_some_and(|one| one <= best)
    };
    let mut targets = Vec::with_capacity(all.len());
    for mut target in all {
        target.outside = fit(elsewhere(&target), outside);
        target.inside = fit(within(&target), inside);
        if target.outside || target.inside {
            targets.push(target);
        } else {
            left_out.push((&*target.cluster.name, unfit(target.cluster)));
        }
    }
    (outside.min(inside), targets, left_out)
}

/// How well a member's shard is.
fn standing(cluster: &PlanCluster) -> Standing {
    match () {
        () if well(cluster) => Standing::Well,
        () if !cluster.verdict.up => Standing::DownButOpen,
        () if cluster.cordoned => Standing::Cordoned,
        () => Standing::NoEndpoints,
    }
}

/// How well the own member's shard is for its own clients: one that others do not reach, and its own edges see up, is in the plan
/// for them.
fn own_standing(plan: &TrafficPlanSpec, cluster: &PlanCluster) -> Standing {
    let found = standing(cluster);
    if found != Standing::DownButOpen {
        return found;
    }
    let vantage = plan.vantages.iter().find(|vantage| vantage.cluster.as_deref() == Some(&cluster.name));
    let choices = vantage.map(|vantage| vantage.choices.as_slice()).unwrap_or_default();
    let up = |name: &str| plan.clusters.iter().any(|other| other.name == name && other.verdict.up);
    // Where all are down, the plan may name them all.
    let open = plan.when_all_down == WhenAllDown::Open && !choices.iter().any(|choice| up(&choice.cluster));
    let planned = choices.iter().any(|choice| choice.cluster == cluster.name);
    if planned && !open { Standing::Well } else { found }
}

/// Why a member is not named.
fn unfit(cluster: &PlanCluster) -> Reason {
    match standing(cluster) {
        Standing::DownButOpen => Reason::new("Down", down(cluster)),
        Standing::Cordoned => Reason::new("Cordoned", "nothing new goes there"),
        Standing::NoEndpoints => Reason::new("NoEndpoints", "no endpoint is ready there"),
        Standing::Well | Standing::Nothing => {
            Reason::new("NoAddress", "it has no address that clients elsewhere could reach")
        }
    }
}

fn down(cluster: &PlanCluster) -> String {
    let verdict = &cluster.verdict;
    let why = if verdict.reason.is_empty() { String::new() } else { format!(": {}", verdict.reason) };
    format!("{} of {} voters say down{why}", verdict.votes_down, verdict.votes_down + verdict.votes_up)
}

fn target<'a>(places: &Places, cluster: &'a PlanCluster, resolved: &'a Resolved) -> Option<Target<'a>> {
    let parse = |ip: &'a String| ip.parse::<IpAddr>().ok();
    let pods: Vec<(Cow<'a, str>, Vec<IpAddr>)> = cluster
        .pods
        .iter()
        .take(ADDRESSES_MAX)
        .filter_map(|pod| {
            let ips: Vec<IpAddr> = pod.ips.iter().filter_map(parse).collect();
            let name = pod.hostname.as_deref().filter(|name| is_label(name)).map(Cow::Borrowed);
            let name = name.or_else(|| ips.first().map(|ip| Cow::Owned(pod_label(*ip))))?;
            Some((name, ips))
        })
        .collect();
    let of_pods = || pods.iter().flat_map(|(_, ips)| ips.iter().copied());
    let own = cluster.addresses.iter().filter_map(|address| address.ip.as_ref()).filter_map(parse);
    let hostnames = || cluster.addresses.iter().filter_map(|address| address.hostname.as_deref());
    let found = hostnames().filter_map(|name| resolved.get(name)).flatten().copied();
    let mut addresses = distinct(own.chain(found));
    let hostname = hostnames().find(|name| is_hostname(name)).filter(|_| addresses.is_empty());
    if addresses.is_empty() && hostname.is_none() {
        addresses = distinct(of_pods());
    }
    let mut local = distinct(cluster.cluster_ips.iter().filter_map(parse));
    if local.is_empty() {
        local = distinct(of_pods());
    }
    if local.is_empty() {
        // Clients inside go the way of those outside; they were told nothing at all.
        local.clone_from(&addresses);
    }
    let member = places.member(&cluster.name);
    let reachable = !addresses.is_empty() || hostname.is_some() || !local.is_empty();
    reachable.then_some(Target {
        cluster,
        member,
        addresses,
        hostname,
        local,
        pods,
        outside: false,
        inside: false,
    })
}

/// The name of a pod that has none: its address, as Kubernetes does it.
fn pod_label(ip: IpAddr) -> String {
    ip.to_string().replace(['.', ':'], "-")
}

/// Whether a text is a host name that a record can point to.
pub fn is_hostname(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    text.len() < 250 && text.split('.').all(is_label)
}

fn distinct(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut out: Vec<IpAddr> = Vec::new();
    for address in addresses.take(4 * ADDRESSES_MAX) {
        if out.len() < ADDRESSES_MAX && !out.contains(&address) {
            out.push(address);
        }
    }
    out
}

/// An order for every vantage of the plan, and which of them each slot follows.
fn orders(places: &Places, plan: &TrafficPlanSpec, targets: &[Target<'_>]) -> (Vec<Vec<Choice>>, Vec<u16>) {
    let numbers: BTreeMap<&str, u16> = targets.iter().map(|t| t.cluster.name.as_str()).zip(0..).collect();
    let mut orders: Vec<Vec<Choice>> = Vec::new();
    let mut said: Vec<Option<u16>> = vec![None; places.slots()];
    for (vantage, number) in plan.vantages.iter().zip(0_u16..) {
        let slot = match (&vantage.cluster, &vantage.region) {
            (Some(cluster), _) => places.member(cluster).map(usize::from),
            (None, Some(region)) => {
                let region = places.region(region.to_ascii_lowercase().as_bytes());
                region.map(|region| places.slot(Place::Region(region)))
            }
            (None, None) => Some(places.slots() - 1),
        };
        let Some(slot) = slot else { continue };
        let choices = vantage.choices.iter().zip(0_u16..).filter_map(|(choice, at)| {
            let target = *numbers.get(choice.cluster.as_str())?;
            let why = Why::Planned { vantage: number, choice: at };
            Some(Choice { target, weight: share(choice.fraction), why })
        });
        let order = complete(places, places.of_slot(slot), targets, choices);
        said[slot] = u16::try_from(orders.len()).ok();
        orders.push(order);
    }
    let mut by_slot = Vec::with_capacity(said.len());
    for slot in 0..said.len() {
        let near = || {
            orders.push(complete(places, places.of_slot(slot), targets, std::iter::empty()));
            u16::try_from(orders.len() - 1).unwrap_or(0)
        };
        by_slot.push(stands_for(places, &said, slot).unwrap_or_else(near));
    }
    (orders, by_slot)
}

/// The order that a slot without one of its own follows: its region's, that of a member of its region, or the unknown's.
fn stands_for(places: &Places, said: &[Option<u16>], slot: usize) -> Option<u16> {
    let get = |slot: usize| said.get(slot).copied().flatten();
    let related = || match places.of_slot(slot) {
        Place::Member(member) => {
            let region = places.members.get(usize::from(member))?.region?;
            get(places.slot(Place::Region(region)))
        }
        Place::Region(region) => {
            let inside = |at: &usize| places.members[*at].region == Some(region);
            (0..places.members.len()).filter(inside).find_map(get)
        }
        Place::Unknown => None,
    };
    get(slot).or_else(related).or_else(|| get(places.slots() - 1))
}

/// The choices, each once, then the rest from near to far.
fn complete(
    places: &Places,
    place: Place,
    targets: &[Target<'_>],
    choices: impl Iterator<Item = Choice>,
) -> Vec<Choice> {
    let mut order: Vec<Choice> = Vec::with_capacity(targets.len().min(TARGETS_MAX));
    let mut seen = vec![false; targets.len()];
    for choice in choices {
        if order.len() < TARGETS_MAX && !std::mem::replace(&mut seen[usize::from(choice.target)], true) {
            order.push(choice);
        }
    }
    let mut rest: Vec<(u64, u16)> = targets
        .iter()
        .zip(0_u16..)
        .filter(|(_, number)| !seen[usize::from(*number)])
        .map(|(target, number)| (farness(places, place, target), number))
        .collect();
    rest.sort_unstable();
    rest.truncate(TARGETS_MAX.saturating_sub(order.len()));
    order.extend(rest.iter().map(|(_, target)| Choice { target: *target, weight: 0, why: Why::Nearness }));
    order
}

/// How far a target is: the same member, the same region, by coordinates, or somewhere.
fn farness(places: &Places, place: Place, target: &Target<'_>) -> u64 {
    const SOMEWHERE: u64 = 1_000_000;
    let theirs = target.member.and_then(|member| places.members.get(usize::from(member)));
    let ours = match place {
        Place::Member(member) => places.members.get(usize::from(member)),
        Place::Region(region) => places.members.iter().find(|member| member.region == Some(region)),
        Place::Unknown => None,
    };
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return SOMEWHERE };
    if matches!(place, Place::Member(member) if Some(member) == target.member) {
        return 0;
    }
    if ours.region.is_some() && ours.region == theirs.region {
        return 1;
    }
    let km = |a: &Option<Coordinates>, b: &Option<Coordinates>| {
        let km = distance_km(a.as_ref()?, b.as_ref()?);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "half the earth at most")]
        Some(2 + km as u64)
    };
    km(&ours.coordinates, &theirs.coordinates).unwrap_or(SOMEWHERE)
}

fn share(fraction: f64) -> u16 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=65535")]
    let share = (fraction.clamp(0.0, 1.0) * f64::from(u16::MAX)).round() as u16;
    // A share is never rounded down to none.
    if fraction > 0.0 { share.max(1) } else { share }
}
