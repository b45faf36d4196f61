//! Clients that come at a steady rate, whatever becomes of those before them, as users of a service do.
//!
//! They ask by HTTP/1.1 and keep connections. When a server falls silent they do not come more slowly: what waits, waits beside
//! the others, and the time it took counts from when it was due.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use landfall_runtime::clock;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

/// Requests under way at most: more than that, and the machine is too small to say anything.
const UNDER_WAY_MAX: usize = 15_000;
/// The longest answer that is read.
const ANSWER_MAX: usize = 1 << 20;
/// How often is looked who is due.
const TICK: Duration = Duration::from_millis(1);
/// Connections that are kept to one address: all of them. Whoever closes those that were opened in a moment of need opens them again in the
/// next, and has no port left to do so in the end: it would be the clients that fall behind.
const KEPT_MAX: usize = UNDER_WAY_MAX;

/// What is asked, where, and how often.
#[derive(Clone, Debug)]
pub struct Asking {
    /// Where, the first first. The next is asked when one does not answer.
    pub addresses: Vec<SocketAddr>,
    /// The host that is asked for.
    pub host: String,
    /// The path.
    pub path: String,
    /// Requests a second.
    pub per_second: u32,
    /// How long one address may take to answer.
    pub patience: Duration,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// When it was due, from the beginning.
    pub due: Duration,
    /// How long it took since then.
    pub took: Duration,
    /// The cluster that the echo program says it is in; or what went wrong, at the last address.
    pub by: Result<String, String>,
}

/// Clients that ask until they are told to stop.
pub struct Clients {
    began: Instant,
    stop: Arc<AtomicBool>,
    answers: Arc<Mutex<Vec<Answer>>>,
    thread: Option<JoinHandle<()>>,
}

impl Clients {
    /// They begin.
    pub fn begin(asking: Asking) -> io::Result<Self> {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<Answer>>>::default());
        let (began, told, given) = (clock::instant(), stop.clone(), answers.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("clients".into()).spawn(move || {
            let crowd = Rc::new(Crowd { asking, began, answers: given, ..Crowd::default() });
            LocalSet::new().block_on(&runtime, crowd.come(&told));
        })?;
        Ok(Self { began, stop, answers, thread: Some(thread) })
    }

    /// How long ago they began.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// How often each has answered so far, and each thing went wrong.
    pub fn tally(&self) -> BTreeMap<Result<String, String>, usize> {
        tally(&self.answers.lock())
    }

    /// How often a cluster has answered requests that were due at or after then.
    pub fn answered_since(&self, cluster: &str, since: Duration) -> usize {
        let answers = self.answers.lock();
        let late = answers.iter().filter(|answer| answer.due >= since);
        late.filter(|answer| answer.by.as_deref() == Ok(cluster)).count()
    }

