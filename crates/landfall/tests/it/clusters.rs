//! Clusters that join and leave, as an operator does it: a hub, simulated members, and a real Kubernetes.

use std::path::Path;
use std::process::Output;

use base64::Engine as _;
use serde_json::Value;

use crate::support::{Hub, Kubernetes, Playground, landfall, missing, skip, text};

/// An operator's shell.
struct Operator<'a> {
    directory: &'a Path,
    hub: &'a Path,
    members: &'a Path,
}

impl Operator<'_> {
    fn run(&self, line: &str) -> Output {
        let (hub, members) = (self.hub.to_str().unwrap(), self.members.to_str().unwrap());
        let line = line.replace("HUB", hub).replace("MEMBERS", members);
        landfall(self.directory).args(line.split_whitespace()).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    #[track_caller]
    fn refused(&self, line: &str, says: &str) {
        let output = self.run(line);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}{}", text(&output.stdout));
        assert!(said.contains(says), "{line}: {said}");
    }

    #[track_caller]
    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(line)).unwrap()
    }

    /// The token that the hub keeps for a cluster.
    fn token(&self, cluster: &str) -> String {
        let secret =
            self.json(&format!("get secret cluster-{cluster} -n landfall-system -o json --kubeconfig HUB"));
        let data = secret["data"]["token"].as_str().unwrap();
        String::from_utf8(base64::engine::general_purpose::STANDARD.decode(data).unwrap()).unwrap()
    }

    /// A kubeconfig of someone with this token at a cluster that has joined.
    fn with_token(&self, cluster: &str) -> String {
        let object = self.json(&format!("get cluster {cluster} -o json --kubeconfig HUB"));
        let (server, authority) = (&object["spec"]["endpoints"][0]["server"], &object["spec"]["caBundle"]);
        let token = self.token(cluster);
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": "it", "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        let file = self.directory.join(format!("{cluster}-token.json"));
        std::fs::write(&file, config.to_string()).unwrap();
        file.display().to_string()
    }
}

const AT: &str = "--kubeconfig MEMBERS --hub-kubeconfig HUB";

#[test]
fn members_join_rest_and_leave() {
    let base = tempfile::tempdir().unwrap();
    let playground = Playground::start(base.path(), &["--clusters", "2"]);
    let hub = Hub::start();
    let operator =
        Operator { directory: base.path(), hub: &hub.kubeconfig, members: &playground.kubeconfig() };
    let joined = operator.ok(&format!("join east {AT} --context us-east --label tier=gold --zone z1"));
    assert!(joined.starts_with("east: Kubernetes v1.36.4 at https://"), "{joined}");
    assert!(
        joined.ends_with("2 nodes in us-east\ncluster.landfall.dev/east joined\neast is ready.\n"),
        "{joined}"
    );
    let token = operator.token("east");
    assert!(token.len() > 100 && !joined.contains(&token));

    let cluster = operator.json("get cluster east -o json --kubeconfig HUB");
    let labels = &cluster["metadata"]["labels"];
    assert_eq!(
        (&labels["tier"], &labels["topology.kubernetes.io/region"]),
        (&"gold".into(), &"us-east".into())
    );
    let spec = &cluster["spec"];
    assert_eq!((&spec["zones"][0], &spec["region"]), (&"z1".into(), &Value::Null), "only what was given");
    assert_eq!(spec["credentials"]["name"], "cluster-east");

    // The account may do what it needs to, and nothing else.
    let account = operator.with_token("east");
    for (kind, may) in [("deployments", true), ("secrets", true), ("nodes", true), ("clusterroles", false)] {
        let output = operator.run(&format!("get {kind} --kubeconfig {account}"));
        assert_eq!(output.status.success(), may, "{kind}: {}", text(&output.stderr));
    }
    operator.refused(
        &format!("delete node us-east-1 --kubeconfig {account}"),
        "User \"system:serviceaccount:landfall-system:landfall-hub\" cannot delete resource \"nodes\"",
    );

    // Again: nothing changes.
    let again = operator.ok(&format!("join east {AT} --context us-east --label tier=gold --zone z1"));
    assert_eq!(again, joined);
    let after = operator.json("get cluster east -o json --kubeconfig HUB");
    assert_eq!(after["metadata"]["generation"], cluster["metadata"]["generation"]);
    assert_eq!(operator.token("east"), token);

    assert_eq!(operator.ok("cordon east --kubeconfig HUB"), "cluster.landfall.dev/east cordoned\n");
    assert_eq!(operator.ok("cordon east --kubeconfig HUB"), "cluster.landfall.dev/east already cordoned\n");
    assert_eq!(operator.ok("drain east --no-wait --kubeconfig HUB"), "cluster.landfall.dev/east draining\n");
    let screen = operator.ok("status --kubeconfig HUB");
    assert!(screen.lines().any(|line| line.starts_with("east") && line.ends_with("draining")), "{screen}");
    // Joining again does not end a drain.
    operator.ok(&format!("join east {AT} --context us-east --no-wait"));
    let spec = operator.json("get cluster east -o json --kubeconfig HUB")["spec"].clone();
    assert_eq!((&spec["cordoned"], &spec["draining"]), (&true.into(), &true.into()));
    assert_eq!(operator.ok("uncordon east --kubeconfig HUB"), "cluster.landfall.dev/east uncordoned\n");
    let spec = operator.json("get cluster east -o json --kubeconfig HUB")["spec"].clone();
    assert_eq!((&spec["cordoned"], &spec["draining"]), (&Value::Null, &Value::Null));

    let left = operator.ok(&format!("unjoin east {AT} --context us-east"));
    assert!(
        left.ends_with("cluster.landfall.dev/east has left\nthe hub's account in the member removed\n"),
        "{left}"
    );
    operator.refused("get cluster east --kubeconfig HUB", "not found");
    operator.refused("get secret cluster-east -n landfall-system --kubeconfig HUB", "not found");
    operator.refused(&format!("get deployments --kubeconfig {account}"), "Unauthorized");
    assert!(operator.ok("status --kubeconfig HUB").starts_with("No cluster has joined."));
}

