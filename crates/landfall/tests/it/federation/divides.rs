//! What is divided or goes in turns: autoscalers, jobs, rollouts; and kinds of users' own.

use serde_json::{Value, json};

use super::{MEMBERS, becomes, playground};

#[test]
fn autoscalers_and_jobs_are_divided() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("autoscalers and jobs", base.path()) else { return };
    playground.kubectl_ok("create deployment web --image=echo --replicas=6");
    playground.kubectl_ok("autoscale deployment web --min=3 --max=12 --cpu=50%");
    let hpa = "hpa web";
    becomes("maximums", &vec![4, 4, 4], || playground.numbers(hpa, "/spec/maxReplicas"));
    becomes("minimums", &vec![1, 1, 1], || playground.numbers(hpa, "/spec/minReplicas"));
    // A number that a member's autoscaler chose is not taken back.
    playground.kubectl_ok("--context us-east scale deployment web --replicas=3");
    playground.kubectl_ok("label deployment web changed=yes");
    becomes("the rest goes on", &vec![json!("yes"); 3], || {
        MEMBERS
            .iter()
            .map(|m| playground.object(m, "deployment web")["metadata"]["labels"]["changed"].clone())
            .collect()
    });
    assert_eq!(playground.object("us-east", "deployment web")["spec"]["replicas"], 3);

    playground.give(
        r#"
apiVersion: batch/v1
kind: Job
metadata: {name: sums}
spec:
  parallelism: 3
  completions: 6
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox, command: ["true"]}]
"#,
    );
    becomes("completions", &vec![2, 2, 2], || playground.numbers("job sums", "/spec/completions"));
    becomes("parallelism", &vec![1, 1, 1], || playground.numbers("job sums", "/spec/parallelism"));
}

const CAREFUL: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: careful
  annotations:
    landfall.dev/rollout: '{"order": ["eu-west"]}'
spec:
  replicas: 3
  progressDeadlineSeconds: 5
  selector: {matchLabels: {app: careful}}
  template:
    metadata: {labels: {app: careful}}
    spec:
      containers:
      - name: echo
        image: "IMAGE"
        readinessProbe: {httpGet: {path: /status/CODE, port: 8080}, periodSeconds: 1}
"#;

fn careful(image: &str, code: &str) -> String {
    CAREFUL.replace("IMAGE", image).replace("CODE", code)
}

#[test]
fn a_rollout_goes_from_cluster_to_cluster_and_stops_where_it_fails() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("rollouts", base.path()) else { return };
    playground.give(&careful("echo:1", "200"));
    becomes("first", &vec![1, 1, 1], || playground.numbers("deployment careful", "/status/readyReplicas"));
    let images = || -> Vec<Value> {
        let image = |member: &&str| {
            playground
                .object(member, "deployment careful")
                .pointer("/spec/template/spec/containers/0/image")
                .cloned()
        };
        MEMBERS.iter().filter_map(image).collect()
    };
    // A version that never gets ready.
    playground.give(&careful("echo:2", "500"));
    becomes("the first cluster has it", &json!(["echo:1", "echo:2", "echo:1"]), || json!(images()));
    becomes("and it stops there", &json!("RolloutPaused"), || {
        let object = playground.object("federation", "deployment careful");
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().find(|c| c["type"] == "RollingOut").map(|c| c["reason"].clone()).unwrap_or_default()
    });
    assert_eq!(json!(images()), json!(["echo:1", "echo:2", "echo:1"]));
    // Who waits for the rollout is not told that it is done.
    let object = playground.object("federation", "deployment careful");
    assert_ne!(object["status"]["observedGeneration"], object["metadata"]["generation"], "{object}");
    let told = object["metadata"]["annotations"]["landfall.dev/clusters"].as_str().unwrap_or("").to_owned();
    assert_eq!(told.matches("RolloutHeld").count(), 2, "{told}");
    playground.give(&careful("echo:3", "200"));
    becomes("it goes on", &json!(["echo:3", "echo:3", "echo:3"]), || json!(images()));
    playground.kubectl_ok("rollout status deployment/careful --timeout=60s");
}

#[test]
fn kinds_of_users_own_are_federated_when_they_are_marked() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("custom kinds", base.path()) else { return };
    playground.give(
        r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
  labels: {landfall.dev/federated: "true"}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"#,
    );
    playground.kubectl_ok("wait --for=condition=Established crd/widgets.example.com --timeout=60s");
    becomes("a widget", &true, || {
        let file = playground.dir().join("widget.yaml");
        std::fs::write(
            &file,
            "{apiVersion: example.com/v1, kind: Widget, metadata: {name: one}, spec: {size: 3}}",
        )
        .unwrap();
        playground.kubectl(&format!("apply -f {}", file.display())).status.success()
    });
    becomes("everywhere", &vec![3, 3, 3], || playground.numbers("widget one", "/spec/size"));
    playground.kubectl_ok("delete widget one --timeout=60s");
    becomes("nowhere", &vec![-1, -1, -1], || playground.numbers("widget one", "/spec/size"));
}
