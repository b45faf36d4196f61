//! A whole playground publishes its names to a real BIND: what edges vote down leaves the zone, what is deleted is removed.

use std::time::{Duration, Instant};

use serde_json::json;

use super::servers::{Bind, FOREIGN, Server};
use crate::support::{Playground, find, kubernetes_binary, skip, text};

const NAME: &str = "web.default.federation.example.com";
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

#[track_caller]
fn becomes<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, mut look: impl FnMut() -> T) {
    let began = Instant::now();
    loop {
        let seen = look();
        if seen == *expected {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {seen:?}, not {expected:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_playground_publishes_what_is_up_and_nothing_else() {
    if Bind::skipped() {
        return;
    }
    if kubernetes_binary("kubectl").or_else(|| find("kubectl")).is_none() {
        return skip("publishing from a playground", "kubectl not found");
    }
    let base = tempfile::tempdir().unwrap();
    let directory = base.path().join("bind");
    std::fs::create_dir_all(&directory).unwrap();
    let server = Bind::start(&directory);
    let playground = Playground::start(base.path(), &[]);
    playground.kubectl_ok("wait --for=condition=Ready clusters --all --timeout=60s");
    playground.kubectl_ok("create deployment web --image=echo --replicas=6");
    playground.kubectl_ok("expose deployment web --port=8080 --type=LoadBalancer");
    let balancer = |cluster: &str| {
        becomes(&format!("{cluster} has its shard"), &true, || {
            playground.kubectl(&format!("--context {cluster} get service web")).status.success()
        });
        playground.address(cluster, "web")
    };
    let mut all = ["asia-east", "eu-west", "us-east"].map(balancer);
    all.sort();
    let dead = balancer("eu-west");

    let literals =
        server.secret(true).into_iter().map(|(key, value)| format!("--from-literal={key}={value}"));
    let literals: Vec<String> = literals.collect();
    playground.kubectl_ok(&format!("create secret generic bind -n landfall-system {}", literals.join(" ")));
    let zone = json!({
        "apiVersion": "landfall.dev/v1alpha1", "kind": "DNSZone", "metadata": {"name": "example"},
        "spec": server.spec("bind"),
    });
    let file = base.path().join("zone.json");
    std::fs::write(&file, zone.to_string()).unwrap();
    playground.kubectl_ok(&format!("apply -f {}", file.display()));
    becomes("all are published", &all.to_vec(), || server.ask(NAME, "A"));
    playground.kubectl_ok("wait --for=condition=Published dnszone/example --timeout=60s");

    // Nobody would take the names out of the old place.
    for change in [r#"{"spec":{"zone":"example.org"}}"#, r#"{"spec":{"rfc2136":{"server":"192.0.2.1:53"}}}"#]
    {
        let refused = playground.kubectl(&format!("patch dnszone example --type merge -p {change}"));
        assert!(!refused.status.success(), "{change}");
        assert!(
            text(&refused.stderr).contains("cannot be changed while names of ours are there"),
            "{refused:?}"
        );
    }

    playground.fault(&["kill", "eu-west"]);
    becomes("the dead one leaves the zone", &false, || server.ask(NAME, "A").contains(&dead));
    assert_eq!(server.ask(NAME, "A").len(), 2);
    playground.fault(&["heal"]);
    becomes("and comes back", &all.to_vec(), || server.ask(NAME, "A"));

    playground.kubectl_ok("delete service web");
    becomes("a service that is gone has no name", &Vec::<String>::new(), || server.ask(NAME, "A"));
    assert_eq!(server.ask(FOREIGN.0, "A"), [FOREIGN.1], "what others have there is theirs");
    playground.kubectl_ok("delete dnszone example");
}
