//! Headers on their way: what is for one hop stays there, and what tells of the client is told by us, not by the client.

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, FORWARDED, HOST, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, Version};

use super::Conn;

/// From edge to edge: the service that a request is for. Taken from edges only.
pub(crate) const PEER_TARGET: HeaderName = HeaderName::from_static("landfall-target");

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
pub(super) const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
pub(super) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(super) const FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
pub(super) const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(super) const CLIENT_SUBJECT: HeaderName = HeaderName::from_static("x-forwarded-client-cert-subject");

/// Who we are, in `Via`.
pub(super) const US: HeaderValue = HeaderValue::from_static("1.1 landfall");

/// What a client asks to change to, if it does.
pub(super) fn upgrade_of(headers: &HeaderMap, version: Version) -> Option<HeaderValue> {
    if version != Version::HTTP_11 || !headers.contains_key(UPGRADE) {
        return None;
    }
    let wants = headers.get_all(CONNECTION).iter().any(|value| has_token(value, "upgrade"));
    // HTTP/2 without TLS is offered by prior knowledge only.
    headers.get(UPGRADE).filter(|to| wants && !to.as_bytes().eq_ignore_ascii_case(b"h2c")).cloned()
}

/// Takes away what is for one hop only.
pub(crate) fn strip_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        strip_named(headers);
    }
    for name in [KEEP_ALIVE, PROXY_CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
}

/// What `Connection` names is for one hop. It cannot name what frames and directs the message itself.
fn strip_named(headers: &mut HeaderMap) {
    let mut named: smallvec::SmallVec<[HeaderName; 4]> = smallvec::SmallVec::new();
    for value in headers.get_all(CONNECTION) {
        let tokens = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        let plain = tokens.filter(|token| !token.eq_ignore_ascii_case(b"close") && !token.is_empty());
        named.extend(plain.filter_map(|token| HeaderName::from_bytes(token).ok()));
    }
    for name in named {
        if name != HOST && name != CONTENT_LENGTH && name != TE {
            headers.remove(name);
        }
    }
    headers.remove(CONNECTION);
}

/// Makes a client's headers ready for an endpoint.
pub(super) fn for_endpoint(headers: &mut HeaderMap, conn: &Conn, version: Version) {
    strip_hop(headers);
    headers.remove(HTTP2_SETTINGS);
    // Only "trailers" may be passed on, and only we can promise it.
    if let Some(te) = headers.remove(TE)
        && has_token(&te, "trailers")
    {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if version == Version::HTTP_2 {
        join_cookies(headers);
    }
    headers.append(VIA, US);
    if conn.info.from_peer.is_some() {
        return;
    }
    headers.remove(PEER_TARGET);
    if let Some(host) = headers.get(HOST).cloned() {
        headers.insert(FORWARDED_HOST, host);
    }
    headers.insert(REAL_IP, conn.client.clone());
    headers.insert(FORWARDED_FOR, conn.client.clone());
    headers.insert(FORWARDED_PROTO, conn.scheme.clone());
    headers.insert(FORWARDED_PORT, conn.port.clone());
    headers.insert(FORWARDED, conn.forwarded.clone());
    let subject = conn.info.tls.as_ref().and_then(|tls| tls.client_subject.clone());
    match subject {
        Some(subject) => headers.insert(CLIENT_SUBJECT, subject),
        None => headers.remove(CLIENT_SUBJECT),
    };
}

/// Makes an endpoint's headers ready for the client.
pub(super) fn for_client(headers: &mut HeaderMap) {
    strip_hop(headers);
}

/// HTTP/2 allows a cookie header to come in pieces; HTTP/1.1 does not.
fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(COOKIE).iter();
    let (Some(first), Some(second)) = (cookies.next(), cookies.next()) else { return };
    let mut whole = first.as_bytes().to_vec();
    for cookie in std::iter::once(second).chain(cookies) {
        whole.extend_from_slice(b"; ");
        whole.extend_from_slice(cookie.as_bytes());
    }
    if let Ok(whole) = HeaderValue::from_bytes(&whole) {
        headers.insert(COOKIE, whole);
    }
}

/// The value of a cookie.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let pairs = headers.get_all(COOKIE).into_iter().flat_map(|value| value.as_bytes().split(|b| *b == b';'));
    pairs.map(<[u8]>::trim_ascii_start).find_map(|pair| {
        let value = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(value.trim_ascii_end())
    })
}

fn has_token(value: &HeaderValue, token: &str) -> bool {
    let tokens = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    tokens.into_iter().any(|one| one.eq_ignore_ascii_case(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn what_is_for_one_hop_stays_there() {
        let mut headers = map(&[
            ("connection", "close, X-Secret"),
            ("connection", "host, content-length"),
            ("x-secret", "1"),
            ("host", "a"),
            ("content-length", "3"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("accept", "*/*"),
        ]);
        strip_hop(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "content-length", "host"]);
    }

    #[test]
    fn an_upgrade_is_asked_for_by_both_headers() {
        for (pairs, want) in [
            (&[("upgrade", "websocket"), ("connection", "keep-alive, Upgrade")][..], Some("websocket")),
            (&[("upgrade", "websocket")], None),
            (&[("upgrade", "h2c"), ("connection", "upgrade")], None),
            (&[("connection", "upgrade")], None),
        ] {
            let got = upgrade_of(&map(pairs), Version::HTTP_11);
            assert_eq!(got.as_ref().map(|value| value.to_str().unwrap()), want, "{pairs:?}");
        }
        let both = map(&[("upgrade", "websocket"), ("connection", "upgrade")]);
        assert_eq!(upgrade_of(&both, Version::HTTP_10), None);
    }

    #[test]
    fn cookies_are_found_whole() {
        let mut headers = map(&[("cookie", "xa=1; a=2"), ("cookie", "b=3 ;a=4")]);
        assert_eq!(cookie(&headers, "a"), Some(&b"2"[..]));
        assert_eq!(cookie(&headers, "b"), Some(&b"3"[..]));
        assert_eq!(cookie(&headers, "c"), None);
        join_cookies(&mut headers);
        assert_eq!(headers.get(COOKIE).unwrap(), "xa=1; a=2; b=3 ;a=4");
        assert_eq!(headers.get_all(COOKIE).iter().count(), 1);
    }
}
