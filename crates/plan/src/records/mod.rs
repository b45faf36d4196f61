//! Names and their records: what a client that asks from some place is told about a service, and why.
//!
//! ```text
//!   PlanFederation ─► places     members, regions, zones; one slot for each vantage
//!                  ─► prefixes   client address ─► vantage, and how wide that is true
//!                  ─► names      host name ─► service, and how much of the federation it asks about
//!   TrafficPlans ───► hosts      host of an Ingress ─► service, and where it is answered to be
//!   TrafficPlan ────► answers    members that may be answered; their order for each vantage
//!                       │
//!                       ├─► sets       all record sets of a service, for zone transfers and other DNS servers
//!                       └─► explain    one answer in words
//! ```
//!
//! Reading order: [`places`], [`prefixes`], [`names`], [`hosts`], [`answers`], [`sets`], [`explain`].
//!
//! A plan is looked at alone: a change of one plan changes the records of one service, and nothing else is computed again.
//! Names are not listed but understood, label by label ([`names::locate`]), so that a federation of hundreds of zones needs
//! no memory for names that nobody asks.
//!
//! Deliberately absent: packets, sockets, name resolution. What load balancers' host names resolve to is an argument.

pub mod answers;
pub mod explain;
pub mod hosts;
pub mod names;
pub mod places;
pub mod prefixes;
pub mod sets;
#[cfg(test)]
mod tests;

use landfall_api::landfall::PlanFederation;

pub use answers::{Answers, Resolved};
pub use names::{Located, Names, Scope};
pub use places::{Place, Places};
pub use prefixes::Prefixes;

/// How long answers may be kept when nothing is said: as the seed prints it.
pub const TTL_DEFAULT_S: u32 = 180;
/// How long answers may be kept at most that change when a cluster is lost or comes back: whoever has one address only finds
/// another no sooner.
pub const TTL_FAILOVER_S: u32 = 10;
/// How long "there is no such name" may be kept: short, because names come with services.
pub const TTL_NEGATIVE_S: u32 = 30;

/// What all answers have in common: the federation, seen from one of its members.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Members, regions and zones.
    pub places: Places,
    /// The names that are ours.
    pub names: Names,
    /// Where clients stand.
    pub prefixes: Prefixes<Place>,
}

impl Scene {
    /// The scene of a federation, for an edge of the member `own`.
    pub fn new(federation: &PlanFederation, own: Option<&str>) -> Self {
        let places = Places::new(&federation.members, own);
        let names = Names::new(&federation.name, federation.domain.as_deref());
        let rows = federation.prefixes.iter().filter_map(|prefix| {
            let (address, length) = landfall_api::addresses::parse_cidr(&prefix.cidr)?;
            Some((address, length, places.of_prefix(prefix)))
        });
        let prefixes = Prefixes::new(rows, Place::Unknown);
        Self { places, names, prefixes }
    }
}
