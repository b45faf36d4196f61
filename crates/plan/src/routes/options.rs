//! What annotations say of how hosts are spoken to: ours, and those of nginx that mean the same.

use landfall_api::landfall::{BackendProtocol, RouteOptions};
use landfall_api::rules::read::{child, list, text};
use serde_json::Value;

use super::{Part, Routes, Trouble, Wanted, copy_name};

/// What our annotations begin with.
pub const PREFIX: &str = "landfall.dev/";
/// Whoever is behind is told who the client is.
const PROXY_PROTOCOL: &str = "proxy-protocol";
/// The same of nginx.
const NGINX: &str = "nginx.ingress.kubernetes.io/";

/// What is read of nginx's.
const KNOWN_OF_NGINX: &[&str] =
    &["backend-protocol", "force-ssl-redirect", "ssl-passthrough", "ssl-redirect"];

const PROTOCOLS: &[(&str, BackendProtocol)] = &[
    ("HTTP", BackendProtocol::Http),
    ("HTTPS", BackendProtocol::Https),
    ("GRPC", BackendProtocol::H2c),
    ("GRPCS", BackendProtocol::Https),
    ("H2C", BackendProtocol::H2c),
];

/// What annotations say.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Options {
    /// For edges.
    pub route: RouteOptions,
    /// What is spoken to all backends.
    pub protocol: Option<BackendProtocol>,
    /// TLS is not ended at the edge.
    pub passthrough: bool,
}

/// Reads the annotations of an object; what cannot be read is as if it were not there, and told.
pub(super) fn options(object: &Value, tls: bool, routes: &mut Routes) -> Options {
    let metadata = child(object, "metadata");
    let mut read = Reader { annotations: child(metadata, "annotations"), troubles: &mut routes.troubles };
    let redirect = read.flag(PREFIX, "redirect-to-https").or_else(|| read.flag(NGINX, "ssl-redirect"));
    let forced = read.flag(NGINX, "force-ssl-redirect") == Some(true);
    let passthrough =
        read.flag(PREFIX, "tls-passthrough").or_else(|| read.flag(NGINX, "ssl-passthrough")).unwrap_or(false);
    let protocol = read.protocol(PREFIX).or_else(|| read.protocol(NGINX));
    read.unknown_of_nginx();
    let authority = read.text(PREFIX, "client-ca-secret").map(str::to_owned);
    let route = RouteOptions {
        redirect_to_https: redirect.unwrap_or(tls) || forced,
        hsts_seconds: read.seconds("hsts-seconds"),
        min_tls_version: read.tls_version(),
        client_authority: authority.as_deref().map(|name| copy_name(text(metadata, "namespace"), name)),
        send_proxy_protocol: read.flag(PREFIX, PROXY_PROTOCOL).unwrap_or(false),
        source_ranges: Vec::new(),
    };
    routes.secrets.extend(authority.map(|name| Wanted { name, part: Part::Authority }));
    Options { route, protocol, passthrough }
}

/// Reads what the annotations of a Service say of its ports.
pub(super) fn of_ports(service: &Value, routes: &mut Routes) {
    let annotations = child(child(service, "metadata"), "annotations");
    let mut read = Reader { annotations, troubles: &mut routes.troubles };
    let options = &mut routes.spec.options;
    options.send_proxy_protocol = read.flag(PREFIX, PROXY_PROTOCOL).unwrap_or(false);
    let ranges = list(child(service, "spec"), "loadBalancerSourceRanges").iter().filter_map(Value::as_str);
    options.source_ranges = ranges.map(|range| range.trim().to_owned()).collect();
}

struct Reader<'a> {
    annotations: &'a Value,
    troubles: &'a mut Vec<Trouble>,
}

impl<'a> Reader<'a> {
    fn text(&self, prefix: &str, name: &str) -> Option<&'a str> {
        self.annotations.get(format!("{prefix}{name}"))?.as_str().map(str::trim)
    }

    fn wrong(&mut self, prefix: &str, name: &str, wanted: &str) {
        let message = format!("the annotation {prefix}{name} must be {wanted}");
        self.troubles.push(Trouble::object("InvalidAnnotation", message));
    }

    /// Tells of what nginx would heed, such as who is let in, and edges do not.
    fn unknown_of_nginx(&mut self) {
        let names = self.annotations.as_object().into_iter().flat_map(|all| all.keys());
        let unknown =
            names.filter(|name| name.strip_prefix(NGINX).is_some_and(|name| !KNOWN_OF_NGINX.contains(&name)));
        self.troubles.extend(unknown.map(|name| {
            Trouble::object("UnsupportedAnnotation", format!("the annotation {name} is not heeded"))
        }));
    }

    fn flag(&mut self, prefix: &str, name: &str) -> Option<bool> {
        match self.text(prefix, name)? {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                self.wrong(prefix, name, "true or false");
                None
            }
        }
    }

    fn seconds(&mut self, name: &str) -> Option<i64> {
        let seconds = self.text(PREFIX, name)?.parse().ok().filter(|seconds: &i64| *seconds >= 0);
        if seconds.is_none() {
            self.wrong(PREFIX, name, "a number of seconds");
        }
        seconds
    }

    fn tls_version(&mut self) -> Option<String> {
        let given = self.text(PREFIX, "min-tls-version")?;
        let version = given.strip_prefix("TLSv").unwrap_or(given);
        if !matches!(version, "1.2" | "1.3") {
            self.wrong(PREFIX, "min-tls-version", "1.2 or 1.3");
            return None;
        }
        Some(version.to_owned())
    }

    fn protocol(&mut self, prefix: &str) -> Option<BackendProtocol> {
        let given = self.text(prefix, "backend-protocol")?;
        let known = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(given));
        if known.is_none() {
            self.wrong(prefix, "backend-protocol", "HTTP, HTTPS, GRPC, GRPCS or H2C");
        }
        known.map(|(_, protocol)| *protocol)
    }
}
