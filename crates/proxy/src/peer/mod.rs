//! The link between edges: requests and streams for another member, carried by one of its edges to its own endpoints.
//!
//! ```text
//!   edge A ── HTTP/2 over mutual TLS ──► edge B ──► an endpoint of B's own member
//!     request: as the client sent it, with headers that say for which service, and whose it is   (wire)
//!     stream:  CONNECT, with the same headers                                                   (tunnel)
//! ```
//!
//! - Both show the certificate that the hub has signed for them, and each looks whether the other is in the roster (`verify`).
//! - What comes over the link never goes over it again: the receiving edge asks its own member's endpoints and nobody else.
//! - An edge that is deleted at the hub is out of the roster, and is refused with its next request.
//!
//! Reading order: [`link`], `verify`, `wire`, `pool`, `pulse` (whether the other end is still there), `standby` (connections to
//! whom would be asked next), `tunnel`, [`lookout`] (whether others' services are well).

pub(crate) mod end;
pub mod link;
pub mod lookout;
pub(crate) mod pool;
pub(crate) mod pulse;
pub(crate) mod standby;
pub(crate) mod tunnel;
pub(crate) mod verify;
pub(crate) mod wire;

#[cfg(test)]
mod tests;

pub use link::{ConnectError, Identity, IdentityError, Link};
