//! Talking to the server: datagrams and connections, signed where there is a key; every wait has its limit.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::Message;
use hickory_proto::rr::rdata::tsig::TsigError;
use hickory_proto::rr::{TSigVerifier, TSigner};
use landfall_runtime::clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::super::publisher::Fault;

/// How much a signature adds to a message, at most, for names of usual length.
pub(super) const SIGNATURE_BYTES: usize = 200;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a datagram is waited for, and how often it is sent.
const DATAGRAM_TIMEOUT: Duration = Duration::from_secs(2);
const DATAGRAM_TRIES: usize = 2;
/// The most bytes that are read from one connection.
const BYTES_MAX: usize = 64 << 20;
const PORT: u16 = 53;

/// A server, and how it is spoken to.
pub(super) struct Talk {
    server: String,
    key: Option<TSigner>,
}

impl Talk {
    /// A server as `host:port`, `host` or an address.
    pub(super) fn new(server: &str, key: Option<TSigner>) -> Self {
        Self { server: with_port(server), key }
    }

    /// Opens a connection.
    pub(super) async fn connect(&self) -> Result<Stream, Fault> {
        let tcp = timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.server)).await;
        let tcp = tcp.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        let tcp = tcp.map_err(|error| self.unreachable(&error))?;
        // Small messages should not wait for one another; where it cannot be said, they do.
        let _ = tcp.set_nodelay(true);
        Ok(Stream { tcp, key: self.key.clone(), server: self.server.clone(), bytes_left: BYTES_MAX })
    }

    /// Sends one datagram, and waits for the answer.
    pub(super) async fn datagram(&self, message: Message) -> Result<Message, Fault> {
        let addresses =
            tokio::net::lookup_host(&self.server).await.map_err(|error| self.unreachable(&error))?;
        let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
        let (bytes, mut check) = sign(message, self.key.as_ref())?;
        for address in addresses {
            match exchange(address, &bytes).await {
                Ok(answer) => return check.look(&answer),
                Err(error) => last = error,
            }
        }
        Err(self.unreachable(&last))
    }

    fn unreachable(&self, error: &std::io::Error) -> Fault {
        unreachable(&self.server, error)
    }
}

fn unreachable(server: &str, error: &std::io::Error) -> Fault {
    let why = match error.kind() {
        std::io::ErrorKind::TimedOut => "no answer in time".to_owned(),
        std::io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
        _ => error.to_string(),
    };
    Fault::Unreachable(format!("the server {server} cannot be reached: {why}"))
}

fn with_port(server: &str) -> String {
    if let Ok(ip) = server.parse::<std::net::IpAddr>() {
        return SocketAddr::new(ip, PORT).to_string();
    }
    let has_port = server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { server.to_owned() } else { format!("{server}:{PORT}") }
}

async fn exchange(address: SocketAddr, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let any: SocketAddr =
        if address.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(address).await?;
    let mut buffer = vec![0; usize::from(u16::MAX)];
    for _ in 0..DATAGRAM_TRIES {
        socket.send(bytes).await?;
        let wait = async {
            loop {
                let length = socket.recv(&mut buffer).await?;
                // Not an answer to this: somebody's late or forged word.
                if buffer.get(..2) == bytes.get(..2) {
                    return std::io::Result::Ok(length);
                }
            }
        };
        if let Ok(answer) = timeout(DATAGRAM_TIMEOUT, wait).await {
            let length = answer?;
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
    Err(std::io::ErrorKind::TimedOut.into())
}

/// An open connection.
pub(super) struct Stream {
    tcp: TcpStream,
    key: Option<TSigner>,
    server: String,
    bytes_left: usize,
}

/// The answers to one message.
pub(super) struct Answers<'a> {
    stream: &'a mut Stream,
    check: Check,
}

impl Stream {
    /// Sends a message.
    pub(super) async fn ask(&mut self, message: Message) -> Result<Answers<'_>, Fault> {
        let (bytes, check) = sign(message, self.key.as_ref())?;
        let length = u16::try_from(bytes.len())
            .map_err(|_| Fault::Failed("the records of one name do not fit into one message".into()))?;
        let mut framed = length.to_be_bytes().to_vec();
        framed.extend_from_slice(&bytes);
        let sent = timeout(ANSWER_TIMEOUT, self.tcp.write_all(&framed)).await;
        let sent = sent.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        sent.map_err(|error| unreachable(&self.server, &error))?;
        Ok(Answers { stream: self, check })
    }

    async fn receive(&mut self) -> Result<Vec<u8>, Fault> {
        let read = async {
            let length = usize::from(self.tcp.read_u16().await?);
            let mut bytes = vec![0; length];
            self.tcp.read_exact(&mut bytes).await?;
            std::io::Result::Ok(bytes)
        };
        let read = timeout(ANSWER_TIMEOUT, read).await;
        let read = read.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        let bytes = read.map_err(|error| unreachable(&self.server, &error))?;
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len());
        if self.bytes_left == 0 {
            return Err(Fault::Failed(format!("the server sent more than {BYTES_MAX} bytes")));
        }
        Ok(bytes)
    }
}

impl Answers<'_> {
    /// The next answer.
    pub(super) async fn next(&mut self) -> Result<Message, Fault> {
        let bytes = self.stream.receive().await?;
        self.check.look(&bytes)
    }
}

