//! Requests without the hub: an edge carries what it was told last, also after a restart, and follows its own cluster's pods.

use std::path::Path;

use landfall_sim::clients::{Asking, Clients};
use serde_json::Value;

use super::becomes;
use super::carries::{HOST, PATIENCE, answers, ask, carried, content};
use super::names::get;
use crate::support::{Playground, Process, landfall, text};

/// When the hub has been silent for so long, an edge is alone.
const SILENT_MS: u64 = 5_000;

/// An edge of eu-west as a process of its own, which shares its cluster's way to the hub, and that way's faults.
fn edge(playground: &Playground, base: &Path, admission: &[&str]) -> Process {
    let near = playground.carries_at("eu-west");
    let hub = format!("https://{}:5302", near.rsplit_once(':').unwrap().0);
    let mut command = landfall(playground.temporary());
    command.args(["edge", "--name", "eu-west-own", "--cluster", "eu-west", "--hub", &hub]).args(admission);
    command.args(["--http-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(base.join("edge")).arg("--kubeconfig").arg(base.join("eu-west.kubeconfig"));
    let mut edge = Process::start("edge", &mut command, base);
    edge.wait_for("ready", |edge| edge.output().contains("is ready").then_some(()));
    edge
}

/// Where it says that it does something.
fn at(edge: &Process, what: &str) -> String {
    let output = edge.output();
    let line =
        output.lines().find_map(|line| line.trim().strip_prefix(what)).unwrap_or_else(|| panic!("{output}"));
    line.trim().trim_start_matches("http://").trim_end_matches("/plans").to_owned()
}

fn silent_ms(edge: &Process) -> u64 {
    let plans = get(&at(edge, "admin"), "/plans").unwrap_or_default();
    serde_json::from_str::<Value>(&plans).unwrap_or_default()["hubSilentMs"].as_u64().unwrap_or(0)
}

/// The clusters of a host's service, as its admin port tells them.
fn service(edge: &Process, host: &str) -> Vec<Value> {
    let table = get(&at(edge, "admin"), "/routes").unwrap_or_default();
    let table: Value = serde_json::from_str(&table).unwrap_or_default();
    let of = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let route = of(&table["hosts"]).into_iter().find(|one| one["host"] == host).unwrap_or_default();
    let to = &route["paths"][0]["to"]["service"];
    let service = of(&table["services"]).into_iter().find(|one| one["service"] == *to).unwrap_or_default();
    of(&service["clusters"])
}

/// Where its admin port says that requests for a host go: the first cluster, and how many ways there are to each, in order.
fn leads(edge: &Process, host: &str) -> (String, Vec<usize>) {
    let ways = |cluster: &Value| cluster["endpoints"].as_array().map_or(0, Vec::len);
    let first = leads_to(edge, host).into_iter().next().unwrap_or_default();
    (first, service(edge, host).iter().map(ways).collect())
}

/// Where its admin port says that they go, in order.
fn leads_to(edge: &Process, host: &str) -> Vec<String> {
    service(edge, host)
        .into_iter()
        .filter_map(|cluster| cluster["cluster"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn requests_are_carried_without_the_hub_and_after_a_restart_without_it() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = carried("alone: requests without the hub", base.path()) else { return };
    let member = playground.kubectl_ok("config view --raw --minify --flatten --context eu-west");
    std::fs::write(base.path().join("eu-west.kubeconfig"), member).unwrap();
    let token = text(&playground.landfall(&["edge", "token", "--cluster", "eu-west"]).stdout);
    let words: Vec<&str> = token.split_whitespace().collect();
    let word = |name: &str| words.iter().skip_while(|word| **word != name).nth(1).copied().unwrap();
    let authority = ["--hub-ca-hash", word("--hub-ca-hash")];
    let admission = [&authority[..], &["--token", word("--token")]].concat();

    let mut own = edge(&playground, base.path(), &admission);
    let by = |own: &Process| ask(&at(own, "http"), HOST).unwrap_or_else(|wrong| wrong);
    becomes("its own cluster answers", &"eu-west".to_owned(), || by(&own));
    // Its two pods first, then the other clusters, each through its edge.
    becomes("the table tells so", &("eu-west".to_owned(), vec![2, 1, 1]), || leads(&own, HOST));
    let asking = |own: &Process| {
        let addresses = vec![at(own, "http").parse().unwrap()];
        let (host, path) = (HOST.to_owned(), "/".to_owned());
        Clients::begin(Asking { addresses, host, path, per_second: 50, patience: PATIENCE }).unwrap()
    };
    let clients = asking(&own);
    playground.fault(&["cut", "eu-west", "hub"]);
    becomes("the hub is silent", &true, || silent_ms(&own) > SILENT_MS);
    answers(&clients, "eu-west");
    content(clients);

    // It is started again, and has nothing but its disk.
    assert!(own.terminate().success());
    let own = edge(&playground, base.path(), &authority);
    becomes("its own cluster answers after a restart", &"eu-west".to_owned(), || by(&own));
    let clients = asking(&own);
    // Its own cluster's pods come and go, and it sees that.
    let pods = || playground.kubectl_ok("--context eu-west get pods -l app=web -o name");
    let before = pods();
    for pod in before.lines() {
        playground.kubectl_ok(&format!("--context eu-west delete {pod}"));
        becomes("another is ready", &"2".to_owned(), || {
            playground.kubectl_ok("--context eu-west get deployment web -o jsonpath={.status.readyReplicas}")
        });
        answers(&clients, "eu-west");
    }
    assert!(before.lines().all(|pod| !pods().contains(pod)), "all of them are others");
    assert!(silent_ms(&own) > 0, "the hub was away all the time");
    // When they are all gone, the nearest of the others answers through its edge; and when that dies, the last.
    let order = leads_to(&own, HOST);
    playground.kubectl_ok("--context eu-west scale deployment web --replicas=0");
    answers(&clients, &order[1]);
    playground.fault(&["kill", &order[1]]);
    answers(&clients, &order[2]);
    assert!(silent_ms(&own) > 0, "the hub was away all the time");
    content(clients);

    playground.fault(&["heal"]);
    becomes("the hub is heard again", &true, || silent_ms(&own) < 2_000);
    becomes("its pods are back", &"eu-west".to_owned(), || by(&own));
}
