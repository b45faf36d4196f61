//! Names: every cluster's edge answers them, votes on who is up, and goes on when clusters or the hub are lost.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use serde_json::Value;

use super::{becomes, manifest, playground, playground_with};
use crate::support::{Playground, find, skip, text};

const NAME: &str = "web.default.federation.example.com";
/// After so long an edge has seen all that it will see of being alone, and has had time to act on it.
const SILENT_MS: u64 = 14_000;

/// What is served at an address over HTTP; none where nobody answers.
pub(super) fn get(at: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(at).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

impl Playground {
    /// Where the edge of a cluster answers names.
    pub(super) fn dns(&self, cluster: &str) -> (String, String) {
        let addresses = self.addresses();
        let edge =
            addresses["edges"].as_array().unwrap().iter().find(|edge| edge["cluster"] == cluster).unwrap();
        let (host, port) = edge["dns"].as_str().unwrap().rsplit_once(':').unwrap();
        (host.to_owned(), port.to_owned())
    }

    /// Where the edge of a cluster tells about itself.
    fn admin(&self, cluster: &str) -> String {
        let addresses = self.addresses();
        let edge =
            addresses["edges"].as_array().unwrap().iter().find(|edge| edge["cluster"] == cluster).unwrap();
        edge["admin"].as_str().unwrap().trim_start_matches("http://").to_owned()
    }

    /// What dig prints.
    pub(super) fn dig(&self, cluster: &str, arguments: &[&str]) -> String {
        let (host, port) = self.dns(cluster);
        let mut command = Command::new("dig");
        command.args(["+tries=1", "+time=1", &format!("@{host}"), "-p", &port]).args(arguments);
        text(&command.output().unwrap().stdout)
    }

    /// The addresses of the name at the edge of a cluster, for a client from anywhere.
    fn answer(&self, cluster: &str) -> Vec<String> {
        // Whoever does not answer makes dig say so in comments.
        let said = self.dig(cluster, &["+short", NAME]);
        said.lines().filter(|line| !line.starts_with(';')).map(str::to_owned).collect()
    }

    /// The load balancer of each cluster.
    fn balancer(&self, cluster: &str) -> String {
        self.address(cluster, "web")
    }
}

/// A playground with a service in all clusters, whose name is answered by all edges.
fn named(suite: &str, base: &std::path::Path) -> Option<Playground> {
    if find("dig").is_none() {
        skip(suite, "dig not found");
        return None;
    }
    let playground = playground(suite, base)?;
    playground.kubectl_ok("create deployment web --image=echo --replicas=6");
    playground.kubectl_ok("expose deployment web --port=8080 --type=LoadBalancer");
    for cluster in super::MEMBERS {
        becomes(&format!("{cluster} answers"), &3, || playground.answer(cluster).len());
        becomes(&format!("{cluster} votes"), &3, || {
            let edge = playground.object("federation", &format!("edge {cluster}-edge"));
            edge["status"]["votes"].as_array().map_or(0, Vec::len)
        });
    }
    Some(playground)
}

#[test]
fn the_nearest_is_first_and_the_dead_are_gone() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = named("names", base.path()) else { return };
    let of = |cluster: &str| playground.balancer(cluster);
    becomes("nearest first", &of("eu-west"), || {
        playground.answer("eu-west").first().cloned().unwrap_or_default()
    });
    let shown = playground.dig("us-east", &["+noall", "+answer", NAME]);
    assert!(
        shown.lines().all(|line| line.contains("\t180\tIN A\t") || line.contains(" 180\tIN A\t")),
        "{shown}"
    );

    // A client inside a cluster gets the address inside first.
    let inside = playground.dns("us-east").0;
    let answer = playground.dig("us-east", &["-b", &inside, "+short", NAME]);
    let own = playground.object("us-east", "service web")["spec"]["clusterIP"].as_str().unwrap().to_owned();
    assert_eq!(answer.lines().next(), Some(own.as_str()), "{answer}");

    let explained = playground.landfall(&["explain", "dns", NAME, "--from", "us-east"]);
    let explained = text(&explained.stdout);
    assert!(explained.contains("inside") && explained.contains(&format!("A {own}")), "{explained}");

    // What stands behind an answer is told: how far, how busy, and where it may not lead.
    playground.give(
        "{apiVersion: landfall.dev/v1alpha1, kind: TrafficPolicy, metadata: {name: web}, spec: {capacity: {requestsPerSecond: 50}, \
         fence: {names: [us-east, eu-west]}}}",
    );
    for told in ["never outside the fence: eu-west, us-east", "not asia-east", " requests/s", " ms"] {
        becomes(&format!("{told:?} is told"), &true, || {
            text(&playground.landfall(&["explain", "dns", NAME, "--from", "eu-west"]).stdout).contains(told)
        });
    }
    playground.kubectl_ok("delete trafficpolicy web");
    becomes("nothing is fenced", &3, || playground.answer("asia-east").len());

    playground.fault(&["kill", "eu-west"]);
    let dead = of_dead(&playground, "eu-west");
    for cluster in ["us-east", "asia-east"] {
        becomes(&format!("gone from {cluster}"), &false, || playground.answer(cluster).contains(&dead));
        assert_eq!(playground.answer(cluster).len(), 2);
    }
    let explained = text(&playground.landfall(&["explain", "dns", NAME, "--from", "asia-east"]).stdout);
    assert!(explained.contains("not eu-west") && explained.contains("us-east-edge down"), "{explained}");
    assert!(playground.answer("eu-west").is_empty(), "the edge of a dead cluster answers");
    playground.fault(&["heal"]);
    becomes("back again", &3, || playground.answer("us-east").len());
    becomes("its edge, too", &3, || playground.answer("eu-west").len());
}

