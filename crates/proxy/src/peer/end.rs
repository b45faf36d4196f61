//! Where tunnels end: another edge asks for a stream to an endpoint, and gets one of the own member's, or none.

use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};
use hyper_util::rt::TokioIo;

use super::tunnel::refuse;
use super::wire::{Carries, Order};
use crate::clients::State;
use crate::haproxy::Ends;
use crate::http::{Body, Received};
use crate::l4::Ports;
use crate::l4::dial::{Datagrams, Wanted};
use crate::l4::splice::splice;
use crate::l4::udp::carry_frames;

/// Answers a CONNECT that comes from another edge.
pub(crate) async fn open(
    ports: &Arc<Ports>,
    link: &Arc<State>,
    request: Request<Received>,
) -> Response<Body> {
    let Some(order) = Order::read(request.headers()) else { return refuse("the order is not whole") };
    if order.carries == Carries::Look {
        let Some(permit) = ports.admit() else { return refuse("there is no room") };
        let (held, carries) = ((permit, Busy::new(link)), ports.clone());
        let spawn = |look: Look| {
            carries.spawn_until_stop(async move {
                let _held = held;
                look.await;
            });
        };
        return ports.shown.open(&order, request, spawn).await;
    }
    let Some(target) = ports.named_by_peer(&order.service) else { return refuse("the service is not known") };
    let Some(permit) = ports.admit() else { return refuse("there is no room") };
    let held = (permit, Busy::new(link));
    let ends = Ends { client: order.client, server: order.server };
    // One hop and no more: whatever the plan says, this is asked of the own member's endpoints.
    let wanted = Wanted { target: &target, ends, send_proxy: order.send_proxy, own: true };
    match order.carries {
        Carries::Stream | Carries::Look => {
            let Ok((endpoint, way)) = ports.dialer.stream(wanted).await else {
                return refuse("no endpoint can be reached");
            };
            let idle = target.service().times.upgraded_idle;
            ports.spawn(async move {
                let _held = (held, way);
                let Ok(stream) = hyper::upgrade::on(request).await else { return };
                if let Err(error) = splice(TokioIo::new(stream), endpoint, idle).await {
                    tracing::debug!(client = %ends.client, %error, "a tunnel broke");
                }
            });
        }
        Carries::Datagrams => {
            let (endpoint, way) = match ports.dialer.datagrams(wanted).await {
                Ok((Datagrams::Direct(endpoint), way)) => (endpoint, way),
                Ok((Datagrams::Tunnel(_), _)) | Err(_) => return refuse("no endpoint can be reached"),
            };
            let carries = ports.clone();
            let idle = ports.config.session_idle;
            ports.spawn_until_stop(async move {
                let _held = held;
                let Ok(stream) = hyper::upgrade::on(request).await else { return };
                if let Err(error) = carry_frames(TokioIo::new(stream), &endpoint, idle).await {
                    if error.kind() == std::io::ErrorKind::ConnectionRefused {
                        carries.dialer.is_gone(&way);
                    }
                    tracing::debug!(client = %ends.client, %error, "a tunnel broke");
                }
            });
        }
    }
    Response::new(Body::empty())
}

/// What goes on while another edge looks.
pub(super) type Look = Pin<Box<dyn Future<Output = ()> + Send>>;

/// As long as a tunnel is open, the connection it is part of is not idle.
struct Busy(Arc<State>);

impl Busy {
    fn new(link: &Arc<State>) -> Self {
        link.serves();
        Self(link.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.served();
    }
}