#[test]
fn joins_that_cannot_be() {
    let base = tempfile::tempdir().unwrap();
    let mut playground = Playground::start(base.path(), &["--clusters", "2"]);
    let hub = Hub::start();
    let members = playground.kubeconfig();
    let operator = Operator { directory: base.path(), hub: &hub.kubeconfig, members: &members };
    operator.ok(&format!("join east {AT} --context us-east --no-wait"));
    for (line, says) in [
        ("join East AT --context us-east", "\"East\" cannot be a cluster's name: a DNS-1035 label must"),
        ("join west AT --context us-east", "has joined already, as \"east\"; `landfall unjoin east` first"),
        ("join east AT --context eu-west", "another cluster is called \"east\" already"),
        ("join hub --kubeconfig HUB --context admin", "the member is the hub itself"),
        (
            "join x AT --context mars",
            "the member: there is no context \"mars\"; there are federation, us-east, eu-west",
        ),
        ("join x AT", "say which context is the member's: --context; there are federation, us-east, eu-west"),
        ("join x --kubeconfig MEMBERS --context us-east --hub-context eu-west", "this server is no hub"),
        ("unjoin x --hub-kubeconfig HUB", "there is no cluster \"x\"; there are east"),
        ("forget x --kubeconfig HUB", "there is no cluster \"x\"; there are east"),
        ("drain x --kubeconfig HUB", "there is no cluster \"x\"; there are east"),
    ] {
        operator.refused(&line.replace("AT", AT), says);
    }
    // A name can be taken over, but only on purpose.
    operator.ok(&format!("join east {AT} --context eu-west --force --no-wait"));
    operator.ok(&format!("join west {AT} --context us-east --no-wait"));
    assert!(playground.process.interrupt());
    operator.refused(&format!("join x {AT} --context us-east"), "cannot reach the member at https://");
    assert_eq!(
        operator.ok("forget west --kubeconfig HUB").lines().last(),
        Some("cluster.landfall.dev/west has left")
    );
}

/// By her role she may do everything; but the members' credentials are no role's to give out.
#[test]
fn an_operator_who_is_no_administrator_joins_clusters_and_reads_no_token() {
    let base = tempfile::tempdir().unwrap();
    let playground = Playground::start(base.path(), &["--clusters", "1"]);
    let hub = Hub::start();
    let operator =
        Operator { directory: base.path(), hub: &hub.kubeconfig, members: &playground.kubeconfig() };
    let binding = serde_json::json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "operators"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    let file = base.path().join("operators.json");
    std::fs::write(&file, binding.to_string()).unwrap();
    operator.ok(&format!("apply -f {} --kubeconfig HUB", file.display()));
    let join = format!("join east {AT} --context us-east --hub-context alice");
    assert!(operator.ok(&join).ends_with("east is ready.\n"));
    operator.refused(
        "get secret cluster-east -n landfall-system --kubeconfig HUB --context alice",
        "are read by the hub and by the group system:masters only",
    );
    let all = operator.ok("get secrets -A --kubeconfig HUB --context alice");
    assert!(!all.contains("cluster-east"), "{all}");
    // Again: she cannot see the token that is there, and puts another in its place.
    assert!(operator.ok(&join).ends_with("east is ready.\n"));
    assert!(operator.token("east").len() > 100);
    let screen = operator.ok("status --kubeconfig HUB --context alice");
    assert!(screen.lines().any(|line| line.starts_with("east")), "{screen}");
    let left = operator.ok(&format!("unjoin east {AT} --context us-east --hub-context alice"));
    assert!(left.ends_with("the hub's account in the member removed\n"), "{left}");
    operator.refused("get secret cluster-east -n landfall-system --kubeconfig HUB", "not found");
}

