//! `certificates.k8s.io/v1`.

use super::Role;
use super::row::Group;
use crate::kind::Kind;

const V1: Group = Group { name: "certificates.k8s.io", version: "v1", schema: "io.k8s.api.certificates.v1" };

pub(super) fn kinds(_: Role) -> Vec<Kind> {
    vec![
        V1.cluster("CertificateSigningRequest", "certificatesigningrequests")
            .short(&["csr"])
            .approval()
            .status()
            .select(&["spec.signerName"]),
    ]
}
