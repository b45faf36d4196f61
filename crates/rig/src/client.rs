//! A client that asks one address again and again, and knows how long it was not answered.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Error;

/// What it asks for: any answer of this host will do.
pub const HOST: &str = "front.example.com";
/// Between two requests.
const PAUSE: Duration = Duration::from_millis(5);
/// How long it waits for an answer before it asks again.
const ANSWER: Duration = Duration::from_millis(100);

/// What a client's thread does: when it was answered, in the end.
pub type Asking = Box<dyn FnOnce() -> Vec<Instant> + Send>;

/// Asks again and again.
pub struct Client {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    thread: Option<JoinHandle<Vec<Instant>>>,
}

impl Client {
    /// Asks at an address, on a thread that is started as the caller says: on this machine, or on another.
    pub fn start(
        at: SocketAddr,
        thread: impl FnOnce(Asking) -> Result<JoinHandle<Vec<Instant>>, Error>,
    ) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let answers = Arc::new(AtomicUsize::new(0));
        let counted = answers.clone();
        let thread = thread(Box::new(move || {
            let mut answered = vec![Instant::now()];
            while !stopped.load(Ordering::Relaxed) {
                if ask(at).is_ok() {
                    answered.push(Instant::now());
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(PAUSE);
            }
            answered
        }))?;
        Ok(Self { stop, answers, thread: Some(thread) })
    }

    /// How many answers it has got.
    pub fn answers(&self) -> usize {
        self.answers.load(Ordering::Relaxed)
    }

    /// Stops it; the longest time without an answer since a moment, and how many answers came after that.
    pub fn outage(mut self, since: Instant) -> (Duration, usize) {
        self.stop.store(true, Ordering::Relaxed);
        let answered = self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let mut longest = Duration::ZERO;
        let mut before = None;
        let mut after = 0;
        for at in answered {
            if at >= since {
                let from = before.map_or(since, |before: Instant| before.max(since));
                let gap = at.duration_since(from);
                if gap > longest {
                    (longest, after) = (gap, 0);
                }
                after += 1;
            }
            before = Some(at);
        }
        (longest, after)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// One request on a connection of its own; any answer will do.
fn ask(at: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&at, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    if answer.starts_with(b"HTTP/1.1 200") { Ok(()) } else { Err(std::io::Error::other("not answered")) }
}
