//! The seed's service in three members, and what is asked of every answer.

use std::net::IpAddr;

use landfall_api::landfall::{
    Address, DnsAnswer, PlanChoice, PlanCluster, PlanFederation, PlanMember, PlanPort, PlanVantage,
    TrafficPlanSpec, Verdict, WhenAllDown,
};
use proptest::prelude::*;

use super::Scene;
use super::answers::{Answers, Resolved, Standing};
use super::explain::{self, From};
use super::names::Scope;
use super::places::Place;
use super::sets::{Answer, Data, above, answer, of_service};

fn federation() -> PlanFederation {
    let member = |n: u8| PlanMember {
        name: format!("cluster-{n}"),
        region: Some(format!("region-{n}")),
        zones: vec![format!("zone-{n}")],
        coordinates: None,
    };
    PlanFederation {
        name: "my-federation".into(),
        domain: Some("my-domain.com".into()),
        members: (1..=3).map(member).collect(),
        ..PlanFederation::default()
    }
}

fn cluster(n: u8, ip: &str) -> PlanCluster {
    PlanCluster {
        name: format!("cluster-{n}"),
        addresses: vec![Address { ip: Some(ip.into()), hostname: None }],
        cluster_ips: vec![format!("10.0.153.18{n}")],
        verdict: Verdict { up: true, votes_up: 5, ..Verdict::default() },
        endpoints: 2,
        ..PlanCluster::default()
    }
}

fn vantage(cluster: Option<&str>, order: &[(u8, f64)]) -> PlanVantage {
    let choice = |(n, fraction): &(u8, f64)| PlanChoice {
        cluster: format!("cluster-{n}"),
        fraction: *fraction,
        reason: format!("it is cluster {n}"),
    };
    PlanVantage {
        cluster: cluster.map(Into::into),
        region: None,
        choices: order.iter().map(choice).collect(),
    }
}

fn plan() -> TrafficPlanSpec {
    let mut plan = TrafficPlanSpec {
        ports: vec![PlanPort { name: "client".into(), port: 2379, ..PlanPort::default() }],
        clusters: vec![
            cluster(1, "104.197.117.10"),
            cluster(2, "104.197.74.77"),
            cluster(3, "104.197.38.157"),
        ],
        vantages: vec![
            vantage(Some("cluster-1"), &[(1, 1.0), (2, 0.0), (3, 0.0)]),
            vantage(Some("cluster-3"), &[(3, 1.0), (2, 0.0)]),
        ],
        ..TrafficPlanSpec::default()
    };
    plan.target_ref.name = "my-service".into();
    plan
}

/// The addresses of the seed's name, joined.
fn addresses(plan: &TrafficPlanSpec, own: &str, place: Place, inside: bool) -> String {
    let scene = Scene::new(&federation(), Some(own));
    let none = Resolved::new();
    let answers = Answers::new(&scene, plan, &none);
    match answer(&scene, &answers, place, Scope::All, None, inside) {
        Answer::Cname(to) => format!("CNAME {to}"),
        Answer::Addresses(list) => list.iter().map(|(_, ip)| ip.to_string()).collect::<Vec<_>>().join(" "),
    }
}

#[test]
fn the_seed_prints_three_addresses_and_the_local_one_first_inside() {
    let [one, two, three] = ["104.197.117.10", "104.197.74.77", "104.197.38.157"];
    let unknown = Place::Unknown;
    let near = Place::Member;
    let check = |own, place, inside, want: &[&str]| {
        assert_eq!(addresses(&plan(), own, place, inside), want.join(" "), "{own} {place:?} {inside}");
    };
    check("cluster-1", unknown, false, &[one, two, three]);
    check("cluster-1", unknown, true, &["10.0.153.181", two, three]);
    check("cluster-1", near(2), false, &[three, two, one]);
    check("cluster-1", Place::Region(2), false, &[three, two, one]);
    check("cluster-2", unknown, false, &[two, one, three]);
    check("cluster-2", unknown, true, &["10.0.153.182", one, three]);
}

type Change = fn(&mut TrafficPlanSpec);

