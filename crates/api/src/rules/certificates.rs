//! CertificateSigningRequests.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::read::{self, field, list, text};
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::{meta, names};

const SPEC: Path<'static> = Path::new("spec");
const STATUS: Path<'static> = Path::new("status");
/// What the server says of whoever asks; nobody else does.
const REQUESTER: [&str; 4] = ["username", "uid", "groups", "extra"];
/// Conditions that are decisions: they come with `/approval` only.
const DECISIONS: [&str; 2] = ["Approved", "Denied"];
/// Conditions that are final, and true where they are.
const FINAL: [&str; 3] = ["Approved", "Denied", "Failed"];
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
/// The shortest certificate that may be asked for.
const EXPIRATION_S_MIN: i64 = 600;
/// Every usage a certificate can have, sorted.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Looks into PEM; the sentence says what is wrong.
pub type Check = fn(&[u8]) -> Result<(), String>;

/// The rules of CertificateSigningRequests. Whoever knows X.509 gives the checks.
pub struct Request {
    /// Whether the bytes are a signing request whose signature is right.
    pub request: Check,
    /// Whether the bytes are certificates.
    pub certificate: Check,
}

impl Request {
    /// Nothing inside of PEM is looked at.
    pub const UNCHECKED: Self = Self { request: |_| Ok(()), certificate: |_| Ok(()) };
}

impl Rules for Request {
    fn prepare_create(&self, object: &mut Value) {
        if let Some(spec) = read::map_mut(object, "spec") {
            REQUESTER.iter().for_each(|name| _ = spec.remove(*name));
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        object["spec"] = old.get("spec").cloned().unwrap_or_default();
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let spec = read::spec(object);
        let request = text(spec, "request");
        if let Err(why) = (self.request)(&STANDARD.decode(request).unwrap_or_default()) {
            errors.invalid(&SPEC.child("request"), request, why);
        }
        usages(list(spec, "usages"), &mut errors);
        signer_name(text(spec, "signerName"), &mut errors);
        if let Some(seconds) = field(spec, "expirationSeconds").and_then(Value::as_i64)
            && seconds < EXPIRATION_S_MIN
        {
            let detail = "may not specify a duration less than 600 seconds (10 minutes)";
            errors.invalid(&SPEC.child("expirationSeconds"), seconds, detail);
        }
        conditions(object, &mut errors);
        let certificate = text(read::child(object, "status"), "certificate");
        let bytes = STANDARD.decode(certificate).unwrap_or_default();
        if !bytes.is_empty()
            && let Err(why) = (self.certificate)(&bytes)
        {
            errors.invalid(&STATUS.child("certificate"), "<certificate data>", why);
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        changed(object, old, Endpoint::Main)
    }

    fn validate_status(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = self.validate(object);
        errors.extend(changed(object, old, Endpoint::Status));
        errors
    }

    fn validate_approval(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = self.validate(object);
        errors.extend(changed(object, old, Endpoint::Approval));
        errors
    }

    /// Nobody cares what requests are called.
    fn validate_name(&self, _name: &str, _prefix: bool) -> Vec<String> {
        Vec::new()
    }
}

/// Says who asks, in a new request.
pub fn set_requester(object: &mut Value, user: &Value) {
    let spec = meta::child_mut(object, "spec");
    for name in REQUESTER {
        match user.get(name) {
            Some(value) => spec.insert(name.into(), value.clone()),
            None => spec.remove(name),
        };
    }
}

/// Before a write to `/status` or `/approval` is judged: decisions stay as they were, except where they are what is
/// written, and new conditions get their times.
pub fn settle_conditions(object: &mut Value, old: &Value, approval: bool, now: &str) {
    let before: Vec<Value> = list(read::child(old, "status"), "conditions").to_vec();
    let Some(status) = read::map_mut(object, "status") else { return };
    let Some(Value::Array(conditions)) = status.get_mut("conditions") else { return };
    for kind in DECISIONS.into_iter().filter(|_| !approval) {
        let of_kind = |c: &&Value| text(c, "type") == kind;
        let kept: Vec<&Value> = before.iter().filter(of_kind).collect();
        if kept.len() == conditions.iter().filter(of_kind).count() {
            let places = conditions.iter_mut().filter(|c| text(c, "type") == kind);
            places.zip(kept).for_each(|(place, value)| place.clone_from(value));
        }
    }
    for condition in conditions {
        if text(condition, "lastUpdateTime").is_empty() {
            condition["lastUpdateTime"] = json!(now);
        }
        if text(condition, "lastTransitionTime").is_empty() {
            let same =
                |c: &&Value| ["type", "status"].iter().all(|name| text(c, name) == text(condition, name));
            let since = before.iter().find(same).map_or("", |c| text(c, "lastTransitionTime"));
            condition["lastTransitionTime"] = json!(if since.is_empty() { now } else { since });
        }
    }
}

fn usages(usages: &[Value], errors: &mut ErrorList) {
    let path = SPEC.child("usages");
    if usages.is_empty() {
        errors.required(&path, "");
    }
    for (at, usage) in usages.iter().enumerate() {
        let word = usage.as_str().unwrap_or("");
        if !USAGES.contains(&word) {
            errors.not_supported(&path.index(at), word, &USAGES);
        }
    }
    for (at, usage) in usages.iter().enumerate() {
        if usages.iter().take(at).any(|earlier| earlier == usage) {
            errors.duplicate(&path.index(at), usage.clone());
        }
    }
}

fn signer_name(name: &str, errors: &mut ErrorList) {
    let path = SPEC.child("signerName");
    if name == LEGACY_SIGNER {
        return errors.invalid(&path, name, "the legacy signerName is not allowed via this API version");
    }
    if name.is_empty() {
        return errors.required(&path, "");
    }
    let mut segments = name.split('/');
    let (Some(domain), Some(own), None) = (segments.next(), segments.next(), segments.next()) else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(&path, name, detail);
    };
    if domain.len() > SUBDOMAIN_BYTES_MAX {
        errors.too_long(&path, SUBDOMAIN_BYTES_MAX);
    }
    labels(domain, names::dns1123_label, &path, errors);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.invalid(&path, domain, detail);
    }
    labels(own, names::dns1123_subdomain, &path, errors);
}

