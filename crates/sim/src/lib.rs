//! Simulated member clusters: our own API server with member kinds, small controllers, and node agents that run pods
//! as real servers on loopback addresses. For the playground and for scale; tests of what real clusters do use `rig`.

pub mod address;
