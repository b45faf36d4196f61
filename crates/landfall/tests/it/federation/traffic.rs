//! What edges are told: verdicts by majority, who goes where, and the federation itself. The edges are made by hand.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{MEMBERS, becomes, playground_with};
use crate::support::Playground;

const SHOP: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: echo
        image: echo
        readinessProbe: {httpGet: {path: /, port: 8080}}
---
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: web}}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: front}
spec:
  rules:
  - host: shop.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
"#;

/// Edges that stand in the members and say what they are told to.
struct Edges<'a> {
    playground: &'a Playground,
    /// What each says about the service in each member; who says nothing is silent.
    says: Mutex<BTreeMap<&'static str, Option<BTreeMap<&'static str, bool>>>>,
    beat: AtomicU32,
    over: AtomicBool,
}

impl<'a> Edges<'a> {
    fn new(playground: &'a Playground) -> Self {
        for member in MEMBERS {
            playground.give(&format!(
                "{{apiVersion: landfall.dev/v1alpha1, kind: Edge, metadata: {{name: by-hand-{member}}}, spec: {{cluster: {member}}}}}"
            ));
        }
        let up: BTreeMap<_, _> = MEMBERS.iter().map(|member| (*member, true)).collect();
        let says = MEMBERS.iter().map(|member| (*member, Some(up.clone()))).collect();
        Self { playground, says: Mutex::new(says), beat: AtomicU32::new(0), over: AtomicBool::new(false) }
    }

    /// Has an edge say something about a member.
    fn say(&self, edge: &'static str, about: &'static str, up: bool) {
        self.says.lock().unwrap().get_mut(edge).unwrap().as_mut().unwrap().insert(about, up);
    }

    /// Has an edge say nothing any more.
    fn silence(&self, edge: &'static str) {
        self.says.lock().unwrap().insert(edge, None);
    }

