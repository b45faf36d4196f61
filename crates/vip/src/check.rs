//! Whether the edge answers HTTP, asked again and again beside everything else.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use landfall_runtime::tasks::Tasks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Between two questions.
const EVERY: Duration = Duration::from_millis(200);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_millis(400);
/// So many answers may be missing in a row, less one.
const MISSING: u32 = 2;
/// The question that is about the server itself (RFC 9110, section 9.3.7). Any answer will do.
const QUESTION: &[u8] = b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Asks until it is dropped.
pub(crate) struct Checker {
    missing: Arc<AtomicU32>,
    tasks: Tasks,
}

impl Checker {
    /// Asks at an address. Until the first answer nothing is well.
    pub(crate) fn start(at: SocketAddr) -> Self {
        let missing = Arc::new(AtomicU32::new(MISSING));
        let (count, tasks) = (missing.clone(), Tasks::default());
        tasks.spawn_until_stop(async move {
            loop {
                let answer = tokio::time::timeout(ANSWER, ask(at)).await;
                if answer.is_ok_and(|answer| answer.is_ok()) {
                    count.store(0, Ordering::Relaxed);
                } else {
                    let before = count.load(Ordering::Relaxed);
                    count.store(before.saturating_add(1), Ordering::Relaxed);
                }
                tokio::time::sleep(EVERY).await;
            }
        });
        Self { missing, tasks }
    }

    /// Whether it answers.
    pub(crate) fn well(&self) -> bool {
        self.missing.load(Ordering::Relaxed) < MISSING
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

async fn ask(at: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(at).await?;
    stream.write_all(QUESTION).await?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await?;
    if answer == *b"HTTP/" { Ok(()) } else { Err(io::Error::other("not HTTP")) }
}
