//! UDP: a thread for each core and address takes packets in batches and answers them from the snapshot.

use std::io;
use std::net::{IpAddr, Shutdown};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::Cache;
use landfall_runtime::clock;
use socket2::Socket;

use super::ahead::Ahead;
use super::batch::Batch;
use crate::answer::{Client, Done, Sort, respond};
use crate::limit::Pass;
use crate::metrics::Tally;
use crate::signed;
use crate::state::Shared;
use crate::wire::name::Name;

/// What a socket is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listening {
    /// It listens on every address: packets say which of them they came to.
    pub(crate) asks_address: bool,
    /// Only clients inside our own member come in here.
    pub(crate) inside: bool,
}

/// Answers packets of one socket until the server stops.
pub(crate) fn run(shared: &Arc<Shared>, socket: &Socket, manner: Listening, seed: u64) {
    let (mut batch, mut ahead) = (Batch::new(manner.asks_address), Ahead::new());
    let mut worker = Worker { inside: manner.inside, ..Worker::new(shared, seed) };
    let mut cache = Cache::new(&shared.snapshot);
    while !shared.stopping.load(Ordering::Relaxed) {
        let got = match batch.receive(socket.as_fd()) {
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // It should not happen; if it does, it must not take the whole machine.
            Err(_) => {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        let snapshot = cache.load();
        let now = clock::since_epoch();
        ahead.look(&batch, got, snapshot);
        for slot in 0..got {
            let Some((client, packet, out)) = batch.packet(slot) else {
                worker.tally.dropped += 1;
                continue;
            };
            if let Some(length) = worker.answer(snapshot, client, now, packet, out) {
                batch.reply(slot, length);
            }
        }
        worker.tally.unsent += batch.send(socket.as_fd()) as u64;
        worker.tally.flush(&shared.metrics);
    }
}

/// Wakes a thread that waits for packets, so that it sees that the server stops.
pub(crate) fn wake(socket: &Socket) {
    // It always says that the socket is not connected; those who wait are woken nevertheless.
    let _ = socket.shutdown(Shutdown::Both);
}

/// What one thread has.
pub(crate) struct Worker<'a> {
    shared: &'a Shared,
    inside: bool,
    luck: u64,
    /// The name that was asked for last: a place that need not be cleared for every question.
    name: Name,
    pub(crate) tally: Tally,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(shared: &'a Shared, seed: u64) -> Self {
        Self { shared, inside: false, luck: seed | 1, name: Name::root(), tally: Tally::default() }
    }

    /// The reply's length, if there is one.
    pub(crate) fn answer(
        &mut self,
        snapshot: &crate::zone::Snapshot,
        address: IpAddr,
        now: Duration,
        packet: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        self.tally.queries += 1;
        let manner = &self.shared.manner;
        #[expect(clippy::cast_possible_truncation, reason = "serial arithmetic is made for it")]
        let now_s = now.as_secs() as u32;
        let client = Client { address, inside: self.inside, tcp: false, now_s, luck: self.draw() };
        let (length, sort, alike, proven) =
            match respond(snapshot, manner, client, packet, &mut self.name, out) {
                Done::Silence => {
                    self.tally.dropped += 1;
                    return None;
                }
                Done::Reply { length, sort, alike, proven } => (length, sort, alike, proven),
                Done::Signed => return signed::answer(self.shared, snapshot, client, packet, out),
                Done::Transfer => return None,
            };
        let pass = match &self.shared.limiter {
            Some(limiter) if !proven && !manner.holds(client) => {
                limiter.pass(address, alike, u64::try_from(now.as_millis()).unwrap_or(0))
            }
            _ => Pass::Send,
        };
        self.tally.count(sort, pass);
        match pass {
            Pass::Send => Some(length),
            Pass::Slip if sort != Sort::FormErr => Some(slip(out, length)),
            Pass::Slip | Pass::Drop => None,
        }
    }

    /// The next number of luck: quick, and good enough to spread answers.
    fn draw(&mut self) -> u64 {
        self.luck ^= self.luck << 13;
        self.luck ^= self.luck >> 7;
        self.luck ^= self.luck << 17;
        self.luck.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

/// Cuts a reply down to its question, and tells the client to come back by TCP.
fn slip(out: &mut [u8], length: usize) -> usize {
    let Some(name) = out.get(12..length).and_then(crate::wire::name::Name::read) else { return 0 };
    let end = 12 + name.wire().len() + 4;
    if let Some(header) = out.first_chunk_mut::<12>() {
        header[2] |= 0x02;
        header[3] &= 0xF0;
        header[6..].fill(0);
    }
    end.min(length)
}