    /// Every heart beats, until it is over.
    fn live(&self) {
        while !self.over.load(Ordering::Acquire) {
            let all = self.says.lock().unwrap().clone();
            for (edge, says) in all {
                let Some(says) = says else { continue };
                let vote = |(about, up): (&&str, &bool)| json!({"target": format!("{about}/default/web:80"), "up": up});
                let beat = self.beat.fetch_add(1, Ordering::Relaxed);
                let status = json!({"status": {
                    "heartbeatTime": format!("2026-01-01T00:00:00.{beat:06}Z"),
                    "votes": says.iter().map(vote).collect::<Vec<_>>(),
                }});
                self.playground.kubectl_ok(&format!(
                    "patch edge by-hand-{edge} --subresource=status --type=merge -p {status}"
                ));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn plan(playground: &Playground) -> Value {
    playground.object("federation", "trafficplan web")["spec"].clone()
}

/// The verdicts as words: `asia-east up 3:0, …`.
fn verdicts(plan: &Value) -> String {
    let one = |cluster: &Value| {
        let verdict = &cluster["verdict"];
        let word = if verdict["up"] == true { "up" } else { "down" };
        format!(
            "{} {word} {}:{}",
            cluster["name"].as_str().unwrap(),
            verdict["votesUp"],
            verdict["votesDown"]
        )
    };
    let clusters = plan["clusters"].as_array().cloned().unwrap_or_default();
    clusters.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Whom clients in a member may ask, in order; the first that take a part are marked.
fn choices(plan: &Value, cluster: &str) -> String {
    let vantages = plan["vantages"].as_array().cloned().unwrap_or_default();
    let own = vantages.iter().find(|vantage| vantage["cluster"] == cluster);
    let one = |choice: &Value| {
        let mark = if choice["fraction"].as_f64() > Some(0.0) { "*" } else { "" };
        format!("{}{mark}", choice["cluster"].as_str().unwrap_or(""))
    };
    let list = own.and_then(|own| own["choices"].as_array()).cloned().unwrap_or_default();
    list.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_service_has_a_plan_that_follows_the_majority() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground_with("traffic plans", base.path(), &["--no-edges"]) else { return };
    playground.give(SHOP);
    let seen = || {
        let plan = plan(&playground);
        let clusters = plan["clusters"].as_array().cloned().unwrap_or_default();
        let one = |cluster: &Value| {
            let known = |key: &str| cluster[key].as_array().is_some_and(|list| !list.is_empty());
            format!(
                "{} {} {} {}",
                cluster["name"].as_str().unwrap(),
                cluster["endpoints"],
                known("addresses"),
                known("clusterIPs") || known("clusterIps")
            )
        };
        clusters.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let expected = "asia-east 2 true true, eu-west 2 true true, us-east 2 true true".to_owned();
    becomes("every member serves it", &expected, seen);
    let told = plan(&playground);
    assert_eq!(told["hosts"], json!(["shop.example.com"]));
    assert_eq!(
        (&told["healthCheck"]["protocol"], &told["healthCheck"]["port"]),
        (&json!("HTTP"), &json!(80)),
        "as its pods are probed"
    );
    assert!(choices(&told, "eu-west").starts_with("eu-west* "), "local first: {told}");
    // Nothing changes, nothing is written, whoever else is.
    let version =
        || playground.object("federation", "trafficplan web")["metadata"]["resourceVersion"].clone();
    let before = version();
    playground.kubectl_ok("annotate service web note=well");
    becomes("the annotation has arrived", &json!("well"), || {
        playground.object("us-east", "service web")["metadata"]["annotations"]["note"].clone()
    });
    playground.kubectl_ok("create service clusterip other --tcp=80");
    becomes("another has one too", &json!("other"), || {
        playground.object("federation", "trafficplan other")["spec"]["targetRef"]["name"].clone()
    });
    assert_eq!(version(), before, "{}", plan(&playground));

    let edges = Edges::new(&playground);
    std::thread::scope(|scope| {
        scope.spawn(|| edges.live());
        vote(&playground, &edges);
        edges.over.store(true, Ordering::Release);
    });

    playground.kubectl_ok("delete service web");
    becomes("its plan goes with it", &Value::Null, || playground.object("federation", "trafficplan web"));
}

fn vote(playground: &Playground, edges: &Edges<'_>) {
    let told = || verdicts(&plan(playground));
    becomes("all vote", &"asia-east up 3:0, eu-west up 3:0, us-east up 3:0".to_owned(), told);
    edges.say("asia-east", "us-east", false);
    becomes("one is not heard", &"asia-east up 3:0, eu-west up 3:0, us-east up 2:1".to_owned(), told);
    edges.say("eu-west", "us-east", false);
    becomes("two are", &"asia-east up 3:0, eu-west up 3:0, us-east down 1:2".to_owned(), told);
    let down = plan(playground);
    assert_eq!(
        choices(&down, "eu-west").split(' ').filter(|name| name.starts_with("us-east")).count(),
        0,
        "{down}"
    );
    assert!(choices(&down, "us-east").starts_with("us-east* "), "its own edge sees it up: {down}");
    let reason = down["clusters"][2]["verdict"]["reason"].as_str().unwrap().to_owned();
    assert_eq!(reason, "MajorityDown: 2 of 3 edges say down");
    let event = || {
        let events = playground
            .kubectl_ok("get events -o jsonpath={range.items[?(@.reason==\"ClusterDown\")]}{.message}{end}");
        events.starts_with("us-east is down: MajorityDown: 2 of 3 edges say down: by-hand-asia-east down")
    };
    becomes("it is told", &true, event);
    edges.say("asia-east", "us-east", true);
    becomes("up again", &"asia-east up 3:0, eu-west up 3:0, us-east up 2:1".to_owned(), told);

    let alive = || {
        let whole = playground.object("federation", "-n landfall-system trafficplan federation");
        let edges = whole["spec"]["federation"]["edges"].as_array().cloned().unwrap_or_default();
        let mine = edges
            .iter()
            .filter(|edge| edge["name"].as_str().is_some_and(|name| name.starts_with("by-hand-")));
        mine.map(|edge| if edge["alive"] == true { '+' } else { '-' }).collect::<String>()
    };
    assert_eq!(alive(), "+++");
    edges.silence("asia-east");
    becomes("it lapses", &"-++".to_owned(), alive);
    becomes("and has no vote", &"asia-east up 2:0, eu-west up 2:0, us-east up 1:1".to_owned(), told);
    // One that is left alone changes nothing, whatever it sees.
    edges.silence("us-east");
    becomes("it is frozen", &"asia-east up 1:0, eu-west up 1:0, us-east up 0:1".to_owned(), told);
    let reason = plan(playground)["clusters"][2]["verdict"]["reason"].to_string();
    assert!(reason.contains("TooFewVoters: 1 of 1 edges say down, but only 1 of 3 clusters"), "{reason}");
}

#[test]
fn policies_and_regions_are_followed_or_told_why_not() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground_with("traffic policies", base.path(), &["--no-edges"]) else { return };
    playground.give(SHOP);
    let policy = |name: &str, spec: Value| {
        let object = json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "TrafficPolicy", "metadata": {"name": name}, "spec": spec});
        playground.give(&object.to_string());
    };
    becomes("planned", &3, || plan(&playground)["clusters"].as_array().map_or(0, Vec::len));
    policy("fence", json!({"fence": {"names": ["eu-west", "us-east"]}, "dns": {"ttlSeconds": 30}}));
    becomes("inside the fence", &json!(["eu-west", "us-east"]), || plan(&playground)["fence"].clone());
    becomes("nobody leaves it", &"eu-west us-east".to_owned(), || {
        let mut names: Vec<String> =
            choices(&plan(&playground), "asia-east").replace('*', "").split(' ').map(str::to_owned).collect();
        names.sort();
        names.join(" ")
    });
    assert_eq!(plan(&playground)["dnsTtlSeconds"], 30);
    // Ages are counted in seconds.
    std::thread::sleep(Duration::from_millis(1100));
    policy("late", json!({}));
    let standing = |name: &str| {
        let object = playground.object("federation", &format!("trafficpolicy {name}"));
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let one = |condition: &Value| {
            format!("{}={}", condition["type"].as_str().unwrap(), condition["status"].as_str().unwrap())
        };
        conditions.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    becomes("the oldest counts", &"Accepted=False Conflicted=True".to_owned(), || standing("late"));
    becomes("and is followed", &"Accepted=True Conflicted=False".to_owned(), || standing("fence"));
    playground.kubectl_ok("delete trafficpolicy fence");
    becomes("the next takes over", &"Accepted=True Conflicted=False".to_owned(), || standing("late"));
    becomes("no fence", &Value::Null, || plan(&playground)["fence"].clone());

    playground.give(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: regions, namespace: landfall-system}, \
         data: {offices: \"192.0.2.0/24: europe\\nnonsense\\n\"}}",
    );
    let prefixes = || {
        playground.object("federation", "-n landfall-system trafficplan federation")["spec"]["federation"]["prefixes"].clone()
    };
    becomes("prefixes", &json!([{"cidr": "192.0.2.0/24", "region": "europe"}]), prefixes);
    becomes("what is wrong is told", &true, || {
        playground.kubectl_ok("get events -n landfall-system").contains("InvalidRegions")
    });
    playground.kubectl_ok(r#"patch cluster eu-west --type=merge -p {"spec":{"draining":true}}"#);
    becomes("drained", &false, || choices(&plan(&playground), "eu-west").contains("eu-west"));
}
