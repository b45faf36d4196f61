//! The table: which route a request takes. Compiled from routes and plans beside the data path, swapped in as a whole.
//!
//! Reading order: here (what is found), `path` (how paths are compared), `compile` (how it is made, by what has changed),
//! `target` (a service's port: where its requests may go), `bucket` (a place outside the federation), `tables` (the one in force),
//! `view` (all of it in words).

mod bucket;
mod compile;
mod path;
mod tables;
mod target;
mod view;

use std::collections::HashMap;
use std::sync::Arc;

use landfall_api::landfall::{RedirectAction, RouteService};

use crate::tls::TlsInfo;
pub(crate) use bucket::{Bucket, Outside};
use compile::{Changed, Compiler};
pub(crate) use tables::Tables;
pub(crate) use target::{Hash, Reach, Service, Target, Vitals};

/// Which route a request takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// By the whole host.
    exact: imbl::HashMap<Arc<str>, Arc<Host>>,
    /// By what follows the host's first label.
    wildcard: imbl::HashMap<Arc<str>, Arc<Host>>,
    /// For hosts that neither knows.
    any: Option<Arc<Host>>,
    /// For requests that no route matches.
    default: Option<Arc<Route>>,
    /// The services that routes name, and those that other edges have sent requests for.
    targets: imbl::HashMap<Arc<RouteService>, Arc<Target>>,
}

/// The paths of one host.
#[derive(Debug, Default)]
pub(crate) struct Host {
    exact: HashMap<Box<str>, Arc<Route>>,
    prefix: HashMap<Box<str>, Arc<Route>>,
}

/// One route.
#[derive(Debug)]
pub(crate) struct Route {
    /// Whose it is.
    pub(crate) plan: Arc<Plan>,
    /// What becomes of its requests.
    pub(crate) action: Action,
    /// Whose plain HTTP is sent to HTTPS.
    pub(crate) to_https: ToHttps,
}

/// Whose plain HTTP is sent to HTTPS: nobody's who has no certificate, who could not come in there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToHttps {
    Nobody,
    Everybody,
    /// Requests for these hosts; a wildcard stands for one label.
    Hosts(Arc<[Box<str>]>),
}

impl ToHttps {
    /// Whether it concerns requests for a host, which is in lower case.
    pub(crate) fn concerns(&self, host: &str) -> bool {
        match self {
            Self::Nobody => false,
            Self::Everybody => true,
            Self::Hosts(names) => names.iter().any(|name| covers(name, host)),
        }
    }
}

/// Whether a name, maybe a wildcard, stands for a host.
fn covers(name: &str, host: &str) -> bool {
    let below = name.strip_prefix("*.").zip(host.split_once('.'));
    name == host || below.is_some_and(|(domain, (label, rest))| label != "*" && domain == rest)
}

/// What the routes of one `RoutePlan` share.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Its number: never used twice.
    pub(crate) id: u64,
    /// `namespace/name`.
    pub(crate) name: Arc<str>,
    /// `Strict-Transport-Security`.
    pub(crate) hsts: Option<http::HeaderValue>,
    /// Connections to endpoints begin with a PROXY header.
    pub(crate) proxy_header: bool,
    /// Requests are taken only from clients for whom an authority of this Secret vouches, whatever name they came in by.
    pub(crate) clients: Option<Box<str>>,
}

impl Plan {
    /// Whether a client may not be led there: it has not shown the certificate that is asked for.
    pub(crate) fn shuns(&self, handshake: Option<&TlsInfo>) -> bool {
        let vouched = |secret: &str| handshake.is_some_and(|handshake| handshake.is_vouched_for(secret));
        self.clients.as_deref().is_some_and(|secret| !vouched(secret))
    }
}

/// What becomes of a request. What is rare is in boxes: there are thousands of routes, and most lead to a service.
#[derive(Debug)]
pub(crate) enum Action {
    /// It goes to a service.
    Service(Arc<Target>),
    /// It goes out of the federation.
    Bucket(Box<Bucket>),
    /// The client is sent elsewhere.
    Redirect(Box<RedirectAction>),
    /// It is answered at once.
    Fixed(Box<Fixed>),
    /// It is answered with 503.
    Unavailable(Box<str>),
}

/// An answer that stands ready.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) status: http::StatusCode,
    pub(crate) content_type: http::HeaderValue,
    pub(crate) body: bytes::Bytes,
}

impl Table {
    /// The route of a request. `host` is in lower case and without a port; `path` is normal.
    pub(crate) fn find(&self, host: &str, path: &str) -> Option<&Arc<Route>> {
        let paths = self.exact.get(host).or_else(|| self.wildcard_of(host)).or(self.any.as_ref());
        paths.and_then(|paths| paths.find(path)).or(self.default.as_ref())
    }

    /// A service's port, if it is known here.
    pub(crate) fn target(&self, service: &RouteService) -> Option<&Arc<Target>> {
        self.targets.get(service)
    }

    /// The same, when another edge names it.
    pub(crate) fn target_of_peer(&self, service: &RouteService) -> Option<&Arc<Target>> {
        self.target(service).inspect(|target| target.name_by_peers(true))
    }

    fn wildcard_of(&self, host: &str) -> Option<&Arc<Host>> {
        let (label, domain) = host.split_once('.')?;
        if label.is_empty() || self.wildcard.is_empty() { None } else { self.wildcard.get(domain) }
    }
}

impl Host {
    fn find(&self, path: &str) -> Option<&Arc<Route>> {
        if let Some(route) = self.exact.get(path) {
            return Some(route);
        }
        path::prefixes(path).find_map(|prefix| self.prefix.get(prefix))
    }
}
