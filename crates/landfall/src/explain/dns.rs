//! `landfall explain dns`: one answer in words, with the votes behind it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use landfall_api::addresses::parse_cidr;
use landfall_api::landfall::{
    FEDERATION_PLAN, PlanCluster, PlanFederation, PlanVote, SYSTEM_NAMESPACE, TrafficPlan, TrafficPlanSpec,
};
use landfall_plan::records::explain::{From, explain};
use landfall_plan::records::places::Place;
use landfall_plan::records::{Resolved, Scene};

use super::options::DnsOptions;
use crate::basics::table::align;
use crate::basics::target::Target;
use crate::say::print;

const PLANS: &str = "/apis/landfall.dev/v1alpha1/trafficplans";

/// Plans by namespace and name.
type Plans = BTreeMap<(String, String), TrafficPlanSpec>;

pub(super) async fn run(options: &DnsOptions) -> Result<()> {
    let target = Target::find(&options.connection).await?;
    let list = target.get(PLANS, "application/json").await.context("cannot read the plans")?;
    let items = list.get("items").cloned().unwrap_or_default();
    let plans: Vec<TrafficPlan> = serde_json::from_value(items).context("cannot read the plans")?;
    let key = |plan: &TrafficPlan| {
        let metadata = &plan.metadata;
        (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
    };
    let plans: Plans = plans.into_iter().map(|plan| (key(&plan), plan.spec)).collect();
    print(&said(&plans, &options.name, options.from.as_deref())?);
    Ok(())
}

/// The answer and what it was made from.
fn said(plans: &Plans, name: &str, from: Option<&str>) -> Result<String> {
    let whole = plans.get(&(SYSTEM_NAMESPACE.to_owned(), FEDERATION_PLAN.to_owned()));
    let Some(federation) = whole.and_then(|plan| plan.federation.as_ref()) else {
        bail!("the hub has not planned anything yet: has a cluster joined? See `landfall status`");
    };
    let (scene, from) = stand(federation, from)?;
    let find = |namespace: &str, service: &str| plans.get(&(namespace.to_owned(), service.to_owned()));
    let resolved = Resolved::new();
    let answer = explain(&scene, name, from, find, |host| of_host(plans, host), &resolved);
    let mut out = answer.to_string();
    let service = answer.service.as_deref().and_then(|service| service.split_once('/'));
    if let Some(plan) = service.and_then(|(namespace, service)| find(namespace, service)) {
        if !plan.fence.is_empty() {
            out.push_str(&format!("  never outside the fence: {}\n", plan.fence.join(", ")));
        }
        out.push('\n');
        out.push_str(&align(&verdicts(plan)));
    }
    Ok(out)
}

/// Where a client stands, and the federation as it is seen from there.
fn stand(federation: &PlanFederation, from: Option<&str>) -> Result<(Scene, From)> {
    let Some(text) = from else {
        return Ok((Scene::new(federation, None), From { place: Place::Unknown, inside: false }));
    };
    let address = text.parse::<IpAddr>().ok().or_else(|| parse_cidr(text).map(|(address, _)| address));
    if let Some(address) = address {
        let scene = Scene::new(federation, None);
        let from = From::address(&scene, address);
        return Ok((scene, from));
    }
    let scene = Scene::new(federation, Some(text));
    let Some(from) = From::cluster(&scene, text) else {
        let known: Vec<&str> = federation.members.iter().map(|member| member.name.as_str()).collect();
        bail!(
            "{text:?} is no address, no prefix and no cluster; there are the clusters {}",
            known.join(", ")
        );
    };
    Ok((scene, from))
}

/// The plan of a host, by its whole name or by a wildcard one label above.
fn of_host<'a>(plans: &'a Plans, host: &str) -> Option<(&'a str, &'a TrafficPlanSpec)> {
    let wildcard = host.split_once('.').map(|(_, rest)| format!("*.{rest}"));
    let having = |wanted: &str| {
        let mut all = plans.iter();
        let found = all.find(|(_, plan)| plan.hosts.iter().any(|own| own.eq_ignore_ascii_case(wanted)));
        found.map(|((namespace, _), plan)| (namespace.as_str(), plan))
    };
    having(host).or_else(|| having(&wildcard?))
}

/// What the edges say of each cluster.
fn verdicts(plan: &TrafficPlanSpec) -> Vec<Vec<String>> {
    let head = ["CLUSTER", "VERDICT", "SINCE", "ENDPOINTS", "VOTES", "WHY"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(plan.clusters.iter().map(verdict));
    rows
}

fn verdict(cluster: &PlanCluster) -> Vec<String> {
    let verdict = &cluster.verdict;
    let vote = |vote: &PlanVote| format!("{} {}", vote.edge, if vote.up { "up" } else { "down" });
    let votes: Vec<String> = verdict.votes.iter().map(vote).collect();
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    vec![
        cluster.name.clone(),
        if verdict.up { "up" } else { "down" }.to_owned(),
        verdict.since.as_ref().map_or_else(|| "-".to_owned(), |since| since.0.to_string()),
        cluster.endpoints.to_string(),
        or_dash(votes.join(", ")),
        or_dash(verdict.reason.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use landfall_api::landfall::{PlanMember, Verdict};

    use super::*;

    fn plans() -> Plans {
        let member = |name: &str| PlanMember { name: name.into(), ..PlanMember::default() };
        let federation = PlanFederation {
            name: "fed".into(),
            domain: Some("example.com".into()),
            members: vec![member("east"), member("west")],
            ..PlanFederation::default()
        };
        let cluster = |name: &str, ip: &str, up: bool| PlanCluster {
            name: name.into(),
            addresses: vec![landfall_api::landfall::Address { ip: Some(ip.into()), hostname: None }],
            verdict: Verdict {
                up,
                votes: vec![PlanVote { edge: "e1".into(), up, ..PlanVote::default() }],
                ..Verdict::default()
            },
            endpoints: 2,
            ..PlanCluster::default()
        };
        let mut web = TrafficPlanSpec {
            clusters: vec![cluster("east", "192.0.2.1", true), cluster("west", "192.0.2.2", false)],
            hosts: vec!["*.shop.example.org".into()],
            ..TrafficPlanSpec::default()
        };
        web.target_ref.name = "web".into();
        let whole = TrafficPlanSpec { federation: Some(federation), ..TrafficPlanSpec::default() };
        let key = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        Plans::from([(key("default", "web"), web), (key(SYSTEM_NAMESPACE, FEDERATION_PLAN), whole)])
    }

    #[test]
    fn answers_are_told_with_the_votes_behind_them() {
        let plans = plans();
        for (name, from) in [
            ("web.default.fed.example.com", None),
            ("web.default.fed.example.com.", Some("203.0.113.0/24")),
            ("WEB.default.fed.example.com", Some("east")),
            ("a.shop.example.org", Some("203.0.113.9")),
        ] {
            let said = said(&plans, name, from).unwrap();
            assert!(said.contains("A 192.0.2.1") && !said.contains("A 192.0.2.2"), "{said}");
            assert!(said.contains("not west") && said.contains("e1 down"), "{said}");
        }
        let nothing = said(&plans, "other.example.net", None).unwrap();
        assert!(nothing.contains("no zone of ours has this name"), "{nothing}");
        let wrong = said(&plans, "web.default.fed.example.com", Some("nowhere")).unwrap_err().to_string();
        assert!(wrong.contains("there are the clusters east, west"), "{wrong}");
        assert!(said(&Plans::new(), "x", None).unwrap_err().to_string().contains("landfall status"));
    }
}
