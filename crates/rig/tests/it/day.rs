//! An ordinary day: what a user does with kubectl works as on any Kubernetes.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use landfall_rig::Rig;
use serde_json::Value;

use crate::members;
use crate::support::{curl, curl_at, eventually, kubectl, shared, try_kubectl, web};

/// Which pods answer at a URL, as `ask` sees it.
fn pods(ask: impl Fn(&str) -> Result<String, String>, url: &str, times: usize) -> BTreeSet<String> {
    let answers = (0..times).map(|_| ask(url).unwrap_or_else(|said| panic!("{url}: {said}")));
    let parsed =
        answers.map(|text| serde_json::from_str::<Value>(&text).unwrap_or_else(|_| panic!("{text}")));
    parsed.map(|answer| answer["pod"].as_str().unwrap().to_owned()).collect()
}

fn field(rig: &Rig, cluster: &str, object: &str, path: &str) -> String {
    kubectl(rig, cluster, &format!("get {object} -o jsonpath={{{path}}}"))
}

/// `crates/landfall/tests/it/members.rs` does the same on simulated clusters.
#[test]
fn the_script_says_what_it_says_on_a_playground() {
    let Some(rig) = shared("the_script_says_what_it_says_on_a_playground") else { return };
    members::check(rig.kubectl("us-east").get_program(), &rig.kubeconfig(), "us-east");
}

#[test]
fn a_deployment_is_reached_by_every_way_there_is() {
    let Some(rig) = shared("a_deployment_is_reached_by_every_way_there_is") else { return };
    let balancer = web(&rig, "us-east");
    let names = kubectl(&rig, "us-east", "get pods -l app=web -o name");
    let all: BTreeSet<String> =
        names.lines().map(|line| line.trim_start_matches("pod/").to_owned()).collect();
    assert_eq!(all.len(), 3);
    let nodes = field(&rig, "us-east", "pods -l app=web", ".items[*].spec.nodeName");
    assert!(nodes.contains("us-east-1") && nodes.contains("us-east-2"), "spread over both nodes: {nodes}");

    let inside = |url: &str| {
        try_kubectl(&rig, "us-east", &format!("exec client -- curl -sS --fail --max-time 5 {url}"))
    };
    let cluster_ip = field(&rig, "us-east", "service/web", ".spec.clusterIP");
    // A node's kube-proxy follows the endpoints within a second or so.
    let all_answer = |what: &str, ask: &dyn Fn(&str) -> Result<String, String>, url: &str| {
        eventually(what, || {
            Some(pods(ask, url, 30)).filter(|seen| *seen == all).ok_or("not all pods answered")
        });
    };
    all_answer("the load balancer, from the host", &curl, &format!("{balancer}/a"));
    let answer: Value = serde_json::from_str(&curl(&format!("{balancer}/where")).unwrap()).unwrap();
    assert_eq!((&answer["cluster"], &answer["path"]), (&"us-east".into(), &"/where".into()));
    let node = |url: &str| curl_at(&rig, "us-east-2", url);
    all_answer("the cluster IP, from a node", &node, &format!("http://{cluster_ip}/b"));
    let abroad = |url: &str| curl_at(&rig, "eu-west-1", url);
    assert!(
        pods(abroad, &format!("{balancer}/c"), 3).is_subset(&all),
        "the load balancer, from another cluster"
    );
    for name in ["web", "web.default", "web.default.svc.cluster.local"] {
        assert!(pods(inside, &format!("http://{name}/d"), 2).is_subset(&all), "{name}, from a pod");
    }
    let slices = field(
        &rig,
        "us-east",
        "endpointslices -l kubernetes.io/service-name=web",
        ".items[*].endpoints[*].targetRef.name",
    );
    assert_eq!(slices.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>(), all, "EndpointSlices");
}

