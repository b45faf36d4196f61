//! Origins: HTTP servers outside the federation, such as storage buckets, as routes name them by a URL.
//!
//! A URL of a user makes edges speak to whatever it names, so it is read strictly here, and what its name leads to is looked at
//! again by the edge that finds it out ([`crate::guard`]).

use std::net::IpAddr;

use landfall_api::landfall::BucketBackend;

use crate::guard::is_private_matter;

/// An HTTP server outside the federation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Whether it is spoken to over TLS.
    pub tls: bool,
    /// Its name in lower case, or its address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What stands before the path of every request; empty, or begins with `/` and does not end with it.
    pub prefix: String,
    /// The `Host` that it is told.
    pub header: String,
}

/// Reads what a route says of an origin; why it cannot be spoken to.
pub fn origin(bucket: &BucketBackend) -> Result<Origin, String> {
    let url = bucket.url.as_str();
    let (tls, rest) = match url.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
        Some(_) | None => {
            return Err(format!("the bucket's URL {url:?} begins with neither http:// nor https://"));
        }
    };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if authority.contains('@') || rest.contains(['?', '#']) {
        return Err(format!("the bucket's URL {url:?} has a user, a query or a fragment"));
    }
    let (host, port) =
        host_and_port(authority).ok_or_else(|| format!("the bucket's URL {url:?} names no host"))?;
    if let Ok(ip) = host.parse::<IpAddr>()
        && is_private_matter(ip)
    {
        return Err(format!("the bucket's address {ip} is nobody's backend"));
    }
    let prefix = path.trim_end_matches('/');
    if !is_plain_path(prefix) {
        return Err(format!("the path of the bucket's URL {url:?} can be read in several ways"));
    }
    let header = bucket.host.as_deref().filter(|header| !header.is_empty()).unwrap_or(authority);
    if !header.bytes().all(is_host_byte) {
        return Err(format!("the bucket's host {header:?} is none"));
    }
    let default = if tls { 443 } else { 80 };
    Ok(Origin {
        tls,
        host: host.to_ascii_lowercase(),
        port: port.unwrap_or(default),
        prefix: prefix.to_owned(),
        header: header.to_owned(),
    })
}

fn host_and_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port)
        }
        None => {
            let (host, port) = authority.find(':').map_or((authority, ""), |at| authority.split_at(at));
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
            (!host.is_empty() && host.bytes().all(plain)).then_some((host, port))?
        }
    };
    match port.strip_prefix(':') {
        None if port.is_empty() => Some((host, None)),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|port| *port > 0).map(|port| (host, Some(port)))
        }
        Some(_) | None => None,
    }
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']')
}

/// Whether nobody reads a path otherwise than it is written.
fn is_plain_path(path: &str) -> bool {
    let visible = path.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'%' | b'\\'));
    visible && path.split('/').skip(1).all(|element| !matches!(element, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, host: Option<&str>, want: Result<(bool, &str, u16, &str, &str), &str>) {
        let got = origin(&BucketBackend { url: url.to_owned(), host: host.map(str::to_owned) });
        match (&got, want) {
            (Ok(got), Ok(want)) => {
                let got = (got.tls, got.host.as_str(), got.port, got.prefix.as_str(), got.header.as_str());
                assert_eq!(got, want, "{url}");
            }
            (Err(why), Err(part)) => assert!(why.contains(part), "{url}: {why}"),
            (got, want) => panic!("{url}: {got:?}, not {want:?}"),
        }
    }

    #[test]
    fn a_url_is_read_in_one_way_or_refused() {
        check("https://b.example.com", None, Ok((true, "b.example.com", 443, "", "b.example.com")));
        check("http://B.example:9000/x/y/", None, Ok((false, "b.example", 9000, "/x/y", "B.example:9000")));
        check(
            "https://s3.example/b",
            Some("b.s3.example"),
            Ok((true, "s3.example", 443, "/b", "b.s3.example")),
        );
        check("http://[2001:db8::1]:81/", None, Ok((false, "2001:db8::1", 81, "", "[2001:db8::1]:81")));
        for (url, why) in [
            ("ftp://b.example", "neither http:// nor https://"),
            ("b.example", "neither"),
            ("file:///etc/passwd", "neither"),
            ("http://", "names no host"),
            ("http://:80/", "names no host"),
            ("http://b.example:0/", "names no host"),
            ("http://b.example:70000/", "names no host"),
            ("http://b example/", "names no host"),
            ("http://[::1/", "names no host"),
            ("http://user@b.example/", "has a user"),
            ("http://b.example/x?y", "a query"),
            ("http://b.example#x", "a query"),
            ("http://b.example/a/../b", "several ways"),
            ("http://b.example/a//b", "several ways"),
            ("http://b.example/%2e%2e", "several ways"),
            ("http://169.254.169.254/latest", "nobody's backend"),
            ("http://[fe80::1]/", "nobody's backend"),
        ] {
            check(url, None, Err(why));
        }
        check("http://b.example", Some("a\r\nx: y"), Err("is none"));
    }
}
