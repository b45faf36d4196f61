//! A connection to one API: the hub's own, or a member's. HTTP/2, so that all watches of a member share one connection.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use rustls_pki_types::ServerName;
use serde_json::Value;

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a silent connection is asked whether it is still there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(2);
const PING_TIMEOUT: Duration = Duration::from_secs(4);
/// The longest that a server may ask to be left alone.
const RETRY_AFTER_MAX_S: u64 = 60;
/// The largest answer that is read.
const ANSWER_MAX: usize = 64 << 20;

/// What opens an API.
#[derive(Clone, PartialEq, Eq)]
pub struct Opening {
    /// Its URL.
    pub server: String,
    /// The authority of its certificate, PEM in base64; the machine's own authorities when not given.
    pub ca_bundle: Option<String>,
    /// The name its certificate is checked for, where it is not the URL's.
    pub tls_server_name: Option<String>,
    /// Who we are.
    pub credentials: Credentials,
}

/// Who we are to an API. Never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Nobody.
    #[default]
    None,
    /// A bearer token.
    Token(String),
    /// A client certificate and its key, PEM.
    Certificate {
        /// The certificate.
        certificate: Vec<u8>,
        /// Its key.
        key: Vec<u8>,
    },
}

impl Credentials {
    /// Reads the Secret that a `Cluster` names: `token`, or `tls.crt` and `tls.key`.
    pub fn of_secret(secret: &Value) -> Result<Self, OpenError> {
        let data = |key: &str| {
            let text = secret.get("data").and_then(|data| data.get(key)).and_then(Value::as_str)?;
            BASE64.decode(text).ok()
        };
        if let Some(token) = data("token") {
            let token = String::from_utf8(token).map_err(|_| OpenError::Secret("its token is not text"))?;
            return Ok(Self::Token(token.trim().to_owned()));
        }
        match (data("tls.crt"), data("tls.key")) {
            (Some(certificate), Some(key)) => Ok(Self::Certificate { certificate, key }),
            _ => Err(OpenError::Secret("it has neither token nor tls.crt and tls.key")),
        }
    }
}

/// Why an API cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The Secret with the credentials.
    #[error("the credentials cannot be used: {0}")]
    Secret(&'static str),
    /// The URL, the authority or the credentials.
    #[error("the address or the credentials cannot be used: {0}")]
    Config(String),
}

/// Opens an API; nothing is sent yet.
pub async fn open(opening: &Opening) -> Result<kube::Client, OpenError> {
    let wrong = |error: &dyn std::fmt::Display| OpenError::Config(error.to_string());
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig(opening), &options).await;
    let mut config = config.map_err(|error| wrong(&error))?;
    if let Credentials::Token(token) = &opening.credentials {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| OpenError::Secret("its token has characters that no token has"))?;
        value.set_sensitive(true);
        config.headers.push((AUTHORIZATION, value));
    }
    connect(&config).map_err(|error| wrong(&error))
}

/// A client over HTTP/2 where the server speaks it.
pub fn connect(config: &kube::Config) -> Result<kube::Client, kube::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_nodelay(true);
    let tls = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?);
    let mut tls = tls.https_only();
    if let Some(name) = &config.tls_server_name
        && let Ok(name) = ServerName::try_from(name.clone())
    {
        tls = tls.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name));
    }
    let connector = tls.enable_all_versions().wrap_connector(tcp);
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build::<_, Body>(connector);
    let builder = ClientBuilder::new(client, config.default_namespace.clone());
    let builder = builder.with_layer(&config.extra_headers_layer()?);
    Ok(builder.with_layer(&config.base_uri_layer()).build())
}

