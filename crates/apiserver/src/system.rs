//! Paths that are not objects: health, version, metrics, discovery, OpenAPI, the keys of service-account tokens.

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, ETAG, HeaderValue, IF_NONE_MATCH, VARY,
};
use http::{Method, Response, StatusCode};
use landfall_api::Status;
use serde_json::json;

use crate::authn::oidc;
use crate::errors::{no_such_page, not_allowed};
use crate::http::answer;
use crate::http::body::Body;
use crate::http::negotiate::not_acceptable;
use crate::openapi::{Packed, V2_PROTOBUF};
use crate::serve::Call;

/// The version of Kubernetes whose API this is.
pub const KUBERNETES: (&str, &str, &str) = ("1", "36", "v1.36.4");

/// Answers a path that is neither an object nor discovery.
pub async fn dispatch(call: &Call<'_>, path: &str) -> Result<Response<Body>, Status> {
    if !matches!(call.head.method, Method::GET | Method::HEAD) {
        return Err(not_allowed());
    }
    match path {
        "/" => Ok(answer::object(StatusCode::OK, &json!({"paths": paths(call)}), call.style)),
        "/version" | "/version/" => Ok(version(call)),
        "/metrics" => {
            let text = call.api.telemetry.registry.render();
            let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            Ok(answer::with_type(StatusCode::OK, kind, text.into()))
        }
        "/openid/v1/jwks" => {
            let keys = oidc::keys(call.api.authn.accounts());
            Ok(answer::object(StatusCode::OK, &keys, call.style))
        }
        "/.well-known/openid-configuration" => {
            let host = call.head.headers.get(http::header::HOST).and_then(|h| h.to_str().ok());
            let external = format!("https://{}", host.unwrap_or("localhost"));
            let document = oidc::configuration(call.api.authn.accounts(), &external);
            Ok(answer::object(StatusCode::OK, &document, call.style))
        }
        _ if path.starts_with("/openapi/") => openapi(call, path),
        _ => health(call, path).await,
    }
}

fn paths(call: &Call<'_>) -> Vec<String> {
    let mut paths: Vec<String> = [
        "/api",
        "/api/v1",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ]
    .iter()
    .map(|p| (*p).to_owned())
    .collect();
    for kind in call.api.catalog.load().kinds().iter().filter(|k| !k.group.is_empty()) {
        paths.push(format!("/apis/{}", kind.group));
        paths.push(format!("/apis/{}/{}", kind.group, kind.version));
    }
    paths.sort_unstable();
    paths.dedup();
    paths
}

fn version(call: &Call<'_>) -> Response<Body> {
    let (major, minor, git) = KUBERNETES;
    let version = json!({
        "major": major, "minor": minor, "gitVersion": git,
        "emulationMajor": major, "emulationMinor": minor, "minCompatibilityMajor": major, "minCompatibilityMinor": "35",
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "",
        "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
    });
    answer::object(StatusCode::OK, &version, call.style)
}

// === health ===

/// What each health path looks at, in order.
const CHECKS: &[(&str, &[&str])] = &[
    ("/healthz", &["ping", "log", "store"]),
    ("/livez", &["ping", "log"]),
    ("/readyz", &["ping", "log", "store", "shutdown"]),
];

async fn health(call: &Call<'_>, path: &str) -> Result<Response<Body>, Status> {
    let (endpoint, one) = match path.get(1..).and_then(|p| p.split_once('/')) {
        Some((head, check)) => (format!("/{head}"), Some(check)),
        None => (path.to_owned(), None),
    };
    let Some((name, checks)) = CHECKS.iter().find(|(name, _)| *name == endpoint) else {
        return Err(no_such_page());
    };
    if one.is_some_and(|check| !checks.contains(&check)) {
        return Err(no_such_page());
    }
    let query = call.head.uri.query().unwrap_or("");
    let asked = |key: &str| form_urlencoded::parse(query.as_bytes()).any(|(k, _)| k == key);
    let excluded =
        |check: &str| form_urlencoded::parse(query.as_bytes()).any(|(k, v)| k == "exclude" && v == check);
    let mut text = String::new();
    let mut healthy = true;
    for check in checks.iter().filter(|c| one.is_none_or(|o| o == **c)) {
        if excluded(check) {
            text.push_str(&format!("[+]{check} excluded: ok\n"));
            continue;
        }
        match run_check(call, check).await {
            Ok(()) => text.push_str(&format!("[+]{check} ok\n")),
            Err(why) => {
                healthy = false;
                tracing::warn!(check, why, "a health check failed");
                text.push_str(&format!("[-]{check} failed: reason withheld\n"));
            }
        }
    }
    let verdict = format!("{} check {}\n", &name[1..], if healthy { "passed" } else { "failed" });
    Ok(match healthy {
        true if asked("verbose") => answer::text(StatusCode::OK, text + &verdict),
        true => answer::text(StatusCode::OK, "ok"),
        false => answer::text(StatusCode::INTERNAL_SERVER_ERROR, text + &verdict),
    })
}

