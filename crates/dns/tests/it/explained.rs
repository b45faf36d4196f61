//! What is explained is what is answered, whatever the plans say.

use std::net::IpAddr;

use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use landfall_api::landfall::{Address, TrafficPlanSpec, WhenAllDown};
use landfall_dns::Responder;
use landfall_plan::records::explain::{From, explain};
use landfall_plan::records::hosts::owner;
use landfall_plan::records::{Resolved, Scene};
use landfall_runtime::metrics::Registry;
use proptest::prelude::*;

use crate::lab::{SEED, config, federation, plan, question};

const HOST: &str = "shop.example.net";
/// Clients in America, in Europe, in Asia, anywhere, and inside cluster-1.
const CLIENTS: [&str; 5] = ["5.1.1.1", "81.2.70.1", "1.113.0.1", "198.51.100.1", "10.1.1.1"];

/// One cluster: up, cordoned, endpoints, reached from outside, with an Ingress.
type Facts = (bool, bool, bool, bool, bool);

fn planned(facts: &[Facts], closed: bool, fence: Option<usize>) -> TrafficPlanSpec {
    let mut plan = plan();
    plan.hosts = vec![HOST.into(), "*.apps.example.net".into()];
    plan.when_all_down = if closed { WhenAllDown::Closed } else { WhenAllDown::Open };
    plan.fence = fence.map(|n| format!("cluster-{n}")).into_iter().collect();
    for (at, (up, cordoned, ready, outside, ingress)) in facts.iter().enumerate() {
        let cluster = &mut plan.clusters[at];
        (cluster.verdict.up, cluster.cordoned, cluster.endpoints) = (*up, *cordoned, i32::from(*ready));
        if !outside {
            cluster.addresses.clear();
        }
        if *ingress {
            let ip = Some(format!("203.0.113.{at}"));
            cluster.ingress_addresses = vec![Address { ip, hostname: None }];
        }
    }
    plan
}

fn answered(responder: &Responder, client: IpAddr, name: &str) -> Vec<String> {
    let whole = responder.respond_tcp(client, &question(name, RecordType::A.into())).unwrap();
    let message = Message::from_vec(&whole[2..]).unwrap();
    message.answers.iter().map(|record| format!("{} {}", record.record_type(), record.data)).collect()
}

fn explained(plan: &TrafficPlanSpec, client: IpAddr, name: &str) -> Vec<String> {
    let scene = Scene::new(&federation(), Some("cluster-1"));
    let inside = matches!(client, IpAddr::V4(ip) if ip.octets()[0] == 10);
    let from =
        if inside { From::cluster(&scene, "cluster-1").unwrap() } else { From::address(&scene, client) };
    let find =
        |namespace: &str, name: &str| (namespace == "my-namespace" && name == "my-service").then_some(plan);
    let host = |name: &str| owner(&[("my-namespace", plan)].into_iter(), Some("my-domain.com"), name);
    let said = explain(&scene, name, from, find, host, &Resolved::new());
    said.records.into_iter().map(|line| line.record).collect()
}

proptest! {
    #[test]
    fn what_is_explained_is_answered(facts in proptest::collection::vec(any::<Facts>(), 3), closed: bool,
            fence in proptest::option::of(1_usize..4)) {
        let plan = planned(&facts, closed, fence);
        let responder = Responder::new(&config(), &Registry::default()).unwrap();
        responder.publish(&federation(), [("my-namespace", &plan)].into_iter(), Resolved::new());
        for client in CLIENTS {
            let client: IpAddr = client.parse().unwrap();
            for name in [SEED, HOST, "a.apps.example.net", "apps.example.net", "b.shop.example.net"] {
                prop_assert_eq!(answered(&responder, client, name), explained(&plan, client, name), "{} {}", client, name);
            }
            // Never empty while something is well that the client could be sent to.
            let allowed = |at: usize| fence.is_none_or(|n| n == at + 1);
            let inside = client.to_string() == "10.1.1.1";
            let well = facts.iter().enumerate().any(|(at, (up, cordoned, ready, outside, _))| {
                *up && !cordoned && *ready && allowed(at) && (*outside || (inside && at == 0))
            });
            prop_assert!(!well || !answered(&responder, client, SEED).is_empty());
            // Who is inside is never told nothing while the own cluster is up, though nothing new goes there.
            let own = allowed(0) && facts[0].0;
            prop_assert!(!(own && inside && answered(&responder, client, SEED).is_empty()));
        }
    }
}
