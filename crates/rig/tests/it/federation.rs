//! A federation of real clusters: they join a hub, and what is given to the hub is in all of them, whatever happens there.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use landfall_rig::Rig;
use serde_json::{Value, json};

use crate::support::{PATIENCE, config, curl, eventually, landfall, run, try_kubectl, turn};

const MEMBERS: [&str; 3] = ["us-east", "eu-west", "asia-east"];
/// The hub, where a cluster can be named.
const HUB: &str = "federation";
const SERVICE: &str = "service my-service -n my-namespace";
const RC: &str = "rc my-service -n my-namespace";
const INGRESS: &str = "ingress my-ingress -n my-namespace";
/// What no rig has in the first design's manifests, and what takes its place.
const REPLACED: [(&str, &str); 3] = [
    ("gcr.io/google_samples/my-service:v1", "landfall.dev/echo:dev"),
    ("targetPort: 2379", "targetPort: 8080"),
    ("targetPort: 2380", "targetPort: 8080"),
];
/// How soon a cluster that is lost must be told as such.
const OFFLINE: Duration = Duration::from_secs(10);
/// How long what was healed is watched for writes that nobody asked for.
const STILL: Duration = Duration::from_secs(10);

const INGRESS_YAML: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: my-ingress, namespace: my-namespace}
spec:
  defaultBackend: {service: {name: my-service, port: {number: 2379}}}
";

/// One rig and one hub for all of it: to start them takes longer than any part.
#[test]
fn real_clusters_are_one_federation() {
    let Some(_turn) = turn("real_clusters_are_one_federation") else { return };
    let federation = Federation::start();
    clusters_join(&federation);
    one_object_is_everywhere(&federation);
    what_is_done_by_hand_is_healed(&federation);
    replicas_move_from_a_lost_cluster_and_back(&federation);
    a_dead_api_does_not_hold_up_a_deletion(&federation);
    a_cluster_leaves(&federation);
    becomes("the namespace is gone everywhere", &[false; 2], || {
        let all = |name| federation.kubectl(name, "get namespaces -o name");
        ["us-east", "eu-west"].map(|name| all(name).contains("my-namespace"))
    });
}

fn clusters_join(federation: &Federation) {
    for name in MEMBERS {
        let said = federation.landfall(&format!("join {name} --kubeconfig MEMBERS --context {name}"));
        assert!(
            said.contains("Kubernetes v1.36.") && said.ends_with(&format!("{name} is ready.\n")),
            "{said}"
        );
    }
    let table = federation.kubectl(HUB, "get clusters");
    for name in MEMBERS {
        let line = table.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{table}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words.contains(&"True"), "{table}");
        let status = &federation.object(HUB, &format!("cluster {name}"))["status"];
        assert_eq!((&status["region"], &status["zones"]), (&json!(name), &json!([format!("{name}-a")])));
    }
}