    /// No more come; those under way are waited for. What became of all of them, in the order in which they were due.
    pub fn end(mut self) -> Vec<Answer> {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that has failed has nothing more to say.
            let _ = thread.join();
        }
        let mut answers = std::mem::take(&mut *self.answers.lock());
        answers.sort_by_key(|answer| answer.due);
        answers
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// How often each has answered, and each thing went wrong.
pub fn tally(answers: &[Answer]) -> BTreeMap<Result<String, String>, usize> {
    let mut found = BTreeMap::new();
    for answer in answers {
        *found.entry(answer.by.clone()).or_default() += 1;
    }
    found
}

/// All of them, in their thread.
struct Crowd {
    asking: Asking,
    began: Instant,
    answers: Arc<Mutex<Vec<Answer>>>,
    kept: RefCell<HashMap<SocketAddr, Vec<TcpStream>>>,
    under_way: RefCell<usize>,
}

impl Default for Crowd {
    fn default() -> Self {
        let asking = Asking {
            addresses: Vec::new(),
            host: String::new(),
            path: "/".into(),
            per_second: 1,
            patience: Duration::from_secs(1),
        };
        Self {
            asking,
            began: clock::instant(),
            answers: Arc::default(),
            kept: RefCell::default(),
            under_way: RefCell::default(),
        }
    }
}

impl Crowd {
    async fn come(self: &Rc<Self>, stop: &AtomicBool) {
        let mut tick = tokio::time::interval(TICK);
        let gap = Duration::from_secs(1) / self.asking.per_second.max(1);
        let mut due = self.began.elapsed();
        // One comes in any case.
        loop {
            tick.tick().await;
            while due <= self.began.elapsed() {
                let (own, at) = (self.clone(), due);
                *self.under_way.borrow_mut() += 1;
                tokio::task::spawn_local(async move { own.one(at).await });
                due += gap;
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        while *self.under_way.borrow() > 0 {
            tick.tick().await;
        }
    }

    async fn one(&self, due: Duration) {
        let by = if *self.under_way.borrow() > UNDER_WAY_MAX {
            Err("too many are under way".to_owned())
        } else {
            self.everywhere().await
        };
        let took = self.began.elapsed().saturating_sub(due);
        self.answers.lock().push(Answer { due, took, by });
        *self.under_way.borrow_mut() -= 1;
    }

    /// Asks one address after the other.
    async fn everywhere(&self) -> Result<String, String> {
        let mut last = Err("nobody to ask".to_owned());
        for address in &self.asking.addresses {
            let asked = tokio::time::timeout(self.asking.patience, self.ask(*address)).await;
            last = match asked {
                Ok(Ok(by)) => return Ok(by),
                Ok(Err(error)) => Err(format!("{address}: {error}")),
                Err(_) => Err(format!("{address}: no answer in time")),
            };
        }
        last
    }

    async fn ask(&self, address: SocketAddr) -> io::Result<String> {
        let kept = self.kept.borrow_mut().get_mut(&address).and_then(Vec::pop);
        let mut stream = match kept {
            Some(stream) => stream,
            None => TcpStream::connect(address).await?,
        };
        stream.set_nodelay(true)?;
        let Asking { path, host, .. } = &self.asking;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: landfall-clients\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let (status, body) = read(&mut stream).await?;
        let mut kept = self.kept.borrow_mut();
        let kept = kept.entry(address).or_default();
        if kept.len() < KEPT_MAX {
            kept.push(stream);
        }
        if status != 200 {
            return Err(io::Error::other(format!("status {status}")));
        }
        Ok(cluster(&body).unwrap_or("nobody").to_owned())
    }
}

/// Reads an answer with a length.
async fn read(stream: &mut TcpStream) -> io::Result<(u16, String)> {
    let odd = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut bytes = Vec::with_capacity(2048);
    let mut head = None;
    loop {
        if head.is_none()
            && let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n")
        {
            let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).to_ascii_lowercase();
            let status = text.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
            let length =
                text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            let length: usize = length.ok_or_else(|| odd("an answer without a length"))?;
            head = Some((status.ok_or_else(|| odd("no status"))?, end + 4, length));
        }
        if let Some((status, begins, length)) = head
            && let Some(body) = bytes.get(begins..begins.saturating_add(length))
        {
            return Ok((status, String::from_utf8_lossy(body).into_owned()));
        }
        if bytes.len() > ANSWER_MAX {
            return Err(odd("an answer that is too long"));
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The cluster that the echo program names.
fn cluster(body: &str) -> Option<&str> {
    let rest = body.split("\"cluster\":").nth(1)?.trim_start();
    rest.strip_prefix('"')?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// A server that answers so, and closes after so many answers.
    fn server(cluster: &'static str, answers: usize) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            LocalSet::new().block_on(&runtime, async move {
                let listener = TcpListener::from_std(listener).unwrap();
                let left = Rc::new(RefCell::new(answers));
                while let Ok((mut stream, _)) = listener.accept().await {
                    let left = left.clone();
                    tokio::task::spawn_local(async move {
                        let mut room = [0; 4096];
                        while stream.read(&mut room).await.is_ok_and(|read| read > 0) {
                            if *left.borrow() == 0 {
                                return;
                            }
                            *left.borrow_mut() -= 1;
                            let body = format!("{{\"cluster\": \"{cluster}\"}}");
                            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                            stream.write_all((head + &body).as_bytes()).await.unwrap();
                        }
                    });
                }
            });
        });
        address
    }

    fn asking(addresses: Vec<SocketAddr>) -> Asking {
        Asking {
            addresses,
            host: "a".into(),
            path: "/".into(),
            per_second: 500,
            patience: Duration::from_secs(20),
        }
    }

    #[test]
    fn every_request_is_told_of_and_the_next_address_is_asked() {
        let (one, two) = (server("one", 50), server("two", usize::MAX));
        let clients = Clients::begin(asking(vec![one, two])).unwrap();
        while clients.answered_since("two", Duration::ZERO) < 50 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let answers = clients.end();
        let found = tally(&answers);
        assert_eq!(found.get(&Ok("one".into())), Some(&50), "{found:?}");
        assert_eq!(found.len(), 2, "nothing failed: {found:?}");
        assert!(answers.windows(2).all(|pair| pair[1].due - pair[0].due == Duration::from_millis(2)));
    }

    #[test]
    fn what_fails_at_the_last_address_has_failed() {
        let clients = Clients::begin(asking(vec![server("one", 0)])).unwrap();
        while clients.tally().is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(clients.end().iter().all(|answer| answer.by.is_err()));
    }
}
