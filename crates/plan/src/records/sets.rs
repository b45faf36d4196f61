//! All record sets of a service, name by name: for other DNS servers and for whoever wants to see them listed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use landfall_api::landfall::DnsAnswer;

use super::Scene;
use super::answers::{Answers, Choice, Target};
use super::names::Scope;
use super::places::{Place, is_label};

/// A name's records of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSet {
    /// The name, without the last dot.
    pub name: String,
    /// How long it may be kept.
    pub ttl_s: u32,
    /// The records.
    pub data: Data,
}

/// The records of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// IPv4 addresses.
    A(Vec<Ipv4Addr>),
    /// IPv6 addresses.
    Aaaa(Vec<Ipv6Addr>),
    /// Another name for it.
    Cname(String),
    /// Where a port is served.
    Srv(Vec<Service>),
}

/// Where a port is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Lower ones are tried first.
    pub priority: u16,
    /// Share among those of the same priority.
    pub weight: u16,
    /// The port.
    pub port: u16,
    /// The host.
    pub target: String,
}

/// What one name is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Another name: one level up, or a load balancer's.
    Cname(String),
    /// Addresses, in order; with the target that each belongs to.
    Addresses(Vec<(u16, IpAddr)>),
}

/// All record sets of a service, as a client that stands there would see them. `hosts` are not among them.
pub fn of_service(
    scene: &Scene,
    (namespace, service): (&str, &str),
    answers: &Answers<'_>,
    place: Place,
) -> Vec<RecordSet> {
    let mut sets = Vec::new();
    for (name, scope) in scene.names.of_service(&scene.places, namespace, service) {
        let up = above(scene, &name, scope);
        let answer = answer(scene, answers, place, scope, up.as_deref(), false);
        let redirected = matches!(&answer, Answer::Cname(to) if Some(to) == up.as_ref());
        push(&mut sets, &name, answers.ttl_s, answer);
        let choices = answers.view(&scene.places, place, scope, false);
        for port in answers.ports.iter().filter(|port| is_label(&port.name)) {
            let protocol = if port.protocol.eq_ignore_ascii_case("udp") { "udp" } else { "tcp" };
            let under = format!("_{}._{protocol}", port.name.to_ascii_lowercase());
            let data = match &up {
                Some(up) if redirected => Data::Cname(format!("{under}.{up}")),
                _ => Data::Srv(services(answers, &choices, &name, port.port)),
            };
            let empty = matches!(&data, Data::Srv(rows) if rows.is_empty());
            if !empty {
                sets.push(RecordSet { name: format!("{under}.{name}"), ttl_s: answers.ttl_s, data });
            }
        }
        if !redirected {
            choices.iter().for_each(|choice| of_target(&mut sets, answers, *choice, &name));
        }
    }
    sets
}

/// What a name is answered with, for clients that stand there; `inside`: in the edge's own member.
pub fn answer<'a>(
    scene: &Scene,
    answers: &'a Answers<'_>,
    place: Place,
    scope: Scope,
    up: Option<&str>,
    inside: bool,
) -> Answer {
    let mut choices = answers.view(&scene.places, place, scope, inside);
    if let (true, Some(up)) = (choices.is_empty(), up) {
        return Answer::Cname(up.to_owned());
    }
    let own = |target: &Target<'_>| inside && target.member.is_some() && target.member == scene.places.own;
    let list = |target: &'a Target<'_>| if own(target) { &target.local } else { &target.addresses };
    let get = |choice: &Choice| answers.targets.get(usize::from(choice.target));
    // Edges may reach what nobody else does: it is no answer.
    choices.retain(|choice| {
        get(choice).is_some_and(|target| target.hostname.is_some() || !list(target).is_empty())
    });
    match answers.policy {
        DnsAnswer::NearestFirst | DnsAnswer::All => {}
        DnsAnswer::NearestOnly | DnsAnswer::Weighted => {
            let first = choices.iter().position(|choice| choice.weight > 0).unwrap_or(0);
            choices = choices.get(first).copied().into_iter().collect();
        }
    }
    let targets: Vec<(u16, &'a Target<'_>)> =
        choices.iter().filter_map(|choice| Some((choice.target, get(choice)?))).collect();
    if targets.iter().all(|(_, target)| list(target).is_empty())
        && let Some(hostname) = targets.iter().find_map(|(_, target)| target.hostname)
    {
        return Answer::Cname(hostname.trim_end_matches('.').to_ascii_lowercase());
    }
    let addresses = targets.iter().flat_map(|(number, target)| list(target).iter().map(|ip| (*number, *ip)));
    Answer::Addresses(addresses.collect())
}

