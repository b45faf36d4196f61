//! Requests on real clusters: the walkthrough of federated Ingress, and the loss of the cluster that answers.

use std::net::SocketAddr;
use std::time::Duration;

use landfall_sim::clients::{Answer, Asking, Clients, tally};
use serde_json::Value;

use crate::federated::{HUB, MEMBERS, becomes};
use crate::names::Names;
use crate::support::{PATIENCE, run};

pub(crate) const HOST: &str = "www.my-domain.com";
/// Where clients of the drill come in, though its own pods are not to be asked.
pub(crate) const ENTRANCE: &str = "us-east";
/// The closest to it, which answers and is lost, and the next.
pub(crate) const NEAR: &str = "eu-west";
pub(crate) const NEXT: &str = "asia-east";
/// Requests a second, at each of two kinds of clients. This is a debug build, beside three clusters on a few cores:
/// `cargo xtask bench drill` asks for more.
const PER_SECOND: u32 = 25;
/// Answers that show that somebody is asked.
const SOME: usize = 50;

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: nginx}
spec:
  selector: {app: nginx}
  ports: [{port: 80, targetPort: 8080}]
";
const REPLICA_SET: &str = "
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: nginx}
spec:
  replicas: 6
  selector: {matchLabels: {app: nginx}}
  template:
    metadata: {labels: {app: nginx}}
    spec: {containers: [{name: nginx, image: 'landfall.dev/echo:dev', ports: [{containerPort: 8080}]}]}
";
const INGRESS: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: myingress}
spec:
  rules:
  - host: www.my-domain.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: nginx, port: {number: 80}}}}]}
";

/// Ingress, then Service and ReplicaSet; they are in every cluster, and whoever asks is answered by the closest.
pub(crate) fn the_walkthrough(names: &Names) {
    for manifest in [INGRESS, SERVICE, REPLICA_SET] {
        names.federation.create(HUB, manifest);
    }
    becomes("pods in every cluster", &vec![2, 2, 2], || {
        names.federation.numbers("replicaset nginx", "/status/readyReplicas")
    });
    let mut expected: Vec<String> = MEMBERS.iter().filter_map(|name| names.entrance(name)).collect();
    expected.sort();
    assert_eq!(expected.len(), 3);
    becomes("the Ingress has the edges' addresses", &expected, || addresses(names, HUB));
    for name in MEMBERS {
        let shard = names.federation.object(name, "ingress myingress");
        assert_eq!(shard["spec"]["rules"][0]["host"], HOST, "{name}");
        becomes(&format!("pods of {name} are answered by it"), &Ok(name.to_owned()), || {
            names
                .in_pod(name, &curl(&names.entrance(name).unwrap_or_default(), HOST))
                .map(|said| cluster(&said))
        });
        becomes(&format!("who comes in at {name} is answered by it"), &name.to_owned(), || {
            who(names, name, HOST)
        });
    }
    let said = names.federation.kubectl(HUB, "describe ingress myingress");
    assert!(said.contains(HOST) && said.contains("nginx:80"), "{said}");
    // A cluster whose pods are not to be asked asks the closest that has some.
    cordon(names, true);
    apart(names);
}

/// A Service of type LoadBalancer has its port at the edges, too, though they are pods behind a Service of their own.
pub(crate) fn ports_of_services(names: &Names) {
    for name in MEMBERS {
        let at = || names.entrance(name).map(|address| format!("{address}:2379")).unwrap_or_default();
        becomes(&format!("my-service at the edges of {name}"), &name.to_owned(), || ask(&at(), "my-service"));
    }
}

/// Puts some distance between the entrance and the cluster that shall not be the closest.
fn apart(names: &Names) {
    names.federation.rig.delay(ENTRANCE, NEXT, Duration::from_millis(30), 0).unwrap();
    becomes("the closest answers", &NEAR.to_owned(), || who(names, ENTRANCE, HOST));
}

/// Clients that ask while a cluster is lost and comes back.
pub(crate) struct Drill {
    /// They know one address: that of an edge that stays.
    faithful: Clients,
    /// They know the addresses of all edges, and try one after the other; the first is lost.
    thorough: Clients,
}

