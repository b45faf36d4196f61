//! What edges carry: requests go to the nearest cluster, what it has no room for to the next, and nobody notices that one dies, falls
//! silent, comes or goes.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use landfall_sim::clients::{Asking, Clients};
use serde_json::Value;

use super::{MEMBERS, becomes, manifest, playground};
use crate::support::{Playground, find, skip, text};

pub(super) const HOST: &str = "web.example.com";
/// How long a client waits for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Requests a second.
const RATE: u32 = 200;
/// Answers that show that somebody is asked.
const SOME: usize = 100;

impl Playground {
    /// Where the edge of a cluster carries HTTP.
    pub(super) fn carries_at(&self, cluster: &str) -> String {
        let addresses = self.addresses();
        let edges = addresses["edges"].as_array().unwrap();
        let edge = edges.iter().find(|edge| edge["cluster"] == cluster).unwrap();
        edge["http"].as_str().unwrap().to_owned()
    }

    /// Who answers a request at the edge of a cluster, or what went wrong.
    pub(super) fn asked(&self, cluster: &str, host: &str) -> String {
        ask(&self.carries_at(cluster), host).unwrap_or_else(|wrong| wrong)
    }

    /// Clients who come in at the edge of a cluster.
    pub(super) fn crowd(&self, cluster: &str, host: &str, per_second: u32) -> Clients {
        let addresses = vec![self.carries_at(cluster).parse().unwrap()];
        let (host, path) = (host.to_owned(), "/".to_owned());
        Clients::begin(Asking { addresses, host, path, per_second, patience: PATIENCE }).unwrap()
    }
}

/// The cluster that answers a request.
pub(super) fn ask(at: &str, host: &str) -> Result<String, String> {
    let said = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(at)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        Ok(text(&bytes))
    };
    let said = said().map_err(|error| error.to_string())?;
    let (head, body) = said.split_once("\r\n\r\n").ok_or_else(|| format!("no answer: {said:?}"))?;
    if !head.starts_with("HTTP/1.1 200 ") {
        return Err(head.lines().next().unwrap_or("").to_owned());
    }
    let body: Value = serde_json::from_str(body).map_err(|error| format!("{error}: {body:?}"))?;
    Ok(body["cluster"].as_str().unwrap_or("nobody").to_owned())
}

/// Waits until a cluster answers, from now on.
#[track_caller]
pub(super) fn answers(clients: &Clients, cluster: &str) {
    let since = clients.elapsed();
    becomes(&format!("{cluster} answers"), &true, || clients.answered_since(cluster, since) > SOME);
}

/// Ends clients, of whom nobody noticed anything; how often each cluster has answered.
#[track_caller]
pub(super) fn content(clients: Clients) -> BTreeMap<String, usize> {
    let answers = clients.end();
    let all = landfall_sim::clients::tally(&answers);
    let failed: Vec<_> = all.iter().filter(|(by, _)| by.is_err()).collect();
    let slow = answers.iter().filter(|answer| answer.took > Duration::from_millis(250)).count();
    let longest = answers.iter().map(|answer| answer.took).max().unwrap_or_default();
    println!("{all:?}; {slow} took more than 250 ms, the longest {longest:?}");
    assert!(failed.is_empty(), "{failed:?} of {all:?}");
    all.into_iter().filter_map(|(by, count)| Some((by.ok()?, count))).collect()
}

/// A playground with an Ingress whose service is in all clusters, and inside them only.
pub(super) fn carried(suite: &str, base: &std::path::Path) -> Option<Playground> {
    let playground = playground(suite, base)?;
    playground.kubectl_ok("create deployment web --image=echo --replicas=6");
    playground.kubectl_ok("expose deployment web --port=8080");
    playground.kubectl_ok(&format!("create ingress web --rule={HOST}/*=web:8080"));
    for cluster in MEMBERS {
        becomes(&format!("{cluster}'s edge asks its own cluster"), &cluster.to_owned(), || {
            playground.asked(cluster, HOST)
        });
    }
    Some(playground)
}

