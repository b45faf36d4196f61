//! The federation as its users meet it: kubectl at the hub, kubectl at the members, and clusters that die.

mod alone;
mod carries;
mod claims;
mod clients;
mod deletes;
mod divides;
mod drains;
mod groups;
mod held;
mod https;
mod leaders;
mod mistakes;
mod moves;
mod names;
mod overflow;
mod ports;
mod routes;
mod shows;
mod spreads;
mod streams;
mod traffic;
mod warns;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Playground, find, kubernetes_binary, skip};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// The simulated clusters.
const MEMBERS: [&str; 3] = ["asia-east", "eu-west", "us-east"];

/// Waits until something is so; the last that was seen is told when it never is.
#[track_caller]
fn becomes<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, mut look: impl FnMut() -> T) {
    let began = Instant::now();
    loop {
        let seen = look();
        if seen == *expected {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {seen:?}, not {expected:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A playground, unless kubectl is missing.
fn playground(suite: &str, base: &std::path::Path) -> Option<Playground> {
    playground_with(suite, base, &[])
}

/// A playground that is told more.
fn playground_with(suite: &str, base: &std::path::Path, arguments: &[&str]) -> Option<Playground> {
    if kubernetes_binary("kubectl").or_else(|| find("kubectl")).is_none() {
        skip(suite, "kubectl not found");
        return None;
    }
    let playground = Playground::start(base, arguments);
    playground.kubectl_ok("wait --for=condition=Ready clusters --all --timeout=60s");
    Some(playground)
}

fn manifest(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/manifests").join(name);
    path.display().to_string()
}

impl Playground {
    /// An object as JSON; null when it is not there.
    fn object(&self, context: &str, what: &str) -> Value {
        let output = self.kubectl(&format!("--context {context} get {what} -o json"));
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// One number of an object in every member, in their order; -1 where there is none.
    fn numbers(&self, what: &str, path: &str) -> Vec<i64> {
        let number =
            |member: &&str| self.object(member, what).pointer(path).and_then(Value::as_i64).unwrap_or(-1);
        MEMBERS.iter().map(number).collect()
    }

    /// The condition `Propagated` of an object at the hub, as `status reason`.
    fn propagated(&self, what: &str) -> String {
        let object = self.object("federation", what);
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let own = conditions.into_iter().flatten().find(|condition| condition["type"] == "Propagated");
        let text = |key: &str| own.and_then(|own| own[key].as_str()).unwrap_or("-").to_owned();
        format!("{} {}", text("status"), text("reason"))
    }

    /// Creates or changes objects at the federation.
    fn give(&self, manifest: &str) {
        let file = self.dir().join("given.yaml");
        // What begins with a brace is JSON to some versions of kubectl.
        std::fs::write(&file, format!("---\n{manifest}")).unwrap();
        self.kubectl_ok(&format!("apply -f {}", file.display()));
    }
}
