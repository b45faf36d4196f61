//! Programs of this machine that stand for images.

use std::net::Ipv4Addr;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use super::container::Exited;
use super::logs::Log;
use super::program::Local;
use crate::echo::{Identity, Journal};

/// What a program that was killed exits with, as shells count it.
pub(super) const KILLED: i32 = 137;

/// What a program that a signal ended exits with, as shells count it: so much more than the signal's number.
const SIGNALLED: i32 = 128;

/// How long what a program has written last is waited for.
const LAST_WORDS_MAX: std::time::Duration = std::time::Duration::from_secs(1);

/// Starts a program with the environment of its container, and what pods are usually told about themselves.
pub(super) fn spawn(
    program: &Local,
    pod: &Value,
    spec: &Value,
    identity: &Identity,
    address: Ipv4Addr,
) -> Result<Child, String> {
    let mut command = Command::new(&program.path);
    let port = spec["ports"][0]["containerPort"].as_u64().unwrap_or(8080);
    command
        .args(&program.args)
        .env("PORT", port.to_string())
        .env("POD_IP", address.to_string())
        .env("POD_NAME", &identity.pod)
        .env("POD_NAMESPACE", &identity.namespace)
        .env("NODE_NAME", &identity.node)
        .env("CLUSTER_NAME", &identity.cluster)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    for variable in spec["env"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().unwrap_or("");
        if let Some(value) = value(variable, pod, identity, address)
            && !name.is_empty()
            && !name.contains(['=', '\0'])
        {
            command.env(name, value.replace('\0', ""));
        }
    }
    command.spawn().map_err(|error| format!("cannot start {}: {error}", program.path.display()))
}

/// The value of a variable: as it stands, or a field of the pod. Config maps and secrets are not looked up.
fn value(variable: &Value, pod: &Value, identity: &Identity, address: Ipv4Addr) -> Option<String> {
    if let Some(field) = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
        return Some(match field {
            "metadata.name" => identity.pod.clone(),
            "metadata.namespace" => identity.namespace.clone(),
            "metadata.uid" => pod["metadata"]["uid"].as_str()?.to_owned(),
            "spec.nodeName" => identity.node.clone(),
            "status.podIP" => address.to_string(),
            _ => return None,
        });
    }
    if variable.get("valueFrom").is_some() {
        None
    } else {
        Some(variable["value"].as_str().unwrap_or("").into())
    }
}

/// Reads what a program writes, asks it to stop when told so, and tells how it ended.
pub(super) async fn mind(
    mut child: Child,
    log: Arc<Log>,
    stop: impl Future<Output = ()> + Send,
    life: impl Future<Output = ()> + Send,
    exited: Exited,
) {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let reading = async { tokio::join!(copy(out, &log), copy(err, &log)) };
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let waiting = async {
        tokio::select! { status = child.wait() => return status.ok(), () = stop => {} }
        // It has not been waited for, so this is its own number still.
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
        tokio::select! { status = child.wait() => return status.ok(), () = life => {} }
        let _ = child.start_kill();
        child.wait().await.ok()
    };
    let waiting = async {
        tokio::pin!(reading, waiting);
        tokio::select! {
            status = &mut waiting => {
                // Its children may hold the pipes open.
                let _ = tokio::time::timeout(LAST_WORDS_MAX, reading).await;
                status
            }
            _ = &mut reading => waiting.await,
        }
    };
    let status = waiting.await;
    let signal = |status: ExitStatus| status.signal().map(|signal| SIGNALLED + signal);
    let code = status.and_then(|status| status.code().or_else(|| signal(status))).unwrap_or(KILLED);
    exited.tell(code, String::new()).await;
}

async fn copy(from: Option<impl AsyncRead + Unpin>, log: &Log) {
    let Some(from) = from else { return };
    let mut lines = BufReader::new(from).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        log.line(&String::from_utf8_lossy(&line));
    }
}
