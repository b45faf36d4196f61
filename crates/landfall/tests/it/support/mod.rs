//! What the tests stand on: processes that end with their test, a hub, and a real Kubernetes to hold it against.

mod hub;
mod kubernetes;
mod playground;
mod process;
mod programs;

pub(crate) use hub::Hub;
pub(crate) use kubernetes::Kubernetes;
pub(crate) use playground::{Playground, landfall, text};
pub(crate) use process::Process;
pub(crate) use programs::{coredns, find, kubernetes_binary, missing, skip};

use std::net::TcpListener;
use std::path::Path;

/// Who may do what with which static token, in Kubernetes' CSV form: the same people on every server.
const TOKENS: &str = "\
admin-token,admin,admin-uid,system:masters
alice-token,alice,alice-uid,\"dev,ops\"
bob-token,bob,bob-uid,dev
system-token,controllers,controllers-uid,system:masters
";

/// A port that nobody listens on at this moment.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A kubeconfig with one context per static token; `admin` is current.
fn kubeconfig(server: &str, authority: &Path) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: admin\nclusters:\n- name: it\n  cluster:\n    \
         server: {server}\n    certificate-authority: {}\n",
        authority.display()
    );
    let people: Vec<_> = TOKENS.lines().filter_map(|line| line.split(',').nth(1)).collect();
    text.push_str("contexts:\n");
    for name in &people {
        text.push_str(&format!("- name: {name}\n  context: {{cluster: it, user: {name}}}\n"));
    }
    text.push_str("users:\n");
    for line in TOKENS.lines() {
        let mut fields = line.split(',');
        let (token, name) = (fields.next().unwrap(), fields.next().unwrap());
        text.push_str(&format!("- name: {name}\n  user: {{token: {token}}}\n"));
    }
    text
}
