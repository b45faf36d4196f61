//! One answer in words: what a client that stands somewhere is told, why, and what it is not told.

use std::fmt::{self, Display};
use std::net::IpAddr;

use landfall_api::landfall::{DnsAnswer, TrafficPlanSpec};

use super::answers::{Answers, Choice, Resolved, Standing, Target, Why};
use super::hosts::front;
use super::names::{Located, Node, Scope};
use super::places::Place;
use super::sets::{Answer, above, answer};
use super::{Scene, TTL_DEFAULT_S};
use crate::Reason;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct From {
    /// Where they stand.
    pub place: Place,
    /// Inside the member whose edge is asked.
    pub inside: bool,
}

impl From {
    /// Clients at an address, as the federation's prefixes tell where they stand.
    pub fn address(scene: &Scene, address: IpAddr) -> Self {
        Self { place: scene.prefixes.get(address).0, inside: false }
    }

    /// Clients inside a member; only if the scene is that member's own edge's, they see its inner addresses. None if there is no
    /// such member.
    pub fn cluster(scene: &Scene, name: &str) -> Option<Self> {
        let member = scene.places.member(name)?;
        Some(Self { place: Place::Member(member), inside: scene.places.own == Some(member) })
    }
}

/// An answer in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The name that was asked.
    pub name: String,
    /// Where the client stands.
    pub vantage: String,
    /// The service, as `namespace/name`; none if the name is not of a service.
    pub service: Option<String>,
    /// How long the answer may be kept.
    pub ttl_s: u32,
    /// The records in order, each with the member it leads to and the reason.
    pub records: Vec<Line>,
    /// Members that are not in the answer, and why.
    pub left_out: Vec<(String, Reason)>,
    /// What else is to be said.
    pub remarks: Vec<String>,
}

/// One record of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The record's type and data, such as `A 192.0.2.1`.
    pub record: String,
    /// The member it leads to; empty for another name.
    pub cluster: String,
    /// Why it is there.
    pub reason: Reason,
}

/// Explains what a name is answered with. `find` gives the plan of a service (namespace, name), `host` that of a host, see
/// [`super::hosts::owner`].
pub fn explain<'a>(
    scene: &Scene,
    name: &str,
    from: From,
    find: impl Fn(&str, &str) -> Option<&'a TrafficPlanSpec>,
    host: impl Fn(&str) -> Option<(&'a str, &'a TrafficPlanSpec)>,
    resolved: &'a Resolved,
) -> Explanation {
    let asked = name.trim_end_matches('.').to_ascii_lowercase();
    let mut said = Explanation {
        name: asked.clone(),
        vantage: vantage(scene, from),
        service: None,
        ttl_s: TTL_DEFAULT_S,
        records: Vec::new(),
        left_out: Vec::new(),
        remarks: Vec::new(),
    };
    let labels: Vec<&str> = asked.split('.').collect();
    let bytes: Vec<&[u8]> = labels.iter().map(|label| label.as_bytes()).collect();
    let located = scene.names.locate(&scene.places, &bytes);
    let found = match located {
        Located::In { node: Node::Service { at: 0, scope }, .. } => {
            let namespace = labels.get(1).copied().unwrap_or_default();
            find(namespace, labels[0]).map(|plan| (namespace, plan, Some(scope)))
        }
        Located::Foreign | Located::In { .. } => None,
    };
    let found = found.or_else(|| host(&asked).map(|(namespace, plan)| (namespace, plan, None)));
    let Some((namespace, plan, scope)) = found else {
        said.remarks.push(nothing(located).to_owned());
        return said;
    };
    said.service = Some(format!("{namespace}/{}", plan.target_ref.name));
    let front = if scope.is_none() { front(plan) } else { None };
    if scope.is_none() {
        said.remarks.push(by_host(front.is_some()).to_owned());
    }
    let (plan, scope) = (front.as_ref().unwrap_or(plan), scope.unwrap_or(Scope::All));
    let answers = Answers::new(scene, plan, resolved);
    said.ttl_s = answers.ttl_s;
    said.left_out = answers.left_out.iter().map(|(name, why)| ((*name).to_owned(), why.clone())).collect();
    said.remarks.extend(standing(answers.standing).map(ToOwned::to_owned));
    climb(scene, plan, &answers, from, &asked, scope, &mut said);
    said
}

/// Follows the chain upwards from a scope without shards, and tells the addresses at its end.
fn climb(
    scene: &Scene,
    plan: &TrafficPlanSpec,
    answers: &Answers<'_>,
    from: From,
    asked: &str,
    mut scope: Scope,
    said: &mut Explanation,
) {
    let mut name = asked.to_owned();
    loop {
        let up = above(scene, &name, scope);
        match answer(scene, answers, from.place, scope, up.as_deref(), from.inside) {
            Answer::Cname(to) if Some(&to) == up.as_ref() => {
                let reason = Reason::new("NoneHere", format!("no shard in {} is well", words(scene, scope)));
                said.records.push(Line { record: format!("CNAME {to}"), cluster: String::new(), reason });
                name = to;
                scope = match scope {
                    Scope::Zone(zone) => scene
                        .places
                        .zones
                        .get(usize::from(zone))
                        .map_or(Scope::All, |zone| Scope::Region(zone.region)),
                    Scope::Region(_) | Scope::All => Scope::All,
                };
            }
            Answer::Cname(to) => {
                let choices = answers.view(&scene.places, from.place, scope, from.inside);
                let first =
                    choices.first().and_then(|c| Some((c, answers.targets.get(usize::from(c.target))?)));
                if let Some((choice, target)) = first {
                    said.records.push(line(plan, answers, *choice, target, format!("CNAME {to}")));
                }
                return;
            }
            Answer::Addresses(list) => {
                let choices = answers.view(&scene.places, from.place, scope, from.inside);
                for (number, ip) in list {
                    let choice = choices.iter().find(|choice| choice.target == number);
                    let target = answers.targets.get(usize::from(number));
                    if let (Some(choice), Some(target)) = (choice, target) {
                        let record = if ip.is_ipv4() { format!("A {ip}") } else { format!("AAAA {ip}") };
                        said.records.push(line(plan, answers, *choice, target, record));
                    }
                }
                return;
            }
        }
    }
}

