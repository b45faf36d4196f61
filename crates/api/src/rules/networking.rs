//! IngressClasses and NetworkPolicies. Ingresses have a file of their own.

use serde_json::{Value, json};

use super::read::{self, child, default_absent, field, items_mut, list, same, text, unsupported};
use crate::addresses;
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::{labels, meta, names};

const SPEC: Path<'static> = Path::new("spec");
/// Longest name of a controller.
const CONTROLLER_BYTES_MAX: usize = 250;

/// The rules of IngressClasses.
pub struct IngressClass;

impl Rules for IngressClass {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec") else { return };
        if let Some(parameters) = read::map_mut(spec, "parameters") {
            default_absent(parameters, "scope", "Cluster");
        }
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let spec = read::spec(object);
        let controller = text(spec, "controller");
        let path = SPEC.child("controller");
        if controller.len() > CONTROLLER_BYTES_MAX {
            errors.too_long(&path, CONTROLLER_BYTES_MAX);
        }
        validate_prefixed_path(controller, &path, &mut errors);
        if let Some(parameters) = field(spec, "parameters") {
            validate_parameters(parameters, &SPEC.child("parameters"), &mut errors);
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let (now, before) = (read::spec(object), read::spec(old));
        if !same(now.get("controller"), before.get("controller")) {
            errors.invalid(&SPEC.child("controller"), text(now, "controller"), "field is immutable");
        }
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }
}

/// `domain/path`.
fn validate_prefixed_path(text: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if text.is_empty() {
        return errors.required(path, "");
    }
    let (host, rest) = text.split_once('/').unwrap_or_default();
    if host.is_empty() || rest.is_empty() {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return errors.invalid(path, text, detail);
    }
    read::sentences(names::dns1123_subdomain(host), host, path, errors);
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !rest.bytes().all(allowed) {
        let detail = names::pattern("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]);
        errors.invalid(path, rest, detail);
    }
}

/// The parts that a reference to an object of any group has.
pub(super) fn validate_reference(reference: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(group) = field(reference, "apiGroup").and_then(Value::as_str) {
        read::sentences(names::dns1123_subdomain(group), group, &path.child("apiGroup"), errors);
    }
    for name in ["kind", "name"] {
        match text(reference, name) {
            "" => errors.required(&path.child(name), ""),
            value => read::sentences(names::path_segment(value, false), value, &path.child(name), errors),
        }
    }
}

fn validate_parameters(parameters: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    validate_reference(parameters, path, errors);
    let at_namespace = path.child("namespace");
    let namespace = field(parameters, "namespace").and_then(Value::as_str);
    match (field(parameters, "scope").and_then(Value::as_str), namespace) {
        (None, _) => errors.required(&path.child("scope"), ""),
        (Some("Namespace"), None) => {
            errors.required(&at_namespace, "`parameters.scope` is set to 'Namespace'");
        }
        (Some("Namespace"), Some(name)) => {
            read::sentences(names::dns1123_label(name), name, &at_namespace, errors);
        }
        (Some("Cluster"), None) => {}
        (Some("Cluster"), Some(_)) => {
            errors.forbidden(&at_namespace, "`parameters.scope` is set to 'Cluster'");
        }
        (Some(other), _) => errors.not_supported(&path.child("scope"), other, &["Cluster", "Namespace"]),
    }
}

/// The rules of NetworkPolicies.
pub struct NetworkPolicy;

/// A direction: its list of rules, and where those keep their peers.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

impl Rules for NetworkPolicy {
    fn default(&self, object: &mut Value) {
        let spec = meta::child_mut(object, "spec");
        for (direction, _) in DIRECTIONS {
            for rule in items_mut(spec, direction) {
                for port in items_mut(rule, "ports") {
                    default_absent(port, "protocol", "TCP");
                }
            }
        }
        if spec.get("policyTypes").is_none_or(read::is_empty) {
            let egress = spec.get("egress").is_some_and(|e| !read::is_empty(e));
            let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
            spec.insert("policyTypes".into(), types);
        }
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let spec = read::spec(object);
        labels::validate_selector(spec.get("podSelector"), &SPEC.child("podSelector"), &mut errors);
        for (direction, peers) in DIRECTIONS {
            let path = SPEC.child(direction);
            for (at, rule) in list(spec, direction).iter().enumerate() {
                validate_rule(rule, peers, &path.index(at), &mut errors);
            }
        }
        let path = SPEC.child("policyTypes");
        let types = list(spec, "policyTypes");
        if types.len() > 2 {
            errors.invalid(&path, types.to_vec(), "may not specify more than two policyTypes");
            return errors;
        }
        for (at, ty) in types.iter().enumerate() {
            if !matches!(ty.as_str(), Some("Ingress" | "Egress")) {
                unsupported(&mut errors, &path.index(at), ty.clone(), &["Ingress", "Egress"]);
            }
        }
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        for (direction, peers) in DIRECTIONS {
            let path = SPEC.child(direction);
            for (i, rule) in list(read::spec(object), direction).iter().enumerate() {
                let path = path.index(i);
                let path = path.child(peers);
                for (at, peer) in list(rule, peers).iter().enumerate() {
                    warn_about_block(child(peer, "ipBlock"), &path.index(at).child("ipBlock"), &mut warnings);
                }
            }
        }
        warnings
    }
}

fn warn_about_block(block: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    warnings.extend(addresses::cidr_warning(text(block, "cidr"), &path.child("cidr")));
    let path = path.child("except");
    for (at, except) in list(block, "except").iter().enumerate() {
        warnings.extend(addresses::cidr_warning(except.as_str().unwrap_or(""), &path.index(at)));
    }
}

fn validate_rule(rule: &Value, peers: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let at_ports = path.child("ports");
    for (at, port) in list(rule, "ports").iter().enumerate() {
        validate_policy_port(port, &at_ports.index(at), errors);
    }
    let at_peers = path.child(peers);
    for (at, peer) in list(rule, peers).iter().enumerate() {
        validate_peer(peer, &at_peers.index(at), errors);
    }
}

fn validate_policy_port(port: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(protocol) = field(port, "protocol").and_then(Value::as_str)
        && !matches!(protocol, "TCP" | "UDP" | "SCTP")
    {
        unsupported(errors, &path.child("protocol"), protocol, &["TCP", "UDP", "SCTP"]);
    }
    let at_end = path.child("endPort");
    let end = field(port, "endPort").and_then(Value::as_i64);
    match (field(port, "port"), end) {
        (Some(Value::String(name)), end) => {
            if let Some(end) = end {
                errors.invalid(&at_end, end, "may not be specified when `port` is non-numeric");
            }
            read::sentences(names::port_name(name), name, &path.child("port"), errors);
        }
        (Some(number), end) => {
            let number = number.as_i64().unwrap_or(0);
            for sentence in names::port_number(number) {
                errors.invalid(&path.child("port"), number, sentence);
            }
            let Some(end) = end else { return };
            if end < number {
                errors.invalid(&at_end, number, "must be greater than or equal to `port`");
            }
            for sentence in names::port_number(end) {
                errors.invalid(&at_end, end, sentence);
            }
        }
        (None, Some(end)) => {
            errors.invalid(&at_end, end, "may not be specified when `port` is not specified");
        }
        (None, None) => {}
    }
}

fn validate_peer(peer: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let mut peers = 0;
    for name in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = field(peer, name) {
            peers += 1;
            labels::validate_selector(Some(selector), &path.child(name), errors);
        }
    }
    let block = field(peer, "ipBlock");
    if let Some(block) = block {
        peers += 1;
        validate_block(block, &path.child("ipBlock"), errors);
    }
    if peers == 0 {
        errors.required(path, "must specify a peer");
    } else if peers > 1 && block.is_some() {
        errors.forbidden(path, "may not specify both ipBlock and another peer");
    }
}

