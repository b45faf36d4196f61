//! `landfall explain dns`: one answer in words, with the votes behind it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt as _, stream};
use landfall_api::landfall::{PlanCluster, PlanVote, TrafficPlanSpec};
use landfall_plan::records::Resolved;
use landfall_plan::records::explain::explain;
use landfall_plan::records::hosts::owner;
use tokio::net::lookup_host;

use super::options::DnsOptions;
use super::plans::{self, Plans, federation, stand};
use crate::basics::table::align;
use crate::basics::target::Target;
use crate::say::print;

/// How long a host name may take to be resolved, how many are at once, and how many are at all.
const RESOLVE_MAX: Duration = Duration::from_secs(2);
const TOGETHER_MAX: usize = 16;
const HOSTS_MAX: usize = 1_000;

pub(super) async fn run(options: &DnsOptions) -> Result<()> {
    let target = Target::find(&options.connection).await?;
    let plans = plans::read(&target).await?;
    let resolved = resolve(&plans, &options.name).await;
    print(&said(&plans, &resolved, &options.name, options.from.as_deref())?);
    Ok(())
}

/// The answer and what it was made from.
fn said(plans: &Plans, resolved: &Resolved, name: &str, from: Option<&str>) -> Result<String> {
    let federation = federation(plans)?;
    let (scene, from) = stand(federation, from)?;
    let find = |namespace: &str, service: &str| plans.get(&(namespace.to_owned(), service.to_owned()));
    let host = |name: &str| of_host(plans, federation.domain.as_deref(), name);
    let answer = explain(&scene, name, from, find, host, resolved);
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

/// The plan of a host.
fn of_host<'a>(plans: &'a Plans, domain: Option<&str>, host: &str) -> Option<(&'a str, &'a TrafficPlanSpec)> {
    let all = plans.iter().filter(|(_, plan)| plan.federation.is_none());
    owner(&all.map(|((namespace, _), plan)| (namespace.as_str(), plan)), domain, host)
}

/// What the host names of load balancers resolve to, as edges ask for it too. Only those are asked for that may be answered.
async fn resolve(plans: &Plans, name: &str) -> Resolved {
    let first = name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let concerned = plans.values().filter(|plan| plan.target_ref.name == first || !plan.hosts.is_empty());
    let clusters = concerned.flat_map(|plan| &plan.clusters);
    let addresses = clusters.flat_map(|cluster| cluster.addresses.iter().chain(&cluster.ingress_addresses));
    let hosts = addresses.filter(|one| one.ip.is_none()).filter_map(|one| one.hostname.as_deref());
    let hosts: BTreeSet<&str> = hosts.collect();
    let look = |host: &str| {
        let host = host.to_owned();
        async move {
            let found =
                tokio::time::timeout(RESOLVE_MAX, lookup_host((host.as_str(), 0))).await.ok()?.ok()?;
            let addresses: BTreeSet<IpAddr> = found.map(|address| address.ip()).collect();
            Some((host, addresses.into_iter().collect::<Vec<_>>()))
        }
    };
    let looks = stream::iter(hosts.into_iter().take(HOSTS_MAX).map(look).collect::<Vec<_>>());
    looks.buffer_unordered(TOGETHER_MAX).filter_map(std::future::ready).collect().await
}

/// What the edges say of each cluster.
fn verdicts(plan: &TrafficPlanSpec) -> Vec<Vec<String>> {
    let head = ["CLUSTER", "VERDICT", "SINCE", "ENDPOINTS", "LOAD", "VOTES", "WHY"];
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
        load(cluster),
        or_dash(votes.join(", ")),
        or_dash(verdict.reason.clone()),
    ]
}

/// What a cluster carries of what it can, in requests a second.
fn load(cluster: &PlanCluster) -> String {
    match (cluster.load, cluster.capacity) {
        (Some(load), Some(capacity)) => format!("{load:.0} of {capacity:.0} requests/s"),
        (Some(load), None) => format!("{load:.0} requests/s"),
        (None, Some(capacity)) => format!("room for {capacity:.0} requests/s"),
        (None, None) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::landfall::{FEDERATION_PLAN, PlanFederation, PlanMember, SYSTEM_NAMESPACE, Verdict};

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

    /// What an answer is made from is in it: how far clusters are, what they carry, and the fence.
    #[test]
    fn answers_are_told_with_distance_load_and_fence() {
        let mut plans = plans();
        let web = plans.get_mut(&("default".to_owned(), "web".to_owned())).unwrap();
        web.fence = vec!["east".to_owned()];
        (web.clusters[0].load, web.clusters[0].capacity) = (Some(180.4), Some(200.0));
        let choice = landfall_api::landfall::PlanChoice {
            cluster: "east".to_owned(),
            fraction: 1.0,
            reason: "Nearest: 41 ms away".to_owned(),
        };
        web.vantages =
            vec![landfall_api::landfall::PlanVantage { choices: vec![choice], ..Default::default() }];
        let said = said(&plans, &Resolved::new(), "web.default.fed.example.com", Some("west")).unwrap();
        for told in ["never outside the fence: east", "180 of 200 requests/s", "Nearest: 41 ms away"] {
            assert!(said.contains(told), "{told:?} is not in {said}");
        }
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
            let said = said(&plans, &Resolved::new(), name, from).unwrap();
            assert!(said.contains("A 192.0.2.1") && !said.contains("A 192.0.2.2"), "{said}");
            assert!(said.contains("not west") && said.contains("e1 down"), "{said}");
        }
        let nothing = said(&plans, &Resolved::new(), "other.example.net", None).unwrap();
        assert!(nothing.contains("no zone of ours has this name"), "{nothing}");
        let wrong = said(&plans, &Resolved::new(), "web.default.fed.example.com", Some("nowhere"))
            .unwrap_err()
            .to_string();
        assert!(wrong.contains("there are the clusters east, west"), "{wrong}");
        assert!(
            said(&Plans::new(), &Resolved::new(), "x", None)
                .unwrap_err()
                .to_string()
                .contains("landfall status")
        );
    }
}
