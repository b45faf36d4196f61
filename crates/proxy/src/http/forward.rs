//! A request is passed on, and its answer back: what is known of it before and after its [`Journey`].

use std::rc::Rc;

use bytes::Bytes;
use http::header::SET_COOKIE;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use hyper::body::Incoming;
use landfall_plan::choose::Why;

use super::account::{Account, End};
use super::body::{BodyError, Progress};
use super::exchange::Exchange;
use super::handle::Ticket;
use super::journey::{Arrival, Errand, Head, Journey};
use super::{Body, Received, Upload, answer, headers, upgrade};
use crate::orca;
use crate::peer::wire;
use crate::ticker::Deadline;
use crate::upstream::{Fault, Local};

/// Passes a request on, and its answer back.
pub(super) async fn forward(
    mut ticket: Ticket,
    errand: Errand<'_>,
    mut parts: Parts,
    body: Received,
    upgrade: Option<upgrade::Asked>,
) -> Response<Body> {
    let core = ticket.core.clone();
    if errand.bucket.is_some() {
        errand.target.found(&core).await;
    }
    let mut local = core.local(errand.target);
    let mut account = Account::open(&ticket, &errand, &mut parts);
    let before = ticket.before.take();
    if before.as_ref().is_none_or(|before| before.target != errand.target.id) {
        local.budget.earn(local.service.retry_percent);
    }
    let progress = Rc::new(Progress::new(core.ticker.clone()));
    let upload = Upload::new(body, core.shared.config.limits.body_bytes, progress.clone());
    let mut journey = Journey::new(&ticket, &errand, &local, &parts, progress.clone(), before);
    journey.repeatable = upload.is_empty() && parts.method.is_idempotent() && upgrade.is_none();
    headers::for_endpoint(&mut parts.headers, &ticket.conn, parts.version);
    if let Some(bucket) = errand.bucket {
        bucket.address(&mut parts);
    }
    if let Some(upgrade) = &upgrade {
        upgrade.ask(&mut parts.headers);
    }
    let head = Head { method: parts.method, uri: parts.uri, headers: parts.headers };
    match journey.run(&mut local, head, upload).await {
        Ok(Arrival { response, held, choice, active, sender, why, retries }) => {
            let meter = local.meter(&core, errand.plan, errand.target, choice);
            let fresh_cookie = journey.fresh_cookie(&local, choice);
            let whole = journey.whole.take();
            let idle =
                if upgrade.is_some() { local.service.times.upgraded_idle } else { local.service.times.idle };
            meter.began(retries, why);
            if let Some(used) = orca::used(response.headers()) {
                meter.used(used);
            }
            if let Some(account) = &mut account {
                account.went(local.cluster(choice), why.word(), retries, journey.clusters.clone());
            }
            let exchange = Exchange {
                meter,
                status: response.status(),
                idle_for: idle,
                active,
                sender: Some(sender),
                account,
                keep: !errand.plan.proxy_header || errand.bucket.is_some(),
                broke_off: false,
                progress,
                ticket,
            };
            arrived(response, held, exchange, whole, upgrade, fresh_cookie)
        }
        Err(failed) => failure(&ticket, &errand, &local, &journey, failed, account),
    }
}

/// Nobody answers: what the client is told instead.
fn failure(
    ticket: &Ticket,
    errand: &Errand<'_>,
    local: &Local,
    journey: &Journey<'_>,
    (fault, choice, retries): (Fault, Option<u16>, u32),
    account: Option<Box<Account>>,
) -> Response<Body> {
    let choice = choice.unwrap_or(u16::MAX);
    let meter = local.meter(&ticket.core, errand.plan, errand.target, choice);
    meter.began(retries, Why::Local);
    let (status, took) = (journey.status(fault), journey.began.elapsed());
    meter.ended(status, took);
    if let Some(mut account) = account {
        account.went(local.cluster(choice), "", retries, journey.clusters.clone());
        account.failed(fault.word());
        account.close(ticket, &End { status, took, endpoint: None, broke_off: false });
    }
    let mut answer = answer::plain(status, fault.word());
    if ticket.conn.info.from_peer.is_some() {
        wire::fail(answer.headers_mut(), fault.word());
        if fault.reached_nobody() {
            wire::was_not_sent(answer.headers_mut());
        }
    }
    answer
}

fn arrived(
    mut response: Response<Incoming>,
    held: Bytes,
    mut exchange: Exchange,
    whole: Option<Deadline>,
    upgrade: Option<upgrade::Asked>,
    cookie: Option<HeaderValue>,
) -> Response<Body> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(upgrade) = upgrade else {
            // Nobody asked for it.
            exchange.broke_off(&BodyError::Idle);
            return answer::plain(Fault::Garbage.status(), Fault::Garbage.word());
        };
        let (core, idle) = (exchange.ticket.core.clone(), exchange.idle_for);
        upgrade.agree(core, &mut response, exchange, idle);
        return response.map(|_| Body::empty());
    }
    if response.status().is_success() && upgrade.is_some_and(|upgrade| upgrade.is_stream()) {
        exchange.status = Fault::Garbage.status();
        return answer::plain(exchange.status, "the endpoint speaks no WebSocket");
    }
    headers::for_client(response.headers_mut());
    if exchange.ticket.conn.info.from_peer.is_some() {
        wire::strip(response.headers_mut());
    } else {
        orca::strip(response.headers_mut());
    }
    if let Some(cookie) = cookie {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    let (parts, body) = response.into_parts();
    Response::from_parts(parts, Body::stream(held, body, exchange, whole))
}