/// What a client of whom nothing is known is told, the seed's addresses being 1, 2 and 3.
fn check(name: &str, change: Change, want: &str) {
    let mut plan = plan();
    change(&mut plan);
    let short = addresses(&plan, "cluster-1", Place::Unknown, false)
        .replace("104.197.117.10", "1")
        .replace("104.197.74.77", "2")
        .replace("104.197.38.157", "3");
    assert_eq!(short, want, "{name}");
}

#[test]
fn who_is_named() {
    check("down", |p| p.clusters[0].verdict.up = false, "2 3");
    check("no endpoints", |p| p.clusters[1].endpoints = 0, "1 3");
    check("cordoned", |p| p.clusters[0].cordoned = true, "2 3");
    check("fence", |p| p.fence = vec!["cluster-2".into(), "cluster-3".into()], "2 3");
    check("all empty", |p| p.clusters.iter_mut().for_each(|c| c.endpoints = 0), "1 2 3");
    check("all cordoned", |p| p.clusters.iter_mut().for_each(|c| c.cordoned = true), "1 2 3");
    check(
        "one cordoned, the rest down",
        |p| {
            p.clusters.iter_mut().for_each(|c| c.verdict.up = false);
            p.clusters[2].verdict.up = true;
            p.clusters[2].cordoned = true;
        },
        "3",
    );
    check("all down, open", |p| p.clusters.iter_mut().for_each(|c| c.verdict.up = false), "1 2 3");
    check(
        "all down, open, fenced",
        |p| {
            p.clusters.iter_mut().for_each(|c| c.verdict.up = false);
            p.fence = vec!["cluster-2".into()];
        },
        "2",
    );
    check(
        "all down, closed",
        |p| {
            p.clusters.iter_mut().for_each(|c| c.verdict.up = false);
            p.when_all_down = WhenAllDown::Closed;
        },
        "",
    );
}

/// What clients inside cluster-1, and elsewhere, are told of a service that is only reached inside.
#[test]
fn what_is_only_reached_inside_is_told_inside() {
    let check = |name: &str, change: Change, inside: &str, elsewhere: &str| {
        let mut plan = plan();
        plan.clusters.iter_mut().for_each(|cluster| cluster.addresses.clear());
        change(&mut plan);
        let told = |inside| addresses(&plan, "cluster-1", Place::Unknown, inside);
        assert_eq!((told(true).as_str(), told(false).as_str()), (inside, elsewhere), "{name}");
    };
    let own = "10.0.153.181";
    check("well", |_| {}, own, "");
    check("cordoned", |p| p.clusters[0].cordoned = true, own, "");
    check("no endpoints", |p| p.clusters[0].endpoints = 0, own, "");
    check("not in the fence", |p| p.fence = vec!["cluster-2".into()], "", "");
    let three = "104.197.38.157";
    let open: Change = |p| {
        p.clusters[0].cordoned = true;
        p.clusters[2].addresses = vec![Address { ip: Some("104.197.38.157".into()), hostname: None }];
    };
    check("cordoned, and another can be reached", open, three, three);
    check(
        "only the cordoned can be reached from elsewhere",
        |p| {
            p.clusters[1].cordoned = true;
            p.clusters[1].addresses = vec![Address { ip: Some("104.197.74.77".into()), hostname: None }];
        },
        own,
        "104.197.74.77",
    );
    // Others do not reach it, its own edges do, so it is in the plan for its own clients.
    check("down for others", |p| p.clusters[0].verdict.up = false, own, "");
    check(
        "down for its own, too",
        |p| {
            p.clusters[0].verdict.up = false;
            p.vantages[0] = vantage(Some("cluster-1"), &[(2, 1.0)]);
            p.when_all_down = WhenAllDown::Closed;
        },
        "",
        "",
    );
}

#[test]
fn policies_and_host_names() {
    check("nearest only", |p| p.dns_answer = DnsAnswer::NearestOnly, "1");
    check(
        "nearest is full",
        |p| {
            p.dns_answer = DnsAnswer::NearestOnly;
            p.vantages[0] = vantage(Some("cluster-1"), &[(1, 0.0), (3, 1.0)]);
        },
        "3",
    );
    check(
        "the plan names one that is down",
        |p| {
            p.vantages[0] = vantage(Some("cluster-1"), &[(2, 1.0)]);
            p.clusters[1].verdict.up = false;
        },
        "1 3",
    );
    check("the plan names none", |p| p.vantages.clear(), "1 2 3");
    check(
        "only a host name",
        |p| {
            p.clusters.truncate(1);
            p.clusters[0].addresses[0] = Address { ip: None, hostname: Some("LB.example.net.".into()) };
        },
        "CNAME lb.example.net",
    );
    check(
        "a host name among addresses",
        |p| {
            p.clusters[0].addresses[0] = Address { ip: None, hostname: Some("lb.example.net".into()) };
        },
        "2 3",
    );
}