fn line(
    plan: &TrafficPlanSpec,
    answers: &Answers<'_>,
    choice: Choice,
    target: &Target<'_>,
    record: String,
) -> Line {
    let is_local = |ip: &IpAddr| record.ends_with(&format!(" {ip}")) && !target.addresses.contains(ip);
    let place = if target.local.iter().any(is_local) { "its address inside the cluster" } else { "" };
    let planned = match choice.why {
        Why::Planned { vantage, choice } => {
            let vantage = plan.vantages.get(usize::from(vantage));
            vantage.and_then(|vantage| vantage.choices.get(usize::from(choice)))
        }
        Why::Nearness => None,
    };
    let share = f64::from(choice.weight) / f64::from(u16::MAX) * 100.0;
    let mut parts: Vec<String> = Vec::new();
    match planned {
        Some(planned) if planned.reason.is_empty() => parts.push("the plan's order".to_owned()),
        Some(planned) => parts.push(planned.reason.clone()),
        None => parts.push("by nearness".to_owned()),
    }
    if answers.policy == DnsAnswer::Weighted || (choice.weight > 0 && choice.weight < u16::MAX) {
        parts.push(format!("first for {share:.0} % of the answers"));
    }
    let verdict = &target.cluster.verdict;
    if verdict.votes_up + verdict.votes_down > 0 {
        let all = verdict.votes_up + verdict.votes_down;
        parts.push(format!("{} of {all} voters say up", verdict.votes_up));
    }
    if let (Some(load), Some(capacity)) = (target.cluster.load, target.cluster.capacity) {
        parts.push(format!("carries {load:.0} of {capacity:.0} requests per second"));
    }
    if !place.is_empty() {
        parts.push(place.to_owned());
    }
    let code = if planned.is_some() { "Planned" } else { "Nearness" };
    Line { record, cluster: target.cluster.name.clone(), reason: Reason::new(code, parts.join("; ")) }
}

fn vantage(scene: &Scene, from: From) -> String {
    let place = scene.places.say(from.place);
    match (from.inside, from.place, scene.places.own) {
        (true, ..) => format!("inside {place}"),
        (false, Place::Unknown, Some(own)) => {
            format!("{place}: as if near the edge's own {}", scene.places.say(Place::Member(own)))
        }
        _ => format!("near {place}"),
    }
}

fn words(scene: &Scene, scope: Scope) -> String {
    match scope {
        Scope::All => "the federation".to_owned(),
        Scope::Region(region) => scene.places.say(Place::Region(region)),
        Scope::Zone(zone) => {
            format!("zone {}", scene.places.zones.get(usize::from(zone)).map_or("?", |zone| &zone.name))
        }
    }
}

fn nothing(located: Located) -> &'static str {
    match located {
        Located::Foreign => "no zone of ours has this name, and no plan has this host",
        Located::In { node: Node::Service { at: 0, .. }, .. } => "there is no plan for this service",
        Located::In { .. } => "the name is in a zone of ours, but no service has it",
    }
}

fn by_host(carried: bool) -> &'static str {
    if carried {
        "it is a host of an Ingress: answered with where requests for it are taken"
    } else {
        "it is a host of an Ingress that has no address yet: answered with the addresses of the service"
    }
}

fn standing(standing: Standing) -> Option<&'static str> {
    match standing {
        Standing::Well => None,
        Standing::NoEndpoints => Some("no member has ready endpoints: those that are up are answered"),
        Standing::Cordoned => Some("only members that nothing new should go to are up: they are answered"),
        Standing::DownButOpen => Some("all members are down, and the policy fails open: all are answered"),
        Standing::Nothing => Some("no member can be answered"),
    }
}

impl Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} from {}", self.name, self.vantage)?;
        if let Some(service) = &self.service {
            writeln!(f, "service {service}, TTL {} s", self.ttl_s)?;
        }
        let width = self.records.iter().map(|line| line.record.len()).max().unwrap_or(0);
        for Line { record, cluster, reason } in &self.records {
            let space = if cluster.is_empty() { "" } else { " " };
            writeln!(f, "  {record:width$}  {cluster}{space}({})", reason.message)?;
        }
        for (cluster, reason) in &self.left_out {
            writeln!(f, "  not {cluster}: {} ({})", reason.message, reason.code)?;
        }
        self.remarks.iter().try_for_each(|remark| writeln!(f, "  {remark}"))
    }
}
