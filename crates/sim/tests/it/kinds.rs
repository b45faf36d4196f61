//! DaemonSets, StatefulSets, Jobs, autoscalers and load balancers through kubectl.

use std::time::Duration;

use landfall_api::meta;
use landfall_sim::controllers::read::{condition_true, items, text};
use serde_json::{Value, json};

use crate::lab::{has, lab};

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [
        {"name": "c", "image": image, "resources": {"requests": {"cpu": "100m"}}}]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_set_runs_everywhere_and_rolls() {
    let Some(lab) = lab("daemonset").await else { return };
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "x"}}, "template": template("echo:1")}});
    has(&lab.apply(&set).await, "daemonset.apps/d created");
    has(&lab.ok("rollout status daemonset/d --timeout=30s").await, "successfully rolled out");
    let mut nodes: Vec<String> =
        lab.list("", "pods").iter().map(|pod| text(pod, "/spec/nodeName").to_owned()).collect();
    nodes.sort();
    assert_eq!(nodes, ["node-1", "node-2", "node-3"]);
    lab.ok("set image daemonset/d c=echo:2").await;
    has(&lab.ok("rollout status daemonset/d --timeout=30s").await, "successfully rolled out");
    assert!(lab.list("", "pods").iter().all(|p| text(p, "/spec/containers/0/image") == "echo:2"));
    lab.ok("rollout undo daemonset/d").await;
    has(&lab.ok("rollout status daemonset/d --timeout=30s").await, "successfully rolled out");
    assert!(lab.list("", "pods").iter().all(|p| text(p, "/spec/containers/0/image") == "echo:1"));
    has(&lab.ok("describe daemonset d").await, "SuccessfulCreate");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateful_set_has_names_and_an_order() {
    let Some(lab) = lab("statefulset").await else { return };
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {
        "clusterIP": "None", "selector": {"app": "x"}, "ports": [{"port": 80}]}});
    has(&lab.apply(&service).await, "service/s created");
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": {
        "serviceName": "s", "replicas": 3, "selector": {"matchLabels": {"app": "x"}}, "template": template("echo:1")}});
    has(&lab.apply(&set).await, "statefulset.apps/s created");
    has(&lab.ok("rollout status statefulset/s --timeout=30s").await, "roll out complete: 3 new pods");
    let names = |pods: &[Value]| -> Vec<String> { pods.iter().map(|p| meta::name(p).to_owned()).collect() };
    assert_eq!(names(&lab.list("", "pods")), ["s-0", "s-1", "s-2"]);
    lab.until("hosts in the slice", |api| {
        let slices = api.list("discovery.k8s.io", "endpointslices", "default");
        let ours = slices.iter().filter(|s| meta::label(s, "kubernetes.io/service-name") == Some("s"));
        let mut hosts: Vec<&str> =
            ours.flat_map(|s| items(s, "/endpoints")).map(|e| text(e, "/hostname")).collect();
        hosts.sort_unstable();
        hosts == ["s-0", "s-1", "s-2"]
    })
    .await;
    lab.ok("set image statefulset/s c=echo:2").await;
    has(&lab.ok("rollout status statefulset/s --timeout=30s").await, "complete");
    assert!(lab.list("", "pods").iter().all(|p| text(p, "/spec/containers/0/image") == "echo:2"));
    lab.ok("scale statefulset s --replicas=1").await;
    lab.until("one is left", |api| api.list("", "pods", "default").len() == 1).await;
    assert_eq!(names(&lab.list("", "pods")), ["s-0"]);
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_complete_and_cron_jobs_make_them() {
    let Some(lab) = lab("job").await else { return };
    lab.ok("create job j --image=done").await;
    has(&lab.ok("wait job/j --for=condition=Complete --timeout=30s").await, "condition met");
    has(&lab.ok("describe job j").await, "Job completed");
    has(&lab.ok("get job j").await, "1/1");
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": {
        "schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "done"}]}}}}}});
    has(&lab.apply(&cron).await, "cronjob.batch/c created");
    lab.ok("create job now --from=cronjob/c").await;
    has(&lab.ok("wait job/now --for=condition=Complete --timeout=30s").await, "condition met");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_has_an_address_and_gives_it_back() {
    let Some(lab) = lab("loadbalancer").await else { return };
    lab.ok("create deployment web --image=echo:1 --port=8080").await;
    lab.ok("expose deployment web --type=LoadBalancer --port=80 --target-port=8080").await;
    lab.ok("wait service/web --for=jsonpath={.status.loadBalancer.ingress} --timeout=30s").await;
    let get = "get service web -o jsonpath={.status.loadBalancer.ingress[0].ip}";
    let first = lab.ok(get).await;
    let range = lab.member.settings().block.load_balancers();
    assert!(range.contains(first.parse().unwrap()), "{first}");
    has(&lab.ok("get service web").await, &first);
    lab.ok("delete service web").await;
    lab.ok("expose deployment web --type=LoadBalancer --port=80").await;
    lab.ok("wait service/web --for=jsonpath={.status.loadBalancer.ingress} --timeout=30s").await;
    assert_eq!(lab.ok(get).await, first, "it was free again");
    lab.ok("patch service web --type=merge -p {\"spec\":{\"type\":\"ClusterIP\"}}").await;
    assert_eq!(lab.ok(get).await, "");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_autoscaler_follows_the_load() {
    let Some(lab) = lab("hpa").await else { return };
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": template("echo:1")}});
    has(&lab.apply(&deployment).await, "created");
    lab.ok("rollout status deployment/web --timeout=30s").await;
    lab.ok("autoscale deployment web --min=1 --max=4 --cpu=50%").await;
    for pod in lab.list("", "pods") {
        lab.member.loads().set("default", meta::name(&pod), 200);
    }
    lab.until("more replicas", |api| {
        let all = api.list("apps", "deployments", "default");
        all.iter().any(|d| d["spec"]["replicas"] == json!(4))
    })
    .await;
    let described = lab.ok("describe hpa web").await;
    has(&described, "SuccessfulRescale");
    has(&described, "ValidMetricFound");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_on_disk_goes_on_where_it_was() {
    let claim = landfall_sim::address::Claim::take(None).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut config = crate::lab::config("kept", &claim, landfall_sim::Timings::PLAYGROUND);
    config.data = Some(directory.path().to_owned());
    let ready = || -> crate::lab::Ready { std::sync::Arc::new(|_| true) };
    for round in 0..2 {
        let member = std::sync::Arc::new(landfall_sim::Member::start(config.clone()).await.unwrap());
        let tasks = landfall_runtime::tasks::Tasks::default();
        tasks.spawn_until_stop(crate::lab::agent(member.clone(), crate::lab::Silent::default(), ready()));
        let api = member.client("test");
        if round == 0 {
            let place =
                landfall_apiserver::housekeeping::client::Place::new("apps", "replicasets", "default", "r");
            let set = json!({"metadata": {"name": "r"}, "spec": {"replicas": 2,
                "selector": {"matchLabels": {"app": "x"}}, "template": template("echo")}});
            api.create(&place, set).await.unwrap();
        }
        let mut follow = api.follow(|_| true).unwrap();
        let both = |pods: &[Value]| pods.len() == 2 && pods.iter().all(|pod| condition_true(pod, "Ready"));
        let wait = async {
            while !both(&api.list("", "pods", "default")) {
                follow.next().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(30), wait).await.expect("two pods");
        tasks.join().await;
        member.stop().await;
    }
}
