//! Who another edge is: a certificate that the hub's authority has signed, for an edge that the roster has.
//!
//! Chains, times and usages are checked by rustls; what is added here is whom a certificate names. Names of hosts play no
//! part: an edge is known by its own name, wherever it is reached.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use landfall_api::landfall::{EDGE_USER_PREFIX, EDGES_GROUP, PlanEdge, PlanFederation, UID_OID};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// An edge, as its certificate names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: String,
    /// The uid of its `Edge`.
    pub(crate) uid: String,
}

impl Named {
    /// Whom a certificate names; none where it is no edge's.
    pub(crate) fn of(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let mut names = subject.iter_common_name().map(|name| name.as_str().ok());
        let (Some(Some(name)), None) = (names.next(), names.next()) else { return None };
        let mut groups = subject.iter_organization().map(|group| group.as_str().ok());
        if (groups.next(), groups.next()) != (Some(Some(EDGES_GROUP)), None) {
            return None;
        }
        let mut uids = subject.iter_attributes().filter(|one| one.attr_type().to_id_string() == UID_OID);
        let uid = uids.next().and_then(|uid| uid.as_str().ok()).unwrap_or_default().to_owned();
        let name = name.strip_prefix(EDGE_USER_PREFIX).filter(|name| !name.is_empty())?.to_owned();
        Some(Self { name, uid })
    }
}

/// The edges there are, by their names.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    edges: ArcSwap<HashMap<String, Known>>,
    /// What that was made of.
    source: ArcSwapOption<PlanFederation>,
}

/// What the roster says of an edge.
#[derive(Debug)]
struct Known {
    /// The uid of its `Edge`.
    uid: String,
    /// The member that it stands in.
    cluster: String,
}

impl Roster {
    /// From now on these are the edges. Those that are not alive are edges, too: the hub may not have heard of them yet.
    pub(crate) fn follow(&self, federation: Option<&Arc<PlanFederation>>) {
        if self.source.load().as_ref().map(Arc::as_ptr) == federation.map(Arc::as_ptr) {
            return;
        }
        self.source.store(federation.cloned());
        let edges = federation.map(|federation| federation.edges.as_slice()).unwrap_or_default();
        let known = |edge: &PlanEdge| Known { uid: edge.uid.clone(), cluster: edge.cluster.clone() };
        let now = edges.iter().map(|edge| (edge.name.clone(), known(edge))).collect();
        self.edges.store(Arc::new(now));
    }

    /// Whether there is such an edge. Where the roster has no uid, the name counts alone.
    pub(crate) fn has(&self, named: &Named) -> bool {
        self.edges.load().get(&named.name).is_some_and(|known| known.is(named))
    }

    /// Whether an edge may answer where another is meant: it is that one, or one of the same member. Edges that are pods stand
    /// behind one load balancer, which takes whom it likes; each of them leads to the same endpoints.
    pub(crate) fn stands_for(&self, meant: &str, named: &Named) -> bool {
        let edges = self.edges.load();
        let (meant, shown) = (edges.get(meant), edges.get(&named.name));
        let Some((meant, shown)) = meant.zip(shown).filter(|(_, shown)| shown.is(named)) else {
            return false;
        };
        meant.cluster == shown.cluster
    }
}

impl Known {
    fn is(&self, named: &Named) -> bool {
        self.uid.is_empty() || self.uid == named.uid
    }
}

fn refused() -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
}

/// Lets edges in, and nobody else.
#[derive(Debug)]
pub(crate) struct ClientEdges {
    pub(crate) chain: Arc<dyn ClientCertVerifier>,
    pub(crate) roster: Arc<Roster>,
}

impl ClientCertVerifier for ClientEdges {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.chain.verify_client_cert(end_entity, intermediates, now)?;
        match Named::of(end_entity) {
            Some(named) if self.roster.has(&named) => Ok(verified),
            _ => Err(refused()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// Speaks with the edge that is meant or another of its member, and with nobody else. The name of the server is that of the edge.
#[derive(Debug)]
pub(crate) struct ServerEdge {
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) roster: Arc<Roster>,
}

impl ServerCertVerifier for ServerEdge {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        meant: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        match Named::of(end_entity) {
            Some(named) if self.roster.stands_for(&meant.to_str(), &named) => {
                Ok(ServerCertVerified::assertion())
            }
            _ => Err(refused()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName as Names, DnType, KeyPair};

    fn named(parts: &[(DnType, &str)]) -> Option<Named> {
        let mut params = CertificateParams::default();
        params.distinguished_name = Names::new();
        for (kind, text) in parts {
            params.distinguished_name.push(kind.clone(), *text);
        }
        Named::of(params.self_signed(&KeyPair::generate().unwrap()).unwrap().der())
    }

    #[test]
    fn whom_a_certificate_names() {
        let (name, group) = (DnType::CommonName, DnType::OrganizationName);
        let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        let edge = |name: &str, uid: &str| Some(Named { name: name.into(), uid: uid.into() });
        for (parts, want) in [
            (&[(name.clone(), "system:landfall:edge:e1"), (group.clone(), EDGES_GROUP)][..], edge("e1", "")),
            (
                &[(name.clone(), "system:landfall:edge:e1"), (group.clone(), EDGES_GROUP), (uid, "u1")],
                edge("e1", "u1"),
            ),
            (&[(name.clone(), "system:landfall:edge:"), (group.clone(), EDGES_GROUP)], None),
            (&[(name.clone(), "e1"), (group.clone(), EDGES_GROUP)], None),
            (&[(name.clone(), "system:landfall:edge:e1"), (group, "system:masters")], None),
            (&[(name, "system:landfall:edge:e1")], None),
            (&[], None),
        ] {
            assert_eq!(named(parts), want, "{parts:?}");
        }
        assert_eq!(Named::of(b"nonsense"), None);
    }

    #[test]
    fn who_is_in_the_roster() {
        let roster = Roster::default();
        let edge = |name: &str, uid: &str, cluster: &str| PlanEdge {
            name: name.into(),
            uid: uid.into(),
            cluster: cluster.into(),
            ..PlanEdge::default()
        };
        let edges = vec![edge("a", "1", "here"), edge("b", "", "here"), edge("c", "3", "there")];
        let federation = Arc::new(PlanFederation { edges, ..PlanFederation::default() });
        let has = |name: &str, uid: &str| roster.has(&Named { name: name.into(), uid: uid.into() });
        assert!(!has("a", "1"), "nobody is, before anybody was told");
        roster.follow(Some(&federation));
        assert!(has("a", "1") && has("b", "x"));
        assert!(!has("a", "2"), "another of that name");
        assert!(!has("d", ""));
        let stands_for = |meant: &str, name: &str, uid: &str| {
            roster.stands_for(meant, &Named { name: name.into(), uid: uid.into() })
        };
        assert!(stands_for("a", "a", "1") && stands_for("b", "a", "1") && stands_for("a", "b", ""));
        assert!(!stands_for("a", "a", "2"), "another of that name");
        assert!(!stands_for("a", "c", "3") && !stands_for("c", "a", "1"), "of another member");
        assert!(!stands_for("d", "a", "1") && !stands_for("a", "d", ""), "of nobody");
        roster.follow(None);
        assert!(!has("a", "1"));
    }
}
