//! Every sort of packet, and what is said to it.

use hickory_proto::op::Message;
use proptest::prelude::*;

use crate::lab::{ADDRESSES, SEED, ask, config, extended, federation, plan, plans, question, responder, say};
use landfall_api::landfall::DnsAnswer;

const A: u16 = 1;
const NS: u16 = 2;
const CNAME: u16 = 5;
const SOA: u16 = 6;
const TXT: u16 = 16;
const AAAA: u16 = 28;
const SRV: u16 = 33;
const ANY: u16 = 255;

/// From a client of whom nothing is known.
fn check(name: &str, kind: u16, want: &str) {
    check_from("198.51.100.1", name, kind, want);
}

fn check_from(client: &str, name: &str, kind: u16, want: &str) {
    let responder = responder(&config());
    let reply = ask(&responder, client, &question(name, kind)).expect("a reply");
    assert_eq!(say(&reply), want, "{name} {kind} from {client}");
    let message = Message::from_vec(&reply).unwrap();
    assert_eq!(message.metadata.id, 0xABCD);
    assert!(message.metadata.recursion_desired && !message.metadata.recursion_available);
}

fn addresses(name: &str, order: [usize; 3]) -> String {
    let record = |n: usize| format!("[{name} 180 A {}]", ADDRESSES[n - 1]);
    order.map(record).join(" ")
}

#[test]
fn the_seeds_name_from_everywhere() {
    let seed = addresses("SEED.my-domain.com", [1, 2, 3]);
    check(SEED, A, &format!("NoError aa {seed}"));
    let inside = seed.replace(ADDRESSES[0], "10.0.153.185");
    check_from("10.1.2.3", SEED, A, &format!("NoError aa {inside}"));
    for (client, order) in [("5.1.2.3", [1, 2, 3]), ("81.2.69.160", [2, 3, 1]), ("1.112.0.1", [3, 1, 2])] {
        let want = addresses("SEED.my-domain.com", order);
        check_from(client, SEED, A, &format!("NoError aa {want}"));
    }
    let global = addresses("SEED.svc.my-domain.com", [1, 2, 3]);
    check("my-service.my-namespace.my-federation.svc.my-domain.com", A, &format!("NoError aa {global}"));
    let set = addresses("my-service.my-namespace.svc.clusterset.local", [1, 2, 3]);
    check("my-service.my-namespace.svc.clusterset.local", A, &format!("NoError aa {set}"));
}

#[test]
fn scopes_and_the_chain_upwards() {
    let stem = "my-service.my-namespace.my-federation.svc";
    let one = format!("[SEED.svc.europe.my-domain.com 180 A {}]", ADDRESSES[1]);
    check(&format!("{stem}.europe.my-domain.com"), A, &format!("NoError aa {one}"));
    let one = one.replace("svc.", "svc.europe-a.");
    check(&format!("{stem}.europe-a.europe.my-domain.com"), A, &format!("NoError aa {one}"));
    let lonely = "lonely.my-namespace.my-federation.svc";
    let up = |level: &str, to: &str| {
        format!("[{lonely}.{level}my-domain.com 5 CNAME {lonely}.{to}my-domain.com.]")
    };
    let end = format!("[{lonely}.my-domain.com 5 A {}]", ADDRESSES[0]);
    let chain = format!("{} {}", up("asia-a.asia.", "asia."), up("asia.", ""));
    let asked = format!("{lonely}.asia-a.asia.my-domain.com");
    check(&asked, A, &format!("NoError aa {chain} {end}"));
    check(&asked, CNAME, &format!("NoError aa {}", up("asia-a.asia.", "asia.")));
    check(&asked, AAAA, &format!("NoError aa {chain} authority[my-domain.com 30 SOA]"));
    check(&format!("{lonely}.america.my-domain.com"), CNAME, "NoError aa authority[my-domain.com 30 SOA]");
    let srv = format!("_client._tcp.{lonely}");
    check(
        &format!("{srv}.asia.my-domain.com"),
        SRV,
        &format!(
            "NoError aa [{srv}.asia.my-domain.com 5 CNAME {srv}.my-domain.com.] \
         [{srv}.my-domain.com 5 SRV 0 100 2379 cluster-1.{lonely}.my-domain.com.] \
         additional[cluster-1.{lonely}.my-domain.com 5 A {}]",
            ADDRESSES[0]
        ),
    );
}

