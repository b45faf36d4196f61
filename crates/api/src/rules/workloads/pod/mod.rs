//! Pod specs: what Kubernetes fills in and what it refuses, for pods and for the templates of controllers.
//!
//! ```text
//!   template ──► spec ──► volume ──► projected, claim
//!                 │  └──► container ──► env, mount, probe, resources, security
//!                 └─────► affinity, scheduling, network
//! ```
//!
//! Absent: the finer rules of Windows host-process pods, of cluster trust bundles and of pod certificates.

mod affinity;
pub(super) mod claim;
mod container;
pub(super) mod defaults;
mod env;
pub(super) mod go_form;
mod image;
mod legacy;
mod mount;
mod network;
mod probe;
mod projected;
pub(super) mod resources;
mod scheduling;
mod security;
pub(super) mod spec;
pub(super) mod template;
mod volume;
pub(super) mod warnings;

pub(super) use scheduling::taint_effect;
