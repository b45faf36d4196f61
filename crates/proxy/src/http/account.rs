//! What is told of a request when it is over: a line of the access log, and a span of its trace.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::header::HOST;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Uri};
use smallvec::SmallVec;

use super::handle::Ticket;
use super::journey::Errand;
use crate::log::Entry;
use crate::trace::{Started, Told};
use crate::upstream::Endpoint;

/// What is told of a request when it is over.
pub(super) struct Account {
    method: Method,
    uri: Uri,
    host: Option<HeaderValue>,
    route: Arc<str>,
    service: Arc<str>,
    span: Option<Started>,
    /// Where it went, if it went anywhere, and why.
    cluster: Option<Arc<str>>,
    why: &'static str,
    retries: u32,
    /// Who was asked before.
    tried: Tried,
    /// What went wrong, if something did.
    fault: Option<Cow<'static, str>>,
}

/// The clusters that were asked in vain, one after the other.
pub(super) type Tried = SmallVec<[Arc<str>; 2]>;

/// How it ended.
pub(super) struct End<'a> {
    pub(super) status: StatusCode,
    pub(super) took: Duration,
    pub(super) endpoint: Option<&'a Endpoint>,
    /// The answer broke off.
    pub(super) broke_off: bool,
}

impl Account {
    /// Begins with what a client asks, before it is made ready for an endpoint; none where nothing is told of anybody.
    pub(super) fn open(ticket: &Ticket, errand: &Errand<'_>, parts: &mut Parts) -> Option<Box<Self>> {
        let shared = &ticket.core.shared;
        let span = shared
            .tracer
            .as_ref()
            .and_then(|tracer| tracer.begin(&ticket.core, &mut parts.headers, ticket.before.is_some()));
        if span.is_none() && shared.log.is_off() {
            return None;
        }
        Some(Box::new(Self {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            host: parts.headers.get(HOST).cloned(),
            route: errand.plan.name.clone(),
            service: errand.target.name.clone(),
            span,
            cluster: None,
            why: "",
            retries: 0,
            tried: Tried::new(),
            fault: None,
        }))
    }

    /// It went to a cluster.
    pub(super) fn went(&mut self, cluster: Arc<str>, why: &'static str, retries: u32, tried: Tried) {
        (self.cluster, self.why, self.retries, self.tried) = (Some(cluster), why, retries, tried);
    }

    /// Something went wrong.
    pub(super) fn failed(&mut self, fault: impl Into<Cow<'static, str>>) {
        self.fault = Some(fault.into());
    }

    /// Tells of it.
    pub(super) fn close(self, ticket: &Ticket, end: &End<'_>) {
        let shared = &ticket.core.shared;
        let host = self.host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or_default();
        if !shared.log.is_off() {
            shared.log.write(&Entry {
                client: ticket.conn.info.client,
                method: self.method.as_str(),
                host,
                path: self.uri.path(),
                route: &self.route,
                service: &self.service,
                cluster: self.cluster.as_deref().unwrap_or_default(),
                endpoint: end.endpoint,
                why: self.why,
                status: end.status,
                took: end.took,
                retries: self.retries,
                tried: &self.tried,
                fault: self.fault.as_deref(),
                broke_off: end.broke_off,
                trace: self.span.as_ref().map(Started::trace).as_deref(),
            });
        }
        let (Some(span), Some(tracer)) = (self.span, &shared.tracer) else { return };
        let told = Told {
            method: self.method.as_str().to_owned(),
            host: host.to_owned(),
            path: self.uri.path().to_owned(),
            client: ticket.conn.info.client.ip().to_canonical().to_string(),
            status: end.status.as_u16(),
            route: self.route,
            service: self.service,
            cluster: self.cluster.unwrap_or_default(),
            why: self.why,
            retries: self.retries,
            fault: self.fault.map(Cow::into_owned),
        };
        tracer.end(span, told);
    }
}
