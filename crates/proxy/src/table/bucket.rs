//! A place outside the federation: an HTTP server that a route names by its URL. It is a target like a service's port, but its
//! endpoints are what its name leads to, and requests are rewritten for it.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::HOST;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};
use landfall_api::landfall::{BackendProtocol, RouteService};
use landfall_plan::choose::Chooser;
use landfall_plan::routes::Origin;
use rustls_pki_types::ServerName;
use tokio::sync::watch;

use super::Target;
use super::target::{Choice, Place, Reach, Service, Vitals};
use crate::core::Core;

/// How long a request waits until it is known where its bucket is.
const FIRST_LOOK_MAX: Duration = Duration::from_secs(5);
/// How often a request is tried again, and how many percent of all requests may be.
const RETRIES: u32 = 2;
const RETRY_PERCENT: u32 = 20;

/// How requests come to a place outside the federation.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) target: Arc<Target>,
    host: HeaderValue,
    prefix: Box<str>,
}

/// What a target outside the federation is known by.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Whom its certificate must name.
    pub(crate) server_name: Option<ServerName<'static>>,
    known: watch::Sender<Known>,
}

/// What is known of where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    NotYet,
    Fine,
    Problem(String),
}

/// What tells origins apart, as targets.
pub(super) type Site = (bool, String, u16);

/// The site of an origin.
pub(super) fn site(origin: &Origin) -> Site {
    (origin.tls, origin.host.clone(), origin.port)
}

impl Bucket {
    /// None where its host cannot be said in a header.
    pub(super) fn new(origin: &Origin, target: Arc<Target>) -> Option<Self> {
        let host = HeaderValue::from_str(&origin.header).ok()?;
        Some(Self { target, host, prefix: origin.prefix.as_str().into() })
    }

    /// Rewrites a request for it.
    pub(crate) fn address(&self, parts: &mut Parts) {
        parts.headers.insert(HOST, self.host.clone());
        if self.prefix.is_empty() {
            return;
        }
        let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        if let Ok(path) = PathAndQuery::try_from(format!("{}{path}", self.prefix)) {
            parts.uri = Uri::from(path);
        }
    }
}

impl Target {
    /// A target for an origin.
    pub(super) fn outside(id: u64, origin: &Origin) -> Self {
        let service = RouteService {
            namespace: "bucket".to_owned(),
            name: origin.host.clone(),
            port: origin.port.into(),
            port_name: String::new(),
            protocol: if origin.tls { BackendProtocol::Https } else { BackendProtocol::Http },
        };
        let outside = Outside {
            host: origin.host.clone(),
            port: origin.port,
            server_name: ServerName::try_from(origin.host.clone()).ok(),
            known: watch::Sender::new(Known::NotYet),
        };
        let mut target = Self::new(id, Arc::new(service));
        target.outside = Some(outside);
        target
    }

    /// Its name leads here from now on, or cannot be followed: then it goes on as it was.
    pub(crate) fn lead(&self, found: Result<Vec<SocketAddr>, String>, now_ms: u64) {
        let Some(outside) = &self.outside else { return };
        let known = match found {
            Ok(addresses) => {
                self.lead_to(addresses, now_ms);
                Known::Fine
            }
            Err(why) => Known::Problem(why),
        };
        let news = outside.known.send_replace(known.clone()) != known;
        if let (true, Known::Problem(why)) = (news, known) {
            tracing::warn!(bucket = outside.host, why, "a bucket cannot be found");
        }
    }

    /// Nothing goes there any more.
    pub(crate) fn bar(&self, why: String, now_ms: u64) {
        self.lead_to(Vec::new(), now_ms);
        self.lead(Err(why), now_ms);
    }

    fn lead_to(&self, addresses: Vec<SocketAddr>, now_ms: u64) {
        let ways: Vec<Reach> = addresses.into_iter().map(Reach::Direct).collect();
        if self.leads_to(&ways) {
            return;
        }
        self.change(now_ms, |vital| {
            let vital = |way: Reach| {
                let vitals: Arc<Vitals> = vital(&way);
                (way, vitals)
            };
            Service {
                chooser: Chooser::origin(&self.service.name),
                places: vec![Place {
                    choice: Choice { cluster: "".into(), own: true },
                    ways: ways.into_iter().map(vital).collect(),
                    active: Arc::default(),
                }],
                retries: RETRIES,
                retry_percent: RETRY_PERCENT,
                ..Service::default()
            }
        });
    }

    fn leads_to(&self, ways: &[Reach]) -> bool {
        let now = self.service();
        now.places.len() == 1 && now.places.iter().all(|place| place.ways.iter().map(|(way, _)| way).eq(ways))
    }

    /// Waits until it is known where it is, if it is outside and has just been named.
    pub(crate) async fn found(&self, core: &Rc<Core>) {
        let Some(outside) = &self.outside else { return };
        if *outside.known.borrow() != Known::NotYet {
            return;
        }
        let mut known = outside.known.subscribe();
        tokio::select! {
            _ = known.wait_for(|known| *known != Known::NotYet) => {}
            () = core.ticker.after(FIRST_LOOK_MAX) => {}
        }
    }

    /// Why it cannot be found.
    pub(super) fn problem(&self) -> Option<String> {
        match &*self.outside.as_ref()?.known.borrow() {
            Known::Problem(why) => Some(why.clone()),
            Known::NotYet | Known::Fine => None,
        }
    }
}
