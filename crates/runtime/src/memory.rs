//! How much memory this process may use, and how much of it is taken.
//!
//! A container's limit counts what the kernel holds for it, too, such as the buffers of its connections; so what is taken of it is all
//! that it is charged with but file pages: these can be had back, and a neighbour that reads many files takes nothing from anybody.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel shows what groups of processes may use.
const GROUPS: &str = "/sys/fs/cgroup";

/// Memory that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// So many bytes.
    pub limit: u64,
    of: Of,
}

/// Whose limit it is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Of {
    /// This process'.
    Process,
    /// A group's: where the kernel tells what it uses, and of that the lines that tell which pages can be had back.
    Group { used: PathBuf, details: PathBuf, spare: Spare },
}

/// What the file pages of a group are called that are in use, and that are not.
type Spare = [&'static str; 2];

const SPARE: Spare = ["active_file", "inactive_file"];
const SPARE_OLDER: Spare = ["total_active_file", "total_inactive_file"];

impl Memory {
    /// What this process alone may use.
    pub fn of_process(limit: u64) -> Self {
        Self { limit, of: Of::Process }
    }

    /// What its container may use; else what the machine has. Nothing where neither is told.
    pub fn find() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let machine = || Some(Self::of_process(machine(&fs::read_to_string("/proc/meminfo").ok()?)?));
        match (in_groups(Path::new(GROUPS), &groups), machine()) {
            // What is called no limit is a very large one in the older form.
            (Some(group), Some(machine)) if group.limit >= machine.limit => Some(machine),
            (group, machine) => group.or(machine),
        }
    }

    /// How much is taken.
    pub fn used(&self) -> Option<u64> {
        match &self.of {
            Of::Process => resident(),
            Of::Group { used, details, spare } => {
                let used = number(used)?;
                let details = fs::read_to_string(details).unwrap_or_default();
                Some(spare.iter().filter_map(|name| detail(&details, name)).fold(used, u64::saturating_sub))
            }
        }
    }
}

/// What this process has in memory.
pub fn resident() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

fn machine(meminfo: &str) -> Option<u64> {
    kilobytes(meminfo, "MemTotal:")
}

/// The bytes that a line of such a file tells.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The smallest limit of the groups that a process is in, as `/proc/self/cgroup` tells them, and of those around them. A container sees
/// its own group as the root, whatever the path is that it is told.
fn in_groups(root: &Path, groups: &str) -> Option<Memory> {
    let places = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let files = match controllers {
            "" => Some(("", "memory.max", "memory.current", SPARE)),
            of if of.split(',').any(|one| one == "memory") => {
                Some(("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", SPARE_OLDER))
            }
            _ => None,
        };
        let around = Path::new(path).ancestors().map(Path::to_owned).collect::<Vec<_>>();
        around.into_iter().filter_map(move |path| {
            let (under, limit, used, spare) = files?;
            let folder = root.join(under).join(path.strip_prefix("/").ok()?);
            let limit = number(&folder.join(limit))?;
            let of = Of::Group { used: folder.join(used), details: folder.join("memory.stat"), spare };
            Some(Memory { limit, of })
        })
    });
    places.min_by_key(|memory| memory.limit)
}

/// A file that holds one number; `max` is none.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn detail(details: &str, name: &str) -> Option<u64> {
    let mut lines = details.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(known, _)| *known == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files as the kernel would show them.
    fn shown(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("landfall-memory-{name}-{}", std::process::id()));
        for (file, text) in files {
            let file = root.join(file);
            fs::create_dir_all(file.parent().expect("it has a folder")).expect("a folder");
            fs::write(file, text).expect("a file");
        }
        root
    }

    #[test]
    fn a_container_has_the_smallest_limit_around_it() {
        let root = shown(
            "two",
            &[
                ("pods/memory.max", "1000000\n"),
                ("pods/memory.current", "700\n"),
                ("pods/memory.stat", "anon 1\ninactive_file 300\nactive_file 50\n"),
                ("pods/one/memory.max", "max\n"),
            ],
        );
        let memory = in_groups(&root, "0::/pods/one\n").expect("a limit");
        assert_eq!((memory.limit, memory.used()), (1_000_000, Some(350)));
        assert_eq!(in_groups(&root, "0::/else\n"), None);
        let _ = fs::remove_dir_all(root);
    }

    /// Inside a container of the older form the path is the machine's, and the group is shown as the root.
    #[test]
    fn a_container_that_sees_its_group_as_the_root_has_its_limit() {
        let root = shown(
            "one",
            &[
                ("memory/memory.limit_in_bytes", "5000\n"),
                ("memory/memory.usage_in_bytes", "4000\n"),
                ("memory/memory.stat", "inactive_file 1\ntotal_inactive_file 1000\ntotal_active_file 500\n"),
            ],
        );
        let groups = "5:pids:/kubepods/pod1\n4:memory:/kubepods/pod1\n0::/\n";
        let memory = in_groups(&root, groups).expect("a limit");
        assert_eq!((memory.limit, memory.used()), (5000, Some(2500)));
        let _ = fs::remove_dir_all(root);
    }

    #[test]
    fn this_process_has_some_memory_and_uses_less() {
        let memory = Memory::find().expect("Linux tells");
        assert!(memory.used().is_some_and(|used| used > 0 && used < memory.limit), "{memory:?}");
        assert_eq!(machine("MemTotal:  2 kB\nMemFree: 1 kB\n"), Some(2048));
    }
}
