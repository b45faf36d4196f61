//! Whether a request is plain, and its head as the endpoint gets it.

use std::rc::Rc;
use std::sync::Arc;

use httparse::{EMPTY_HEADER, Header, Request, Status};
use landfall_api::landfall::BackendProtocol;

use super::{HEAD_MAX, Scratch};
use crate::core::Core;
use crate::http::{Conn, plain_host, plain_path};
use crate::table::{Action, Route, Table, Target};
use crate::trace;
use crate::upstream::Local;

/// Headers of a plain request.
const HEADERS_MAX: usize = 64;

/// What is in a client's bytes.
pub(super) enum Seen<'t> {
    /// A part of a head.
    Part,
    /// Something that is not plain.
    Odd,
    /// A plain request.
    Plain(Plain<'t>),
}

/// A plain request.
pub(super) struct Plain<'t> {
    /// The bytes of its head.
    pub(super) length: usize,
    /// Whether it is a HEAD.
    pub(super) is_head: bool,
    pub(super) route: &'t Route,
    pub(super) target: &'t Arc<Target>,
    pub(super) local: Rc<Local>,
}

/// What becomes of a header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is passed on.
    Keep,
    /// It is not.
    Drop,
    /// It is the host.
    Host,
    /// A request with it is not plain, unless it says `keep-alive`.
    Connection,
    /// A request with it is not plain.
    Odd,
}

/// Names that are not just passed on; in lower case.
const FATES: &[(&str, Fate)] = &[
    ("te", Fate::Odd),
    ("via", Fate::Odd),
    ("host", Fate::Host),
    ("expect", Fate::Odd),
    ("upgrade", Fate::Odd),
    ("x-real-ip", Fate::Drop),
    ("forwarded", Fate::Drop),
    ("connection", Fate::Connection),
    ("keep-alive", Fate::Drop),
    ("http2-settings", Fate::Drop),
    ("content-length", Fate::Odd),
    ("landfall-target", Fate::Drop),
    ("x-forwarded-for", Fate::Drop),
    ("x-forwarded-host", Fate::Drop),
    ("x-forwarded-port", Fate::Drop),
    ("proxy-connection", Fate::Drop),
    ("transfer-encoding", Fate::Odd),
    ("x-forwarded-proto", Fate::Drop),
    ("x-forwarded-client-cert-subject", Fate::Drop),
];

pub(super) fn fate(name: &str) -> Fate {
    let same = FATES.iter().find(|(one, _)| one.len() == name.len() && one.eq_ignore_ascii_case(name));
    same.map_or(Fate::Keep, |(_, fate)| *fate)
}

/// Looks at a client's bytes, and writes the head for the endpoint if they are a plain request.
pub(super) fn look<'t>(
    core: &Rc<Core>,
    conn: &Conn,
    table: &'t Table,
    bytes: &[u8],
    scratch: &mut Scratch,
) -> Seen<'t> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let Head { length, method, path, headers } =
        match read(bytes, &mut headers, core.shared.config.limits.head_bytes) {
            Read::Part => return Seen::Part,
            Read::Odd => return Seen::Odd,
            Read::Whole(head) => head,
        };
    let Some(host) = copy(method, path, headers, &conn.block, &mut scratch.up) else { return Seen::Odd };
    let Some((route, target, local)) = found(core, conn, table, host, path) else { return Seen::Odd };
    if is_followed(core, || headers.iter().any(|header| header.name.eq_ignore_ascii_case(trace::PARENT))) {
        return Seen::Odd;
    }
    Seen::Plain(Plain { length, is_head: method == "HEAD", route, target, local })
}

/// The bytes of a request that could be plain, and its head for an endpoint that is told nothing of the client.
pub(super) fn end(bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let Read::Whole(head) = read(bytes, &mut headers, HEAD_MAX) else { return None };
    let mut up = Vec::new();
    let host = copy(head.method, head.path, head.headers, &[], &mut up)?;
    (plain_host(host).is_some() && plain_path(head.path).is_some()).then_some((head.length, up))
}

