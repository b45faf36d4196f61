//! The cgroups that a node's containers live in: one tree per node, under one per rig, in every hierarchy.
//!
//! A node that was killed leaves its tree behind, which no reboot would: whoever finds old cgroups there looks for their
//! containers. So the tree is removed when the node dies.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Error;

/// Where hierarchies are mounted: the only one (version 2), or one directory for each (version 1).
const MOUNT: &str = "/sys/fs/cgroup";
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
