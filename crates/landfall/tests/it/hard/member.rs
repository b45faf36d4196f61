//! A member whose API can be in a bad mood: our API server with Kubernetes' kinds, behind a door that counts and spoils answers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use landfall_apiserver::api::Api;
use landfall_apiserver::authn::{MASTERS, TokenFile, User, x509};
use landfall_apiserver::http::answer;
use landfall_apiserver::http::body::Body;
use landfall_apiserver::pki::{self, Pki};
use landfall_apiserver::serve::{Peer, serve};
use landfall_apiserver::start::{Parts, Served, Server, start_parts};
use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// How an API answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// As it should.
    Well,
    /// Writes are turned away with 429: ask again after a second.
    Busy,
    /// Writes fail with 500.
    Broken,
    /// Writes are answered with something that is no JSON, and are not done.
    Garbage,
    /// Writes take so long.
    Slow(Duration),
    /// Nobody is let in.
    Locked,
    /// Whoever shows this token is let in.
    Keyed(&'static str),
    /// Everything is answered with a page that has nothing to do with the question.
    Senseless,
    /// This resource is not served, as in an older Kubernetes.
    Without(&'static str),
    /// Writes of this resource are refused by admission.
    Refusing(&'static str),
}

/// See the module.
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) at: SocketAddr,
    /// The authority of its certificate, as a `Cluster` wants it.
    pub(super) ca_bundle: String,
    state: Arc<State>,
    servers: Vec<Server>,
    door: Option<Tasks>,
    tls: TlsAcceptor,
}

struct State {
    api: Mutex<Arc<Api>>,
    mood: Mutex<Mood>,
    /// Writes that came in, each as method and path.
    writes: Mutex<Vec<String>>,
}

impl Member {
    pub(super) async fn start(name: &'static str) -> Self {
        let server = api().await;
        let Pki { authority, tls, .. } = pki::make(&["127.0.0.1".into()], clock::epoch_s()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = State {
            api: Mutex::new(server.api.clone()),
            mood: Mutex::new(Mood::Well),
            writes: Mutex::default(),
        };
        let mut member = Self {
            name,
            at: listener.local_addr().unwrap(),
            ca_bundle: base64::engine::general_purpose::STANDARD.encode(authority.pem()),
            state: Arc::new(state),
            servers: vec![server],
            door: None,
            tls: TlsAcceptor::from(tls.config()),
        };
        member.open(listener);
        member
    }

    pub(super) fn is(&self, mood: Mood) {
        *self.state.mood.lock() = mood;
    }

    /// The writes that came in since this was last asked.
    pub(super) fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.state.writes.lock())
    }

    pub(super) fn api(&self) -> Arc<Api> {
        self.state.api.lock().clone()
    }

    /// It is gone: whoever is connected is cut off, and nobody else gets in.
    pub(super) async fn vanish(&mut self) {
        if let Some(door) = self.door.take() {
            door.join().await;
        }
    }

    /// It is there again.
    pub(super) async fn return_(&mut self) {
        let listener = TcpListener::bind(self.at).await.unwrap();
        self.open(listener);
    }

    /// From now on it is what it was when it was new: somebody restored an old backup.
    pub(super) async fn restore(&mut self) {
        let server = api().await;
        *self.state.api.lock() = server.api.clone();
        self.servers.push(server);
    }

    pub(super) async fn stop(mut self) {
        self.vanish().await;
        for server in &self.servers {
            server.stop().await;
        }
    }

    fn open(&mut self, listener: TcpListener) {
        let (door, tls, state) = (Tasks::default(), self.tls.clone(), self.state.clone());
        let tasks = door.clone();
        door.spawn_until_stop(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, state) = (tls.clone(), state.clone());
                tasks.spawn_until_stop(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(|request| {
                        let state = state.clone();
                        async move { Ok::<_, Infallible>(state.answer(request).await) }
                    });
                    let _ = http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        self.door = Some(door);
    }
}

impl State {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let write = !matches!(method, Method::GET | Method::HEAD);
        if write {
            self.writes.lock().push(format!("{method} {path}"));
        }
        let mood = *self.mood.lock();
        let about = |resource: &str| path.split('/').any(|part| part == resource);
        let spoilt = match mood {
            Mood::Busy if write => {
                Some(said(429, "TooManyRequests", "Too many requests, please try again later."))
            }
            Mood::Broken if write => {
                Some(said(500, "InternalError", "Internal error occurred: etcdserver: no leader"))
            }
            Mood::Garbage if write => Some(answer::json(StatusCode::OK, Bytes::from_static(b"<html>hello"))),
            Mood::Keyed(token) => {
                let shown = request.headers().get("authorization").and_then(|value| value.to_str().ok());
                let good = shown.and_then(|value| value.strip_prefix("Bearer ")) == Some(token);
                (!good).then(|| said(401, "Unauthorized", "Unauthorized"))
            }
            Mood::Senseless => Some(answer::text(StatusCode::OK, "<html>hello")),
            Mood::Locked => Some(said(401, "Unauthorized", "Unauthorized")),
            Mood::Without(resource) if about(resource) => {
                Some(answer::text(StatusCode::NOT_FOUND, "404 page not found\n"))
            }
            Mood::Refusing(resource) if write && about(resource) => Some(said(
                403,
                "Forbidden",
                "admission webhook \"policy.example.com\" denied the request: not here",
            )),
            Mood::Slow(time) if write => {
                tokio::time::sleep(time).await;
                None
            }
            _ => None,
        };
        if let Some(mut spoilt) = spoilt {
            if mood == Mood::Busy {
                spoilt.headers_mut().insert("retry-after", HeaderValue::from_static("1"));
            }
            return spoilt;
        }
        let user = User { name: "hub".into(), groups: vec![MASTERS.into()], ..User::default() };
        let peer = Peer { certificate: x509::Peer::User(Arc::new(user)), ..Peer::default() };
        let api = self.api.lock().clone();
        serve(&api, &peer, request).await
    }
}

fn said(code: u16, reason: &str, message: &str) -> Response<Body> {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
    });
    answer::json(StatusCode::from_u16(code).unwrap(), status.to_string().into())
}

async fn api() -> Server {
    let pki = pki::make(&["127.0.0.1".into()], clock::epoch_s()).unwrap();
    let parts = Parts {
        pki,
        tokens: TokenFile::default(),
        anonymous: true,
        audit: None,
        served: Arc::new(Served::new(landfall_api::kinds::member(), &[])),
        identity: None,
        admission: None,
        beside: None,
        edge_certificate_s: None,
    };
    let config = landfall_store::embedded::Config::new("memory");
    let store = landfall_store::open_memory(config).unwrap();
    start_parts(parts, store, TcpListener::bind("127.0.0.1:0").await.unwrap()).await.unwrap()
}
