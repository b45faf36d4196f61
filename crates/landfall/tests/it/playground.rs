//! The playground as a newcomer meets it: one command, then kubectl and requests; faults; stop, and go on.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Playground, Process, find, kubernetes_binary, landfall, skip, text};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// One request; none when nobody answers.
fn request(address: &str) -> Option<Value> {
    let mut stream =
        TcpStream::connect_timeout(&format!("{address}:8080").parse().ok()?, Duration::from_secs(2)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(b"GET /hello HTTP/1.1\r\nhost: web\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let body = text(&answer);
    serde_json::from_str(body.split_once("\r\n\r\n")?.1).ok()
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn no_kubectl(suite: &str) -> bool {
    let missing = kubernetes_binary("kubectl").or_else(|| find("kubectl")).is_none();
    if missing {
        skip(suite, "kubectl not found");
    }
    missing
}

#[test]
fn a_newcomer_sees_it_work_breaks_it_and_goes_on_later() {
    if no_kubectl("the playground") {
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let mut playground = Playground::start(base.path(), &[]);
    let clusters = playground.kubectl_ok("get clusters -o name");
    assert_eq!(
        clusters.lines().collect::<Vec<_>>(),
        ["cluster.landfall.dev/asia-east", "cluster.landfall.dev/eu-west", "cluster.landfall.dev/us-east"]
    );
    playground.kubectl_ok("--context us-east create deployment web --image=echo --replicas=3");
    playground.kubectl_ok("--context us-east rollout status deployment/web --timeout=60s");
    playground.kubectl_ok("--context us-east expose deployment web --port=8080 --type=LoadBalancer");
    let address = playground.address("us-east", "web");
    let pods: BTreeSet<String> = (0..6)
        .map(|_| {
            let answer = eventually("an answer", || request(&address));
            assert_eq!(
                (&answer["cluster"], &answer["path"]),
                (&"us-east".into(), &"/hello".into()),
                "{answer}"
            );
            answer["pod"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(pods.len(), 3, "round robin: {pods:?}");
    // Each cluster is on its own.
    let other = playground.kubectl_ok("--context eu-west get deployments");
    assert_eq!(other, "");

    assert_eq!(playground.fault(&["kill", "us-east"]), "us-east: dead\n");
    assert!(request(&address).is_none());
    assert!(!playground.kubectl("--context us-east get pods --request-timeout=3s").status.success());
    assert_eq!(playground.fault(&["heal"]), "us-east, eu-west, asia-east: healed\n");
    eventually("an answer after it came back", || request(&address));
    eventually("the API after it came back", || {
        playground.kubectl("--context us-east get pods").status.success().then_some(())
    });

    assert!(playground.process.interrupt(), "Ctrl-C ends it well: {}", playground.process.output());
    assert!(request(&address).is_none());
    drop(playground);
    let playground = Playground::start(base.path(), &[]);
    let again = playground.kubectl_ok("--context us-east get deployment web -o jsonpath={.status.replicas}");
    assert_eq!(again, "3");
    assert_eq!(playground.address("us-east", "web"), address, "the same addresses as before");
    eventually("an answer after a restart", || request(&address));
}

/// A cut member once still answered the hub, which therefore could never see one.
#[test]
fn a_cut_member_is_silent_to_the_hub_and_answers_its_users() {
    if no_kubectl("the playground's cuts") {
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let playground = Playground::start(base.path(), &["--clusters", "2"]);
    let member = playground.addresses()["members"][0].clone();
    let (outside, backbone) = (member["url"].as_str().unwrap(), member["backbone"].as_str().unwrap());
    let path = "jsonpath={.spec.endpoints[*].server}";
    assert_eq!(playground.kubectl_ok(&format!("get cluster us-east -o {path}")), backbone);
    let nodes = |server: &str| {
        playground.kubectl(&format!(
            "--context us-east --server {server} get --raw /api/v1/nodes --request-timeout 3s"
        ))
    };
    assert!(nodes(backbone).status.success() && nodes(outside).status.success());
    let said = playground.fault(&["cut", "us-east"]);
    assert_eq!(said, "us-east: cut off from all others and from the hub\n");
    let began = Instant::now();
    let silence = nodes(backbone);
    assert!(!silence.status.success() && began.elapsed() >= Duration::from_secs(3));
    assert!(!text(&silence.stderr).contains("refused"), "{}", text(&silence.stderr));
    assert!(nodes(outside).status.success(), "users stand outside");
    assert_eq!(playground.fault(&["heal", "us-east"]), "us-east: healed\n");
    assert!(nodes(backbone).status.success());
    assert_eq!(playground.fault(&["api-down", "us-east"]), "us-east: the API is down; pods go on\n");
    for server in [backbone, outside] {
        let refused = text(&nodes(server).stderr);
        assert!(refused.contains("refused"), "{server}: {refused}");
    }
}

#[test]
fn several_at_once_and_nothing_left_behind() {
    let base = tempfile::tempdir().unwrap();
    let temporary = base.path().join("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    let start = |name: &str| {
        let mut command = landfall(&temporary);
        command.args(["playground", "--clusters", "1"]);
        let mut process = Process::start(name, &mut command, base.path());
        process.wait_for("ready", |process| process.output().contains("In another shell").then_some(()));
        process
    };
    let (mut one, mut two) = (start("one"), start("two"));
    // Uids of simulated clusters follow from the seed, which is the same here; those of hubs nobody can foretell.
    let uid = |process: &Process, context: &str| {
        let output = process.output();
        let file = output.lines().find_map(|line| line.trim().strip_prefix("export KUBECONFIG=")).unwrap();
        let arguments = ["get", "ns", "default", "-o", "json", "--kubeconfig", file, "--context", context];
        let got = landfall(&temporary).args(arguments).output().unwrap();
        assert!(got.status.success(), "{}", text(&got.stderr));
        serde_json::from_slice::<Value>(&got.stdout).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    assert_eq!(uid(&one, "us-east"), uid(&two, "us-east"));
    assert_ne!(uid(&one, "federation"), uid(&two, "federation"));
    let both = landfall(&temporary).args(["playground", "fault", "heal"]).output().unwrap();
    assert!(text(&both.stderr).contains("several playgrounds run; say which:"), "{}", text(&both.stderr));
    assert!(one.interrupt());
    let only = landfall(&temporary).args(["playground", "fault", "heal"]).output().unwrap();
    assert_eq!(text(&only.stdout), "us-east: healed\n", "{}", text(&only.stderr));
    assert!(two.interrupt());
    let left: Vec<_> = std::fs::read_dir(&temporary)
        .unwrap()
        .flat_map(|entry| std::fs::read_dir(entry.unwrap().path()).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| !path.ends_with(".turn"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let none = landfall(&temporary).args(["playground", "fault", "heal"]).output().unwrap();
    assert!(!none.status.success());
    assert!(text(&none.stderr).contains("no playground runs: start one with"), "{}", text(&none.stderr));
}

const APP: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: app, labels: {app: app}}
spec:
  replicas: 2
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec: {containers: [{name: app, image: echo}]}
---
apiVersion: v1
kind: Service
metadata: {name: app, labels: {app: app}}
spec:
  selector: {app: app}
  ports: [{port: 8080}]
";

#[test]
fn the_basics_without_kubectl() {
    let base = tempfile::tempdir().unwrap();
    let playground = Playground::start(base.path(), &["--clusters", "2"]);
    let addresses = playground.addresses();
    assert_eq!(addresses["members"][1]["name"], "eu-west", "{addresses}");
    let ok = |arguments: &[&str]| {
        let output = playground.landfall(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let file = base.path().join("app.yaml");
    std::fs::write(&file, APP).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(
        ok(&["apply", "-f", file, "--context", "eu-west"]),
        "deployment.apps/app serverside-applied\nservice/app serverside-applied\n"
    );
    eventually("two ready pods", || {
        ok(&["get", "deploy", "app", "--context", "eu-west"]).contains("2/2").then_some(())
    });
    let pods = ok(&["get", "pods", "-l", "app=app", "-o", "name", "--context", "eu-west"]);
    assert_eq!(pods.lines().filter(|line| line.starts_with("pod/app-")).count(), 2, "{pods}");
    assert!(ok(&["get", "clusters"]).starts_with("NAME"), "the federation is the usual context");
    let described = ok(&["describe", "deployment/app", "--context", "eu-west"]);
    assert!(described.contains("Name:  app\n") && described.contains("ScalingReplicaSet"), "{described}");
    assert_eq!(
        ok(&["delete", "-f", file, "--context", "eu-west"]),
        "service \"app\" deleted\ndeployment.apps \"app\" deleted\n"
    );
    for (arguments, says) in [
        (vec!["get", "gadgets"], "error: the server doesn't have a resource type \"gadgets\""),
        (vec!["get", "svc", "none"], "error: from server (NotFound): services \"none\" not found"),
        (
            vec!["get", "svc", "--context", "mars"],
            "error: there is no context \"mars\"; there are federation, us-east, eu-west",
        ),
        (vec!["apply", "-f", "/none.yaml"], "error: cannot read /none.yaml"),
        (vec!["delete", "svc"], "error: say which: give names"),
        (
            vec!["playground", "fault", "kill", "mars"],
            "error: there is no cluster \"mars\"; there are us-east, eu-west",
        ),
        (
            vec!["playground", "fault", "node-down", "us-east", "n"],
            "error: cluster \"us-east\" has no node \"n\"; it has us-east-1, us-east-2",
        ),
    ] {
        let output = playground.landfall(&arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(text(&output.stderr).starts_with(says), "{arguments:?}: {}", text(&output.stderr));
    }
}

/// A kept world names its addresses in what it keeps: at others it would serve nobody, and intrude on whoever has them.
#[test]
fn a_kept_world_gets_its_addresses_again_or_does_not_start() {
    let (base, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut playground = Playground::start(base.path(), &["--clusters", "1"]);
    let block = playground.addresses()["members"][0]["block"].clone();
    assert!(playground.process.interrupt());
    drop(playground);
    std::fs::create_dir_all(other.path().join("world")).unwrap();
    let squatter = serde_json::json!({"members": [{"name": "us-east", "block": block}]});
    std::fs::write(other.path().join("world/playground.json"), squatter.to_string()).unwrap();
    let squatter = Playground::start(other.path(), &["--clusters", "1"]);
    assert_eq!(squatter.addresses()["members"][0]["block"], block);
    let output = landfall(base.path())
        .args(["playground", "--clusters", "1", "--keep"])
        .arg(base.path().join("world"))
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("us-east: no loopback addresses") && said.contains("stop it first"), "{said}");
    drop(squatter);
    Playground::start(base.path(), &["--clusters", "1"]);
}

#[test]
fn starts_that_cannot_be() {
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("world.yaml");
    std::fs::write(&file, "clusters:\n- name: a\n  nodez: 3\n").unwrap();
    let twice = base.path().join("twice.yaml");
    std::fs::write(&twice, "clusters:\n- name: a\n- name: a\n").unwrap();
    let (file, inside) = (file.to_str().unwrap(), format!("{}/inside", file.display()));
    let twice_says = format!("error: {}:3:9: name: \"a\" is there twice", twice.display());
    for (arguments, says) in [
        (vec!["--clusters", "0"], "--clusters: give between 1 and"),
        (vec!["--config", "/none.yaml"], "cannot read /none.yaml"),
        (vec!["--config", file], "world.yaml:3:3: unknown field `nodez`"),
        (vec!["--config", twice.to_str().unwrap()], &twice_says),
        (vec!["--keep", &inside], "give one that can be written to with --keep DIR"),
    ] {
        let output = landfall(base.path()).arg("playground").args(&arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    }
    let playground = Playground::start(base.path(), &["--clusters", "1"]);
    let output = landfall(base.path()).args(["playground", "--keep"]).arg(playground.dir()).output().unwrap();
    assert!(text(&output.stderr).contains("a playground runs in"), "{}", text(&output.stderr));
}
