//! A request comes in: it is looked at, its route is found, and what the route says is done.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http::header::{CONNECTION, HOST, STRICT_TRANSPORT_SECURITY, VIA};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use landfall_runtime::clock;
use tokio::sync::oneshot;

use super::forward::forward;
use super::headers::PEER_TARGET;
use super::journey::Errand;
use super::target::{self, Refusal};
use super::upgrade::{self, Tunnel};
use super::{Answering, Before, Body, Conn, Received, answer, own};
use crate::core::Core;
use crate::peer;
use crate::table::{Action, Plan, Route};

/// So many times a request may have come by an edge: it goes in a circle.
const EDGES_MAX: usize = 4;
/// What a client is told that came in by a name for which less is asked.
const OWN_CONNECTION: &str = "that host wants a connection of its own";
/// What an edge is told that was shut out.
const STRANGER: &str = "that is no edge of this federation";

/// A request in flight: as long as it lives, its thread and its connection know of it.
pub(crate) struct Ticket {
    pub(super) core: Rc<Core>,
    pub(super) conn: Rc<Conn>,
    pub(crate) began: Instant,
    /// What it is counted under, as one that began lately.
    age: u64,
    /// What endpoints say before they answer is passed on there.
    pub(super) interim: Option<Answering>,
    /// What is known of it from before.
    pub(super) before: Option<Before>,
}

/// What a stream of HTTP/2 has beside its request.
pub(crate) struct Stream {
    /// By what it is answered.
    pub(crate) answering: Answering,
    /// It asks to become a WebSocket: that is what will come, once that is agreed on.
    pub(crate) upgrade: Option<oneshot::Receiver<Tunnel>>,
    /// What is known of its request from before.
    pub(crate) before: Option<Before>,
}

impl Ticket {
    pub(crate) fn new(core: Rc<Core>, conn: Rc<Conn>) -> Self {
        core.requests.set(core.requests.get() + 1);
        let age = core.new_requests.begin(core.ticker.now_ms());
        conn.state.serves();
        Self { core, conn, began: clock::instant(), age, interim: None, before: None }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.core.requests.set(self.core.requests.get().saturating_sub(1));
        self.core.new_requests.end(self.age);
        self.conn.state.served();
    }
}

/// Answers a request.
pub(crate) async fn handle(
    core: Rc<Core>,
    conn: Rc<Conn>,
    mut request: Request<Received>,
    stream: Option<Stream>,
) -> Response<Body> {
    let mut ticket = Ticket::new(core, conn);
    let upgrade = match stream {
        None => {
            ticket.before = ticket.conn.left.take();
            upgrade::asked(&mut request)
        }
        Some(stream) => {
            (ticket.interim, ticket.before) = (Some(stream.answering), stream.before);
            stream.upgrade.map(upgrade::Asked::websocket)
        }
    };
    if let Some(before) = &ticket.before {
        ticket.began = before.began;
    }
    serve(ticket, request, upgrade).await
}

