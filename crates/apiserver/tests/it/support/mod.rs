//! Hubs in this process, on a runtime of their own, and a plain client.

pub(crate) mod etcd;
pub(crate) mod raw;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use landfall_apiserver::{pki, start};
use landfall_store::{Store, embedded, open_embedded};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// How long anything may take before a test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Threads of hubs are called so, which tells their panics from those of failing tests.
const THREADS: &str = "hub-under-test";

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// A running hub.
pub(crate) struct Hub {
    /// The server.
    pub(crate) server: Arc<start::Server>,
    /// Where its objects are.
    pub(crate) store: Arc<dyn Store>,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Asks as the administrator.
    pub(crate) admin: Asker,
    /// The client of kube-rs, as the administrator.
    pub(crate) client: kube::Client,
    /// Its keys.
    pub(crate) directory: PathBuf,
    runtime: Option<Runtime>,
    _files: tempfile::TempDir,
}

impl Hub {
    /// A hub on an embedded store of its own.
    pub(crate) async fn start() -> Self {
        Self::with_history(landfall_store::HistoryLimits::default()).await
    }

    /// A hub that remembers only so much.
    pub(crate) async fn with_history(history: landfall_store::HistoryLimits) -> Self {
        let files = tempfile::tempdir().unwrap();
        let mut config = embedded::Config::new(files.path().join("store"));
        config.history = history;
        let store = open_embedded(config).unwrap();
        Self::on(store, files, None, "hub-a").await
    }

    /// A hub on a given store, with the keys of another hub if there is one.
    pub(crate) async fn on(
        store: Arc<dyn Store>,
        files: tempfile::TempDir,
        keys_of: Option<&Path>,
        identity: &str,
    ) -> Self {
        count_panics();
        let runtime =
            Builder::new_multi_thread().worker_threads(2).thread_name(THREADS).enable_all().build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap().into_std().unwrap();
        let address = listener.local_addr().unwrap();
        let config = config(files.path(), address, keys_of, identity);
        let tokens = files.path().join("tokens.csv");
        std::fs::write(&tokens, "jane-token,jane,1,\"readers,writers\"\nmaster,root,2,\"system:masters\"\n")
            .unwrap();
        let its_store = store.clone();
        let starting = runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            start::start(config, its_store, listener).await
        });
        let server = starting.await.unwrap().unwrap();
        let client = client(&server.admin_kubeconfig, address).await;
        Self {
            server: Arc::new(server),
            store,
            address,
            admin: Asker { client: client.clone(), headers: Vec::new() },
            client,
            directory: files.path().to_owned(),
            runtime: Some(runtime),
            _files: files,
        }
    }

    /// Asks with a bearer token instead of a certificate.
    pub(crate) async fn with_token(&self, token: &str) -> Asker {
        let mut config = kube_config(&self.server.admin_kubeconfig, self.address).await;
        config.auth_info =
            kube::config::AuthInfo { token: Some(token.to_owned().into()), ..Default::default() };
        Asker { client: kube::Client::try_from(config).unwrap(), headers: Vec::new() }
    }

    /// Asks with another certificate (PEM) and its key (PEM).
    pub(crate) async fn with_certificate(&self, certificate: &str, key: &str) -> Asker {
        let encode = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
        let mut config = kube_config(&self.server.admin_kubeconfig, self.address).await;
        config.auth_info = kube::config::AuthInfo {
            client_certificate_data: Some(encode(certificate)),
            client_key_data: Some(encode(key).into()),
            ..Default::default()
        };
        Asker { client: kube::Client::try_from(config).unwrap(), headers: Vec::new() }
    }

    /// Asks as the administrator who acts as somebody else.
    pub(crate) fn acting(&self, headers: &[(&'static str, &str)]) -> Asker {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Asker { client: self.client.clone(), headers }
    }

    /// Stops it in good order; whatever it did, it did not panic.
    pub(crate) async fn stop(mut self) {
        let runtime = self.runtime.take().expect("stopped once");
        let (server, store) = (self.server.clone(), self.store.clone());
        runtime
            .spawn(async move {
                server.stop().await;
                store.close().await;
            })
            .await
            .unwrap();
        runtime.shutdown_background();
        assert_no_panics();
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Fails when any hub of this process panicked anywhere.
pub(crate) fn assert_no_panics() {
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "a hub panicked: see above");
}

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() == Some(THREADS) {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            usual(info);
        }));
    });
}

