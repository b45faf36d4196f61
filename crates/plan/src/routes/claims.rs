//! Claims: what routes want for themselves alone. Of two that want the same, the older has it.

use std::collections::BTreeSet;

use landfall_api::landfall::{RouteCertificate, RouteMatch, RoutePlanSpec};

use super::{Routes, Trouble};

/// Something that only one can have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// A path of a host.
    Path {
        /// The host.
        host: String,
        /// The path.
        path: String,
        /// Whether it is compared as a whole.
        exact: bool,
    },
    /// Requests that nothing else matches.
    Default,
    /// The certificate that is shown to clients of a host.
    Certificate(String),
    /// What becomes of TLS of a host: it is ended at the edge, for all who want that, or goes on as it is, to one of them.
    Tls(String),
    /// A port at the edges.
    Port(i32, String),
}

/// What one source claims: the thing, what it wants it for, and how much it means it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// The thing.
    pub what: What,
    /// Those who want it for the same do not get in each other's way.
    pub purpose: String,
    /// It follows from something else, and gives way to whoever asks for it outright.
    pub implied: bool,
}

/// Who comes before whom: those who mean it, the older, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    /// See [`Claim::implied`].
    pub implied: bool,
    /// Since when there is a source, in RFC 3339; the empty text is later than any.
    pub created: (bool, String),
    /// Which source, in words, such as `Ingress shop/web`.
    pub source: String,
}

impl Standing {
    /// The standing of a source's claim.
    pub fn new(claim: &Claim, spec: &RoutePlanSpec, namespace: &str) -> Self {
        let created = spec.source_created.as_ref().map(|time| time.0.to_string());
        let source = format!("{} {namespace}/{}", spec.source_ref.kind, spec.source_ref.name);
        Self { implied: claim.implied, created: (created.is_none(), created.unwrap_or_default()), source }
    }
}

/// Why TLS of a host is claimed by those who have it ended at the edge.
const ENDED: &str = "ended";

/// Everything that routes claim.
pub fn claims(routes: &Routes) -> BTreeSet<Claim> {
    let spec = &routes.spec;
    let mut all = BTreeSet::new();
    let mut add = |what: What, purpose: &str, implied: bool| {
        all.insert(Claim { what, purpose: purpose.to_owned(), implied });
    };
    for host in &spec.hosts {
        for path in &host.paths {
            let exact = path.compare == RouteMatch::Exact;
            let implied = path.path == "/" && routes.implied.contains(&host.host);
            add(What::Path { host: host.host.clone(), path: path.path.clone(), exact }, "", implied);
        }
    }
    if spec.default_action.is_some() {
        // A default backend of a host's rules is not meant for everybody, unless nobody else is.
        add(What::Default, "", !spec.hosts.is_empty());
    }
    for certificate in &spec.certificates {
        for host in &certificate.hosts {
            add(What::Certificate(host.clone()), &certificate.secret, false);
        }
    }
    let passed = |host: &str| spec.passthrough.iter().any(|own| own.host == *host);
    let ended = spec.hosts.iter().map(|host| &host.host);
    let ended = ended.chain(spec.certificates.iter().flat_map(|certificate| &certificate.hosts));
    for host in ended.filter(|host| !host.is_empty() && !passed(host)) {
        add(What::Tls(host.clone()), ENDED, false);
    }
    for passthrough in &spec.passthrough {
        add(What::Tls(passthrough.host.clone()), "", false);
    }
    for port in &spec.ports {
        add(What::Port(port.port, port.protocol.clone()), "", false);
    }
    all
}

/// Takes out what somebody else has: `holder` tells who, of those who want it for something else.
pub fn settle(routes: &mut Routes, holder: impl Fn(&Claim) -> Option<String>) {
    for claim in claims(routes) {
        let Some(holder) = holder(&claim) else { continue };
        let spec = &mut routes.spec;
        let shown = match &claim.what {
            What::Path { host, path, exact } => {
                let compare = if *exact { RouteMatch::Exact } else { RouteMatch::Prefix };
                for one in spec.hosts.iter_mut().filter(|one| one.host == *host) {
                    one.paths.retain(|own| own.path != *path || own.compare != compare);
                }
                spec.hosts.retain(|host| !host.paths.is_empty());
                format!("the path {}{path}", if host.is_empty() { "*" } else { host })
            }
            What::Default => {
                spec.default_action = None;
                "the default backend".to_owned()
            }
            What::Certificate(host) => {
                not_shown(spec, host, |own| own.secret == claim.purpose);
                format!("the certificate of {host}")
            }
            What::Tls(host) => {
                not_shown(spec, host, |_| true);
                if spec.passthrough.iter().any(|own| own.host == *host) {
                    spec.passthrough.retain(|own| own.host != *host);
                    // Its one path leads plain requests to where it was passed through.
                    spec.hosts.retain(|own| own.host != *host);
                }
                format!("TLS of {host}")
            }
            What::Port(port, protocol) => {
                spec.ports.retain(|own| own.port != *port || own.protocol != *protocol);
                format!("the port {port}/{protocol}")
            }
        };
        if !claim.implied {
            routes
                .troubles
                .push(Trouble::object("Conflict", format!("{shown} belongs to {holder}, which is older")));
        }
    }
}

/// Takes a host from some certificates.
fn not_shown(spec: &mut RoutePlanSpec, host: &str, of: impl Fn(&RouteCertificate) -> bool) {
    let named = |own: &RouteCertificate| of(own) && own.hosts.iter().any(|one| one == host);
    // One without hosts would be for those that it names itself.
    spec.certificates.retain(|own| !named(own) || own.hosts.iter().any(|one| one != host));
    spec.certificates.iter_mut().filter(|own| of(own)).for_each(|own| own.hosts.retain(|one| one != host));
}
