//! Who asks: what is known of a client's connection, and what follows from it for each of its requests.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderValue;
use http::header::{FORWARDED, VIA};

use super::Before;
use super::headers::{CLIENT_SUBJECT, FORWARDED_FOR, FORWARDED_PORT, FORWARDED_PROTO, REAL_IP, US};

use crate::clients::State;

/// What is known of an accepted connection. Whoever accepts one (plain, TLS, another edge) fills this in and calls
/// [`serve::connection`](crate::serve::connection) with the stream.
#[derive(Clone, Debug)]
pub(crate) struct ConnInfo {
    /// Where the client is: the address of its socket, or what a PROXY header in front of it says.
    pub(crate) client: SocketAddr,
    /// Where it came in.
    pub(crate) local: SocketAddr,
    /// How it is encrypted, if it is.
    pub(crate) tls: Option<TlsInfo>,
    /// The edge that it comes from, if it does: its certificate was checked. Its requests carry the header
    /// [`PEER_TARGET`](super::headers::PEER_TARGET), go to endpoints of this member only, and keep the headers that tell of
    /// the client.
    pub(crate) from_peer: Option<Arc<crate::peer::verify::Named>>,
}

/// What a TLS handshake told.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsInfo {
    /// HTTP/2 was agreed on.
    pub(crate) http2: bool,
    /// Whom the client's certificate names, if it showed one that was checked.
    pub(crate) client_subject: Option<HeaderValue>,
    /// What was agreed on, for requests to other hosts than the one that was asked for.
    pub(crate) handshake: Option<crate::tls::TlsInfo>,
}

/// A connection, with the header values that all its requests share.
pub(crate) struct Conn {
    pub(crate) info: ConnInfo,
    pub(crate) state: Arc<State>,
    /// `X-Forwarded-For`, and `X-Real-IP`.
    pub(super) client: HeaderValue,
    /// `X-Forwarded-Proto`.
    pub(super) scheme: HeaderValue,
    /// `X-Forwarded-Port`.
    pub(super) port: HeaderValue,
    /// `Forwarded`.
    pub(super) forwarded: HeaderValue,
    /// All of these as lines.
    pub(crate) block: Vec<u8>,
    /// What is known of the next request, which the lane has begun.
    pub(crate) left: Cell<Option<Before>>,
}

impl Conn {
    pub(crate) fn new(info: ConnInfo, state: Arc<State>) -> Self {
        let ip = info.client.ip().to_canonical();
        let scheme = if info.tls.is_some() { "https" } else { "http" };
        let node = if ip.is_ipv6() { format!("\"[{ip}]\"") } else { ip.to_string() };
        let value =
            |text: &str| HeaderValue::from_str(text).expect("addresses and schemes are visible ASCII");
        let (client, port) = (value(&ip.to_string()), HeaderValue::from(info.local.port()));
        let forwarded = value(&format!("for={node};proto={scheme}"));
        let scheme = HeaderValue::from_static(scheme);
        let mut block = Vec::new();
        let subject = info.tls.as_ref().and_then(|tls| tls.client_subject.as_ref());
        let lines = [
            (REAL_IP, Some(&client)),
            (FORWARDED_FOR, Some(&client)),
            (FORWARDED_PROTO, Some(&scheme)),
            (FORWARDED_PORT, Some(&port)),
            (FORWARDED, Some(&forwarded)),
            (VIA, Some(&US)),
            (CLIENT_SUBJECT, subject),
        ];
        for (name, value) in lines.iter().filter_map(|(name, value)| Some((name, (*value)?))) {
            let line = [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"];
            line.iter().for_each(|part| block.extend_from_slice(part));
        }
        Self { info, state, client, scheme, port, forwarded, block, left: Cell::default() }
    }

    /// Whether it is encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        self.info.tls.is_some()
    }
}