#[test]
fn a_load_balancers_name_is_flattened_when_it_is_known() {
    let mut plan = plan();
    plan.clusters[0].addresses[0] = Address { ip: None, hostname: Some("lb.example.net".into()) };
    let scene = Scene::new(&federation(), Some("cluster-1"));
    let ips: Vec<IpAddr> = vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
    let resolved = Resolved::from([("lb.example.net".to_owned(), ips.clone())]);
    let answers = Answers::new(&scene, &plan, &resolved);
    assert_eq!(answers.targets[0].addresses, ips);
    assert_eq!(answers.targets[0].hostname, None);
}

/// Federation v1's own vector: foo is healthy, bar is not.
#[test]
fn a_zone_without_shards_points_upwards() {
    let mut plan = plan();
    plan.clusters.retain(|cluster| cluster.name == "cluster-1");
    let scene = Scene::new(&federation(), Some("cluster-1"));
    let none = Resolved::new();
    let answers = Answers::new(&scene, &plan, &none);
    let sets = of_service(&scene, ("ns", "svc"), &answers, Place::Unknown);
    let find = |name: &str| -> Vec<&Data> {
        sets.iter().filter(|set| set.name == name).map(|set| &set.data).collect()
    };
    let stem = "svc.ns.my-federation.svc";
    let healthy = Data::A(vec!["104.197.117.10".parse().unwrap()]);
    for level in ["", "region-1.", "zone-1.region-1."] {
        assert_eq!(find(&format!("{stem}.{level}my-domain.com")), [&healthy], "{level}");
    }
    for (level, up) in [("zone-2.region-2.", "region-2."), ("region-2.", "")] {
        let up = Data::Cname(format!("{stem}.{up}my-domain.com"));
        assert_eq!(find(&format!("{stem}.{level}my-domain.com")), [&up], "{level}");
    }
    let Data::Cname(to) = find(&format!("_client._tcp.{stem}.zone-2.region-2.my-domain.com"))[0] else {
        panic!()
    };
    assert_eq!(*to, format!("_client._tcp.{stem}.region-2.my-domain.com"));
    let Data::Srv(rows) = find(&format!("_client._tcp.{stem}.my-domain.com"))[0] else { panic!() };
    assert_eq!(rows[0].target, format!("cluster-1.{stem}.my-domain.com"));
    assert_eq!(find(&rows[0].target), [&healthy]);
    assert_eq!(above(&scene, "a.b", Scope::All), None);
}

#[test]
fn an_answer_in_words() {
    let mut plan = plan();
    plan.clusters[1].verdict = Verdict { up: false, votes_up: 1, votes_down: 4, ..Verdict::default() };
    let scene = Scene::new(&federation(), Some("cluster-1"));
    let none = Resolved::new();
    let find =
        |namespace: &str, name: &str| ((namespace, name) == ("my-namespace", "my-service")).then_some(&plan);
    let say = |name: &str, from| explain::explain(&scene, name, from, find, |_| None, &none).to_string();
    let name = "my-service.my-namespace.my-federation.svc.zone-2.region-2.my-domain.com";
    let said = say(name, From::cluster(&scene, "cluster-1").unwrap());
    let want = "\
my-service.my-namespace.my-federation.svc.zone-2.region-2.my-domain.com from inside cluster cluster-1
service my-namespace/my-service, TTL 10 s
  CNAME my-service.my-namespace.my-federation.svc.region-2.my-domain.com  (no shard in zone zone-2 is well)
  CNAME my-service.my-namespace.my-federation.svc.my-domain.com           (no shard in region region-2 is well)
  A 10.0.153.181                                                          cluster-1 (it is cluster 1; 5 of 5 voters say up; its address inside the cluster)
  A 104.197.38.157                                                        cluster-3 (it is cluster 3; 5 of 5 voters say up)
  not cluster-2: 4 of 5 voters say down (Down)
";
    assert_eq!(said, want);
    let said = say(
        "nobody.my-namespace.my-federation.my-domain.com",
        From { place: Place::Member(1), inside: false },
    );
    assert!(said.contains("from near cluster cluster-2\n  there is no plan"), "{said}");
}

