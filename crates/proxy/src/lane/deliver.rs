//! An answer that has begun is passed on, and its request counted and told of. Nothing of the routes is held meanwhile: it may take hours.
//!
//! Its endpoint is done with once the last byte has come: how long a client takes for the rest concerns nobody else.

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use landfall_plan::choose::Why;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::Outcome;
use super::asker::Asker;
use super::body::Rest;
use super::response::Ends;
use crate::core::Core;
use crate::http::{Conn, Ticket};
use crate::log::Entry;
use crate::meter::Meter;
use crate::upstream::{Active, Endpoint};

/// What is read at once of a body.
const READ_BODY: usize = 32 << 10;

/// An answer of which something is here, and nothing was passed on yet.
pub(super) struct Delivery {
    /// How long its endpoint may be silent.
    pub(super) idle: Duration,
    /// The client's connection ends with it.
    pub(super) closes: bool,
    /// What is still to come.
    pub(super) rest: Option<Box<Coming>>,
    /// Until its client has all of it.
    pub(super) ticket: Ticket,
}

/// What is still to come of an answer.
pub(super) struct Coming {
    pub(super) exchange: Exchange,
    pub(super) body: Rest,
    /// Whom it leads to.
    pub(super) route: Arc<str>,
    pub(super) service: Arc<str>,
    pub(super) cluster: Arc<str>,
}

/// A request whose answer has begun. As long as it lives, its endpoint has it.
pub(super) struct Exchange {
    pub(super) stream: TcpStream,
    pub(super) active: Active,
    pub(super) began: Instant,
    pub(super) meter: Arc<Meter>,
    pub(super) status: StatusCode,
    /// The endpoint keeps the connection open.
    pub(super) keeps: bool,
    pub(super) ends: Ends,
    pub(super) why: Why,
    pub(super) repeats: u32,
}

/// Who was asked, for those who are told of it.
pub(super) struct Whom<'a> {
    pub(super) conn: &'a Conn,
    /// The head that was sent.
    pub(super) up: &'a [u8],
    pub(super) route: &'a str,
    pub(super) service: &'a str,
    pub(super) cluster: &'a str,
}

impl Exchange {
    /// All has come: the endpoint may be asked by others.
    pub(super) fn end(self, core: &Core, whom: &Whom<'_>, surplus: bool) {
        self.tell(core, whom, None);
        if self.keeps && !surplus {
            let most = core.shared.config.limits.idle_per_endpoint;
            self.active.endpoint.give_stream(self.stream, core.ticker.now_ms(), most);
        }
    }

    /// It is given up.
    fn break_off(self, core: &Core, whom: &Whom<'_>, why: &'static str) {
        self.meter.broke_off();
        self.tell(core, whom, Some(why));
    }

    /// Counts it, and writes it down if it is one of those.
    fn tell(&self, core: &Core, whom: &Whom<'_>, broke_off: Option<&str>) {
        let took = self.began.elapsed();
        self.meter.ended(self.status, took);
        let log = &core.shared.log;
        if !log.may_take(self.status, broke_off.is_some(), self.repeats) {
            return;
        }
        let (method, host, path) = asked(whom.up);
        let endpoint: &Endpoint = &self.active.endpoint;
        log.write(&Entry {
            client: whom.conn.info.client,
            method,
            host,
            path,
            route: whom.route,
            service: whom.service,
            cluster: whom.cluster,
            endpoint: Some(endpoint),
            why: self.why.word(),
            status: self.status,
            took,
            retries: self.repeats,
            tried: &[],
            fault: broke_off,
            broke_off: broke_off.is_some(),
            trace: None,
        });
    }
}

impl Delivery {
    /// Passes it on, to its end.
    pub(super) async fn pass(
        self,
        core: &Rc<Core>,
        conn: &Conn,
        asker: &mut impl Asker,
        up: &[u8],
        back: &mut Vec<u8>,
    ) -> Outcome {
        let Self { idle, closes, rest, ticket: _ticket } = self;
        let answered = if closes { Outcome::Over } else { Outcome::Answered };
        if let Some(coming) = rest
            && !coming.pass(core, conn, idle, asker, up, back).await
        {
            return Outcome::Over;
        }
        match asker.pass(true).await {
            Some(()) => answered,
            None => Outcome::Over,
        }
    }
}

/// How reading more of an answer ended.
enum Read {
    More,
    /// The endpoint says no more.
    End,
    /// Nobody waits for it any more.
    Gone,
    Failed(&'static str),
}

impl Coming {
    /// Passes on what comes, but for the last of it; whether that is there.
    async fn pass(
        self: Box<Self>,
        core: &Rc<Core>,
        conn: &Conn,
        idle: Duration,
        asker: &mut impl Asker,
        up: &[u8],
        back: &mut Vec<u8>,
    ) -> bool {
        let Self { mut exchange, mut body, route, service, cluster } = *self;
        let whom = Whom { conn, up, route: &route, service: &service, cluster: &cluster };
        loop {
            let read = match asker.pass(false).await {
                Some(()) => read(core, &mut exchange.stream, idle, asker, back).await,
                None => Read::Gone,
            };
            let taken = match read {
                Read::More => asker.take(back, &mut body).ok_or("the answer broke off: it is no body"),
                Read::End if exchange.ends == Ends::Close => {
                    exchange.end(core, &whom, true);
                    asker.end_body();
                    return true;
                }
                Read::End => Err("the answer broke off: the sender is gone"),
                Read::Failed(why) => Err(why),
                Read::Gone => {
                    exchange.tell(core, &whom, None);
                    return false;
                }
            };
            match taken {
                Ok(belongs) if body.is_over() => {
                    exchange.end(core, &whom, belongs < back.len());
                    return true;
                }
                Ok(_) => {}
                Err(why) => {
                    exchange.break_off(core, &whom, why);
                    asker.break_off().await;
                    return false;
                }
            }
        }
    }
}

/// Reads what comes next, as long as somebody waits for it.
async fn read(
    core: &Rc<Core>,
    stream: &mut TcpStream,
    idle: Duration,
    asker: &mut impl Asker,
    back: &mut Vec<u8>,
) -> Read {
    back.clear();
    back.reserve(READ_BODY);
    let read = async {
        tokio::select! {
            biased;
            read = stream.read_buf(back) => Some(read),
            () = poll_fn(|cx| asker.poll_gone(cx)) => None,
        }
    };
    match timed(core, idle, read).await {
        None => Read::Failed("the answer broke off: nothing came for too long"),
        Some(None) => Read::Gone,
        Some(Some(Ok(0))) => Read::End,
        Some(Some(Ok(_))) => Read::More,
        Some(Some(Err(_))) => Read::Failed("the answer broke off: the sender is gone"),
    }
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

/// What a future gives, if it does so in time.
pub(super) async fn timed<F: Future>(core: &Core, wait: Duration, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = core.ticker.after(wait) => None,
    }
}
