//! Carrying packets: UDP in batches on threads of its own, TCP on tasks.
//!
//! [`batch`] and [`ahead`] are the places with `unsafe` code: many packets in one system call, and memory fetched before it is read.

pub(crate) mod ahead;
pub(crate) mod batch;
pub(crate) mod socket;
pub(crate) mod tcp;
pub(crate) mod udp;
