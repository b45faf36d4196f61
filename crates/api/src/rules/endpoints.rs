//! Endpoints and EndpointSlices.

use serde_json::Value;

use super::read::{self, child, default_absent, default_to, field, items_mut, list, same, text};
use super::service::{PROTOCOLS, validate_protocol};
use crate::addresses::{self, EndpointAddresses};
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::{labels, names};

/// Most endpoints of one slice.
const ENDPOINTS_MAX: usize = 1000;
/// Most addresses of one endpoint.
const ADDRESSES_MAX: usize = 100;
/// Most ports of one slice.
const PORTS_MAX: usize = 20_000;
/// Most labels of `deprecatedTopology`.
const TOPOLOGY_MAX: usize = 16;
/// Most zones, and most nodes, that an endpoint may be hinted for.
const HINTS_MAX: usize = 8;

/// The rules of Endpoints.
pub struct Endpoints {
    /// Which addresses are accepted.
    pub addresses: EndpointAddresses,
}

impl Rules for Endpoints {
    fn deprecation(&self) -> Option<String> {
        Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".into())
    }

    fn default(&self, object: &mut Value) {
        let Some(object) = object.as_object_mut() else { return };
        for subset in items_mut(object, "subsets") {
            for port in items_mut(subset, "ports") {
                default_to(port, "protocol", "TCP");
            }
        }
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("subsets");
        for (at, subset) in list(object, "subsets").iter().enumerate() {
            self.validate_subset(subset, &path.index(at), &mut errors);
        }
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        let subsets = Path::new("subsets");
        for (i, subset) in list(object, "subsets").iter().enumerate() {
            let subset_path = subsets.index(i);
            for name in ["addresses", "notReadyAddresses"] {
                let path = subset_path.child(name);
                for (at, address) in list(subset, name).iter().enumerate() {
                    warnings.extend(addresses::ip_warning(text(address, "ip"), &path.index(at).child("ip")));
                }
            }
        }
        warnings
    }
}

impl Endpoints {
    /// With addresses as Kubernetes accepts them.
    pub const REACHABLE: Self = Self { addresses: EndpointAddresses::REACHABLE };

    fn validate_subset(&self, subset: &Value, path: &Path<'_>, errors: &mut ErrorList) {
        let groups = ["addresses", "notReadyAddresses"];
        if groups.iter().all(|name| list(subset, name).is_empty()) {
            errors.required(path, "must specify `addresses` or `notReadyAddresses`");
        }
        for name in groups {
            let path = path.child(name);
            for (at, address) in list(subset, name).iter().enumerate() {
                self.validate_address(address, &path.index(at), errors);
            }
        }
        let ports = list(subset, "ports");
        let at_ports = path.child("ports");
        for (at, port) in ports.iter().enumerate() {
            let path = at_ports.index(at);
            let name = text(port, "name");
            if name.is_empty() && ports.len() > 1 {
                errors.required(&path.child("name"), "");
            } else if !name.is_empty() {
                read::sentences(names::dns1123_label(name), name, &path.child("name"), errors);
            }
            let number = read::int(port, "port");
            for sentence in names::port_number(number) {
                errors.invalid(&path.child("port"), number, sentence);
            }
            validate_protocol(port, &path, errors);
            validate_app_protocol(port, &path, errors);
        }
    }

    fn validate_address(&self, address: &Value, path: &Path<'_>, errors: &mut ErrorList) {
        let ip = text(address, "ip");
        addresses::validate_ip(ip, &path.child("ip"), errors);
        let host = text(address, "hostname");
        if !host.is_empty() {
            read::sentences(names::dns1123_label(host), host, &path.child("hostname"), errors);
        }
        validate_node_name(address, path, errors);
        self.addresses.validate(ip, &path.child("ip"), errors);
    }
}

fn validate_node_name(endpoint: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(node) = field(endpoint, "nodeName").and_then(Value::as_str) {
        read::sentences(names::dns1123_subdomain(node), node, &path.child("nodeName"), errors);
    }
}

fn validate_app_protocol(port: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(protocol) = field(port, "appProtocol").and_then(Value::as_str) {
        read::sentences(names::qualified_name(protocol), protocol, &path.child("appProtocol"), errors);
    }
}

/// The rules of EndpointSlices.
pub struct EndpointSlice {
    /// Which addresses are accepted.
    pub addresses: EndpointAddresses,
}