fn kubeconfig(opening: &Opening) -> Kubeconfig {
    let mut user = AuthInfo::default();
    match &opening.credentials {
        // A token is a header, not a part of the connection.
        Credentials::None | Credentials::Token(_) => {}
        Credentials::Certificate { certificate, key } => {
            user.client_certificate_data = Some(BASE64.encode(certificate));
            user.client_key_data = Some(BASE64.encode(key).into());
        }
    }
    let cluster = Cluster {
        server: Some(opening.server.clone()),
        certificate_authority_data: opening.ca_bundle.clone(),
        tls_server_name: opening.tls_server_name.clone(),
        ..Cluster::default()
    };
    let context = Context { cluster: "it".into(), user: Some("us".into()), ..Context::default() };
    Kubeconfig {
        clusters: vec![NamedCluster { name: "it".into(), cluster: Some(cluster), ..NamedCluster::default() }],
        auth_infos: vec![NamedAuthInfo {
            name: "us".into(),
            auth_info: Some(user),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext { name: "it".into(), context: Some(context), ..NamedContext::default() }],
        current_context: Some("it".into()),
        ..Kubeconfig::default()
    }
}

/// One request.
#[derive(Debug)]
pub struct Ask<'a> {
    /// How.
    pub method: Method,
    /// Path and query.
    pub path: &'a str,
    /// The type of the body; empty when there is none.
    pub content: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl<'a> Ask<'a> {
    /// A request without a body.
    pub fn new(method: Method, path: &'a str) -> Self {
        Self { method, path, content: "", body: Vec::new() }
    }

    /// A request with a JSON body of some type.
    pub fn with(method: Method, path: &'a str, content: &'static str, body: &Value) -> Self {
        Self { method, path, content, body: serde_json::to_vec(body).unwrap_or_default() }
    }
}

/// An answer that is no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The API said no: HTTP status, reason, message.
    Refused {
        /// The HTTP status.
        code: u16,
        /// The reason's word.
        reason: String,
        /// What it says.
        message: String,
        /// When it asks to be asked again.
        retry_after_s: Option<u64>,
    },
    /// It could not be asked, or did not answer in time, or not in a way that can be read.
    Failed(String),
}

impl Trouble {
    /// Whether asking again, as it is, may help: the server is busy or broken, or was not reached.
    pub fn passes(&self) -> bool {
        match self {
            Self::Refused { code, .. } => *code == 429 || *code >= 500,
            Self::Failed(_) => true,
        }
    }

    /// How long it asks to be left alone, a minute at most.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after_s, .. } => {
                retry_after_s.map(|s| Duration::from_secs(s.min(RETRY_AFTER_MAX_S)))
            }
            Self::Failed(_) => None,
        }
    }

    /// The HTTP status, if there was an answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Failed(_) => None,
        }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused { code, message, .. } if message.is_empty() => write!(f, "HTTP status {code}"),
            Self::Refused { message, .. } => f.write_str(message),
            Self::Failed(what) => f.write_str(what),
        }
    }
}

/// Sends one request and reads the answer; an answer that says no is a [`Trouble`].
pub async fn ask(
    client: &kube::Client,
    ask: Ask<'_>,
    timeout: Duration,
) -> Result<(StatusCode, Bytes), Trouble> {
    let failed = |error: &dyn std::fmt::Display| Trouble::Failed(error.to_string());
    let mut request =
        Request::builder().method(ask.method).uri(ask.path).header("accept", "application/json");
    if !ask.content.is_empty() {
        request = request.header("content-type", ask.content);
    }
    let request = request.body(Body::from(ask.body)).map_err(|error| failed(&error))?;
    let answer = async {
        let response = client.send(request).await.map_err(|error| Trouble::Failed(root_cause(&error)))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await.map_err(|error| failed(&error))?.to_bytes();
        if head.status.is_success() {
            return Ok((head.status, body));
        }
        let retry = head.headers.get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        Err(refused(head.status, &body, retry))
    };
    let late = || Trouble::Failed(format!("no answer within {} s", timeout.as_secs_f32()));
    tokio::time::timeout(timeout, answer).await.unwrap_or_else(|_| Err(late()))
}

/// Sends one request and reads the answer as JSON.
pub async fn ask_json(client: &kube::Client, request: Ask<'_>, timeout: Duration) -> Result<Value, Trouble> {
    let (_, bytes) = ask(client, request, timeout).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Trouble::Failed(format!("the answer is not JSON: {error}")))
}

fn refused(status: StatusCode, body: &[u8], retry_after_s: Option<u64>) -> Trouble {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |key: &str| said.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    Trouble::Refused {
        code: status.as_u16(),
        reason: text("reason"),
        message: text("message"),
        retry_after_s,
    }
}

/// The innermost of a chain of errors: what people need to know of a connection that failed.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