async fn run_check(call: &Call<'_>, check: &str) -> Result<(), String> {
    match check {
        "store" => call.api.store.check().await.map_err(|e| e.to_string()),
        "shutdown" if call.api.tasks.stopped() => Err("the server is shutting down".into()),
        _ => Ok(()),
    }
}

// === discovery and OpenAPI ===

/// Answers `/api`, `/apis` and below.
pub fn discovery(call: &Call<'_>) -> Result<Response<Body>, Status> {
    if call.head.method != Method::GET && call.head.method != Method::HEAD {
        return Err(not_allowed());
    }
    let catalog = call.api.catalog.load();
    let found = catalog.discovery().find(call.head.uri.path(), call.header(&ACCEPT).unwrap_or(""));
    let document = found.ok_or_else(no_such_page)?.ok_or_else(not_acceptable)?;
    Ok(cached(call, &document.body, document.content_type, &document.etag))
}

/// A document that clients keep by its ETag.
fn cached(call: &Call<'_>, bytes: &Bytes, content_type: &'static str, etag: &str) -> Response<Body> {
    let unchanged = call.header(&IF_NONE_MATCH).is_some_and(|seen| seen == etag);
    let (code, bytes) =
        if unchanged { (StatusCode::NOT_MODIFIED, Bytes::new()) } else { (StatusCode::OK, bytes.clone()) };
    let mut response = if call.style.pretty && content_type == "application/json" {
        answer::styled(code, bytes, call.style)
    } else {
        answer::with_type(code, HeaderValue::from_static(content_type), bytes)
    };
    if let Ok(value) = HeaderValue::from_str(etag) {
        response.headers_mut().insert(ETAG, value);
    }
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    response
}

const JSON: &str = "application/json";

fn openapi(call: &Call<'_>, path: &str) -> Result<Response<Body>, Status> {
    let catalog = call.api.catalog.load();
    let documents = catalog.openapi();
    match path.trim_end_matches('/') {
        "/openapi/v3" => Ok(answer::object(StatusCode::OK, &documents.index(), call.style)),
        "/openapi/v2" => {
            let accept = call.header(&ACCEPT).unwrap_or("*/*");
            match accept {
                _ if accept.contains("proto-openapi.spec.v2") => {
                    Ok(packed(call, documents.v2_protobuf(), V2_PROTOBUF, false))
                }
                _ if accept.contains("json") || accept.contains("*/*") => {
                    Ok(packed(call, documents.v2(), JSON, false))
                }
                _ => Err(not_acceptable()),
            }
        }
        path => {
            let name = path.strip_prefix("/openapi/v3/").ok_or_else(no_such_page)?;
            let document = documents.v3(name).ok_or_else(no_such_page)?;
            let query = call.head.uri.query().unwrap_or("");
            let hash = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "hash");
            let known = hash.is_some_and(|(_, hash)| documents.hash_of(name) == Some(&*hash));
            Ok(packed(call, document, JSON, known))
        }
    }
}

/// A document that is kept compressed; `forever` when its URL names its content.
fn packed(call: &Call<'_>, document: &Packed, kind: &'static str, forever: bool) -> Response<Body> {
    let gzip = call.header(&ACCEPT_ENCODING).is_some_and(|accepted| accepted.contains("gzip"));
    let unchanged = call.header(&IF_NONE_MATCH).is_some_and(|seen| seen == document.etag);
    let kind = HeaderValue::from_static(kind);
    let mut response = match (unchanged, gzip) {
        (true, _) => answer::with_type(StatusCode::NOT_MODIFIED, kind, Bytes::new()),
        (false, true) => answer::with_type(StatusCode::OK, kind, document.gzip.clone()),
        (false, false) => answer::with_type(StatusCode::OK, kind, document.plain()),
    };
    let headers = response.headers_mut();
    if gzip && !unchanged {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if let Ok(value) = HeaderValue::from_str(&document.etag) {
        headers.insert(ETAG, value);
    }
    headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if forever {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    }
    response
}
