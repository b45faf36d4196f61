//! Deployments, Services and their pods through kubectl.

use crate::lab::{has, lab};
use landfall_api::meta;
use landfall_sim::controllers::read::{items, text};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_is_created_scaled_rolled_and_rolled_back() {
    let Some(lab) = lab("deployment").await else { return };
    lab.ok("create deployment web --image=echo:1 --replicas=3").await;
    has(&lab.ok("rollout status deployment/web --timeout=30s").await, "successfully rolled out");
    has(&lab.ok("get deployment web").await, "3/3");
    let pods = lab.list("", "pods");
    assert_eq!(pods.len(), 3);
    let mut nodes: Vec<&str> = pods.iter().map(|pod| text(pod, "/spec/nodeName")).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["node-1", "node-2", "node-3"], "spread over the nodes");
    let described = lab.ok("describe deployment web").await;
    has(&described, "ScalingReplicaSet");
    has(&described, "Scaled up replica set web-");
    has(&described, "MinimumReplicasAvailable");
    has(&described, "NewReplicaSetAvailable");
    let described = lab.ok(&format!("describe pod {}", meta::name(&pods[0]))).await;
    has(&described, "Successfully assigned default/web-");
    has(&described, "default-scheduler");

    lab.ok("scale deployment web --replicas=5").await;
    has(&lab.ok("rollout status deployment/web --timeout=30s").await, "successfully rolled out");
    assert_eq!(lab.list("", "pods").len(), 5);

    lab.ok("set image deployment/web echo=echo:2").await;
    has(&lab.ok("rollout status deployment/web --timeout=30s").await, "successfully rolled out");
    lab.until("only new pods", |api| {
        let pods = api.list("", "pods", "default");
        pods.len() == 5 && pods.iter().all(|pod| text(pod, "/spec/containers/0/image") == "echo:2")
    })
    .await;
    assert_eq!(lab.list("apps", "replicasets").len(), 2);
    let history = lab.ok("rollout history deployment/web").await;
    has(&history, "2 ");

    lab.ok("rollout undo deployment/web").await;
    has(&lab.ok("rollout status deployment/web --timeout=30s").await, "successfully rolled out");
    lab.until("the old pods again", |api| {
        let pods = api.list("", "pods", "default");
        pods.len() == 5 && pods.iter().all(|pod| text(pod, "/spec/containers/0/image") == "echo:1")
    })
    .await;
    has(&lab.ok("rollout history deployment/web").await, "3 ");

    lab.ok("delete deployment web").await;
    lab.until("all is gone", |api| {
        api.list("", "pods", "default").is_empty() && api.list("apps", "replicasets", "default").is_empty()
    })
    .await;
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_gets_addresses_at_once_and_endpoints_follow_its_pods() {
    let Some(lab) = lab("service").await else { return };
    has(&lab.ok("get service kubernetes -o jsonpath={.spec.clusterIP}").await, "127.");
    lab.ok("create deployment web --image=echo:1 --replicas=2 --port=8080").await;
    lab.ok("expose deployment web --type=NodePort --port=80 --target-port=8080").await;
    let service = &lab.list("", "services").into_iter().find(|s| meta::name(s) == "web").unwrap();
    let address = text(service, "/spec/clusterIP").parse().unwrap();
    assert!(lab.member.settings().block.services().contains(address));
    assert!(items(service, "/spec/ports")[0]["nodePort"].as_i64().unwrap() >= 30_000);
    lab.ok("rollout status deployment/web --timeout=30s").await;
    lab.until("two ready endpoints", |api| {
        let slices = api.list("discovery.k8s.io", "endpointslices", "default");
        let ours = slices.iter().filter(|s| meta::label(s, "kubernetes.io/service-name") == Some("web"));
        let ready = ours.flat_map(|s| items(s, "/endpoints")).filter(|e| e["conditions"]["ready"] == true);
        ready.count() == 2
    })
    .await;
    has(&lab.ok("get endpoints web").await, ":8080,");
    has(&lab.ok("describe service web").await, ":8080");
    has(
        &lab.run("create service clusterip other --clusterip=127.0.0.9 --tcp=80").await,
        "is not in the valid range",
    );
    lab.ok("delete service web").await;
    lab.until("its endpoints are gone", |api| {
        let named = |o: &serde_json::Value| meta::name(o).starts_with("web");
        !api.list("", "endpoints", "default").iter().any(named)
            && !api.list("discovery.k8s.io", "endpointslices", "default").iter().any(named)
    })
    .await;
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_fits_nowhere_says_why_and_runs_once_it_fits() {
    let Some(lab) = lab("unschedulable").await else { return };
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "big"}, "spec": {
        "containers": [{"name": "c", "image": "echo", "resources": {"requests": {"cpu": "100"}}}]}});
    has(&lab.apply(&pod).await, "pod/big created");
    lab.until("refused", |api| {
        let pods = api.list("", "pods", "default");
        pods.iter().any(|p| text(p, "/status/conditions/0/reason") == "Unschedulable")
    })
    .await;
    let described = lab.ok("describe pod big").await;
    has(&described, "FailedScheduling");
    has(&described, "0/3 nodes are available: 3 Insufficient cpu.");
    lab.ok("patch node node-2 --subresource=status --type=merge -p {\"status\":{\"allocatable\":{\"cpu\":\"200\"}}}")
        .await;
    lab.ok("wait pod/big --for=condition=Ready --timeout=30s").await;
    assert_eq!(lab.ok("get pod big -o jsonpath={.spec.nodeName}").await, "node-2");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_goes_down_and_comes_up_on_the_same_address() {
    let Some(lab) = lab("api-down").await else { return };
    lab.ok("create deployment web --image=echo:1 --replicas=1").await;
    lab.ok("rollout status deployment/web --timeout=30s").await;
    let watch = lab.run("get pods --watch");
    let cut = async {
        // The watch is open once the server counts it.
        let watches = &lab.member.api().telemetry.longrunning;
        while watches.get() == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        lab.member.api_down().await;
    };
    let (watched, ()) = tokio::join!(watch, cut);
    has(&watched, "web-");
    assert_eq!(lab.member.api().telemetry.longrunning.get(), 0, "the watch is broken");
    has(&lab.run("get pods --request-timeout=5s").await, "refused");
    lab.member.api_down().await;
    lab.member.api_up().await.unwrap();
    has(&lab.ok("get deployment web").await, "1/1");
    lab.ok("scale deployment web --replicas=2").await;
    lab.ok("rollout status deployment/web --timeout=30s").await;
    lab.stop().await;
}
