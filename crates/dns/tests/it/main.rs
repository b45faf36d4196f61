//! The server as a client sees it: every sort of packet, real `dig`, memory and allocations.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod allocations;
mod corpus;
mod dig;
mod explained;
mod lab;
mod listed;
mod memory;
mod secondaries;
mod sockets;
mod wire;
mod world;
