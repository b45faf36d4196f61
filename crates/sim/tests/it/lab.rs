//! A member with a stand-in for its node agents, and kubectl.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use landfall_apiserver::housekeeping::client::Place;
use landfall_apiserver::local::{Change, Local};
use landfall_apiserver::write::delete::DeleteOptions;
use landfall_apiserver::write::update::Part;
use landfall_runtime::tasks::Tasks;
use landfall_sim::address::Claim;
use landfall_sim::controllers::driver::now;
use landfall_sim::controllers::read::{text, time_text};
use landfall_sim::member::nodes;
use landfall_sim::{Member, MemberConfig, NodeSpec, Timings};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Whether a pod becomes ready, by its name.
pub(crate) type Ready = Arc<dyn Fn(&Value) -> bool + Send + Sync>;

/// Nodes that say and do nothing.
pub(crate) type Silent = Arc<Mutex<Vec<String>>>;

pub(crate) struct Lab {
    pub(crate) member: Arc<Member>,
    tasks: Tasks,
    /// Nodes that fell silent.
    pub(crate) silent: Silent,
    directory: tempfile::TempDir,
    kubectl: PathBuf,
    _claim: Claim,
}

#[expect(clippy::disallowed_methods, reason = "where programs live is the environment's to say")]
fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// kubectl from the cache that `cargo xtask test` fills.
fn kubectl() -> Option<PathBuf> {
    let cache = env("LANDFALL_CACHE").map(PathBuf::from).unwrap_or_else(|| {
        let home = || PathBuf::from(env("HOME").unwrap_or_else(|| "/tmp".into())).join(".cache");
        env("XDG_CACHE_HOME").map(PathBuf::from).unwrap_or_else(home).join("landfall")
    });
    let file = cache.join("kubernetes/v1.36.4/kubectl");
    file.is_file().then_some(file)
}

/// A lab, or none (said loudly) where there is no kubectl.
pub(crate) async fn lab(name: &str) -> Option<Lab> {
    let Some(kubectl) = kubectl() else {
        assert!(env("LANDFALL_REQUIRE").is_none(), "kubectl is required");
        // Not by a macro: those are hidden while a test passes.
        let mut stderr = std::io::stderr();
        writeln!(stderr, "SKIPPED: {name}: no kubectl (`cargo xtask test` gets it)").unwrap();
        return None;
    };
    Some(Lab::start(name, kubectl, Timings::PLAYGROUND, Arc::new(|_| true)).await)
}

/// The configuration of a member of three nodes in two zones, in memory.
pub(crate) fn config(name: &str, claim: &Claim, timings: Timings) -> MemberConfig {
    MemberConfig {
        name: name.into(),
        region: "us-east".into(),
        nodes: vec![
            NodeSpec::new("node-1", "us-east-a"),
            NodeSpec::new("node-2", "us-east-a"),
            NodeSpec::new("node-3", "us-east-b"),
        ],
        listen: (claim.block().api(), 0).into(),
        data: None,
        block: claim.block(),
        timings,
        seed: 7,
    }
}

impl Lab {
    async fn start(name: &str, kubectl: PathBuf, timings: Timings, ready: Ready) -> Self {
        let claim = Claim::take(None).unwrap();
        let member = Arc::new(Member::start(config(name, &claim, timings)).await.unwrap());
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("kubeconfig"), member.kubeconfig()).unwrap();
        let (tasks, silent) = (Tasks::default(), Silent::default());
        tasks.spawn_until_stop(agent(member.clone(), silent.clone(), ready));
        tasks.spawn_until_stop(heartbeats(member.clone(), silent.clone()));
        Self { member, tasks, silent, directory, kubectl, _claim: claim }
    }

    /// Runs kubectl; what it said on both outputs.
    pub(crate) async fn run(&self, line: &str) -> String {
        let output = self.output(line).await;
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        text.into_owned()
    }

    /// Runs kubectl, which must succeed.
    pub(crate) async fn ok(&self, line: &str) -> String {
        let output = self.output(line).await;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "kubectl {line}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    async fn output(&self, line: &str) -> Output {
        let mut command = tokio::process::Command::new(&self.kubectl);
        command.env("KUBECONFIG", self.directory.path().join("kubeconfig"));
        command.env("HOME", self.directory.path());
        command.args(line.split_whitespace());
        tokio::time::timeout(Duration::from_secs(60), command.output()).await.expect("kubectl ends").unwrap()
    }

    /// Applies a manifest.
    pub(crate) async fn apply(&self, manifest: &Value) -> String {
        let file = self.directory.path().join("manifest.json");
        std::fs::write(&file, manifest.to_string()).unwrap();
        self.run(&format!("apply -f {}", file.display())).await
    }

    /// Waits until a state is reached, looking at every change.
    pub(crate) async fn until(&self, what: &str, reached: impl Fn(&Local) -> bool) {
        let api = self.member.client("test");
        let mut follow = api.follow(|_| true).unwrap();
        let wait = async {
            while !reached(&api) {
                follow.next().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(40), wait).await.unwrap_or_else(|_| panic!("never: {what}"));
    }

    /// Objects of a kind in the namespace `default`.
    pub(crate) fn list(&self, group: &str, plural: &str) -> Vec<Value> {
        self.member.client("test").list(group, plural, "default")
    }

    pub(crate) async fn stop(self) {
        self.tasks.join().await;
        self.member.stop().await;
    }
}

