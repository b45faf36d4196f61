//! The API crate as the other crates use it.

mod corpus;
mod decode;
mod openapi;
mod rules;
mod tables;
mod walk;
mod wire;
mod workloads;
