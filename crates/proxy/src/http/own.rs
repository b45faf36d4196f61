//! Requests that we answer ourselves: they are counted and written down like those that somebody else answers.

use std::sync::Arc;

use http::header::HOST;
use http::request::Parts;
use http::{Response, StatusCode};
use landfall_plan::choose::Why;

use super::handle::Ticket;
use super::{Body, answer};
use crate::log::Entry;
use crate::table::Plan;

/// Says no to a request that no route is known of.
pub(super) fn no(ticket: &Ticket, parts: &Parts, status: StatusCode, why: &'static str) -> Response<Body> {
    let shared = &ticket.core.shared;
    let plan = if ticket.conn.info.from_peer.is_some() { &shared.peer_plan } else { &shared.no_plan };
    count(ticket, parts, plan, Some(why), status);
    answer::told(status, &format!("{why}\n"))
}

/// Answers a request that asks of no path whether anybody is here.
pub(super) fn yes(ticket: &Ticket, parts: &Parts) -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    count(ticket, parts, &ticket.core.shared.no_plan, None, answer.status());
    answer
}

/// A request of a plan's route, or of none, was answered by us; `why` it could not be served, if so.
pub(super) fn count(ticket: &Ticket, parts: &Parts, plan: &Plan, why: Option<&str>, status: StatusCode) {
    let (shared, took) = (&ticket.core.shared, ticket.began.elapsed());
    let nobody: Arc<str> = "".into();
    let meter = shared.meters.meter(ticket.core.index, plan, &nobody, nobody.clone());
    meter.began(0, Why::Local);
    meter.ended(status, took);
    if shared.log.is_off() {
        return;
    }
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok()).or_else(|| parts.uri.host());
    shared.log.write(&Entry {
        client: ticket.conn.info.client,
        method: parts.method.as_str(),
        host: host.unwrap_or_default(),
        path: parts.uri.path(),
        route: &plan.name,
        service: "",
        cluster: "",
        endpoint: None,
        why: "",
        status,
        took,
        retries: 0,
        tried: &[],
        fault: why,
        broke_off: false,
        trace: None,
    });
}
