//! What a rig could leave behind on the machine that it ran on: for those who make sure that it does not.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::program::output;
use crate::{Error, directory};

/// Paths that Kubernetes uses where it has a machine of its own.
const PATHS: &[&str] = &[
    "/run/containerd",
    "/run/runc",
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/var/log/pods",
    "/etc/cni",
    "/opt/containerd",
];
/// Kernel settings that the kubelet changes where it may.
const SETTINGS: &[&str] =
    &["vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys"];

/// Everything on the machine that a rig of this name has or has left: processes, mounts, cgroups, files.
///
/// # Errors
/// When the machine cannot be looked at.
pub fn traces(name: &str) -> Result<BTreeSet<String>, Error> {
    let home = directory(name).display().to_string();
    let cgroup = format!("landfall-rig-{name}");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").map_err(Error::io("read the mounts"))?;
    let cgroups = output(Command::new("find").args(["/sys/fs/cgroup", "-maxdepth", "2", "-type", "d"]))?;
    let mut found = BTreeSet::new();
    for (kind, text, marks) in [
        ("process", command_lines()?, [home.as_str(), &cgroup]),
        ("mount", mounts, [&home, &home]),
        ("cgroup", cgroups, [&cgroup, "k8s.io"]),
    ] {
        let lines = text.lines().filter(|line| marks.iter().any(|mark| line.contains(mark)));
        found.extend(lines.map(|line| format!("{kind}: {line}")));
    }
    if Path::new(&home).exists() {
        found.insert(format!("file: {home}"));
    }
    Ok(found)
}

/// What is the machine's and not one rig's: links, routes, namespaces, kernel settings, and paths that Kubernetes uses
/// elsewhere.
///
/// # Errors
/// When the machine cannot be looked at.
pub fn surroundings() -> Result<BTreeSet<String>, Error> {
    let mut found = BTreeSet::new();
    for arguments in [["-o", "link"], ["-4", "route"], ["netns", "list"]] {
        let text = output(Command::new("ip").args(arguments))?;
        // Not the counters and states after the name.
        found.extend(text.lines().map(|line| line.split("mtu").next().unwrap_or_default().trim().to_owned()));
    }
    found.extend(PATHS.iter().filter(|path| Path::new(path).exists()).map(|path| (*path).to_owned()));
    for setting in SETTINGS {
        let value = std::fs::read_to_string(Path::new("/proc/sys").join(setting)).unwrap_or_default();
        found.insert(format!("{setting} {}", value.trim()));
    }
    Ok(found)
}

/// The command lines of all processes.
fn command_lines() -> Result<String, Error> {
    let processes = std::fs::read_dir("/proc").map_err(Error::io("list the processes"))?.flatten();
    // One may end while we look.
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let words = |line: Vec<u8>| String::from_utf8_lossy(&line).replace(['\0', '\n'], " ");
    Ok(lines.map(words).collect::<Vec<_>>().join("\n"))
}
