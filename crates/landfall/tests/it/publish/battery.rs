//! What is asked of every kind of server.

use serde_json::{Value, json};

use super::servers::{FOREIGN, Server};
use super::world::{World, until};

/// Services that make a zone large.
const MANY: usize = 80;
const WEB: &str = "web.shop.fed.example.com";

/// Publish, change, leave others alone, fail and recover, remove, let go.
pub(super) async fn battery<S: Server>() {
    if S::skipped() {
        return;
    }
    let mut world = World::new().await;
    let mut server = S::start(world.directory.path());
    world.secret("right", &server.secret(true)).await;
    world.secret("wrong", &server.secret(false)).await;
    world.plan("landfall-system", "federation", &federation()).await;
    world.plan("shop", "web", &plan("web", &[true, true, true])).await;
    world.zone("ours", &server.spec("right")).await;

    publishes(&world, &server).await;
    follows_changes(&world, &server).await;
    leaves_others_alone(&world, &server).await;
    tells_what_is_wrong(&world, &server).await;
    recovers(&world, &mut server).await;
    leads_anew(&mut world, &server).await;

    world.unzone("ours").await;
    world.tells("ours", "gone").await;
    answers(&server, WEB, "A", &[]).await;
    answers(&server, FOREIGN.0, "A", &[FOREIGN.1]).await;
    world.stop().await;
}

async fn publishes(world: &World, server: &impl Server) {
    answers(server, WEB, "A", &["192.0.2.1", "192.0.2.2", "192.0.2.3"]).await;
    answers(server, WEB, "AAAA", &["2001:db8::1", "2001:db8::2", "2001:db8::3"]).await;
    answers(server, "web.shop.fed.svc.region-2.example.com", "A", &["192.0.2.2"]).await;
    answers(server, &format!("cluster-3.{WEB}"), "A", &["192.0.2.3"]).await;
    let ports = server.ask(&format!("_http._tcp.{WEB}"), "SRV");
    assert_eq!(ports.len(), 3, "{ports:?}");
    assert!(
        ports.iter().all(|row| row.contains(" 80 cluster-") && row.ends_with(".web.shop.fed.example.com.")),
        "{ports:?}"
    );
    world.tells("ours", "True Published").await;
    assert!(world.events("ours").await.contains(&"Published".to_owned()));
}

async fn follows_changes(world: &World, server: &impl Server) {
    // A cluster dies: it leaves, and those who ask for its region are sent on.
    world.plan("shop", "web", &plan("web", &[true, false, true])).await;
    answers(server, WEB, "A", &["192.0.2.1", "192.0.2.3"]).await;
    answers(server, &format!("cluster-2.{WEB}"), "A", &[]).await;
    let (dead, on) = ("web.shop.fed.svc.region-2.example.com", "web.shop.fed.svc.example.com.");
    answers(server, dead, "A", &["192.0.2.1", "192.0.2.3", on]).await;
    world.plan("shop", "web", &plan("web", &[true, true, true])).await;
    answers(server, dead, "A", &["192.0.2.2"]).await;
    answers(server, WEB, "A", &["192.0.2.1", "192.0.2.2", "192.0.2.3"]).await;
}

async fn leaves_others_alone(world: &World, server: &impl Server) {
    answers(server, FOREIGN.0, "A", &[FOREIGN.1]).await;
    world.plan("shop", "www", &plan("www", &[true, true, true])).await;
    world.tells("ours", "False Conflict").await;
    // The name that is free is published, the other is not.
    answers(server, "www.shop.fed.svc.region-1.example.com", "A", &["192.0.2.1"]).await;
    answers(server, FOREIGN.0, "A", &[FOREIGN.1]).await;
    world.unplan("www").await;
    world.tells("ours", "True Published").await;
    answers(server, "www.shop.fed.svc.region-1.example.com", "A", &[]).await;
    answers(server, FOREIGN.0, "A", &[FOREIGN.1]).await;
}

