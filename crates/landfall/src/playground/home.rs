//! Where a playground lives: its directory, the lock on it, and the list of those that run.
//!
//! ```text
//!   DIR/playground.lock   held while it runs
//!   DIR/playground.json   every address, for programs
//!   DIR/control.json      how to break things in it; for its owner only
//!   DIR/kubeconfig        contexts `federation` and one per cluster
//!   DIR/hub/, DIR/members/NAME/
//! ```

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The file in the list that is locked while a playground is opened.
const TURN: &str = ".turn";

/// A directory that is this playground's alone while it runs.
pub(super) struct Home {
    path: PathBuf,
    /// Whether it outlives the playground.
    kept: bool,
    /// Its entry among those that run.
    entry: Option<PathBuf>,
    /// The operating system unlocks it when the process ends, however it ends.
    _lock: File,
}

/// A playground that runs.
pub(crate) struct Running {
    /// Its directory.
    pub(crate) dir: PathBuf,
    /// Its kubeconfig.
    pub(crate) kubeconfig: PathBuf,
}

impl Home {
    /// Opens the directory to keep, or makes one for now.
    pub(super) fn open(keep: Option<&Path>) -> Result<Self> {
        let path = match keep {
            Some(dir) => dir.to_owned(),
            None => list()?.join(format!("world-{}", std::process::id())),
        };
        let cannot = || {
            format!(
                "cannot use the directory {}: give one that can be written to with --keep DIR",
                path.display()
            )
        };
        // One after the other: who sweeps must not find a directory that is made but not locked yet.
        let _turn = turn();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).with_context(cannot)?;
        let path = fs::canonicalize(&path).with_context(cannot)?;
        let lock =
            File::options().create(true).truncate(false).write(true).open(path.join("playground.lock"));
        let lock = lock.with_context(cannot)?;
        if lock.try_lock().is_err() {
            bail!("a playground runs in {} already: stop it first, or use another directory", path.display());
        }
        sweep();
        let entry = keep.and_then(|_| enlist(&path));
        Ok(Self { path, kept: keep.is_some(), entry, _lock: lock })
    }

    /// Something in it.
    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether it outlives the playground.
    pub(super) const fn kept(&self) -> bool {
        self.kept
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // What cannot be removed now is found to be stale later.
        if let Some(entry) = &self.entry {
            let _ = fs::remove_file(entry);
        }
        let _ = fs::remove_file(self.path.join("control.json"));
        if !self.kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The playground in a directory, or the only one that runs.
pub(super) fn find(dir: Option<&Path>) -> Result<Running> {
    if let Some(dir) = dir {
        if !runs(dir) {
            bail!("no playground runs in {}: start it with `landfall playground --keep {0}`", dir.display());
        }
        return Ok(running(dir.to_owned()));
    }
    let mut all = everyone();
    match (all.pop(), all.len()) {
        (Some(only), 0) => Ok(only),
        (None, _) => bail!("no playground runs: start one with `landfall playground`"),
        (Some(last), _) => {
            all.push(last);
            let dirs: Vec<_> = all.iter().map(|one| format!("  --dir {}", one.dir.display())).collect();
            bail!("several playgrounds run; say which:\n{}", dirs.join("\n"));
        }
    }
}

/// The playground that runs, if it is the only one.
pub(crate) fn only_running() -> Option<Running> {
    let mut all = everyone();
    if all.len() == 1 { all.pop() } else { None }
}

fn running(dir: PathBuf) -> Running {
    Running { kubeconfig: dir.join("kubeconfig"), dir }
}

/// Where this user's playgrounds are listed: directories that live as long as they run, and links to kept ones.
fn list() -> Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("landfall-{}", user()));
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
    made.with_context(|| {
        format!("cannot make {}: give a directory that can be written to with --keep DIR", path.display())
    })?;
    // Somebody else could have made it first, to read along.
    if fs::metadata(&path)?.uid() != user() {
        bail!("{} belongs to somebody else: give a directory of yours with --keep DIR", path.display());
    }
    Ok(path)
}

fn user() -> u32 {
    fs::metadata("/proc/self").map_or(0, |own| own.uid())
}

/// Best effort: a kept playground that is not listed is found with `--dir`.
fn enlist(dir: &Path) -> Option<PathBuf> {
    let entry = list().ok()?.join(format!("kept-{}", std::process::id()));
    let _ = fs::remove_file(&entry);
    symlink(dir, &entry).ok()?;
    Some(entry)
}

fn everyone() -> Vec<Running> {
    let Ok(entries) = list().and_then(|path| Ok(fs::read_dir(path)?)) else { return Vec::new() };
    let dirs = entries.flatten().filter_map(|entry| fs::canonicalize(entry.path()).ok());
    let mut all: Vec<Running> = dirs.filter(|dir| runs(dir)).map(running).collect();
    all.sort_by(|a, b| a.dir.cmp(&b.dir));
    all
}

/// Waits until nobody else opens a playground; best effort, as everything about the list.
fn turn() -> Option<File> {
    let file = File::options().create(true).truncate(false).write(true).open(list().ok()?.join(TURN)).ok()?;
    file.lock().ok()?;
    Some(file)
}

/// Removes what playgrounds left that were killed: nobody holds their locks any more.
fn sweep() {
    let Ok(entries) = list().and_then(|path| Ok(fs::read_dir(path)?)) else { return };
    let left = entries.flatten().filter(|entry| entry.file_name() != TURN).map(|entry| entry.path());
    for entry in left.filter(|path| !runs(path)) {
        // A link leads to a directory that is kept, so only the link goes.
        let _ = if entry.is_symlink() { fs::remove_file(&entry) } else { fs::remove_dir_all(&entry) };
    }
}

/// Whether somebody holds its lock.
fn runs(dir: &Path) -> bool {
    let lock = File::open(dir.join("playground.lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_playground_per_directory() {
        let dir = tempfile::tempdir().unwrap();
        let world = dir.path().join("world");
        assert!(!runs(&world));
        let home = Home::open(Some(&world)).unwrap();
        assert!(runs(&world));
        let error = Home::open(Some(&world)).err().unwrap().to_string();
        assert!(error.contains("a playground runs in"), "{error}");
        assert_eq!(find(Some(&world)).unwrap().kubeconfig, world.join("kubeconfig"));
        drop(home);
        assert!(!runs(&world) && world.exists());
        assert!(find(Some(&world)).is_err());
        drop(Home::open(Some(&world)).unwrap());
    }

    #[test]
    fn what_the_killed_left_is_swept_away() {
        let list = list().unwrap();
        let left = list.join(format!("world-test-{}", std::process::id()));
        fs::create_dir_all(left.join("hub")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        drop(Home::open(Some(&dir.path().join("world"))).unwrap());
        assert!(!left.exists());
    }

    #[test]
    fn a_directory_that_cannot_be() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = Home::open(Some(&dir.path().join("file/world"))).err().unwrap().to_string();
        assert!(error.contains("--keep DIR"), "{error}");
    }
}