impl Drill {
    pub(crate) fn begin(names: &Names) -> Self {
        let at = |name: &str| SocketAddr::new(names.entrance(name).unwrap().parse().unwrap(), 80);
        let begin = |addresses: Vec<SocketAddr>, patience: Duration| {
            let (host, path) = (HOST.to_owned(), "/".to_owned());
            Clients::begin(Asking { addresses, host, path, per_second: PER_SECOND, patience }).unwrap()
        };
        let drill = Self {
            faithful: begin(vec![at(ENTRANCE)], PATIENCE),
            thorough: begin(vec![at(NEAR), at(ENTRANCE), at(NEXT)], Duration::from_secs(10)),
        };
        for clients in [&drill.faithful, &drill.thorough] {
            asks("the closest is asked", clients, NEAR, Duration::ZERO);
        }
        drill
    }

    /// It is lost: the next answers. It comes back, and answers again.
    pub(crate) fn end(self, names: &Names) {
        let Self { faithful, thorough } = self;
        for clients in [&faithful, &thorough] {
            asks("the next answers instead", clients, NEXT, clients.elapsed());
        }
        let healed = faithful.elapsed().min(thorough.elapsed());
        names.federation.rig.heal().unwrap();
        apart(names);
        asks("the closest answers again", &faithful, NEAR, faithful.elapsed());
        becomes("edges are alive again", &6, || names.alive().len());
        for (kind, clients) in [("one address", faithful), ("all addresses", thorough)] {
            let answers = clients.end();
            println!("clients with {kind}: {}", told(&answers));
            // None, on a machine with room for three whole clusters; on a few cores edges that are well may not get their turn before
            // others give them up, least of all while a whole cluster boots. On a playground none may fail.
            let asked: Vec<&Answer> = answers.iter().filter(|answer| answer.due < healed).collect();
            let failed = asked.iter().filter(|answer| answer.by.is_err()).count();
            assert!(failed * 100 < asked.len(), "{kind}: {failed} of {} failed", asked.len());
        }
        cordon(names, false);
        becomes("whole again", &ENTRANCE.to_owned(), || who(names, ENTRANCE, HOST));
        assert_eq!(addresses(names, HUB).len(), 3, "the addresses have stayed");
    }
}

/// Waits until a cluster answers from then on; if it never does, it is told who answered.
fn asks(what: &str, clients: &Clients, cluster: &str, since: Duration) {
    becomes(what, &Ok(()), || {
        if clients.answered_since(cluster, since) > SOME { Ok(()) } else { Err(clients.tally()) }
    });
}

/// Whether the entrance's own pods are to be asked.
fn cordon(names: &Names, cordoned: bool) {
    let patch = format!("{{\"spec\":{{\"cordoned\":{cordoned}}}}}");
    names.federation.kubectl(HUB, &format!("patch cluster {ENTRANCE} --type=merge -p {patch}"));
}

fn told(answers: &[Answer]) -> String {
    let slow = answers.iter().filter(|answer| answer.took > Duration::from_millis(500)).count();
    let slowest = answers.iter().map(|answer| answer.took).max().unwrap_or_default();
    let all = tally(answers);
    format!(
        "{} requests, by {all:?}; {slow} took more than 0.5 s, the longest {:.1} s",
        answers.len(),
        slowest.as_secs_f64()
    )
}

/// The addresses of the Ingress.
fn addresses(names: &Names, place: &str) -> Vec<String> {
    let ingress = names.federation.object(place, "ingress myingress");
    let all = ingress["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
    let mut all: Vec<String> = all.iter().filter_map(|one| one["ip"].as_str().map(str::to_owned)).collect();
    all.sort();
    all
}

fn curl(address: &str, host: &str) -> String {
    format!("curl -sS --fail --noproxy * --max-time 5 -H Host:{host} http://{address}/")
}

/// The cluster that answers who comes in at another; or what went wrong.
pub(crate) fn who(names: &Names, entrance: &str, host: &str) -> String {
    let Some(address) = names.entrance(entrance) else { return "no address".into() };
    ask(&address, host)
}

/// The cluster that answers at an address; or what went wrong.
fn ask(address: &str, host: &str) -> String {
    let line = curl(address, host);
    let mut words = line.split_whitespace();
    let said = run(std::process::Command::new(words.next().unwrap_or_default()).args(words));
    said.map_or_else(|said| said, |said| cluster(&said))
}

fn cluster(said: &str) -> String {
    let said: Value = serde_json::from_str(said).unwrap_or_default();
    said["cluster"].as_str().unwrap_or("nobody").to_owned()
}
