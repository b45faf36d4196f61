//! `Carrier`: this edge's proxy, brought to what plans, routes and the own cluster say.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use landfall_api::landfall::ServiceLoad;
use landfall_proxy::haproxy::Prefixes;
use landfall_proxy::l4::Reserved;
use landfall_proxy::peer::lookout::Lookout;
use landfall_proxy::{AccessLog, Collect, Guard, Limits, LogTo, Proxy, World};
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;

use super::book::Plans;
use super::core;
use super::doors;
use super::identity::{Door, Identity};
use super::own::Own;

/// What an edge carries, and where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carriage {
    /// Where plain HTTP is served.
    pub(crate) http: Vec<SocketAddr>,
    /// Where HTTPS is served.
    pub(crate) https: Vec<SocketAddr>,
    /// Where other edges come in.
    pub(crate) peer: Vec<SocketAddr>,
    /// Where ports of Services are opened.
    pub(crate) ports_on: Vec<IpAddr>,
    /// Who tells with a PROXY protocol header who the client is.
    pub(crate) proxy_protocol_from: Prefixes,
    /// Threads; as many as there are cores when 0.
    pub(crate) threads: usize,
    /// Which requests are written to the log.
    pub(crate) access_log: AccessLog,
    /// Where to.
    pub(crate) access_log_to: LogTo,
    /// Who collects traces.
    pub(crate) collector: Option<Collect>,
    /// How much is taken on.
    pub(crate) limits: Limits,
    /// How long requests may still take when the edge is told to stop.
    pub(crate) drain: Duration,
    /// Whether a bucket may stand on this machine.
    pub(crate) buckets_may_be_local: bool,
    /// Who vouches for buckets, beside those whom the system trusts.
    pub(crate) bucket_authorities_pem: Vec<u8>,
}

/// Carries requests.
pub(crate) struct Carrier {
    proxy: Proxy,
    /// Where other edges come in.
    peer: Option<SocketAddr>,
    carries: bool,
    reserved_ports: Vec<u16>,
}

impl Carrier {
    /// Listens as an edge was told to.
    pub(crate) fn start(edge: &core::Config, registry: &Registry, tasks: &Tasks) -> Result<Self> {
        let carriage = &edge.carriage;
        let (hub, hub_name) = hub(&edge.trust.url);
        let listening = [&carriage.http, &carriage.https, &carriage.peer, &edge.dns];
        // The admin port takes in IPv4 at the address of IPv6, too.
        let wide = |at: &SocketAddr| at.is_ipv6() && at.ip().is_unspecified();
        let twin = edge.admin.filter(wide).map(|at| (Ipv4Addr::UNSPECIFIED, at.port()).into());
        let own = listening.into_iter().flatten().chain(&edge.admin).chain(&twin);
        let reserved: Vec<Reserved> = own
            .map(|at| Reserved { at: *at, udp: edge.dns.contains(at) || edge.dns_inside.contains(at) })
            .collect();
        let l4 = landfall_proxy::l4::Config {
            addresses: carriage.ports_on.clone(),
            proxy_protocol_from: carriage.proxy_protocol_from.clone(),
            reserved,
            ..Default::default()
        };
        let mut reserved_ports: Vec<u16> = l4.reserved.iter().map(|own| own.at.port()).collect();
        reserved_ports.retain(|port| !carriage.ports_on.is_empty() && !l4.carries_tcp(*port));
        reserved_ports.sort_unstable();
        reserved_ports.dedup();
        let config = landfall_proxy::Config {
            edge: edge.name.clone(),
            cluster: edge.cluster.clone(),
            group: edge.group.clone(),
            http: carriage.http.clone(),
            https: carriage.https.clone(),
            peer: carriage.peer.clone(),
            source: edge.source.address,
            l4,
            threads: carriage.threads,
            never: hub.into_iter().chain(edge.admin).collect(),
            never_named: hub_name.into_iter().collect(),
            bucket_authorities_pem: carriage.bucket_authorities_pem.clone(),
            buckets_may_be_local: carriage.buckets_may_be_local,
            limits: carriage.limits.clone(),
            drain: carriage.drain,
            access_log: carriage.access_log,
            access_log_to: carriage.access_log_to.clone(),
            collector: carriage.collector.clone(),
            ..Default::default()
        };
        let proxy = Proxy::start(config, registry, tasks).context("cannot carry requests")?;
        let peer = (!carriage.peer.is_empty()).then(|| proxy.addresses().last().copied()).flatten();
        let carries = !(carriage.http.is_empty() && carriage.https.is_empty());
        Ok(Self { proxy, peer, carries, reserved_ports })
    }

