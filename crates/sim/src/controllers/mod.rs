//! The controllers of a simulated member, with Kubernetes' behaviour.
//!
//! ```text
//!   API ──► View ──► decide (pure: view, now, seed) ──► Plan: actions with reasons ──► driver ──► API
//!            ▲                                                                           │
//!            └──────────────────── what was written comes back as changes ───────────────┘
//! ```
//!
//! Every controller is a row of [`TABLE`] and a file. It is given nothing but the state, and may run at any moment,
//! twice, or after a crash. Reading order: [`action`] (what is decided), [`driver`] (who does it), [`read`] and
//! [`pods`] (looking at objects), then the controllers.
//!
//! One exception: autoscalers remember what they recommended and did lately (`settings.scaling`), as Kubernetes' do, and
//! write it down while they decide. Forgetting it, or remembering a change that then failed, only makes them slower.
//!
//! Absent: garbage collection, namespaces, service accounts (the API server's housekeeping does them), and volumes.

pub mod action;
pub mod autoscaler;
pub mod concern;
pub mod conditions;
mod cronjob;
mod daemonset;
pub mod deployment;
mod disruption;
pub mod driver;
mod endpoints;
pub mod endpointslice;
pub(crate) mod events;
mod eviction;
#[cfg(test)]
mod hostile;
mod job;
mod loadbalancer;
mod mirroring;
mod nodes;
mod owned;
pub mod pods;
pub mod read;
pub mod replicaset;
mod revisions;
mod statefulset;
#[cfg(test)]
pub(crate) mod testing;
mod turn;

use std::sync::Arc;

use serde_json::Value;

use crate::member::config::Settings;
use crate::scheduler;
use crate::view::{Known, View};
use action::Plan;
use concern::Concern;
use read::Millis;

/// What a controller is given.
pub struct Context<'a> {
    /// The member's objects.
    pub view: &'a View,
    /// The time.
    pub now: Millis,
    /// Since when this member's controllers run: what was before that nobody watched.
    pub begun: Millis,
    /// The member's settings.
    pub settings: &'a Settings,
    /// Who may be concerned by what changed since it last decided; of the others it may say nothing.
    pub concern: &'a Concern,
}

impl<'a> Context<'a> {
    /// The objects of a kind to decide about.
    fn subjects(&self, known: Known) -> Vec<&'a Arc<Value>> {
        self.concern.of(known, self.view)
    }
}

/// One row of the table of controllers.
pub struct Controller {
    /// Its name in events and managedFields.
    pub name: &'static str,
    /// The kinds it looks at: a change of one of them makes it decide again.
    pub reads: &'static [Known],
    /// Decides.
    pub decide: fn(&Context<'_>) -> Plan,
}

/// All controllers, in the order in which they decide.
pub const TABLE: &[Controller] = &[
    cronjob::CONTROLLER,
    job::CONTROLLER,
    autoscaler::CONTROLLER,
    deployment::CONTROLLER,
    replicaset::CONTROLLER,
    replicaset::REPLICATION,
    statefulset::CONTROLLER,
    daemonset::CONTROLLER,
    nodes::CONTROLLER,
    eviction::CONTROLLER,
    eviction::GARBAGE,
    disruption::CONTROLLER,
    scheduler::CONTROLLER,
    endpointslice::CONTROLLER,
    endpoints::CONTROLLER,
    mirroring::CONTROLLER,
    loadbalancer::CONTROLLER,
];
