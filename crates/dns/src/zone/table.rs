//! A table by name that is copied cheaply: one change copies one of many small maps.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// How many maps there are. With 100,000 names each holds a hundred.
const SHARDS: usize = 1024;

/// A map of one shard. Keys come from the hub, not from questions, so that nobody can choose them to collide.
type Shard<V> = HashMap<Box<[u8]>, V, BuildHasherDefault<Fold>>;

/// A table by name.
#[derive(Clone, Debug)]
pub(crate) struct Table<V> {
    shards: Arc<[Arc<Shard<V>>]>,
    len: usize,
}

impl<V: Clone> Default for Table<V> {
    fn default() -> Self {
        let empty = Arc::new(Shard::default());
        Self { shards: (0..SHARDS).map(|_| empty.clone()).collect(), len: 0 }
    }
}

impl<V: Clone> Table<V> {
    /// What stands under a name.
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Option<&V> {
        self.shards.get(shard(key))?.get(key)
    }

    /// How many names there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Everything, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &V)> {
        self.shards.iter().flat_map(|shard| shard.iter().map(|(key, value)| (&**key, value)))
    }

    /// Puts and removes; what others hold of the table stays as it was.
    pub(crate) fn change(&mut self, changes: impl IntoIterator<Item = (Box<[u8]>, Option<V>)>) {
        let mut changes = changes.into_iter().peekable();
        if changes.peek().is_none() {
            return;
        }
        if Arc::get_mut(&mut self.shards).is_none() {
            self.shards = self.shards.iter().cloned().collect();
        }
        let Some(shards) = Arc::get_mut(&mut self.shards) else { return };
        for (key, value) in changes {
            let Some(map) = shards.get_mut(shard(&key)).map(Arc::make_mut) else { continue };
            let (before, after) = (map.len(), value.is_some());
            match value {
                Some(value) => drop(map.insert(key, value)),
                None => drop(map.remove(&key)),
            }
            match (map.len() == before, after) {
                (false, true) => self.len += 1,
                (false, false) => self.len -= 1,
                (true, _) => {}
            }
        }
    }
}

fn shard(key: &[u8]) -> usize {
    let mut hash = Fold::default();
    hash.write(key);
    // Other bits than those that the map looks at first.
    usize::try_from(hash.finish() >> 20).unwrap_or(0) % SHARDS
}

/// A quick hash for short keys: eight bytes at a time, multiplied and folded.
#[derive(Clone, Copy, Debug, Default)]
struct Fold(u64);

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    fn write_usize(&mut self, _: usize) {
        // The length is in the last word already.
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Fold {
    fn word(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93;
        #[expect(clippy::cast_possible_truncation, reason = "both halves are folded into one")]
        let folded = (product >> 64) as u64 ^ product as u64;
        self.0 = folded;
    }
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
        let shared = table.shards.iter().zip(before.shards.iter()).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
        assert!(shared >= SHARDS - 3, "{shared} shared");
        let most = table.shards.iter().map(|shard| shard.len()).max();
        assert!(most < Some(25), "badly spread: {most:?}");
        assert_eq!(table.iter().count(), 4999);
    }
}
