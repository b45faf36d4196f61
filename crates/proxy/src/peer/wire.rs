//! What one edge tells another with a request: for which service it is, and whose.
//!
//! The headers stand on the link between edges alone. Whoever sends them there has shown that it is an edge; what clients or
//! endpoints send under these names is taken off.

use std::net::SocketAddr;
use std::str::FromStr as _;

use http::{HeaderMap, HeaderName, HeaderValue};
use landfall_api::landfall::{BackendProtocol, RouteService};

/// For which service: namespace, name, port, the port's name and what is spoken, with `/` between.
const SERVICE: HeaderName = HeaderName::from_static("landfall-service");
/// Who the client is, and whom it meant to reach.
const CLIENT: HeaderName = HeaderName::from_static("landfall-client");
const SERVER: HeaderName = HeaderName::from_static("landfall-server");
/// Connections to endpoints begin with a PROXY header.
const SEND_PROXY: HeaderName = HeaderName::from_static("landfall-send-proxy");
/// What a tunnel carries, where it is not a stream.
const CARRIES: HeaderName = HeaderName::from_static("landfall-carries");
/// In an answer: no endpoint gave it, the edge itself did, and why.
const FAILED: HeaderName = HeaderName::from_static("landfall-failed");
/// Beside that: nothing of the request was sent to anybody, so it may go elsewhere whatever it is.
const UNSENT: HeaderName = HeaderName::from_static("landfall-unsent");
/// All of them.
const ALL: [HeaderName; 7] = [SERVICE, CLIENT, SERVER, SEND_PROXY, CARRIES, FAILED, UNSENT];

/// What a request between edges is for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Order {
    /// The service.
    pub(crate) service: RouteService,
    /// The client.
    pub(crate) client: SocketAddr,
    /// Whom the client meant to reach.
    pub(crate) server: SocketAddr,
    /// Whether endpoints are told of both.
    pub(crate) send_proxy: bool,
    /// What a tunnel is for; requests have no use for it.
    pub(crate) carries: Carries,
}

/// What a tunnel carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Carries {
    /// Bytes.
    #[default]
    Stream,
    /// Datagrams, each with its length before it.
    Datagrams,
    /// Bytes, of somebody who only finds out whether the service is well.
    Look,
}

/// Takes off what only edges may say.
pub(crate) fn strip(headers: &mut HeaderMap) {
    for name in &ALL {
        headers.remove(name);
    }
}

/// Marks an answer as the edge's own.
pub(crate) fn fail(headers: &mut HeaderMap, why: &'static str) {
    headers.insert(FAILED, HeaderValue::from_static(why));
}

/// Says that nothing of the request was sent to anybody.
pub(crate) fn was_not_sent(headers: &mut HeaderMap) {
    headers.insert(UNSENT, HeaderValue::from_static("1"));
}

/// Whether an edge says so.
pub(crate) fn is_unsent(headers: &HeaderMap) -> bool {
    headers.contains_key(UNSENT)
}

/// Why an edge itself gave an answer; none where an endpoint did.
pub(crate) fn failure(headers: &HeaderMap) -> Option<&str> {
    headers.get(FAILED).map(|why| why.to_str().unwrap_or("unknown"))
}

impl Order {
    /// Writes it, over whatever stands there. Only a name that no service can have is no header.
    pub(crate) fn write(&self, headers: &mut HeaderMap) -> Option<()> {
        let ascii = |text: String| HeaderValue::try_from(text).ok();
        strip(headers);
        headers.insert(SERVICE, write_service(&self.service)?);
        headers.insert(CLIENT, ascii(self.client.to_string())?);
        headers.insert(SERVER, ascii(self.server.to_string())?);
        if self.send_proxy {
            headers.insert(SEND_PROXY, HeaderValue::from_static("2"));
        }
        let carries = match self.carries {
            Carries::Stream => None,
            Carries::Datagrams => Some("datagrams"),
            Carries::Look => Some("look"),
        };
        if let Some(carries) = carries {
            headers.insert(CARRIES, HeaderValue::from_static(carries));
        }
        Some(())
    }