/// The load balancer of a cluster that cannot be asked any more, as the hub knows it.
fn of_dead(playground: &Playground, cluster: &str) -> String {
    let plan = playground.object("federation", "trafficplan web");
    let clusters = plan["spec"]["clusters"].as_array().unwrap().clone();
    let found = clusters.iter().find(|one| one["name"] == cluster).unwrap();
    found["addresses"][0]["ip"].as_str().unwrap().to_owned()
}

#[test]
fn whoever_is_cut_off_serves_its_own_and_is_left_out_by_others() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = named("names", base.path()) else { return };
    let own = playground.balancer("us-east");
    playground.fault(&["cut", "us-east"]);
    for cluster in ["eu-west", "asia-east"] {
        becomes(&format!("left out by {cluster}"), &false, || playground.answer(cluster).contains(&own));
    }
    // It hears nobody, and sees only itself: it goes on as it was told last, and sends its own clients to its own cluster first.
    let admin = playground.admin("us-east");
    becomes("the hub is silent there", &true, || {
        let plans: Value =
            serde_json::from_str(&get(&admin, "/plans").unwrap_or_default()).unwrap_or_default();
        plans["hubSilentMs"].as_u64().is_some_and(|ms| ms > SILENT_MS)
    });
    let alone = playground.answer("us-east");
    assert_eq!((alone.first(), alone.len()), (Some(&own), 3), "{alone:?}");
    playground.fault(&["heal"]);
    for cluster in super::MEMBERS {
        becomes(&format!("whole again at {cluster}"), &3, || playground.answer(cluster).len());
    }
}

#[test]
fn without_the_hub_answers_go_on() {
    let base = tempfile::tempdir().unwrap();
    let Some(mut playground) = named("names", base.path()) else { return };
    let dead = playground.balancer("eu-west");
    playground.fault(&["cut", "hub"]);
    playground.fault(&["kill", "eu-west"]);
    // Nobody counts votes: what each edge sees itself decides, after a while.
    for cluster in ["us-east", "asia-east"] {
        becomes(&format!("gone from {cluster}"), &false, || playground.answer(cluster).contains(&dead));
        assert_eq!(playground.answer(cluster).len(), 2);
    }
    playground.fault(&["heal"]);
    playground.fault(&["heal", "hub"]);
    for cluster in super::MEMBERS {
        becomes(&format!("whole again at {cluster}"), &3, || playground.answer(cluster).len());
    }
    // Everything stops and comes back: edges answer from what they kept, with the certificates they have.
    let first = playground.answer("us-east");
    assert!(playground.process.interrupt());
    drop(playground);
    let again = Playground::start(base.path(), &[]);
    becomes("the same as before", &first, || again.answer("us-east"));
    let edges = again.kubectl_ok("get edges -o name");
    assert_eq!(edges.lines().count(), 3, "{edges}");
}

/// Five edges vote on a cluster's service. With seven clusters some edges vote on none of a cluster's, and went on sending clients there.
#[test]
fn without_the_hub_every_edge_sees_who_is_lost() {
    let base = tempfile::tempdir().unwrap();
    if find("dig").is_none() {
        return skip("names", "dig not found");
    }
    let Some(playground) = playground_with("names", base.path(), &["--clusters", "7"]) else { return };
    playground.kubectl_ok("create deployment web --image=echo --replicas=7");
    playground.kubectl_ok("expose deployment web --port=8080 --type=LoadBalancer");
    let addresses = playground.addresses();
    let edges = addresses["edges"].as_array().unwrap().iter();
    let clusters: Vec<String> = edges.map(|edge| edge["cluster"].as_str().unwrap().to_owned()).collect();
    for cluster in &clusters {
        becomes(&format!("{cluster} answers"), &7, || playground.answer(cluster).len());
    }
    let (lost, others) = clusters.split_first().unwrap();
    let dead = playground.balancer(lost);
    playground.fault(&["cut", "hub"]);
    playground.fault(&["kill", lost]);
    for cluster in others {
        becomes(&format!("gone from {cluster}"), &false, || playground.answer(cluster).contains(&dead));
        assert_eq!(playground.answer(cluster).len(), 6, "{cluster}");
    }
}

#[test]
fn a_health_check_decides_what_is_up() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = named("names", base.path()) else { return };
    let own = playground.balancer("asia-east");
    playground.kubectl_ok(&format!("apply -f {}", manifest("health-check.yaml")));
    // Pods answer 503: they are connected to as before, but not well.
    playground.fault(&["overload", "asia-east"]);
    becomes("the overloaded is left out", &false, || playground.answer("us-east").contains(&own));
    let plan = playground.object("federation", "trafficplan web");
    let asia = plan["spec"]["clusters"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["name"] == "asia-east")
        .unwrap()
        .clone();
    // A majority is enough: whoever has not seen it yet votes "up", without a reason.
    let votes = asia["verdict"]["votes"].as_array().unwrap();
    let tells = |vote: &Value| vote["reason"].as_str().is_some_and(|why| why.contains("status 503"));
    assert!(votes.iter().any(tells), "{asia}");
    playground.fault(&["heal"]);
    becomes("back again", &true, || playground.answer("us-east").contains(&own));
}
