//! Requests divided among real clusters under load: by label, by a canary's share, and by what the nearest has room for.

use landfall_sim::clients::{Asking, Clients, tally};

use crate::carries::{ENTRANCE, HOST, NEAR, NEXT};
use crate::federated::{HUB, becomes};
use crate::names::Names;

/// The host of the MultiClusterIngress.
const FOO: &str = "foo.bar.com";
/// Requests a second. This is a debug build, beside three clusters on a few cores: `cargo xtask bench drill` asks for more.
const PER_SECOND: u32 = 40;
/// What each endpoint can carry of them where there is a limit. Three times of it are offered where clients come in, which has one endpoint.
const CAPACITY: u32 = 20;
const UNEVEN: &str = r#"{"clusters":{"us-east":{"minReplicas":1,"maxReplicas":1},"eu-west":{"minReplicas":4,"maxReplicas":4},"asia-east":{"minReplicas":1,"maxReplicas":1}}}"#;
/// So many requests are counted at a time.
const COUNTED: usize = 200;

const MULTI_CLUSTER: &str = "
apiVersion: landfall.dev/v1alpha1
kind: MultiClusterIngress
metadata: {name: my-mci}
spec:
  template:
    spec:
      backend: {serviceName: my-mc-service, servicePort: 80}
      rules: [{host: foo.bar.com, http: {paths: [{backend: {serviceName: my-mc-service, servicePort: 80}}]}}]
---
apiVersion: landfall.dev/v1alpha1
kind: MultiClusterService
metadata: {name: my-mc-service}
spec:
  template:
    selector: {app: nginx}
    ports: [{name: web, protocol: TCP, port: 80, targetPort: 8080}]
    clusters: [{selector: {matchLabels: {shop: open}}}]
";

/// Clusters come and go by their label, and nobody who asks notices.
pub(crate) fn by_label(names: &Names) {
    let label = |cluster: &str, label: &str| {
        names.federation.kubectl(HUB, &format!("label cluster {cluster} {label} --overwrite"));
    };
    label(NEAR, "shop=open");
    names.federation.create(HUB, MULTI_CLUSTER);
    becomes("the cluster with the label answers", &NEAR.to_owned(), || {
        crate::carries::who(names, ENTRANCE, FOO)
    });
    let clients = come(names, FOO);
    all_from(&clients, NEAR, "it alone");
    // The nearest comes in, and takes over; then the first goes, and comes back.
    label(ENTRANCE, "shop=open");
    all_from(&clients, ENTRANCE, "the nearest has the label, too");
    label(ENTRANCE, "shop-");
    all_from(&clients, NEAR, "it is alone again");
    label(NEXT, "shop=open");
    label(NEAR, "shop-");
    all_from(&clients, NEXT, "another one is alone");
    content("clusters by label", clients);
    names.federation.kubectl(HUB, "delete mci/my-mci mcs/my-mc-service");
    label(NEXT, "shop-");
}

/// A tenth is for the cluster that is tried out.
pub(crate) fn by_canary(names: &Names) {
    policy(names, &format!("canary: {{percent: 10, clusters: {{names: [{NEXT}]}}}}"));
    let clients = come(names, HOST);
    becomes("a tenth", &true, || {
        let [here, near, next] = percents(&clients);
        println!("a tenth for {NEXT}: {ENTRANCE} {here} %, {NEAR} {near} %, {NEXT} {next} %");
        (4..=17).contains(&next) && near == 0
    });
    content("a canary", clients);
    names.federation.kubectl(HUB, "delete trafficpolicy nginx");
}

/// The nearest keeps what it can carry, and the next closest, which has room, gets the rest.
pub(crate) fn by_room(names: &Names) {
    let preferences = format!("federation.kubernetes.io/replica-set-preferences={UNEVEN}");
    names.federation.kubectl(HUB, &format!("annotate replicaset nginx {preferences}"));
    becomes("one endpoint near, four next to it", &vec![1, 4, 1], || {
        names.federation.numbers("replicaset nginx", "/status/readyReplicas")
    });
    policy(names, &format!("capacity: {{requestsPerSecond: {CAPACITY}}}"));
    let offered = 3 * CAPACITY;
    let clients = come_by(names, HOST, offered);
    becomes("two thirds of it are too much", &true, || {
        let [here, near, next] = percents(&clients);
        println!(
            "{offered} requests/s: {ENTRANCE} {here} %, {NEAR} {near} %, {NEXT} {next} %; {}",
            room(names)
        );
        (24..=42).contains(&here) && near >= 50 && next <= 8
    });
    content("overflow", clients);
    names.federation.kubectl(HUB, "delete trafficpolicy nginx");
}

/// What each cluster can carry, in the plan's words.
fn room(names: &Names) -> String {
    let plan = names.federation.object(HUB, "trafficplan nginx");
    let clusters = plan["spec"]["clusters"].as_array().cloned().unwrap_or_default();
    let told = clusters.iter().map(|one| format!("{} can carry {}", one["name"], one["capacity"]));
    told.collect::<Vec<_>>().join(", ")
}

fn policy(names: &Names, spec: &str) {
    names.federation.create(
        HUB,
        &format!("{{apiVersion: landfall.dev/v1alpha1, kind: TrafficPolicy, metadata: {{name: nginx}}, spec: {{{spec}}}}}"),
    );
}

fn come(names: &Names, host: &str) -> Clients {
    come_by(names, host, PER_SECOND)
}

fn come_by(names: &Names, host: &str, per_second: u32) -> Clients {
    let address = (names.entrance(ENTRANCE).unwrap().parse::<std::net::IpAddr>().unwrap(), 80).into();
    let (host, path, patience) = (host.to_owned(), "/".to_owned(), crate::support::PATIENCE);
    Clients::begin(Asking { addresses: vec![address], host, path, per_second, patience }).unwrap()
}

/// Who answers the next requests, in percent: where clients come in, the closest to it, and the next.
fn percents(clients: &Clients) -> [usize; 3] {
    let since = clients.elapsed();
    let answered = || [ENTRANCE, NEAR, NEXT].map(|name| clients.answered_since(name, since));
    becomes("requests are answered", &true, || answered().iter().sum::<usize>() > COUNTED);
    let answered = answered();
    let all: usize = answered.iter().sum();
    answered.map(|count| count * 100 / all)
}

fn all_from(clients: &Clients, cluster: &str, what: &str) {
    becomes(what, &100, || {
        let at = [ENTRANCE, NEAR, NEXT].iter().position(|name| *name == cluster).unwrap();
        percents(clients)[at]
    });
}

/// None of them was turned away.
fn content(what: &str, clients: Clients) {
    let answers = clients.end();
    let failed = answers.iter().filter(|answer| answer.by.is_err()).count();
    assert_eq!(failed, 0, "{what}: {:?}", tally(&answers));
}
