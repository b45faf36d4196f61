//! The packet path of `landfall-dns`: whatever comes, nothing panics, and a reply is a reply to that packet.
//!
//! Used by the fuzz target, and by a test of `landfall-dns` that runs the corpus.

use std::net::IpAddr;

use landfall_api::landfall::{
    Address, PlanCluster, PlanFederation, PlanMember, PlanPort, TrafficPlanSpec, Verdict,
};
use landfall_dns::{Config, Key, Responder};
use landfall_runtime::metrics::Registry;

/// A packet, by UDP and by TCP, from outside and from inside.
pub fn packet(bytes: &[u8]) {
    thread_local!(static RESPONDER: Responder = responder());
    RESPONDER.with(|responder| {
        let mut out = [0; 1232];
        for client in [IpAddr::from([198, 51, 100, 1]), IpAddr::from([10, 0, 0, 1])] {
            if let Some(length) = responder.respond_udp(client, bytes, &mut out, 1) {
                check(bytes, &out[..length]);
            }
            if let Some(whole) = responder.respond_tcp(client, bytes) {
                check(bytes, &whole[2..]);
            }
        }
    });
}

fn check(packet: &[u8], reply: &[u8]) {
    assert!(reply.len() >= 12 && reply[..2] == packet[..2] && reply[2] & 0x80 != 0);
}

fn responder() -> Responder {
    let member = |n: u8| PlanMember {
        name: format!("cluster-{n}"),
        region: Some(format!("region-{n}")),
        zones: vec![format!("zone-{n}")],
        coordinates: None,
    };
    let federation = PlanFederation {
        name: "fed".into(),
        domain: Some("example.com".into()),
        members: (1..=3).map(member).collect(),
        ..PlanFederation::default()
    };
    let cluster = |n: u8| PlanCluster {
        name: format!("cluster-{n}"),
        addresses: vec![Address { ip: Some(format!("192.0.2.{n}")), hostname: None }],
        cluster_ips: vec![format!("10.0.0.{n}")],
        verdict: Verdict { up: true, ..Verdict::default() },
        endpoints: 1,
        ..PlanCluster::default()
    };
    let mut plan = TrafficPlanSpec {
        clusters: (1..=2).map(cluster).collect(),
        ports: vec![PlanPort { name: "http".into(), port: 80, ..PlanPort::default() }],
        hosts: vec!["*.example.net".into(), "shop.example.org".into()],
        ..TrafficPlanSpec::default()
    };
    plan.target_ref.name = "web".into();
    let config = Config {
        cluster: Some("cluster-1".into()),
        inside: vec!["10.0.0.0/8".into()],
        rate: None,
        cookie_secrets: vec![[7; 16]],
        keys: vec![Key { name: "key".into(), secret: vec![7; 32] }],
        ..Config::default()
    };
    let responder = Responder::new(&config, &Registry::default()).expect("settings that are right");
    responder.publish(&federation, [("ns", &plan)], Default::default());
    responder
}