    /// Reads it; none where it is not whole.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        Some(Self {
            service: read_service(text(&SERVICE)?)?,
            client: SocketAddr::from_str(text(&CLIENT)?).ok()?,
            server: SocketAddr::from_str(text(&SERVER)?).ok()?,
            send_proxy: headers.contains_key(SEND_PROXY),
            carries: match text(&CARRIES) {
                None if !headers.contains_key(CARRIES) => Carries::Stream,
                Some("datagrams") => Carries::Datagrams,
                Some("look") => Carries::Look,
                _ => return None,
            },
        })
    }
}

/// A service as one edge names it to another. Only a name that no service can have is no header.
pub(crate) fn write_service(service: &RouteService) -> Option<HeaderValue> {
    let RouteService { namespace, name, port, port_name, protocol } = service;
    let protocol = PROTOCOLS.iter().find(|(known, _)| known == protocol)?.1;
    HeaderValue::try_from(format!("{namespace}/{name}/{port}/{port_name}/{protocol}")).ok()
}

/// The service that another edge names; none where it is not whole.
pub(crate) fn read_service(text: &str) -> Option<RouteService> {
    let mut parts = text.split('/');
    let mut next = || parts.next();
    let (namespace, name) = (next()?.to_owned(), next()?.to_owned());
    let (port, port_name) = (next()?.parse().ok()?, next()?.to_owned());
    let word = next()?;
    let protocol = PROTOCOLS.iter().find(|(_, known)| *known == word)?.0;
    next().is_none().then_some(RouteService { namespace, name, port, port_name, protocol })
}

const PROTOCOLS: [(BackendProtocol, &str); 3] =
    [(BackendProtocol::Http, "HTTP"), (BackendProtocol::H2c, "H2C"), (BackendProtocol::Https, "HTTPS")];

#[cfg(test)]
mod tests {
    use super::*;

    fn order(port_name: &str, protocol: BackendProtocol, send_proxy: bool) -> Order {
        let (namespace, name, port_name) = ("default".into(), "web".into(), port_name.into());
        Order {
            service: RouteService { namespace, name, port: 80, port_name, protocol },
            client: "[2001:db8::1]:4000".parse().unwrap(),
            server: "192.0.2.1:443".parse().unwrap(),
            send_proxy,
            carries: if send_proxy { Carries::Datagrams } else { Carries::Stream },
        }
    }

    #[test]
    fn what_was_written_is_read() {
        for order in [
            order("http", BackendProtocol::Http, false),
            order("", BackendProtocol::H2c, true),
            order("tls", BackendProtocol::Https, false),
        ] {
            let mut headers = HeaderMap::new();
            // What a client made up does not count.
            headers.append(SERVICE, HeaderValue::from_static("kube-system/other/443//HTTP"));
            headers.append(CLIENT, HeaderValue::from_static("127.0.0.1:1"));
            order.write(&mut headers).unwrap();
            assert_eq!(headers.get_all(SERVICE).iter().count(), 1);
            assert_eq!(Order::read(&headers), Some(order));
            strip(&mut headers);
            assert!(headers.is_empty());
        }
    }

    #[test]
    fn what_is_not_whole_is_not_read() {
        let mut whole = HeaderMap::new();
        order("http", BackendProtocol::Http, false).write(&mut whole).unwrap();
        for (name, value) in [
            (SERVICE, "default/web/80/http"),
            (SERVICE, "default/web/80/http/HTTP/more"),
            (SERVICE, "default/web/x/http/HTTP"),
            (SERVICE, "default/web/80/http/GOPHER"),
            (CLIENT, "nobody"),
            (SERVER, ""),
            (CARRIES, "pigeons"),
        ] {
            let mut headers = whole.clone();
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(Order::read(&headers), None, "{value}");
        }
        assert_eq!(Order::read(&HeaderMap::new()), None);
    }
}
