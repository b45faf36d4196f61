//! One `Invalid value` per sentence: the rules of texts, in the form the pod's checks use them.

use serde_json::Value;

use super::read::text;
use crate::field::{ErrorList, Path};
use crate::names::{self, Sentences};
use crate::selector::Selector;
use crate::{addresses, labels as label_rules};

fn say(errors: &mut ErrorList, path: &Path<'_>, value: &str, sentences: Sentences) {
    for sentence in sentences {
        errors.invalid(path, value, sentence);
    }
}

/// A DNS label.
pub(super) fn dns_label(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    say(errors, path, value, names::dns1123_label(value));
}

/// A DNS subdomain.
pub(super) fn dns_subdomain(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    say(errors, path, value, names::dns1123_subdomain(value));
}

/// What is wrong with a DNS subdomain.
pub(super) fn subdomain_messages(value: &str) -> Sentences {
    names::dns1123_subdomain(value)
}

/// A DNS subdomain that may end with a dash.
pub(super) fn dns_subdomain_prefix(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    say(errors, path, value, names::name_is_subdomain(value, true));
}

/// A DNS subdomain whose labels may start with an underscore, as search domains do.
pub(super) fn dns_subdomain_underscore(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    const WHAT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character";
    const FORM: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
    if value.len() > 253 {
        errors.invalid(path, value, names::characters_max(253));
    }
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let good = value.split('.').all(|part| {
        let bytes = part.strip_prefix('_').unwrap_or(part).as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| edge(Some(b)) || *b == b'-' || *b == b'_')
    });
    if !good {
        errors.invalid(path, value, names::pattern(WHAT, FORM, &["example.com"]));
    }
}

/// `[prefix/]name`.
pub(super) fn qualified_name(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    say(errors, path, value, names::qualified_name(value));
}

/// A label's key.
pub(super) fn label_name(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    label_rules::validate_key(value, path, errors);
}

/// A label's value.
pub(super) fn label_value(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    say(errors, path, value, names::label_value(value));
}

/// What is wrong with a label's value.
pub(super) fn label_value_messages(value: &str) -> Sentences {
    names::label_value(value)
}

/// A map of labels.
pub(super) fn labels(errors: &mut ErrorList, path: &Path<'_>, map: &Value) {
    label_rules::validate_labels(Some(map), path, errors);
}

/// A map of annotations.
pub(super) fn annotations(errors: &mut ErrorList, path: &Path<'_>, map: &Value) {
    label_rules::validate_annotations(Some(map), path, errors);
}

/// A `LabelSelector`.
pub(super) fn selector(errors: &mut ErrorList, path: &Path<'_>, selector: &Value) {
    label_rules::validate_selector(Some(selector), path, errors);
}

/// Whether a selector selects these labels; absent selects nothing. `None` when the selector makes no sense.
pub(super) fn selects(selector: &Value, labels: &Value) -> Option<bool> {
    // The usual case, without making a selector: all of matchLabels are there.
    let plain = selector.get("matchExpressions").and_then(Value::as_array).is_none_or(Vec::is_empty);
    if let (true, Some(wanted)) = (plain, selector.get("matchLabels").and_then(Value::as_object))
        && wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
    {
        return Some(true);
    }
    let selector = Some(selector).filter(|s| !s.is_null());
    Selector::from_object(selector).ok().map(|selector| selector.matches(Some(labels)))
}

/// The name of an environment variable.
pub(super) fn env_name(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    say(errors, path, value, names::env_var_name_relaxed(value));
}

/// A key of a ConfigMap or Secret.
pub(super) fn config_key(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    say(errors, path, value, names::config_map_key(value));
}

/// The name of an HTTP header.
pub(super) fn http_header(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    say(errors, path, value, names::http_header_name(value));
}

/// The name of a port.
pub(super) fn port_name(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    say(errors, path, value, names::port_name(value));
}

/// The number of a port.
pub(super) fn port_number(errors: &mut ErrorList, path: &Path<'_>, value: i64) {
    for sentence in names::port_number(value) {
        errors.invalid(path, value, sentence);
    }
}

/// The number or the name of a port.
pub(super) fn port(errors: &mut ErrorList, path: &Path<'_>, value: &Value) {
    match value.as_str() {
        Some(name) => port_name(errors, path, name),
        None => port_number(errors, path, value.as_i64().unwrap_or(0)),
    }
}

/// An address.
pub(super) fn ip(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    addresses::validate_ip(value, path, errors);
}

/// Something that can stand in a URL path.
pub(super) fn path_segment(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    say(errors, path, value, names::path_segment(value, false));
}

/// `host/path`, as `acme.io/foo`.
pub(super) fn domain_path(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    if value.is_empty() {
        errors.required(path, "");
        return;
    }
    let (host, rest) = match value.split_once('/') {
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => (host, rest),
        _ => {
            errors.invalid(path, value, "must be a domain-prefixed path (such as \"acme.io/foo\")");
            return;
        }
    };
    dns_subdomain(errors, path, host);
    let good = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !rest.bytes().all(good) {
        errors.invalid(path, rest, "Invalid path");
    }
}

/// No part of a path is `..`.
pub(super) fn no_backsteps(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    if value.split('/').any(|part| part == "..") {
        errors.invalid(path, value, "must not contain '..'");
    }
}

/// A relative path that goes down only.
pub(super) fn descending_path(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    if value.starts_with('/') {
        errors.invalid(path, value, "must be a relative path");
    }
    no_backsteps(errors, path, value);
}

/// The same, and not one of the names the kubelet keeps for itself.
pub(super) fn local_path(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    descending_path(errors, path, value);
    if value.starts_with("..") && !value.starts_with("../") {
        errors.invalid(path, value, "must not start with '..'");
    }
}

/// The API group of an `apiVersion`; `Err` with Kubernetes' sentence when it has too many slashes.
pub(super) fn api_group(reference: &Value) -> Result<&str, String> {
    let version = text(reference, "apiVersion");
    match version.matches('/').count() {
        0 => Ok(""),
        1 => Ok(version.split('/').next().unwrap_or("")),
        _ => Err(format!("unexpected GroupVersion string: {version}")),
    }
}
