//! What users write wrong is said at the object; others go on, nothing is half done, and a correction heals it.

use serde_json::{Value, json};

use super::{MEMBERS, becomes, playground};

fn deployment(annotation: &str, value: &str) -> String {
    format!(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  annotations:
    {annotation}: '{value}'
spec:
  replicas: 3
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers: [{{name: echo, image: echo}}]
"#
    )
}

#[test]
fn mistakes_are_told_and_change_nothing() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("mistakes", base.path()) else { return };
    playground.give(&deployment("mine", "fine"));
    let ready = || playground.numbers("deployment web", "/status/readyReplicas");
    becomes("spread", &vec![1, 1, 1], ready);
    let versions = || playground.numbers("deployment web", "/metadata/generation");
    let before = versions();
    for (annotation, value, expected) in [
        ("federation.kubernetes.io/deployment-preferences", "{nonsense", "deployment-preferences"),
        ("federation.alpha.kubernetes.io/cluster-selector", "[{", "cluster-selector"),
        ("landfall.dev/overrides", r#"[{"patch": 5}]"#, "landfall.dev/overrides"),
        (
            "landfall.dev/replica-policy",
            r#"{"onClusterLoss": "Panic"}"#,
            "Migrate, Overprovision or Autoscale",
        ),
        ("landfall.dev/rollout", r#"{"parallel": 0}"#, "parallel: must be at least 1"),
    ] {
        playground.give(&deployment(annotation, value));
        becomes(annotation, &"False Invalid".to_owned(), || playground.propagated("deployment web"));
        let message = playground.kubectl_ok(
            "get deployment web -o jsonpath={.status.conditions[?(@.type==\"Propagated\")].message}",
        );
        assert!(message.contains(expected), "{annotation}: {message}");
        playground.give(&deployment("mine", "fine"));
        becomes("mended", &"True Propagated".to_owned(), || playground.propagated("deployment web"));
    }
    assert_eq!(versions(), before, "no shard was touched");
    // A mistake does not keep an object from being deleted.
    playground.give(&deployment("landfall.dev/overrides", "nonsense"));
    playground.kubectl_ok("delete deployment web --timeout=60s");
    becomes("gone", &vec![-1, -1, -1], versions);
    let events = playground.kubectl_ok("get events --field-selector reason=Invalid");
    assert!(events.contains("cluster-selector"), "{events}");
}

#[test]
fn what_one_member_refuses_the_others_have() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("refusals", base.path()) else { return };
    // An override that makes the shard invalid in one cluster, and one that does not apply in another.
    let overrides = r#"[{"clusters": ["asia-east"], "patch": [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": ""}]}, {"clusters": ["eu-west"], "patch": [{"op": "remove", "path": "/spec/nothing"}]}]"#;
    playground.give(&deployment("landfall.dev/overrides", overrides));
    becomes("where it can be", &json!([Value::Null, Value::Null, 1]), || {
        MEMBERS
            .iter()
            .map(|member| playground.object(member, "deployment web")["status"]["readyReplicas"].clone())
            .collect()
    });
    becomes("it says so", &"False Failed".to_owned(), || playground.propagated("deployment web"));
    let told = || {
        playground.object("federation", "deployment web")["metadata"]["annotations"]["landfall.dev/clusters"]
            .to_string()
    };
    becomes("both reasons", &(true, true), || {
        (
            told().contains("asia-east: Failed") && told().contains("image"),
            told().contains("does not apply in cluster eu-west"),
        )
    });
    playground.give(&deployment("mine", "fine"));
    becomes("mended", &vec![1, 1, 1], || playground.numbers("deployment web", "/status/readyReplicas"));
}