/// The first design's Service, ReplicationController and Ingress; the last was there before in one cluster.
fn one_object_is_everywhere(federation: &Federation) {
    federation.kubectl("asia-east", "create namespace my-namespace");
    federation.create("asia-east", INGRESS_YAML);
    federation.kubectl(HUB, "create namespace my-namespace");
    for name in ["my-service.yaml", "my-service-rc.yaml"] {
        federation.create(HUB, &manifest(name));
    }
    federation.create(HUB, INGRESS_YAML);
    becomes("two in each", &vec![2, 2, 2], || federation.numbers(RC, "/status/readyReplicas"));
    let running = |name: &&str| {
        let pods = "get pods -n my-namespace -l run=my-service --field-selector=status.phase=Running -o name";
        federation.kubectl(name, pods).lines().count()
    };
    assert_eq!(MEMBERS.iter().map(running).collect::<Vec<_>>(), [2, 2, 2], "real pods");
    becomes("six in all", &json!([6, 6, 6]), || {
        let rc = federation.object(HUB, RC);
        json!([rc["spec"]["replicas"], rc["status"]["replicas"], rc["status"]["readyReplicas"]])
    });

    let mut addresses = BTreeSet::new();
    for name in MEMBERS {
        let address = eventually("a load balancer", || {
            let shard = federation.object(name, SERVICE);
            let ports = shard["spec"]["ports"].as_array().cloned().unwrap_or_default();
            let numbered = ports.len() == 2 && ports.iter().all(|port| port["nodePort"].is_u64());
            let address = shard["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().map(str::to_owned);
            let numbered = numbered && shard["spec"]["clusterIP"].is_string();
            address.filter(|_| numbered).ok_or(shard)
        });
        let answer = eventually("an answer", || curl(&format!("http://{address}:2379/")));
        assert!(answer.contains(name), "{name}: {answer}");
        addresses.insert(address);
    }
    assert_eq!(addresses.len(), 3);
    becomes("the members' addresses", &addresses, || {
        let ingress = federation.object(HUB, SERVICE)["status"]["loadBalancer"]["ingress"].clone();
        let entries = ingress.as_array().cloned().unwrap_or_default();
        entries.iter().filter_map(|entry| entry["ip"].as_str().map(str::to_owned)).collect()
    });
    assert_eq!(federation.object(HUB, SERVICE)["spec"].get("clusterIP"), None, "the hub gives no address");
    becomes(
        "adopted where it was",
        &vec!["Created", "Created", "Adopted"].into_iter().map(Into::into).collect(),
        || {
            let origin = |name: &&str| {
                let object = federation.object(name, INGRESS);
                object["metadata"]["annotations"]["landfall.dev/origin"].clone()
            };
            MEMBERS.iter().map(origin).collect::<Vec<Value>>()
        },
    );
    for what in [SERVICE, RC] {
        becomes(what, &"True Propagated".to_owned(), || federation.propagated(what));
    }
    // An Ingress has no conditions.
    becomes(INGRESS, &3, || {
        let object = federation.object(HUB, INGRESS);
        let told =
            object["metadata"]["annotations"]["landfall.dev/clusters"].as_str().unwrap_or("").to_owned();
        told.lines().filter(|line| line.contains(": Propagated")).count()
    });
}

fn what_is_done_by_hand_is_healed(federation: &Federation) {
    let before = federation.object("eu-west", RC)["metadata"]["uid"].clone();
    federation.kubectl("us-east", "scale rc my-service -n my-namespace --replicas=4");
    federation.kubectl("eu-west", &format!("delete {RC}"));
    federation.kubectl("asia-east", &format!("delete {SERVICE}"));
    becomes("made again", &true, || {
        let uid = federation.object("eu-west", RC)["metadata"]["uid"].clone();
        uid.is_string() && uid != before && federation.object("asia-east", SERVICE) != Value::Null
    });
    let settled = || {
        let ready = federation.numbers(RC, "/status/readyReplicas");
        let all = federation.numbers(RC, "/status/replicas");
        let asked = federation.numbers(RC, "/spec/replicas");
        let balanced = MEMBERS
            .iter()
            .filter(|name| federation.object(name, SERVICE)["status"]["loadBalancer"]["ingress"].is_array())
            .count();
        (ready, all, asked, balanced, federation.propagated(RC), federation.propagated(SERVICE))
    };
    let two = || vec![2, 2, 2];
    let well = || "True Propagated".to_owned();
    becomes("healed", &(two(), two(), two(), 3, well(), well()), settled);

    // What is as it should be is not written to again, neither there nor at the hub.
    let versions = || {
        let version = |place: &str, what: &str| {
            let object = federation.object(place, what);
            format!("{place} {what} {}", object["metadata"]["resourceVersion"])
        };
        let places = MEMBERS.into_iter().chain([HUB]);
        places.flat_map(|place| [SERVICE, RC, INGRESS].map(|what| version(place, what))).collect::<Vec<_>>()
    };
    // The last words about what was healed may still be on their way.
    let began = Instant::now();
    let (mut last, mut since) = (versions(), Instant::now());
    while since.elapsed() < STILL {
        std::thread::sleep(Duration::from_millis(500));
        let now = versions();
        if now != last {
            assert!(began.elapsed() < 3 * STILL, "written again and again: {last:?}, then {now:?}");
            (last, since) = (now, Instant::now());
        }
    }
}

fn replicas_move_from_a_lost_cluster_and_back(federation: &Federation) {
    federation.kubectl(
        HUB,
        r#"annotate rc my-service -n my-namespace landfall.dev/replica-policy={"holdDownSeconds":5}"#,
    );
    let spread = || federation.numbers(RC, "/status/readyReplicas");
    federation.rig.kill_cluster("us-east").unwrap();
    let killed = Instant::now();
    becomes("offline", &"True".to_owned(), || federation.offline("us-east"));
    let seen = killed.elapsed();
    assert!(seen < OFFLINE, "a lost cluster is offline after {seen:?}");
    becomes("moved", &vec![-1, 3, 3], spread);
    becomes("it says why", &"False ClusterOffline".to_owned(), || federation.propagated(RC));
    federation.rig.heal().unwrap();
    becomes("moved back", &vec![2, 2, 2], spread);
    becomes("well again", &"True Propagated".to_owned(), || federation.propagated(RC));
}

fn a_dead_api_does_not_hold_up_a_deletion(federation: &Federation) {
    federation.rig.kill_api("eu-west").unwrap();
    federation.kubectl(HUB, &format!("delete {SERVICE} --timeout=60s"));
    federation.kubectl(HUB, &format!("delete {RC} --timeout=60s"));
    federation.kubectl(HUB, "delete namespace my-namespace --timeout=60s");
    let there = || -> Vec<bool> {
        let objects = [SERVICE, RC, INGRESS, "namespace my-namespace"];
        let place = |name: &'static str| objects.map(|what| federation.object(name, what) != Value::Null);
        ["us-east", "asia-east"].into_iter().flat_map(place).collect()
    };
    let gone = [false; 4];
    // What was there before stays, and what it is in.
    let kept = [false, false, true, true];
    becomes("gone where somebody hears it", &[gone, kept].concat(), there);
    let left = federation.object("asia-east", INGRESS);
    assert_eq!(left["metadata"]["labels"]["landfall.dev/federation"], Value::Null, "let go: {left}");
    federation.rig.heal().unwrap();
    becomes("deleted where nobody heard it", &[true; 4], || {
        [SERVICE, RC, INGRESS, "namespace my-namespace"].map(|what| {
            let found = federation.try_kubectl("eu-west", &format!("get {what} -o json"));
            // Real controllers, which have just come back too, take half a minute to empty a namespace.
            found.map_or_else(|said| said.contains("NotFound"), |object| object.contains("deletionTimestamp"))
        })
    });
}

fn a_cluster_leaves(federation: &Federation) {
    federation.kubectl(HUB, "create configmap settings --from-literal=color=green");
    let there = || MEMBERS.map(|name| federation.object(name, "configmap settings") != Value::Null);
    becomes("everywhere", &[true; 3], there);
    let account = "get serviceaccount landfall-hub -n landfall-system";
    federation.kubectl("asia-east", account);
    let said = federation.landfall("unjoin asia-east --kubeconfig MEMBERS --context asia-east");
    assert!(said.ends_with("the hub's account in the member removed\n"), "{said}");
    assert_eq!(there(), [true, true, false]);
    for what in [account, "get clusterrole landfall-hub", "get clusterrolebinding landfall-hub"] {
        let refused = try_kubectl(&federation.rig, "asia-east", what).unwrap_err();
        assert!(refused.contains("NotFound"), "{refused}");
    }
    assert_eq!(federation.kubectl(HUB, "get clusters -o name").lines().count(), 2);
}

/// Waits until something is so; the last that was seen is told when it never is.
#[track_caller]
fn becomes<T: PartialEq + Debug>(what: &str, expected: &T, mut look: impl FnMut() -> T) {
    let began = Instant::now();
    loop {
        let seen = look();
        if seen == *expected {
            println!("{what}: after {:.1} s", began.elapsed().as_secs_f64());
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {seen:?}, not {expected:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A manifest of the first design, with images that a rig has.
fn manifest(name: &str) -> String {
    let file = format!("{}/../landfall/tests/it/manifests/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(file).unwrap();
    REPLACED.iter().fold(text, |text, (from, to)| text.replace(from, to))
}

/// A hub and its members.
struct Federation {
    rig: Rig,
    hub: Child,
    directory: tempfile::TempDir,
}

impl Federation {
    fn start() -> Self {
        let rig = Rig::up(&config("it-federation", 3, 1))
            .unwrap_or_else(|error| panic!("{}", landfall_rig::chain(&error)));
        let directory = tempfile::tempdir().unwrap();
        let log = File::create(directory.path().join("hub.log")).unwrap();
        let mut hub = Command::new(landfall());
        hub.args(["hub", "--listen", "127.0.0.1:0", "--data-dir"]).arg(directory.path().join("hub"));
        hub.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let federation = Self { rig, hub: hub.spawn().unwrap(), directory };
        eventually("the hub", || federation.try_kubectl(HUB, "get --raw /readyz"));
        federation
    }

    fn hub_kubeconfig(&self) -> PathBuf {
        self.directory.path().join("hub/admin.kubeconfig")
    }

    /// An operator's command that succeeds, and what it says; `MEMBERS` is the members' kubeconfig.
    fn landfall(&self, line: &str) -> String {
        let line = line.replace("MEMBERS", self.rig.kubeconfig().to_str().unwrap());
        let mut command = Command::new(landfall());
        command.args(line.split_whitespace()).arg("--hub-kubeconfig").arg(self.hub_kubeconfig());
        run(command.env_remove("KUBECONFIG")).unwrap_or_else(|said| panic!("landfall {line}: {said}"))
    }

    fn try_kubectl(&self, place: &str, line: &str) -> Result<String, String> {
        if place != HUB {
            return try_kubectl(&self.rig, place, line);
        }
        let mut command = Command::new(self.rig.kubectl(MEMBERS[0]).get_program());
        run(command.arg("--kubeconfig").arg(self.hub_kubeconfig()).args(line.split_whitespace()))
    }

    #[track_caller]
    fn kubectl(&self, place: &str, line: &str) -> String {
        self.try_kubectl(place, line).unwrap_or_else(|said| panic!("{place}: kubectl {line}: {said}"))
    }

    #[track_caller]
    fn create(&self, place: &str, manifest: &str) {
        let file = self.directory.path().join("given.yaml");
        std::fs::write(&file, manifest).unwrap();
        self.kubectl(place, &format!("create -f {}", file.display()));
    }

    /// An object; null when it is not there, or nobody can say.
    fn object(&self, place: &str, what: &str) -> Value {
        let text = self.try_kubectl(place, &format!("get {what} -o json --request-timeout=5s"));
        text.map(|text| serde_json::from_str(&text).unwrap()).unwrap_or_default()
    }

    /// One number of an object in every member; -1 where there is none.
    fn numbers(&self, what: &str, path: &str) -> Vec<i64> {
        let number =
            |name: &&str| self.object(name, what).pointer(path).and_then(Value::as_i64).unwrap_or(-1);
        MEMBERS.iter().map(number).collect()
    }

    /// The condition `Propagated` of an object at the hub.
    fn propagated(&self, what: &str) -> String {
        let object = self.object(HUB, what);
        let conditions = object["status"]["conditions"].as_array();
        let own = conditions.into_iter().flatten().find(|condition| condition["type"] == "Propagated");
        let text = |key: &str| own.and_then(|own| own[key].as_str()).unwrap_or("-").to_owned();
        format!("{} {}", text("status"), text("reason"))
    }

    fn offline(&self, name: &str) -> String {
        let path = r#"jsonpath={.status.conditions[?(@.type=="Offline")].status}"#;
        self.kubectl(HUB, &format!("get cluster {name} -o {path}"))
    }
}

impl Drop for Federation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.directory.path().join("hub.log")).unwrap_or_default();
            let mut stderr = std::io::stderr();
            let _ = writeln!(stderr, "--- the hub said:\n{log}");
            for place in MEMBERS.into_iter().chain([HUB]) {
                let all =
                    "get services,rc,ingresses,pods,events -n my-namespace -o wide --request-timeout=5s";
                let said = self.try_kubectl(place, all).unwrap_or_else(|said| said);
                let _ = writeln!(stderr, "--- {place}: kubectl {all}\n{said}");
            }
            let said = self.try_kubectl(HUB, "get clusters,services,rc,ingresses -A -o yaml");
            let _ = writeln!(stderr, "--- the hub has\n{}", said.unwrap_or_else(|said| said));
        }
        let _ = self.hub.kill();
        let _ = self.hub.wait();
    }
}
