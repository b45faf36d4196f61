//! Real `dig` against a real server.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Command;

use landfall_dns::{Config, Server, start};
use landfall_plan::records::Resolved;
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;

use crate::lab::{ADDRESSES, SEED, config, federation, plans};

/// `a secret of 32 bytes or thereby.`, as `dig -y` wants it.
const KEY: &str = "hmac-sha256:secondary:YSBzZWNyZXQgb2YgMzIgYnl0ZXMgb3IgdGhlcmVieS4=";
const WRONG_KEY: &str = "hmac-sha256:secondary:YSBzZWNyZXQgb2YgMzIgYnl0ZXMgb3IgdGhlcmVieSE=";
const UNKNOWN_KEY: &str = "hmac-sha256:stranger:YSBzZWNyZXQgb2YgMzIgYnl0ZXMgb3IgdGhlcmVieS4=";

struct Running {
    server: Server,
    tasks: Tasks,
    runtime: tokio::runtime::Runtime,
}

/// A server that answers on these addresses; none if there is no `dig` to ask it with.
fn serve(test: &str, listen: &[&str]) -> Option<Running> {
    if Command::new("dig").arg("-v").output().is_err() {
        let mut stderr = std::io::stderr();
        writeln!(stderr, "SKIPPED: DNS by dig, {test}: no `dig` (apt-get install bind9-dnsutils)").unwrap();
        return None;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let tasks = Tasks::default();
    let listen = listen.iter().map(|address| address.parse().unwrap()).collect();
    let config = Config { listen, threads: 2, ..config() };
    let server = runtime.block_on(async { start(&config, &tasks, &Registry::default()).unwrap() });
    let plans = plans();
    server.publish(&federation(), plans.iter().map(|plan| ("my-namespace", plan)), Resolved::new());
    Some(Running { server, tasks, runtime })
}

impl Running {
    fn dig(&self, arguments: &[&str]) -> String {
        self.dig_at(self.server.addresses()[0], arguments)
    }

    fn dig_at(&self, address: SocketAddr, arguments: &[&str]) -> String {
        let mut dig = Command::new("dig");
        dig.arg(format!("@{}", address.ip())).args([
            "-p",
            &address.port().to_string(),
            "+tries=1",
            "+time=2",
        ]);
        let output = dig.args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The answers, one a line, with single spaces.
    fn answers(&self, arguments: &[&str]) -> Vec<String> {
        let text = self.dig(&[&["+noall", "+answer"], arguments].concat());
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    fn stop(self) {
        self.runtime.block_on(self.tasks.join());
    }
}

fn seed(order: [usize; 3]) -> Vec<String> {
    order.map(|n| format!("{SEED}. 180 IN A {}", ADDRESSES[n - 1])).into()
}

#[test]
fn the_seeds_three_records() {
    let Some(running) = serve("the seed's records", &["127.0.0.1:0", "[::1]:0"]) else { return };
    assert_eq!(running.answers(&[SEED]), seed([1, 2, 3]));
    assert_eq!(running.answers(&["+tcp", SEED]), seed([1, 2, 3]));
    assert_eq!(running.answers(&["+noedns", SEED]), seed([1, 2, 3]));
    for (subnet, order) in
        [("5.1.2.0/24", [1, 2, 3]), ("81.2.69.0/24", [2, 3, 1]), ("1.112.3.0/24", [3, 1, 2])]
    {
        let subnet = format!("+subnet={subnet}");
        assert_eq!(running.answers(&[&subnet, SEED]), seed(order), "{subnet}");
    }
    let six = running.dig_at(running.server.addresses()[1], &["+short", SEED]);
    assert_eq!(six.lines().collect::<Vec<_>>(), ADDRESSES);
    let whole = running.dig(&["+subnet=81.2.69.0/24", "+nsid", SEED]);
    assert!(whole.contains("CLIENT-SUBNET: 81.2.69.0/24/18"), "{whole}");
    assert!(whole.contains("edge-1") && whole.contains("COOKIE: ") && whole.contains("(good)"), "{whole}");
    running.stop();
}

#[test]
fn what_else_dig_can_ask() {
    let Some(running) = serve("other questions", &["127.0.0.1:0"]) else { return };
    for (arguments, want) in [
        (&["CH", "TXT", "version.bind"][..], "status: REFUSED"),
        (&["example.org"], "status: REFUSED"),
        (&["nobody.my-namespace.my-federation.my-domain.com"], "status: NXDOMAIN"),
        (&["+edns=1", "+noednsneg", SEED], "status: BADVERS"),
        (&["+opcode=notify", "my-domain.com"], "status: NOTIMP"),
        (&["ANY", "+notcp", SEED], "HINFO \"RFC8482\" \"\""),
        (&["SRV", &format!("_client._tcp.{SEED}")], "0 100 2379 cluster-1.my-service"),
        (&["+notcp", "+ignore", "large.my-namespace.my-federation.my-domain.com"], "flags: qr aa tc rd"),
        (&["large.my-namespace.my-federation.my-domain.com"], "ANSWER: 120,"),
        (&["-y", KEY, "SOA", "my-domain.com"], "flags: qr aa"),
        (&["-y", UNKNOWN_KEY, "SOA", "my-domain.com"], "BADKEY"),
        (&["-y", WRONG_KEY, "SOA", "my-domain.com"], "BADSIG"),
    ] {
        let said = running.dig(arguments);
        assert!(said.contains(want), "{arguments:?}: {said}");
    }
    let signed = running.dig(&["-y", KEY, "SOA", "my-domain.com"]);
    assert!(signed.contains("TSIG PSEUDOSECTION") && !signed.contains("Couldn't verify"), "{signed}");
    running.stop();
}

#[test]
fn a_zone_goes_to_who_has_the_key() {
    let Some(running) = serve("zone transfer", &["127.0.0.1:0"]) else { return };
    let zone = running.dig(&["-y", KEY, "AXFR", "my-domain.com", "+noidnout"]);
    assert!(!zone.contains("Transfer failed") && !zone.contains("Couldn't verify"), "{zone}");
    let records: Vec<String> = zone
        .lines()
        .filter(|line| !line.starts_with(';') && !line.is_empty())
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| !line.contains(" TSIG "))
        .collect();
    assert!(records.first() == records.last() && records[0].contains(" SOA "), "{zone}");
    assert!(records.len() > 200, "several messages: {}", records.len());
    for want in [
        seed([1, 2, 3])[2].as_str(),
        "my-domain.com. 3600 IN NS edge-1.edges.my-domain.com.",
        "www.my-domain.com. 180 IN A 104.197.117.10",
        "lonely.my-namespace.my-federation.svc.asia.my-domain.com. 5 IN CNAME lonely.my-namespace.my-federation.svc.my-domain.com.",
        "_client._tcp.lonely.my-namespace.my-federation.my-domain.com. 5 IN SRV 0 100 2379 cluster-1.lonely.my-namespace.my-federation.my-domain.com.",
        "db-0.cluster-1.headless.my-namespace.my-federation.my-domain.com. 180 IN A 10.1.0.1",
    ] {
        assert!(records.iter().any(|record| record == want), "{want}: {zone}");
    }
    let mut sorted = records[1..].to_vec();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), records.len() - 1, "nothing twice");
    let since = running.dig(&["-y", KEY, "IXFR=1", "my-domain.com"]);
    assert!(since.contains("www.my-domain.com.") && !since.contains("Transfer failed"), "{since}");
    let set = running.dig(&["-y", KEY, "AXFR", "clusterset.local"]);
    assert!(set.contains("my-service.my-namespace.svc.clusterset.local. 180 IN A"), "{set}");
    for (arguments, want) in [
        (&["AXFR", "my-domain.com"][..], "Transfer failed"),
        (&["-y", WRONG_KEY, "AXFR", "my-domain.com"], "Transfer failed"),
        (&["-y", KEY, "AXFR", "example.org"], "Transfer failed"),
        (&["-y", KEY, "AXFR", "my-federation.my-domain.com"], "Transfer failed"),
    ] {
        let said = running.dig(arguments);
        assert!(said.contains(want), "{arguments:?}: {said}");
    }
    running.stop();
}
