//! What this edge probes: a pure function from plans, the roster and what it knows of its own cluster to targets.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use landfall_api::landfall::{Address, PlanCluster, PlanEdge, PlanFederation, TrafficPlanSpec};
use landfall_health::distance::Place;
use landfall_health::{Check, Door, Point, Target};
use landfall_plan::quorum::{Roster, group_target, probed_port, target};

use super::book::Plans;

/// So many points of a target are known at most; probes take turns among them.
const POINTS_MAX: usize = 64;
/// The same for edges that lead to it.
const DOORS_MAX: usize = 8;
/// So many targets that others vote on are probed at most while the hub is silent.
const BEYOND_MAX: usize = 4_096;
/// So many points of a member are known at most for measuring how far it is.
const PLACE_POINTS_MAX: usize = 8;

/// Addresses of groups are probed so often, may take so long to answer, and are down after so many failures: whoever lost its group is
/// carried elsewhere within two seconds.
const GROUP_INTERVAL: Duration = Duration::from_millis(400);
const GROUP_TIMEOUT: Duration = Duration::from_millis(400);
const GROUP_DOWN: u32 = 2;

/// Which edge looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Me<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Where it stands.
    pub(crate) cluster: &'a str,
}

/// The endpoints of a service in the edge's own cluster: namespace, service, port's name. None when they are not known.
pub(crate) type Endpoints<'a> = &'a dyn Fn(&str, &str, &str) -> Option<Vec<Point>>;

/// Everything this edge votes on, with where and how it is probed. While the hub is silent nobody tells it what others see: then it
/// looks at what others vote on, too, as far as there is room.
pub(crate) fn targets(plans: &Plans, me: Me<'_>, silent: bool, endpoints: Endpoints<'_>) -> Vec<Target> {
    let edges = plans.federation.as_ref().map(|federation| federation.edges.as_slice()).unwrap_or_default();
    let roster = Roster::new(edges);
    let mut found = groups(plans, me, &roster);
    let mut beyond = if silent && roster.cluster_of(me.name).is_some() { BEYOND_MAX } else { 0 };
    for ((namespace, name), plan) in &plans.services {
        let check = plan.health_check.as_ref();
        let Some(number) = probed_port(check, &plan.ports) else { continue };
        let Ok(port) = u16::try_from(number) else { continue };
        for cluster in &plan.clusters {
            let target_name = target(&cluster.name, namespace, name, number);
            let votes = roster.voters_on(&target_name, cluster).contains(&me.name);
            if !votes && beyond == 0 {
                continue;
            }
            let port_name = || plan.ports.iter().find(|one| one.port == number).map_or("", |one| &one.name);
            let doors = if cluster.name == me.cluster || !cluster.addresses.is_empty() {
                Vec::new()
            } else {
                doors(edges, &cluster.name, (namespace, name), (port, port_name()))
            };
            let points = if cluster.name == me.cluster {
                own_points(plan, cluster, port, &|port| endpoints(namespace, name, port))
            } else {
                Some(points(&cluster.addresses, port))
            };
            let down = points.as_ref().is_some_and(Vec::is_empty) && cluster.name == me.cluster;
            let seen = |points: &Vec<Point>| down || !points.is_empty() || !doors.is_empty();
            let Some(points) = points.filter(seen) else { continue };
            beyond = beyond.saturating_sub(usize::from(!votes));
            found.push(Target {
                name: target_name,
                points,
                doors,
                check: check.map(Check::new).unwrap_or_default(),
                down: down.then(|| "no endpoint is ready".to_owned()),
            });
        }
    }
    found
}

/// The addresses of other groups that this edge votes on.
fn groups(plans: &Plans, me: Me<'_>, roster: &Roster) -> Vec<Target> {
    let mut found = Vec::new();
    for (name, plan) in &plans.groups {
        let own: BTreeSet<&str> =
            plan.members.iter().flat_map(|member| &member.edges).map(|edge| edge.name.as_str()).collect();
        for member in plan.members.iter().filter(|member| !member.edges.is_empty()) {
            let target = group_target(&member.cluster, name);
            let port = member.http_port.and_then(|port| u16::try_from(port).ok());
            let Some(port) = port.filter(|_| roster.group_voters(&target, &own).contains(&me.name)) else {
                continue;
            };
            let point = |vip: &String| Point { host: vip.clone(), port };
            let points: Vec<Point> = member.vips.iter().map(point).collect();
            let check = Check {
                interval: GROUP_INTERVAL,
                timeout: GROUP_TIMEOUT,
                down_threshold: GROUP_DOWN,
                ..Check::default()
            };
            found.push(Target { name: target, points, doors: Vec::new(), check, down: None });
        }
    }
    found
}

