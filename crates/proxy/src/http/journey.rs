//! A request on its way: a cluster is chosen, an endpoint there, and, where that fails and may be repeated, another.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{HOST, UPGRADE};
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use landfall_plan::choose::{Affinity, Ask, Why, luck_of};
use landfall_runtime::clock;
use smallvec::SmallVec;

use super::account::Tried;
use super::body::{Again, Progress};
use super::handle::Ticket;
use super::headers::{self, PEER_TARGET};
use super::held::{HELD_MAX, Held};
use super::{Before, Failed, Upload};
use crate::peer::wire;
use crate::table::{Bucket, Hash, Plan, Reach, Target};
use crate::ticker::Deadline;
use crate::upstream::{Active, Call, Endpoint, Fault, Local, Sender, at_hand, blame, connect, fault_of};

/// How often a request that waits looks whether its endpoint is still there.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a request that nobody takes is held back before all are tried again: at first, and each time twice as long.
const HOLD_FIRST: Duration = Duration::from_millis(100);
/// So often: together a second and a half.
const HOLDS_MAX: u32 = 4;

/// Where a request is to go.
pub(super) struct Errand<'a> {
    /// Whose route led here.
    pub(super) plan: &'a Plan,
    /// The service.
    pub(super) target: &'a Arc<Target>,
    /// Not to another cluster.
    pub(super) own_only: bool,
    /// It is outside the federation.
    pub(super) bucket: Option<&'a Bucket>,
}

/// A request's head as it is sent to an endpoint.
#[derive(Clone)]
pub(super) struct Head {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
}

/// An attempt that failed, and what was not sent.
struct Failure {
    fault: Fault,
    /// Nothing of it was sent.
    back: Option<(Head, Upload)>,
    /// The connection had been used before: it may just have been closed.
    reused: bool,
    /// Another edge says so itself: it is there, whatever is with those whom it has asked.
    told: bool,
}

/// What is known of a request while it is passed on.
pub(super) struct Journey<'a> {
    ticket: &'a Ticket,
    errand: &'a Errand<'a>,
    pub(super) began: Instant,
    /// When the last attempt began.
    asked: Instant,
    progress: Rc<Progress>,
    /// It may be sent twice.
    pub(super) repeatable: bool,
    pub(super) whole: Option<Deadline>,
    tried: SmallVec<[Rc<Endpoint>; 4]>,
    passed: SmallVec<[u16; 4]>,
    /// The clusters of all that were tried, for whoever tells of it.
    pub(super) clusters: Tried,
    /// So often it was sent to somebody who did not answer.
    sent: u32,
    /// So often it was held back.
    holds: u32,
    luck: u64,
    canary: bool,
    cookie: Option<u16>,
    /// What leads to its endpoint, where that is not chosen by who is less busy.
    key: Option<u64>,
    /// Who was asked before, and did not answer.
    failed: Option<Failed>,
}

/// An answer has begun.
pub(super) struct Arrival {
    pub(super) response: Response<Incoming>,
    /// What is here of its body.
    pub(super) held: Bytes,
    pub(super) choice: u16,
    pub(super) active: Active,
    pub(super) sender: Sender,
    pub(super) why: Why,
    pub(super) retries: u32,
}

impl<'a> Journey<'a> {
    pub(super) fn new(
        ticket: &'a Ticket,
        errand: &'a Errand<'a>,
        local: &Local,
        parts: &Parts,
        progress: Rc<Progress>,
        before: Option<Before>,
    ) -> Self {
        let chooser = &local.service.chooser;
        let drawn = before.as_ref().map(|before| before.luck);
        let (luck, cookie) = match chooser.affinity() {
            Affinity::None => (drawn.unwrap_or_else(|| ticket.core.luck()), None),
            Affinity::ClientIp => match ticket.conn.info.client.ip().to_canonical() {
                std::net::IpAddr::V4(ip) => (luck_of(&ip.octets()), None),
                std::net::IpAddr::V6(ip) => (luck_of(&ip.octets()), None),
            },
            Affinity::Cookie { name, .. } => {
                let token = headers::cookie(&parts.headers, name);
                (ticket.core.luck(), token.and_then(|token| chooser.by_token(token)))
            }
        };
        let canary = chooser.leads_to_canary(|name, value| {
            parts.headers.get_all(name).iter().any(|one| one.as_bytes() == value.as_bytes())
        });
        let began = ticket.began;
        let whole = local.service.times.whole.map(|whole| ticket.core.ticker.after(whole));
        Self {
            ticket,
            errand,
            began,
            asked: began,
            progress,
            repeatable: false,
            whole,
            tried: SmallVec::new(),
            passed: SmallVec::new(),
            clusters: Tried::new(),
            sent: 0,
            holds: 0,
            luck,
            canary,
            cookie,
            key: local.service.hash.as_ref().and_then(|hash| key(hash, ticket, parts)),
            // Its route may lead to somebody else by now, who has not failed.
            failed: before
                .filter(|before| before.target == errand.target.id)
                .and_then(|before| before.failed),
        }
    }