impl Rules for EndpointSlice {
    fn default(&self, object: &mut Value) {
        let Some(object) = object.as_object_mut() else { return };
        for port in items_mut(object, "ports") {
            // An empty name is a name; only none at all gets the default, which is the empty one.
            default_absent(port, "name", "");
            default_absent(port, "protocol", "TCP");
        }
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("addressType");
        let ty = text(object, "addressType");
        match ty {
            "" => errors.required(&path, ""),
            "IPv4" | "IPv6" | "FQDN" => {}
            other => errors.not_supported(&path, other, &["FQDN", "IPv4", "IPv6"]),
        }
        validate_slice_ports(list(object, "ports"), &mut errors);
        let path = Path::new("endpoints");
        let endpoints = list(object, "endpoints");
        if endpoints.len() > ENDPOINTS_MAX {
            errors.too_many(&path, endpoints.len(), ENDPOINTS_MAX);
            return errors;
        }
        for (at, endpoint) in endpoints.iter().enumerate() {
            self.validate_endpoint(endpoint, ty, &path.index(at), &mut errors);
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        if !same(object.get("addressType"), old.get("addressType")) {
            let path = Path::new("addressType");
            errors.invalid(&path, text(object, "addressType"), "field is immutable");
        }
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let domains = text(object, "addressType") == "FQDN";
        domains.then(|| "spec.addressType: FQDN endpoints are deprecated".to_owned()).into_iter().collect()
    }
}

impl EndpointSlice {
    /// With addresses as Kubernetes accepts them.
    pub const REACHABLE: Self = Self { addresses: EndpointAddresses::REACHABLE };

    fn validate_endpoint(&self, endpoint: &Value, ty: &str, path: &Path<'_>, errors: &mut ErrorList) {
        let at_addresses = path.child("addresses");
        let addresses = list(endpoint, "addresses");
        if addresses.is_empty() {
            errors.required(&at_addresses, "must contain at least 1 address");
        } else if addresses.len() > ADDRESSES_MAX {
            errors.too_many(&at_addresses, addresses.len(), ADDRESSES_MAX);
        }
        for (at, address) in addresses.iter().enumerate() {
            self.validate_address(address.as_str().unwrap_or(""), ty, &at_addresses, at, errors);
        }
        validate_node_name(endpoint, path, errors);
        let topology = path.child("deprecatedTopology");
        let count = read::entries(endpoint, "deprecatedTopology").count();
        if count > TOPOLOGY_MAX {
            errors.too_many(&topology, count, TOPOLOGY_MAX);
        }
        labels::validate_labels(endpoint.get("deprecatedTopology"), &topology, errors);
        if let Some(host) = field(endpoint, "hostname").and_then(Value::as_str) {
            read::sentences(names::dns1123_label(host), host, &path.child("hostname"), errors);
        }
        validate_hints(child(endpoint, "hints"), &path.child("hints"), errors);
    }

    fn validate_address(&self, address: &str, ty: &str, path: &Path<'_>, at: usize, errors: &mut ErrorList) {
        let at_address = path.index(at);
        let is_v4 = || addresses::parse_ip(address).is_some_and(|ip| ip.is_ipv4());
        match ty {
            "IPv4" if addresses::validate_ip(address, &at_address, errors) => {
                if !is_v4() {
                    errors.invalid(path, address, "must be an IPv4 address");
                }
                self.addresses.validate(address, &at_address, errors);
            }
            "IPv6" if addresses::validate_ip_canonical(address, &at_address, errors) => {
                if is_v4() {
                    errors.invalid(path, address, "must be an IPv6 address");
                }
                self.addresses.validate(address, &at_address, errors);
            }
            "FQDN" => validate_domain(address, &at_address, errors),
            _ => {}
        }
    }
}

fn validate_domain(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let wrong = names::dns1123_subdomain(name);
    if !wrong.is_empty() {
        return errors.invalid(path, name, wrong.join(","));
    }
    if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        return errors.invalid(path, name, detail);
    }
    let bad = name.split('.').map(|label| (label, names::dns1123_label(label))).find(|(_, w)| !w.is_empty());
    if let Some((label, wrong)) = bad {
        errors.invalid(path, label, wrong.join(","));
    }
}

fn validate_slice_ports(ports: &[Value], errors: &mut ErrorList) {
    let path = Path::new("ports");
    if ports.len() > PORTS_MAX {
        return errors.too_many(&path, ports.len(), PORTS_MAX);
    }
    // Sorted once, so that many ports do not make many squared comparisons.
    let mut seen = std::collections::BTreeSet::new();
    for (at, port) in ports.iter().enumerate() {
        let path = path.index(at);
        let name = text(port, "name");
        if !name.is_empty() {
            read::sentences(names::dns1123_label(name), name, &path.child("name"), errors);
        }
        if !seen.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        match field(port, "protocol").and_then(Value::as_str) {
            None => errors.required(&path.child("protocol"), ""),
            Some(protocol) if !PROTOCOLS.contains(&protocol) => {
                errors.not_supported(&path.child("protocol"), protocol, PROTOCOLS);
            }
            Some(_) => {}
        }
        validate_app_protocol(port, &path, errors);
    }
}

fn validate_hints(hints: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    for list_name in ["forZones", "forNodes"] {
        let rule = if list_name == "forZones" { names::label_value } else { names::dns1123_subdomain };
        let path = path.child(list_name);
        let hinted = list(hints, list_name);
        if hinted.len() > HINTS_MAX {
            return errors.too_many(&path, hinted.len(), HINTS_MAX);
        }
        for (at, hint) in hinted.iter().enumerate() {
            let path = path.index(at);
            let path = path.child("name");
            let name = text(hint, "name");
            if hinted.iter().take(at).any(|h| text(h, "name") == name) {
                errors.duplicate(&path, name);
            }
            read::sentences(rule(name), name, &path, errors);
        }
    }
}
