//! `World`: all that an edge's proxy is told, at one moment. Cheap to clone; what has not changed is the same value, so that
//! nobody works on it again.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use imbl::OrdMap;
use landfall_api::landfall::{PlanFederation, RoutePlanSpec, TrafficPlanSpec};

/// A place: namespace and name.
pub type Key = (String, String);

/// The ready endpoints of a service in the edge's own member, by the port's name.
pub type Endpoints = BTreeMap<String, Vec<SocketAddr>>;

/// A certificate and its key, or an authority of clients' certificates, as a Secret holds them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Certificate {
    /// `tls.crt`: the certificate and those above it.
    pub chain_pem: Vec<u8>,
    /// `tls.key`.
    pub key_pem: Vec<u8>,
    /// `ca.crt`: who signs clients' certificates.
    pub authority_pem: Vec<u8>,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key is nobody's business.
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}

/// All that a proxy is told.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// What is carried.
    pub routes: OrdMap<Key, Arc<RoutePlanSpec>>,
    /// Where services are.
    pub plans: OrdMap<Key, Arc<TrafficPlanSpec>>,
    /// The federation: its members and edges.
    pub federation: Option<Arc<PlanFederation>>,
    /// Services of the own member; none: they are reached by the addresses in the plans.
    pub endpoints: OrdMap<Key, Arc<Endpoints>>,
    /// Certificates, by the name of their Secret.
    pub certificates: OrdMap<String, Arc<Certificate>>,
}