#[test]
fn answers_that_failover_changes_are_kept_for_a_short_time() {
    let check = |change: Change, expected: u32| {
        let mut plan = plan();
        change(&mut plan);
        let scene = Scene::new(&federation(), Some("cluster-1"));
        assert_eq!(Answers::new(&scene, &plan, &Resolved::new()).ttl_s, expected, "{plan:?}");
    };
    check(|_| {}, 180);
    check(|plan| plan.dns_ttl_seconds = Some(60), 60);
    check(|plan| plan.dns_answer = DnsAnswer::All, 180);
    check(|plan| plan.dns_answer = DnsAnswer::NearestOnly, 10);
    check(|plan| plan.dns_answer = DnsAnswer::Weighted, 10);
    let lost: Change = |plan| plan.clusters[1].verdict.up = false;
    check(lost, 10);
    check(|plan| (plan.clusters[1].verdict.up, plan.dns_failover_ttl_seconds) = (false, Some(30)), 30);
    // Who wants less still gets less.
    check(|plan| (plan.dns_answer, plan.dns_ttl_seconds) = (DnsAnswer::NearestOnly, Some(5)), 5);
}

proptest! {
    /// Whatever the plan says: never empty while something is well, never outside the fence, nobody down beside the well,
    /// nobody twice.
    #[test]
    fn answers_hold_what_was_promised(
        states in prop::collection::vec((any::<bool>(), any::<bool>(), 0_i32..2, any::<bool>()), 0..6),
        fence in any::<bool>(),
        choices in prop::collection::vec((0_u8..7, 0.0_f64..1.0), 0..8),
        policy in 0_u8..4,
        asked in 0_usize..12,
    ) {
        let mut plan = plan();
        plan.clusters = (1_u8..).zip(&states).map(|(n, (up, cordoned, endpoints, _))| {
            let mut cluster = cluster(n, &format!("192.0.2.{n}"));
            (cluster.verdict.up, cluster.cordoned, cluster.endpoints) = (*up, *cordoned, *endpoints);
            cluster
        }).collect();
        if fence {
            plan.fence = plan.clusters.iter().zip(&states).filter(|(_, s)| s.3).map(|(c, _)| c.name.clone()).collect();
            plan.fence.push("elsewhere".into());
        }
        plan.vantages = vec![vantage(Some("cluster-2"), &choices), vantage(None, &choices)];
        plan.dns_answer = [DnsAnswer::NearestFirst, DnsAnswer::NearestOnly, DnsAnswer::All, DnsAnswer::Weighted]
            [usize::from(policy)];
        let mut federation = federation();
        federation.members.truncate(2);
        let scene = Scene::new(&federation, Some("cluster-1"));
        let none = Resolved::new();
        let answers = Answers::new(&scene, &plan, &none);
        let place = scene.places.of_slot(asked % scene.places.slots());
        let Answer::Addresses(list) = answer(&scene, &answers, place, Scope::All, None, false) else { panic!() };
        let inside = |name: &String| plan.fence.is_empty() || plan.fence.contains(name);
        let well = plan.clusters.iter().filter(|c| inside(&c.name) && super::answers::well(c)).count();
        prop_assert!(well == 0 || (!list.is_empty() && answers.standing == Standing::Well));
        let mut seen = Vec::new();
        for (number, _) in &list {
            let cluster = answers.targets[usize::from(*number)].cluster;
            prop_assert!(inside(&cluster.name));
            prop_assert!(well == 0 || super::answers::well(cluster));
            prop_assert!(!seen.contains(&&cluster.name));
            seen.push(&cluster.name);
        }
        let whole = matches!(plan.dns_answer, DnsAnswer::NearestFirst | DnsAnswer::All);
        prop_assert!(!whole || well == 0 || seen.len() == well);
    }
}