/// What is expected of answers.
struct Check {
    id: u16,
    verifier: Option<TSigVerifier>,
}

fn sign(mut message: Message, key: Option<&TSigner>) -> Result<(Vec<u8>, Check), Fault> {
    let failed =
        |error: &dyn std::fmt::Display| Fault::Failed(format!("a message cannot be written: {error}"));
    let id = message.metadata.id;
    let verifier = match key {
        Some(key) => {
            let now = u64::try_from(clock::epoch_s()).unwrap_or(0);
            message.finalize(key, now).map_err(|error| failed(&error))?
        }
        None => None,
    };
    let bytes = message.to_vec().map_err(|error| failed(&error))?;
    Ok((bytes, Check { id, verifier }))
}

impl Check {
    /// Reads an answer, and looks whether it is the server's.
    fn look(&mut self, bytes: &[u8]) -> Result<Message, Fault> {
        let garbled = || Fault::Failed("the server's answer cannot be understood".into());
        let answer = counted(bytes).then(|| Message::from_vec(bytes).ok()).flatten().ok_or_else(garbled)?;
        if answer.metadata.id != self.id {
            return Err(garbled());
        }
        let Some(verifier) = &mut self.verifier else { return Ok(answer) };
        match answer.signature().and_then(|record| record.data.error) {
            None => {}
            Some(TsigError::BadKey) => {
                return Err(Fault::WrongKey(
                    "the server knows no such key, or not with this algorithm".into(),
                ));
            }
            Some(TsigError::BadSig | TsigError::BadTrunc) => {
                return Err(Fault::WrongKey("the server's secret of this key is another one".into()));
            }
            Some(TsigError::BadTime) => {
                return Err(Fault::ClockSkew("the server's clock differs from ours by minutes".into()));
            }
            Some(TsigError::Unknown(code)) => {
                return Err(Fault::WrongKey(format!(
                    "the server does not take the signature (error {code})"
                )));
            }
        }
        match (answer.signature(), answer.metadata.response_code) {
            (Some(_), _) => {
                let wrong =
                    |error| Fault::WrongKey(format!("the server's answer is signed wrongly: {error}"));
                verifier.verify(bytes).map_err(wrong)?;
                Ok(answer)
            }
            // What a server refuses, it need not sign; nothing is changed because of it.
            (None, code) if code != hickory_proto::op::ResponseCode::NoError => Ok(answer),
            (None, _) => Err(Fault::WrongKey("the server's answer is not signed".into())),
        }
    }
}

/// Whether the numbers of records in a header can be added up, which the library does not ask.
fn counted(bytes: &[u8]) -> bool {
    let count = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    matches!((count(6), count(8)), (Some(answers), Some(authorities)) if answers.checked_add(authorities).is_some())
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::{MessageType, OpCode, ResponseCode};
    use hickory_proto::rr::Name;
    use hickory_proto::rr::rdata::tsig::TsigAlgorithm;

    use super::*;

    fn key(secret: &[u8]) -> TSigner {
        TSigner::new(secret.to_vec(), TsigAlgorithm::HmacSha256, Name::from_ascii("landfall.").unwrap(), 300)
            .unwrap()
    }

    /// An answer, and who waits for it.
    fn asked(code: ResponseCode) -> (Message, Check) {
        let question = Message::query();
        let mut answer = Message::new(question.metadata.id, MessageType::Response, OpCode::Update);
        answer.metadata.response_code = code;
        let (_, check) = sign(question, Some(&key(b"ours"))).unwrap();
        (answer, check)
    }

    #[test]
    fn what_is_not_signed_changes_nothing() {
        let (answer, mut check) = asked(ResponseCode::NoError);
        let fault = check.look(&answer.to_vec().unwrap()).unwrap_err();
        assert_eq!(fault.reason(), "WrongKey");
        let (answer, mut check) = asked(ResponseCode::Refused);
        assert!(check.look(&answer.to_vec().unwrap()).is_ok(), "a refusal need not be signed");
    }

    #[test]
    fn another_ones_signature_is_refused() {
        let (answer, mut check) = asked(ResponseCode::NoError);
        let (bytes, _) = sign(answer, Some(&key(b"theirs"))).unwrap();
        assert_eq!(check.look(&bytes).unwrap_err().reason(), "WrongKey");
    }

    #[test]
    fn no_bytes_are_too_strange() {
        let (answer, mut check) = asked(ResponseCode::NoError);
        let (bytes, _) = sign(answer, Some(&key(b"ours"))).unwrap();
        for end in 0..bytes.len() {
            assert!(check.look(&bytes[..end]).is_err(), "{end} bytes");
        }
        for at in 2..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 0xff;
            // Whatever it is taken for, it is not taken for success.
            let success = |answer: Message| answer.metadata.response_code == ResponseCode::NoError;
            assert!(!check.look(&other).is_ok_and(success), "byte {at}");
        }
    }

    #[test]
    fn a_server_has_a_port() {
        for (server, want) in [
            ("ns.example.com", "ns.example.com:53"),
            ("ns.example.com:5353", "ns.example.com:5353"),
            ("192.0.2.1", "192.0.2.1:53"),
            ("2001:db8::1", "[2001:db8::1]:53"),
            ("[2001:db8::1]:5353", "[2001:db8::1]:5353"),
        ] {
            assert_eq!(with_port(server), want);
        }
    }
}
