//! A virtual IP survives whatever holds it: real edges, real keepers, real keepalived, on one link.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use landfall_rig::front::{Client, Front, VIP};
use serde_json::{Value, json};

use crate::support::{find, skip};

/// Hears who says on the link that it holds the address.
struct Ear {
    process: Child,
    speakers: Arc<Mutex<Vec<String>>>,
}

impl Ear {
    fn start(front: &Front) -> Self {
        let mut command = front.link().command("tcpdump");
        command.args(["-l", "-n", "--immediate-mode", "-i", "br0", "ip proto 112"]);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(process.stderr.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains("listening on")), "tcpdump hears nothing");
        let (heard, lines) =
            (Arc::new(Mutex::default()), BufReader::new(process.stdout.take().unwrap()).lines());
        let speakers = heard.clone();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| hear(&line, &mut heard.lock().unwrap()))
        });
        Self { process, speakers }
    }

    /// They, in order; those who said it several times in a row once.
    fn speakers(&self) -> Vec<String> {
        self.speakers.lock().unwrap().clone()
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        // It may be gone already; there is nobody to tell.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Takes in a line such as `12:00:00.0 IP 10.88.0.2 > 224.0.0.18: VRRPv3, Advertisement, vrid 7, prio 200, …`.
fn hear(line: &str, speakers: &mut Vec<String>) {
    let mut words = line.split_whitespace().skip_while(|word| *word != "IP").skip(1);
    // Whoever stops holding it says so with priority 0.
    if let Some(from) = words.next().filter(|_| !line.contains("prio 0,"))
        && speakers.last().is_none_or(|last| last != from)
    {
        speakers.push(from.to_owned());
    }
}

fn front(directory: &Path, edges: u8) -> Option<Front> {
    for program in ["keepalived", "tcpdump", "ip"] {
        if find(program).is_none() {
            skip("virtual IPs by keepalived", &format!("{program} not found"));
            return None;
        }
    }
    let front = Front::start(Path::new(env!("CARGO_BIN_EXE_landfall")), directory, edges).unwrap();
    front.apply(&objects(&front, edges)).unwrap();
    Some(front)
}

/// A group with an address, and something to answer with.
fn objects(front: &Front, edges: u8) -> Vec<Value> {
    let edge = |at: usize| {
        let address = front.node(at).unwrap().address().to_string();
        json!({"name": format!("a-{at}"), "addresses": [address], "priority": 200 - 50 * at})
    };
    let edges: Vec<Value> = (0..edges.into()).map(edge).collect();
    let answer = json!({"path": "/", "match": "Prefix", "action": {"fixedResponse": {"statusCode": 200, "body": "hello"}}});
    vec![
        json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "GroupPlan", "metadata": {"name": "front"}, "spec": {
            "revision": 1, "members": [{"cluster": "a", "routerId": 7, "vips": [VIP], "edges": edges}],
        }}),
        json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "RoutePlan", "metadata": {"name": "ingress-hello", "namespace": "default"},
            "spec": {"sourceRef": {"kind": "Ingress", "name": "hello"}, "revision": 1, "groups": ["front"],
                "hosts": [{"host": "front.example.com", "paths": [answer]}], "options": {}}}),
    ]
}

/// Breaks something of the holder under a client's eyes: another takes over, nobody disturbs it, and the client goes on.
fn check(
    what: &str,
    front: &mut Front,
    break_it: impl FnOnce(&mut Front, usize),
    mend: impl FnOnce(&mut Front, usize),
) {
    let holder = front.holder(None).unwrap();
    let client: Client = front.client().unwrap();
    let ear = Ear::start(front);
    let address = |front: &Front, at: usize| front.node(at).unwrap().address().to_string();
    let first = [address(front, holder)];
    front.until("the holder is heard", |_| Ok(ear.speakers() == first)).unwrap();
    front.until("the client is answered", |_| Ok(client.answers() > 10)).unwrap();
    let since = Instant::now();
    break_it(front, holder);
    let next = front.holder(Some(holder)).unwrap_or_else(|error| {
        let said = |process: &str| front.said(&format!("{process}-{holder}"));
        panic!("{what}: {error}\n{}\n{}", said("keeper"), said("edge"))
    });
    let answered = client.answers();
    front.until("the client is answered again", |_| Ok(client.answers() > answered + 50)).unwrap();
    let speakers = ear.speakers();
    mend(front, holder);
    let (_, answers) = client.outage(since);
    assert!(answers > 0, "{what}: nothing was answered afterwards");
    let expected = [address(front, holder), address(front, next)];
    assert_eq!(speakers, expected, "{what}: two spoke at once");
}

#[test]
fn an_address_survives_whoever_holds_it() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut front) = front(directory.path(), 3) else { return };
    check(
        "edge killed",
        &mut front,
        |front, at| front.kill_edge(at),
        |front, at| front.start_edge(at).unwrap(),
    );
    check("keepalived killed", &mut front, |front, at| front.kill_keepalived(at).unwrap(), |_, _| ());
    check(
        "keeper killed",
        &mut front,
        |front, at| front.kill_keeper(at),
        |front, at| front.start_keeper(at).unwrap(),
    );
    check(
        "edge told to stop",
        &mut front,
        |front, at| front.stop_edge(at).unwrap(),
        |front, at| {
            front.start_edge(at).unwrap();
        },
    );
    check(
        "link cut",
        &mut front,
        |front, at| front.link().plug(front.node(at).unwrap(), false).unwrap(),
        |front, at| front.link().plug(front.node(at).unwrap(), true).unwrap(),
    );
    // Nobody sees anybody: both hold it. As soon as they see each other, one does.
    let holder = front.holder(None).unwrap();
    front.link().isolate(front.node(holder).unwrap(), true).unwrap();
    front.until("both sides hold it", |front| Ok(front.holders()?.len() == 2)).unwrap();
    front.link().isolate(front.node(holder).unwrap(), false).unwrap();
    front.holder(None).unwrap();
}

#[test]
fn a_newcomer_takes_nothing_that_is_held() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut front) = front(directory.path(), 2) else { return };
    let mut objects = objects(&front, 2);
    // Node by node: whoever is not known to the holder hears nothing of it.
    objects[0]["spec"]["unicast"] = true.into();
    front.apply(&objects).unwrap();
    let holder = front.holder(None).unwrap();
    let other = 1 - holder;
    front.stop_edge(other).unwrap();
    front.kill_keeper(other);
    let all = objects[0]["spec"]["members"][0]["edges"].take();
    objects[0]["spec"]["members"][0]["edges"] = serde_json::json!([all[holder]]);
    front.apply(&objects).unwrap();
    front
        .until("the holder knows of nobody else", |front| {
            Ok(!front.configuration(holder).contains("unicast_peer"))
        })
        .unwrap();
    // The newcomer knows the holder from its plan on disk, but the holder does not know it.
    let ear = Ear::start(&front);
    front.kill_hub();
    front.start_keeper(other).unwrap();
    front.start_edge(other).unwrap();
    front.until("it listens", |front| Ok(front.configuration(other).contains("unicast_peer"))).unwrap();
    let client = front.client().unwrap();
    front.until("the client is answered for a while", |_| Ok(client.answers() > 200)).unwrap();
    assert_eq!(front.holders().unwrap(), [holder]);
    assert_eq!(ear.speakers(), [front.node(holder).unwrap().address().to_string()], "two spoke");
}
