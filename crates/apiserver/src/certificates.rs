//! Requests for certificates: what the server says and checks about CertificateSigningRequests beyond their own rules.

use landfall_api::rules::certificates::{self as rules, Request};
use landfall_api::rules::read::text;
use landfall_api::{Kind, Status};
use rustls_pki_types::pem::{PemObject, SectionKind};
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer};
use serde_json::Value;
use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use crate::api::Api;
use crate::authz::Attributes;
use crate::write::By;
use crate::write::update::Part;

/// The API group of requests.
pub const GROUP: &str = "certificates.k8s.io";
/// Their plural.
pub const PLURAL: &str = "certificatesigningrequests";

/// The rules of requests, with a look into what they carry.
pub const RULES: Request = Request { request: check_request, certificate: check_certificates };

/// Whether a kind is that of requests.
pub fn is_request(kind: &Kind) -> bool {
    kind.group == GROUP && kind.kind == "CertificateSigningRequest"
}

/// A new request says who asks, whatever was sent.
pub fn requested(object: &mut Value, by: &By<'_>) {
    rules::set_requester(object, &by.user.to_value());
}

/// Who approves or signs must be allowed that for the signer that was asked.
pub fn decided(
    api: &Api,
    kind: &Kind,
    part: Part,
    object: &mut Value,
    old: &Value,
    by: &By<'_>,
) -> Result<(), Status> {
    let approval = part == Part::Approval;
    rules::settle_conditions(object, old, approval, &api.now_text());
    if !approval && object.get("status") == old.get("status") {
        return Ok(());
    }
    let signer = text(old.get("spec").unwrap_or(&Value::Null), "signerName");
    let verb = if approval { "approve" } else { "sign" };
    let whole = signer.split_once('/').map(|(domain, _)| format!("{domain}/*")).unwrap_or_default();
    let allowed = [signer, &whole].iter().any(|name| {
        let asked = Attributes::resource(by.user, verb, GROUP, "signers", "", name);
        api.authorize(&asked).allowed()
    });
    if allowed {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(Status::forbidden(&kind.group, &kind.plural, landfall_api::meta::name(old), &why))
}

/// Who a request is for, as its signature vouches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// Common names.
    pub names: Vec<String>,
    /// Organisations.
    pub groups: Vec<String>,
    /// Whether it asks for anything else: other attributes of the subject, other names.
    pub more: bool,
}

/// The subject of a request in PEM, if its signature is right; the sentence says what is wrong.
pub fn subject(pem: &[u8]) -> Result<Subject, String> {
    with_request(pem, |request| {
        let subject = &request.certification_request_info.subject;
        let texts = |attributes: &mut dyn Iterator<Item = &x509_parser::x509::AttributeTypeAndValue<'_>>| {
            attributes.filter_map(|value| value.as_str().ok()).map(str::to_owned).collect::<Vec<_>>()
        };
        let names = texts(&mut subject.iter_common_name());
        let groups = texts(&mut subject.iter_organization());
        let extensions = request.requested_extensions().is_some_and(|mut all| {
            all.any(|extension| {
                matches!(extension, x509_parser::extensions::ParsedExtension::SubjectAlternativeName(_))
            })
        });
        let more = extensions || subject.iter_attributes().count() != names.len() + groups.len();
        Subject { names, groups, more }
    })
}

fn check_request(pem: &[u8]) -> Result<(), String> {
    with_request(pem, |_| ())
}

fn with_request<T>(pem: &[u8], look: impl FnOnce(&X509CertificationRequest<'_>) -> T) -> Result<T, String> {
    let der = CertificateSigningRequestDer::from_pem_slice(pem)
        .map_err(|_| "PEM block type must be CERTIFICATE REQUEST".to_owned())?;
    let (_, request) =
        X509CertificationRequest::from_der(&der).map_err(|_| "asn1: structure error".to_owned())?;
    request.verify_signature().map_err(|_| "x509: certificate signature is not valid".to_owned())?;
    Ok(look(&request))
}

fn check_certificates(pem: &[u8]) -> Result<(), String> {
    let mut count = 0;
    for section in <(SectionKind, Vec<u8>) as PemObject>::pem_slice_iter(pem) {
        let Ok((kind, bytes)) = section else { break };
        if kind != SectionKind::Certificate {
            return Err("only CERTIFICATE PEM blocks are allowed".into());
        }
        X509Certificate::from_der(&CertificateDer::from(bytes)).map_err(|_| "x509: malformed certificate")?;
        count += 1;
    }
    if count == 0 {
        return Err("must contain at least one CERTIFICATE PEM block".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn request(parts: &[(DnType, &str)], names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, text) in parts {
            params.distinguished_name.push(kind.clone(), *text);
        }
        let key = KeyPair::generate().expect("a key");
        params.serialize_request(&key).expect("a request").pem().expect("PEM")
    }

    #[test]
    fn a_request_says_whom_it_is_for() {
        let check = |parts: &[(DnType, &str)], sans: &[&str], names: &[&str], groups: &[&str], more: bool| {
            let got = subject(request(parts, sans).as_bytes()).expect("a request");
            let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            assert_eq!(got, Subject { names: texts(names), groups: texts(groups), more });
        };
        let (cn, o) = (DnType::CommonName, DnType::OrganizationName);
        check(&[(cn.clone(), "a"), (o.clone(), "g")], &[], &["a"], &["g"], false);
        check(&[(cn.clone(), "a")], &["example.com"], &["a"], &[], true);
        check(&[(cn, "a"), (DnType::CountryName, "FR")], &[], &["a"], &[], true);
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for bad in ["", "x", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"]
        {
            assert!(check_request(bad.as_bytes()).is_err(), "{bad:?}");
            assert!(check_certificates(bad.as_bytes()).is_err(), "{bad:?}");
        }
        // One flipped character in the signature.
        let good = request(&[(DnType::CommonName, "a")], &[]);
        let at = good.find("\n-----END").expect("an end") - 6;
        let other = if &good[at..=at] == "A" { "B" } else { "A" };
        let bad = format!("{}{other}{}", &good[..at], &good[at + 1..]);
        assert!(check_request(bad.as_bytes()).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_input_breaks_it(bytes in proptest::collection::vec(0_u8.., 0..300)) {
            let _ = check_request(&bytes);
            let _ = check_certificates(&bytes);
        }
    }
}
