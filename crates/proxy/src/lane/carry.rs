//! A plain request is carried to an endpoint, and its answer back.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::StatusCode;
use landfall_plan::choose::{Ask, Why};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::chunks::Chunks;
use super::request::Plain;
use super::response::{self, Ends, Head, Seen};
use super::{HEAD_MAX, Outcome, Scratch};
use crate::clients::Order;
use crate::core::Core;
use crate::http::{Conn, HELD_MAX, SHORT_MAX, Ticket};
use crate::log::Entry;
use crate::meter::Meter;
use crate::table::Reach;
use crate::upstream::{Active, Fault, Local, blame};

/// What is read at once from an endpoint: of a head, and of a body.
const READ_HEAD: usize = 4 << 10;
const READ_BODY: usize = 32 << 10;
/// How often a request that waits looks whether its endpoint is still there.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Heads that an endpoint may send before that of its answer.
const HINTS_MAX: u32 = 32;

/// What a client is told whose endpoint does not answer.
const TIMEOUT: &[u8] = b"HTTP/1.1 504 Gateway Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
/// One whose request broke off, and is not to be sent twice.
const BROKEN: &[u8] = b"HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
/// And one whose request may not be sent once more.
const NOT_AGAIN: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Carries a plain request; its head stands in the scratch.
pub(super) async fn carry<S>(
    core: &Rc<Core>,
    conn: &Rc<Conn>,
    plain: &Plain<'_>,
    client: &mut S,
    scratch: &mut Scratch,
) -> Outcome
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ticket = Ticket::new(core.clone(), conn.clone());
    let began = ticket.began;
    let local = &*plain.local;
    local.budget.earn(local.service.retry_percent);
    let Some((choice, why, active)) = choose(core, local) else { return Outcome::Left };
    let Reach::Direct(address) = active.endpoint.reach else { return Outcome::Left };
    let mut trip =
        Trip { core, conn, plain, active: &active, choice, why, began, hints: Cell::new(0), broke_off: None };
    let (endpoint, head) = match trip.arrive(address, client, scratch).await {
        Ok(arrived) => arrived,
        Err(fault) => {
            let unreachable = fault.nothing_sent();
            if fault.counts_against_endpoint() {
                blame(core, local, plain.target, choice, &active.endpoint, unreachable);
            }
            return trip.fail(fault, client, scratch).await;
        }
    };
    let meter = local.meter(core, &plain.route.plan, plain.target, choice);
    meter.began(0, why);
    if let Some(used) = head.used {
        meter.used(used);
    }
    if head.status >= 500 {
        blame(core, local, plain.target, choice, &active.endpoint, false);
    } else {
        active.endpoint.answered();
        if local.service.outlier.slower.is_some() {
            active.endpoint.took(began.elapsed());
        }
    }
    let status = StatusCode::from_u16(head.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let delivered = trip.deliver(endpoint, &head, client, scratch, &meter).await;
    meter.ended(status, began.elapsed());
    trip.tell(scratch, status, trip.broke_off);
    delivered
}

/// The method, the host and the path of a head that is sent to an endpoint.
fn asked(up: &[u8]) -> (&str, &str, &str) {
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    let line = text(up.split(|byte| *byte == b'\r').next().unwrap_or_default());
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let lines = up.split(|byte| *byte == b'\n');
    let host = lines
        .filter_map(|line| line.split_at_checked(5))
        .find(|(name, _)| name.eq_ignore_ascii_case(b"host:"));
    let host = host.map_or("", |(_, value)| text(value.trim_ascii()));
    (method, host, target.split('?').next().unwrap_or_default())
}

fn choose(core: &Core, local: &Local) -> Option<(u16, Why, Active)> {
    let now_ms = core.ticker.now_ms();
    let ask = Ask { luck: core.luck(), ..Ask::default() };
    let (choice, why) = local.service.chooser.pick(&ask, |at| local.is_usable(at, now_ms))?;
    let endpoint = local.pick(choice, core, &[], false, None)?;
    Some((choice, why, local.enter(choice, endpoint)?))
}

