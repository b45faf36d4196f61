//! Authorities and what they sign.

use std::path::Path;
use std::sync::Arc;

use landfall_proxy::Certificate;
use landfall_proxy::peer::Identity;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// An authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
    pub(crate) der: rustls_pki_types::CertificateDer<'static>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let made = params.self_signed(&key).unwrap();
        Self { pem: made.pem(), der: made.der().clone(), issuer: Issuer::new(params, key) }
    }

    /// A certificate and its key, PEM: for hosts, or for a client when there are none.
    pub(crate) fn sign(&self, name: &str, hosts: &[&str]) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// A Secret for hosts.
    pub(crate) fn secret(&self, hosts: &[&str]) -> Arc<Certificate> {
        let (chain, key) = self.sign("server", hosts);
        Arc::new(Certificate {
            chain_pem: chain.into_bytes(),
            key_pem: key.into_bytes(),
            authority_pem: Vec::new(),
        })
    }

    /// A Secret that says: these vouch for clients.
    pub(crate) fn as_secret(&self) -> Arc<Certificate> {
        Arc::new(Certificate { authority_pem: self.pem.clone().into_bytes(), ..Certificate::default() })
    }

    /// What an edge is known by.
    pub(crate) fn edge(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:landfall:edges");
        params.distinguished_name.push(DnType::CommonName, format!("system:landfall:edge:{name}"));
        let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        params.distinguished_name.push(uid, format!("uid-of-{name}"));
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        Identity {
            certificate_pem: params.signed_by(&key, &self.issuer).unwrap().pem().into_bytes(),
            key_pem: key.serialize_pem().into_bytes(),
            authority_pem: self.pem.clone().into_bytes(),
        }
    }

    /// A client that trusts it.
    pub(crate) fn connector(&self) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap();
        TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
    }

    /// A server that shows a certificate for a host.
    pub(crate) fn acceptor(&self, host: &str) -> TlsAcceptor {
        TlsAcceptor::from(Arc::new(self.server(host)))
    }

    /// The same, as it is configured.
    pub(crate) fn server(&self, host: &str) -> ServerConfig {
        let (chain, key_pem) = self.sign("endpoint", &[host]);
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).map(Result::unwrap).collect();
        ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).unwrap())
            .unwrap()
    }

    /// Writes the authority where a program can read it.
    pub(crate) fn write(&self, dir: &Path, file: &str) -> String {
        write(dir, file, &self.pem)
    }
}

/// Writes a file, and gives its path.
pub(crate) fn write(dir: &Path, file: &str, text: &str) -> String {
    let path = dir.join(file);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Runs a program with nothing to read; what it wrote, and whether it was content.
pub(crate) async fn run(program: &str, arguments: &[&str]) -> (bool, String) {
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap_or_else(|error| panic!("{program} is needed: {error}"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}