fn config(directory: &Path, address: SocketAddr, keys_of: Option<&Path>, identity: &str) -> start::Config {
    let shared = |name: &str| keys_of.map(|other| other.join("pki").join(name));
    start::Config {
        admission: None,
        beside: None,
        edge_certificate_s: 3600,
        pki: pki::Config {
            data_dir: directory.to_owned(),
            names: vec!["127.0.0.1".into()],
            server: format!("https://{address}"),
            ca_cert: shared("ca.crt"),
            ca_key: shared("ca.key"),
            sa_key: shared("sa.key"),
            ..pki::Config::default()
        },
        token_file: Some(directory.join("tokens.csv")),
        anonymous: true,
        audit: None,
        kinds: landfall_api::kinds::federation(),
        definitions: landfall_api::landfall::definitions(),
        identity: identity.to_owned(),
    }
}

async fn kube_config(kubeconfig: &Path, address: SocketAddr) -> kube::Config {
    let read = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
    config.cluster_url = format!("https://{address}").parse().unwrap();
    // What a test asks is what the hub gets, once.
    config.default_retry = false;
    config
}

async fn client(kubeconfig: &Path, address: SocketAddr) -> kube::Client {
    kube::Client::try_from(kube_config(kubeconfig, address).await).unwrap()
}

// === asking ===

/// Sends requests in one person's name.
#[derive(Clone)]
pub(crate) struct Asker {
    client: kube::Client,
    headers: Vec<(&'static str, String)>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The HTTP code.
    pub(crate) code: u16,
    /// The document; null when it is none.
    pub(crate) body: Value,
    /// `Warning` headers.
    pub(crate) warnings: Vec<String>,
    /// What was asked, for messages.
    asked: String,
}

impl Asker {
    /// Asks whatever server a kubeconfig names.
    pub(crate) async fn of(kubeconfig: &Path) -> Self {
        let read = Kubeconfig::read_from(kubeconfig).unwrap();
        let mut config =
            kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        Self { client: kube::Client::try_from(config).unwrap(), headers: Vec::new() }
    }

