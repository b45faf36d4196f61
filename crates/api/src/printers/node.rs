//! The sheet of nodes, for simulated members.

use serde_json::Value;

use super::cells::{NONE, UNKNOWN, age, items, name, text, text_or};
use super::sheet::{Col, Sheet};
use crate::meta;

pub(super) const NODE: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Status", "Whether it is ready."),
        Col::text("Roles", "What it is for."),
        Col::AGE,
        Col::text("Version", "The version of its kubelet."),
        Col::text("Internal-IP", "Its address inside the cluster.").wide(),
        Col::text("External-IP", "Its address outside the cluster.").wide(),
        Col::text("OS-Image", "Its operating system.").wide(),
        Col::text("Kernel-Version", "Its kernel.").wide(),
        Col::text("Container-Runtime", "What runs its containers.").wide(),
    ],
    |object, now_s| {
        let info = |field: &str| text_or(object, &format!("/status/nodeInfo/{field}"), UNKNOWN).to_owned();
        let kernel = match text(object, "/status/nodeInfo/architecture") {
            "" => info("kernelVersion"),
            architecture => format!("{} ({architecture})", info("kernelVersion")),
        };
        vec![
            name(object),
            status(object).into(),
            roles(object).into(),
            age(object, now_s),
            text(object, "/status/nodeInfo/kubeletVersion").into(),
            address(object, "InternalIP").into(),
            address(object, "ExternalIP").into(),
            info("osImage").into(),
            kernel.into(),
            info("containerRuntimeVersion").into(),
        ]
    },
);

fn status(object: &Value) -> String {
    let ready = items(object, "/status/conditions").iter().rfind(|c| text(c, "/type") == "Ready");
    let word = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = object.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
    if cordoned { format!("{word},SchedulingDisabled") } else { word.to_owned() }
}

/// From the labels `node-role.kubernetes.io/<role>` and `kubernetes.io/role=<role>`.
fn roles(object: &Value) -> String {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    let mut roles: Vec<&str> =
        labels.filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/")).collect();
    roles.extend(meta::label(object, "kubernetes.io/role"));
    roles.retain(|role| !role.is_empty());
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { NONE.into() } else { roles.join(",") }
}

fn address<'a>(object: &'a Value, of: &str) -> &'a str {
    let found = items(object, "/status/addresses").iter().find(|address| text(address, "/type") == of);
    found.map_or(NONE, |address| text(address, "/address"))
}