async fn tells_what_is_wrong(world: &World, server: &impl Server) {
    world.zone("wrong-key", &server.spec("wrong")).await;
    world.zone("no-secret", &server.spec("missing")).await;
    world.tells("wrong-key", "False WrongKey").await;
    world.tells("no-secret", "False Misconfigured").await;
    assert!(world.events("wrong-key").await.contains(&"WrongKey".to_owned()));
    if let Some(spec) = server.wrong_zone("right") {
        world.zone("not-ours", &spec).await;
        world.tells("not-ours", "False NotAuthoritative").await;
        world.unzone("not-ours").await;
    }
    // The others go on meanwhile.
    world.plan("shop", "web", &plan("web", &[true, false, false])).await;
    answers(server, WEB, "A", &["192.0.2.1"]).await;
    // Whoever mends the Secret need not wait.
    world.secret("wrong", &server.secret(true)).await;
    world.tells("wrong-key", "True Published").await;
    world.unzone("no-secret").await;
    world.tells("no-secret", "gone").await;
}

async fn recovers(world: &World, server: &mut impl Server) {
    server.stop();
    world.plan("shop", "web", &plan("web", &[false, true, true])).await;
    world.plan("shop", "late", &plan("late", &[true, false, false])).await;
    world.tells("ours", "False Unreachable").await;
    server.resume();
    answers(server, WEB, "A", &["192.0.2.2", "192.0.2.3"]).await;
    answers(server, "late.shop.fed.example.com", "A", &["192.0.2.1"]).await;
    world.tells("ours", "True Published").await;
}

async fn leads_anew(world: &mut World, server: &impl Server) {
    // More than fits into one message of a transfer.
    for n in 0..MANY {
        let name = format!("many-{n}");
        world.plan("shop", &name, &plan(&name, &[true, false, false])).await;
    }
    for n in 0..MANY {
        answers(server, &format!("many-{n}.shop.fed.example.com"), "A", &["192.0.2.1"]).await;
    }
    world.tells("ours", "True Published").await;
    world.tells("wrong-key", "True Published").await;
    world.retire().await;
    let before = world.changes();
    world.unplan("late").await;
    world.plan("shop", "web", &plan("web", &[true, true, true])).await;
    world.lead().await;
    world.plan("shop", "last", &plan("last", &[true, false, false])).await;
    answers(server, "last.shop.fed.example.com", "A", &["192.0.2.1"]).await;
    answers(server, "late.shop.fed.example.com", "A", &[]).await;
    answers(server, WEB, "A", &["192.0.2.1", "192.0.2.2", "192.0.2.3"]).await;
    // What was published is known, and not published again.
    let changes = world.changes() - before;
    assert!(changes > 0 && changes < MANY * 4, "{changes} changes");
}

/// Waits until the server answers this.
async fn answers(server: &impl Server, name: &str, ty: &str, want: &[&str]) {
    until(&format!("{name} {ty} to be {want:?}"), async || {
        let got = server.ask(name, ty);
        if got == want { Ok(()) } else { Err(format!("{got:?}")) }
    })
    .await;
}

fn federation() -> Value {
    let members: Vec<Value> = (1..=3)
        .map(|n| json!({"name": format!("cluster-{n}"), "region": format!("region-{n}"), "zones": [format!("zone-{n}")]}))
        .collect();
    json!({
        "targetRef": {"kind": "Federation", "name": "federation"}, "revision": 1,
        "whenAllDown": "Open", "dnsAnswer": "NearestFirst",
        "federation": {"name": "fed", "domain": "example.com", "members": members},
    })
}

/// The plan of a service in three clusters, some of which are up.
fn plan(name: &str, up: &[bool]) -> Value {
    let cluster = |(up, n): (&bool, u8)| {
        json!({
            "name": format!("cluster-{n}"), "endpoints": 2,
            "verdict": {"up": up, "votesUp": 3, "votesDown": 0},
            "addresses": [{"ip": format!("192.0.2.{n}")}, {"ip": format!("2001:db8::{n}")}],
        })
    };
    let clusters: Vec<Value> = up.iter().zip(1..).map(cluster).collect();
    json!({
        "targetRef": {"kind": "Service", "name": name}, "revision": 1, "clusters": clusters,
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        "whenAllDown": "Open", "dnsAnswer": "NearestFirst", "dnsTtlSeconds": 5,
    })
}
