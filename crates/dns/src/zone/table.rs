//! A table by name that is copied cheaply: one change copies one of many small parts.
//!
//! Made for few cache misses: a part is one row of slots, and a slot holds its key, so that a look-up goes from the row's address
//! to the slot to the value. Keys come from the hub, not from questions, so that nobody can choose them to collide.

use std::sync::Arc;

use smallvec::SmallVec;

/// How many parts there are. With 100,000 names each holds a hundred.
const PARTS: usize = 1024;

/// A table by name.
#[derive(Clone, Debug)]
pub(crate) struct Table<V> {
    parts: Arc<[Arc<[Slot<V>]>]>,
    len: usize,
}

/// A place in a part; at least half of them are empty, so that a search ends soon.
type Slot<V> = Option<Entry<V>>;

#[derive(Clone, Debug)]
struct Entry<V> {
    hash: u64,
    key: SmallVec<[u8; 32]>,
    value: V,
}

impl<V: Clone> Default for Table<V> {
    fn default() -> Self {
        let empty: Arc<[Slot<V>]> = Arc::new([]);
        Self { parts: (0..PARTS).map(|_| empty.clone()).collect(), len: 0 }
    }
}

impl<V: Clone> Table<V> {
    /// What stands under a name.
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Option<&V> {
        let hash = hash(key);
        let slots = self.parts.get(part(hash))?;
        let start = start(hash);
        for step in 0..slots.len() {
            match slots.get((start + step) & (slots.len() - 1))? {
                Some(entry) if entry.hash == hash && *entry.key == *key => return Some(&entry.value),
                Some(_) => {}
                None => return None,
            }
        }
        None
    }

    /// Where a search for a name with this hash begins.
    pub(crate) fn first_slot(&self, hash: u64) -> Option<&impl Sized> {
        let slots = self.parts.get(part(hash))?;
        slots.get(start(hash) & slots.len().wrapping_sub(1))
    }

    /// What most likely stands under a name with this hash.
    pub(crate) fn guess(&self, hash: u64) -> Option<&V> {
        let slots = self.parts.get(part(hash))?;
        let entry = slots.get(start(hash) & slots.len().wrapping_sub(1))?.as_ref()?;
        (entry.hash == hash).then_some(&entry.value)
    }

    /// How many names there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Everything, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &V)> {
        let entries = self.parts.iter().flat_map(|slots| slots.iter().flatten());
        entries.map(|entry| (&*entry.key, &entry.value))
    }

    /// Puts and removes; what others hold of the table stays as it was. Of two changes to one name the later counts.
    pub(crate) fn change(&mut self, changes: impl IntoIterator<Item = (Box<[u8]>, Option<V>)>) {
        let mut by_part: Vec<_> = changes
            .into_iter()
            .map(|(key, value)| {
                let hash = hash(&key);
                (part(hash), hash, key, value)
            })
            .collect();
        if by_part.is_empty() {
            return;
        }
        by_part.sort_by_key(|(part, ..)| *part);
        let mut parts: Vec<Arc<[Slot<V>]>> = self.parts.to_vec();
        for changes in by_part.chunk_by_mut(|a, b| a.0 == b.0) {
            let Some(slots) = changes.first().and_then(|(part, ..)| parts.get_mut(*part)) else { continue };
            let mut entries: Vec<Entry<V>> = slots.iter().flatten().cloned().collect();
            self.len -= entries.len();
            for (_, hash, key, value) in changes {
                let at = entries.iter().position(|entry| entry.hash == *hash && *entry.key == **key);
                match (at, value.take()) {
                    (Some(at), Some(value)) => entries[at].value = value,
                    (Some(at), None) => drop(entries.swap_remove(at)),
                    (None, Some(value)) => {
                        entries.push(Entry { hash: *hash, key: SmallVec::from_slice(key), value });
                    }
                    (None, None) => {}
                }
            }
            self.len += entries.len();
            *slots = row(entries);
        }
        self.parts = parts.into();
    }
}

/// Entries in their slots: each in the first free one from where its hash says.
fn row<V: Clone>(entries: Vec<Entry<V>>) -> Arc<[Slot<V>]> {
    if entries.is_empty() {
        return Arc::new([]);
    }
    let size = (entries.len() * 2).next_power_of_two();
    let mut slots: Vec<Slot<V>> = vec![None; size];
    for entry in entries {
        let start = start(entry.hash);
        let free = (0..size).map(|step| (start + step) & (size - 1)).find(|at| slots[*at].is_none());
        if let Some(at) = free {
            slots[at] = Some(entry);
        }
    }
    slots.into()
}

/// Where a search begins, in a row that is long enough.
fn start(hash: u64) -> usize {
    usize::try_from(hash & u64::from(u32::MAX)).unwrap_or(0)
}

/// Other bits than those that choose the slot.
fn part(hash: u64) -> usize {
    usize::try_from(hash >> 40).unwrap_or(0) % PARTS
}

/// A quick hash for short keys: eight bytes at a time, multiplied and folded.
pub(crate) fn hash(key: &[u8]) -> u64 {
    let fold = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word ^ 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93;
        #[expect(clippy::cast_possible_truncation, reason = "both halves are folded into one")]
        let folded = (product >> 64) as u64 ^ product as u64;
        folded
    };
    let (words, rest) = key.as_chunks::<8>();
    let hash = words.iter().fold(0, |hash, word| fold(hash, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(hash, u64::from_le_bytes(last) ^ (key.len() as u64) << 56)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_not_seen_by_those_who_hold_the_table() {
        let mut table = Table::default();
        let key = |n: u32| -> Box<[u8]> { format!("name-{n}").into_bytes().into() };
        table.change((0..5000).map(|n| (key(n), Some(n))));
        let before = table.clone();
        table.change([(key(7), Some(70)), (key(8), None), (key(9999), None)]);
        assert_eq!((before.get(&key(7)), before.get(&key(8)), before.len()), (Some(&7), Some(&8), 5000));
        assert_eq!((table.get(&key(7)), table.get(&key(8)), table.len()), (Some(&70), None, 4999));
        let shared = table.parts.iter().zip(before.parts.iter()).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
        assert!(shared >= PARTS - 3, "{shared} shared");
        let most = table.parts.iter().map(|slots| slots.iter().flatten().count()).max();
        assert!(most < Some(25), "badly spread: {most:?}");
        for n in (0..5000).filter(|n| *n != 7 && *n != 8) {
            assert_eq!(table.get(&key(n)), Some(&n));
        }
        assert_eq!(table.iter().count(), 4999);
    }
}