    /// Whether it carries what Ingresses say.
    pub(crate) fn carries(&self) -> bool {
        self.carries
    }

    /// Where it carries HTTP first of all.
    pub(crate) fn http(&self) -> Option<SocketAddr> {
        self.carries.then(|| self.addresses().first().copied()).flatten()
    }

    /// Ports that it cannot carry for Services because it needs them itself, as `80/TCP`.
    pub(crate) fn reserved_ports(&self) -> Vec<String> {
        self.reserved_ports.iter().map(|port| format!("{port}/TCP")).collect()
    }

    /// Ports of Services that it has open.
    pub(crate) fn ports(&self) -> BTreeSet<doors::Door> {
        self.proxy.ports()
    }

    /// Where other edges come in.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Where it listens: HTTP, HTTPS, then for other edges.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        self.proxy.addresses()
    }

    /// Whether clients were let in.
    pub(crate) fn is_open(&self) -> bool {
        self.proxy.is_open()
    }

    /// Follows plans, and the own cluster's endpoints; lets clients in.
    pub(crate) fn follow(&self, plans: &Plans, own: &Own) {
        self.proxy.follow(&World {
            routes: plans.routes.clone(),
            plans: plans.services.clone(),
            federation: plans.federation.clone(),
            endpoints: own.services(),
            certificates: plans.certificates.clone(),
        });
    }

    /// The routing table as it is in this moment.
    pub(crate) fn table(&self) -> serde_json::Value {
        self.proxy.table()
    }

    /// Looks through other edges at their members' services.
    pub(crate) fn lookout(&self) -> Arc<Lookout> {
        self.proxy.lookout()
    }

    /// Says what nobody may be led to.
    pub(crate) fn guard(&self) -> Arc<Guard> {
        self.proxy.guard()
    }

    /// Shows this to other edges from now on.
    pub(crate) fn identify(&self, door: &Door, identity: &Identity) {
        let identity = landfall_proxy::peer::Identity {
            certificate_pem: identity.certificate_pem.clone().into_bytes(),
            key_pem: identity.key_pem.clone().into_bytes(),
            authority_pem: door.ca_pem.clone().into_bytes(),
        };
        if let Err(error) = self.proxy.identify(&identity) {
            let error = format!("{:#}", anyhow::Error::new(error));
            tracing::error!(error, "other edges cannot be reached with this certificate");
        }
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        self.proxy.connections()
    }

    /// What it has carried since the last call.
    pub(crate) fn report(&self) -> Vec<ServiceLoad> {
        self.proxy.report()
    }

    /// What cannot be carried as it is wanted, in words.
    pub(crate) fn problems(&self) -> Vec<String> {
        let certificates = self.proxy.certificate_problems().into_iter().map(|problem| {
            let kept = if problem.kept { "; the one before is shown" } else { "" };
            format!("Secret {}: {}{kept}", problem.secret, problem.reason)
        });
        let ports = self.proxy.port_problems().into_iter();
        let ports =
            ports.map(|problem| format!("port {}/{}: {}", problem.port, problem.protocol, problem.reason));
        let buckets = self.proxy.bucket_problems().into_iter();
        let buckets = buckets.map(|(host, reason)| format!("bucket {host}: {reason}"));
        certificates.chain(ports).chain(buckets).collect()
    }
}

/// Where the hub is, as far as its URL tells, and its name.
fn hub(url: &str) -> (Option<SocketAddr>, Option<(String, u16)>) {
    let Ok(url) = http::Uri::try_from(url) else { return (None, None) };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_u16().unwrap_or(443);
    match host.parse::<IpAddr>() {
        Ok(ip) => (Some(SocketAddr::new(ip, port)), None),
        Err(_) => (None, Some((host.to_owned(), port)).filter(|(host, _)| !host.is_empty())),
    }
}