/// What is in a client's bytes, whatever leads where.
enum Read<'h, 'b> {
    Part,
    Odd,
    Whole(Head<'h, 'b>),
}

/// The head of a GET or HEAD of HTTP/1.1.
struct Head<'h, 'b> {
    length: usize,
    method: &'b str,
    path: &'b str,
    headers: &'h [Header<'b>],
}

/// Reads a head that has no more than so many bytes.
fn read<'h, 'b>(bytes: &'b [u8], headers: &'h mut [Header<'b>], most: usize) -> Read<'h, 'b> {
    if bytes.is_empty() {
        return Read::Part;
    }
    let mut request = Request::new(headers);
    let length = match request.parse(bytes) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Read::Part,
        Err(_) => return Read::Odd,
    };
    let (Some(method), Some(path), Some(1)) = (request.method, request.path, request.version) else {
        return Read::Odd;
    };
    // hyper tells whoever sends too much.
    if length > HEAD_MAX.min(most) || !matches!(method, "GET" | "HEAD") {
        return Read::Odd;
    }
    Read::Whole(Head { length, method, path, headers: request.headers })
}

/// Whether somebody collects traces, and the request belongs to one or begins one.
pub(super) fn is_followed(core: &Core, belongs: impl FnOnce() -> bool) -> bool {
    let Some(tracer) = &core.shared.tracer else { return false };
    let begins = tracer.takes_next(core);
    core.trace_next.set(begins);
    begins || belongs()
}

/// Writes the head for the endpoint, with what it is told of the client; gives the host, or nothing when the request is not plain.
fn copy<'b>(
    method: &str,
    path: &str,
    headers: &[Header<'b>],
    client: &[u8],
    up: &mut Vec<u8>,
) -> Option<&'b [u8]> {
    up.extend_from_slice(method.as_bytes());
    up.push(b' ');
    up.extend_from_slice(path.as_bytes());
    up.extend_from_slice(b" HTTP/1.1\r\n");
    let mut host = None;
    for header in headers {
        match fate(header.name) {
            Fate::Drop => continue,
            Fate::Odd => return None,
            Fate::Connection => {
                if !header.value.eq_ignore_ascii_case(b"keep-alive") {
                    return None;
                }
                continue;
            }
            Fate::Host => {
                if host.replace(header.value).is_some() {
                    return None;
                }
            }
            Fate::Keep => {}
        }
        line(up, header.name.as_bytes(), header.value);
    }
    let host = host?;
    line(up, b"x-forwarded-host", host);
    up.extend_from_slice(client);
    up.extend_from_slice(b"\r\n");
    Some(host)
}

pub(super) fn line(to: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    to.extend_from_slice(name);
    to.extend_from_slice(b": ");
    to.extend_from_slice(value);
    to.extend_from_slice(b"\r\n");
}

/// The route of a plain request, if it leads to a service that is reached just so.
pub(super) fn found<'t>(
    core: &Rc<Core>,
    conn: &Conn,
    table: &'t Table,
    host: &[u8],
    path: &str,
) -> Option<(&'t Route, &'t Arc<Target>, Rc<Local>)> {
    let host = plain_host(host)?;
    let path = plain_path(path)?;
    let secure = conn.is_secure();
    let handshake = conn.info.tls.as_ref().and_then(|tls| tls.handshake.as_ref());
    let tls = &core.shared.beside.tls;
    if !handshake.map_or_else(|| tls.is_open(&host), |handshake| tls.admits(handshake, &host)) {
        return None;
    }
    let route: &Route = table.find(&host, path)?;
    let Action::Service(target) = &route.action else { return None };
    let odd =
        !secure && route.to_https.concerns(&host) || route.plan.proxy_header || route.plan.shuns(handshake);
    if odd || target.service.protocol != BackendProtocol::Http {
        return None;
    }
    let local = core.local(target);
    (local.is_simple() && !core.is_full(1)).then_some((route, target, local))
}
