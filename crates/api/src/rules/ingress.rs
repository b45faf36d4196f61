//! Ingresses.

use serde_json::Value;

use super::networking::{validate_ingress_status, validate_reference};
use super::read::{self, child, field, int, list, text};
use crate::addresses;
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::{meta, names};

const SPEC: Path<'static> = Path::new("spec");
const CLASS: &str = "kubernetes.io/ingress.class";
/// What an exact path or a prefix may not contain, since proxies would read it in different ways.
const BAD_SEQUENCES: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
/// What it may not end with.
const BAD_ENDS: [&str; 2] = ["/..", "/."];

/// The rules of Ingresses.
pub struct Ingress;

impl Rules for Ingress {
    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        validate_spec(read::spec(object), &mut errors);
        errors
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let class = field(read::spec(object), "ingressClassName").and_then(Value::as_str);
        if let (Some(annotation), Some(class)) = (meta::annotation(object, CLASS), class)
            && annotation != class
        {
            let annotations = Path::new("annotations");
            let detail = "must match `ingressClassName` when both are specified";
            errors.invalid(&annotations.child(CLASS), annotation, detail);
        }
        errors
    }

    fn validate_status(&self, object: &Value, _old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        validate_ingress_status(object, &mut errors);
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_subdomain(name, prefix)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let named = field(read::spec(object), "ingressClassName").is_some();
        let old = meta::annotation(object, CLASS).is_some() && !named;
        let warning = "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead";
        old.then(|| warning.to_owned()).into_iter().collect()
    }
}

fn validate_spec(spec: &Value, errors: &mut ErrorList) {
    let rules = list(spec, "rules");
    let backend = field(spec, "defaultBackend");
    if rules.is_empty() && backend.is_none() {
        let none = spec.get("rules").cloned().unwrap_or(Value::Null);
        errors.invalid(&SPEC, none, "either `defaultBackend` or `rules` must be specified");
    }
    if let Some(backend) = backend {
        validate_backend(backend, &SPEC.child("defaultBackend"), errors);
    }
    let at_rules = SPEC.child("rules");
    for (at, rule) in rules.iter().enumerate() {
        validate_rule(rule, &at_rules.index(at), errors);
    }
    let at_tls = SPEC.child("tls");
    for (at, tls) in list(spec, "tls").iter().enumerate() {
        validate_tls(tls, &at_tls.index(at), errors);
    }
    if let Some(class) = field(spec, "ingressClassName").and_then(Value::as_str) {
        read::sentences(names::dns1123_subdomain(class), class, &SPEC.child("ingressClassName"), errors);
    }
}

fn validate_host(host: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let rule = if host.contains('*') { names::wildcard_subdomain } else { names::dns1123_subdomain };
    read::sentences(rule(host), host, path, errors);
}

fn validate_rule(rule: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let host = text(rule, "host");
    if !host.is_empty() {
        let path = path.child("host");
        if addresses::parse_ip(host).is_some() {
            errors.invalid(&path, host, "must be a DNS name, not an IP address");
        }
        validate_host(host, &path, errors);
    }
    let Some(http) = field(rule, "http") else { return };
    let http_path = path.child("http");
    let at_paths = http_path.child("paths");
    let paths = list(http, "paths");
    if paths.is_empty() {
        errors.required(&at_paths, "");
    }
    for (at, path) in paths.iter().enumerate() {
        validate_path(path, &at_paths.index(at), errors);
    }
}

fn validate_path(rule: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(ty) = field(rule, "pathType").and_then(Value::as_str) else {
        return errors.required(&path.child("pathType"), "pathType must be specified");
    };
    let url = text(rule, "path");
    let at_path = path.child("path");
    let absolute = url.starts_with('/');
    match ty {
        "Exact" | "Prefix" => {
            if !absolute {
                errors.invalid(&at_path, url, "must be an absolute path");
            }
            for bad in BAD_SEQUENCES.iter().filter(|bad| url.contains(**bad)) {
                errors.invalid(&at_path, url, format!("must not contain '{bad}'"));
            }
            for bad in BAD_ENDS.iter().filter(|bad| url.ends_with(**bad)) {
                errors.invalid(&at_path, url, format!("cannot end with '{bad}'"));
            }
        }
        "ImplementationSpecific" => {
            if !url.is_empty() && !absolute {
                errors.invalid(&at_path, url, "must be an absolute path");
            }
        }
        other => {
            let types = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.not_supported(&path.child("pathType"), other, &types);
        }
    }
    validate_backend(child(rule, "backend"), &path.child("backend"), errors);
}

fn validate_backend(backend: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    match (field(backend, "resource"), field(backend, "service")) {
        (Some(_), Some(_)) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (Some(resource), None) => validate_reference(resource, &path.child("resource"), errors),
        (None, Some(service)) => validate_service(service, path, errors),
        (None, None) => errors.invalid(path, "", "resource or service backend is required"),
    }
}

fn validate_service(service: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let at_service = path.child("service");
    match text(service, "name") {
        "" => errors.required(&at_service.child("name"), ""),
        name => read::sentences(names::dns1123_label(name), name, &at_service.child("name"), errors),
    }
    let port = child(service, "port");
    let at_port = at_service.child("port");
    match (text(port, "name"), int(port, "number")) {
        ("", 0) => errors.required(path, "port name or number is required"),
        ("", number) => {
            for sentence in names::port_number(number) {
                errors.invalid(&at_port.child("number"), number, sentence);
            }
        }
        (name, 0) => read::sentences(names::port_name(name), name, &at_port.child("name"), errors),
        _ => errors.invalid(path, "", "cannot set both port name & port number"),
    }
}

fn validate_tls(tls: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let at_hosts = path.child("hosts");
    for (at, host) in list(tls, "hosts").iter().enumerate() {
        validate_host(host.as_str().unwrap_or(""), &at_hosts.index(at), errors);
    }
    let secret = text(tls, "secretName");
    if !secret.is_empty() {
        read::sentences(names::dns1123_subdomain(secret), secret, &path.child("secretName"), errors);
    }
}
