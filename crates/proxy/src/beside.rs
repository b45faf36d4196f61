//! What stands beside the data path of HTTP, shared by all threads: TLS, the link between edges, ports that are carried as they
//! are; and how a client comes in by each entrance.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::HeaderValue;
use landfall_runtime::clock;
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::config::{Config, StartError};
use crate::core::Core;
use crate::guard::Guard;
use crate::haproxy::{self, Ends};
use crate::http::{ConnInfo, TlsInfo};
use crate::l4::dial::Dialer;
use crate::l4::{Ports, Route, tcp};
use crate::peer::Link;
use crate::peer::lookout::Lookout;
use crate::peer::tunnel::Tunnels;
use crate::serve::{Entrance, connection};
use crate::table::Tables;
use crate::tls::backend::Backend;
use crate::tls::{self, Incoming, Tls};
use crate::world::World;

/// What stands beside.
pub(crate) struct Beside {
    pub(crate) tls: Tls,
    /// TLS to endpoints.
    pub(crate) backend: Backend,
    pub(crate) link: Arc<Link>,
    pub(crate) lookout: Arc<Lookout>,
    pub(crate) ports: Arc<Ports>,
}

impl Beside {
    pub(crate) fn new(
        config: &Config,
        tables: Arc<Tables>,
        guard: &Arc<Guard>,
        registry: &Registry,
        tasks: &Tasks,
    ) -> Result<Self, StartError> {
        let link = Arc::new(Link::from_address(config.source));
        let seed = u64::try_from(clock::since_epoch().as_nanos()).unwrap_or(1);
        let dialer = Dialer::new(Tunnels::new(link.clone(), tasks.clone()), guard.clone(), seed);
        let tls = tls::Config { group: config.group.clone(), ..config.tls.clone() };
        Ok(Self {
            tls: Tls::new(tls).map_err(StartError::Tls)?,
            backend: Backend::new(config.bucket_authorities_pem.clone()).map_err(StartError::Tls)?,
            lookout: Arc::new(Lookout::new(link.clone(), tasks)),
            ports: Arc::new(Ports::new(config, tables, dialer, registry, tasks)),
            link,
        })
    }

    /// Follows a world from now on.
    pub(crate) fn follow(&self, world: &World) {
        self.tls.follow(world);
        self.link.follow(world.federation.as_ref());
        self.ports.follow(world);
    }
}

/// A client has come in by an entrance: who it is, is found out, and it is served until it is gone.
pub(crate) async fn welcome(core: &Rc<Core>, entrance: Entrance, stream: TcpStream, ends: Ends) {
    let config = &core.shared.config;
    // What few clients need is in boxes: all would have room for it.
    match entrance {
        Entrance::Peer => Box::pin(from_peer(core, stream, ends)).await,
        Entrance::Plain | Entrance::Tls if config.l4.proxy_protocol_from.contains(ends.client.ip()) => {
            match haproxy::accept(stream, config.l4.header_timeout).await {
                Ok((stream, told)) => Box::pin(client(core, entrance, stream, told.unwrap_or(ends))).await,
                Err(error) => {
                    tracing::debug!(client = %ends.client, %error, "a connection without its header")
                }
            }
        }
        Entrance::Plain | Entrance::Tls => client(core, entrance, stream, ends).await,
    }
}

async fn client<IO>(core: &Rc<Core>, entrance: Entrance, stream: IO, ends: Ends)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Ends { client, server: local } = ends;
    if entrance != Entrance::Tls {
        return connection(core, stream, ConnInfo { client, local, tls: None, from_peer: None }).await;
    }
    match Box::pin(core.shared.beside.tls.accept(stream)).await {
        Ok(Incoming::Ended(stream, info)) => {
            let info = ConnInfo { client, local, tls: Some(TlsInfo::from(info)), from_peer: None };
            connection(core, stream, info).await;
        }
        Ok(Incoming::Passthrough { stream, to, .. }) => {
            let (service, send_proxy) = (to.service.clone(), to.send_proxy_protocol);
            let route = Route { service, send_proxy, from: None };
            Box::pin(tcp::carry(&core.shared.beside.ports, stream, ends, &route)).await;
        }
        Err(error) => {
            core.shared.beside.ports.meters.handshakes.inc();
            tracing::debug!(%client, %error, "a handshake failed");
        }
    }
}

/// Another edge has come in.
async fn from_peer(core: &Rc<Core>, stream: TcpStream, ends: Ends) {
    let Ends { client, server: local }: Ends = ends;
    let client: SocketAddr = client;
    match core.shared.beside.link.accept(stream).await {
        Ok((stream, named)) => {
            let info = ConnInfo { client, local, tls: None, from_peer: Some(Arc::new(named)) };
            connection(core, stream, info).await;
        }
        Err(error) => {
            core.shared.beside.ports.meters.handshakes.inc();
            // Edges that measure how far it is here come this way too, every second.
            tracing::debug!(%client, %error, "what comes to the link is no edge of this federation");
        }
    }
}

impl From<tls::TlsInfo> for TlsInfo {
    fn from(info: tls::TlsInfo) -> Self {
        let subject = info.client.as_deref().and_then(|subject| HeaderValue::from_str(subject).ok());
        Self { http2: info.http2, client_subject: subject, handshake: Some(info) }
    }
}
