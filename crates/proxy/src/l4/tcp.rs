//! A TCP port: each connection is carried to an endpoint as it is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use super::dial::Wanted;
use super::splice::{Ended, splice};
use super::{Carried, Ports, Route};
use crate::handover::{lead_on, spread};
use crate::haproxy::{self, Ends};

/// How long to wait when no connection can be taken, for want of descriptors.
const PAUSE: Duration = Duration::from_millis(50);
/// Connections that wait to be taken.
const BACKLOG: i32 = 1024;

/// Listens. Others may listen on the same port: an edge that takes over from another.
pub(super) fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = super::socket(address, socket2::Type::STREAM)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    spread(&socket);
    TcpListener::from_std(socket.into())
}

/// Takes connections until the port is closed; when the proxy ends, also those that are under way.
pub(super) async fn serve(
    ports: Arc<Ports>,
    listener: TcpListener,
    carried: Carried,
    closed: impl Future<Output = ()>,
) {
    tokio::select! {
        () = take(&ports, &listener, &carried) => {}
        () = closed => {}
    }
    if ports.is_closed() {
        lead_on(&listener, 1);
        let _ = tokio::time::timeout(ports.handover, take(&ports, &listener, &carried)).await;
    }
}

/// Takes connections until it is dropped.
async fn take(ports: &Arc<Ports>, listener: &TcpListener, carried: &Carried) {
    loop {
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "cannot take a connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(permit) = ports.admit() else { continue };
        let (ports, carried) = (ports.clone(), carried.clone());
        ports.clone().spawn(async move {
            ports.meters.connections.inc();
            ports.meters.open.add(1);
            one(&ports, stream, client, &carried).await;
            ports.meters.open.add(-1);
            drop(permit);
        });
    }
}

/// One connection.
async fn one(ports: &Ports, stream: TcpStream, client: SocketAddr, carried: &Carried) {
    let Ok(server) = stream.local_addr() else { return };
    let _ = stream.set_nodelay(true);
    let mut ends = Ends { client, server };
    if ports.config.proxy_protocol_from.contains(client.ip()) {
        match haproxy::accept(stream, ports.config.header_timeout).await {
            Ok((stream, told)) => {
                ends = told.unwrap_or(ends);
                carry(ports, stream, ends, &carried.load_full()).await;
            }
            Err(error) => tracing::debug!(%client, %error, "a connection without its header"),
        }
    } else {
        carry(ports, stream, ends, &carried.load_full()).await;
    }
}

/// Carries a stream to an endpoint of a service.
pub(crate) async fn carry<IO>(ports: &Ports, stream: IO, ends: Ends, route: &Route)
where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    if !route.admits(ends.client.ip()) {
        ports.meters.outside.inc();
        tracing::debug!(client = %ends.client, "a connection comes from outside the Service's source ranges");
        return;
    }
    let Some(target) = ports.target(&route.service) else {
        ports.meters.failed.inc();
        return;
    };
    let wanted = Wanted { target: &target, ends, send_proxy: route.send_proxy, own: false };
    match ports.dialer.stream(wanted).await {
        Ok((endpoint, way)) => {
            let _counted = ports.tally.begin(&target.name, &way.cluster);
            let idle = target.service().times.upgraded_idle;
            match splice(stream, endpoint, idle).await {
                Ok(Ended::Idle) => {
                    tracing::debug!(client = %ends.client, "a connection was silent for too long")
                }
                Ok(Ended::Whole(..)) => {}
                Err(error) => tracing::debug!(client = %ends.client, %error, "a connection broke"),
            }
        }
        Err(error) => {
            ports.meters.failed.inc();
            tracing::debug!(client = %ends.client, service = %target.name, %error, "a connection is not carried");
        }
    }
}
