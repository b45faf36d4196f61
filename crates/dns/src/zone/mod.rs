//! What is answered, compiled: a snapshot that never changes, and the catalog that makes the next one from it.
//!
//! ```text
//!   plans ─► catalog ─► snapshot ─┬─ table of services   `svc.ns` ─► its records, ready for the wire
//!                                 ├─ hosts               other names ─► services
//!                                 └─ apex                SOA, name servers, edges' addresses
//! ```
//!
//! A snapshot shares all that did not change with the one before, so that one changed plan costs one service.

pub(crate) mod apex;
pub(crate) mod catalog;
pub(crate) mod hosts;
pub(crate) mod service;
pub(crate) mod table;

use std::net::IpAddr;
use std::sync::Arc;

use landfall_plan::records::{Place, Prefixes, Scene};

use self::apex::Apex;
use self::hosts::Hosts;
use self::service::Service;
use self::table::Table;

/// The scene with what packets need of it.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Places, names, prefixes.
    pub(crate) scene: Scene,
    /// Each member's label, with its length before it; empty if its name cannot be a label.
    pub(crate) labels: Vec<Box<[u8]>>,
    /// Where clients stand by a database of the world's addresses.
    pub(crate) world: Option<Arc<Prefixes<Place>>>,
}

impl Stage {
    /// Where a client stands, and how wide that is true.
    pub(crate) fn place(&self, address: IpAddr) -> (Place, u8) {
        let (said, scope) = self.scene.prefixes.get(address);
        match (&self.world, said) {
            (Some(world), Place::Unknown) => {
                let (place, wide) = world.get(address);
                (place, scope.max(wide))
            }
            _ => (said, scope),
        }
    }
}

/// All that is answered, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// The federation.
    pub(crate) stage: Arc<Stage>,
    /// Services by `svc.ns`.
    pub(crate) services: Table<Arc<Service>>,
    /// What the hosts of a service are answered with, by `svc.ns`, where that is not what the service itself is: its Ingresses
    /// have addresses of their own.
    pub(crate) fronts: Table<Arc<Service>>,
    /// How many services a namespace has.
    pub(crate) namespaces: Table<u32>,
    /// Hosts that services answer to.
    pub(crate) hosts: Hosts,
    /// What every zone has at its top, and the edges.
    pub(crate) apex: Arc<Apex>,
    /// Rises with every change.
    pub(crate) serial: u32,
}
