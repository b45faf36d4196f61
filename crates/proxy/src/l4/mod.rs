//! Ports whose connections and datagrams are carried as they are. Listeners come and go with the routes; what is open stays
//! open when its port goes.
//!
//! Reading order: here (which ports), `tcp`, `udp`, `dial` (how an endpoint is reached), `splice` (two streams become one),
//! `tally` (what is told to the hub).

pub(crate) mod dial;
pub(crate) mod splice;
pub(crate) mod tally;
pub(crate) mod tcp;
pub(crate) mod udp;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use landfall_api::landfall::{RoutePlanSpec, RouteService};
use landfall_runtime::metrics::{Counter, Gauge, Registry};
use landfall_runtime::tasks::Tasks;
use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::haproxy::Prefixes;
use crate::peer::lookout::Shown;
use crate::table::{Tables, Target};
use crate::world::{Key, World};
use dial::Dialer;
use tally::Tally;

/// How long to wait before an address that is taken is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// How ports are carried.
#[derive(Clone, Debug)]
pub struct Config {
    /// The addresses on which ports are opened. Datagrams are answered from the address they came to, so give addresses, and
    /// not "any", where a machine has several.
    pub addresses: Vec<IpAddr>,
    /// Where the edge itself listens: ports are opened beside these, on other addresses, and never in their place.
    pub reserved: Vec<Reserved>,
    /// Open TCP connections, over all ports.
    pub connections: usize,
    /// Clients of one UDP port at a time.
    pub sessions: usize,
    /// How long a client of a UDP port may be silent.
    pub session_idle: Duration,
    /// Who tells with a PROXY protocol header who the client is.
    pub proxy_protocol_from: Prefixes,
    /// How long such a header may take.
    pub header_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            reserved: Vec::new(),
            connections: 20_000,
            sessions: 10_000,
            session_idle: Duration::from_secs(60),
            proxy_protocol_from: Prefixes::default(),
            header_timeout: Duration::from_secs(5),
        }
    }
}

/// Where the edge itself listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The address; one that is "any" stands for all of its family.
    pub at: SocketAddr,
    /// Over UDP too, and not over TCP alone.
    pub udp: bool,
}

impl Config {
    /// Whether a TCP port of a Service can be opened on any of the addresses.
    pub fn carries_tcp(&self, port: u16) -> bool {
        self.free((Kind::Tcp, port)).next().is_some()
    }

    /// The addresses on which a port is not the edge's own.
    fn free(&self, (kind, port): At) -> impl Iterator<Item = IpAddr> {
        let taken = move |ip: IpAddr| {
            self.reserved.iter().any(|own| {
                let (at, any) = (own.at.ip(), own.at.ip().is_unspecified() || ip.is_unspecified());
                let same = at == ip || any && at.is_ipv4() == ip.is_ipv4();
                own.at.port() == port && same && (kind == Kind::Tcp || own.udp)
            })
        };
        self.addresses.iter().copied().filter(move |ip| !taken(*ip))
    }
}

/// A port that is not carried, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortProblem {
    /// The port.
    pub port: u16,
    /// `TCP` or `UDP`.
    pub protocol: &'static str,
    /// Why.
    pub reason: String,
}

/// What all ports share.
pub(crate) struct Ports {
    pub(crate) config: Config,
    pub(crate) dialer: Dialer,
    tasks: Tasks,
    pub(crate) meters: Meters,
    /// What is told to the hub.
    pub(crate) tally: Tally,
    /// What other edges may look at.
    pub(crate) shown: Shown,
    connections: Arc<Semaphore>,
    tables: Arc<Tables>,
    group: Option<String>,
    drain: Duration,
    /// How long connections are taken in that are under way when the proxy ends.
    handover: Duration,
    closed: AtomicBool,
    /// The routes that were followed last.
    seen: Mutex<Routes>,
    open: Mutex<BTreeMap<At, Port>>,
    /// What is wrong, by port and address.
    problems: Mutex<BTreeMap<(At, Option<IpAddr>), String>>,
}

/// Routes, as a world has them.
type Routes = OrdMap<Key, Arc<RoutePlanSpec>>;

/// A port.
type At = (Kind, u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Tcp,
    Udp,
}

/// What is counted.
pub(crate) struct Meters {
    connections: Arc<Counter>,
    open: Arc<Gauge>,
    sessions: Arc<Gauge>,
    full: Arc<Counter>,
    outside: Arc<Counter>,
    failed: Arc<Counter>,
    /// Handshakes that failed, with clients and with other edges.
    pub(crate) handshakes: Arc<Counter>,
}

/// Where a port's connections go: it may change while the port is open.
pub(crate) type Carried = Arc<ArcSwap<Route>>;

/// Where a port's connections go.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Route {
    pub(crate) service: RouteService,
    pub(crate) send_proxy: bool,
    /// Whose clients it carries, if not everybody's.
    pub(crate) from: Option<Prefixes>,
}

