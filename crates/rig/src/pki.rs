//! The certificates of a cluster: one authority, and a certificate for each who serves or calls.

use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType,
};

use crate::Error;
use crate::plan::{ClusterPlan, SERVICE_API};

/// The authority of one cluster.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, both as PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    /// A new one.
    pub(crate) fn new(cluster: &str) -> Result<Self, Error> {
        let subject = format!("landfall-rig {cluster}");
        let make = || {
            let mut params = CertificateParams::default();
            params.distinguished_name = named(&subject, None);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
            CertifiedIssuer::self_signed(params, KeyPair::generate()?)
        };
        make().map(|issuer| Self { issuer }).map_err(|source| Error::Certificate { subject, source })
    }

    /// Its certificate.
    pub(crate) fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// Its key, which the controller manager signs certificate requests with.
    pub(crate) fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A certificate for a client: Kubernetes takes the name for the user and the organisation for the group.
    pub(crate) fn client(&self, user: &str, group: &str) -> Result<Identity, Error> {
        self.issue(user, Some(group), &[], ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A certificate for the cluster's API server under all its names.
    pub(crate) fn api_server(&self, cluster: &ClusterPlan) -> Result<Identity, Error> {
        let dns = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let dns = dns
            .into_iter()
            .chain(["localhost"])
            .filter_map(|name| name.try_into().ok().map(SanType::DnsName));
        let addresses = [cluster.control, SERVICE_API, std::net::Ipv4Addr::LOCALHOST];
        let addresses = addresses.into_iter().map(|address| SanType::IpAddress(IpAddr::V4(address)));
        let names: Vec<SanType> = dns.chain(addresses).collect();
        self.issue("kube-apiserver", None, &names, ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn issue(
        &self,
        name: &str,
        group: Option<&str>,
        names: &[SanType],
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Identity, Error> {
        let make = || {
            let key = KeyPair::generate()?;
            let mut params = CertificateParams::default();
            params.distinguished_name = named(name, group);
            params.subject_alt_names = names.to_vec();
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![usage];
            let certificate = params.signed_by(&key, &self.issuer)?.pem();
            Ok(Identity { certificate, key: key.serialize_pem() })
        };
        make().map_err(|source| Error::Certificate { subject: name.to_owned(), source })
    }
}

/// The key pair that service-account tokens are signed with: the private key and the public key.
pub(crate) fn token_keys() -> Result<(String, String), Error> {
    let key = KeyPair::generate();
    let key = key.map_err(|source| Error::Certificate { subject: "service accounts".into(), source })?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

fn named(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::CommonName, name);
    if let Some(group) = group {
        named.push(DnType::OrganizationName, group);
    }
    named
}
