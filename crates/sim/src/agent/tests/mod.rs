//! Agents on a real API server: what kubectl and clients see of pods.
#![expect(clippy::disallowed_methods, reason = "clients of a test run beside it and are waited for")]

mod ends;
mod logs;
mod lost;

use std::time::Duration;

use landfall_api::selector::Selector;
use landfall_apiserver::write::update::Part;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::gate::{Effect, PodFault};
use crate::testing::{World, ask, at, condition, get};

fn echo() -> Value {
    json!({"containers": [{"name": "web", "image": "nginx", "ports": [{"containerPort": 8080}]}]})
}

fn command(policy: &str, words: &[&str]) -> Value {
    json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "busybox", "command": words}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_register_and_pods_run() {
    let world = World::start().await;
    let node = world.until(("", "nodes", "", "n1"), "it is ready", |n| condition(n, "Ready") == "True").await;
    assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/zone"], "east-a");
    assert_eq!(node["status"]["allocatable"]["pods"], "110");
    let lease = ("coordination.k8s.io", "leases", "kube-node-lease", "n1");
    let first = world.until(lease, "it is there", Value::is_object).await["spec"]["renewTime"].clone();
    world.until(lease, "it is renewed", |lease| lease["spec"]["renewTime"] != first).await;

    world.pod("web", echo()).await;
    let pod = world.ready("web").await;
    assert_eq!(pod["status"]["phase"], "Running");
    let container = &pod["status"]["containerStatuses"][0];
    assert_eq!(
        (&container["ready"], &container["started"], &container["restartCount"]),
        (&json!(true), &json!(true), &json!(0))
    );
    for kind in ["PodScheduled", "Initialized", "ContainersReady", "PodReadyToStartContainers"] {
        assert_eq!(condition(&pod, kind), "True", "{kind}");
    }
    let said = ask(at(&pod, 8080), "/hello?a=b").await;
    assert_eq!(
        (&said["pod"], &said["node"], &said["cluster"]),
        (&json!("web"), &json!("n1"), &json!("east"))
    );
    assert_eq!(world.agent.usage("default", "web").unwrap().requests, 1);
    let reasons: Vec<String> =
        world.events("web").iter().filter_map(|e| Some(e.split_once(':')?.0.to_owned())).collect();
    assert_eq!(reasons, ["Created", "Pulled", "Started"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_ends_after_its_requests() {
    let world = World::start().await;
    world.pod("web", echo()).await;
    let to = at(&world.ready("web").await, 8080);
    let slow = tokio::spawn(async move { get(to, "/delay/700").await });
    while world.agent.usage("default", "web").is_none_or(|usage| usage.in_flight == 0) {
        tokio::task::yield_now().await;
    }
    world.delete("pods", "web", None).await;
    world.pod_until("web", "it is not ready", |pod| condition(pod, "Ready") == "False").await;
    while TcpStream::connect(to).await.is_ok() {}
    assert_eq!(slow.await.unwrap().unwrap().0, 200, "the request finishes");
    world.pod_until("web", "it is gone", Value::is_null).await;
    assert!(world.events("web").contains(&"Killing: Stopping container web".to_owned()));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_serves_while_it_sleeps_before_the_end() {
    let world = World::start().await;
    let mut spec = echo();
    spec["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 1}}});
    world.pod("web", spec).await;
    let to = at(&world.ready("web").await, 8080);
    world.delete("pods", "web", None).await;
    world.pod_until("web", "it is not ready", |pod| condition(pod, "Ready") == "False").await;
    assert_eq!(ask(to, "/").await["pod"], "web", "still there for those who do not know yet");
    world.pod_until("web", "it is gone", Value::is_null).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_impatient_deletion_cuts_requests() {
    let world = World::start().await;
    world.pod("web", echo()).await;
    let to = at(&world.ready("web").await, 8080);
    let slow = tokio::spawn(async move { get(to, "/delay/60000").await });
    while world.agent.usage("default", "web").is_none_or(|usage| usage.in_flight == 0) {
        tokio::task::yield_now().await;
    }
    world.delete("pods", "web", Some(1)).await;
    world.pod_until("web", "it is gone", Value::is_null).await;
    assert!(slow.await.unwrap().is_err());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_end_as_they_say() {
    let world = World::start().await;
    let check = async |name: &str, policy: &str, words: &[&str], phase: &str, code: i64| {
        world.pod(name, command(policy, words)).await;
        let pod = world.pod_until(name, phase, |pod| pod["status"]["phase"] == phase).await;
        assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], code, "{name}");
    };
    check("good", "Never", &["true"], "Succeeded", 0).await;
    check("bad", "Never", &["false"], "Failed", 1).await;
    check("late", "OnFailure", &["sh", "-c", "sleep 0.05; exit 0"], "Succeeded", 0).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crashing_container_is_held_back() {
    let world = World::start().await;
    world.pod("bad", command("Always", &["false"])).await;
    let pod = world
        .pod_until("bad", "it loops", |pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        })
        .await;
    let container = &pod["status"]["containerStatuses"][0];
    assert_eq!(
        (&pod["status"]["phase"], &container["lastState"]["terminated"]["exitCode"]),
        (&json!("Running"), &json!(1))
    );
    world
        .pod_until("bad", "it is tried again", |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"].as_u64()
                > container["restartCount"].as_u64()
        })
        .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn init_containers_come_first() {
    let world = World::start().await;
    let mut spec = echo();
    spec["initContainers"] = json!([
        {"name": "one", "image": "busybox", "command": ["sleep", "0.1"]},
        {"name": "two", "image": "anything"},
    ]);
    world.pod("web", spec).await;
    world
        .pod_until("web", "it initializes", |pod| {
            pod["status"]["phase"] == "Pending" && condition(pod, "Initialized") == "False"
        })
        .await;
    let pod = world.ready("web").await;
    let codes: Vec<&Value> = pod["status"]["initContainerStatuses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|status| &status["state"]["terminated"]["exitCode"])
        .collect();
    assert_eq!(codes, [&json!(0), &json!(0)]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_honoured() {
    let world = World::start().await;
    let mut spec = echo();
    let exec = json!({"exec": {"command": ["check"]}, "periodSeconds": 1, "failureThreshold": 1});
    spec["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"port": 8080, "path": "/readyz"}, "periodSeconds": 1});
    spec["containers"][0]["livenessProbe"] = exec;
    world.pod("web", spec).await;
    world.ready("web").await;
    let mut healthy = echo();
    healthy["containers"][0]["readinessProbe"] = json!({"grpc": {"port": 8080, "service": "any"}});
    world.pod("grpc", healthy).await;
    world.ready("grpc").await;
    let mut never = echo();
    never["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"port": 8080, "path": "/status/503"}, "periodSeconds": 1, "failureThreshold": 1});
    world.pod("never", never).await;
    world.pod_until("never", "it runs", |pod| pod["status"]["phase"] == "Running").await;
    world.gate.change(|faults| {
        let selector = Selector::parse("app=web").unwrap();
        faults.pods.push(PodFault { namespace: None, selector, effect: Effect::Unhealthy });
    });
    let restarted = world
        .pod_until("web", "it is restarted", |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"].as_u64() > Some(0)
        })
        .await;
    assert_eq!(restarted["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 0);
    let events = world.events("web");
    assert!(
        events.contains(&"Unhealthy: Liveness probe failed: command exited with 1".to_owned()),
        "{events:?}"
    );
    let never = world.pod_until("never", "it is there", Value::is_object).await;
    assert_eq!(condition(&never, "Ready"), "False");
    let events = world.events("never");
    assert!(
        events.contains(
            &"Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 503".to_owned()
        ),
        "{events:?}"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_gates_are_waited_for() {
    let world = World::start().await;
    let mut spec = echo();
    spec["readinessGates"] = json!([{"conditionType": "example.com/gate"}]);
    world.pod("web", spec).await;
    world.pod_until("web", "containers are ready", |pod| condition(pod, "ContainersReady") == "True").await;
    let pod = world.pod_until("web", "it is there", Value::is_object).await;
    assert_eq!(condition(&pod, "Ready"), "False");
    world
        .change("", "pods", "web", Part::Status, |pod| {
            let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
            conditions.push(json!({"type": "example.com/gate", "status": "True"}));
        })
        .await;
    world.ready("web").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_crash_on_command_and_heal() {
    let world = World::start().await;
    world.pod("web", echo()).await;
    let to = at(&world.ready("web").await, 8080);
    world.gate.change(|faults| {
        let selector = Selector::parse("app=web").unwrap();
        faults.pods.push(PodFault { namespace: None, selector, effect: Effect::Crash });
    });
    world.pod_until("web", "it crashes", |pod| condition(pod, "Ready") == "False").await;
    assert!(get(to, "/").await.is_err());
    world.gate.heal();
    let pod = world.ready("web").await;
    assert!(pod["status"]["containerStatuses"][0]["restartCount"].as_u64() > Some(0));
    assert_eq!(ask(to, "/").await["pod"], "web");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_and_overloaded_pods() {
    let world = World::start().await;
    world.pod("web", echo()).await;
    let to = at(&world.ready("web").await, 8080);
    let suffer = async |effect: Effect| {
        world.gate.change(|faults| {
            faults.pods = vec![PodFault { namespace: None, selector: Selector::default(), effect }];
        });
    };
    suffer(Effect::Overloaded { requests_max: 0 }).await;
    while get(to, "/").await.unwrap().0 != 503 {}
    suffer(Effect::Slow(Duration::from_millis(300))).await;
    while get(to, "/").await.unwrap().0 == 503 {}
    let began = landfall_runtime::clock::instant();
    assert_eq!(get(to, "/").await.unwrap().0, 200);
    assert!(began.elapsed() >= Duration::from_millis(300));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_falls_silent_and_comes_back() {
    let world = World::start().await;
    world.pod("web", echo()).await;
    let pod = world.ready("web").await;
    let to = at(&pod, 8080);
    let mut open = TcpStream::connect(to).await.unwrap();
    world.gate.change(|faults| assert!(faults.nodes_lost.insert("n1".into())));
    let mut rest = Vec::new();
    let _ = open.read_to_end(&mut rest).await;
    while TcpStream::connect(to).await.is_ok() {}
    let now = world.pod_until("web", "it is there", Value::is_object).await;
    assert_eq!(now["metadata"]["resourceVersion"], pod["metadata"]["resourceVersion"], "nobody reports");
    // What is deleted meanwhile stays until the node is back.
    world.delete("pods", "web", None).await;
    let lease = ("coordination.k8s.io", "leases", "kube-node-lease", "n1");
    let silent = world.until(lease, "it is there", Value::is_object).await["spec"]["renewTime"].clone();
    world.gate.heal();
    world.until(lease, "it is renewed", |lease| lease["spec"]["renewTime"] != silent).await;
    world.pod_until("web", "it is gone", Value::is_null).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_is_down_is_told_later() {
    let world = World::start().await;
    world.pod("web", echo()).await;
    let pod = world.ready("web").await;
    world.gate.change(|faults| {
        faults.api_down = true;
        faults.pods =
            vec![PodFault { namespace: None, selector: Selector::default(), effect: Effect::Crash }];
    });
    while get(at(&pod, 8080), "/").await.is_ok() {}
    let now = world.pod_until("web", "it is there", Value::is_object).await;
    assert_eq!(condition(&now, "Ready"), "True", "nobody could say otherwise");
    world.gate.change(|faults| faults.api_down = false);
    world.pod_until("web", "it is told", |pod| condition(pod, "Ready") == "False").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_member_resets_connections() {
    let world = World::start().await;
    world.pod("web", echo()).await;
    let to = at(&world.ready("web").await, 8080);
    let mut open = TcpStream::connect(to).await.unwrap();
    open.write_all(b"GET /delay/60000 HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    while world.agent.usage("default", "web").is_none_or(|usage| usage.in_flight == 0) {
        tokio::task::yield_now().await;
    }
    world.gate.change(|faults| faults.dead = true);
    let mut rest = Vec::new();
    assert!(!matches!(open.read_to_end(&mut rest).await, Ok(1..)), "no answer");
    while TcpStream::connect(to).await.is_ok() {}
    world.gate.heal();
    while get(to, "/").await.is_err() {}
    assert_eq!(ask(to, "/").await["pod"], "web");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_go_on_after_a_restart_of_the_agent() {
    let mut world = World::start().await;
    world.pod("web", echo()).await;
    world.pod("done", command("Never", &["true"])).await;
    let before = world.ready("web").await;
    let done = world.pod_until("done", "it is done", |pod| pod["status"]["phase"] == "Succeeded").await;
    world.agent.stop().await;
    while TcpStream::connect(at(&before, 8080)).await.is_ok() {}
    world.start_agent();
    let after = world
        .pod_until("web", "it runs again", |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"] == 1 && condition(pod, "Ready") == "True"
        })
        .await;
    assert_eq!(after["status"]["podIP"], before["status"]["podIP"]);
    assert_eq!(after["status"]["startTime"], before["status"]["startTime"]);
    assert_eq!(ask(at(&after, 8080), "/").await["pod"], "web");
    let still = world.pod_until("done", "it is there", Value::is_object).await;
    assert_eq!(
        still["metadata"]["resourceVersion"], done["metadata"]["resourceVersion"],
        "nobody touches it"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_told() {
    let world = World::start().await;
    let mut spec = echo();
    spec["hostNetwork"] = json!(true);
    let port = json!([{"containerPort": 18080, "hostPort": 18080}]);
    spec["containers"][0]["ports"] = port;
    world.pod("first", spec.clone()).await;
    world.ready("first").await;
    world.pod("second", spec).await;
    let pod = world
        .pod_until("second", "it loops", |pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        })
        .await;
    let ended = &pod["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert!(ended["message"].as_str().unwrap().starts_with("cannot listen on "), "{ended}");
    world.delete("pods", "first", Some(0)).await;
    world.ready("second").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_for_https_speaks_tls() {
    let world = World::start().await;
    let mut spec = echo();
    spec["containers"][0]["ports"] = json!([{"containerPort": 8443, "name": "https"}, {"containerPort": 80}]);
    let probe = json!({"httpGet": {"port": "https", "scheme": "HTTPS"}});
    spec["containers"][0]["readinessProbe"] = probe;
    world.pod("web", spec).await;
    let pod = world.ready("web").await;
    let output = tokio::process::Command::new("curl")
        .args(["-sSk", "--max-time", "20", &format!("https://{}/", at(&pod, 8443))])
        .output()
        .await
        .expect("curl is installed");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["pod"], &said["tls"]["alpn"]), (&json!("web"), &json!("h2")));
    assert_eq!(ask(crate::listen::real(at(&pod, 80)), "/").await["pod"], "web");
    world.stop().await;
}
