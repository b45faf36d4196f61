//! RFC 2136: names are published by dynamic updates, and read by zone transfers; both signed (RFC 8945) where there is a key.
//!
//! ```text
//!   read    AXFR ─► records ─► Found            (the mark of NAME is a TXT record at _landfall.NAME)
//!   apply   changes ─► UPDATE messages, each with what must be true for it ─► done, moved, or a fault
//! ```
//!
//! One message carries many names; the server does all of it or nothing. If something was not as expected, the message is
//! halved until it is known where, so that one name does not hold up the others.
//!
//! Limits: 100 names and 32 KiB per message (1232 bytes over UDP); 3 s to connect, 5 s per answer; 64 MiB and 60 s per
//! transfer.

mod message;
mod talk;

use std::ops::Range;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, TSigner};
use landfall_api::landfall::UpdateTransport;
use landfall_plan::publish::{Change, Found};

use super::publisher::{Applied, Fault, Publisher};
pub(super) use message::name;
use talk::{Stream, Talk};

/// How many names one message carries.
const NAMES_MAX: usize = 100;
/// The largest message that is sent over a connection, unless one name alone is larger.
const MESSAGE_BYTES_MAX: usize = 32 << 10;
/// The largest message that is sent as a datagram: what fits into any network's packets.
const DATAGRAM_BYTES_MAX: usize = 1232;
/// How long reading a zone may take.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);

/// A zone of a server that takes dynamic updates.
pub struct Rfc2136 {
    zone: Name,
    mark: String,
    transport: Option<UpdateTransport>,
    talk: Talk,
}

impl Rfc2136 {
    /// A zone at a server, as `host:port`. Nothing is sent yet.
    pub fn new(
        zone: &str,
        mark: String,
        server: &str,
        transport: Option<UpdateTransport>,
        key: Option<TSigner>,
    ) -> Result<Self, Fault> {
        let zone = message::name(zone).map_err(|error| {
            Fault::Misconfigured(format!("{zone:?} cannot be the name of a zone: {error}"))
        })?;
        Ok(Self { zone, mark, transport, talk: Talk::new(server, key) })
    }

    async fn transfer(&self) -> Result<Found, Fault> {
        let mut stream = self.talk.connect().await?;
        let mut reading = message::Reading::new(&self.zone);
        let mut answers = stream.ask(message::transfer(&self.zone)).await?;
        loop {
            let answer = answers.next().await?;
            judge(&answer, "read the zone (AXFR)")?;
            if reading.take(answer)? {
                return Ok(reading.found());
            }
        }
    }

    async fn update(&self, changes: &[Change]) -> Applied {
        let mut applied = Applied::default();
        let mut stream = None;
        // Parts of the list, the next one last.
        let mut parts: Vec<Range<usize>> = chunks(changes.len()).rev().collect();
        while let Some(part) = parts.pop() {
            match self.send(&changes[part.clone()], &mut stream).await {
                Ok(Sent::Done) => applied.done.extend(part),
                Ok(Sent::Moved) if part.len() == 1 => applied.moved.extend(part),
                Ok(Sent::Moved | Sent::TooLarge) => {
                    let middle = part.start + part.len() / 2;
                    parts.extend([middle..part.end, part.start..middle]);
                }
                Err(fault) => {
                    applied.fault = Some(fault);
                    break;
                }
            }
        }
        applied
    }

    async fn send(&self, changes: &[Change], stream: &mut Option<Stream>) -> Result<Sent, Fault> {
        let message = message::update(&self.zone, &self.mark, changes)
            .map_err(|error| Fault::Failed(format!("an update cannot be written: {error}")))?;
        let bytes = message.to_vec().map_or(usize::MAX, |bytes| bytes.len() + talk::SIGNATURE_BYTES);
        let small = bytes <= DATAGRAM_BYTES_MAX;
        let limit = match self.transport {
            Some(UpdateTransport::UDP) => DATAGRAM_BYTES_MAX,
            Some(UpdateTransport::TCP) | None => MESSAGE_BYTES_MAX,
        };
        if bytes > limit && changes.len() > 1 {
            return Ok(Sent::TooLarge);
        }
        let answer = if small && self.transport != Some(UpdateTransport::TCP) {
            self.talk.datagram(message).await?
        } else {
            let open = match stream {
                Some(open) => open,
                None => stream.insert(self.talk.connect().await?),
            };
            open.ask(message).await?.next().await?
        };
        match answer.metadata.response_code {
            ResponseCode::YXDomain
            | ResponseCode::YXRRSet
            | ResponseCode::NXRRSet
            | ResponseCode::NXDomain => Ok(Sent::Moved),
            _ => judge(&answer, "change the zone (UPDATE)").map(|()| Sent::Done),
        }
    }
}

/// What has become of one message.
enum Sent {
    Done,
    Moved,
    TooLarge,
}

impl Publisher for Rfc2136 {
    fn read(&self) -> BoxFuture<'_, Result<Found, Fault>> {
        async {
            let late = || Fault::Unreachable("the zone could not be read within a minute".into());
            tokio::time::timeout(TRANSFER_TIMEOUT, self.transfer()).await.unwrap_or_else(|_| Err(late()))
        }
        .boxed()
    }

    fn apply<'a>(&'a self, changes: &'a [Change]) -> BoxFuture<'a, Applied> {
        self.update(changes).boxed()
    }
}

fn chunks(count: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    (0..count.div_ceil(NAMES_MAX)).map(move |n| n * NAMES_MAX..count.min((n + 1) * NAMES_MAX))
}

/// What the server says to it.
fn judge(answer: &Message, what: &str) -> Result<(), Fault> {
    let code = answer.metadata.response_code;
    match code {
        ResponseCode::NoError => Ok(()),
        ResponseCode::NotAuth | ResponseCode::NotZone | ResponseCode::NXDomain => {
            Err(Fault::NotAuthoritative("the server says that the zone is not its own".into()))
        }
        ResponseCode::Refused => Err(Fault::Refused(format!("the server does not let us {what}"))),
        _ => Err(Fault::Failed(format!("asked to {what}, the server says {code}"))),
    }
}
