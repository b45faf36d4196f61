//! TLS: shakes hands without asking who it is, and looks at when the certificate ends.

use std::sync::{Arc, OnceLock};

use landfall_runtime::clock;
use landfall_runtime::tls::{Anybody, Verifier};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::Point;
use crate::check::Check;

/// Shakes hands.
pub(super) async fn shake<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    point: &Point,
    check: &Check,
    protocols: &[&[u8]],
) -> Result<TlsStream<S>, String> {
    let host = if check.host.is_empty() { &point.host } else { &check.host };
    // A host may be told with its port.
    let host =
        host.split_once(':').filter(|(_, rest)| !rest.contains(':')).map_or(host.as_str(), |(name, _)| name);
    let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host:?} is no host"))?;
    let mut config = config()?.clone();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.map_err(|_| "the TLS handshake failed".to_owned())
}

/// Shakes hands, and looks at the certificate.
pub(super) async fn look<S>(stream: S, point: &Point, check: &Check) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let stream = shake(stream, point, check, &[]).await?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let first = chain.first().ok_or("there is no certificate")?;
    let (_, certificate) = X509Certificate::from_der(first).map_err(|_| "the certificate cannot be read")?;
    let (from, until) = (certificate.validity().not_before, certificate.validity().not_after);
    let now_s = clock::epoch_s();
    if until.timestamp() <= now_s {
        return Err(format!("the certificate ended at {until}"));
    }
    if from.timestamp() > now_s {
        return Err(format!("the certificate begins at {from}"));
    }
    Ok(())
}

fn config() -> Result<&'static ClientConfig, String> {
    static CONFIG: OnceLock<Option<ClientConfig>> = OnceLock::new();
    let made = CONFIG.get_or_init(|| {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let verifier = Arc::new(Verifier { judge: Anybody, provider });
        Some(config.ok()?.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
    });
    made.as_ref().ok_or_else(|| "TLS is not available".to_owned())
}
