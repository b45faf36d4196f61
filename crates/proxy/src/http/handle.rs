//! A request comes in: it is looked at, its route is found, and what the route says is done.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;

use http::header::{HOST, STRICT_TRANSPORT_SECURITY, VIA};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::body::{Body as _, Incoming};

use super::forward::forward;
use super::headers::PEER_TARGET;
use super::journey::Errand;
use super::target::{self, Refusal};
use super::{Body, Conn, answer};
use crate::core::Core;
use crate::peer;
use crate::table::{Action, Plan, Route};

/// So many times a request may have come by an edge: it goes in a circle.
const EDGES_MAX: usize = 4;

/// A request in flight: as long as it lives, its thread and its connection know of it.
pub(crate) struct Ticket {
    pub(super) core: Rc<Core>,
    pub(super) conn: Rc<Conn>,
}

impl Ticket {
    pub(crate) fn new(core: Rc<Core>, conn: Rc<Conn>) -> Self {
        core.requests.set(core.requests.get() + 1);
        conn.state.serves();
        Self { core, conn }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.core.requests.set(self.core.requests.get().saturating_sub(1));
        self.conn.state.served();
    }
}

/// Answers a request.
pub(crate) async fn handle(
    core: Rc<Core>,
    conn: Rc<Conn>,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let ticket = Ticket::new(core, conn);
    if ticket.core.requests.get() > ticket.core.requests_max() {
        ticket.core.shared.meters.rare.shed.inc();
        return Ok(answer::plain(StatusCode::SERVICE_UNAVAILABLE, "there is no room for more requests\n"));
    }
    if let Some(edge) = &ticket.conn.info.from_peer {
        if !ticket.core.shared.beside.link.still_has(edge) {
            return Ok(not_here(StatusCode::FORBIDDEN, "that is no edge of this federation"));
        }
        if request.method() == Method::CONNECT {
            let ports = &ticket.core.shared.beside.ports;
            return Ok(peer::end::open(ports, &ticket.conn.state, request).await);
        }
    }
    let upgrade = super::upgrade::asked(&mut request);
    let (mut parts, body) = request.into_parts();
    let asked = match target::read(&parts.method, &parts.uri, parts.version, &parts.headers) {
        Ok(asked) => asked,
        Err(refusal) => return Ok(refuse(&ticket, refusal)),
    };
    if let Some(refused) = look(&ticket, &parts, &body) {
        return Ok(refused);
    }
    rewrite(&mut parts, asked.path);
    if ticket.conn.info.from_peer.is_some() {
        return Ok(from_peer(ticket, parts, body, upgrade).await);
    }
    if let Some(handshake) = ticket.conn.info.tls.as_ref().and_then(|tls| tls.handshake.as_ref())
        && !ticket.core.shared.beside.tls.admits(handshake, &asked.host)
    {
        return Ok(answer::plain(
            StatusCode::MISDIRECTED_REQUEST,
            "that host wants a connection of its own\n",
        ));
    }
    let table = ticket.core.table();
    let Some(route) = table.find(&asked.host, parts.uri.path()) else {
        ticket.core.shared.meters.rare.unmatched.inc();
        return Ok(answer::plain(StatusCode::NOT_FOUND, "no route leads there\n"));
    };
    let secure = ticket.conn.is_secure();
    let mut answer = act(ticket, route, parts, body, upgrade).await;
    if let Some(hsts) = route.plan.hsts.as_ref().filter(|_| secure) {
        answer.headers_mut().insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
    Ok(answer)
}

fn refuse(ticket: &Ticket, refusal: Refusal) -> Response<Body> {
    ticket.core.shared.meters.rare.refused.inc();
    match refusal {
        Refusal::Host => answer::plain(StatusCode::BAD_REQUEST, "a request names one host\n"),
        Refusal::Target => answer::plain(StatusCode::BAD_REQUEST, "that is no path\n"),
        Refusal::Connect => answer::plain(StatusCode::METHOD_NOT_ALLOWED, "this is no tunnel\n"),
    }
}

/// What speaks against a request whatever its route is.
fn look(ticket: &Ticket, parts: &Parts, body: &Incoming) -> Option<Response<Body>> {
    let most = ticket.core.shared.config.limits.body_bytes;
    if most.is_some_and(|most| body.size_hint().lower() > most) {
        ticket.core.shared.meters.rare.refused.inc();
        return Some(answer::plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long\n"));
    }
    if parts.headers.contains_key(VIA) && edges_passed(&parts.headers) >= EDGES_MAX {
        ticket.core.shared.meters.rare.refused.inc();
        return Some(answer::plain(StatusCode::LOOP_DETECTED, "the request goes in a circle\n"));
    }
    None
}

fn edges_passed(headers: &HeaderMap) -> usize {
    let values = headers.get_all(VIA).iter().map(|value| value.to_str().unwrap_or_default());
    values.map(|value| value.matches("landfall").count()).sum()
}

/// Brings a request into the form in which it is passed on: a path, and a host in its header.
fn rewrite(parts: &mut Parts, path: Option<PathAndQuery>) {
    if let Some(authority) = parts.uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        parts.headers.insert(HOST, host);
    } else if path.is_none() {
        return;
    }
    let path = path.or_else(|| parts.uri.path_and_query().cloned());
    parts.uri = path.map(Uri::from).unwrap_or_default();
}

async fn act(
    ticket: Ticket,
    route: &Route,
    parts: Parts,
    body: Incoming,
    upgrade: Option<super::upgrade::Asked>,
) -> Response<Body> {
    if route.to_https && !ticket.conn.is_secure() {
        return from(&parts, "http", answer::to_https);
    }
    match &route.action {
        Action::Service(target) => {
            let errand = Errand { plan: &route.plan, target, own_only: false, bucket: None };
            forward(ticket, errand, parts, body, upgrade).await
        }
        Action::Bucket(bucket) => {
            let (plan, target) = (&*route.plan, &bucket.target);
            let errand = Errand { plan, target, own_only: false, bucket: Some(bucket) };
            forward(ticket, errand, parts, body, upgrade).await
        }
        Action::Redirect(action) => {
            let scheme = if ticket.conn.is_secure() { "https" } else { "http" };
            from(&parts, scheme, |from| answer::redirect(action, from))
        }
        Action::Fixed(fixed) => answer::fixed(fixed),
        Action::Unavailable(why) => answer::told(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

fn from(parts: &Parts, scheme: &str, to: impl Fn(&answer::From<'_>) -> Response<Body>) -> Response<Body> {
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let root = PathAndQuery::from_static("/");
    to(&answer::From { scheme, host, path: parts.uri.path_and_query().unwrap_or(&root) })
}

/// What another edge is told: the answer is no endpoint's.
fn not_here(status: StatusCode, why: &'static str) -> Response<Body> {
    let mut answer = answer::plain(status, why);
    peer::wire::fail(answer.headers_mut(), why);
    answer
}

/// A request that another edge sends: it names its service, and goes no further than to an endpoint here.
async fn from_peer(
    ticket: Ticket,
    mut parts: Parts,
    body: Incoming,
    upgrade: Option<super::upgrade::Asked>,
) -> Response<Body> {
    let service = parts.headers.remove(PEER_TARGET);
    let service = service.as_ref().and_then(|value| value.to_str().ok()).and_then(peer::wire::read_service);
    let table = ticket.core.table();
    let Some(target) = service.as_ref().and_then(|service| table.target(service)) else {
        return not_here(StatusCode::MISDIRECTED_REQUEST, "this edge does not know that service");
    };
    let plan: Arc<Plan> = ticket.core.shared.peer_plan.clone();
    let errand = Errand { plan: &plan, target, own_only: true, bucket: None };
    forward(ticket, errand, parts, body, upgrade).await
}
