//! The first design's four classes of clients, as real ones, when the cluster that answers them dies: who survives it.
//!
//! | class | looks up | tries | survives |
//! |---|---|---|---|
//! | well-written | every time | all addresses | yes |
//! | dumb | once | all addresses | yes |
//! | dumber | once | the first address | no, until the cluster is back |
//! | browser | once, and keeps its connection | all addresses | yes |
//!
//! How long it takes each of them is measured by `cargo xtask bench failover`.

use landfall_sim::curl::Curl;

use super::{MEMBERS, becomes, playground};
use crate::support::{Playground, find, skip};

const NAME: &str = "web.default.federation.example.com";
const PORT: u16 = 8080;
/// Where the clients are, and who dies.
const NEAR: &str = "eu-west";

/// The addresses of the name, as the first edge that answers gives them: the nearest edge is asked first.
fn look_up(playground: &Playground) -> Vec<String> {
    for edge in [NEAR, "us-east", "asia-east"] {
        let said = playground.dig(edge, &["+short", NAME]);
        let found: Vec<String> =
            said.lines().filter(|line| !line.starts_with(';')).map(str::to_owned).collect();
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

fn curl(addresses: &[String]) -> Curl {
    Curl { name: NAME.to_owned(), port: PORT, addresses: addresses.to_vec() }
}

/// Which cluster answers one request to these addresses; none where nobody does.
fn ask(addresses: &[String]) -> Option<String> {
    curl(addresses).ask().unwrap()
}

#[test]
fn four_classes_of_clients_lose_their_cluster() {
    for program in ["dig", "curl"] {
        if find(program).is_none() {
            return skip("classes of clients", &format!("{program} not found"));
        }
    }
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("classes of clients", base.path()) else { return };
    playground.kubectl_ok("create deployment web --image=echo --replicas=6");
    playground.kubectl_ok(&format!("expose deployment web --port={PORT} --type=LoadBalancer"));
    for member in MEMBERS {
        becomes(&format!("{member} has its shard"), &true, || {
            playground.kubectl(&format!("--context {member} get service web")).status.success()
        });
        becomes(&format!("{member} serves"), &Some(member.to_owned()), || {
            ask(&[playground.address(member, "web")])
        });
    }
    let near = playground.address(NEAR, "web");
    becomes("the nearest is first", &(Some(near.clone()), 3), || {
        let found = look_up(&playground);
        (found.first().cloned(), found.len())
    });
    let known = look_up(&playground);
    let browser = curl(&known).browse().unwrap();
    let well_written = || ask(&look_up(&playground));
    let dumb = || ask(&known);
    let dumber = || ask(&known[..1]);
    let here = Some(NEAR.to_owned());
    for (class, client) in [
        ("well-written", &well_written as &dyn Fn() -> Option<String>),
        ("dumb", &dumb),
        ("dumber", &dumber),
        ("browser", &|| browser.last()),
    ] {
        becomes(&format!("{class}: the nearest answers"), &here, client);
    }

    playground.fault(&["kill", NEAR]);
    let elsewhere = |answer: Option<String>| answer.is_some_and(|cluster| cluster != NEAR);
    becomes("well-written: another answers", &true, || elsewhere(well_written()));
    becomes("dumb: another answers", &true, || elsewhere(dumb()));
    becomes("browser: another answers", &true, || elsewhere(browser.last()));
    becomes("whoever looks up is not told of the dead", &false, || look_up(&playground).contains(&near));
    assert_eq!(dumber(), None, "who knows one address has nowhere to go");

    playground.fault(&["heal"]);
    becomes("dumber: the nearest answers again", &here, dumber);
    becomes("well-written: it is first again", &here, well_written);
}
