//! `landfall drain` by what edges measure: how far it is, when it is called off, and when it is not.

use std::time::Duration;

use super::carries::{HOST, answers, carried, content};
use super::{MEMBERS, becomes, playground};
use crate::support::{Playground, text};

/// Requests a second at the cluster that is drained.
const RATE: u32 = 100;

/// What edges carry to a cluster, as the hub was told: requests a second.
fn measured(playground: &Playground, cluster: &str) -> f64 {
    let edges = playground.object("federation", "edges");
    let all = edges["items"].as_array().cloned().unwrap_or_default();
    let services =
        all.iter().flat_map(|edge| edge["status"]["services"].as_array().cloned().unwrap_or_default());
    services
        .filter(|load| load["cluster"] == cluster)
        .filter_map(|load| load["load"]["requestsPerSecond"].as_f64())
        .sum()
}

/// Gives each endpoint room for so many requests a second, of which each cluster has two. A drain goes by the plan: one that does not know
/// of it yet would find room, and the cluster would be drained.
fn room(playground: &Playground, per_endpoint: u32) {
    playground.give(&format!(
        "{{apiVersion: landfall.dev/v1alpha1, kind: TrafficPolicy, metadata: {{name: web}}, spec: {{capacity: {{requestsPerSecond: {per_endpoint}}}}}}}"
    ));
    becomes("the plan knows it", &vec![Some(f64::from(2 * per_endpoint)); 3], || {
        let plan = playground.object("federation", "trafficplan web");
        let clusters = plan["spec"]["clusters"].as_array().cloned().unwrap_or_default();
        clusters.iter().map(|cluster| cluster["capacity"].as_f64()).collect::<Vec<_>>()
    });
}

/// Waits until all that clients ask for is measured, wherever it is carried, and a part of it at us-east. A cluster that carries nothing
/// is drained without asking anybody, and its pods do not come back by themselves.
fn busy(playground: &Playground) {
    becomes("it is measured", &true, || {
        let loads = MEMBERS.map(|cluster| measured(playground, cluster));
        measured(playground, "us-east") > f64::from(RATE) / 10.0
            && loads.iter().sum::<f64>() > f64::from(RATE) * 0.9
    });
}

fn spec(playground: &Playground, cluster: &str) -> (bool, bool) {
    let spec = playground.object("federation", &format!("cluster {cluster}"))["spec"].clone();
    (spec["cordoned"] == true, spec["draining"] == true)
}

#[test]
fn a_drain_tells_how_much_is_still_carried_and_is_called_off_where_there_is_no_room() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = carried("drains: by measured traffic", base.path()) else { return };
    room(&playground, 1000);
    let clients = playground.crowd("us-east", HOST, RATE);
    becomes("it is measured", &true, || measured(&playground, "us-east") > f64::from(RATE) / 2.0);

    // The other two have room for 40.
    room(&playground, 10);
    let refused = |said: &std::process::Output| !said.status.success();
    becomes("it is not drained: nobody has room", &true, || {
        busy(&playground);
        let said = playground.landfall(&["drain", "us-east"]);
        // In a moment in which clients came slowly there is room, and it is drained for good.
        if said.status.success() {
            assert!(playground.landfall(&["uncordon", "us-east"]).status.success());
        }
        let why = text(&said.stderr);
        let told =
            why.contains("us-east is not drained") || why.contains("the drain of us-east is called off");
        assert!(!refused(&said) || told, "{why}");
        refused(&said)
    });
    assert_eq!(spec(&playground, "us-east"), (false, false), "it is as it was");

    room(&playground, 1000);
    becomes("most of it is carried there", &true, || {
        measured(&playground, "us-east") > f64::from(RATE) / 2.0
    });
    let said = playground.landfall(&["drain", "us-east"]);
    let told = text(&said.stdout);
    assert!(said.status.success(), "{told}{}", text(&said.stderr));
    println!("{told}");
    assert!(told.contains(" requests/s of 1 services and "), "{told}");
    assert!(told.ends_with("cluster.landfall.dev/us-east drained\n"), "{told}");
    assert_eq!(spec(&playground, "us-east"), (true, true));
    let since = clients.elapsed();
    becomes("others answer", &true, || clients.answered_since("eu-west", since) > 100);
    assert_eq!(clients.answered_since("us-east", since), 0, "nothing is carried there any more");
    assert!(playground.landfall(&["uncordon", "us-east"]).status.success());
    content(clients);
}

