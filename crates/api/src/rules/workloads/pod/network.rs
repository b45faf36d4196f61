//! Names and addresses a pod is given.

use serde_json::Value;

use super::super::check;
use super::super::read::{at, flag, items, some, text, texts};
use crate::field::{ErrorList, Path};

const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_CHARACTERS_MAX: usize = 2048;

/// `dnsConfig`.
pub(super) fn dns(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    let config = some(spec, "dnsConfig");
    if text(spec, "dnsPolicy") == "None" {
        let Some(config) = config else {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        };
        if items(config, "nameservers").is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(&path.child("nameservers"), why);
            return;
        }
    }
    let Some(config) = config else { return };
    let here = path.child("nameservers");
    if items(config, "nameservers").len() > NAMESERVERS_MAX {
        let why = format!("must not have more than {NAMESERVERS_MAX} nameservers");
        errors.invalid(&here, at(config, "nameservers").clone(), why);
    }
    for (index, server) in texts(config, "nameservers").enumerate() {
        check::ip(errors, &here.index(index), server);
    }
    searches(errors, &path.child("searches"), config);
    for (index, option) in items(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.required(&path.child("options").index(index), "must not be empty");
        }
    }
}

fn searches(errors: &mut ErrorList, path: &Path<'_>, config: &Value) {
    let list = items(config, "searches");
    if list.len() > SEARCHES_MAX {
        let why = format!("must not have more than {SEARCHES_MAX} search paths");
        errors.invalid(path, list.to_vec(), why);
    }
    let length = texts(config, "searches").map(|s| s.len() + 1).sum::<usize>().saturating_sub(1);
    if length > SEARCH_CHARACTERS_MAX {
        let why = format!(
            "must not have more than {SEARCH_CHARACTERS_MAX} characters (including spaces) in the search list"
        );
        errors.invalid(path, list.to_vec(), why);
    }
    for (index, search) in texts(config, "searches").enumerate().filter(|(_, s)| *s != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        check::dns_subdomain_underscore(errors, &path.index(index), search);
    }
}

/// `hostAliases`.
pub(super) fn aliases(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    for (index, alias) in items(spec, "hostAliases").iter().enumerate() {
        let path = path.index(index);
        check::ip(errors, &path.child("ip"), text(alias, "ip"));
        for (number, name) in texts(alias, "hostnames").enumerate() {
            check::dns_subdomain(errors, &path.child("hostnames").index(number), name);
        }
    }
}

/// `hostnameOverride`.
pub(super) fn hostname_override(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    let Some(name) = some(spec, "hostnameOverride").and_then(Value::as_str) else { return };
    let path = path.child("hostnameOverride");
    if flag(spec, "setHostnameAsFQDN") {
        errors.forbidden(&path, "may not be specified when setHostnameAsFQDN is true");
    }
    if flag(spec, "hostNetwork") {
        errors.forbidden(&path, "may not be specified when hostNetwork is true");
    }
    if name.len() > 64 {
        errors.too_long(&path, 64);
    }
    check::dns_subdomain(errors, &path, name);
}
