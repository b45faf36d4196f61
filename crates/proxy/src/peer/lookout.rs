//! Looking at services of other members: a stream through one of their edges to any endpoint of theirs, for whoever finds out
//! whether it is well.
//!
//! It goes to the endpoints themselves, whatever plans say: a service that nothing is sent to, because it was down or because its
//! member is cordoned, must be seen to be well again. Connections are others than those of clients: what is looked at may not answer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use imbl::OrdMap;
use landfall_api::landfall::{RouteService, TrafficPlanSpec};
use landfall_runtime::tasks::Tasks;
use parking_lot::Mutex;
use tokio::net::TcpStream;

use super::end::Look;
use super::link::{ConnectError, Link};
use super::tunnel::{TunnelError, Tunnels, refuse};
use super::wire::{Carries, Order};
use crate::guard::Guard;
use crate::http::{Body, Received};
use crate::l4::splice::splice;
use crate::world::{Endpoints, Key, World};

/// So many endpoints are tried for one look, and each may take so long.
const TRIES_MAX: usize = 3;
const CONNECT_MAX: Duration = Duration::from_millis(700);
/// A look is short.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// How an edge says that it has no plan of a service.
const NOT_KNOWN: &str = "the service is not known";

/// Looks through other edges.
pub struct Lookout {
    tunnels: Tunnels,
}

/// A stream to an endpoint of another member.
pub type Sight = TokioIo<Upgraded>;

/// Why there is nothing to be seen.
#[derive(Debug, thiserror::Error)]
pub enum Blind {
    /// The edge, or what is behind it, does not answer.
    #[error("{0}")]
    Down(String),
    /// It says nothing of the service: this edge has nothing to show, or the other one knows no plan of it yet.
    #[error("nothing can be said")]
    Unknown,
}

impl Lookout {
    pub(crate) fn new(link: Arc<Link>, tasks: &Tasks) -> Self {
        Self { tunnels: Tunnels::new(link, tasks.clone()) }
    }

    /// Opens a stream to a service through an edge of its member, by the edge's name and where it lets others in.
    pub async fn look(&self, edge: &str, address: &str, service: &RouteService) -> Result<Sight, Blind> {
        let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let order = Order {
            service: service.clone(),
            client: nobody,
            server: nobody,
            send_proxy: false,
            carries: Carries::Look,
        };
        self.tunnels.open(edge, address, &order).await.map_err(|error| match error {
            TunnelError::Connect(ConnectError::Nobody) => Blind::Unknown,
            TunnelError::Refused(why) if why == NOT_KNOWN => Blind::Unknown,
            TunnelError::Refused(why) => Blind::Down(format!("edge {edge}: {why}")),
            TunnelError::Connect(error) => Blind::Down(format!("edge {edge}: {error}")),
            TunnelError::Broken(_) => Blind::Down(format!("edge {edge}: the connection broke")),
        })
    }
}

/// What others may look at: the own member's federated services.
#[derive(Default)]
pub(crate) struct Shown {
    cluster: String,
    guard: Arc<Guard>,
    known: Mutex<(Plans, Services)>,
    turn: AtomicUsize,
}

type Plans = OrdMap<Key, Arc<TrafficPlanSpec>>;
type Services = OrdMap<Key, Arc<Endpoints>>;

impl Shown {
    pub(crate) fn new(cluster: &str, guard: Arc<Guard>) -> Self {
        Self { cluster: cluster.to_owned(), guard, ..Self::default() }
    }

    pub(crate) fn follow(&self, world: &World) {
        *self.known.lock() = (world.plans.clone(), world.endpoints.clone());
    }

    /// Where a service's port is in the own member; none when no plan of it is known here.
    fn endpoints(&self, service: &RouteService) -> Option<Vec<SocketAddr>> {
        let (plans, endpoints) = self.known.lock().clone();
        let key = (service.namespace.clone(), service.name.clone());
        let cluster = plans.get(&key)?.clusters.iter().find(|one| one.name == self.cluster)?;
        if let Some(known) = endpoints.get(&key) {
            return Some(known.get(&service.port_name).cloned().unwrap_or_default());
        }
        let port = u16::try_from(service.port).ok()?;
        let inner = cluster.cluster_ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok());
        Some(inner.map(|ip| SocketAddr::new(ip, port)).collect())
    }

    /// Answers another edge that wants to look.
    pub(crate) async fn open(
        &self,
        order: &Order,
        request: Request<Received>,
        spawn: impl FnOnce(Look),
    ) -> Response<Body> {
        let Some(mut endpoints) = self.endpoints(&order.service) else { return refuse(NOT_KNOWN) };
        endpoints.retain(|at| self.guard.admits(*at));
        if endpoints.is_empty() {
            return refuse("no endpoint is ready");
        }
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % endpoints.len();
        for at in endpoints.iter().cycle().skip(first).take(endpoints.len().min(TRIES_MAX)) {
            let Ok(Ok(endpoint)) = tokio::time::timeout(CONNECT_MAX, TcpStream::connect(at)).await else {
                continue;
            };
            spawn(Box::pin(async move {
                let Ok(stream) = hyper::upgrade::on(request).await else { return };
                // Whoever looks goes away when it has seen enough.
                let _ = splice(TokioIo::new(stream), endpoint, IDLE_MAX).await;
            }));
            return Response::new(Body::empty());
        }
        refuse("no endpoint can be reached")
    }
}
