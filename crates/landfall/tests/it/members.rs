//! A simulated cluster does what a real one does: the same manifests and the same script say the same.

#[path = "../../../../tests/members/run.rs"]
mod run;

use crate::support::{Playground, find, kubernetes_binary, skip};

/// `crates/rig/tests/it/day.rs` does the same on real Kubernetes.
#[test]
fn the_script_says_on_a_playground_what_it_says_on_kubernetes() {
    let Some(kubectl) = kubernetes_binary("kubectl").or_else(|| find("kubectl")) else {
        skip("members' script", "kubectl not found");
        return;
    };
    let base = tempfile::tempdir().unwrap();
    let playground = Playground::start(base.path(), &["--clusters", "2"]);
    // Not the first, whose name is in many examples.
    run::check(kubectl.as_os_str(), &playground.kubeconfig(), "eu-west");
}
