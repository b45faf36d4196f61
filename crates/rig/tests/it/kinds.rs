//! One of every federated kind on real clusters, and what a real quota refuses.

use serde_json::{Value, json};

use crate::federated::{Federation, HUB, MEMBERS, becomes};

/// The kinds that have no story of their own, one object each.
const ALL: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: my-namespace, annotations: {landfall.dev/replica-policy: '{"holdDownSeconds": 5, "unschedulableSeconds": 2}'}}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: web, image: landfall.dev/echo:dev}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: scaled, namespace: my-namespace}
spec:
  replicas: 3
  selector: {matchLabels: {app: scaled}}
  template:
    metadata: {labels: {app: scaled}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: scaled, image: landfall.dev/echo:dev}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: scaled, namespace: my-namespace}
spec: {minReplicas: 3, maxReplicas: 12, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: scaled}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: sums, namespace: my-namespace}
spec:
  parallelism: 3
  completions: 3
  template: {spec: {restartPolicy: Never, containers: [{name: sums, image: "landfall.dev/tools:1", command: ["true"]}]}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: my-namespace}
spec:
  schedule: 0 3 * * *
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "landfall.dev/tools:1", command: ["true"]}]}}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: my-namespace}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: agent, image: landfall.dev/echo:dev}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: queue, namespace: my-namespace}
spec:
  replicas: 1
  serviceName: queue
  selector: {matchLabels: {app: queue}}
  template:
    metadata: {labels: {app: queue}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: queue, image: landfall.dev/echo:dev}]}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: set, namespace: my-namespace}
spec:
  replicas: 3
  selector: {matchLabels: {app: set}}
  template:
    metadata: {labels: {app: set}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: set, image: landfall.dev/echo:dev}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: my-namespace}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: open, namespace: my-namespace}
spec: {podSelector: {}, ingress: [{}]}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: my-namespace}, data: {color: green}}
---
{apiVersion: v1, kind: Secret, metadata: {name: words, namespace: my-namespace}, stringData: {word: open}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: my-namespace}}
"#;

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com, labels: {landfall.dev/federated: "true"}}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
"#;
const WIDGET: &str = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: one, namespace: my-namespace}, spec: {size: 3}}";

/// Where the objects above stand, as `kubectl get` has it.
const SHARDS: [&str; 15] = [
    "deployment/web",
    "deployment/scaled",
    "hpa/scaled",
    "job/sums",
    "cronjob/nightly",
    "daemonset/agent",
    "statefulset/queue",
    "replicaset/set",
    "pdb/web",
    "networkpolicy/open",
    "configmap/settings",
    "secret/words",
    "serviceaccount/robot",
    "widget/one",
    "crd/widgets.example.com",
];

pub(crate) const WEB: &str = "deployment web -n my-namespace";

/// What the hub's account in a member may do is enough for all of them.
pub(crate) fn all_kinds_are_everywhere(federation: &Federation) {
    federation.create(HUB, DEFINITION);
    federation.create(HUB, ALL);
    federation.kubectl(HUB, "wait --for=condition=Established crd/widgets.example.com --timeout=60s");
    federation.create(HUB, WIDGET);
    let everywhere = |what: &&str| {
        let object = federation.object(HUB, &format!("{what} -n my-namespace"));
        let told =
            object["metadata"]["annotations"]["landfall.dev/clusters"].as_str().unwrap_or("").to_owned();
        let lines = told.lines().filter(|line| line.contains(": Propagated")).count();
        if lines == MEMBERS.len() { None } else { Some(format!("{what}: {told:?}")) }
    };
    becomes("every kind is everywhere", &Vec::new(), || {
        SHARDS.iter().filter_map(everywhere).collect::<Vec<_>>()
    });
    let numbers = |what: &str, path: &str| federation.numbers(&format!("{what} -n my-namespace"), path);
    becomes("two in each", &vec![2, 2, 2], || federation.numbers(WEB, "/status/readyReplicas"));
    becomes("maximums", &vec![4, 4, 4], || numbers("hpa scaled", "/spec/maxReplicas"));
    becomes("minimums", &vec![1, 1, 1], || numbers("hpa scaled", "/spec/minReplicas"));
    assert_eq!(numbers("job sums", "/spec/completions"), [1, 1, 1]);
    assert_eq!(numbers("widget one", "/spec/size"), [3, 3, 3]);
    federation.kubectl(HUB, "wait --for=condition=Complete job/sums -n my-namespace --timeout=120s");
    becomes("sums", &json!([3, 3, 3, 3]), || {
        let number = |what: &str, path: &str| {
            federation
                .object(HUB, &format!("{what} -n my-namespace"))
                .pointer(path)
                .cloned()
                .unwrap_or_default()
        };
        Value::from(vec![
            number("job sums", "/status/succeeded"),
            number("daemonset agent", "/status/numberReady"),
            number("replicaset set", "/status/readyReplicas"),
            number("statefulset queue", "/status/readyReplicas"),
        ])
    });
    // They have told what there was to tell; the rest is easier to follow without their pods.
    for what in [
        "deployment/scaled",
        "hpa/scaled",
        "job/sums",
        "daemonset/agent",
        "statefulset/queue",
        "replicaset/set",
    ] {
        federation.kubectl(HUB, &format!("delete {what} -n my-namespace --timeout=60s"));
    }
    federation.kubectl(HUB, "delete widget/one -n my-namespace --timeout=60s");
    federation.kubectl(HUB, "delete crd/widgets.example.com --timeout=60s");
    becomes("gone with their definition", &[false; 3], || {
        MEMBERS.map(|name| federation.object(name, "crd/widgets.example.com") != Value::Null)
    });
}

/// A cluster that may not make one more Deployment: the others run its share until it may.
pub(crate) fn a_quota_moves_a_share_and_gives_it_back(federation: &Federation) {
    let quota = "quota none -n my-namespace";
    federation.kubectl("eu-west", &format!("create {quota} --hard=count/deployments.apps=0"));
    becomes("the quota is in force", &json!("0"), || {
        federation.object("eu-west", quota)["status"]["hard"]["count/deployments.apps"].clone()
    });
    federation.kubectl("eu-west", &format!("delete {WEB}"));
    let ready = || federation.numbers(WEB, "/status/readyReplicas");
    becomes("its share is elsewhere", &vec![3, -1, 3], ready);
    becomes("it says why", &(true, true, true), || {
        let told = federation.told(WEB);
        (told.contains("eu-west: Failed"), told.contains("exceeded quota"), told.contains("RefusedHeld"))
    });
    assert_eq!(federation.propagated(WEB), "False Failed");
    let events =
        federation.kubectl(HUB, "get events -n my-namespace --field-selector reason=FailedInCluster");
    assert!(events.contains("exceeded quota"), "{events}");
    federation.kubectl("eu-west", &format!("delete {quota}"));
    becomes("its share is back", &vec![2, 2, 2], ready);
    becomes("well again", &"True Propagated".to_owned(), || federation.propagated(WEB));
}