fn validate_block(block: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let cidr = text(block, "cidr");
    if cidr.is_empty() {
        return errors.required(&path.child("cidr"), "");
    }
    addresses::validate_cidr(cidr, &path.child("cidr"), errors);
    let Some((address, length)) = addresses::parse_cidr(cidr) else { return };
    let network = addresses::network(address, length);
    let at_except = path.child("except");
    for (at, except) in list(block, "except").iter().enumerate() {
        let text = except.as_str().unwrap_or("");
        addresses::validate_cidr(text, &at_except.index(at), errors);
        let Some((inner, inner_length)) = addresses::parse_cidr(text) else { continue };
        let inside = inner.is_ipv4() == network.is_ipv4()
            && addresses::network(addresses::network(inner, inner_length), length) == network;
        if !inside || length >= inner_length {
            errors.invalid(&at_except.index(at), text, "must be a strict subset of `cidr`");
        }
    }
}

/// The `loadBalancer` of an Ingress's status.
pub(super) fn validate_ingress_status(object: &Value, errors: &mut ErrorList) {
    let status = Path::new("status");
    let balancer = status.child("loadBalancer");
    let path = balancer.child("ingress");
    let list = list(child(child(object, "status"), "loadBalancer"), "ingress");
    for (at, one) in list.iter().enumerate() {
        let path = path.index(at);
        let ip = text(one, "ip");
        if !ip.is_empty() {
            addresses::validate_ip(ip, &path.child("ip"), errors);
        }
        super::service::validate_balancer_host(text(one, "hostname"), &path.child("hostname"), errors);
    }
}