/// Ways to a service that has no address outside its cluster: through the edges there that let others in. Those that are silent are
/// among them: that they are is what shall be seen.
fn doors(edges: &[PlanEdge], cluster: &str, service: (&str, &str), port: (u16, &str)) -> Vec<Door> {
    let there = edges.iter().filter(|edge| edge.linked && edge.cluster == cluster);
    let door = |edge: &PlanEdge| {
        Some(Door {
            edge: edge.name.clone(),
            address: edge.peer_address.clone()?,
            namespace: service.0.to_owned(),
            service: service.1.to_owned(),
            port: port.0,
            port_name: port.1.to_owned(),
        })
    };
    there.filter_map(door).take(DOORS_MAX).collect()
}

/// Where the service is in the edge's own cluster: its endpoints if they are known (also if there are none), else its
/// addresses inside, else where clients outside reach it.
fn own_points(
    plan: &TrafficPlanSpec,
    cluster: &PlanCluster,
    port: u16,
    endpoints: &dyn Fn(&str) -> Option<Vec<Point>>,
) -> Option<Vec<Point>> {
    let name = plan.ports.iter().find(|p| p.port == i32::from(port)).map_or("", |p| p.name.as_str());
    if let Some(mut known) = endpoints(name) {
        known.truncate(POINTS_MAX);
        return Some(known);
    }
    let inside = cluster.cluster_ips.iter().filter(|ip| ip.parse::<std::net::IpAddr>().is_ok());
    let inside: Vec<Point> = inside.map(|ip| Point { host: ip.clone(), port }).collect();
    let found = if inside.is_empty() { points(&cluster.addresses, port) } else { inside };
    (!found.is_empty()).then_some(found)
}

fn points(addresses: &[Address], port: u16) -> Vec<Point> {
    let hosts =
        addresses.iter().filter_map(|address| address.ip.clone().or_else(|| address.hostname.clone()));
    hosts.take(POINTS_MAX).map(|host| Point { host, port }).collect()
}

/// The other members and where they are reached, to measure how far they are: their edges, else any service of theirs.
pub(crate) fn places(plans: &Plans, me: Me<'_>) -> Vec<Place> {
    let Some(federation) = &plans.federation else { return Vec::new() };
    let mut found = peers(federation);
    let edges: BTreeSet<&str> = found.keys().copied().collect();
    let members: BTreeSet<&str> = federation.members.iter().map(|member| member.name.as_str()).collect();
    found.retain(|cluster, _| *cluster != me.cluster && members.contains(cluster));
    for plan in plans.services.values() {
        let Some(port) = probed_port(None, &plan.ports).and_then(|port| u16::try_from(port).ok()) else {
            continue;
        };
        for cluster in plan.clusters.iter().filter(|cluster| cluster.name != me.cluster && cluster.verdict.up)
        {
            let known = found.entry(cluster.name.as_str()).or_default();
            if known.is_empty() && members.contains(cluster.name.as_str()) {
                known.extend(points(&cluster.addresses, port));
            }
        }
    }
    let place = |(cluster, mut points): (&str, Vec<Point>)| {
        points.truncate(PLACE_POINTS_MAX);
        Place { cluster: cluster.to_owned(), points, edges: edges.contains(cluster) }
    };
    found.into_iter().filter(|(_, points)| !points.is_empty()).map(place).collect()
}

