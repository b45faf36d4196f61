//! Bytes over TLS, for requests that no proper client would send.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Hub, PATIENCE};

/// A connection to a hub.
pub(crate) struct Raw(pub(crate) TlsStream<TcpStream>);

/// An answer as read from the wire.
#[derive(Debug)]
pub(crate) struct RawAnswer {
    /// The HTTP code.
    pub(crate) code: u16,
    /// The head, for messages and headers.
    pub(crate) head: String,
    /// The document; null when it is none.
    pub(crate) body: Value,
}

/// How to reach a hub.
pub(crate) fn connector(hub: &Hub, alpn: &[&str]) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    let pem = std::fs::read(hub.directory.join("pki/ca.crt")).unwrap();
    roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
    let mut config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// Connects with a connector.
pub(crate) async fn connect(hub: &Hub, connector: &TlsConnector) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(hub.address).await.unwrap();
    connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()
}

impl Raw {
    /// A connection for HTTP/1.1.
    pub(crate) async fn open(hub: &Hub) -> Self {
        Self(connect(hub, &connector(hub, &["http/1.1"])).await)
    }

    /// Sends bytes; what the hub thinks of them shows in the answer.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        // The hub may refuse and close before all of it is sent.
        let _ = self.0.write_all(bytes).await;
        let _ = self.0.flush().await;
    }

    /// Reads one answer; none when the hub closed the connection instead.
    pub(crate) async fn answer(&mut self) -> Option<RawAnswer> {
        tokio::time::timeout(PATIENCE, self.read()).await.expect("an answer or a close in time")
    }

    async fn read(&mut self) -> Option<RawAnswer> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            if !self.more(&mut bytes).await {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.map_or(0, |text| text.trim().parse().unwrap());
        let mut body = bytes.split_off(end + 4);
        while body.len() < length && self.more(&mut body).await {}
        let code = head.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
        Some(RawAnswer { code, head, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
    }

    async fn more(&mut self, into: &mut Vec<u8>) -> bool {
        matches!(self.0.read_buf(into).await, Ok(count) if count > 0)
    }

    /// Whether the hub has closed the connection, waiting for it.
    pub(crate) async fn closed(&mut self) -> bool {
        let mut sink = Vec::new();
        let all = async { while self.more(&mut sink).await {} };
        tokio::time::timeout(PATIENCE, all).await.is_ok()
    }
}

/// The head of a request by an administrator.
pub(crate) fn head(method: &str, path: &str, headers: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer master\r\n{headers}\r\n")
        .into()
}