async fn heartbeats(member: Arc<Member>, silent: Silent) {
    let api = member.client("kubelet");
    loop {
        for node in member.nodes() {
            if silent.lock().contains(&node.name) || !*member.is_up().borrow() {
                continue;
            }
            let place = Place::new("coordination.k8s.io", "leases", nodes::LEASES, &node.name);
            let renew = |old: &Value| {
                let mut lease = old.clone();
                lease["spec"] = nodes::lease("", now())["spec"].clone();
                Ok(lease)
            };
            api.modify(&place, Part::Main, renew).await.unwrap();
        }
        tokio::time::sleep(member.settings().timings.heartbeat).await;
    }
}

/// Marks pods with a node as running and ready (those of the image `done` as succeeded), and removes those that are
/// deleted.
pub(crate) async fn agent(member: Arc<Member>, silent: Silent, ready: Ready) {
    let api = member.client("kubelet");
    let mut addresses: HashMap<String, String> = HashMap::new();
    let mut follow = api.follow(|key| key.starts_with("core/pods/")).unwrap();
    while let Ok(batch) = follow.next().await {
        for change in batch.changes {
            let Change::Put(place, pod) = change else { continue };
            // A node that is gone does nothing.
            let node = text(&pod, "/spec/nodeName");
            if node.is_empty() || silent.lock().iter().any(|gone| gone == node) {
                continue;
            }
            if landfall_api::meta::deleting(&pod) {
                let options = DeleteOptions { grace_period_s: Some(0), ..DeleteOptions::BACKGROUND };
                let _ = api.delete(&place, &options).await;
                continue;
            }
            let next = u32::try_from(addresses.len()).unwrap();
            let uid = landfall_api::meta::uid(&pod).to_owned();
            let pods = member.settings().block.pods();
            let address = addresses
                .entry(uid)
                .or_insert_with(|| pods.get(next % pods.count()).unwrap().to_string())
                .clone();
            if text(&pod, "/status/phase") == "Pending" {
                let _ = api.modify(&place, Part::Status, |old| Ok(running(old, &address, ready(old)))).await;
            }
        }
    }
}

pub(crate) fn running(pod: &Value, address: &str, ready: bool) -> Value {
    let mut pod = pod.clone();
    let at = time_text(now());
    let mut conditions: Vec<Value> =
        landfall_sim::controllers::read::items(&pod, "/status/conditions").to_vec();
    conditions.retain(|c| text(c, "/type") == "PodScheduled");
    let status = if ready { "True" } else { "False" };
    for ty in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"] {
        conditions
            .push(json!({"type": ty, "status": status, "lastProbeTime": null, "lastTransitionTime": at}));
    }
    let containers: Vec<Value> = landfall_sim::controllers::read::items(&pod, "/spec/containers")
        .iter()
        .map(|c| {
            json!({"name": c["name"], "image": c["image"], "imageID": "", "ready": ready, "started": true,
            "restartCount": 0, "state": {"running": {"startedAt": at}}})
        })
        .collect();
    pod["status"] = json!({
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "hostIP": "127.0.0.1",
        "startTime": at, "qosClass": pod["status"]["qosClass"], "conditions": conditions,
        "containerStatuses": containers,
    });
    if text(&pod, "/spec/containers/0/image") == "done" {
        pod["status"]["phase"] = json!("Succeeded");
    }
    pod
}

/// Asserts that a text holds another.
#[track_caller]
pub(crate) fn has(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in:\n{text}");
}