    /// Chooses, asks, and asks elsewhere, until an answer begins or there is no sense in it any more.
    pub(super) async fn run(
        &mut self,
        local: &mut Rc<Local>,
        head: Head,
        upload: Upload,
    ) -> Result<Arrival, (Fault, Option<u16>, u32)> {
        let mut next = Some((head, upload));
        let (mut retries, mut last) = (0, (Fault::Nowhere, None));
        if let Some(Failed { fault, endpoint, choice, version }) = self.failed.take() {
            // Choices are counted anew in another version: then it was none of these.
            last = (fault, Some(if version == local.version { choice } else { u16::MAX }));
            if !self.moves_on(local, &endpoint, &mut last, &mut retries).await {
                return Err((last.0, last.1, retries));
            }
        }
        while let Some((head, upload)) = next.take() {
            let Some((choice, why, active)) = self.choose(local) else {
                // All were tried, and none took it.
                if last.1.is_some() && self.hold(local).await {
                    next = Some((head, upload));
                    continue;
                }
                let full = last.1.is_none() && local.has_endpoints(|at| self.allows(local, at));
                last.0 = if full { Fault::Full } else { last.0 };
                break;
            };
            // What may be repeated is kept until it is known that it need not be.
            let spare = self.may_send_again(local).then(|| head.clone());
            let failure = match self.attempt(&local.clone(), &active.endpoint, head, upload).await {
                Ok((mut response, sender)) => {
                    match self.whole_if_short(local, &active.endpoint, &mut response).await {
                        Ok(held) => {
                            self.answered(local, choice, &active.endpoint, response.status());
                            return Ok(Arrival { response, held, choice, active, sender, why, retries });
                        }
                        Err(fault) => Failure { fault, back: None, reused: false, told: false },
                    }
                }
                Err(failure) => failure,
            };
            last = (failure.fault, Some(choice));
            self.failed(local, choice, &active.endpoint, &failure);
            next = failure.back.or_else(|| spare.map(|head| (head, Upload::Empty)));
            let endpoint = active.endpoint.clone();
            drop(active);
            if next.is_none() || !self.moves_on(local, &endpoint, &mut last, &mut retries).await {
                break;
            }
        }
        Err((last.0, last.1, retries))
    }

    /// An endpoint did not answer: whether there is another attempt.
    async fn moves_on(
        &mut self,
        local: &mut Rc<Local>,
        endpoint: &Rc<Endpoint>,
        last: &mut (Fault, Option<u16>),
        retries: &mut u32,
    ) -> bool {
        if !last.0.may_repeat() || local.service.retries == 0 {
            return false;
        }
        self.tried.push(endpoint.clone());
        self.clusters.push(local.cluster(last.1.unwrap_or(u16::MAX)));
        if !self.goes_on(local, last, *retries).await {
            return false;
        }
        *retries += 1;
        self.asked = clock::instant();
        true
    }

    /// Whether somebody else may be sent it, should this one not answer.
    fn may_send_again(&self, local: &Local) -> bool {
        self.repeatable && self.sent < local.service.retries
    }

    /// Whether there is another attempt. What somebody was sent counts, and costs a try of the budget; where nothing was sent nobody
    /// is burdened twice, but after as many attempts as may be it is held back before the next.
    async fn goes_on(
        &mut self,
        local: &mut Rc<Local>,
        last: &mut (Fault, Option<u16>),
        retries: u32,
    ) -> bool {
        // The last attempt goes to another cluster, if there is one.
        if retries + 1 >= local.service.retries {
            self.passed.extend(last.1);
        }
        if last.0.nothing_sent() {
            if retries >= local.service.retries {
                return self.hold(local).await;
            }
        } else {
            self.sent += 1;
            if !local.budget.spend() {
                last.0 = Fault::Budget;
                return false;
            }
        }
        self.catch_up(local);
        true
    }