impl Route {
    /// Whether it carries what this client sends.
    fn admits(&self, client: IpAddr) -> bool {
        self.from.as_ref().is_none_or(|from| from.contains(client))
    }
}

/// An open port; it closes when it is dropped.
struct Port {
    carried: Carried,
    _open: watch::Sender<()>,
}

impl Ports {
    pub(crate) fn new(
        config: &crate::Config,
        tables: Arc<Tables>,
        dialer: Dialer,
        registry: &Registry,
        tasks: &Tasks,
    ) -> Self {
        let refused = |reason| {
            let help = "Connections and datagrams of ports that were not carried, by reason.";
            registry.counter("landfall_proxy_l4_refused_total", help, reason)
        };
        let meters = Meters {
            connections: registry.counter(
                "landfall_proxy_tcp_connections_total",
                "TCP connections of ports.",
                "",
            ),
            open: registry.gauge("landfall_proxy_tcp_connections_open", "Open TCP connections of ports.", ""),
            sessions: registry.gauge("landfall_proxy_udp_sessions_open", "Clients of UDP ports.", ""),
            full: refused("reason=\"full\""),
            outside: refused("reason=\"source\""),
            failed: refused("reason=\"unreachable\""),
            handshakes: registry.counter(
                "landfall_proxy_handshakes_failed_total",
                "TLS handshakes with clients and other edges that failed.",
                "",
            ),
        };
        Self {
            connections: Arc::new(Semaphore::new(config.l4.connections.min(Semaphore::MAX_PERMITS))),
            shown: Shown::new(&config.cluster, dialer.guard.clone()),
            dialer,
            tasks: tasks.clone(),
            meters,
            tally: Tally::default(),
            tables,
            group: config.group.clone(),
            drain: config.drain,
            handover: config.handover,
            closed: AtomicBool::new(false),
            seen: Mutex::default(),
            open: Mutex::default(),
            problems: Mutex::default(),
            config: config.l4.clone(),
        }
    }

    /// Opens and closes ports as the routes say. Must be called within a runtime.
    pub(crate) fn follow(self: &Arc<Self>, world: &World) {
        self.shown.follow(world);
        {
            let mut seen = self.seen.lock();
            if !concerns_ports(&seen, &world.routes) {
                *seen = world.routes.clone();
                return;
            }
            *seen = world.routes.clone();
        }
        let (wanted, problems) = self.wanted(world);
        {
            let mut known = self.problems.lock();
            known.retain(|(at, address), _| address.is_some() && wanted.contains_key(at));
            known.extend(problems.into_iter().map(|(at, why)| ((at, None), why)));
        }
        let mut open = self.open.lock();
        if self.is_closed() {
            return;
        }
        open.retain(|at, _| wanted.contains_key(at));
        for (at, route) in wanted {
            match open.entry(at) {
                Entry::Occupied(known) => {
                    let carried = &known.get().carried;
                    if **carried.load() != route {
                        carried.store(Arc::new(route));
                    }
                }
                Entry::Vacant(place) => {
                    place.insert(self.open(at, route));
                }
            }
        }
    }

    /// The ports that are open: protocol and number.
    pub(crate) fn opened(&self) -> BTreeSet<(&'static str, u16)> {
        self.open.lock().keys().map(|(kind, port)| (kind.word(), *port)).collect()
    }

    /// The open ports in words, and where they lead.
    pub(crate) fn view(&self) -> serde_json::Value {
        let open = self.open.lock();
        let told = open.iter().map(|((kind, port), open)| {
            let service = &open.carried.load().service;
            let name = format!("{}/{}", service.namespace, service.name);
            serde_json::json!({"port": port, "protocol": kind.word(), "service": name, "servicePort": service.port})
        });
        told.collect()
    }

    /// What is not carried, and why.
    pub(crate) fn problems(&self) -> Vec<PortProblem> {
        let known = self.problems.lock();
        let told = known.iter().map(|(((kind, port), address), why)| PortProblem {
            port: *port,
            protocol: kind.word(),
            reason: address
                .map_or_else(|| why.clone(), |address| format!("cannot listen on {address}: {why}")),
        });
        told.collect()
    }

    /// Room for one more connection, if there is any.
    pub(crate) fn admit(&self) -> Option<OwnedSemaphorePermit> {
        let permit = self.connections.clone().try_acquire_owned().ok();
        if permit.is_none() {
            self.meters.full.inc();
        }
        permit
    }