#[test]
fn services_shards_and_pods() {
    let port = |n: u8, at: u8| {
        format!("[_client._tcp.SEED.my-domain.com 180 SRV {at} 100 2379 cluster-{n}.SEED.my-domain.com.]")
    };
    let glue = |n: usize| format!("additional[cluster-{n}.SEED.my-domain.com 180 A {}]", ADDRESSES[n - 1]);
    check(
        &format!("_client._tcp.{SEED}"),
        SRV,
        &format!(
            "NoError aa {} {} {} {} {} {}",
            port(1, 0),
            port(2, 1),
            port(3, 2),
            glue(1),
            glue(2),
            glue(3)
        ),
    );
    check(
        &format!("cluster-2.{SEED}"),
        A,
        &format!("NoError aa [cluster-2.SEED.my-domain.com 180 A {}]", ADDRESSES[1]),
    );
    let nothing = "NoError aa authority[my-domain.com 30 SOA]";
    let missing = "NXDomain aa authority[my-domain.com 30 SOA]";
    check(&format!("_tcp.{SEED}"), A, nothing);
    check(&format!("_udp.{SEED}"), A, missing);
    check(&format!("_client._udp.{SEED}"), SRV, missing);
    check(&format!("_other._tcp.{SEED}"), SRV, missing);
    check(&format!("cluster-9.{SEED}"), A, missing);
    check(&format!("a.b.c.{SEED}"), A, missing);
    let name = "headless.my-namespace.svc.clusterset.local";
    check(name, A, &format!("NoError aa [{name} 180 A 10.1.0.1] [{name} 180 A 10.1.0.2]"));
    check(
        &format!("db-0.cluster-1.{name}"),
        A,
        &format!("NoError aa [db-0.cluster-1.{name} 180 A 10.1.0.1]"),
    );
    let srv = |pod: &str| format!("[_peer._tcp.{name} 180 SRV 0 100 2380 {pod}.cluster-1.{name}.]");
    check(&format!("_peer._tcp.{name}"), SRV, &format!("NoError aa {} {}", srv("db-0"), srv("10-1-0-2")));
}

#[test]
fn names_that_are_there_and_names_that_are_not() {
    let nothing = "NoError aa authority[my-domain.com 30 SOA]";
    let missing = "NXDomain aa authority[my-domain.com 30 SOA]";
    check(SEED, TXT, nothing);
    check(SEED, AAAA, nothing);
    check(SEED, CNAME, nothing);
    for empty in [
        "my-federation",
        "my-namespace.my-federation",
        "svc",
        "my-federation.svc",
        "asia",
        "asia-a.asia",
        "my-namespace.my-federation.svc.asia-a.asia",
        "edges",
    ] {
        check(&format!("{empty}.my-domain.com"), A, nothing);
    }
    for absent in [
        "nobody.my-namespace.my-federation",
        "nobody.nowhere.my-federation",
        "nowhere.my-federation",
        "x",
        "nowhere.my-federation.svc.asia",
        "a.b.c.d.e.f",
        "edge-9.edges",
    ] {
        check(&format!("{absent}.my-domain.com"), A, missing);
    }
    check("svc.clusterset.local", A, "NoError aa authority[clusterset.local 30 SOA]");
    check("x.svc.clusterset.local", A, "NXDomain aa authority[clusterset.local 30 SOA]");
    for foreign in ["example.org", "com", "", "local", "xmy-domain.com"] {
        check(foreign, A, "Refused");
    }
    check(SEED, ANY, "NoError aa [SEED.my-domain.com 3600 HINFO RFC8482 ]");
    check("x.my-domain.com", ANY, missing);
}

