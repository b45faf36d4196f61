//! Answers of our own: refusals, redirects, fixed ones.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::uri::PathAndQuery;
use http::{HeaderValue, Response, StatusCode};
use landfall_api::landfall::RedirectAction;

use super::Body;
use crate::table::Fixed;

/// How long a client should wait when there is no room.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A status and a sentence.
pub(super) fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    text_answer(status, Bytes::from_static(text.as_bytes()))
}

/// A status and a sentence that is not known beforehand.
pub(super) fn told(status: StatusCode, text: &str) -> Response<Body> {
    text_answer(status, Bytes::copy_from_slice(text.as_bytes()))
}

fn text_answer(status: StatusCode, text: Bytes) -> Response<Body> {
    let mut answer = Response::new(Body::Full(Some(text).filter(|text| !text.is_empty())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, PLAIN);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        answer.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_S);
    }
    answer
}

/// An answer that stands ready.
pub(super) fn fixed(fixed: &Fixed) -> Response<Body> {
    let mut answer = text_answer(fixed.status, fixed.body.clone());
    answer.headers_mut().insert(CONTENT_TYPE, fixed.content_type.clone());
    answer
}

/// What a redirect starts from.
pub(super) struct From<'a> {
    pub(super) scheme: &'a str,
    /// With its port, as the client wrote it.
    pub(super) host: &'a str,
    pub(super) path: &'a PathAndQuery,
}

/// Sends a client elsewhere.
pub(super) fn redirect(action: &RedirectAction, from: &From<'_>) -> Response<Body> {
    let status = action.status_code.and_then(|code| u16::try_from(code).ok()).unwrap_or(302);
    let status = StatusCode::from_u16(status).ok().filter(StatusCode::is_redirection);
    let scheme = action.scheme.as_deref().unwrap_or(from.scheme);
    // Another scheme has another port.
    let same = action.scheme.is_none() || scheme == from.scheme;
    let own = if same { from.host } else { without_port(from.host) };
    let host = action.host.as_deref().unwrap_or(own);
    let query = from.path.query().map(|query| format!("?{query}")).unwrap_or_default();
    let place = match &action.path {
        Some(path) => format!("{scheme}://{host}{path}{query}"),
        None => format!("{scheme}://{host}{}", from.path),
    };
    let Ok(place) = HeaderValue::from_str(&place) else {
        return plain(StatusCode::BAD_REQUEST, "there is nowhere to go\n");
    };
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status.unwrap_or(StatusCode::FOUND);
    answer.headers_mut().insert(LOCATION, place);
    answer
}

/// Sends a client to HTTPS, with its method and its body.
pub(super) fn to_https(from: &From<'_>) -> Response<Body> {
    let action = RedirectAction {
        status_code: Some(308),
        scheme: Some("https".to_owned()),
        ..RedirectAction::default()
    };
    redirect(&action, from)
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_keeps_what_it_does_not_name() {
        let action = |scheme: Option<&str>, host: Option<&str>, path: Option<&str>| RedirectAction {
            status_code: None,
            scheme: scheme.map(str::to_owned),
            host: host.map(str::to_owned),
            path: path.map(str::to_owned),
        };
        for (action, want) in [
            (action(None, None, None), "http://a:81/x?q=1"),
            (action(Some("https"), None, None), "https://a/x?q=1"),
            (action(None, Some("b"), Some("/y")), "http://b/y?q=1"),
        ] {
            let path = PathAndQuery::from_static("/x?q=1");
            let from = From { scheme: "http", host: "a:81", path: &path };
            let got = redirect(&action, &from);
            assert_eq!(got.status(), 302);
            assert_eq!(got.headers().get(LOCATION).unwrap(), want);
        }
        assert_eq!(without_port("[::1]:80"), "[::1]");
        assert_eq!(without_port("[::1]"), "[::1]");
    }
}
