//! What Services hold of a member's addresses and of its nodes' ports: read from the state, and remembered, so that a Service
//! among thousands costs no more than one among few.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use landfall_apiserver::keys;
use landfall_store::{Entry, Snapshot};
use serde_json::Value;

use super::admission::ports_of;
use crate::controllers::read::text;

/// A port of the nodes, and its protocol.
pub(super) type Port = (i64, String);

/// Who holds what. Services are known by their keys in the store.
#[derive(Default)]
pub(super) struct Ledger {
    /// All Services when it was last looked, in the order of their keys.
    seen: Vec<Arc<Entry>>,
    holdings: HashMap<Arc<str>, Holding>,
    addresses: HashMap<String, Arc<str>>,
    ports: BTreeMap<Port, Arc<str>>,
}

struct Holding {
    address: String,
    ports: Vec<Port>,
}

impl Ledger {
    /// Takes in what has changed since the last time: both lists are gone through side by side.
    pub(super) fn refresh(&mut self, state: &Snapshot) {
        let before = std::mem::take(&mut self.seen);
        let mut now = Vec::with_capacity(before.len() + 1);
        let mut old = before.iter().peekable();
        for entry in state.range(&keys::collection("", "services"), "") {
            now.push(entry.clone());
            if old.next_if(|known| Arc::ptr_eq(known, entry)).is_some() {
                continue;
            }
            while let Some(gone) = old.next_if(|known| known.key < entry.key) {
                self.forget(&gone.key);
            }
            match old.next_if(|known| known.key == entry.key) {
                Some(known) if known.revision == entry.revision => {}
                _ => self.read(&entry.key, &entry.value),
            }
        }
        old.for_each(|gone| self.forget(&gone.key));
        self.seen = now;
    }

    fn read(&mut self, key: &Arc<str>, bytes: &[u8]) {
        self.forget(key);
        let service: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let address = text(&service, "/spec/clusterIP").to_owned();
        let ports: Vec<Port> = ports_of(&service).into_iter().filter(|(number, _)| *number != 0).collect();
        self.addresses.insert(address.clone(), key.clone());
        self.ports.extend(ports.iter().map(|port| (port.clone(), key.clone())));
        self.holdings.insert(key.clone(), Holding { address, ports });
    }

    fn forget(&mut self, key: &str) {
        let Some(holding) = self.holdings.remove(key) else { return };
        if self.addresses.get(&holding.address).is_some_and(|holder| **holder == *key) {
            self.addresses.remove(&holding.address);
        }
        for port in holding.ports {
            if self.ports.get(&port).is_some_and(|holder| **holder == *key) {
                self.ports.remove(&port);
            }
        }
    }

    /// Whether another Service than this one has the address.
    pub(super) fn has_address(&self, own: &str, address: &str) -> bool {
        self.addresses.get(address).is_some_and(|holder| **holder != *own)
    }

    /// Whether another Service than this one has the port.
    pub(super) fn has_port(&self, own: &str, port: &Port) -> bool {
        self.ports.get(port).is_some_and(|holder| **holder != *own)
    }

    /// Whether another Service than this one has the port for any protocol.
    pub(super) fn has_number(&self, own: &str, number: i64) -> bool {
        let from = (number, String::new());
        self.ports
            .range(from..)
            .take_while(|((port, _), _)| *port == number)
            .any(|(_, holder)| **holder != *own)
    }
}