#[test]
fn tops_of_zones_and_edges() {
    check("my-domain.com", SOA, "NoError aa [my-domain.com 3600 SOA]");
    let servers = |zone: &str| {
        (1..=3)
            .map(|n| format!("[{zone} 3600 NS edge-{n}.edges.my-domain.com.]"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let glue = (1..=3)
        .map(|n| format!("additional[edge-{n}.edges.my-domain.com 180 A 192.0.2.{n}]"))
        .collect::<Vec<_>>()
        .join(" ");
    for zone in ["my-domain.com", "clusterset.local", "shop.example.net"] {
        check(zone, NS, &format!("NoError aa {} {glue}", servers(zone)));
    }
    check("my-domain.com", A, "NoError aa authority[my-domain.com 30 SOA]");
    check("edge-2.edges.my-domain.com", A, "NoError aa [edge-2.edges.my-domain.com 180 A 192.0.2.2]");
    check("edge-2.edges.my-domain.com", AAAA, "NoError aa authority[my-domain.com 30 SOA]");
}

#[test]
fn hosts_of_ingresses_and_names_of_balancers() {
    let shop = |name: &str| format!("NoError aa [{name} 180 A {}]", ADDRESSES[0]);
    for name in ["shop.example.net", "any.apps.example.net", "a.b.apps.example.net", "www.my-domain.com"] {
        check(name, A, &shop(name));
    }
    // Where Ingresses have addresses of their own, hosts are there, also for clients inside.
    for client in ["198.51.100.1", "10.1.2.3"] {
        check_from(client, "front.example.net", A, "NoError aa [front.example.net 180 A 198.51.100.7]");
    }
    let fronted = "fronted.my-namespace.my-federation.my-domain.com";
    check(fronted, A, &format!("NoError aa [{fronted} 180 A {}]", ADDRESSES[0]));
    check("shop.example.net", TXT, "NoError aa authority[shop.example.net 30 SOA]");
    check("x.shop.example.net", A, "NXDomain aa authority[shop.example.net 30 SOA]");
    check("apps.example.net", A, "NoError aa authority[apps.example.net 30 SOA]");
    check("www.my-domain.com", TXT, "NoError aa authority[my-domain.com 30 SOA]");
    check("example.net", A, "Refused");
    let name = "balanced.my-namespace.my-federation.my-domain.com";
    for kind in [A, AAAA, TXT, CNAME] {
        check(name, kind, &format!("NoError aa [{name} 180 CNAME lb.example.net.]"));
    }
    check_from("10.1.2.3", name, A, &format!("NoError aa [{name} 180 A 10.0.153.185]"));
    let six = "six.my-namespace.my-federation.my-domain.com";
    check(six, AAAA, &format!("NoError aa [{six} 180 AAAA 2001:db8::6]"));
    check(six, A, "NoError aa authority[my-domain.com 30 SOA]");
}

#[test]
fn the_letters_case_is_said_back() {
    let mixed = "My-SERVICE.my-NAMEspace.my-federation.MY-domain.com";
    let responder = responder(&config());
    let packet = question(mixed, A);
    let reply = ask(&responder, "198.51.100.1", &packet).unwrap();
    assert_eq!(reply[12..packet.len()], packet[12..], "0x20");
    assert!(say(&reply).contains(ADDRESSES[0]));
}

#[test]
fn what_does_not_fit_is_asked_again_by_tcp() {
    let name = "large.my-namespace.my-federation.my-domain.com";
    let responder = responder(&config());
    for packet in [question(name, A), extended(name, A, 4096, &[])] {
        let reply = ask(&responder, "198.51.100.1", &packet).unwrap();
        assert_eq!(say(&reply), "NoError aa tc");
        assert!(reply.len() <= 512);
    }
    let whole = responder.respond_tcp("198.51.100.1".parse().unwrap(), &question(name, A)).unwrap();
    assert_eq!(usize::from(u16::from_be_bytes([whole[0], whole[1]])), whole.len() - 2);
    assert_eq!(Message::from_vec(&whole[2..]).unwrap().answers.len(), 120);
}

#[test]
fn subnets_are_answered_with_their_scope() {
    let responder = responder(&config());
    for (subnet, order, scope) in [
        (&[0, 1, 24, 0, 81, 2, 69][..], [2, 3, 1], 18),
        (&[0, 1, 16, 0, 1, 112], [3, 1, 2], 12),
        (&[0, 1, 8, 0, 5], [1, 2, 3], 8),
        (&[0, 1, 24, 0, 81, 2, 0], [1, 2, 3], 18),
        (&[0, 1, 0, 0], [1, 2, 3], 0),
        (&[0, 2, 56, 0, 0x20, 1, 0x0d, 0xb8, 0x80, 0, 0], [3, 1, 2], 33),
    ] {
        let packet = extended(SEED, A, 1232, &[(8, subnet)]);
        let reply = ask(&responder, "198.51.100.1", &packet).unwrap();
        let said = say(&reply);
        assert!(said.contains(&addresses("SEED.my-domain.com", order)), "{subnet:?}: {said}");
        let mut want = subnet.to_vec();
        want[3] = scope;
        let length = u8::try_from(want.len()).unwrap();
        assert!(reply.ends_with(&[&[0, 8, 0, length], &want[..]].concat()), "{subnet:?}: {reply:?}");
    }
    let inside = ask(&responder, "10.0.0.1", &extended(SEED, A, 1232, &[(8, &[0, 1, 8, 0, 5])])).unwrap();
    assert!(say(&inside).contains("10.0.153.185"), "who is inside stays inside");
}

#[test]
fn extensions() {
    let responder = responder(&config());
    let ask = |packet: &[u8]| ask(&responder, "198.51.100.1", packet).unwrap();
    let reply = ask(&extended(SEED, A, 1232, &[(3, b"")]));
    assert!(reply.ends_with(b"\x00\x03\x00\x06edge-1"), "NSID");
    let mut other = extended(SEED, A, 1232, &[]);
    other[question(SEED, A).len() + 6] = 1;
    let reply = ask(&other);
    assert_eq!(u16::from(Message::from_vec(&reply).unwrap().metadata.response_code), 16, "BADVERS");
    let mut dnssec = extended(SEED, A, 1232, &[]);
    dnssec[question(SEED, A).len() + 7] = 0x80;
    assert!(Message::from_vec(&ask(&dnssec)).unwrap().edns.unwrap().flags().dnssec_ok);
    let first = ask(&extended(SEED, A, 1232, &[(10, b"8 bytes!")]));
    let cookie = first[first.len() - 24..].to_vec();
    assert_eq!(&cookie[..8], b"8 bytes!");
    let second = ask(&extended(SEED, A, 1232, &[(10, &cookie)]));
    assert_eq!(second.len(), first.len());
    assert!(Message::from_vec(&ask(&question(SEED, A))).unwrap().edns.is_none(), "only who asks gets it");
}

#[test]
fn what_is_not_a_question_of_ours() {
    let responder = responder(&config());
    let change = |at: usize, byte: u8| {
        let mut packet = question(SEED, A);
        packet[at] = byte;
        packet
    };
    let end = question(SEED, A).len();
    let class = |byte| change(end - 1, byte);
    let kind = |byte| change(end - 3, byte);
    let twice = {
        let mut packet = extended(SEED, A, 1232, &[]);
        packet[11] = 2;
        packet.extend([0, 0, 41, 4, 0, 0, 0, 0, 0, 0, 0]);
        packet
    };
    for (what, packet, want) in [
        ("nothing", vec![], None),
        ("too short", vec![0; 11], None),
        ("a response", change(2, 0x80), None),
        ("STATUS", change(2, 0x10), Some("NotImp")),
        ("NOTIFY", change(2, 0x20), Some("NotImp")),
        ("UPDATE", change(2, 0x28), Some("NotImp")),
        ("no question", change(5, 0), Some("FormErr")),
        ("two questions", change(5, 2), Some("FormErr")),
        ("an answer", change(7, 1), Some("FormErr")),
        ("a pointer", change(12, 0xC0), Some("FormErr")),
        ("a label too long", change(12, 0x40), Some("FormErr")),
        ("a cut question", question(SEED, A)[..end - 1].to_vec(), Some("FormErr")),
        ("more than a question", [question(SEED, A), vec![0]].concat(), Some("FormErr")),
        ("an additional record that is not there", change(11, 1), Some("FormErr")),
        ("two OPT", twice, Some("FormErr")),
        ("a bad subnet", extended(SEED, A, 1232, &[(8, &[0, 1, 33, 0, 1, 2, 3, 4, 5])]), Some("FormErr")),
        ("a bad cookie", extended(SEED, A, 1232, &[(10, b"short")]), Some("FormErr")),
        ("CHAOS", class(3), Some("Refused")),
        ("a zone by UDP", kind(252), Some("Refused")),
        ("MAILA", kind(254), Some("NotImp")),
    ] {
        let reply = ask(&responder, "198.51.100.1", &packet);
        let said = reply.map(|reply| say(&reply));
        assert_eq!(said.as_deref(), want, "{what}");
    }
    let version = ask(&responder, "198.51.100.1", &{
        let mut packet = question("version.bind", TXT);
        let end = packet.len();
        packet[end - 1] = 3;
        packet
    });
    assert_eq!(say(&version.unwrap()), "Refused");
}

#[test]
fn a_change_of_one_plan_is_seen_at_once() {
    let responder = responder(&config());
    let first = |responder: &landfall_dns::Responder| {
        say(&ask(responder, "198.51.100.1", &question(SEED, A)).unwrap())
    };
    let mut plan = plan();
    plan.clusters[0].verdict.up = false;
    responder.change([("my-namespace", "my-service", Some(&plan))]);
    assert!(!first(&responder).contains(ADDRESSES[0]) && first(&responder).contains(ADDRESSES[1]));
    responder.change([("my-namespace", "my-service", None)]);
    assert_eq!(first(&responder), "NXDomain aa authority[my-domain.com 30 SOA]");
    let mut federation = federation();
    federation.edges[0].alive = false;
    assert!(responder.federation(&federation), "an edge less changes no service");
    federation.members.pop();
    assert!(!responder.federation(&federation), "a member less changes all");
    assert_eq!(responder.services(), plans().len() - 1);
}

#[test]
fn nobody_sees_half_a_change() {
    let responder = responder(&config());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ask_on = || {
            let mut asked = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let reply = ask(&responder, "198.51.100.1", &question(SEED, A)).unwrap();
                let answers = Message::from_vec(&reply).unwrap().answers.len();
                assert!(answers == 3 || answers == 2, "{}", say(&reply));
                asked += 1;
            }
            asked
        };
        let threads = [scope.spawn(ask_on), scope.spawn(ask_on)];
        let (all, mut two) = (crate::lab::plans(), plan());
        two.clusters[1].verdict.up = false;
        for _ in 0..100 {
            responder.change([("my-namespace", "my-service", Some(&two))]);
            responder.publish(
                &federation(),
                all.iter().map(|plan| ("my-namespace", plan)),
                Default::default(),
            );
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(threads.into_iter().all(|thread| thread.join().unwrap() > 0));
    });
}

#[test]
fn where_a_client_stands_in_words() {
    let responder = responder(&config());
    let scene = landfall_plan::records::Scene::new(&federation(), Some("cluster-1"));
    for (client, want, inside) in [
        ("10.1.2.3", "cluster cluster-1", true),
        ("81.2.69.160", "region europe", false),
        ("198.51.100.1", "nothing known", false),
    ] {
        let from = responder.stands(client.parse().unwrap());
        assert_eq!((scene.places.say(from.place).as_str(), from.inside), (want, inside), "{client}");
    }
}

#[test]
fn shares_decide_who_comes_first() {
    let responder = responder(&config());
    let mut plan = plan();
    plan.vantages[0].choices[0].fraction = 0.25;
    plan.vantages[0].choices[1].fraction = 0.75;
    for (policy, length) in [(DnsAnswer::NearestFirst, 3), (DnsAnswer::Weighted, 1)] {
        plan.dns_answer = policy;
        responder.change([("my-namespace", "my-service", Some(&plan))]);
        let mut counts = [0; 3];
        for seed in 0..4000_u64 {
            let mut out = [0; 1232];
            let packet = question(SEED, A);
            let client = "198.51.100.1".parse().unwrap();
            let got = responder
                .respond_udp(client, &packet, &mut out, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
                .unwrap();
            let message = Message::from_vec(&out[..got]).unwrap();
            assert_eq!(message.answers.len(), length);
            let first = message.answers[0].data.to_string();
            counts[ADDRESSES.iter().position(|ip| *ip == first).unwrap()] += 1;
        }
        assert!((800..1200).contains(&counts[0]) && counts[2] == 0, "{policy:?} {counts:?}");
    }
}

#[test]
fn a_flood_is_cut_and_others_are_served() {
    let mut config = config();
    config.rate = Some(landfall_dns::Rate { per_second: 20, slip: 2 });
    let responder = responder(&config);
    let packet = question(SEED, A);
    let (mut whole, mut short) = (0, 0);
    for _ in 0..200 {
        match ask(&responder, "203.0.113.9", &packet) {
            Some(reply) if say(&reply) == "NoError aa tc" => short += 1,
            Some(_) => whole += 1,
            None => {}
        }
    }
    assert!((20..60).contains(&whole), "{whole} whole");
    assert!((60..100).contains(&short), "{short} short");
    assert!(ask(&responder, "198.51.100.1", &packet).is_some_and(|reply| say(&reply).contains(ADDRESSES[0])));
    let first = ask(&responder, "198.51.100.1", &extended(SEED, A, 1232, &[(10, b"8 bytes!")])).unwrap();
    let with = extended(SEED, A, 1232, &[(10, &first[first.len() - 24..])]);
    let served =
        (0..200).filter(|_| ask(&responder, "198.51.100.1", &with).is_some_and(|r| r.len() > 150)).count();
    assert_eq!(served, 200, "who returns our cookie is no flood");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    /// Whatever comes, what is said can be read by another implementation, and is said to the right question.
    #[test]
    fn every_byte_string_has_an_answer_or_none(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        base in 0_usize..4,
    ) {
        thread_local!(static RESPONDER: landfall_dns::Responder = responder(&config()));
        let mut packet = match base {
            0 => bytes,
            1 => question(SEED, A),
            2 => extended(SEED, A, 1232, &[(8, &[0, 1, 24, 0, 81, 2, 69]), (10, b"8 bytes!"), (3, b"")]),
            _ => [question(SEED, A), bytes].concat(),
        };
        for (at, byte) in flips {
            if !packet.is_empty() {
                let at = at.index(packet.len());
                packet[at] = byte;
            }
        }
        RESPONDER.with(|responder| {
            if let Some(reply) = ask(responder, "198.51.100.1", &packet) {
                assert_eq!(reply[..2], packet[..2]);
                assert!(reply[2] & 0x80 != 0);
                Message::from_vec(&reply).expect("a reply that can be read");
            }
            responder.respond_tcp("198.51.100.1".parse().unwrap(), &packet);
        });
    }
}
