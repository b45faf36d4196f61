//! Which fields an endpoint does not write, whatever the client sends: the status of the main resource, the
//! rest of `/status`.

use std::sync::OnceLock;

use super::set::Set;

/// What is reset by an endpoint of a kind.
///
/// `custom` is for kinds of CRDs; `status` says whether the kind has a `/status` endpoint.
pub fn reset_fields(kind: &str, subresource: &str, custom: bool, status: bool) -> &'static Set {
    static SETS: OnceLock<Sets> = OnceLock::new();
    let sets = SETS.get_or_init(Sets::new);
    match (subresource, kind) {
        ("status", _) if custom => &sets.metadata_and_spec,
        ("status", "Deployment") => &sets.spec_and_labels,
        ("status", "Pod") => &sets.pod,
        ("status", "CertificateSigningRequest") => &sets.spec_and_conditions,
        ("approval", "CertificateSigningRequest") => &sets.spec_and_certificate,
        ("", "CertificateSigningRequest") => &sets.spec_and_status,
        ("status", _) => &sets.spec,
        _ if status => &sets.status,
        _ => &sets.nothing,
    }
}

struct Sets {
    nothing: Set,
    status: Set,
    spec: Set,
    spec_and_labels: Set,
    metadata_and_spec: Set,
    pod: Set,
    spec_and_conditions: Set,
    spec_and_certificate: Set,
    spec_and_status: Set,
}

impl Sets {
    fn new() -> Self {
        Self {
            nothing: Set::EMPTY,
            status: Set::of_fields(&[&["status"]]),
            spec: Set::of_fields(&[&["spec"]]),
            spec_and_labels: Set::of_fields(&[&["spec"], &["metadata", "labels"]]),
            metadata_and_spec: Set::of_fields(&[&["spec"], &["metadata"]]),
            pod: Set::of_fields(&[
                &["spec"],
                &["metadata", "deletionTimestamp"],
                &["metadata", "ownerReferences"],
            ]),
            spec_and_conditions: Set::of_fields(&[&["spec"], &["status", "conditions"]]),
            spec_and_certificate: Set::of_fields(&[&["spec"], &["status", "certificate"]]),
            spec_and_status: Set::of_fields(&[&["spec"], &["status"]]),
        }
    }
}