/// A request on its way.
struct Trip<'a> {
    core: &'a Rc<Core>,
    conn: &'a Conn,
    plain: &'a Plain<'a>,
    active: &'a Active,
    choice: u16,
    why: Why,
    began: Instant,
    /// Heads that came before that of its answer.
    hints: Cell<u32>,
    /// Its answer broke off, and why.
    broke_off: Option<&'static str>,
}

impl Trip<'_> {
    /// Writes it down, if it is one of those.
    fn tell(&self, scratch: &Scratch, status: StatusCode, fault: Option<&str>) {
        let log = &self.core.shared.log;
        if log.is_off() {
            return;
        }
        let (method, host, path) = asked(&scratch.up);
        log.write(&Entry {
            client: self.conn.info.client,
            method,
            host,
            path,
            route: &self.plain.route.plan.name,
            service: &self.plain.target.name,
            cluster: &self.plain.local.cluster(self.choice),
            endpoint: Some(&self.active.endpoint),
            why: self.why.word(),
            status,
            took: self.began.elapsed(),
            retries: 0,
            tried: &[],
            fault,
            broke_off: self.broke_off.is_some(),
            trace: None,
        });
    }

    /// No answer has begun: hyper asks again, unless there is no sense in it.
    async fn fail<S>(&self, fault: Fault, client: &mut S, scratch: &Scratch) -> Outcome
    where
        S: AsyncWrite + Unpin,
    {
        let (fault, words) = match fault {
            Fault::Timeout => (fault, TIMEOUT),
            // The client has a part of a head, and takes no more.
            Fault::Body => return Outcome::Over,
            // One that the plan has dropped is not asked again, whatever it was sent.
            Fault::Withdrawn => return Outcome::Left,
            // The others were sent something, and may be asked twice; if anybody may.
            _ if !fault.nothing_sent() && self.plain.local.service.retries == 0 => (fault, BROKEN),
            _ if !fault.nothing_sent() && !self.plain.local.budget.spend() => (Fault::Budget, NOT_AGAIN),
            _ => return Outcome::Left,
        };
        let meter = self.plain.local.meter(self.core, &self.plain.route.plan, self.plain.target, self.choice);
        meter.began(0, self.why);
        meter.ended(fault.status(), self.began.elapsed());
        self.tell(scratch, fault.status(), Some(fault.word()));
        let _ = client.write_all(words).await;
        Outcome::Over
    }

    /// Sends the request, and reads the head of its answer.
    async fn arrive<S>(
        &mut self,
        address: std::net::SocketAddr,
        client: &mut S,
        scratch: &mut Scratch,
    ) -> Result<(TcpStream, Head), Fault>
    where
        S: AsyncWrite + Unpin,
    {
        loop {
            let kept = self.active.endpoint.take_stream();
            let reused = kept.is_some();
            let mut stream = match kept {
                Some(stream) => stream,
                None => self.connect(address).await?,
            };
            match self.ask(&mut stream, client, scratch).await {
                Ok(head) => return Ok((stream, head)),
                // It was closed while nobody used it; a plain request may be sent twice.
                Err(Fault::Reset) if reused && scratch.back.is_empty() => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    async fn connect(&self, address: std::net::SocketAddr) -> Result<TcpStream, Fault> {
        if !self.core.shared.guard.admits(address) {
            return Err(Fault::Connect);
        }
        let wait = self.plain.local.service.times.connect;
        let stream = timed(self.core, wait, TcpStream::connect(address)).await;
        let stream = stream.ok_or(Fault::ConnectTimeout)?.map_err(|_| Fault::Connect)?;
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    async fn ask<S>(
        &self,
        stream: &mut TcpStream,
        client: &mut S,
        scratch: &mut Scratch,
    ) -> Result<Head, Fault>
    where
        S: AsyncWrite + Unpin,
    {
        scratch.back.clear();
        stream.write_all(&scratch.up).await.map_err(|_| Fault::Reset)?;
        let mut look = self.core.ticker.after(LOOK_EVERY);
        loop {
            scratch.back.reserve(READ_HEAD);
            tokio::select! {
                biased;
                read = stream.read_buf(&mut scratch.back) => match read {
                    Ok(0) | Err(_) => return Err(Fault::Reset),
                    Ok(_) => {}
                },
                () = &mut look => {
                    self.patience()?;
                    look.reset(LOOK_EVERY);
                    continue;
                }
            }
            if let Some(head) = self.read_head(client, scratch).await? {
                self.whole_if_short(stream, &head, scratch).await?;
                return Ok(head);
            }
        }
    }

    /// Waits until a short answer is here whole: one that breaks off can be asked for elsewhere as long as the client has seen
    /// nothing of it.
    async fn whole_if_short(
        &self,
        stream: &mut TcpStream,
        head: &Head,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let Ends::Length(length @ 1..=SHORT_MAX) = head.ends else { return Ok(()) };
        let whole = head.length.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        if scratch.back.len() >= whole {
            return Ok(());
        }
        let (mut waited, most) = (Duration::ZERO, HELD_MAX.min(self.plain.local.service.times.idle));
        let mut look = self.core.ticker.after(LOOK_EVERY);
        while scratch.back.len() < whole && waited < most {
            scratch.back.reserve(READ_HEAD);
            tokio::select! {
                biased;
                read = stream.read_buf(&mut scratch.back) => match read {
                    Ok(0) | Err(_) => return Err(Fault::BrokeOff),
                    Ok(_) => {}
                },
                () = &mut look => {
                    if self.is_lost() {
                        return Err(Fault::Withdrawn);
                    }
                    waited += LOOK_EVERY;
                    look.reset(LOOK_EVERY);
                }
            }
        }
        Ok(())
    }

    /// Reads heads until that of the answer itself; those before it are passed on at once.
    async fn read_head<S>(&self, client: &mut S, scratch: &mut Scratch) -> Result<Option<Head>, Fault>
    where
        S: AsyncWrite + Unpin,
    {
        loop {
            scratch.out.clear();
            match response::look(&scratch.back, self.plain.is_head, &mut scratch.out) {
                Seen::Part if scratch.back.len() > HEAD_MAX * 4 => return Err(Fault::Garbage),
                Seen::Part => return Ok(None),
                Seen::Bad => return Err(Fault::Garbage),
                Seen::Whole(head) if head.is_interim() => {
                    self.hints.set(self.hints.get() + 1);
                    if self.hints.get() > HINTS_MAX {
                        return Err(Fault::Garbage);
                    }
                    scratch.out.extend_from_slice(b"\r\n");
                    let idle = self.plain.local.service.times.idle;
                    let written = timed(self.core, idle, client.write_all(&scratch.out)).await;
                    written.and_then(Result::ok).ok_or(Fault::Body)?;
                    scratch.back.drain(..head.length);
                    if scratch.back.is_empty() {
                        return Ok(None);
                    }
                }
                Seen::Whole(head) => return Ok(Some(head)),
            }
        }
    }

    /// Whether there is still a sense in waiting.
    fn patience(&self) -> Result<(), Fault> {
        if self.began.elapsed() > self.plain.local.service.times.first_byte {
            return Err(Fault::Timeout);
        }
        if self.is_lost() { Err(Fault::Withdrawn) } else { Ok(()) }
    }

    /// Whether the endpoint is given up, and somebody else can be asked.
    fn is_lost(&self) -> bool {
        let (core, local) = (self.core, &self.plain.local);
        let (now, now_ms) = (core.local(self.plain.target), core.ticker.now_ms());
        let endpoint = &self.active.endpoint;
        let changed = now.version != local.version || endpoint.is_out(now_ms);
        let lost = changed && !now.stands_by(endpoint, now_ms);
        lost && now.service.retries > 0 && now.may_leave(endpoint, &[], core, |_| true)
    }

    /// Passes an answer on, and keeps the connection to the endpoint if all is well.
    async fn deliver<S>(
        &mut self,
        mut endpoint: TcpStream,
        head: &Head,
        client: &mut S,
        scratch: &mut Scratch,
        meter: &Meter,
    ) -> Outcome
    where
        S: AsyncWrite + Unpin,
    {
        let closes = self.conn.state.order() != Order::Go || head.ends == Ends::Close;
        self.end_head(head, closes, &mut scratch.out);
        let idle = self.plain.local.service.times.idle;
        let mut body = Rest::new(head.ends);
        let mut from = head.length;
        loop {
            let came = scratch.back.get(from..).unwrap_or_default();
            let Some(belongs) = body.follow(came) else {
                self.break_off(meter, "the answer broke off: it is no body");
                return Outcome::Over;
            };
            scratch.out.extend_from_slice(came.get(..belongs).unwrap_or_default());
            let surplus = belongs < came.len();
            // One write for a small answer; a large one goes as it comes.
            let written = timed(self.core, idle, client.write_all(&scratch.out)).await;
            if !matches!(written, Some(Ok(()))) {
                return Outcome::Over;
            }
            if body.is_over() {
                // TLS may hold the last bytes back.
                let _ = client.flush().await;
                if head.keeps && !surplus {
                    let limits = &self.core.shared.config.limits;
                    let now_ms = self.core.ticker.now_ms();
                    self.active.endpoint.give_stream(endpoint, now_ms, limits.idle_per_endpoint);
                }
                return if closes { Outcome::Over } else { Outcome::Answered };
            }
            scratch.out.clear();
            scratch.back.clear();
            from = 0;
            scratch.back.reserve(READ_BODY);
            match timed(self.core, idle, endpoint.read_buf(&mut scratch.back)).await {
                Some(Ok(read)) if read > 0 => {}
                Some(Ok(_)) if head.ends == Ends::Close => {
                    let _ = client.shutdown().await;
                    return Outcome::Over;
                }
                None => {
                    self.break_off(meter, "the answer broke off: nothing came for too long");
                    return Outcome::Over;
                }
                Some(_) => {
                    self.break_off(meter, "the answer broke off: the sender is gone");
                    return Outcome::Over;
                }
            }
        }
    }

    fn break_off(&mut self, meter: &Meter, why: &'static str) {
        meter.broke_off();
        self.broke_off = Some(why);
    }

    /// What is ours to tell in an answer's head, and its end.
    fn end_head(&self, head: &Head, closes: bool, out: &mut Vec<u8>) {
        if !head.dated {
            self.core.write_date(out);
        }
        if let Some(hsts) = self.plain.route.plan.hsts.as_ref().filter(|_| self.conn.is_secure()) {
            super::request::line(out, b"strict-transport-security", hsts.as_bytes());
        }
        if closes {
            out.extend_from_slice(b"connection: close\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// What is left of a body.
pub(super) enum Rest {
    Length(u64),
    Chunked(Chunks),
    Close,
}

impl Rest {
    pub(super) fn new(ends: Ends) -> Self {
        match ends {
            Ends::Length(length) => Self::Length(length),
            Ends::Chunked => Self::Chunked(Chunks::new()),
            Ends::Close => Self::Close,
        }
    }

    /// How many of these bytes belong to the body; none when they are unsound.
    pub(super) fn follow(&mut self, came: &[u8]) -> Option<usize> {
        match self {
            Self::Length(left) => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(came.len());
                *left -= u64::try_from(take).unwrap_or(0);
                Some(take)
            }
            Self::Chunked(chunks) => chunks.follow(came).ok(),
            Self::Close => Some(came.len()),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.is_over(),
            Self::Close => false,
        }
    }
}

/// What a future gives, if it does so in time.
async fn timed<F: Future>(core: &Core, wait: Duration, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = core.ticker.after(wait) => None,
    }
}
