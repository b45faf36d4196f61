//! A plain request is carried to an endpoint, and its answer back.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use landfall_plan::choose::{Ask, Why};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::asker::{Asker, Ours};
use super::body::Rest;
use super::deliver::{Coming, Delivery, Exchange, Whom};
use super::request::Plain;
use super::response::{self, Ends, Head, Seen};
use super::{HEAD_MAX, Outcome};
use crate::clients::Order;
use crate::core::Core;
use crate::http::{Before, Conn, Failed, HELD_MAX, SHORT_MAX, Ticket};
use crate::table::Reach;
use crate::upstream::{Active, Fault, Local, blame};

/// What is read at once of a head.
const READ_HEAD: usize = 4 << 10;
/// How often a request that waits looks whether its endpoint is still there.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Heads before that of an answer: so many are passed on, and so many are read.
const HINTS_MAX: u32 = 32;
const HEADS_MAX: u32 = 1024;

/// Carries a plain request, whose head for the endpoint is `up`, until its answer begins; what comes back is read into `back`.
pub(super) async fn carry<A: Asker>(
    core: &Rc<Core>,
    conn: &Rc<Conn>,
    plain: &Plain<'_>,
    asker: &mut A,
    up: &[u8],
    back: &mut Vec<u8>,
) -> Carried {
    // A client may give up before its turn has come, and another may do nothing else: that costs no endpoint anything.
    if poll_fn(|cx| Poll::Ready(asker.poll_gone(cx).is_ready())).await {
        return Carried::Ended(Outcome::Over);
    }
    let ticket = Ticket::new(core.clone(), conn.clone());
    let (began, luck, target) = (ticket.began, core.luck(), plain.target.id);
    let left = |failed| Carried::Ended(Outcome::Left(Some(Before { began, luck, target, failed })));
    let local = &*plain.local;
    local.budget.earn(local.service.retry_percent);
    let Some((choice, why, active)) = choose(core, local, luck) else { return left(None) };
    let Reach::Direct(address) = active.endpoint.reach else { return left(None) };
    if active.endpoint.is_odd(core.ticker.now_ms()) {
        return left(None);
    }
    let (heads, repeats, reused) = (Cell::new(0), Cell::new(0), Cell::new(false));
    let trip = Trip { core, conn, plain, up, active, choice, why, ticket, heads, repeats, reused };
    let failed = |trip: Trip<'_>, fault: Fault| {
        let endpoint = trip.active.endpoint.clone();
        // A connection that nobody used may just have been closed.
        let stale = trip.reused.get() && matches!(fault, Fault::Reset);
        if fault.counts_against_endpoint() && !stale {
            blame(core, local, plain.target, choice, &endpoint, fault.is_unreachable());
        }
        left(Some(Failed { fault, endpoint, choice, version: local.version }))
    };
    match trip.arrive(address, asker, back).await {
        Ok((endpoint, head)) => match trip.begin(&head, asker, back) {
            Some(begun) => Carried::Begun(trip.deliver(endpoint, &head, begun)),
            // Nothing of it was seen yet.
            None => failed(trip, Fault::Garbage),
        },
        Err(Stop::Gone) => Carried::Ended(Outcome::Over),
        Err(Stop::Failed(fault)) => failed(trip, fault),
        Err(Stop::Odd) => {
            trip.active.endpoint.turns_odd(core.ticker.now_ms());
            if local.service.retries > 0 { left(None) } else { failed(trip, Fault::Garbage) }
        }
    }
}

/// How far a request was carried.
pub(super) enum Carried {
    /// Its answer is to be passed on.
    Begun(Delivery),
    /// That is all.
    Ended(Outcome),
}

/// Why there is no answer yet.
enum Stop {
    /// The endpoint has failed.
    Failed(Fault),
    /// It has answered with something that hyper may understand.
    Odd,
    /// Nobody waits for it any more.
    Gone,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
    }
}

/// What is here of an answer.
struct Begun {
    body: Rest,
    /// More has come than belongs to it.
    surplus: bool,
    /// The client's connection ends with it.
    closes: bool,
}

fn choose(core: &Core, local: &Local, luck: u64) -> Option<(u16, Why, Active)> {
    let now_ms = core.ticker.now_ms();
    let ask = Ask { luck, ..Ask::default() };
    let (choice, why) = local.service.chooser.pick(&ask, |at| local.is_usable(at, now_ms))?;
    let endpoint = local.pick(choice, core, &[], false, None)?;
    Some((choice, why, local.enter(choice, endpoint)?))
}