#[test]
fn a_real_kubernetes_joins_with_a_lasting_token() {
    if let Some(why) = missing() {
        return skip("joining a real Kubernetes", &why);
    }
    let base = tempfile::tempdir().unwrap();
    let (kubernetes, hub) = (Kubernetes::start_with_tokens(), Hub::start());
    let operator = Operator { directory: base.path(), hub: &hub.kubeconfig, members: &kubernetes.kubeconfig };
    let line =
        format!("join real {AT} --context admin --hub-context admin --grant widgets.example.com --no-wait");
    let joined = operator.ok(&line);
    assert!(joined.ends_with("0 nodes\ncluster.landfall.dev/real joined\n"), "{joined}");
    let account = operator.with_token("real");
    operator.ok(&format!("get deployments,secrets,events,nodes --kubeconfig {account}"));
    operator.refused(
        &format!("get clusterroles --kubeconfig {account}"),
        "cannot list resource \"clusterroles\"",
    );
    assert_eq!(operator.ok(&line), joined);

    // What the account may do is enough for the hub's controllers.
    let file = base.path().join("all.yaml");
    std::fs::write(&file, format!("{WEB}---\n{REST}")).unwrap();
    operator.ok(&format!("apply -f {} --kubeconfig HUB --context admin", file.display()));
    let kinds = ["Deployment", "Namespace", "ConfigMap", "Secret", "Service", "Job"];
    eventually("everything is there", || {
        let screen = operator.ok("status --kubeconfig HUB --context admin");
        kinds.iter().all(|kind| screen.lines().any(|line| line.split_whitespace().eq([kind, "1", "1", "0"])))
    });
    operator
        .ok("get deployment/web configmap/c secret/s service/v job/j --kubeconfig MEMBERS --context admin");
    operator.ok("get namespace shop --kubeconfig MEMBERS --context admin");
    operator.ok(&format!("unjoin real {AT} --context admin --hub-context admin"));
    // The server may remember for a while whose token it was, but not that it may do anything.
    operator.refused(&format!("get deployments --kubeconfig {account}"), "error: from server (");
    operator.refused("get deployment/web --kubeconfig MEMBERS --context admin", "not found");
}

/// Waits until something is so.
#[track_caller]
fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !look() {
        assert!(began.elapsed() < std::time::Duration::from_secs(90), "never: {what}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

const WEB: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: echo}]}
";

/// One object of several kinds more.
const REST: &str = "\
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: b}}
---
{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: b}}
---
{apiVersion: v1, kind: Service, metadata: {name: v}, spec: {ports: [{port: 80}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: j, image: echo}]}}}
";

#[test]
fn replicas_are_drained_and_shards_leave_with_their_cluster() {
    let base = tempfile::tempdir().unwrap();
    let playground = Playground::start(base.path(), &[]);
    let file = base.path().join("web.yaml");
    std::fs::write(&file, WEB).unwrap();
    let ok = |line: &str| {
        let output = playground.landfall(&line.split_whitespace().collect::<Vec<_>>());
        assert!(output.status.success(), "{line}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    };
    let there = |cluster: &str| {
        let arguments = ["get", "deployment", "web", "-o", "name", "--context", cluster];
        playground.landfall(&arguments).status.success()
    };
    eventually("all are ready", || ok("status").lines().filter(|line| line.contains(" True ")).count() == 3);
    ok(&format!("apply -f {}", file.display()));
    eventually("it is everywhere", || {
        ok("status").lines().any(|line| line.split_whitespace().eq(["Deployment", "1", "1", "0"]))
    });
    let ready = || ok("get deployment web").contains("4/4");
    eventually("all replicas are ready", ready);

    let drained = ok("drain us-east");
    assert!(drained.starts_with("cluster.landfall.dev/us-east draining\nus-east: "), "{drained}");
    assert!(drained.contains(" replicas of 1 objects left\n"), "measured: {drained}");
    assert!(drained.ends_with("cluster.landfall.dev/us-east drained\n"), "{drained}");
    eventually("all replicas are ready elsewhere", ready);
    ok("uncordon us-east");

    // One leaves and keeps what it has, one leaves and keeps nothing.
    assert!(there("us-east") && there("eu-west"));
    let left = ok("unjoin us-east --orphan");
    assert!(left.ends_with("cluster.landfall.dev/us-east has left\n"), "{left}");
    let left = ok("unjoin eu-west");
    assert!(left.contains("waiting for eu-west: still there: 1 deployments"), "{left}");
    assert!(there("us-east"), "orphaned");
    assert!(!there("eu-west"), "taken away");
    // It joins again, and what it kept is adopted.
    ok("join us-east --context us-east --hub-context federation");
    eventually("it is everywhere again", || {
        let screen = ok("status");
        screen.contains("us-east")
            && screen.lines().any(|l| l.split_whitespace().eq(["Deployment", "1", "1", "0"]))
    });

    // A dead one does not leave by itself, and is told of; it can be forgotten.
    playground.fault(&["kill", "us-east"]);
    eventually("it is seen", || ok("status").contains("offline"));
    let output = playground.landfall(&["unjoin", "us-east", "--timeout", "2"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(
        text(&output.stdout).contains("If it never returns: `landfall forget us-east`"),
        "{}",
        text(&output.stdout)
    );
    assert!(text(&output.stderr).contains("us-east has not left after 2 s"), "{}", text(&output.stderr));
    let forgotten = ok("forget us-east");
    assert!(forgotten.ends_with("cluster.landfall.dev/us-east has left\n"), "{forgotten}");
    assert!(!ok("status").contains("us-east"));
}
