//! The file of the log: appended to, put aside at a size, a bounded number kept.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::Config;
use super::record::Record;

/// The file being written.
pub(super) struct File {
    path: PathBuf,
    bytes_max: u64,
    files_max: usize,
    file: fs::File,
    bytes: u64,
    failing: bool,
}

impl File {
    pub(super) fn open(config: &Config) -> io::Result<Self> {
        let file = append_to(&config.path)?;
        let bytes = file.metadata()?.len();
        let Config { path, bytes_max, files_max, .. } = config.clone();
        Ok(Self { path, bytes_max, files_max, file, bytes, failing: false })
    }

    /// Writes records; gives how many could not be. Says so once, not for every record.
    pub(super) fn append(&mut self, records: &[Record]) -> u64 {
        let mut text = String::new();
        let mut lost = 0;
        let (mut waiting, count) = (0, records.len());
        for (at, record) in records.iter().enumerate() {
            text.push_str(&record.to_line());
            text.push('\n');
            waiting += 1;
            let full = self.bytes.saturating_add(text.len() as u64) >= self.bytes_max;
            if full || at + 1 == count {
                lost += self.put(&text, full, waiting);
                text.clear();
                waiting = 0;
            }
        }
        lost
    }

    fn put(&mut self, text: &str, full: bool, records: u64) -> u64 {
        let written = self.file.write_all(text.as_bytes()).and_then(|()| {
            self.bytes = self.bytes.saturating_add(text.len() as u64);
            if full { self.rotate() } else { Ok(()) }
        });
        match written {
            Ok(()) => {
                self.failing = false;
                0
            }
            Err(why) => {
                if !self.failing {
                    tracing::error!(%why, path = %self.path.display(), "cannot write the audit log");
                }
                self.failing = true;
                records
            }
        }
    }

    /// Puts the file aside as `.1`, the former `.1` as `.2` and so on; the oldest is removed.
    fn rotate(&mut self) -> io::Result<()> {
        let numbered = |number: usize| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        if self.files_max == 0 {
            fs::remove_file(&self.path)?;
        }
        for number in (1..=self.files_max).rev() {
            let from = if number == 1 { self.path.clone() } else { numbered(number - 1) };
            if from.exists() {
                fs::rename(from, numbered(number))?;
            }
        }
        self.file = append_to(&self.path)?;
        self.bytes = 0;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}
