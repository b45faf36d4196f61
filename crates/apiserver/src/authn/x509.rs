//! A user from a client certificate that TLS has verified: CN is the name, each O a group.

use std::sync::Arc;

use landfall_api::landfall::UID_OID;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::{CREDENTIAL_ID, User, hex, sha256};

/// Who a connection's client certificate names; found once per connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Peer {
    /// There is no certificate, or it names nobody.
    #[default]
    Nobody,
    /// A certificate of an authority we trust.
    User(Arc<User>),
    /// A certificate we do not trust, or no longer: 401 unless a token says otherwise.
    Refused,
}

/// The user a verified certificate (DER) names; none when it has no common name. Call it once per connection.
pub fn user(der: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    // Go shows the last common name when there are several.
    let name = subject.iter_common_name().filter_map(|cn| cn.as_str().ok()).last()?;
    if name.is_empty() {
        return None;
    }
    let groups = subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
    let uid = subject
        .iter_attributes()
        .find(|a| a.attr_type().to_id_string() == UID_OID)
        .and_then(|a| a.as_str().ok())
        .unwrap_or_default();
    let credential = format!("X509SHA256={}", hex(&sha256(der)));
    let extra = [(CREDENTIAL_ID.to_owned(), vec![credential])].into();
    Some(User { name: name.into(), uid: uid.into(), groups, extra }.authenticated())
}

/// When a certificate (DER) ends, in seconds since 1970; what cannot be read has ended.
pub fn ends_s(der: &[u8]) -> i64 {
    validity(der).map_or(0, |(_, until_s)| until_s)
}

/// From and until when a certificate (DER) is good, in seconds since 1970.
pub fn validity(der: &[u8]) -> Option<(i64, i64)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let validity = certificate.validity();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn certificate(parts: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (ty, text) in parts {
            params.distinguished_name.push(ty.clone(), *text);
        }
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().to_vec()
    }

    #[test]
    fn a_certificate_names_its_user() {
        let der = certificate(&[(DnType::CommonName, "alice"), (DnType::OrganizationName, "system:masters")]);
        let user = user(&der).expect("a user");
        assert_eq!(user.name, "alice");
        assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
        assert!(user.extra[CREDENTIAL_ID][0].starts_with("X509SHA256="));
    }

    #[test]
    fn no_common_name_or_garbage_names_nobody() {
        assert_eq!(user(&certificate(&[(DnType::OrganizationName, "system:masters")])), None);
        assert_eq!(user(b"not a certificate"), None);
        assert_eq!(user(b""), None);
    }
}