/// A request on its way.
struct Trip<'a> {
    core: &'a Rc<Core>,
    conn: &'a Conn,
    plain: &'a Plain<'a>,
    /// Its head.
    up: &'a [u8],
    active: Active,
    choice: u16,
    why: Why,
    ticket: Ticket,
    /// Heads that came before that of its answer.
    heads: Cell<u32>,
    /// So often it was sent once more.
    repeats: Cell<u32>,
    /// It was sent over a connection that had been used before.
    reused: Cell<bool>,
}

impl Trip<'_> {
    /// Sends the request, and reads the head of its answer.
    async fn arrive(
        &self,
        address: std::net::SocketAddr,
        asker: &mut impl Asker,
        back: &mut Vec<u8>,
    ) -> Result<(TcpStream, Head), Stop> {
        if let Some(mut kept) = self.active.endpoint.take_stream() {
            self.reused.set(true);
            match self.ask(&mut kept, asker, back).await {
                Ok(head) => return Ok((kept, head)),
                // It was closed while nobody used it: a new one tells more than another old one.
                Err(Stop::Failed(Fault::Reset)) if self.may_repeat(back) => self.repeats.set(1),
                Err(stop) => return Err(stop),
            }
        }
        self.reused.set(false);
        let mut stream = self.connect(address, asker).await?;
        let head = self.ask(&mut stream, asker, back).await?;
        Ok((stream, head))
    }

    /// Whether it may be sent once more: nothing was heard of it, and repeating is allowed at all.
    fn may_repeat(&self, back: &[u8]) -> bool {
        let local = &self.plain.local;
        let unheard = back.is_empty() && self.heads.get() == 0;
        unheard && local.service.retries > 0 && local.budget.spend()
    }

    async fn connect(
        &self,
        address: std::net::SocketAddr,
        asker: &mut impl Asker,
    ) -> Result<TcpStream, Stop> {
        if !self.core.shared.guard.admits(address) {
            return Err(Fault::Connect.into());
        }
        let stream = tokio::select! {
            biased;
            () = poll_fn(|cx| asker.poll_gone(cx)) => return Err(Stop::Gone),
            stream = TcpStream::connect(address) => stream.map_err(|_| Fault::Connect)?,
            () = self.core.ticker.after(self.plain.local.service.times.connect) => {
                return Err(Fault::ConnectTimeout.into());
            }
        };
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    async fn ask(
        &self,
        stream: &mut TcpStream,
        asker: &mut impl Asker,
        back: &mut Vec<u8>,
    ) -> Result<Head, Stop> {
        back.clear();
        stream.write_all(self.up).await.map_err(|_| Fault::Reset)?;
        let mut look = self.core.ticker.after(LOOK_EVERY);
        loop {
            back.reserve(READ_HEAD);
            tokio::select! {
                biased;
                read = stream.read_buf(back) => match read {
                    Ok(0) | Err(_) => return Err(Fault::Reset.into()),
                    Ok(_) => {}
                },
                () = &mut look => {
                    self.patience()?;
                    look.reset(LOOK_EVERY);
                    continue;
                }
                () = poll_fn(|cx| asker.poll_gone(cx)) => return Err(Stop::Gone),
            }
            if let Some(head) = self.read_head(asker, back).await? {
                self.whole_if_short(stream, &head, asker, back).await?;
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
        asker: &mut impl Asker,
        back: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let Ends::Length(length @ 1..=SHORT_MAX) = head.ends else { return Ok(()) };
        let whole = head.length.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        if back.len() >= whole {
            return Ok(());
        }
        let (mut waited, most) = (Duration::ZERO, HELD_MAX.min(self.plain.local.service.times.idle));
        let mut look = self.core.ticker.after(LOOK_EVERY);
        while back.len() < whole && waited < most {
            back.reserve(READ_HEAD);
            tokio::select! {
                biased;
                read = stream.read_buf(back) => match read {
                    Ok(0) | Err(_) => return Err(Fault::BrokeOff.into()),
                    Ok(_) => {}
                },
                () = &mut look => {
                    if self.is_lost() {
                        return Err(Fault::Withdrawn.into());
                    }
                    waited += LOOK_EVERY;
                    look.reset(LOOK_EVERY);
                }
                () = poll_fn(|cx| asker.poll_gone(cx)) => return Err(Stop::Gone),
            }
        }
        Ok(())
    }

    /// Reads heads until that of the answer itself; those before it are passed on at once.
    async fn read_head(&self, asker: &mut impl Asker, back: &mut Vec<u8>) -> Result<Option<Head>, Stop> {
        loop {
            match response::look(back, self.plain.is_head, self.hsts().is_some(), asker.head()) {
                Seen::Part if back.len() > HEAD_MAX * 4 => return Err(Stop::Odd),
                Seen::Part => return Ok(None),
                Seen::Bad => return Err(Stop::Odd),
                Seen::Whole(head) if head.is_interim() => {
                    self.hint(asker).await?;
                    back.drain(..head.length);
                    if back.is_empty() {
                        return Ok(None);
                    }
                }
                Seen::Whole(head) => return Ok(Some(head)),
            }
        }
    }

    /// Passes on a head that comes before that of the answer, if there were not too many.
    async fn hint(&self, asker: &mut impl Asker) -> Result<(), Stop> {
        let heads = self.heads.get() + 1;
        self.heads.set(heads);
        if heads > HEADS_MAX {
            return Err(Fault::Garbage.into());
        }
        if heads > HINTS_MAX {
            return Ok(());
        }
        asker.hint().await.ok_or(Stop::Gone)
    }

    /// Whether there is still a sense in waiting.
    fn patience(&self) -> Result<(), Fault> {
        if self.ticket.began.elapsed() > self.plain.local.service.times.first_byte {
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

    /// Takes what is here of an answer; none when it turns out to be none.
    fn begin(&self, head: &Head, asker: &mut impl Asker, back: &[u8]) -> Option<Begun> {
        let closes = self.conn.state.order() != Order::Go;
        let date = (!head.dated).then(|| self.core.date());
        asker.end_head(Ours { date, hsts: self.hsts(), closes });
        let came = back.get(head.length..).unwrap_or_default();
        let mut body = Rest::new(head.ends);
        let surplus = asker.take(came, &mut body)? < came.len();
        Some(Begun { body, surplus, closes })
    }

    /// What its client is told for the time to come, by the route.
    fn hsts(&self) -> Option<&HeaderValue> {
        self.plain.route.plan.hsts.as_ref().filter(|_| self.conn.is_secure())
    }

    /// An answer has begun: what that tells of its endpoint.
    fn answered(&self, head: &Head) {
        let (local, endpoint) = (&self.plain.local, &self.active.endpoint);
        if head.status >= 500 {
            blame(self.core, local, self.plain.target, self.choice, endpoint, false);
        } else {
            endpoint.answered();
            if local.service.outlier.slower.is_some() {
                endpoint.took(self.ticket.began.elapsed());
            }
        }
    }

    /// From here on all is known that routes tell. Where nothing is to come any more, the endpoint is done with.
    fn deliver(self, stream: TcpStream, head: &Head, begun: Begun) -> Delivery {
        self.answered(head);
        let Self { core, conn, plain, up, active, choice, why, ticket, repeats, .. } = self;
        let (plan, target) = (&plain.route.plan, plain.target);
        let repeats = repeats.get();
        let meter = plain.local.meter(core, plan, target, choice);
        meter.began(repeats, why);
        if let Some(used) = head.used {
            meter.used(used);
        }
        let status = StatusCode::from_u16(head.status).unwrap_or(StatusCode::BAD_GATEWAY);
        let Head { keeps, ends, .. } = *head;
        let began = ticket.began;
        let exchange = Exchange { stream, active, began, meter, status, keeps, ends, why, repeats };
        let cluster = plain.local.cluster(choice);
        let Begun { body, surplus, closes } = begun;
        let rest = if body.is_over() {
            let (route, service) = (&*plan.name, &*target.name);
            exchange.end(core, &Whom { conn, up, route, service, cluster: &cluster }, surplus);
            None
        } else {
            let (route, service) = (plan.name.clone(), target.name.clone());
            Some(Box::new(Coming { exchange, body, route, service, cluster }))
        };
        Delivery { idle: plain.local.service.times.idle, closes, rest, ticket }
    }
}
