//! One event of the log.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use serde_json::{Map, Value, json};

use super::Finished;
use crate::authn::{User, uuid};
use crate::authz::{Attributes, Verdict};

/// The longest user agent that is recorded whole, as in Kubernetes.
const USER_AGENT_MAX: usize = 1024;
/// The longest id a client may give its request.
const ID_MAX: usize = 64;
/// How many addresses a client may claim to have come through.
const SOURCES_MAX: usize = 16;

/// What is kept of a request until it is written. Its texts are copied; it is encoded by the writer.
pub(super) struct Record {
    id: String,
    uri: String,
    verb: String,
    user: Option<Arc<User>>,
    impersonated: Option<Arc<User>>,
    constraint: &'static str,
    sources: Vec<String>,
    agent: String,
    object: Option<Value>,
    status: Value,
    verdict: Option<Verdict>,
    began: Duration,
    ended: Duration,
}

impl Record {
    pub(super) fn new(finished: &Finished<'_>) -> Self {
        let Finished { note, asked, headers, .. } = *finished;
        Self {
            id: header(headers, "audit-id").filter(|id| id.len() <= ID_MAX).map_or_else(uuid, str::to_owned),
            uri: finished.uri.into(),
            verb: asked.verb.into(),
            user: note.user.clone(),
            impersonated: note.impersonated.clone(),
            constraint: note.constraint,
            sources: sources(headers, finished.peer),
            agent: truncated(header(headers, "user-agent").unwrap_or_default()),
            object: asked.is_resource.then(|| object(asked)),
            status: status(finished),
            verdict: note.verdict.clone(),
            began: finished.began,
            ended: finished.ended,
        }
    }

    /// The Event.
    pub(super) fn to_line(&self) -> String {
        let mut event = Map::new();
        let mut put = |key: &str, value: Value| {
            event.insert(key.into(), value);
        };
        put("kind", json!("Event"));
        put("apiVersion", json!("audit.k8s.io/v1"));
        put("level", json!("Metadata"));
        put("auditID", json!(self.id));
        put("stage", json!("ResponseComplete"));
        put("requestURI", json!(self.uri));
        put("verb", json!(self.verb));
        put("user", self.user.as_ref().map_or_else(|| json!({}), |user| user.to_value()));
        if let Some(user) = &self.impersonated {
            put("impersonatedUser", user.to_value());
        }
        if !self.constraint.is_empty() {
            put("authenticationMetadata", json!({"impersonationConstraint": self.constraint}));
        }
        if !self.sources.is_empty() {
            put("sourceIPs", json!(self.sources));
        }
        if !self.agent.is_empty() {
            put("userAgent", json!(self.agent));
        }
        if let Some(object) = &self.object {
            put("objectRef", object.clone());
        }
        put("responseStatus", self.status.clone());
        put("requestReceivedTimestamp", json!(time(self.began)));
        put("stageTimestamp", json!(time(self.ended)));
        if let Some(verdict) = &self.verdict {
            let decision = if verdict.allowed() { "allow" } else { "forbid" };
            put(
                "annotations",
                json!({"authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": verdict.reason()}),
            );
        }
        Value::Object(event).to_string()
    }
}

fn object(asked: &Attributes<'_>) -> Value {
    let fields = [
        ("resource", asked.resource),
        ("namespace", asked.namespace),
        ("name", asked.name),
        ("apiGroup", asked.group),
        ("apiVersion", asked.version),
        ("subresource", asked.subresource),
    ];
    let shown = fields.iter().filter(|(_, text)| !text.is_empty());
    Value::Object(shown.map(|(key, text)| ((*key).to_owned(), json!(text))).collect())
}

fn status(finished: &Finished<'_>) -> Value {
    let Some(refusal) = finished.refusal else { return json!({"metadata": {}, "code": finished.code}) };
    let mut status = refusal.to_value();
    if let Some(map) = status.as_object_mut() {
        map.remove("kind");
        map.remove("apiVersion");
    }
    status
}

/// Where it says it came from, and where it did come from last.
fn sources(headers: &HeaderMap, peer: Option<IpAddr>) -> Vec<String> {
    let claimed = header(headers, "x-forwarded-for").unwrap_or_default().split(',');
    let real = header(headers, "x-real-ip");
    let claimed = claimed.chain(real).filter_map(|text| text.trim().parse::<IpAddr>().ok());
    let mut all: Vec<String> = Vec::new();
    for address in claimed.take(SOURCES_MAX).chain(peer) {
        let text = address.to_canonical().to_string();
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().filter(|text| !text.is_empty())
}

fn truncated(agent: &str) -> String {
    match agent.char_indices().nth(USER_AGENT_MAX) {
        Some((end, _)) => format!("{}...TRUNCATED", &agent[..end]),
        None => agent.into(),
    }
}

/// RFC 3339, in microseconds.
fn time(since: Duration) -> String {
    let micros = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
    format!("{:.6}", jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::UNIX_EPOCH))
}