    /// Holds the request back for a moment; then all may be tried again. While one cluster is lost, the way to the next may take its
    /// time. It costs a try of the budget, so that nobody waits in vain for a service that is nowhere; and another edge that has sent it
    /// here may know a better place.
    async fn hold(&mut self, local: &mut Rc<Local>) -> bool {
        let late = self.whole.as_ref().is_some_and(Deadline::is_over);
        let done = self.holds >= HOLDS_MAX || local.service.retries == 0 || late;
        if done || self.errand.own_only || !local.budget.spend() {
            return false;
        }
        self.ticket.core.ticker.after(HOLD_FIRST * (1 << self.holds)).await;
        self.holds += 1;
        self.tried.clear();
        self.passed.clear();
        self.catch_up(local);
        true
    }

    /// The next attempt goes by what is known now: what failed may be gone, and others may have come.
    fn catch_up(&mut self, local: &mut Rc<Local>) {
        let now = self.ticket.core.local(self.errand.target);
        if now.version != local.version {
            // Choices are counted anew.
            self.passed.clear();
            self.cookie = None;
            *local = now;
        }
    }

    /// The cluster, and the endpoint there. Where nothing is left that nothing is known against, what is left is tried.
    fn choose(&self, local: &Local) -> Option<(u16, Why, Active)> {
        let (core, now_ms) = (&self.ticket.core, self.ticket.core.ticker.now_ms());
        let chooser = &local.service.chooser;
        for (passed, desperate) in [(self.passed.as_slice(), false), (&[], false), (&[], true)] {
            let ask = Ask { luck: self.luck, canary: self.canary, affinity: self.cookie, tried: passed };
            let usable = |at: u16| {
                let fit = if desperate { local.has_any(at) } else { local.is_usable(at, now_ms) };
                self.allows(local, at)
                    && fit
                    && local.pick(at, core, &self.tried, desperate, self.key).is_some()
            };
            let Some((choice, why)) = chooser.pick(&ask, usable) else { continue };
            let endpoint = local.pick(choice, core, &self.tried, desperate, self.key);
            if let Some(active) = endpoint.and_then(|endpoint| local.enter(choice, endpoint)) {
                return Some((choice, why, active));
            }
        }
        None
    }

    /// Whether a choice is open to it: what another edge has sent goes no further.
    fn allows(&self, local: &Local, at: u16) -> bool {
        let place = local.service.places.get(usize::from(at));
        !self.errand.own_only || place.is_some_and(|place| place.choice.own)
    }

    /// Sends a request to an endpoint, over a connection that is open or a new one.
    async fn attempt(
        &mut self,
        local: &Local,
        endpoint: &Rc<Endpoint>,
        mut head: Head,
        mut upload: Upload,
    ) -> Result<(Response<Incoming>, Sender), Failure> {
        let core = &self.ticket.core;
        let call = Call {
            target: self.errand.target,
            conn: &self.ticket.conn.info,
            proxy_header: self.errand.plan.proxy_header && self.errand.bucket.is_none(),
            upgrade: head.headers.contains_key(UPGRADE),
        };
        let alone = call.is_alone(&endpoint.reach);
        let linked = matches!(endpoint.reach, Reach::Peer { .. }) && !alone;
        loop {
            let kept = if alone { None } else { endpoint.take(call.upgrade) };
            let reused = kept.is_some();
            let mut sender = match kept.or_else(|| at_hand(core, &endpoint.reach, call)) {
                Some(sender) => sender,
                // In a box: handshakes are large, and most requests need none.
                None => {
                    match Box::pin(connect(core, &endpoint.reach, call, local.service.times.connect)).await {
                        Ok(sender) => {
                            if let Some(shared) = sender.share().filter(|_| !alone && !linked) {
                                endpoint.give(shared, core.ticker.now_ms(), 1);
                            }
                            sender
                        }
                        Err(fault) => {
                            return Err(Failure {
                                fault,
                                back: Some((head, upload)),
                                reused: false,
                                told: false,
                            });
                        }
                    }
                }
            };
            if !self.is_ready(local, &mut sender).await {
                if reused {
                    continue;
                }
                let back = Some((head, upload));
                return Err(Failure { fault: Fault::Connect, back, reused, told: false });
            }
            // Another edge may find that it can send it to nobody, and an endpoint of HTTP/2 may say that it has not looked at it.
            let may_come_back = sender.takes_many() && !self.repeatable;
            let again = if may_come_back { upload.keep() } else { None };
            let again = again.map(|again| (head.clone(), again));
            let request = self.request(&endpoint.reach, &sender, head, upload);
            match self.send(local, endpoint, &mut sender, request).await {
                // The other edge has no endpoint that answers: what it says is not for the client.
                Ok(response) if linked && wire::failure(response.headers()).is_some() => {
                    return Err(declined(&response, again));
                }
                Ok(response) => {
                    if let Some((_, again)) = again {
                        again.forget();
                    }
                    return Ok((response, sender));
                }
                // It was closed before anything was sent: that is no failure of the endpoint's.
                Err(Failure { back: Some(back), .. }) if reused => (head, upload) = back,
                Err(failure) => {
                    let refused = again.filter(|_| failure.fault == Fault::Refused);
                    let back = refused.and_then(|(head, again)| Some((head, again.upload()?)));
                    return Err(Failure { reused, back: back.or(failure.back), ..failure });
                }
            }
        }
    }