async fn serve(
    ticket: Ticket,
    request: Request<Received>,
    upgrade: Option<upgrade::Asked>,
) -> Response<Body> {
    if ticket.core.is_full(0) {
        let (parts, _) = request.into_parts();
        return shed(&ticket, &parts);
    }
    if request.method() == Method::CONNECT
        && let Some(edge) = &ticket.conn.info.from_peer
    {
        if !ticket.core.shared.beside.link.still_has(edge) {
            return peer::tunnel::refuse(STRANGER);
        }
        return Box::pin(peer::end::open(&ticket.core.shared.beside.ports, &ticket.conn.state, request))
            .await;
    }
    let (mut parts, body) = request.into_parts();
    let asked = match target::read(&parts.method, &parts.uri, parts.version, &parts.headers) {
        Ok(asked) => asked,
        Err(refusal) => return refuse(&ticket, &parts, refusal),
    };
    if let Some((status, why)) = look(&ticket, &parts, &body) {
        ticket.core.shared.meters.rare.refused.inc();
        return own::no(&ticket, &parts, status, why);
    }
    if asked.server {
        return own::yes(&ticket, &parts);
    }
    rewrite(&mut parts, asked.path);
    if ticket.conn.info.from_peer.is_some() {
        return from_peer(ticket, parts, body, upgrade).await;
    }
    let tls = &ticket.core.shared.beside.tls;
    let handshake = ticket.conn.info.tls.as_ref().and_then(|tls| tls.handshake.as_ref());
    if handshake.is_some_and(|handshake| !tls.admits(handshake, &asked.host)) {
        return elsewhere(own::no(&ticket, &parts, StatusCode::MISDIRECTED_REQUEST, OWN_CONNECTION), &parts);
    }
    let shows_none = handshake.is_none() && !tls.is_open(&asked.host);
    let table = ticket.core.table();
    let Some(route) = table.find(&asked.host, parts.uri.path()) else {
        ticket.core.shared.meters.rare.unmatched.inc();
        return own::no(&ticket, &parts, StatusCode::NOT_FOUND, "no route leads there");
    };
    let secure = ticket.conn.is_secure();
    let mut answer = if !secure && route.to_https.concerns(&asked.host) {
        let answer = from(&parts, "http", answer::to_https);
        own::count(&ticket, &parts, &route.plan, None, answer.status());
        answer
    } else if shows_none || route.plan.shuns(handshake) {
        let asks = |secret: &str| tls.asks_for(&asked.host, secret);
        let (status, why) = match handshake {
            None => (StatusCode::FORBIDDEN, "that host wants HTTPS and a certificate of the client"),
            // It came before it was asked, or by another name.
            Some(_) if route.plan.clients.as_deref().is_some_and(asks) => {
                (StatusCode::MISDIRECTED_REQUEST, OWN_CONNECTION)
            }
            Some(_) => {
                (StatusCode::FORBIDDEN, "that route wants a certificate that this host does not ask for")
            }
        };
        own::count(&ticket, &parts, &route.plan, Some(why), status);
        let answer = answer::told(status, &format!("{why}\n"));
        if status == StatusCode::MISDIRECTED_REQUEST { elsewhere(answer, &parts) } else { answer }
    } else {
        act(ticket, route, parts, body, upgrade).await
    };
    if let Some(hsts) = route.plan.hsts.as_ref().filter(|_| secure) {
        answer.headers_mut().insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
    answer
}

/// A client that may be answered over another connection does not keep this one, where it has one request at a time.
fn elsewhere(mut answer: Response<Body>, parts: &Parts) -> Response<Body> {
    if parts.version <= Version::HTTP_11 {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

/// There is no room for it.
fn shed(ticket: &Ticket, parts: &Parts) -> Response<Body> {
    ticket.core.shared.meters.rare.shed.inc();
    let why = "there is no room for more requests";
    let answer = not_here(ticket, parts, StatusCode::SERVICE_UNAVAILABLE, why);
    // A connection that the lane has left takes more memory than one that has not come yet.
    if ticket.core.lacks_memory(0) { elsewhere(answer, parts) } else { answer }
}

fn refuse(ticket: &Ticket, parts: &Parts, refusal: Refusal) -> Response<Body> {
    ticket.core.shared.meters.rare.refused.inc();
    let (status, why) = match refusal {
        Refusal::Host => (StatusCode::BAD_REQUEST, "a request names one host"),
        Refusal::Target => (StatusCode::BAD_REQUEST, "that is no path"),
        // RFC 9220, 3: what a stream may become is told by the server.
        Refusal::Connect if parts.extensions.get::<h2::ext::Protocol>().is_some() => {
            (StatusCode::NOT_IMPLEMENTED, "no such protocol is spoken here")
        }
        Refusal::Connect => (StatusCode::METHOD_NOT_ALLOWED, "this is no tunnel"),
    };
    own::no(ticket, parts, status, why)
}

/// What speaks against a request whatever its route is.
fn look(ticket: &Ticket, parts: &Parts, body: &Received) -> Option<(StatusCode, &'static str)> {
    let most = ticket.core.shared.config.limits.body_bytes;
    if most.is_some_and(|most| body.size_hint().lower() > most) {
        return Some((StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"));
    }
    if parts.headers.contains_key(VIA) && edges_passed(&parts.headers) >= EDGES_MAX {
        return Some((StatusCode::LOOP_DETECTED, "the request goes in a circle"));
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
    body: Received,
    upgrade: Option<upgrade::Asked>,
) -> Response<Body> {
    let (answer, why) = match &route.action {
        Action::Service(target) => {
            let errand = Errand { plan: &route.plan, target, own_only: false, bucket: None };
            return forward(ticket, errand, parts, body, upgrade).await;
        }
        Action::Bucket(bucket) => {
            let (plan, target) = (&*route.plan, &bucket.target);
            let errand = Errand { plan, target, own_only: false, bucket: Some(bucket) };
            return forward(ticket, errand, parts, body, upgrade).await;
        }
        Action::Redirect(action) => {
            let scheme = if ticket.conn.is_secure() { "https" } else { "http" };
            (from(&parts, scheme, |from| answer::redirect(action, from)), None)
        }
        Action::Fixed(fixed) => (answer::fixed(fixed), None),
        Action::Unavailable(why) => (answer::told(StatusCode::SERVICE_UNAVAILABLE, why), Some(&**why)),
    };
    own::count(&ticket, &parts, &route.plan, why, answer.status());
    answer
}

fn from(parts: &Parts, scheme: &str, to: impl Fn(&answer::From<'_>) -> Response<Body>) -> Response<Body> {
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let root = PathAndQuery::from_static("/");
    to(&answer::From { scheme, host, path: parts.uri.path_and_query().unwrap_or(&root) })
}

/// What another edge is told: the answer is no endpoint's, and nobody was asked.
fn not_here(ticket: &Ticket, parts: &Parts, status: StatusCode, why: &'static str) -> Response<Body> {
    let mut answer = own::no(ticket, parts, status, why);
    if ticket.conn.info.from_peer.is_some() {
        peer::wire::fail(answer.headers_mut(), why);
        peer::wire::was_not_sent(answer.headers_mut());
    }
    answer
}

/// A request that another edge sends: it names its service, and goes no further than to an endpoint here.
async fn from_peer(
    ticket: Ticket,
    mut parts: Parts,
    body: Received,
    upgrade: Option<upgrade::Asked>,
) -> Response<Body> {
    let edge = ticket.conn.info.from_peer.as_ref();
    if edge.is_none_or(|edge| !ticket.core.shared.beside.link.still_has(edge)) {
        return not_here(&ticket, &parts, StatusCode::FORBIDDEN, STRANGER);
    }
    let service = parts.headers.remove(PEER_TARGET);
    let service = service.as_ref().and_then(|value| value.to_str().ok()).and_then(peer::wire::read_service);
    let target = service.as_ref().and_then(|service| ticket.core.named_by_peer(service));
    let Some(target) = &target else {
        let why = "this edge does not know that service";
        return not_here(&ticket, &parts, StatusCode::MISDIRECTED_REQUEST, why);
    };
    let plan: Arc<Plan> = ticket.core.shared.peer_plan.clone();
    let errand = Errand { plan: &plan, target, own_only: true, bucket: None };
    forward(ticket, errand, parts, body, upgrade).await
}