    /// Sends one request.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> Answer {
        let response = self.open(method, path, headers, body.into()).await;
        let code = response.status().as_u16();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|value| value.to_str().unwrap().to_owned()).collect();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Answer { code, body, warnings, asked: format!("{method} {path}") }
    }

    async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> http::Response<Body> {
        let mut request = http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Body::from(body)).unwrap();
        let sent = tokio::time::timeout(PATIENCE, self.client.send(request)).await;
        sent.unwrap_or_else(|_| panic!("no answer to {method} {path}")).unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) -> Answer {
        self.send("POST", path, &[JSON], object.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, object: &Value) -> Answer {
        self.send("PUT", path, &[JSON], object.to_string()).await
    }

    /// `kind` is `merge`, `json`, `strategic` or `apply`.
    pub(crate) async fn patch(&self, kind: &str, path: &str, patch: &Value) -> Answer {
        let media = match kind {
            "merge" => "application/merge-patch+json",
            "json" => "application/json-patch+json",
            "strategic" => "application/strategic-merge-patch+json",
            "apply" => "application/apply-patch+yaml",
            other => panic!("no such patch: {other}"),
        };
        self.send("PATCH", path, &[("content-type", media)], patch.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], "").await
    }

    pub(crate) async fn delete_with(&self, path: &str, options: &Value) -> Answer {
        self.send("DELETE", path, &[JSON], options.to_string()).await
    }

    /// Opens a watch; `path` carries its parameters, `watch=1` included.
    pub(crate) async fn watch(&self, path: &str) -> Events {
        let response = self.open("GET", path, &[], Vec::new()).await;
        assert_eq!(response.status(), 200, "{path}");
        Events { body: response.into_body(), rest: Vec::new(), asked: path.to_owned() }
    }

    /// Waits until `holds` is true of what `path` answers, by asking again whenever something changed there.
    pub(crate) async fn until(&self, path: &str, what: &str, holds: impl Fn(&Answer) -> bool) -> Answer {
        let wait = async {
            loop {
                let answer = self.get(path).await;
                if holds(&answer) {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what} ({path})"))
    }

    /// Waits until an object is gone.
    pub(crate) async fn gone(&self, path: &str) {
        self.until(path, "gone", |answer| answer.code == 404).await;
    }
}

/// The usual media type.
pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

impl Answer {
    /// The document of a success.
    pub(crate) fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{}: {} {}", self.asked, self.code, self.body);
        self.body
    }

    /// The message of a refusal with this code and reason.
    pub(crate) fn refused(self, code: u16, reason: &str) -> String {
        let got = (self.code, self.body["kind"].as_str(), self.body["reason"].as_str().unwrap_or(""));
        assert_eq!(got, (code, Some("Status"), reason), "{}: {}", self.asked, self.body);
        assert_eq!(self.body["code"], json!(code), "{}", self.asked);
        self.body["message"].as_str().unwrap_or_default().to_owned()
    }

    /// Names of the items of a list.
    pub(crate) fn names(self) -> Vec<String> {
        let list = self.ok();
        let items = list["items"].as_array().unwrap_or_else(|| panic!("no list: {list}"));
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// The events of a watch.
pub(crate) struct Events {
    body: Body,
    rest: Vec<u8>,
    asked: String,
}

impl Events {
    /// The next event; none at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await;
            let frame = frame.unwrap_or_else(|_| panic!("no event from {}", self.asked));
            match frame {
                Some(Ok(frame)) => self.rest.extend_from_slice(&frame.into_data().unwrap()),
                Some(Err(_)) | None => return None,
            }
        }
    }

    /// The next event as `TYPE name`.
    pub(crate) async fn step(&mut self) -> String {
        let event = self.next().await.unwrap_or_else(|| panic!("{} ended", self.asked));
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or("");
        format!("{} {name}", event["type"].as_str().unwrap()).trim_end().to_owned()
    }

    /// Asserts the next events.
    pub(crate) async fn expect(&mut self, steps: &[&str]) {
        for (index, step) in steps.iter().enumerate() {
            assert_eq!(self.step().await, *step, "event {index} of {}", self.asked);
        }
    }
}

/// The resourceVersion of an object or list.
pub(crate) fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// A Secret: of a kind that nobody but the test makes.
pub(crate) fn secret(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}, "data": {"a": "MQ=="}})
}

/// Where Secrets of the default namespace are.
pub(crate) const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Says why a part of the suite did not run; not by a macro, since those are hidden while a test passes.
pub(crate) fn skip(what: &str, why: &str) {
    use std::io::Write as _;
    #[expect(clippy::disallowed_methods, reason = "how `cargo xtask test` says that nothing may be skipped")]
    let required = std::env::var("LANDFALL_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == what), "{why}, and LANDFALL_REQUIRE asks for {what}");
    let mut stderr = std::io::stderr();
    writeln!(stderr, "SKIPPED: {what}: {why}").unwrap();
}

/// How long clients run under writes: 20 s unless `LANDFALL_CLIENTS_S` says otherwise.
pub(crate) fn run_for() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "how a person asks for a longer run")]
    let asked = std::env::var("LANDFALL_CLIENTS_S").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(20))
}
