//! One object given once is in every cluster, is kept so, and its status comes back.

use serde_json::{Value, json};

use super::{MEMBERS, becomes, manifest, playground};

/// The service and the replication controller of the federation's first design: 6 replicas, two in each cluster.
#[test]
fn the_first_design_works_as_it_was_written() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("the first design", base.path()) else { return };
    playground.kubectl_ok("create namespace my-namespace");
    playground.kubectl_ok(&format!("create -f {}", manifest("my-service.yaml")));
    playground.kubectl_ok(&format!("create -f {}", manifest("my-service-rc.yaml")));
    let rc = "rc my-service -n my-namespace";
    becomes("two in each", &vec![2, 2, 2], || playground.numbers(rc, "/status/readyReplicas"));
    becomes("six in all", &json!([6, 6, 6]), || {
        let at = |path: &str| playground.object("federation", rc).pointer(path).cloned().unwrap_or_default();
        json!([at("/spec/replicas"), at("/status/replicas"), at("/status/readyReplicas")])
    });
    becomes("it says so", &"True Propagated".to_owned(), || playground.propagated(rc));

    let service = "service my-service -n my-namespace";
    let addresses: Vec<Value> = MEMBERS
        .iter()
        .map(|member| {
            let shard = playground.object(member, service);
            assert_eq!(shard["metadata"]["labels"]["run"], "my-service");
            assert_eq!(shard["spec"]["ports"].as_array().map(Vec::len), Some(2));
            assert!(shard["spec"]["clusterIP"].as_str().is_some_and(|ip| !ip.is_empty()), "{shard}");
            shard["status"]["loadBalancer"]["ingress"][0]["ip"].clone()
        })
        .collect();
    let own = || playground.object("federation", service);
    assert_eq!(own()["spec"].get("clusterIP").and_then(Value::as_str).unwrap_or(""), "");
    let ingress = || own()["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
    becomes("the members' addresses", &json!(addresses), || {
        ingress().iter().filter_map(|entry| entry.get("ip").cloned()).collect()
    });
    let hostname = "my-service.my-namespace.federation.example.com";
    assert!(ingress().iter().any(|entry| entry["hostname"] == hostname), "as the first design prints it");
    let events = playground.kubectl_ok("get events -n my-namespace");
    assert!(events.contains("created in asia-east, eu-west, us-east"), "{events}");
}

#[test]
fn shards_that_are_changed_or_deleted_by_hand_are_healed() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("healing", base.path()) else { return };
    playground.kubectl_ok("create deployment web --image=echo --replicas=6");
    let web = "deployment web";
    becomes("spread", &vec![2, 2, 2], || playground.numbers(web, "/status/readyReplicas"));
    playground.kubectl_ok("--context us-east scale deployment web --replicas=5");
    playground.kubectl_ok("--context eu-west delete deployment web");
    playground.kubectl_ok("--context asia-east label deployment web landfall.dev/federation-");
    playground.kubectl_ok("--context asia-east annotate deployment web mine=stays");
    playground.kubectl_ok("--context asia-east scale deployment web --replicas=4");
    becomes("healed", &vec![2, 2, 2], || playground.numbers(web, "/status/readyReplicas"));
    let shard = || playground.object("asia-east", web);
    becomes("marked again", &json!("federation"), || {
        shard()["metadata"]["labels"]["landfall.dev/federation"].clone()
    });
    assert_eq!(shard()["metadata"]["annotations"]["mine"], "stays", "what others wrote is theirs");
    becomes("it is told", &(true, true), || {
        let events = playground.kubectl_ok("get events --field-selector reason=HealInCluster");
        let of = |what: &str| events.contains(what);
        (
            of("us-east: changed in the member: spec.replicas"),
            of("eu-west: the shard is gone: it is made again"),
        )
    });

    // A rollout at the federation is one in every cluster, and its end is told.
    playground.kubectl_ok("set image deployment/web echo=echo:2");
    playground.kubectl_ok("rollout status deployment/web --timeout=60s");
    for member in MEMBERS {
        let image = playground.object(member, web).pointer("/spec/template/spec/containers/0/image").cloned();
        assert_eq!(image, Some(json!("echo:2")), "{member}");
    }
}

#[test]
fn selection_taints_overrides_and_adoption() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("selection", base.path()) else { return };
    for (member, data) in [("us-east", "old"), ("eu-west", "theirs")] {
        playground
            .kubectl_ok(&format!("--context {member} create configmap settings --from-literal=color={data}"));
    }
    let given = |selector: &str| {
        format!(
            r#"
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  annotations:
    federation.alpha.kubernetes.io/cluster-selector: '[{{"key": "topology.kubernetes.io/region", "operator": "{selector}", "values": ["eu-west"]}}]'
    landfall.dev/overrides: '[{{"clusters": ["asia-east"], "patch": [{{"op": "add", "path": "/data/here", "value": "asia"}}]}}]'
data:
  color: green
"#
        )
    };
    playground.give(&given("NotIn"));
    let data = || -> Vec<Value> {
        MEMBERS.iter().map(|member| playground.object(member, "configmap settings")["data"].clone()).collect()
    };
    let expected = vec![
        json!({"color": "green", "here": "asia"}),
        json!({"color": "theirs"}),
        json!({"color": "green"}),
    ];
    becomes("in two, adopted in one, not touched in the third", &expected, data);
    becomes("adopted", &json!("Adopted"), || {
        playground.object("us-east", "configmap settings")["metadata"]["annotations"]["landfall.dev/origin"]
            .clone()
    });
    // Turned round: what we made goes, what we found stays without our marks, and what was not ours is adopted.
    playground.give(&given("In"));
    let expected = vec![Value::Null, json!({"color": "green"}), json!({"color": "green"})];
    becomes("the other way round", &expected, data);
    becomes("let go", &Value::Null, || {
        playground.object("us-east", "configmap settings")["metadata"]["labels"]["landfall.dev/federation"]
            .clone()
    });
    playground.kubectl_ok("delete configmap settings");
    becomes("what was there before stays", &expected, data);
}

const WEB: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  defaultBackend: {service: {name: web, port: {number: 80}}}
"#;

#[test]
fn an_ingress_gets_node_ports_that_are_the_same_and_free_everywhere() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("node ports", base.path()) else { return };
    let ports = || playground.numbers("service web", "/spec/ports/0/nodePort");
    let own = || {
        playground
            .object("federation", "service web")
            .pointer("/spec/ports/0/nodePort")
            .and_then(Value::as_i64)
    };
    playground.give(WEB);
    becomes("chosen", &true, || own().is_some());
    let first = own().unwrap();
    becomes("the same everywhere", &vec![first; 3], ports);
    playground.kubectl_ok("delete ingress,service web --timeout=60s");
    becomes("gone", &vec![-1; 3], ports);
    // Somebody has it now in one cluster.
    playground.kubectl_ok(&format!(
        "--context us-east create service nodeport theirs --tcp=80 --node-port={first}"
    ));
    playground.give(WEB);
    becomes("another one", &true, || {
        own().is_some_and(|port| port != first) && ports() == vec![own().unwrap(); 3]
    });
}
