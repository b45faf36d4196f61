//! What containers write, and programs of this machine that write it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use super::{command, echo};
use crate::agent::{Local, Programs};
use crate::testing::{World, ask, at, get};

/// What curl gets from the API as its administrator.
async fn curl(world: &World, path: &str) -> String {
    let output = curl_command(world, path).output().await.expect("curl is installed");
    String::from_utf8(output.stdout).unwrap()
}

fn curl_command(world: &World, path: &str) -> tokio::process::Command {
    let credentials = world.member.credentials();
    let directory = world.directory.path();
    for (name, pem) in
        [("ca", &credentials.ca_pem), ("cert", &credentials.cert_pem), ("key", &credentials.key_pem)]
    {
        std::fs::write(directory.join(name), pem).unwrap();
    }
    let mut command = tokio::process::Command::new("curl");
    command.current_dir(directory).kill_on_drop(true);
    command.args(["-sS", "-N", "--max-time", "20", "--cacert", "ca", "--cert", "cert", "--key", "key"]);
    command.arg(format!("{}/api/v1/namespaces/default/{path}", credentials.server));
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_served() {
    let world = World::start().await;
    world.pod("web", echo()).await;
    let to = at(&world.ready("web").await, 8080);
    for path in ["/one", "/two", "/three"] {
        ask(to, path).await;
    }
    let all = curl(&world, "pods/web/log").await;
    assert_eq!(all.lines().count(), 3, "{all}");
    assert!(all.lines().next().unwrap().contains("\"GET /one HTTP/1.1\" 200"), "{all}");
    let last = curl(&world, "pods/web/log?tailLines=1&timestamps=true").await;
    assert!(last.starts_with("20") && last.contains("Z ") && last.contains("/three"), "{last}");
    assert_eq!(curl(&world, "pods/web/log?limitBytes=5").await.len(), 5);
    let check = async |path: &str, message: &str| {
        let refused: Value = serde_json::from_str(&curl(&world, path).await).unwrap();
        assert_eq!((&refused["code"], &refused["message"]), (&json!(400), &json!(message)));
    };
    check("pods/web/log?container=x", "container x is not valid for pod web").await;
    check("pods/web/log?previous=true", "previous terminated container \"web\" in pod \"web\" not found")
        .await;
    world.gate.change(|faults| assert!(faults.nodes_lost.insert("n1".into())));
    assert!(curl(&world, "pods/web/log").await.contains("no route to host"));
    world.gate.heal();
    while get(to, "/").await.is_err() {}
    // Following sees what comes, and ends with the container.
    let mut following = curl_command(&world, "pods/web/log?follow=true&tailLines=0");
    let mut following = following.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut out = following.stdout.take().unwrap();
    let mut seen = String::new();
    while !seen.contains("/later") {
        ask(to, "/later").await;
        let mut buffer = vec![0; 4096];
        let wait = Duration::from_millis(100);
        if let Ok(length) = tokio::time::timeout(wait, out.read(&mut buffer)).await {
            seen.push_str(&String::from_utf8_lossy(&buffer[..length.unwrap()]));
        }
    }
    world.delete("pods", "web", Some(0)).await;
    assert!(following.wait().await.unwrap().success());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crashed_container_said_is_kept() {
    let world = World::start().await;
    world.pod("bad", command("Always", &["sh", "-c", "echo last words; exit 2"])).await;
    world
        .pod_until("bad", "it is restarted", |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"].as_u64() > Some(0)
        })
        .await;
    assert_eq!(curl(&world, "pods/bad/log?previous=true").await, "last words\n");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_this_machine_stands_for_an_image() {
    let script =
        "echo $GREETING $POD_NAME $POD_IP:$PORT; trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done";
    let local = Local { path: "/bin/sh".into(), args: vec!["-c".into(), script.into()] };
    let missing = Local { path: "/nowhere/program".into(), args: Vec::new() };
    let programs = [("tool".to_owned(), local), ("missing".to_owned(), missing)];
    let world = World::start_with(|config| config.programs = Programs(programs.into())).await;
    let container = json!({"name": "c", "image": "tool:v1", "env": [{"name": "GREETING", "value": "hello"}],
        "ports": [{"containerPort": 9000}]});
    world.pod("local", json!({"containers": [container]})).await;
    let pod = world.ready("local").await;
    let want = format!("hello local {}:9000\n", pod["status"]["podIP"].as_str().unwrap());
    while curl(&world, "pods/local/log").await != want {}
    world.delete("pods", "local", None).await;
    world.pod_until("local", "it is gone", Value::is_null).await;
    world.pod("absent", json!({"containers": [{"name": "c", "image": "missing"}]})).await;
    let pod = world
        .pod_until("absent", "it fails", |pod| {
            !pod["status"]["containerStatuses"][0]["lastState"]["terminated"].is_null()
        })
        .await;
    let ended = &pod["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert!(ended["message"].as_str().unwrap().starts_with("cannot start /nowhere/program"), "{ended}");
    world.stop().await;
}
