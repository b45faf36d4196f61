//! The certificate authority: signs the server, the administrator and, from their requests, other clients.

use std::collections::BTreeSet;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::{Error, damaged};
use crate::authn::{hex, sha256};

/// Signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

/// A new P-256 key as PEM.
pub(super) fn new_key() -> Result<String, Error> {
    let pair = KeyPair::generate().map_err(|source| Error::Make { what: "a key", source })?;
    Ok(pair.serialize_pem())
}

impl Authority {
    /// The certificate of a new authority.
    pub(super) fn self_sign(key_pem: &str, days: i32, now_s: i64) -> Result<String, rcgen::Error> {
        let mut params = params("landfall-ca", "", days, now_s);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(params.self_signed(&KeyPair::from_pem(key_pem)?)?.pem())
    }

    /// From the files' texts; an error names the file.
    pub(super) fn open(cert: (&Path, &str), key: (&Path, &str)) -> Result<Self, Error> {
        let der = CertificateDer::from_pem_slice(cert.1.as_bytes())
            .map_err(|_| damaged(cert.0, "it holds no PEM certificate"))?;
        let (_, parsed) =
            X509Certificate::from_der(&der).map_err(|_| damaged(cert.0, "it holds no X.509 certificate"))?;
        if !parsed.is_ca() {
            return Err(damaged(cert.0, "its certificate is not an authority's"));
        }
        let pair = KeyPair::from_pem(key.1).map_err(|_| damaged(key.0, "it holds no PEM private key"))?;
        if parsed.public_key().subject_public_key.data != pair.der_bytes() {
            return Err(damaged(key.0, &format!("it is not the key of {}", cert.0.display())));
        }
        let issuer = Issuer::from_ca_cert_der(&der, pair).map_err(|why| damaged(cert.0, &why))?;
        Ok(Self { issuer, pem: cert.1.into(), der })
    }

    /// Its certificate as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Its certificate as DER.
    pub const fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// A server's certificate (PEM) for a key.
    pub(super) fn server(
        &self,
        key: &KeyPair,
        names: &BTreeSet<String>,
        days: i32,
        now_s: i64,
    ) -> Result<String, rcgen::Error> {
        let mut params = params("landfall", "", days, now_s);
        let names: Vec<String> = names.iter().cloned().collect();
        params.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        Ok(params.signed_by(key, &self.issuer)?.pem())
    }

    /// A client's certificate (PEM) for a new key, and the key (PEM). `group` may be empty; `rcgen` writes one O only.
    pub fn client(
        &self,
        name: &str,
        group: &str,
        days: i32,
        now_s: i64,
    ) -> Result<(String, String), rcgen::Error> {
        let key = KeyPair::generate()?;
        let params = client_params(name, group, days, now_s);
        Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }

    /// An edge's certificate (PEM) for the key of a signing request (PEM): its user, group and uid, from and until when
    /// in seconds since 1970, and whether it serves other edges too. Nothing but the key is taken from the request: who the
    /// client is, the caller says.
    pub fn edge(
        &self,
        request_pem: &str,
        (name, group, uid): (&str, &str, &str),
        (from_s, until_s): (i64, i64),
        serves: bool,
    ) -> Result<String, rcgen::Error> {
        let mut request = CertificateSigningRequestParams::from_pem(request_pem)?;
        let mut params = client_params(name, group, 0, from_s);
        params.distinguished_name.push(DnType::CustomDnType(UID_OID.to_vec()), uid);
        if serves {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        let (y, m, d) = day(from_s, 0);
        params.not_before = rcgen::date_time_ymd(y, m, d) + in_day(from_s);
        let (y, m, d) = day(until_s, 0);
        params.not_after = rcgen::date_time_ymd(y, m, d) + in_day(until_s);
        request.params = params;
        Ok(request.signed_by(&self.issuer)?.pem())
    }
}

/// The subject attribute that carries a user's uid.
const UID_OID: [u64; 8] = [1, 3, 6, 1, 4, 1, 57683, 2];

/// The SHA-256 of a certificate's (DER) public key as `sha256:` and hex, by which joining machines know an authority.
pub fn key_hash(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(format!("sha256:{}", hex(&sha256(certificate.public_key().raw))))
}

/// Why a server certificate must be made anew; none when it is good until `until_s`.
pub(super) fn must_renew(
    der: &CertificateDer<'_>,
    authority: &Authority,
    key: &KeyPair,
    names: &BTreeSet<String>,
    until_s: i64,
) -> Result<Option<&'static str>, &'static str> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| "it holds no X.509 certificate")?;
    let (_, ca) = X509Certificate::from_der(&authority.der).map_err(|_| "its authority is damaged")?;
    let sans = certificate.subject_alternative_name().ok().flatten();
    let have: BTreeSet<String> =
        sans.iter().flat_map(|sans| &sans.value.general_names).filter_map(shown).collect();
    Ok(if certificate.validity().not_after.timestamp() < until_s {
        Some("it ends soon")
    } else if certificate.public_key().subject_public_key.data != key.der_bytes() {
        Some("it is for another key")
    } else if certificate.verify_signature(Some(ca.public_key())).is_err() {
        Some("it is from another authority")
    } else if !names.is_subset(&have) {
        Some("it lacks names")
    } else {
        None
    })
}

fn shown(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(|b| std::net::IpAddr::from(b).to_string());
            v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(|b| std::net::IpAddr::from(b).to_string())).ok()
        }
        _ => None,
    }
}

fn client_params(name: &str, group: &str, days: i32, now_s: i64) -> CertificateParams {
    let mut params = params(name, group, days, now_s);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// Valid from yesterday, for clocks that differ, for so many days.
fn params(name: &str, group: &str, days: i32, now_s: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if !group.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    let ((y, m, d), (to_y, to_m, to_d)) = (day(now_s, -1), day(now_s, days));
    params.not_before = rcgen::date_time_ymd(y, m, d);
    params.not_after = rcgen::date_time_ymd(to_y, to_m, to_d);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params
}

/// How long after midnight (UTC) a point in time is.
fn in_day(at_s: i64) -> std::time::Duration {
    std::time::Duration::from_secs(u64::try_from(at_s.rem_euclid(24 * 3600)).unwrap_or(0))
}

/// The year, month and day (UTC), so many days from now.
fn day(now_s: i64, days: i32) -> (i32, u8, u8) {
    let time = jiff::Timestamp::from_second(now_s).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let date = time.to_zoned(jiff::tz::TimeZone::UTC).date();
    let date = date.saturating_add(jiff::Span::new().days(days));
    let month = u8::try_from(date.month()).expect("a month is from 1 to 12");
    (date.year().into(), month, u8::try_from(date.day()).expect("a day is from 1 to 31"))
}