const SUBDOMAIN_BYTES_MAX: usize = 253;

/// The first label that is not right is told of.
fn labels(segment: &str, rule: fn(&str) -> names::Sentences, path: &Path<'_>, errors: &mut ErrorList) {
    let wrong = segment.split('.').map(|label| (label, rule(label))).find(|(_, wrong)| !wrong.is_empty());
    for (label, why) in wrong.iter().flat_map(|(label, all)| all.iter().map(move |why| (label, why))) {
        errors.invalid(path, segment, format!("validating label {label:?}: {why}"));
    }
}

fn conditions(object: &Value, errors: &mut ErrorList) {
    let path = STATUS.child("conditions");
    let conditions = list(read::child(object, "status"), "conditions");
    let mut seen: Vec<&str> = Vec::new();
    for (at, condition) in conditions.iter().enumerate() {
        let at = path.index(at);
        let kind = text(condition, "type");
        if kind.is_empty() {
            errors.required(&at.child("type"), "");
        }
        let allowed: &[&str] = if FINAL.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        match text(condition, "status") {
            "" => errors.required(&at.child("status"), ""),
            status if !allowed.contains(&status) => {
                errors.not_supported(&at.child("status"), status, allowed);
            }
            _ => {}
        }
        let other = DECISIONS.iter().find(|other| DECISIONS.contains(&kind) && **other != kind);
        if other.is_some_and(|other| seen.contains(other)) {
            errors.invalid(&path, kind, "Approved and Denied conditions are mutually exclusive");
        }
        if seen.contains(&kind) {
            errors.duplicate(&at.child("type"), kind);
        }
        seen.push(kind);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Main,
    Status,
    Approval,
}

fn changed(object: &Value, old: &Value, endpoint: Endpoint) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = STATUS.child("conditions");
    let (status, before) = (read::child(object, "status"), read::child(old, "status"));
    let of = |status: &Value, kind: &str| -> Vec<Value> {
        let all = list(status, "conditions").iter();
        all.filter(|condition| text(condition, "type") == kind).cloned().collect()
    };
    for kind in FINAL {
        if of(status, kind).len() < of(before, kind).len() {
            errors.forbidden(&path, format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    for kind in DECISIONS.into_iter().filter(|_| endpoint != Endpoint::Approval) {
        let (new, old) = (of(status, kind), of(before, kind));
        if new.len() > old.len() {
            errors.forbidden(&path, format!("updates may not add a condition of type {kind:?}"));
        } else if new.len() == old.len() && new != old {
            errors.forbidden(&path, format!("updates may not modify a condition of type {kind:?}"));
        }
    }
    let (new, old) = (text(status, "certificate"), text(before, "certificate"));
    if new != old {
        let path = STATUS.child("certificate");
        if endpoint != Endpoint::Status {
            errors.forbidden(&path, "updates may not set certificate content");
        } else if !old.is_empty() {
            errors.forbidden(&path, "updates may not modify existing certificate content");
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(spec: &Value) -> Value {
        let mut object =
            json!({"spec": {"request": "eA==", "signerName": "a.b/c", "usages": ["client auth"]}});
        let fields = spec.as_object().cloned().unwrap_or_default();
        object["spec"].as_object_mut().unwrap().extend(fields);
        object
    }

    #[test]
    fn what_may_be_asked_for() {
        let check = |spec: Value, expected: &str| {
            let rules = Request::UNCHECKED;
            assert_eq!(rules.validate(&request(&spec)).summary(), expected);
        };
        check(json!({}), "[]");
        check(json!({"usages": []}), "spec.usages: Required value");
        check(
            json!({"usages": ["client auth", "client auth"]}),
            "spec.usages[1]: Duplicate value: \"client auth\"",
        );
        check(json!({"signerName": ""}), "spec.signerName: Required value");
        check(
            json!({"signerName": "edge"}),
            "spec.signerName: Invalid value: \"edge\": must be a fully qualified domain and path of the form \
             'example.com/signer-name'",
        );
        check(
            json!({"signerName": "dev/edge"}),
            "spec.signerName: Invalid value: \"dev\": should be a domain with at least two segments separated by dots",
        );
        check(
            json!({"expirationSeconds": 5}),
            "spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 600 seconds (10 minutes)",
        );
    }

    #[test]
    fn decisions_come_through_their_own_door() {
        let approved = |reason: &str| {
            let time = "2025-01-01T00:00:00Z";
            json!([{"type": "Approved", "status": "True", "reason": reason, "lastUpdateTime": time,
                "lastTransitionTime": time}])
        };
        let check = |old: Value, new: Value, approval: bool, expected: &str| {
            let (mut object, mut before) = (request(&json!({})), request(&json!({})));
            (before["status"], object["status"]) = (old, new);
            settle_conditions(&mut object, &before, approval, "2026-01-01T00:00:00Z");
            let rules = Request::UNCHECKED;
            let errors = if approval {
                rules.validate_approval(&object, &before)
            } else {
                rules.validate_status(&object, &before)
            };
            assert_eq!(errors.summary(), expected);
        };
        check(json!({}), json!({"conditions": approved("a")}), true, "[]");
        check(
            json!({}),
            json!({"conditions": approved("a")}),
            false,
            "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"",
        );
        check(json!({}), json!({"certificate": "eA=="}), false, "[]");
        check(
            json!({}),
            json!({"certificate": "eA=="}),
            true,
            "status.certificate: Forbidden: updates may not set certificate content",
        );
        check(
            json!({"certificate": "eA=="}),
            json!({"certificate": "eQ=="}),
            false,
            "status.certificate: Forbidden: updates may not modify existing certificate content",
        );
        check(
            json!({"conditions": approved("a")}),
            json!({}),
            true,
            "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"",
        );
        // What stands there already is kept as it was, whatever is sent.
        check(json!({"conditions": approved("a")}), json!({"conditions": approved("b")}), false, "[]");
        let both = json!([{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}]);
        check(
            json!({}),
            json!({"conditions": both}),
            true,
            "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive",
        );
    }
}
