//! How entries and changes lie in the data file. Integers are little-endian.
//!
//! ```text
//!   state: key ──► crc32 of the rest and the key │ created │ revision │ expiry │ value
//!   log:   last revision in the record ──► crc32 of the rest │ change, change, …
//!          change = revision │ key length │ key │ 0, or 1 │ created │ revision │ value length │ value  (what was before)
//! ```
//!
//! The log holds what was *before* each change: a new state with the log undone step by step gives every change back,
//! and a creation, the usual write, costs only its key.

use std::collections::HashMap;
use std::sync::Arc;

use super::expiry::Expiry;
use crate::seal::{Seals, Unopened};
use crate::{Change, Entry, Revision, Snapshot};

/// A damaged record: what is wrong with it.
#[derive(Debug)]
pub(super) struct Damaged(pub(super) String);

/// A record that cannot be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    Damaged(Damaged),
    Sealed(Unopened),
}

/// Encodes an entry for the state table.
pub(super) fn encode_entry(entry: &Entry, expiry: Expiry, seals: &Seals, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&[0; 4]);
    for number in [entry.created, entry.revision, expiry] {
        into.extend_from_slice(&number.to_le_bytes());
    }
    into.extend_from_slice(&seals.seal(&entry.key, &entry.value));
    seal(into, entry.key.as_bytes());
}

/// Decodes an entry of the state table.
pub(super) fn decode_entry(
    key: &str,
    record: &[u8],
    seals: &Seals,
) -> Result<(Arc<Entry>, Expiry), Unreadable> {
    let damaged = |what: String| Unreadable::Damaged(Damaged(what));
    let mut rest = unseal(record, key.as_bytes()).ok_or_else(|| damaged(format!("the record of {key:?}")))?;
    let short = || damaged(format!("the record of {key:?} is too short"));
    let created = take_u64(&mut rest).ok_or_else(short)?;
    let revision = take_u64(&mut rest).ok_or_else(short)?;
    let expiry = take_u64(&mut rest).ok_or_else(short)?;
    let value = seals.open(key, rest).map_err(Unreadable::Sealed)?;
    Ok((Entry::new(key.into(), value, created, revision), expiry))
}

/// What an entry adds to the digest of the whole state, by which a missing or stale record is noticed.
pub(super) fn digest(entry: &Entry) -> u64 {
    let key = u64::from(crc32fast::hash(entry.key.as_bytes()));
    (key << 32 | key).wrapping_mul(entry.revision | 1).wrapping_add(entry.created)
}

/// Begins a log record.
pub(super) fn begin_log(into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&[0; 4]);
}

/// Appends a change to a log record.
pub(super) fn push_log(change: &Change, seals: &Seals, into: &mut Vec<u8>) {
    into.extend_from_slice(&change.revision().to_le_bytes());
    push_bytes(change.entry.key.as_bytes(), into);
    match &change.previous {
        None => into.push(0),
        Some(previous) => {
            into.push(1);
            into.extend_from_slice(&previous.created.to_le_bytes());
            into.extend_from_slice(&previous.revision.to_le_bytes());
            push_bytes(&seals.seal(&previous.key, &previous.value), into);
        }
    }
}

/// Finishes a log record.
pub(super) fn end_log(into: &mut [u8]) {
    seal(into, &[]);
}

/// A change of the past.
pub(super) enum Past {
    Known(Undo),
    /// What was before it is sealed with a key that is gone: nobody can go back this far.
    Closed,
}

/// What was before a change.
pub(super) struct Undo {
    revision: Revision,
    key: Arc<str>,
    previous: Option<Arc<Entry>>,
}

/// Decodes a log record. What cannot be opened any more is [`Past::Closed`].
pub(super) fn decode_log(record: &[u8], seals: &Seals) -> Result<Vec<Past>, Damaged> {
    let damaged = || Damaged("a record of the change log".into());
    let mut rest = unseal(record, &[]).ok_or_else(damaged)?;
    let mut undos = Vec::new();
    while !rest.is_empty() {
        undos.push(take_undo(&mut rest, seals).ok_or_else(damaged)?);
    }
    Ok(undos)
}

/// The changes that led to `state`, oldest first, from what was before each of them.
pub(super) fn changes(state: &Snapshot, undos: Vec<Undo>) -> Result<Vec<Arc<Change>>, Damaged> {
    // What a key was after the changes undone so far, where that differs from the state.
    let mut undone: HashMap<Arc<str>, Option<Arc<Entry>>> = HashMap::new();
    let mut changes = Vec::with_capacity(undos.len());
    for Undo { revision, key, previous } in undos.into_iter().rev() {
        let after = undone.get(&key).map_or_else(|| state.get(&key), Option::as_ref);
        let change = match (after, &previous) {
            (Some(entry), _) if entry.revision == revision => {
                Change::written(Arc::clone(entry), previous.clone())
            }
            (None, Some(last)) => Change::removed(Arc::clone(last), revision),
            _ => return Err(Damaged(format!("the change log does not fit the state at {key:?}"))),
        };
        undone.insert(key, previous);
        changes.push(change);
    }
    changes.reverse();
    Ok(changes)
}

fn take_undo(rest: &mut &[u8], seals: &Seals) -> Option<Past> {
    let revision = take_u64(rest)?;
    let key: Arc<str> = std::str::from_utf8(take_bytes(rest)?).ok()?.into();
    let (flag, tail) = rest.split_first()?;
    *rest = tail;
    let previous = match flag {
        0 => None,
        _ => {
            let (created, changed) = (take_u64(rest)?, take_u64(rest)?);
            let Ok(value) = seals.open_past(&key, take_bytes(rest)?) else { return Some(Past::Closed) };
            Some(Entry::new(Arc::clone(&key), value, created, changed))
        }
    };
    Some(Past::Known(Undo { revision, key, previous }))
}

/// Writes the checksum of a record and something outside it into its first four bytes.
fn seal(record: &mut [u8], outside: &[u8]) {
    if let Some((crc, rest)) = record.split_first_chunk_mut::<4>() {
        *crc = checksum(rest, outside).to_le_bytes();
    }
}

/// The rest of a record whose checksum is right.
fn unseal<'a>(record: &'a [u8], outside: &[u8]) -> Option<&'a [u8]> {
    let (crc, rest) = record.split_first_chunk::<4>()?;
    (u32::from_le_bytes(*crc) == checksum(rest, outside)).then_some(rest)
}

fn checksum(record: &[u8], outside: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(record);
    hasher.update(outside);
    hasher.finalize()
}

fn push_bytes(bytes: &[u8], into: &mut Vec<u8>) {
    let length = u32::try_from(bytes.len()).expect("keys and values have limits far below 4 GiB");
    into.extend_from_slice(&length.to_le_bytes());
    into.extend_from_slice(bytes);
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    let (head, tail) = rest.split_first_chunk::<8>()?;
    *rest = tail;
    Some(u64::from_le_bytes(*head))
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_first_chunk::<4>()?;
    let (bytes, tail) = tail.split_at_checked(u32::from_le_bytes(*head) as usize)?;
    *rest = tail;
    Some(bytes)
}
