//! Speaking to a cluster's API server: a few blocking calls with JSON.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::Error;
use crate::pki::Identity;

/// The longest that a call may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// The longest answer that is read.
const ANSWER_MAX: u64 = 256 << 20;
/// Who owns the fields that we apply.
const MANAGER: &str = "landfall-rig";

/// A way to one API server, as its administrator.
#[derive(Clone)]
pub struct Api {
    agent: ureq::Agent,
    url: String,
}

impl Api {
    /// The way to the server at a URL whose certificate an authority has signed.
    pub(crate) fn new(url: String, authority: &str, identity: &Identity) -> Result<Self, Error> {
        let failed = |error: ureq::Error| Error::Api {
            what: format!("credentials for {url}"),
            said: error.to_string(),
        };
        let root = Certificate::from_pem(authority.as_bytes()).map_err(failed)?;
        let certificate = Certificate::from_pem(identity.certificate.as_bytes()).map_err(failed)?;
        let key = PrivateKey::from_pem(identity.key.as_bytes()).map_err(failed)?;
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .root_certs(RootCerts::new_with_certs(&[root]))
            .client_cert(Some(ClientCert::new_with_certs(&[certificate], key)))
            .build();
        let config = ureq::Agent::config_builder()
            .tls_config(tls)
            .proxy(None)
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(TIMEOUT));
        Ok(Self { agent: config.build().new_agent(), url })
    }

    /// Reads an object or a list.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub fn get(&self, path: &str) -> Result<Value, Error> {
        json(path, self.agent.get(format!("{}{path}", self.url)).call())
    }

    /// Applies an object at its own path, whether it exists or not.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub fn apply(&self, path: &str, object: &Value) -> Result<Value, Error> {
        self.patch(
            &format!("{path}?fieldManager={MANAGER}&force=true"),
            "application/apply-patch+yaml",
            object,
        )
    }

    /// Merges into an object.
    ///
    /// # Errors
    /// When the server refuses or does not answer.
    pub fn merge(&self, path: &str, change: &Value) -> Result<Value, Error> {
        self.patch(path, "application/merge-patch+json", change)
    }

    /// Whether the server is ready, and what it says if not.
    pub(crate) fn ready(&self) -> Result<(), Error> {
        text("/readyz", self.agent.get(format!("{}/readyz", self.url)).call()).map(drop)
    }

    fn patch(&self, path: &str, kind: &str, value: &Value) -> Result<Value, Error> {
        let request = self.agent.patch(format!("{}{path}", self.url)).header("content-type", kind);
        json(path, request.send(value.to_string().as_bytes()))
    }
}

type Answer = Result<ureq::http::Response<ureq::Body>, ureq::Error>;

fn json(path: &str, answer: Answer) -> Result<Value, Error> {
    let text = text(path, answer)?;
    serde_json::from_str(&text).map_err(|error| Error::Api { what: path.to_owned(), said: error.to_string() })
}

fn text(path: &str, answer: Answer) -> Result<String, Error> {
    let failed = |error: ureq::Error| Error::Api { what: path.to_owned(), said: error.to_string() };
    let mut response = answer.map_err(failed)?;
    let text = response.body_mut().with_config().limit(ANSWER_MAX).read_to_string().map_err(failed)?;
    if response.status().is_success() {
        return Ok(text);
    }
    let status: Value = serde_json::from_str(&text).unwrap_or_default();
    let said = status["message"].as_str().unwrap_or(&text).to_owned();
    Err(Error::Api { what: path.to_owned(), said: format!("{}: {said}", response.status()) })
}
