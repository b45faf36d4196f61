//! The seed's federation, and packets to ask it with.

use std::net::IpAddr;

use hickory_proto::op::Message;
use landfall_api::landfall::{
    Address, PlanChoice, PlanCluster, PlanEdge, PlanFederation, PlanMember, PlanPod, PlanPort, PlanPrefix,
    PlanVantage, TrafficPlanSpec, Verdict,
};
use landfall_dns::{Config, Key, Responder};
use landfall_plan::records::Resolved;
use landfall_runtime::metrics::Registry;

/// The seed's name.
pub(crate) const SEED: &str = "my-service.my-namespace.my-federation.my-domain.com";
/// The seed's addresses, of cluster-1, cluster-2, cluster-3.
pub(crate) const ADDRESSES: [&str; 3] = ["104.197.117.10", "104.197.74.77", "104.197.38.157"];

/// Three members: in America, Europe and Asia.
pub(crate) fn federation() -> PlanFederation {
    let member = |(n, region): (usize, &str)| PlanMember {
        name: format!("cluster-{n}"),
        region: Some(region.into()),
        zones: vec![format!("{region}-a")],
        coordinates: None,
    };
    let prefix = |cidr: &str, region: &str| PlanPrefix {
        cidr: cidr.into(),
        region: Some(region.into()),
        ..PlanPrefix::default()
    };
    let edge = |n: usize| PlanEdge {
        name: format!("edge-{n}"),
        cluster: format!("cluster-{n}"),
        addresses: vec![Address { ip: Some(format!("192.0.2.{n}")), hostname: None }],
        alive: true,
        ..PlanEdge::default()
    };
    PlanFederation {
        name: "my-federation".into(),
        domain: Some("my-domain.com".into()),
        members: [(1, "america"), (2, "europe"), (3, "asia")].map(member).into(),
        edges: (1..=3).map(edge).collect(),
        prefixes: vec![
            prefix("5.0.0.0/8", "america"),
            prefix("81.2.64.0/18", "europe"),
            prefix("1.112.0.0/12", "asia"),
            prefix("2001:db8:8000::/33", "asia"),
        ],
    }
}

/// The seed's service, in all three.
pub(crate) fn plan() -> TrafficPlanSpec {
    let cluster = |n: usize| PlanCluster {
        name: format!("cluster-{n}"),
        addresses: vec![Address { ip: Some(ADDRESSES[n - 1].into()), hostname: None }],
        cluster_ips: vec![format!("10.0.153.18{}", 4 + n)],
        verdict: Verdict { up: true, ..Verdict::default() },
        endpoints: 2,
        ..PlanCluster::default()
    };
    let port = |name: &str, port| PlanPort { name: name.into(), port, ..PlanPort::default() };
    let mut plan = TrafficPlanSpec {
        ports: vec![port("client", 2379), port("peer", 2380)],
        clusters: (1..=3).map(cluster).collect(),
        vantages: (1..=3).map(vantage).collect(),
        ..TrafficPlanSpec::default()
    };
    plan.target_ref.name = "my-service".into();
    plan
}

fn vantage(own: usize) -> PlanVantage {
    let order = [own, own % 3 + 1, (own + 1) % 3 + 1];
    let choice = |(at, n): (usize, &usize)| PlanChoice {
        cluster: format!("cluster-{n}"),
        fraction: if at == 0 { 1.0 } else { 0.0 },
        reason: String::new(),
    };
    PlanVantage {
        cluster: Some(format!("cluster-{own}")),
        region: None,
        choices: order.iter().enumerate().map(choice).collect(),
    }
}

/// A service in one member, with changes.
pub(crate) fn small(name: &str, change: impl Fn(&mut TrafficPlanSpec)) -> TrafficPlanSpec {
    let mut plan = plan();
    plan.target_ref.name = name.into();
    plan.clusters.truncate(1);
    change(&mut plan);
    plan
}

