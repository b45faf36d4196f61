//! Carrying packets: UDP in batches on threads of its own, TCP on tasks.
//!
//! [`batch`] is the one place with `unsafe` code: many packets in one system call.

pub(crate) mod batch;
pub(crate) mod socket;
pub(crate) mod tcp;
pub(crate) mod udp;
