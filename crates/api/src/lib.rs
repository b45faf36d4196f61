//! The words of Landfall's API: kinds, names, schemas, validation. No I/O.
//!
//! Objects are `serde_json::Value`s everywhere; what is known about their shape stands beside them, in tables.
//!
//! ```text
//!   Kind (one row per served kind) ──► Rules   defaulting, validation, columns of one kind
//!         │
//!         └──► schema::Struct          fields, list types, patch strategies, wire numbers
//! ```
//!
//! Reading order: [`meta`] (what every object has), [`status`] and [`field`] (how things are refused),
//! [`names`], [`addresses`], [`quantity`], [`labels`] and [`selector`] (what texts may be),
//! [`objectmeta`] and [`rules`] (what objects may be), [`schema`] (shapes), [`kind`] (one row of the table),
//! [`kinds`] (the table).
//!
//! Deliberately absent: clocks, randomness, sockets, files.

pub mod addresses;
pub mod age;
pub mod decode;
pub mod field;
pub mod kind;
pub mod kinds;
pub mod labels;
pub mod landfall;
pub mod meta;
pub mod names;
pub mod objectmeta;
pub mod printers;
pub mod quantity;
pub mod rules;
pub mod schema;
pub mod selector;
pub mod status;
pub mod wire;

pub use kind::{Kind, Printer, Rules, Scope};
pub use status::{Reason, Status};
