//! Files: written whole or not at all, and as many open as the system allows.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many open files are enough for everything.
const OPEN_ENOUGH: u64 = 1 << 20;

/// Writes `contents` beside `path`, syncs it, and renames it into place. Readable by the owner alone.
pub fn write_whole(path: &Path, contents: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or_else(|| Path::new("."));
    let name = path.file_name().ok_or_else(|| io::Error::other("a file path needs a name"))?;
    let temporary = dir.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(dir)?.sync_all()
}

/// How many files this process may have open.
pub fn open_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(OPEN_ENOUGH)
}

/// Allows this process as many open files as the system lets it have.
pub fn raise_open_max() {
    let now = getrlimit(Resource::Nofile);
    let wanted = now.maximum.unwrap_or(OPEN_ENOUGH).min(OPEN_ENOUGH);
    if now.current.is_some_and(|current| current < wanted) {
        let limit = Rlimit { current: Some(wanted), maximum: now.maximum };
        // Whoever may not have more goes on with what there is.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
