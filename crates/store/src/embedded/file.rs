//! The data file: opening and checking it, reading it whole, and adding a batch of changes.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use super::expiry::{Expiries, Expiry};
use super::record::{self, Damaged, Past, Unreadable};
use crate::mirror::{HistoryLimits, weight};
use crate::seal::Unopened;
use crate::{Change, Error, OpenError, Revision, Seals, Snapshot};

const DATA_FILE: &str = "store.redb";
const NEW_FILE: &str = "store.redb.new";
const LOCK_FILE: &str = "store.lock";

const STATE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("state");
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// Rows of the meta table.
const FORMAT: &str = "format";
const REVISION: &str = "revision";
const DIGEST: &str = "digest";

/// The format this version reads and writes.
const FORMAT_KNOWN: u64 = 1;
/// The revision of a new store; never 0, which the Kubernetes API uses for "any".
const REVISION_FIRST: Revision = 1;
/// A log record is closed once it has this many bytes.
const LOG_RECORD_BYTES: usize = 32 << 10;

/// A data directory that no other process uses while this lives.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// The operating system unlocks it when the process ends, however it ends.
    _lock: fs::File,
}

/// Where the data lies.
pub(super) enum Medium {
    /// In a file.
    File { path: PathBuf, cache_bytes: usize },
    /// Nowhere: what is in memory is all there is.
    Nowhere,
    /// In something that a test makes; called for every opening.
    #[cfg(test)]
    Made(Box<dyn Fn() -> super::tests::Disk + Send>),
}

/// The open data file.
pub(super) struct File {
    /// None when nothing outlives the process.
    database: Option<Database>,
    /// The log's records, oldest first.
    log: VecDeque<LogRecord>,
    log_total: LogTotal,
    digest: u64,
}

#[derive(Debug)]
struct LogRecord {
    last: Revision,
    total: LogTotal,
}

#[derive(Clone, Copy, Debug, Default)]
struct LogTotal {
    changes: usize,
    bytes: usize,
}

/// What a data file held.
pub(super) struct Loaded {
    pub(super) file: File,
    pub(super) state: Snapshot,
    pub(super) expiries: Expiries,
    /// The changes that led to the state, and the revision after which they all are there.
    pub(super) past: Vec<Arc<Change>>,
    pub(super) oldest: Revision,
}

/// Changes to add. All or none of them are there afterwards.
pub(super) struct Batch<'a> {
    /// The changes in order, each with when its key expires.
    pub(super) changes: &'a [(Arc<Change>, Expiry)],
    /// History up to here need not be kept.
    pub(super) forget: Revision,
    pub(super) limits: HistoryLimits,
    pub(super) seals: &'a Seals,
}

// === impl Directory ===

/// How often and how long apart the lock is tried: a process that has just ended, or a child between fork and exec,
/// holds it a moment longer.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

impl Directory {
    /// Makes the directory when missing and locks it.
    pub(super) fn lock(path: &Path) -> Result<Self, OpenError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, source }
        };
        fs::create_dir_all(path).map_err(io(path))?;
        let lock_path = path.join(LOCK_FILE);
        let lock = fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(io(&lock_path))?;
        for _ in 0..LOCK_TRIES {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { path: path.to_owned(), _lock: lock }),
                Err(fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
                Err(fs::TryLockError::Error(source)) => {
                    return Err(OpenError::Io { path: lock_path, source });
                }
            }
        }
        Err(OpenError::InUse { path: path.to_owned() })
    }

    /// Where the data lies in it.
    pub(super) fn data_file(&self) -> PathBuf {
        self.path.join(DATA_FILE)
    }
}

// === impl Medium ===

impl Medium {
    /// Opens and reads the data; makes an empty store where there is none.
    pub(super) fn open(&self, seals: &Seals) -> Result<Loaded, OpenError> {
        if let Self::Nowhere = self {
            return Ok(Loaded::empty());
        }
        let what = |what: String| OpenError::Damaged { path: self.path().to_owned(), what };
        // A damaged page can make redb panic; for us that is one more way to say damaged.
        let load = || self.database().and_then(|database| load(database, self.path(), seals));
        catch_unwind(AssertUnwindSafe(load))
            .unwrap_or_else(|_| Err(what("its pages are not what they should be".into())))
    }

    fn path(&self) -> &Path {
        match self {
            Self::File { path, .. } => path,
            Self::Nowhere => Path::new(""),
            #[cfg(test)]
            Self::Made(_) => Path::new("test"),
        }
    }

    fn database(&self) -> Result<Database, OpenError> {
        match self {
            Self::File { path, cache_bytes } => open_file(path, *cache_bytes),
            // Not reached: there is nothing to open.
            Self::Nowhere => Err(OpenError::InUse { path: PathBuf::new() }),
            #[cfg(test)]
            Self::Made(make) => {
                let disk = make();
                let empty = redb::StorageBackend::len(&disk).unwrap_or(0) == 0;
                let database = redb::Builder::new()
                    .create_with_backend(disk)
                    .map_err(|error| refused(error, self.path()))?;
                if empty {
                    initialise(&database).map_err(|error| refused(error, self.path()))?;
                }
                Ok(database)
            }
        }
    }
}

