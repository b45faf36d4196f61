//! What Services hold of a member's addresses and of its nodes' ports: read from the state, and remembered, so that a Service
//! among thousands costs no more than one among few.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use landfall_apiserver::keys;
use landfall_store::Snapshot;
use serde_json::Value;

use super::admission::ports_of;
use crate::controllers::read::text;

/// A port of the nodes, and its protocol.
pub(super) type Port = (i64, String);

/// Who holds what. Services are known by their keys in the store.
#[derive(Default)]
pub(super) struct Ledger {
    holdings: HashMap<Arc<str>, Holding>,
    addresses: HashMap<String, Arc<str>>,
    ports: BTreeMap<Port, Arc<str>>,
    round: u64,
}

struct Holding {
    revision: u64,
    /// When it was last there.
    round: u64,
    address: String,
    ports: Vec<Port>,
}

impl Ledger {
    /// Takes in what has changed since the last time.
    pub(super) fn refresh(&mut self, state: &Snapshot) {
        self.round += 1;
        let mut count = 0;
        for entry in state.range(&keys::collection("", "services"), "") {
            count += 1;
            match self.holdings.get_mut(&*entry.key) {
                Some(known) if known.revision == entry.revision => known.round = self.round,
                _ => self.read(&entry.key, entry.revision, &entry.value),
            }
        }
        if self.holdings.len() > count {
            let gone = self.holdings.iter().filter(|(_, holding)| holding.round != self.round);
            for key in gone.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
                self.forget(&key);
            }
        }
    }

    fn read(&mut self, key: &Arc<str>, revision: u64, bytes: &[u8]) {
        self.forget(key);
        let service: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let address = text(&service, "/spec/clusterIP").to_owned();
        let ports: Vec<Port> = ports_of(&service).into_iter().filter(|(number, _)| *number != 0).collect();
        self.addresses.insert(address.clone(), key.clone());
        self.ports.extend(ports.iter().map(|port| (port.clone(), key.clone())));
        self.holdings.insert(key.clone(), Holding { revision, round: self.round, address, ports });
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