/// All services of the lab: the seed's, and one for each thing that can be otherwise.
pub(crate) fn plans() -> Vec<TrafficPlanSpec> {
    let hostname = |name: &str| vec![Address { ip: None, hostname: Some(name.into()) }];
    let pod = |hostname: Option<&str>, ips: &[&str]| PlanPod {
        hostname: hostname.map(Into::into),
        ips: ips.iter().map(|ip| (*ip).into()).collect(),
    };
    vec![
        plan(),
        small("lonely", |plan| plan.dns_ttl_seconds = Some(5)),
        small("balanced", |plan| plan.clusters[0].addresses = hostname("lb.example.net")),
        small("six", |plan| plan.clusters[0].addresses[0].ip = Some("2001:db8::6".into())),
        small("shop", |plan| {
            plan.hosts =
                ["shop.example.net", "*.apps.example.net", "www.my-domain.com"].map(Into::into).into();
        }),
        small("fronted", |plan| {
            plan.hosts = vec!["front.example.net".into()];
            plan.clusters[0].ingress_addresses =
                vec![Address { ip: Some("198.51.100.7".into()), hostname: None }];
        }),
        small("headless", |plan| {
            plan.clusters[0].addresses.clear();
            plan.clusters[0].cluster_ips = vec!["None".into()];
            plan.clusters[0].pods = vec![pod(Some("db-0"), &["10.1.0.1"]), pod(None, &["10.1.0.2"])];
        }),
        small("large", |plan| {
            let ips = (0..120).map(|n| Address { ip: Some(format!("198.51.100.{n}")), hostname: None });
            plan.clusters[0].addresses = ips.collect();
        }),
    ]
}

pub(crate) fn config() -> Config {
    Config {
        cluster: Some("cluster-1".into()),
        inside: vec!["10.0.0.0/8".into()],
        nsid: Some("edge-1".into()),
        rate: None,
        cookie_secrets: vec![[7; 16]],
        keys: vec![Key { name: "secondary".into(), secret: b"a secret of 32 bytes or thereby.".to_vec() }],
        ..Config::default()
    }
}

/// A responder that knows all of it.
pub(crate) fn responder(config: &Config) -> Responder {
    let responder = Responder::new(config, &Registry::default()).unwrap();
    let plans = plans();
    responder.publish(&federation(), plans.iter().map(|plan| ("my-namespace", plan)), Resolved::new());
    responder
}

/// A question, as bytes.
pub(crate) fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut packet = vec![0xAB, 0xCD, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        packet.push(u8::try_from(label.len()).unwrap());
        packet.extend(label.bytes());
    }
    packet.push(0);
    packet.extend(kind.to_be_bytes());
    packet.extend([0, 1]);
    packet
}

/// The same with extensions: a size, and options as number and value.
pub(crate) fn extended(name: &str, kind: u16, size: u16, options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut packet = question(name, kind);
    packet[11] = 1;
    packet.extend([0, 0, 41]);
    packet.extend(size.to_be_bytes());
    packet.extend([0; 4]);
    let data: Vec<u8> = options
        .iter()
        .flat_map(|(number, value)| {
            let length = u16::try_from(value.len()).unwrap();
            [&number.to_be_bytes()[..], &length.to_be_bytes(), value].concat()
        })
        .collect();
    packet.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
    packet.extend(data);
    packet
}

/// Asks by UDP.
pub(crate) fn ask(responder: &Responder, client: &str, packet: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![0; 1232];
    let client: IpAddr = client.parse().unwrap();
    let length = responder.respond_udp(client, packet, &mut out, 1)?;
    out.truncate(length);
    Some(out)
}

/// A reply in words: code, flags, then the records of each section.
pub(crate) fn say(reply: &[u8]) -> String {
    let message = Message::from_vec(reply).expect("a reply that another implementation can read");
    let mut words = vec![format!("{:?}", message.metadata.response_code)];
    words.extend(message.metadata.authoritative.then(|| "aa".into()));
    words.extend(message.metadata.truncation.then(|| "tc".into()));
    for (section, records) in
        [("", &message.answers), ("authority", &message.authorities), ("additional", &message.additionals)]
    {
        for record in records {
            let name = record.name.to_ascii();
            let short = name.trim_end_matches('.').replace("my-service.my-namespace.my-federation", "SEED");
            let data = record.data.to_string().replace("my-service.my-namespace.my-federation", "SEED");
            let data =
                if record.record_type().to_string() == "SOA" { String::new() } else { format!(" {data}") };
            words.push(format!("{section}[{short} {} {}{data}]", record.ttl, record.record_type()));
        }
    }
    words.join(" ").trim().to_owned()
}