#[test]
fn who_insists_drains_a_cluster_though_there_is_no_room() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = carried("drains: by force", base.path()) else { return };
    room(&playground, 10);
    let clients = playground.crowd("us-east", HOST, RATE);
    let mut said = Vec::new();
    becomes("it is not drained", &true, || {
        busy(&playground);
        let drain = playground.landfall(&["drain", "us-east", "--no-wait"]);
        if drain.status.success() {
            assert!(playground.landfall(&["uncordon", "us-east"]).status.success());
        }
        let why = text(&drain.stderr);
        let refused = why.contains("is not drained") && why.contains("--force drains it nevertheless");
        said.push((why, MEMBERS.map(|cluster| measured(&playground, cluster))));
        println!("{:?}", said.last());
        refused
    });
    let said = playground.landfall(&["drain", "us-east", "--force"]);
    assert!(said.status.success(), "{}", text(&said.stderr));
    assert!(text(&said.stdout).ends_with("cluster.landfall.dev/us-east drained\n"));
    let since = clients.elapsed() + Duration::from_millis(1);
    becomes("others answer", &true, || clients.answered_since("eu-west", since) > 100);
    assert_eq!(clients.answered_since("us-east", since), 0);
    content(clients);
}

/// Two pods in each cluster, and more of them take so long to be ready that a drain is not done before.
const SLOW: &str = r#"
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 6, selector: {matchLabels: {app: web}},
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: echo, ports: [{containerPort: 8080}],
    readinessProbe: {httpGet: {path: /, port: 8080}, initialDelaySeconds: 12}}]}}}}
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 8080}]}}
"#;

#[test]
fn a_drain_is_called_off_when_the_others_are_lost_meanwhile() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("drains: others are lost", base.path()) else { return };
    playground.give(SLOW);
    playground.kubectl_ok(&format!("create ingress web --rule={HOST}/*=web:8080"));
    for cluster in MEMBERS {
        becomes(&format!("{cluster} answers"), &cluster.to_owned(), || playground.asked(cluster, HOST));
    }
    let clients = playground.crowd("us-east", HOST, RATE);
    becomes("it is measured", &true, || measured(&playground, "us-east") > f64::from(RATE) / 2.0);
    let said = std::thread::scope(|scope| {
        let drain = scope.spawn(|| playground.landfall(&["drain", "us-east"]));
        becomes("the drain has begun", &(true, true), || spec(&playground, "us-east"));
        let since = clients.elapsed();
        becomes("others answer", &true, || clients.answered_since("eu-west", since) > 100);
        playground.fault(&["kill", "eu-west"]);
        playground.fault(&["kill", "asia-east"]);
        drain.join().unwrap()
    });
    let why = text(&said.stderr);
    assert!(!said.status.success(), "{}", text(&said.stdout));
    assert!(why.contains("the drain of us-east is called off: "), "{why}");
    assert_eq!(spec(&playground, "us-east"), (false, false), "it is as it was");
    answers(&clients, "us-east");
    // It goes no further either: what the plan has said before the others died is not done later.
    let told = || playground.object("us-east", "deployment web")["spec"]["replicas"].as_u64();
    let since = clients.elapsed();
    becomes("it goes on answering", &true, || {
        assert_eq!(told(), Some(2), "it keeps its pods");
        clients.answered_since("us-east", since) > usize::try_from(RATE * 10).unwrap()
    });
    drop(clients.end());
}