#[test]
fn nobody_notices_that_the_cluster_that_answers_is_lost() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = carried("carries: the loss of a cluster", base.path()) else { return };
    // Through the edge of the next nearest.
    assert!(playground.landfall(&["cordon", "us-east"]).status.success());
    becomes("the next nearest answers", &"eu-west".to_owned(), || playground.asked("us-east", HOST));
    // By its name nobody reaches the service elsewhere: clients inside are told of their own cluster, though it is cordoned.
    let own = playground.object("us-east", "service web")["spec"]["clusterIP"].as_str().unwrap().to_owned();
    let inside = playground.dns("us-east").0;
    let name = "web.default.federation.example.com";
    if find("dig").is_some() {
        becomes("clients inside are answered", &own, || {
            playground.dig("us-east", &["-b", &inside, "+short", name]).trim().to_owned()
        });
    } else {
        skip("carries: names of a cordoned service", "dig not found");
    }
    let verdict = || {
        let plan = playground.object("federation", "trafficplan web");
        let clusters = plan["spec"]["clusters"].as_array().cloned().unwrap_or_default();
        clusters.iter().find(|cluster| cluster["name"] == "eu-west").map(|one| one["verdict"]["up"] == true)
    };

    let clients = playground.crowd("us-east", HOST, RATE);
    // It dies; or it falls silent, as a cut cable does.
    for fault in [&["kill", "eu-west"][..], &["cut", "us-east", "eu-west"]] {
        answers(&clients, "eu-west");
        playground.fault(fault);
        answers(&clients, "asia-east");
        if fault[0] == "kill" {
            becomes("the dead one is out of the plan", &Some(false), verdict);
        }
        playground.fault(&["heal"]);
        becomes("it is up again", &Some(true), verdict);
    }
    answers(&clients, "eu-west");
    content(clients);
}

/// Pods for the third design's example, which listen at a port that only root may open; and for its other spelling.
const SHOPPING: &str = "
{apiVersion: apps/v1, kind: Deployment, metadata: {name: shopping}, spec: {replicas: 6, selector: {matchLabels: {app: shopping}},
  template: {metadata: {labels: {app: shopping}}, spec: {containers: [{name: shopping, image: echo, ports: [{containerPort: 80}]}]}}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: zoneprinter}, spec: {replicas: 6, selector: {matchLabels: {app: zoneprinter}},
  template: {metadata: {labels: {app: zoneprinter}}, spec: {containers: [{name: zoneprinter, image: echo, ports: [{containerPort: 8080}]}]}}}}
";

/// The third design's example as it stands there; where nobody may listen at port 80, at another.
fn example() -> String {
    let file = std::fs::read_to_string(manifest("multi-cluster.yaml")).unwrap();
    if std::net::TcpListener::bind("127.94.80.80:80").is_ok() {
        return format!("{SHOPPING}---\n{file}");
    }
    skip("carries: the third design's ports", "only root may listen at port 80");
    let (pods, file) = (
        SHOPPING.replace("containerPort: 80}", "containerPort: 8080}"),
        file.replace("targetPort: 80", "targetPort: 8080"),
    );
    format!("{pods}---\n{file}")
}

#[test]
fn clusters_come_and_go_by_their_labels_and_nobody_notices() {
    const HOST: &str = "foo.bar.com";
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("carries: multi-cluster ingress", base.path()) else { return };
    playground.kubectl_ok("label cluster us-east region=us --overwrite");
    playground.give(&example());
    becomes("the one that is chosen answers", &"us-east".to_owned(), || playground.asked("eu-west", HOST));
    let clients = playground.crowd("eu-west", HOST, RATE);
    answers(&clients, "us-east");
    for (label, by) in [
        ("eu-west region=us", "eu-west"),
        ("eu-west region-", "us-east"),
        ("asia-east region=us", "us-east"),
        ("us-east region-", "asia-east"),
        ("eu-west region=us", "eu-west"),
    ] {
        playground.kubectl_ok(&format!("label cluster {label} --overwrite"));
        becomes(&format!("{label}: who answers"), &by.to_owned(), || playground.asked("eu-west", HOST));
        answers(&clients, by);
    }
    content(clients);

    // The other spelling, whose clusters are named one by one.
    playground.kubectl_ok(&format!("apply -f {}", manifest("multi-cluster-gke.yaml")));
    for cluster in MEMBERS {
        let nearest = if cluster == "us-east" { "us-east" } else { "eu-west" };
        becomes("one of the two that are named answers", &nearest.to_owned(), || {
            playground.asked(cluster, "zone.example.com")
        });
    }
}
