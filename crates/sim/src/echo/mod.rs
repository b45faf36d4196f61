//! The echo program: a real server that tells what it was asked. Simulated pods run it in the process of their agent,
//! real ones as `landfall echo` in a container.
//!
//! ```text
//!   serve  (connections: HTTP/1.1, HTTP/2, TLS) ──► answer (which path does what) ──► body (what is sent, piece by piece)
//!   socket (WebSocket)   grpc (any method)   raw (TCP and UDP)   load (how busy, and what it suffers from)
//! ```
//!
//! No input makes it fail, and nothing is without a limit: each has its name where it is used.

mod answer;
mod body;
mod grpc;
mod load;
mod raw;
mod serve;
mod socket;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use landfall_runtime::tasks::Tasks;

use crate::gate::Gate;

pub use load::{Load, Slot};
pub use raw::{run_tcp, run_udp};
pub use serve::{DRAIN_MAX, TlsError, run_http, self_signed, tls_config};

/// The variable of its environment that says how many requests a second are all that it can do. Answers then tell how much of that is
/// used, in the words of ORCA.
pub const CAPACITY: &str = "ECHO_CAPACITY";
/// The variable that says that no access log is wanted.
pub const QUIET: &str = "ECHO_QUIET";

/// Who answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The pod's name.
    pub pod: String,
    /// Its namespace.
    pub namespace: String,
    /// The node it runs on.
    pub node: String,
    /// The cluster it runs in.
    pub cluster: String,
}

/// Where lines of the access log go.
pub trait Journal: Send + Sync + 'static {
    /// Takes one line, without its end.
    fn line(&self, line: &str);
}

/// One echo program, whatever it listens on.
pub struct Echo {
    /// Who answers.
    pub identity: Identity,
    /// How busy it is, and what it suffers from.
    pub load: Arc<Load>,
    /// Where its access log goes.
    pub journal: Arc<dyn Journal>,
    /// The faults of its surroundings.
    pub gate: Gate,
    /// When these tasks are stopped, every connection is dropped where it stands.
    pub life: Tasks,
}
