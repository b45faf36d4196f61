//! The proxy: started once, told of the world as it changes, stopped with the tasks it belongs to.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use landfall_api::landfall::ServiceLoad;
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;
use parking_lot::Mutex;

use crate::config::{Config, StartError};
use crate::core::{Phase, Shared};
use crate::guard::Guard;
use crate::l4::PortProblem;
use crate::outside;
use crate::peer::lookout::Lookout;
use crate::peer::{Identity, IdentityError};
use crate::serve;
use crate::tls;
use crate::world::World;

/// A running proxy. Dropping it does not stop it: it stops with its tasks.
pub struct Proxy {
    shared: Arc<Shared>,
    /// Worlds are followed one after the other.
    following: Mutex<()>,
    /// Listeners that nobody may come to yet.
    closed: Mutex<Vec<TcpListener>>,
    addresses: Vec<SocketAddr>,
    tasks: Tasks,
}

impl Proxy {
    /// Takes its addresses. It listens there as soon as it is told of a world: whoever comes before is led to others that listen
    /// at the same address, or refused, instead of being told that there is no route.
    pub fn start(config: Config, registry: &Registry, tasks: &Tasks) -> Result<Self, StartError> {
        let (listeners, addresses) = serve::bind(&config)?;
        let closed = Mutex::new(serve::handles(&listeners)?);
        let shared = Arc::new(Shared::new(config, registry, tasks)?);
        let rendered = shared.clone();
        registry.source(Box::new(move |out| rendered.meters.render(out)));
        let mut threads = Vec::new();
        for (index, listeners) in listeners.into_iter().enumerate() {
            let shared = shared.clone();
            // Threads must not all make the same choices.
            let seed = shared
                .seed()
                .wrapping_add(u64::try_from(index).unwrap_or(0))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let thread = std::thread::Builder::new().name(format!("proxy-{index}"));
            let handle = thread.spawn(move || serve::run(shared, index, listeners, seed));
            threads.push(handle.map_err(StartError::Thread)?);
        }
        tasks.spawn(end(shared.clone(), threads, tasks.stopping()));
        Ok(Self { shared, following: Mutex::default(), closed, addresses, tasks: tasks.clone() })
    }

    /// Follows a world from now on. Requests that are under way go on as they began.
    pub fn follow(&self, world: &World) {
        let _one = self.following.lock();
        let changed = self.shared.tables.follow(world);
        for target in changed.outside {
            let shared = self.shared.clone();
            self.tasks.spawn_until_stop(outside::follow(Arc::downgrade(&target), shared));
        }
        self.shared.meters.forget(&changed.gone);
        self.shared.beside.follow(world);
        self.open();
    }

    /// Lets clients in, the first time.
    fn open(&self) {
        let mut closed = self.closed.lock();
        if self.is_open() {
            return;
        }
        tracing::info!("clients are let in");
        for listener in closed.drain(..) {
            if let Err(error) = serve::listen(&listener) {
                tracing::error!(%error, "cannot listen for clients");
            }
        }
        self.shared.phase.send_if_modified(|phase| {
            let first = *phase == Phase::Closed;
            *phase = (*phase).max(Phase::Serving);
            first
        });
    }

    /// Whether clients were let in: it was told of a world.
    pub fn is_open(&self) -> bool {
        *self.shared.phase.borrow() > Phase::Closed
    }

    /// What it carries, by service and cluster, since the last call.
    pub fn report(&self) -> Vec<ServiceLoad> {
        let mut loads = self.shared.meters.report(self.shared.now_ms());
        loads.extend(self.shared.beside.ports.tally.report(self.shared.now_ms()));
        loads
    }

    /// What this edge shows to other edges from now on, and who vouches for them. Until then there is no link.
    pub fn identify(&self, identity: &Identity) -> Result<(), IdentityError> {
        self.shared.beside.link.identify(identity)
    }

    /// Looks through other edges at their members' services.
    pub fn lookout(&self) -> Arc<Lookout> {
        self.shared.beside.lookout.clone()
    }

    /// Says what nobody may be led to, by whatever object.
    pub fn guard(&self) -> Arc<Guard> {
        self.shared.guard.clone()
    }

    /// What is wrong with the Secrets that routes name: the last good ones stay.
    pub fn certificate_problems(&self) -> Vec<tls::Problem> {
        self.shared.beside.tls.problems()
    }

    /// Ports that routes want and that cannot be had.
    pub fn port_problems(&self) -> Vec<PortProblem> {
        self.shared.beside.ports.problems()
    }

    /// Ports of Services that are open: protocol and number.
    pub fn ports(&self) -> BTreeSet<(&'static str, u16)> {
        self.shared.beside.ports.opened()
    }

    /// The routing table as it is in this moment: hosts and paths, where they lead, the clusters in order, their endpoints and how
    /// each fares, and the open ports.
    pub fn table(&self) -> serde_json::Value {
        let mut view = self.shared.tables.load().view(self.shared.now_ms());
        view["ports"] = self.shared.beside.ports.view();
        view
    }

    /// Buckets that cannot be reached, by host, and why.
    pub fn bucket_problems(&self) -> Vec<(String, String)> {
        self.shared.tables.outside_problems()
    }

    /// Takes no more clients but those that are under way, and waits until those that are there have their answers, or until their time is over.
    pub async fn drain(&self) {
        drain(&self.shared).await;
    }

    /// Where it listens, in the order of its configuration: HTTP, then HTTPS, then for other edges.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Open connections of clients.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

async fn drain(shared: &Shared) {
    shared.phase.send_if_modified(|phase| {
        let first = *phase < Phase::Draining;
        *phase = (*phase).max(Phase::Draining);
        first
    });
    shared.beside.ports.close();
    let empty = async {
        tokio::time::sleep(shared.config.handover).await;
        while shared.connections.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = tokio::time::timeout(shared.config.drain, empty).await;
}

/// Ends the threads once the tasks are told to stop.
async fn end(shared: Arc<Shared>, threads: Vec<JoinHandle<()>>, stop: impl Future<Output = ()>) {
    stop.await;
    drain(&shared).await;
    shared.phase.send_replace(Phase::Ending);
    let joined = tokio::task::spawn_blocking(move || {
        for thread in threads {
            // A thread that panicked is gone too.
            let _ = thread.join();
        }
    });
    let _ = joined.await;
}
