//! The cgroups that a machine's containers live in: one tree per machine, under one per rig, in every hierarchy.
//!
//! They also keep machines from taking each other's time. All share the processors of one host, and a cluster that boots would take what
//! the pods of others need, which it cannot where each has machines of its own. So when all want the processors each node's pods
//! have as much of them as another's, and all daemons together a little. Those are in a tree of their own: in that of the pods they would
//! speak for all of it, and take from hubs and clients outside what the pods do not use.
//!
//! A node that was killed leaves its tree behind, which no reboot would: whoever finds old cgroups there looks for their
//! containers. So the tree is removed when the node dies.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Error;

/// Where hierarchies are mounted: the only one (version 2), or one directory for each (version 1).
const MOUNT: &str = "/sys/fs/cgroup";
/// What the tree of all daemons is called after: it is beside that of the containers.
const DAEMONS: &str = ".daemons";
/// What a machine's containers weigh, and all daemons together.
const MACHINE_WEIGHS: u64 = 2;
const DAEMONS_WEIGH: u64 = 1;
/// What a cgroup weighs unless told otherwise, and where it is written: in version 1, and in version 2.
const WEIGHTS: [(&str, u64); 2] = [("cpu.shares", 1024), ("cpu.weight", 100)];
/// How long the kernel may take to let go of a cgroup whose processes are dead.
const PATIENCE: Duration = Duration::from_secs(5);

/// Makes a cgroup, with those above it, in every hierarchy.
pub(crate) fn make(path: &str) -> Result<(), Error> {
    for hierarchy in hierarchies(Path::new(MOUNT)) {
        let mut directory = hierarchy;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let parent = directory.clone();
            directory.push(part);
            let made = std::fs::create_dir(&directory);
            let made = made.or_else(|error| if directory.is_dir() { Ok(()) } else { Err(error) });
            made.map_err(Error::io(format!("make the cgroup {}", directory.display())))?;
            inherit(&parent, &directory);
        }
    }
    Ok(())
}

/// Makes the cgroups of a machine: that of its containers, and that of its daemons. `rig` is the cgroup of all containers, and weighs half
/// as much as they would by themselves: hubs and clients are not in it, and need their time too.
pub(crate) fn make_machine(rig: &str, machine: &str) -> Result<(), Error> {
    make(machine)?;
    make(&daemons_of(machine))?;
    for hierarchy in hierarchies(Path::new(MOUNT)) {
        let all = hierarchy.join(rig.trim_start_matches('/'));
        let inside = std::fs::read_dir(&all).into_iter().flatten().flatten();
        let inside = inside.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).count();
        weigh(&all, u64::try_from(inside).unwrap_or(1) * MACHINE_WEIGHS / 2);
        weigh(&hierarchy.join(all_daemons(rig).trim_start_matches('/')), DAEMONS_WEIGH);
    }
    Ok(())
}

/// Without it machines are slower when the host is busy, and all else is the same: a host that does not let us is none the worse.
fn weigh(group: &Path, parts: u64) {
    for (file, one) in WEIGHTS.into_iter().filter(|(file, _)| group.join(file).exists()) {
        let _ = std::fs::write(group.join(file), (one * parts / MACHINE_WEIGHS).to_string());
    }
}

/// The cgroup of all daemons of a rig, by that of its containers.
pub(crate) fn all_daemons(rig: &str) -> String {
    format!("{rig}{DAEMONS}")
}

/// The cgroup of the daemons of a machine, by that of its containers.
fn daemons_of(machine: &str) -> String {
    let (rig, name) = machine.rsplit_once('/').unwrap_or(("", machine));
    format!("{}/{name}", all_daemons(rig))
}

/// The file that takes a machine's daemons in, where the processors have a hierarchy of their own. In version 2 they have not, and
/// daemons stay where they are: what else is counted there is no affair of ours.
pub(crate) fn daemons(machine: &str) -> Option<PathBuf> {
    let group = daemons_of(machine);
    let groups = hierarchies(Path::new(MOUNT)).into_iter();
    let mut groups = groups.map(|hierarchy| hierarchy.join(group.trim_start_matches('/')));
    groups.find(|group| group.join("cpu.shares").exists()).map(|group| group.join("cgroup.procs"))
}

/// Removes the cgroups of a machine.
pub(crate) fn remove_machine(machine: &str) {
    remove(machine);
    remove(&daemons_of(machine));
}

/// Removes a cgroup and all below it from every hierarchy, waiting a little for the kernel.
pub(crate) fn remove(path: &str) {
    let began = Instant::now();
    let path = path.trim_start_matches('/');
    let trees = || hierarchies(Path::new(MOUNT)).into_iter().map(|hierarchy| hierarchy.join(path));
    while began.elapsed() < PATIENCE && trees().any(|tree| tree.exists()) {
        trees().for_each(|tree| remove_tree(&tree));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Directories only: the files in them are the kernel's.
fn remove_tree(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    // Fails while a process is still dying in it; `remove` tries again.
    let _ = std::fs::remove_dir(directory);
}

/// A new cpuset of version 1 has no processors and no memory until it is given some, and takes no process before.
fn inherit(parent: &Path, child: &Path) {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let own = std::fs::read_to_string(child.join(file)).unwrap_or_default();
        if let Some(value) = std::fs::read_to_string(parent.join(file)).ok().filter(|_| own.trim().is_empty())
        {
            // Version 2 inherits by itself and may refuse.
            let _ = std::fs::write(child.join(file), value);
        }
    }
}

fn hierarchies(mount: &Path) -> Vec<PathBuf> {
    if mount.join("cgroup.procs").exists() {
        return vec![mount.to_owned()];
    }
    let entries = std::fs::read_dir(mount).into_iter().flatten().flatten().map(|entry| entry.path());
    // Where two controllers share a hierarchy, there is a link for each to the directory of both.
    entries.filter(|path| path.join("cgroup.procs").exists() && !path.is_symlink()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_are_beside_containers() {
        assert_eq!(daemons_of("/landfall-rig-t/us-east-1"), "/landfall-rig-t.daemons/us-east-1");
    }

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for name in ["cpu", "memory"] {
            std::fs::create_dir(root.join(name)).unwrap();
            std::fs::write(root.join(name).join("cgroup.procs"), "").unwrap();
        }
        std::os::unix::fs::symlink(root.join("cpu"), root.join("cpuacct")).unwrap();
        std::fs::create_dir(root.join("empty")).unwrap();
        let mut found = hierarchies(root);
        found.sort();
        assert_eq!(found, [root.join("cpu"), root.join("memory")]);
        std::fs::write(root.join("cgroup.procs"), "").unwrap();
        assert_eq!(hierarchies(root), [root]);
    }
}