    /// Carries something until it ends, or until the proxy has ended and the time to finish is over.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let (stop, drain) = (self.tasks.stopping(), self.drain);
        let over = async move {
            stop.await;
            tokio::time::sleep(drain).await;
        };
        self.tasks.spawn(async move {
            tokio::select! { () = task => {}, () = over => {} }
        });
    }

    /// Carries something until it ends, or until the proxy is told to: datagrams have no end of their own.
    pub(crate) fn spawn_until_stop(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_until_stop(task);
    }

    /// Closes all ports for good. What is open stays open.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.open.lock().clear();
    }

    /// Whether all ports were closed for good.
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// A service's port, if a route names it, or another edge did.
    pub(crate) fn target(&self, service: &RouteService) -> Option<Arc<Target>> {
        self.tables.load().target(service).cloned()
    }

    /// A service's port that another edge names.
    pub(crate) fn named_by_peer(&self, service: &RouteService) -> Option<Arc<Target>> {
        self.tables.named_by_peer(service)
    }

    /// The ports that routes want, the oldest first, and what is wrong with the others.
    fn wanted(&self, world: &World) -> (BTreeMap<At, Route>, BTreeMap<At, String>) {
        let (mut wanted, mut problems) = (BTreeMap::new(), BTreeMap::new());
        let group = self.group.as_deref();
        for plan in (crate::carried::Carried { world, group }).by_age() {
            for port in &plan.ports {
                let kind = if port.protocol == "UDP" { Kind::Udp } else { Kind::Tcp };
                let Some(number) = u16::try_from(port.port).ok().filter(|number| *number > 0) else {
                    continue;
                };
                let at = (kind, number);
                if !self.config.addresses.is_empty() && self.config.free(at).next().is_none() {
                    problems.insert(at, "the edge needs it itself".to_owned());
                    continue;
                }
                let ranges = &plan.options.source_ranges;
                let route = Route {
                    service: port.service.clone(),
                    send_proxy: plan.options.send_proxy_protocol && kind == Kind::Tcp,
                    // What nobody can read lets nobody in.
                    from: (!ranges.is_empty())
                        .then(|| Prefixes::parse(ranges.iter().map(String::as_str)).unwrap_or_default()),
                };
                match wanted.entry(at) {
                    Entry::Vacant(place) => {
                        place.insert(route);
                    }
                    Entry::Occupied(known) if *known.get() == route => {}
                    Entry::Occupied(_) => {
                        let service = &port.service;
                        let why =
                            format!("{}/{} wants it too, but came later", service.namespace, service.name);
                        problems.insert(at, why);
                    }
                }
            }
        }
        (wanted, problems)
    }

    fn open(self: &Arc<Self>, (kind, port): At, route: Route) -> Port {
        let carried: Carried = Arc::new(ArcSwap::from_pointee(route));
        let open = watch::Sender::new(());
        for address in self.config.free((kind, port)) {
            let (this, carried) = (self.clone(), carried.clone());
            let mut closed = open.subscribe();
            self.tasks.spawn(async move {
                let closed = async {
                    // The sender is dropped: it never sends.
                    let _ = closed.changed().await;
                };
                this.listen(kind, SocketAddr::new(address, port), carried, closed).await;
            });
        }
        Port { carried, _open: open }
    }

    /// Listens until the port is closed; where the address is taken, as soon as it is free.
    async fn listen(
        self: Arc<Self>,
        kind: Kind,
        address: SocketAddr,
        carried: Carried,
        closed: impl Future<Output = ()>,
    ) {
        let mut closed = pin!(closed);
        match kind {
            Kind::Tcp => {
                let bound = self.bind(kind, address, tcp::bind);
                let Some(listener) = before(&mut closed, bound).await else { return };
                tcp::serve(self, listener, carried, closed).await;
            }
            Kind::Udp => {
                let bound = self.bind(kind, address, udp::bind);
                let Some(socket) = before(&mut closed, bound).await else { return };
                before(&mut closed, udp::serve(self, socket, carried)).await;
            }
        }
    }

    /// Takes an address as soon as it is free; meanwhile there is a problem.
    async fn bind<S>(
        &self,
        kind: Kind,
        address: SocketAddr,
        bind: impl Fn(SocketAddr) -> std::io::Result<S>,
    ) -> S {
        let place = ((kind, address.port()), Some(address.ip()));
        loop {
            match bind(address) {
                Ok(bound) => {
                    self.problems.lock().remove(&place);
                    return bound;
                }
                Err(error) => drop(self.problems.lock().insert(place, error.to_string())),
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// What a future gives, unless another ends before it.
async fn before<T>(
    end: &mut (impl Future<Output = ()> + Unpin),
    wanted: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        () = end => None,
        given = wanted => Some(given),
    }
}

/// Whether what is different between routes has to do with ports.
fn concerns_ports(before: &Routes, now: &Routes) -> bool {
    before.diff(now).any(|item| match item {
        DiffItem::Update { old, new } => {
            let none = old.1.ports.is_empty() && new.1.ports.is_empty();
            !none && !Arc::ptr_eq(old.1, new.1)
        }
        DiffItem::Add(_, plan) | DiffItem::Remove(_, plan) => !plan.ports.is_empty(),
    })
}

/// A socket that does not block, on a port that an edge which takes over from another may share with it.
fn socket(address: SocketAddr, kind: Type) -> std::io::Result<Socket> {
    let protocol = if kind == Type::STREAM { Protocol::TCP } else { Protocol::UDP };
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv6() {
        // The same port of both families is opened by two sockets.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
