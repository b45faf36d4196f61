//! What a request asks for: its host and its path, in the one form in which they are both matched and passed on, so that
//! nobody behind us reads them otherwise.

use http::header::HOST;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, Uri, Version};
use landfall_plan::routes::path::{is_suspicious, normal_path};

/// Why a request is refused before anybody is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no host, or more than one, or one that cannot be.
    Host,
    /// The target has no path, or one that two readers would read in two ways.
    Target,
    /// It asks us to be a tunnel.
    Connect,
}

/// The host of a request and its path, if that had to be made normal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// In lower case, without a port; empty when an HTTP/1.0 client did not say.
    pub(crate) host: String,
    /// The path and query to be used instead of what was sent.
    pub(crate) path: Option<PathAndQuery>,
    /// It asks what the server can do, whatever the path: `OPTIONS *`.
    pub(crate) server: bool,
}

/// Reads what a request asks for. A target in absolute form is taken as it is, and then its host is the host.
pub(crate) fn read(
    method: &Method,
    uri: &Uri,
    version: Version,
    headers: &HeaderMap,
) -> Result<Asked, Refusal> {
    if method == Method::CONNECT {
        return Err(Refusal::Connect);
    }
    let host = match (uri.authority(), single_host(headers)?) {
        (Some(authority), _) => host_of(authority)?,
        (None, Some(host)) => host_of_header(host)?,
        (None, None) if version == Version::HTTP_10 => String::new(),
        (None, None) => return Err(Refusal::Host),
    };
    // RFC 9110, 7.1: no other method has this target.
    let server = method == Method::OPTIONS && uri.path() == "*";
    let path = if server { None } else { normal(uri)? };
    Ok(Asked { host, path, server })
}

fn single_host(headers: &HeaderMap) -> Result<Option<&HeaderValue>, Refusal> {
    let mut hosts = headers.get_all(HOST).iter();
    let first = hosts.next();
    if hosts.next().is_some() { Err(Refusal::Host) } else { Ok(first) }
}

/// A path that is in its normal form, without its query. What else the target has is plain, too: of other bytes than RFC 3986 allows in a path or
/// a query each parser thinks for itself.
pub(crate) fn plain_path(target: &str) -> Option<&str> {
    let path = target.split('?').next()?;
    let allowed = target.bytes().all(|byte| ALLOWED[usize::from(byte)]);
    (path.starts_with('/') && allowed && !is_suspicious(path.as_bytes())).then_some(path)
}

/// The bytes that may be in a path with its query.
const ALLOWED: [bool; 256] = {
    let (mut all, marks, mut at) = ([false; 256], b"-._~!$&'()*+,;=:@/?%", 0_u8);
    loop {
        all[at as usize] = at.is_ascii_alphanumeric();
        if at == u8::MAX {
            break;
        }
        at += 1;
    }
    let mut mark = 0;
    while mark < marks.len() {
        all[marks[mark] as usize] = true;
        mark += 1;
    }
    all
};

/// A name and perhaps a port: the name in lower case.
pub(crate) fn plain_host(bytes: &[u8]) -> Option<String> {
    let name = bytes.iter().position(|byte| *byte == b':').map_or(bytes, |at| &bytes[..at]);
    let port = bytes.get(name.len() + 1..).unwrap_or_default();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let number = std::str::from_utf8(port).ok()?;
    let sound = port.is_empty() || port.iter().all(u8::is_ascii_digit) && number.parse::<u16>().is_ok();
    if name.is_empty() || !name.iter().all(plain) || !sound {
        return None;
    }
    let name = name.strip_suffix(b".").unwrap_or(name);
    String::from_utf8(name.to_ascii_lowercase()).ok()
}

/// The common case is read without taking it apart.
fn host_of_header(value: &HeaderValue) -> Result<String, Refusal> {
    let bytes = value.as_bytes();
    if let Some(host) = plain_host(bytes) {
        return Ok(host);
    }
    host_of(&Authority::try_from(bytes).map_err(|_| Refusal::Host)?)
}

fn host_of(authority: &Authority) -> Result<String, Refusal> {
    let host = authority.host();
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']');
    // Whoever it names and whatever port: all of it must be one of the two.
    let rest = authority.as_str().strip_prefix(host);
    let port = rest.is_some_and(|rest| rest.is_empty() || rest == ":" || authority.port_u16().is_some());
    let sound = !host.is_empty() && host.bytes().all(plain) && port;
    if !sound {
        return Err(Refusal::Host);
    }
    Ok(host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase())
}

/// The path in its normal form, if that is not what was sent.
fn normal(uri: &Uri) -> Result<Option<PathAndQuery>, Refusal> {
    let path = uri.path();
    if !path.starts_with('/') {
        return Err(Refusal::Target);
    }
    let Some(path) = normal_path(path).map_err(|_| Refusal::Target)? else { return Ok(None) };
    let whole = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    PathAndQuery::try_from(whole).map(Some).map_err(|_| Refusal::Target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_parsers_disagree_about_is_not_plain() {
        for target in ["/", "/a/b.c", "/a~b/(c)?d=e&f=%20/?", "/@a:b;c=1,2"] {
            assert_eq!(plain_path(target), target.split('?').next(), "{target}");
        }
        for target in [
            "", "a", "*", "/a`b", "/a#b", "/a?b#c", "/a?<", "/a?b`", "/a|b", "/\u{e9}", "/a//b", "/%61",
            "/a b",
        ] {
            assert_eq!(plain_path(target), None, "{target}");
        }
    }

    #[test]
    fn a_host_is_one_name() {
        for (hosts, version, want) in [
            (&["Example.COM:8080"][..], Version::HTTP_11, Ok("example.com")),
            (&["example.com."], Version::HTTP_11, Ok("example.com")),
            (&["[2001:db8::1]:80"], Version::HTTP_11, Ok("[2001:db8::1]")),
            (&[], Version::HTTP_10, Ok("")),
            (&[], Version::HTTP_11, Err(Refusal::Host)),
            (&[""], Version::HTTP_11, Err(Refusal::Host)),
            (&["a", "a"], Version::HTTP_11, Err(Refusal::Host)),
            (&["a b"], Version::HTTP_11, Err(Refusal::Host)),
            (&["a/b"], Version::HTTP_11, Err(Refusal::Host)),
            (&["user@a"], Version::HTTP_11, Err(Refusal::Host)),
            (&["a:99999999"], Version::HTTP_11, Err(Refusal::Host)),
            (&["a,b"], Version::HTTP_11, Err(Refusal::Host)),
        ] {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(HOST, HeaderValue::from_str(host).unwrap());
            }
            let got = read(&Method::GET, &Uri::from_static("/x"), version, &headers);
            assert_eq!(got.map(|asked| asked.host), want.map(str::to_owned), "{hosts:?}");
        }
    }

    #[test]
    fn absolute_form_wins_over_the_header_and_other_forms_are_refused() {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("other"));
        let ask = |method: Method, uri: &'static str| {
            read(&method, &Uri::from_static(uri), Version::HTTP_11, &headers).map(|asked| asked.host)
        };
        assert_eq!(ask(Method::GET, "http://a.example/x"), Ok("a.example".to_owned()));
        assert_eq!(ask(Method::GET, "*"), Err(Refusal::Target));
        assert_eq!(ask(Method::OPTIONS, "*"), Ok("other".to_owned()));
        assert_eq!(ask(Method::OPTIONS, "x"), Err(Refusal::Target));
        assert_eq!(ask(Method::CONNECT, "a:443"), Err(Refusal::Connect));
    }
}