    /// Waits until a connection takes the request. One that others share has its own limits.
    async fn is_ready(&self, local: &Local, sender: &mut Sender) -> bool {
        let wait = local.service.times.connect;
        let wait = if sender.takes_many() { local.service.times.first_byte } else { wait };
        tokio::select! {
            biased;
            ready = sender.ready() => ready,
            () = self.ticket.core.ticker.after(wait) => false,
        }
    }

    /// Sends a request and waits until its answer begins.
    async fn send(
        &mut self,
        local: &Local,
        endpoint: &Rc<Endpoint>,
        sender: &mut Sender,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, Failure> {
        let many = sender.takes_many();
        let core = self.ticket.core.clone();
        let mut sent = pin!(sender.send(request));
        let mut look = core.ticker.after(LOOK_EVERY);
        loop {
            tokio::select! {
                biased;
                answer = &mut sent => return answer.map_err(|mut error| {
                    let back = error.take_message().map(|request| take_apart(request, many));
                    let fault = if back.is_some() { Fault::Connect } else { fault_of(error.error()) };
                    Failure { fault, back, reused: false, told: false }
                }),
                () = &mut look => {
                    if let Some(fault) = self.impatient(local, endpoint) {
                        return Err(Failure { fault, back: None, reused: false, told: false });
                    }
                    look.reset(LOOK_EVERY);
                }
            }
        }
    }

    /// Waits until a short answer is here whole, and gives what is here of its body. One that breaks off can be asked for elsewhere,
    /// or be called a failure, as long as the client has seen nothing of it.
    async fn whole_if_short(
        &mut self,
        local: &Local,
        endpoint: &Rc<Endpoint>,
        response: &mut Response<Incoming>,
    ) -> Result<Bytes, Fault> {
        let Some(mut held) = Held::begin(response) else { return Ok(Bytes::new()) };
        let (mut waited, most) = (Duration::ZERO, HELD_MAX.min(local.service.times.idle));
        let mut look = self.ticket.core.ticker.after(LOOK_EVERY);
        while !held.is_whole() && waited < most {
            tokio::select! {
                biased;
                more = held.more(response.body_mut()) => more.map_err(|_| Fault::BrokeOff)?,
                () = &mut look => {
                    if self.is_lost(local, endpoint) {
                        return Err(Fault::Withdrawn);
                    }
                    waited += LOOK_EVERY;
                    look.reset(LOOK_EVERY);
                }
            }
        }
        Ok(held.bytes())
    }

    /// Whether waiting has no sense any more.
    fn impatient(&mut self, local: &Local, endpoint: &Rc<Endpoint>) -> Option<Fault> {
        if self.progress.is_too_long() {
            return Some(Fault::TooLong);
        }
        let late = self.whole.as_ref().is_some_and(Deadline::is_over);
        if late || self.progress.still_for() > local.service.times.first_byte {
            return Some(Fault::Timeout);
        }
        self.is_lost(local, endpoint).then_some(Fault::Withdrawn)
    }

    /// Whether an endpoint that was asked is given up, and somebody else can be asked.
    fn is_lost(&self, local: &Local, endpoint: &Rc<Endpoint>) -> bool {
        let core = &self.ticket.core;
        let now = core.local(self.errand.target);
        let changed = now.version != local.version || endpoint.is_out(core.ticker.now_ms());
        let given_up = || changed && !now.stands_by(endpoint, core.ticker.now_ms());
        // It need not be waited for until its connections end.
        let silent = || match &endpoint.reach {
            Reach::Peer { edge, .. } => core.peers.is_silent(edge),
            Reach::Direct(_) => false,
        };
        // One that is given up may answer all the same: somebody else must be there to be asked.
        let elsewhere = || now.may_leave(endpoint, &self.tried, core, |at| self.allows(&now, at));
        self.may_send_again(local) && (given_up() || silent()) && elsewhere()
    }

    /// A request as it is written to a connection: HTTP/2 has the host in the target.
    fn request(&self, reach: &Reach, sender: &Sender, head: Head, upload: Upload) -> Request<Upload> {
        let mut request = Request::new(upload);
        *request.method_mut() = head.method;
        *request.headers_mut() = head.headers;
        *request.uri_mut() = head.uri;
        if !sender.takes_many() {
            if let Some(interim) = &self.ticket.interim {
                interim.listen(&mut request);
            }
            return request;
        }
        if let Reach::Peer { .. } = reach
            && let Some(service) = wire::write_service(&self.errand.target.service)
        {
            request.headers_mut().insert(PEER_TARGET, service);
        }
        let host = request.headers_mut().remove(HOST);
        let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let mut uri = std::mem::take(request.uri_mut()).into_parts();
        uri.scheme = Some(Scheme::HTTP);
        uri.authority = authority.or_else(|| Some(Authority::from_static("localhost")));
        *request.uri_mut() = Uri::from_parts(uri).unwrap_or_default();
        request
    }

    fn answered(&self, local: &Local, choice: u16, endpoint: &Endpoint, status: StatusCode) {
        if status.is_server_error() {
            self.count_failure(local, choice, endpoint, false);
        } else {
            endpoint.answered();
            if local.service.outlier.slower.is_some() {
                endpoint.took(self.asked.elapsed());
            }
        }
    }

    fn failed(&self, local: &Local, choice: u16, endpoint: &Endpoint, failure: &Failure) {
        let stale = failure.reused && failure.fault == Fault::Reset;
        if failure.fault.counts_against_endpoint() && !stale {
            // A connection to another edge ends when the edge falls silent.
            let ended = matches!(failure.fault, Fault::Reset | Fault::BrokeOff);
            let silent = ended && !failure.told && matches!(endpoint.reach, Reach::Peer { .. });
            self.count_failure(local, choice, endpoint, silent || failure.fault.is_unreachable());
        }
    }

    fn count_failure(&self, local: &Local, choice: u16, endpoint: &Endpoint, unreachable: bool) {
        blame(&self.ticket.core, local, self.errand.target, choice, endpoint, unreachable);
    }

    /// What the client is told of a fault.
    pub(super) fn status(&self, fault: Fault) -> StatusCode {
        if self.progress.is_too_long() { StatusCode::PAYLOAD_TOO_LARGE } else { fault.status() }
    }

    /// The cookie that leads a client back, if it has not got it.
    pub(super) fn fresh_cookie(&self, local: &Local, choice: u16) -> Option<HeaderValue> {
        let Affinity::Cookie { name, ttl_s } = local.service.chooser.affinity() else { return None };
        if self.cookie == Some(choice) {
            return None;
        }
        let token = &local.service.chooser.choice(choice)?.token;
        let age = ttl_s.map(|ttl_s| format!("; Max-Age={ttl_s}")).unwrap_or_default();
        let secure = if self.ticket.conn.is_secure() { "; Secure" } else { "" };
        HeaderValue::from_str(&format!("{name}={token}; Path=/; HttpOnly; SameSite=Lax{age}{secure}")).ok()
    }
}

/// The key of a request: what leads to its endpoint.
fn key(hash: &Hash, ticket: &Ticket, parts: &Parts) -> Option<u64> {
    let of = |bytes: &[u8]| Some(luck_of(bytes));
    match hash {
        // Another edge tells who the client is.
        Hash::Client if ticket.conn.info.from_peer.is_some() => {
            of(parts.headers.get(headers::FORWARDED_FOR)?.as_bytes())
        }
        Hash::Client => of(ticket.conn.client.as_bytes()),
        Hash::Header(name) => of(parts.headers.get(name)?.as_bytes()),
        Hash::Cookie(name) => of(headers::cookie(&parts.headers, name)?),
        Hash::Path => of(parts.uri.path().as_bytes()),
    }
}

/// Another edge has answered for itself. Where it has sent nothing to anybody, the request is taken back.
fn declined(response: &Response<Incoming>, again: Option<(Head, Again)>) -> Failure {
    if !wire::is_unsent(response.headers()) {
        return Failure { fault: Fault::Reset, back: None, reused: false, told: true };
    }
    let back = again.and_then(|(head, again)| Some((head, again.upload()?)));
    Failure { fault: Fault::of_unsent(response.status()), back, reused: false, told: true }
}

/// Takes back a request that was not sent.
fn take_apart(request: Request<Upload>, many: bool) -> (Head, Upload) {
    let (mut parts, upload) = request.into_parts();
    if many {
        let host = parts.uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
        if let Some(host) = host {
            parts.headers.insert(HOST, host);
        }
        parts.headers.remove(PEER_TARGET);
        parts.uri = parts.uri.path_and_query().cloned().map(Uri::from).unwrap_or_default();
    }
    (Head { method: parts.method, uri: parts.uri, headers: parts.headers }, upload)
}
