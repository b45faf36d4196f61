//! How pods end, and what they leave.

use landfall_apiserver::write::update::Part;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::{command, echo};
use crate::agent::{Local, Programs};
use crate::listen;
use crate::testing::{World, ask, at, get};

/// Deleting a Job's pod counted as its success: every container was said to have exited with 0.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_says_how_its_programs_took_it() {
    let shell = |text: &str| Local { path: "/bin/sh".into(), args: vec!["-c".into(), text.into()] };
    let programs = Programs(
        [
            ("polite".into(), shell("trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done")),
            ("plain".into(), shell("echo up; exec sleep 1000")),
            ("deaf".into(), shell("trap '' TERM; echo up; while :; do sleep 0.05; done")),
        ]
        .into(),
    );
    let world = World::start_with(|config| config.programs = programs).await;
    let image =
        |image: &str| json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": image}]});
    let check = async |name: &str, spec: Value, phase: &str, code: i64| {
        world.pod(name, spec.clone()).await;
        world.ready(name).await;
        if spec["containers"][0]["image"] == name {
            // It has said what to do with signals.
            let lines = || world.agent.registry.log("default", name, "c", false).map(|log| log.since(0).1);
            while lines().is_none_or(|lines| lines == 0) {
                tokio::task::yield_now().await;
            }
        }
        // So that it can be looked at when it has ended.
        let keep = |pod: &mut Value| pod["metadata"]["finalizers"] = json!(["example.com/keep"]);
        world.change("", "pods", name, Part::Main, keep).await;
        // Only the one that does not listen uses it up.
        world.delete("pods", name, Some(if name == "deaf" { 1 } else { 60 })).await;
        let ended = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["terminated"].is_object();
        let pod = world.pod_until(name, "it has ended", ended).await;
        let container = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(
            (&pod["status"]["phase"], &container["exitCode"]),
            (&json!(phase), &json!(code)),
            "{name}"
        );
    };
    check("script", command("Never", &["sleep", "1000"]), "Failed", 143).await;
    check("again", command("OnFailure", &["sleep", "1000"]), "Failed", 143).await;
    check("web", echo(), "Succeeded", 0).await;
    check("polite", image("polite"), "Failed", 7).await;
    check("plain", image("plain"), "Failed", 143).await;
    check("deaf", image("deaf"), "Failed", 137).await;
    world.stop().await;
}

/// Finished pods kept their address for ever, and a pod that found none was dropped: a node ran 126 pods in its life.
#[tokio::test(flavor = "multi_thread")]
async fn finished_pods_give_their_address_back() {
    let world = World::start_with(|config| config.events = false).await;
    let names: Vec<String> = (0..130).map(|number| format!("job-{number}")).collect();
    for name in &names {
        world.pod(name, command("Never", &["echo", "done"])).await;
    }
    for name in &names {
        world.pod_until(name, "it succeeds", |pod| pod["status"]["phase"] == "Succeeded").await;
    }
    let log = |name: &str| world.agent.registry.log("default", name, "c", false);
    assert!(log("job-0").is_some_and(|log| log.since(0).1 == 1), "what it said stays");
    world.delete("pods", "job-0", None).await;
    world.pod_until("job-0", "it is gone", Value::is_null).await;
    while log("job-0").is_some() {
        tokio::task::yield_now().await;
    }
    world.delete("pods", "job-1", Some(0)).await;
    world.pod_until("job-1", "it is gone", Value::is_null).await;
    while log("job-1").is_some() {
        tokio::task::yield_now().await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_an_address() {
    let world = World::start().await;
    let names: Vec<String> = (0..126).map(|number| format!("p{number}")).collect();
    for name in &names {
        world.pod(name, command("Always", &["sleep", "infinity"])).await;
    }
    for name in &names {
        world.ready(name).await;
    }
    world.pod("late", echo()).await;
    world.pod_until("late", "it is known", |pod| pod["status"]["hostIP"].is_string()).await;
    while !world.events("late").iter().any(|event| event.starts_with("FailedCreatePodSandBox: ")) {
        tokio::task::yield_now().await;
    }
    let late = world.pod_until("late", "it is there", Value::is_object).await;
    assert_eq!((&late["status"]["phase"], &late["status"]["podIP"]), (&json!("Pending"), &Value::Null));
    world.delete("pods", "p7", None).await;
    let to = at(&world.ready("late").await, 8080);
    assert_eq!(ask(to, "/").await["pod"], "late");
    world.stop().await;
}

/// The sidecar of a Job's pod served for ever.
#[tokio::test(flavor = "multi_thread")]
async fn sidecars_end_with_what_they_stand_beside() {
    let world = World::start().await;
    let mut spec = command("Never", &["sleep", "0.3"]);
    spec["initContainers"] = json!([{"name": "proxy", "image": "nginx", "restartPolicy": "Always",
        "ports": [{"containerPort": 8080}]}]);
    world.pod("job", spec).await;
    let to = at(&world.ready("job").await, 8080);
    assert_eq!(ask(to, "/").await["pod"], "job");
    let pod = world.pod_until("job", "it succeeds", |pod| pod["status"]["phase"] == "Succeeded").await;
    let proxy = &pod["status"]["initContainerStatuses"][0]["state"]["terminated"];
    assert_eq!(proxy["exitCode"], 0, "{pod:#}");
    while TcpStream::connect(to).await.is_ok() {}
    world.stop().await;
}

/// Where low ports are for root, 80 is at 8080, which a second container may want for itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_low_port_stands_beside_its_substitute() {
    let world = World::start().await;
    let container =
        |name: &str, port: u16| json!({"name": name, "image": "nginx", "ports": [{"containerPort": port}]});
    world.pod("two", json!({"containers": [container("low", 80), container("high", 8080)]})).await;
    let pod = world.ready("two").await;
    let restarts = |at: usize| pod["status"]["containerStatuses"][at]["restartCount"].as_u64();
    assert_eq!((restarts(0), restarts(1)), (Some(0), Some(0)));
    assert_ne!(listen::real(at(&pod, 80)), at(&pod, 8080));
    for port in [80, 8080] {
        assert_eq!(ask(listen::real(at(&pod, port)), "/").await["pod"], "two");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_finish_in_time_is_killed() {
    let world = World::start().await;
    world.pod("web", echo()).await;
    let to = at(&world.ready("web").await, 8080);
    let slow = tokio::spawn(async move { get(to, "/delay/60000").await });
    while world.agent.usage("default", "web").is_none_or(|usage| usage.in_flight == 0) {
        tokio::task::yield_now().await;
    }
    let keep = |pod: &mut Value| pod["metadata"]["finalizers"] = json!(["example.com/keep"]);
    world.change("", "pods", "web", Part::Main, keep).await;
    world.delete("pods", "web", Some(1)).await;
    let pod = world.pod_until("web", "it failed", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
    assert!(slow.await.unwrap().is_err());
    world.stop().await;
}