#[test]
fn logs_exec_and_port_forward_work() {
    let Some(rig) = shared("logs_exec_and_port_forward_work") else { return };
    let balancer = web(&rig, "us-east");
    // One of them has it: kube-proxy chooses.
    curl(&format!("{balancer}/find-me-in-the-log")).unwrap();
    eventually("the request in a log", || {
        let logs = kubectl(&rig, "us-east", "logs -l app=web --tail=-1");
        if logs.contains("find-me-in-the-log") { Ok(()) } else { Err(logs) }
    });
    assert_eq!(kubectl(&rig, "us-east", "exec client -- hostname"), "client\n");
    let refused = try_kubectl(&rig, "us-east", "exec client -- false").unwrap_err();
    assert!(refused.contains("exit code 1"), "{refused}");

    let mut forward = rig.kubectl("us-east");
    forward.args(["port-forward", "deployment/web", ":8080"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut forward = forward.spawn().unwrap();
    let mut line = String::new();
    // Kept open: kubectl ends when it cannot tell of the next connection.
    let mut said = BufReader::new(forward.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    let port = line.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_whitespace().next());
    let answer = port.map(|port| curl(&format!("http://127.0.0.1:{port}/forwarded")));
    forward.kill().unwrap();
    forward.wait().unwrap();
    let answer = answer.unwrap_or_else(|| panic!("{line}")).unwrap();
    assert!(answer.contains("/forwarded"), "{answer}");
}

#[test]
fn clusters_are_apart_and_labelled() {
    let Some(rig) = shared("clusters_are_apart_and_labelled") else { return };
    web(&rig, "us-east");
    let labels = field(&rig, "eu-west", "node/eu-west-2", ".metadata.labels");
    let labels: Value = serde_json::from_str(&labels).unwrap();
    assert_eq!(labels["topology.kubernetes.io/region"], "eu-west");
    assert_eq!(labels["topology.kubernetes.io/zone"], "eu-west-b");

    let address = field(&rig, "us-east", "pods -l app=web", ".items[0].status.podIP");
    let url = format!("http://{address}:8080/");
    curl_at(&rig, "us-east-control", &url).expect("a pod, from its own cluster");
    curl(&url).expect_err("a pod, from the host");
    curl_at(&rig, "eu-west-control", &url).expect_err("a pod, from another cluster");
    // Its node's port is for everybody, as in the wild.
    let port = field(&rig, "us-east", "service/web-public", ".spec.ports[0].nodePort");
    let node = rig.plan().clusters[0].nodes[0].address;
    curl_at(&rig, "eu-west-1", &format!("http://{node}:{port}/")).expect("a node port, from another cluster");
}

#[test]
fn a_crashing_pod_and_a_bad_probe_show_as_they_do_anywhere() {
    let Some(rig) = shared("a_crashing_pod_and_a_bad_probe_show_as_they_do_anywhere") else { return };
    kubectl(&rig, "eu-west", "create namespace ill");
    kubectl(&rig, "eu-west", "run crashing -n ill --image=landfall.dev/tools:1 --command -- false");
    let overrides = r#"{"spec":{"containers":[{"name":"unready","image":"landfall.dev/tools:1","readinessProbe":{"exec":{"command":["false"]},"periodSeconds":1}}]}}"#;
    let mut command = rig.kubectl("eu-west");
    command.args(["run", "unready", "-n", "ill", "--image=landfall.dev/tools:1", "--overrides", overrides]);
    crate::support::run(&mut command).unwrap();
    kubectl(
        &rig,
        "eu-west",
        "run nowhere -n ill --image=landfall.dev/there-is-no-such:1 --image-pull-policy=Never",
    );
    let reason = |pod: &str| {
        let path = ".status.containerStatuses[0].state.waiting.reason";
        kubectl(&rig, "eu-west", &format!("get pod {pod} -n ill -o jsonpath={{{path}}}"))
    };
    for (pod, want) in [("crashing", "CrashLoopBackOff"), ("nowhere", "ErrImageNeverPull")] {
        eventually(pod, || Some(reason(pod)).filter(|seen| seen == want).ok_or_else(|| reason(pod)));
    }
    kubectl(&rig, "eu-west", "wait --for=jsonpath={.status.phase}=Running pod/unready -n ill --timeout=60s");
    assert_eq!(
        kubectl(&rig, "eu-west", "get pod unready -n ill -o jsonpath={.status.containerStatuses[0].ready}"),
        "false"
    );
    kubectl(&rig, "eu-west", "delete namespace ill --wait=false");
}
