//! A client of bytes.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// However slow the machine is, nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// An answer as it was written.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// What the endpoint says that it got as a header.
    pub(crate) fn got(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.body.lines().find_map(|line| line.strip_prefix(prefix.as_str()))
    }
}

/// A client's connection, what came of it and was not taken yet, and whether it came to its end within an answer.
pub(crate) struct Client(pub(crate) TcpStream, Vec<u8>, bool);

impl Client {
    pub(crate) async fn new(to: SocketAddr) -> Self {
        Self(TcpStream::connect(to).await.unwrap(), Vec::new(), false)
    }

    /// One whose address is known.
    pub(crate) async fn from(own: [u8; 4], to: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((own, 0).into()).unwrap();
        Self(socket.connect(to).await.unwrap(), Vec::new(), false)
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        // The other side may have closed already: then what it said counts.
        let _ = self.0.write_all(bytes).await;
    }

    /// The next answer; none when the connection ends without one.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        tokio::time::timeout(PATIENCE, self.read_answer()).await.expect("an answer in time")
    }

    async fn read_answer(&mut self) -> Option<Answer> {
        let end = loop {
            if let Some(at) = find(&self.1, b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let head = String::from_utf8_lossy(&self.1[..end]).into_owned();
        self.1.drain(..end);
        self.2 = true;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let mut answer = Answer { status, head, body: String::new() };
        answer.body = if let Some(length) = answer.header("content-length") {
            let length: usize = length.parse().unwrap();
            while self.1.len() < length {
                self.more().await?;
            }
            String::from_utf8_lossy(&self.1.drain(..length).collect::<Vec<u8>>()).into_owned()
        } else if answer.header("transfer-encoding").is_some() {
            self.chunks().await?
        } else {
            String::new()
        };
        self.2 = false;
        Some(answer)
    }

    async fn chunks(&mut self) -> Option<String> {
        let mut body = Vec::new();
        loop {
            let line = loop {
                match find(&self.1, b"\r\n") {
                    Some(at) => break at,
                    None => self.more().await?,
                }
            };
            let size = usize::from_str_radix(std::str::from_utf8(&self.1[..line]).unwrap(), 16).unwrap();
            while self.1.len() < line + 2 + size + 2 {
                self.more().await?;
            }
            body.extend_from_slice(&self.1[line + 2..line + 2 + size]);
            self.1.drain(..line + 2 + size + 2);
            if size == 0 {
                return Some(String::from_utf8_lossy(&body).into_owned());
            }
        }
    }

    /// Whether nothing was sent that was not taken, nor the beginning of an answer.
    pub(crate) fn got_nothing(&self) -> bool {
        self.1.is_empty() && !self.2
    }

    async fn more(&mut self) -> Option<()> {
        (self.0.read_buf(&mut self.1).await.ok()? > 0).then_some(())
    }

    /// Whether the other side closes, with nothing more to say.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let ended = async { while self.more().await.is_some() {} };
        tokio::time::timeout(PATIENCE, ended).await.is_ok() && self.1.is_empty()
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Sends bytes on a connection of their own, and gives the first answer.
pub(crate) async fn ask(to: SocketAddr, bytes: &str) -> Option<Answer> {
    let mut client = Client::new(to).await;
    client.send(bytes.as_bytes()).await;
    client.answer().await
}

/// GETs a path of a host.
pub(crate) async fn get(to: SocketAddr, host: &str, path: &str) -> Answer {
    ask(to, &format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n")).await.expect("an answer")
}
