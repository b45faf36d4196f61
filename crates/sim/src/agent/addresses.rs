//! Addresses of pods: each node has a range, and an address freed is not given out again soon.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::address::Range;

/// The addresses of one node's pods.
#[derive(Debug)]
pub(super) struct Addresses {
    range: Range,
    used: Mutex<Used>,
    /// How many were given back: to wait for the next.
    freed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Used {
    taken: BTreeSet<u32>,
    last: u32,
}

/// An address that is one pod's until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    index: Option<u32>,
    address: Ipv4Addr,
    of: Arc<Addresses>,
}

impl Addresses {
    pub(super) fn new(range: Range) -> Arc<Self> {
        Arc::new(Self { range, used: Mutex::default(), freed: watch::Sender::new(0) })
    }

    /// Takes the preferred address if it is free, else the next free one; none when all are taken. The first and the
    /// last of a range are not given out.
    pub(super) fn take(self: &Arc<Self>, preferred: Option<Ipv4Addr>) -> Option<Held> {
        let mut used = self.used.lock();
        let count = self.range.count();
        let preferred = preferred.and_then(|address| self.range.index(address));
        let next = (1..=count).map(|step| (used.last + step) % count);
        let usable =
            |index: &u32| (1..count.saturating_sub(1)).contains(index) && !used.taken.contains(index);
        let index = preferred.filter(usable).or_else(|| next.into_iter().find(usable))?;
        let address = self.range.get(index)?;
        used.taken.insert(index);
        used.last = if preferred == Some(index) { used.last } else { index };
        Some(Held { index: Some(index), address, of: self.clone() })
    }

    /// To wait until an address is given back.
    pub(super) fn freed(&self) -> watch::Receiver<u64> {
        self.freed.subscribe()
    }

    /// The first and the last that are given out, as an error names them.
    pub(super) fn ends(&self) -> (Option<Ipv4Addr>, Option<Ipv4Addr>) {
        (self.range.get(1), self.range.get(self.range.count().saturating_sub(2)))
    }

    /// An address that is not of this range: the node's own, for pods that share its network.
    pub(super) fn foreign(self: &Arc<Self>, address: Ipv4Addr) -> Held {
        Held { index: None, address, of: self.clone() }
    }
}

impl Held {
    pub(super) const fn address(&self) -> Ipv4Addr {
        self.address
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            self.of.used.lock().taken.remove(&index);
            self.of.freed.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Block;

    #[test]
    fn addresses_are_distinct_and_come_back_last() {
        let addresses = Addresses::new(Block::all().next().unwrap().node_pods(0, 1).unwrap());
        let first = addresses.take(None).unwrap();
        let given = first.address();
        drop(first);
        assert_ne!(addresses.take(None).unwrap().address(), given, "a freed address rests");
        let again = addresses.take(Some(given)).unwrap();
        assert_eq!(again.address(), given, "unless it is asked for");
        let mut all: Vec<_> = std::iter::from_fn(|| addresses.take(None)).collect();
        all.push(again);
        assert_eq!(all.len(), 126);
        assert!(addresses.take(Some(given)).is_none());
        let distinct: BTreeSet<_> = all.iter().map(Held::address).collect();
        assert_eq!(distinct.len(), all.len());
    }
}