/// Edges that can be reached, by member.
fn peers(federation: &PlanFederation) -> BTreeMap<&str, Vec<Point>> {
    let mut found: BTreeMap<&str, Vec<Point>> = BTreeMap::new();
    for edge in federation.edges.iter().filter(|edge| edge.alive) {
        let address = edge.peer_address.as_deref().and_then(|address| address.rsplit_once(':'));
        let Some((host, Ok(port))) = address.map(|(host, port)| (host, port.parse())) else { continue };
        let host = host.trim_matches(['[', ']']).to_owned();
        found.entry(&edge.cluster).or_default().push(Point { host, port });
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use landfall_api::landfall::{
        GroupPlanEdge, GroupPlanMember, GroupPlanSpec, PlanEdge, PlanMember, PlanPort, Verdict,
    };

    use super::*;

    fn cluster(name: &str, ip: &str, inside: &str) -> PlanCluster {
        PlanCluster {
            name: name.into(),
            addresses: vec![Address { ip: Some(ip.into()), hostname: None }],
            cluster_ips: vec![inside.into()],
            verdict: Verdict { up: true, ..Verdict::default() },
            ..PlanCluster::default()
        }
    }

    fn plans(protocol: &str) -> Plans {
        let plan = TrafficPlanSpec {
            ports: vec![PlanPort {
                name: "http".into(),
                port: 80,
                protocol: protocol.into(),
                node_port: None,
                ..PlanPort::default()
            }],
            clusters: vec![cluster("a", "192.0.2.1", "10.0.0.1"), cluster("b", "192.0.2.2", "None")],
            ..TrafficPlanSpec::default()
        };
        let edge = |name: &str, peer: Option<&str>| PlanEdge {
            name: format!("{name}-1"),
            cluster: name.into(),
            peer_address: peer.map(str::to_owned),
            alive: true,
            ..PlanEdge::default()
        };
        let member = |name: &str| PlanMember { name: name.into(), ..PlanMember::default() };
        let federation = PlanFederation {
            edges: vec![edge("a", Some("[::1]:53")), edge("b", None), edge("c", Some("198.51.100.3:53"))],
            members: vec![member("a"), member("b"), member("c")],
            ..PlanFederation::default()
        };
        let services = [(("default".into(), "web".into()), Arc::new(plan))];
        Plans {
            services: services.into_iter().collect(),
            federation: Some(Arc::new(federation)),
            ..Plans::default()
        }
    }

    #[test]
    fn addresses_of_other_groups_are_looked_at_where_their_edges_say_their_port() {
        let member = |port: Option<i32>| GroupPlanMember {
            cluster: "a".into(),
            vips: vec!["192.0.2.100".into()],
            http_port: port,
            edges: vec![GroupPlanEdge { name: "a-1".into(), ..GroupPlanEdge::default() }],
            ..GroupPlanMember::default()
        };
        let check = |name: &str, port: Option<i32>, expected: &[&str]| {
            let mut plans = plans("UDP");
            let plan = GroupPlanSpec { members: vec![member(port)], ..GroupPlanSpec::default() };
            plans.groups.insert("blue".into(), Arc::new(plan));
            let cluster = name.split('-').next().unwrap();
            assert_eq!(shown(&plans, name, cluster, &|_, _, _| None), expected, "{name}");
        };
        check("b-1", Some(80), &["a/group/blue at 192.0.2.100:80"]);
        check("c-1", Some(80), &["a/group/blue at 192.0.2.100:80"]);
        check("a-1", Some(80), &[]);
        check("b-1", None, &[]);
    }

    fn shown(plans: &Plans, name: &str, cluster: &str, endpoints: Endpoints<'_>) -> Vec<String> {
        shown_while(false, plans, name, cluster, endpoints)
    }

    fn shown_while(
        silent: bool,
        plans: &Plans,
        name: &str,
        cluster: &str,
        endpoints: Endpoints<'_>,
    ) -> Vec<String> {
        let me = Me { name, cluster };
        let show = |target: Target| {
            let points = target.points.iter().map(|p| format!("{}:{}", p.host, p.port));
            let doors = target.doors.iter().map(|door| format!("edge {}", door.edge));
            let points: Vec<_> = points.chain(doors).collect();
            format!("{} at {}{}", target.name, points.join(","), target.down.unwrap_or_default())
        };
        targets(plans, me, silent, endpoints).into_iter().map(show).collect()
    }

    #[test]
    fn the_own_cluster_is_probed_inside_and_others_where_clients_go() {
        let plans = plans("TCP");
        let unknown: Endpoints<'_> = &|_, _, _| None;
        assert_eq!(
            shown(&plans, "a-1", "a", unknown),
            ["a/default/web:80 at 10.0.0.1:80", "b/default/web:80 at 192.0.2.2:80"]
        );
        // No address inside: where clients go.
        assert_eq!(
            shown(&plans, "b-1", "b", unknown),
            ["a/default/web:80 at 192.0.2.1:80", "b/default/web:80 at 192.0.2.2:80"]
        );
        let known: Endpoints<'_> =
            &|_, _, port| Some(vec![Point { host: format!("pod-{port}"), port: 8080 }]);
        assert_eq!(shown(&plans, "a-1", "a", known)[0], "a/default/web:80 at pod-http:8080");
        let none: Endpoints<'_> = &|_, _, _| Some(Vec::new());
        assert_eq!(shown(&plans, "a-1", "a", none)[0], "a/default/web:80 at no endpoint is ready");
        assert!(
            shown(&plans, "stranger", "a", unknown).is_empty(),
            "whoever is not on the roster has no vote"
        );
    }

    #[test]
    fn what_has_no_address_outside_is_looked_at_through_edges_there() {
        let mut plans = plans("TCP");
        let web = plans.services.get_mut(&("default".into(), "web".into())).unwrap();
        Arc::make_mut(web).clusters.iter_mut().for_each(|cluster| cluster.addresses.clear());
        let federation = Arc::make_mut(plans.federation.as_mut().unwrap());
        federation.edges.iter_mut().for_each(|edge| edge.linked = true);
        let unknown: Endpoints<'_> = &|_, _, _| None;
        let through = "a/default/web:80 at edge a-1";
        assert_eq!(
            shown(&plans, "c-1", "c", unknown),
            [through],
            "b's edge has no address, so only b sees it"
        );
        assert_eq!(shown(&plans, "a-1", "a", unknown), ["a/default/web:80 at 10.0.0.1:80"]);
        // Also when it is silent.
        Arc::make_mut(plans.federation.as_mut().unwrap()).edges[0].alive = false;
        assert_eq!(shown(&plans, "c-1", "c", unknown), [through]);
        Arc::make_mut(plans.federation.as_mut().unwrap()).edges[0].linked = false;
        assert!(shown(&plans, "c-1", "c", unknown).is_empty());
    }

    /// Five of nine edges vote on a target. The other four had no eyes of their own when the hub was gone, and sent clients to a
    /// dead cluster.
    #[test]
    fn while_the_hub_is_silent_everything_is_looked_at() {
        let mut plans = plans("TCP");
        let federation = Arc::make_mut(plans.federation.as_mut().unwrap());
        let edge = |at: usize| PlanEdge {
            name: format!("e-{at}"),
            cluster: format!("e{at}"),
            alive: true,
            ..PlanEdge::default()
        };
        federation.edges.extend((0..9).map(edge));
        let unknown: Endpoints<'_> = &|_, _, _| None;
        let both = ["a/default/web:80 at 192.0.2.1:80", "b/default/web:80 at 192.0.2.2:80"];
        let seen = |plans: &Plans, silent: bool| -> Vec<usize> {
            (0..9)
                .map(|at| shown_while(silent, plans, &format!("e-{at}"), &format!("e{at}"), unknown).len())
                .collect()
        };
        assert!(seen(&plans, false).contains(&0), "{:?}", seen(&plans, false));
        assert_eq!(seen(&plans, true), [2; 9]);
        assert_eq!(shown_while(true, &plans, "e-0", "e0", unknown), both);
        assert!(shown_while(true, &plans, "stranger", "e0", unknown).is_empty());

        let web = plans.services.get(&("default".into(), "web".into())).unwrap().clone();
        for at in 0..BEYOND_MAX {
            plans.services.insert(("many".into(), format!("web-{at}")), web.clone());
        }
        let (usual, all) = (seen(&plans, false)[0], seen(&plans, true)[0]);
        assert_eq!(all - usual, BEYOND_MAX, "there is an end to it");
    }

    #[test]
    fn what_does_not_speak_tcp_is_not_probed() {
        assert!(shown(&plans("UDP"), "a-1", "a", &|_, _, _| None).is_empty());
    }

    #[test]
    fn members_are_measured_at_their_edges_or_else_at_their_services() {
        let got = places(&plans("TCP"), Me { name: "a-1", cluster: "a" });
        let shown: Vec<String> =
            got.iter().map(|place| format!("{} {}", place.cluster, place.points[0].host)).collect();
        assert_eq!(shown, ["b 192.0.2.2", "c 198.51.100.3"]);
        assert_eq!((got[0].edges, got[1].edges), (false, true));
        let got = places(&plans("TCP"), Me { name: "c-1", cluster: "c" });
        assert_eq!((got[0].cluster.as_str(), got[0].points[0].host.as_str()), ("a", "::1"));
    }
}
