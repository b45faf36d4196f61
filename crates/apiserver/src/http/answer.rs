//! Answers: every response leaves through here, so that headers and errors look the same everywhere.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WARNING};
use http::{Response, StatusCode};
use landfall_api::Status;
use serde_json::Value;

use super::body::Body;
use super::negotiate::Encoding;

/// The most warnings, and the longest, that are sent along; as in Kubernetes.
const WARNING_COUNT_MAX: usize = 100;
const WARNING_CHARS_MAX: usize = 256;

/// How an answer is written out.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// JSON or YAML.
    pub encoding: Encoding,
    /// Indented, for people.
    pub pretty: bool,
}

impl Style {
    /// Compact JSON.
    pub const JSON: Self = Self { encoding: Encoding::Json, pretty: false };

    /// Whether encoded JSON can be sent as it is.
    pub const fn is_plain(self) -> bool {
        matches!(self.encoding, Encoding::Json) && !self.pretty
    }
}

/// JSON bytes as they are.
pub fn json(code: StatusCode, bytes: Bytes) -> Response<Body> {
    with_type(code, HeaderValue::from_static("application/json"), bytes)
}

/// Encoded JSON, rewritten only if the client asked for another style.
pub fn styled(code: StatusCode, bytes: Bytes, style: Style) -> Response<Body> {
    if style.is_plain() {
        return json(code, bytes);
    }
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(value) => object(code, &value, style),
        Err(_) => json(code, bytes),
    }
}

/// A JSON value.
pub fn object(code: StatusCode, value: &Value, style: Style) -> Response<Body> {
    match style.encoding {
        Encoding::Yaml => {
            // JSON is YAML too, should the writer ever fail.
            let text = serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string());
            with_type(code, HeaderValue::from_static("application/yaml"), text.into_bytes().into())
        }
        Encoding::Json if style.pretty => {
            let mut text = serde_json::to_vec_pretty(value).expect("JSON values can be written");
            text.push(b'\n');
            json(code, text.into())
        }
        Encoding::Json => json(code, serde_json::to_vec(value).expect("JSON values can be written").into()),
    }
}

/// Plain text.
pub fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    with_type(code, HeaderValue::from_static("text/plain; charset=utf-8"), text.into())
}

/// Bytes of any media type.
pub fn with_type(code: StatusCode, content_type: HeaderValue, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A refusal.
pub fn refusal(status: &Status, style: Style) -> Response<Body> {
    // What no API serves is answered as any web server would; clients then say what they asked for.
    if status.message == crate::errors::NO_SUCH_PAGE {
        return text(StatusCode::NOT_FOUND, "404 page not found\n");
    }
    let code = StatusCode::from_u16(status.reason.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = object(code, &status.to_value(), style);
    if status.retry_after_s > 0 {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(status.retry_after_s));
    }
    if code == StatusCode::UNAUTHORIZED {
        let realm = HeaderValue::from_static("Bearer realm=\"landfall\"");
        response.headers_mut().insert(http::header::WWW_AUTHENTICATE, realm);
    }
    response
}

/// Adds `Warning: 299 - "text"` headers.
pub fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings.iter().take(WARNING_COUNT_MAX) {
        let mut text = String::from("299 - \"");
        for c in warning.chars().take(WARNING_CHARS_MAX).filter(|c| !c.is_control()) {
            if matches!(c, '"' | '\\') {
                text.push('\\');
            }
            text.push(c);
        }
        text.push('"');
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// Names the request in the audit log, as Kubernetes does.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