fn open_file(path: &Path, cache_bytes: usize) -> Result<Database, OpenError> {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(cache_bytes);
    builder.set_repair_callback(|session| {
        tracing::info!(
            progress = session.progress(),
            "the store was not closed in order: checking the data file"
        );
    });
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    if !path.try_exists().map_err(io)? {
        // Made under another name, so that a file with the right name is always a complete one.
        let new = path.with_file_name(NEW_FILE);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        let database = builder.create(&new).map_err(|error| refused(error, &new))?;
        initialise(&database).map_err(|error| refused(error, &new))?;
        drop(database);
        fs::rename(&new, path).map_err(io)?;
        let parent = path.parent().unwrap_or_else(|| Path::new("."));
        fs::File::open(parent).and_then(|directory| directory.sync_all()).map_err(io)?;
    }
    builder.open(path).map_err(|error| refused(error, path))
}

fn initialise(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        transaction.open_table(STATE)?;
        transaction.open_table(LOG)?;
        let mut meta = transaction.open_table(META)?;
        for (row, value) in [(FORMAT, FORMAT_KNOWN), (REVISION, REVISION_FIRST), (DIGEST, 0)] {
            meta.insert(row, value)?;
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Why redb refused to open or read.
fn refused(error: impl Into<redb::Error>, path: &Path) -> OpenError {
    let path = path.to_owned();
    match error.into() {
        redb::Error::Io(source) if source.kind() != io::ErrorKind::InvalidData => {
            if source.kind() == io::ErrorKind::UnexpectedEof {
                return OpenError::Damaged { path, what: "it ends too early".into() };
            }
            OpenError::Io { path, source }
        }
        redb::Error::DatabaseAlreadyOpen => OpenError::InUse { path },
        other => OpenError::Damaged { path, what: other.to_string() },
    }
}

/// Reads everything and checks that it is whole.
fn load(database: Database, path: &Path, seals: &Seals) -> Result<Loaded, OpenError> {
    let refused = |error: redb::Error| refused(error, path);
    let damaged = |Damaged(what): Damaged| OpenError::Damaged { path: path.to_owned(), what };
    let read = database.begin_read().map_err(|error| refused(error.into()))?;

    let meta = read.open_table(META).map_err(|error| refused(error.into()))?;
    let row = |name: &str| -> Result<u64, OpenError> {
        let value = meta.get(name).map_err(|error| refused(error.into()))?;
        value.map(|value| value.value()).ok_or_else(|| damaged(Damaged(format!("it has no {name}"))))
    };
    let found = row(FORMAT)?;
    if found != FORMAT_KNOWN {
        return Err(OpenError::Format { path: path.to_owned(), found, known: FORMAT_KNOWN });
    }

    let mut state = Snapshot::empty(row(REVISION)?);
    let mut expiries = Expiries::default();
    let mut digest = 0_u64;
    let table = read.open_table(STATE).map_err(|error| refused(error.into()))?;
    for row in table.iter().map_err(|error| refused(error.into()))? {
        let (key, value) = row.map_err(|error| refused(error.into()))?;
        let decoded = record::decode_entry(key.value(), value.value(), seals);
        let (entry, expiry) = decoded.map_err(|unreadable| match unreadable {
            Unreadable::Damaged(what) => damaged(what),
            Unreadable::Sealed(Unopened(why)) => OpenError::Sealed(why),
        })?;
        digest = digest.wrapping_add(record::digest(&entry));
        expiries.set(&entry.key, expiry);
        state.put(entry);
    }
    if digest != row(DIGEST)? {
        return Err(damaged(Damaged("records are missing or out of date".into())));
    }

    let mut log = VecDeque::new();
    let mut undos = Vec::new();
    let table = read.open_table(LOG).map_err(|error| refused(error.into()))?;
    for row in table.iter().map_err(|error| refused(error.into()))? {
        let (last, value) = row.map_err(|error| refused(error.into()))?;
        let some = record::decode_log(value.value(), seals).map_err(damaged)?;
        let total = LogTotal { changes: some.len(), bytes: value.value().len() };
        log.push_back(LogRecord { last: last.value(), total });
        for past in some {
            match past {
                Past::Known(undo) => undos.push(undo),
                Past::Closed => undos.clear(),
            }
        }
    }
    let past = record::changes(&state, undos).map_err(damaged)?;
    let oldest = past.first().map_or_else(|| state.revision(), |change| change.revision().saturating_sub(1));
    let log_total = log.iter().fold(LogTotal::default(), |sum, record| sum.plus(record.total));
    drop((read, meta, table));
    Ok(Loaded {
        file: File { database: Some(database), log, log_total, digest },
        state,
        expiries,
        past,
        oldest,
    })
}

// === impl Loaded ===

impl Loaded {
    /// A new store that is kept nowhere.
    fn empty() -> Self {
        let file = File { database: None, log: VecDeque::new(), log_total: LogTotal::default(), digest: 0 };
        let state = Snapshot::empty(REVISION_FIRST);
        Self { file, state, expiries: Expiries::default(), past: Vec::new(), oldest: REVISION_FIRST }
    }
}

// === impl File ===

impl File {
    /// Adds a batch and syncs it to disk.
    pub(super) fn commit(&mut self, batch: &Batch<'_>) -> Result<(), redb::Error> {
        let Some(database) = &self.database else { return Ok(()) };
        let transaction = database.begin_write()?;
        let digest = write_state(&transaction, batch, self.digest)?;
        let added = write_log(&transaction, batch.changes, batch.seals)?;
        let dropped = self.log_surplus(&added, batch);
        trim_log(&transaction, self.log.iter().chain(&added).take(dropped))?;
        {
            let mut meta = transaction.open_table(META)?;
            if let Some((last, _)) = batch.changes.last() {
                meta.insert(REVISION, last.revision())?;
            }
            meta.insert(DIGEST, digest)?;
        }
        transaction.commit()?;
        // From here on it is done: only now the picture in memory follows.
        self.digest = digest;
        for record in added {
            self.log_total = self.log_total.plus(record.total);
            self.log.push_back(record);
        }
        for record in self.log.drain(..dropped) {
            self.log_total = self.log_total.minus(record.total);
        }
        Ok(())
    }

    /// How many of the oldest log records can go when `added` come.
    fn log_surplus(&self, added: &[LogRecord], batch: &Batch<'_>) -> usize {
        let mut total = added.iter().fold(self.log_total, |sum, record| sum.plus(record.total));
        let mut dropped = 0;
        for record in self.log.iter().chain(added) {
            let fits = total.changes <= batch.limits.changes_max && total.bytes <= batch.limits.bytes_max;
            if fits && record.last > batch.forget {
                break;
            }
            total = total.minus(record.total);
            dropped += 1;
        }
        dropped
    }
}

impl LogTotal {
    fn plus(self, other: Self) -> Self {
        Self { changes: self.changes + other.changes, bytes: self.bytes + other.bytes }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            changes: self.changes.saturating_sub(other.changes),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// Writes the entries; gives the new digest of the state.
fn write_state(
    transaction: &WriteTransaction,
    batch: &Batch<'_>,
    mut digest: u64,
) -> Result<u64, redb::Error> {
    let mut table = transaction.open_table(STATE)?;
    let mut buffer = Vec::new();
    for (change, expiry) in batch.changes {
        if let Some(previous) = &change.previous {
            digest = digest.wrapping_sub(record::digest(previous));
        }
        if change.removed {
            table.remove(&*change.entry.key)?;
        } else {
            digest = digest.wrapping_add(record::digest(&change.entry));
            record::encode_entry(&change.entry, *expiry, batch.seals, &mut buffer);
            table.insert(&*change.entry.key, buffer.as_slice())?;
        }
    }
    Ok(digest)
}

/// Writes what was before the changes, in as few records as their size allows.
fn write_log(
    transaction: &WriteTransaction,
    changes: &[(Arc<Change>, Expiry)],
    seals: &Seals,
) -> Result<Vec<LogRecord>, redb::Error> {
    let mut table = transaction.open_table(LOG)?;
    let mut added = Vec::new();
    let mut buffer = Vec::new();
    let mut total = LogTotal::default();
    record::begin_log(&mut buffer);
    for (index, (change, _)) in changes.iter().enumerate() {
        record::push_log(change, seals, &mut buffer);
        total = total.plus(LogTotal { changes: 1, bytes: weight(change) });
        if buffer.len() >= LOG_RECORD_BYTES || index + 1 == changes.len() {
            record::end_log(&mut buffer);
            table.insert(change.revision(), buffer.as_slice())?;
            added.push(LogRecord { last: change.revision(), total });
            total = LogTotal::default();
            record::begin_log(&mut buffer);
        }
    }
    Ok(added)
}

fn trim_log<'a>(
    transaction: &WriteTransaction,
    surplus: impl Iterator<Item = &'a LogRecord>,
) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(LOG)?;
    for record in surplus {
        table.remove(record.last)?;
    }
    Ok(())
}

/// What the store's users are told about a failed commit.
pub(super) fn explain(error: &redb::Error) -> Error {
    let redb::Error::Io(cause) = error else { return Error::Unavailable(format!("the data file: {error}")) };
    explain_io(cause)
}

/// What the store's users are told about a failed reopening.
pub(super) fn explain_open(error: &OpenError) -> Error {
    match error {
        OpenError::Io { source, .. } => explain_io(source),
        other => Error::Unavailable(other.to_string()),
    }
}

fn explain_io(cause: &io::Error) -> Error {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match cause.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => Error::Full(format!("writing the data file: {cause}")),
        _ => Error::Unavailable(format!("writing the data file: {cause}")),
    }
}
