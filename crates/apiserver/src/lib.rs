//! Serves kinds over the Kubernetes protocol from a store; generic over the table of kinds.
//!
//! ```text
//!   connection ──► serve ──► authn ─► authz ──► resources ──► read  (get, list, watch) ──► store
//!  (http::server)    │                             └────────► write (create … delete)  ──► store
//!                    └──► audit, metrics           system: health, discovery, OpenAPI
//! ```
//!
//! Reading order: [`route`] and [`options`] (what is asked), [`serve`] (the way of a request), [`resources`]
//! (verbs), [`encode`] (objects as bytes), [`read`], [`write`], [`start`] (putting it together).
//!
//! Deliberately absent: decisions about kinds (they are in `landfall-api`), and knowledge of how the store keeps
//! its bytes.

pub mod admission;
pub mod api;
pub mod audit;
pub mod authn;
pub mod authz;
pub mod bootstrap;
pub mod catalog;
pub mod certificates;
pub mod convert;
pub mod crd;
pub mod definitions;
pub mod discovery;
pub mod edges;
pub mod encode;
pub mod errors;
pub mod housekeeping;
pub mod http;
pub mod inside;
pub mod keys;
pub mod leader;
pub mod local;
pub mod managed;
pub mod openapi;
pub mod options;
pub mod patch;
pub mod pki;
pub mod read;
pub mod resources;
pub mod reviews;
pub mod route;
pub mod serve;
pub mod start;
pub mod system;
pub mod telemetry;
pub mod vault;
pub mod write;
