//! A small HTTP/1.1 client over TLS that costs as little as it can: the machine is the server's too.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Where to connect and how to be let in.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    tls: Arc<ClientConfig>,
}

impl Target {
    pub(crate) fn new(address: SocketAddr, token: &str) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let trust = TrustLoopback(provider.signature_verification_algorithms);
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider knows the default versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(trust))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self { address, token: token.to_owned(), tls: Arc::new(config) }
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").context("localhost is a name")?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await?;
        Ok(Connection { stream, buffer: Vec::with_capacity(64 * 1024), token: self.token.clone() })
    }
}

/// One kept-alive connection.
pub(crate) struct Connection {
    pub(crate) stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
    token: String,
}

impl Connection {
    /// Sends a request and reads the whole answer; gives its status code.
    pub(crate) async fn send(&mut self, method: &str, path: &str, body: &str) -> Result<u16> {
        let request = self.head(method, path, body);
        self.stream.write_all(request.as_bytes()).await?;
        self.answer().await
    }

    /// The same; gives the answer's body too.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
        let code = self.send(method, path, body).await?;
        let at = find(&self.buffer, b"\r\n\r\n").map_or(0, |at| at + 4);
        Ok((code, String::from_utf8_lossy(&self.buffer[at..]).into_owned()))
    }

    /// A request as bytes.
    pub(crate) fn head(&self, method: &str, path: &str, body: &str) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nUser-Agent: bench\r\nAccept: application/json\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        )
    }

    async fn answer(&mut self) -> Result<u16> {
        self.buffer.clear();
        let head_end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            self.fill().await?;
        };
        let head = std::str::from_utf8(&self.buffer[..head_end]).context("the answer's head is not text")?;
        let code: u16 = head.get(9..12).and_then(|c| c.parse().ok()).context("no status code")?;
        let length = header(head, "content-length").and_then(|v| v.parse::<usize>().ok());
        let chunked = header(head, "transfer-encoding").is_some_and(|v| v.contains("chunked"));
        match length {
            Some(length) => {
                while self.buffer.len() < head_end + length {
                    self.fill().await?;
                }
            }
            None if chunked => {
                while !self.buffer.ends_with(b"\r\n0\r\n\r\n") {
                    self.fill().await?;
                }
            }
            None if code == 204 || code == 304 => {}
            None => bail!("an answer without a length"),
        }
        Ok(code)
    }

    async fn fill(&mut self) -> Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("the server closed the connection");
        }
        Ok(())
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}

/// Servers here are on loopback and sign for themselves: anybody's certificate will do, if the server has its key.
#[derive(Debug)]
struct TrustLoopback(WebPkiSupportedAlgorithms);

type Proof = Result<HandshakeSignatureValid, rustls::Error>;

impl ServerCertVerifier for TrustLoopback {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(&self, m: &[u8], c: &CertificateDer<'_>, s: &DigitallySignedStruct) -> Proof {
        verify_tls12_signature(m, c, s, &self.0)
    }

    fn verify_tls13_signature(&self, m: &[u8], c: &CertificateDer<'_>, s: &DigitallySignedStruct) -> Proof {
        verify_tls13_signature(m, c, s, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
