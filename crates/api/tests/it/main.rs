//! The API crate as the other crates use it.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its own data fails")]

mod corpus;
mod decode;
mod openapi;
mod rules;
mod tables;
mod walk;
mod wire;
mod workloads;
