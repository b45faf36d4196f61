//! Several hubs on one etcd: one leads; when it dies in the middle of a rollout, the next one finishes it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::{MEMBERS, becomes, playground};
use crate::support::{Process, find, free_port, kubernetes_binary, skip, text};

/// Hubs of a federation of their own, which shares its members with the playground's.
struct Hubs {
    directory: PathBuf,
    etcd: String,
    _etcd: Process,
}

impl Hubs {
    fn start(directory: &Path) -> Self {
        let (client, peer) = (free_port(), free_port());
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let mut command = Command::new("etcd");
        command.args(["--data-dir".into(), directory.join("etcd").display().to_string()]);
        for (flag, url) in [
            ("--listen-client-urls", url(client)),
            ("--advertise-client-urls", url(client)),
            ("--listen-peer-urls", url(peer)),
            ("--initial-advertise-peer-urls", url(peer)),
        ] {
            command.args([flag, &url]);
        }
        command.args(["--initial-cluster", &format!("default={}", url(peer)), "--log-level", "error"]);
        let etcd = Process::start("etcd", &mut command, directory);
        Self { directory: directory.to_owned(), etcd: url(client), _etcd: etcd }
    }

    fn data(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Starts one; the second has the authority of the first.
    fn hub(&self, name: &str, authority: Option<&str>) -> Process {
        let data = self.data(name);
        if let Some(other) = authority {
            std::fs::create_dir_all(data.join("pki")).unwrap();
            for file in ["ca.crt", "ca.key", "sa.key"] {
                std::fs::copy(self.data(other).join("pki").join(file), data.join("pki").join(file)).unwrap();
            }
            std::fs::copy(self.data(other).join("secrets.key"), data.join("secrets.key")).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
        command.args([
            "hub",
            "--listen",
            "127.0.0.1:0",
            "--federation",
            "other",
            "--etcd",
            &self.etcd,
            "--data-dir",
        ]);
        let mut process = Process::start(name, command.arg(&data), &self.directory);
        process.wait_for("ready", |process| process.output().contains("is ready").then_some(()));
        process
    }

    fn kubectl(&self, hub: &str, arguments: &str) -> Output {
        let kubectl = kubernetes_binary("kubectl").or_else(|| find("kubectl")).unwrap();
        let mut command = Command::new(kubectl);
        command.arg("--kubeconfig").arg(self.data(hub).join("admin.kubeconfig"));
        command.args(arguments.split_whitespace()).output().unwrap()
    }

    #[track_caller]
    fn kubectl_ok(&self, hub: &str, arguments: &str) -> String {
        let output = self.kubectl(hub, arguments);
        assert!(output.status.success(), "kubectl {arguments}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn give(&self, hub: &str, object: &Value) {
        let file = self.directory.join("given.json");
        std::fs::write(&file, object.to_string()).unwrap();
        self.kubectl_ok(hub, &format!("apply --server-side -f {}", file.display()));
    }
}

/// What one hub says of an object, without what is that hub's own.
fn bare(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|key, _| matches!(key.as_str(), "name" | "namespace" | "labels"));
    object.as_object_mut().unwrap().remove("status");
    object
}

#[test]
fn the_next_hub_finishes_what_the_first_began() {
    if find("etcd").is_none() {
        skip("two hubs", "etcd not found");
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("two hubs", base.path()) else { return };
    let hubs = Hubs::start(base.path());
    let first = hubs.hub("a", None);
    let _second = hubs.hub("b", Some("a"));
    hubs.kubectl_ok("a", "create namespace landfall-system");
    for member in MEMBERS {
        hubs.give(
            "a",
            &bare(playground.object("federation", &format!("secret cluster-{member} -n landfall-system"))),
        );
        hubs.give("a", &bare(playground.object("federation", &format!("cluster {member}"))));
    }
    hubs.kubectl_ok("a", "wait --for=condition=Ready clusters --all --timeout=60s");
    hubs.kubectl_ok("a", "create deployment web --image=echo --replicas=6");
    becomes("spread", &vec![2, 2, 2], || playground.numbers("deployment web", "/status/readyReplicas"));
    let lease =
        hubs.kubectl_ok("b", "get lease landfall-hub -n kube-system -o jsonpath={.spec.holderIdentity}");

    hubs.kubectl_ok("a", "set image deployment/web echo=echo:2");
    hubs.kubectl_ok("a", "scale deployment/web --replicas=9");
    // Without a word: its lease must run out.
    drop(first);
    becomes("another leads", &true, || {
        let now =
            hubs.kubectl("b", "get lease landfall-hub -n kube-system -o jsonpath={.spec.holderIdentity}");
        now.status.success() && text(&now.stdout) != lease
    });
    becomes("finished", &vec![3, 3, 3], || playground.numbers("deployment web", "/status/readyReplicas"));
    hubs.kubectl_ok("b", "rollout status deployment/web --timeout=60s");
    for member in MEMBERS {
        let web = playground.object(member, "deployment web");
        assert_eq!(web.pointer("/spec/template/spec/containers/0/image"), Some(&"echo:2".into()), "{member}");
        assert_eq!(web["metadata"]["labels"]["landfall.dev/federation"], "other", "{member}");
        let sets = playground.object(member, "rs -l app=web");
        let live =
            sets["items"].as_array().unwrap().iter().filter(|set| set["spec"]["replicas"] != 0).count();
        assert_eq!(live, 1, "nothing doubled in {member}");
    }
    // The playground's own federation keeps its hands off what is another's.
    playground.kubectl_ok("create deployment web --image=echo --replicas=3");
    becomes("another's", &"False Failed".to_owned(), || playground.propagated("deployment web"));
    assert_eq!(playground.numbers("deployment web", "/spec/replicas"), [3, 3, 3]);
}