/// The name one level up: a zone's region, a region's whole.
pub fn above(scene: &Scene, name: &str, scope: Scope) -> Option<String> {
    let domain = scene.names.domain.join(".");
    let stem = name.strip_suffix(&domain)?.strip_suffix('.')?;
    match scope {
        Scope::All => None,
        Scope::Region(_) => Some(format!("{}.{domain}", stem.rsplit_once('.')?.0)),
        Scope::Zone(_) => {
            let (rest, region) = stem.rsplit_once('.')?;
            Some(format!("{}.{region}.{domain}", rest.rsplit_once('.')?.0))
        }
    }
}

/// Records that send clients to members in order, or by share where the policy says so.
fn services(answers: &Answers<'_>, choices: &[Choice], name: &str, port: i32) -> Vec<Service> {
    let Ok(port) = u16::try_from(port) else { return Vec::new() };
    let mut rows = Vec::new();
    for (choice, rank) in choices.iter().zip(0_u16..) {
        let Some(target) = answers.targets.get(usize::from(choice.target)) else { continue };
        let (priority, weight) = srv_rank(answers.policy, rank, choice.weight);
        let cluster = &target.cluster.name;
        let row = |target| Service { priority, weight, port, target };
        if target.pods.is_empty() {
            rows.push(row(format!("{cluster}.{name}")));
        } else {
            rows.extend(target.pods.iter().map(|(pod, _)| row(format!("{pod}.{cluster}.{name}"))));
        }
    }
    rows
}

/// Priority and weight of the member of this rank.
pub fn srv_rank(policy: DnsAnswer, rank: u16, share: u16) -> (u16, u16) {
    match policy {
        DnsAnswer::NearestFirst | DnsAnswer::NearestOnly => (rank, 100),
        DnsAnswer::All => (0, 100),
        // Nothing is said with zero: it is only tried when the others fail.
        DnsAnswer::Weighted => (0, share),
    }
}

/// The names of one member's shard and of its pods.
fn of_target(sets: &mut Vec<RecordSet>, answers: &Answers<'_>, choice: Choice, name: &str) {
    let Some(target) = answers.targets.get(usize::from(choice.target)) else { return };
    let own = format!("{}.{name}", target.cluster.name);
    let answer = match target.hostname {
        Some(hostname) => Answer::Cname(hostname.trim_end_matches('.').to_ascii_lowercase()),
        None => Answer::Addresses(target.addresses.iter().map(|ip| (choice.target, *ip)).collect()),
    };
    push(sets, &own, answers.ttl_s, answer);
    for (pod, ips) in &target.pods {
        let ips = ips.iter().map(|ip| (choice.target, *ip)).collect();
        push(sets, &format!("{pod}.{own}"), answers.ttl_s, Answer::Addresses(ips));
    }
}

fn push(sets: &mut Vec<RecordSet>, name: &str, ttl_s: u32, answer: Answer) {
    let mut add = |data| sets.push(RecordSet { name: name.to_owned(), ttl_s, data });
    match answer {
        Answer::Cname(to) => add(Data::Cname(to)),
        Answer::Addresses(all) => {
            let (mut v4, mut v6) = (Vec::new(), Vec::new());
            for (_, ip) in all {
                match ip {
                    IpAddr::V4(ip) => v4.push(ip),
                    IpAddr::V6(ip) => v6.push(ip),
                }
            }
            if !v4.is_empty() {
                add(Data::A(v4));
            }
            if !v6.is_empty() {
                add(Data::Aaaa(v6));
            }
        }
    }
}
