//! Certificates, keys and authorities out of Secrets: read, checked, and kept for as long as nothing better comes.

use std::collections::HashMap;
use std::sync::Arc;

use imbl::OrdMap;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use crate::world::Certificate;

/// The most certificates in a chain, and the most authorities of clients.
const CHAIN_MAX: usize = 16;
const AUTHORITIES_MAX: usize = 256;
/// The most names that are taken from one certificate.
const NAMES_MAX: usize = 1024;

/// A certificate that can be shown.
#[derive(Debug)]
pub(crate) struct Shown {
    /// With its key.
    pub(crate) key: Arc<CertifiedKey>,
    /// The hosts it names.
    pub(crate) names: Vec<String>,
    /// Until when it is good, in seconds since 1970.
    pub(crate) until_s: i64,
}

/// What one Secret has come to.
pub(crate) struct Kept<T> {
    /// What it was read from; none once the Secret is gone.
    source: Option<Arc<Certificate>>,
    /// The last that was good.
    pub(crate) good: Option<Arc<T>>,
    /// What is wrong with the present one.
    pub(crate) wrong: Option<String>,
}

/// What Secrets have come to, by their names.
pub(crate) struct Shelf<T> {
    kept: HashMap<String, Kept<T>>,
    read: fn(&Certificate, &CryptoProvider) -> Result<T, String>,
}

impl<T> Shelf<T> {
    /// An empty one, and how a Secret is read.
    pub(crate) fn new(read: fn(&Certificate, &CryptoProvider) -> Result<T, String>) -> Self {
        Self { kept: HashMap::new(), read }
    }

    /// Reads a Secret, if it is another than the last time. What is bad or gone leaves the last good one where it is.
    pub(crate) fn take(
        &mut self,
        secret: &str,
        all: &OrdMap<String, Arc<Certificate>>,
        provider: &CryptoProvider,
    ) -> &Kept<T> {
        if !self.kept.contains_key(secret) {
            let none = Kept { source: None, good: None, wrong: Some(String::new()) };
            self.kept.insert(secret.to_owned(), none);
        }
        let kept = self.kept.get_mut(secret).expect("it was put there if it was not");
        match all.get(secret) {
            None => {
                kept.source = None;
                kept.wrong = Some("the Secret is not there".into());
            }
            Some(source) if kept.source.as_ref() == Some(source) => {}
            Some(source) => {
                match (self.read)(source, provider) {
                    Ok(good) => (kept.good, kept.wrong) = (Some(Arc::new(good)), None),
                    Err(why) => kept.wrong = Some(why),
                }
                kept.source = Some(source.clone());
            }
        }
        kept
    }

    /// Forgets Secrets that nobody names any longer.
    pub(crate) fn retain(&mut self, named: impl Fn(&str) -> bool) {
        self.kept.retain(|secret, _| named(secret));
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Kept<T>)> {
        self.kept.iter().map(|(secret, kept)| (secret.as_str(), kept))
    }
}

/// Reads `tls.crt` and `tls.key`; the sentence says what is wrong.
pub(crate) fn shown(secret: &Certificate, provider: &CryptoProvider) -> Result<Shown, String> {
    let chain = certificates(&secret.chain_pem, "tls.crt", CHAIN_MAX)?;
    let key = PrivateKeyDer::from_pem_slice(&secret.key_pem)
        .map_err(|_| "tls.key holds no PEM private key".to_owned())?;
    let first = chain.first().ok_or("tls.crt holds no PEM certificate")?;
    let (names, until_s) = names(first)?;
    let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            "tls.key is not the key of the certificate in tls.crt".to_owned()
        }
        rustls::Error::InvalidCertificate(_) => "tls.crt holds no X.509 certificate".to_owned(),
        _ => "tls.key holds no private key that can be used".to_owned(),
    })?;
    Ok(Shown { key: Arc::new(key), names, until_s })
}

/// Reads `ca.crt`; the sentence says what is wrong.
pub(crate) fn authorities(secret: &Certificate, _: &CryptoProvider) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for der in certificates(&secret.authority_pem, "ca.crt", AUTHORITIES_MAX)? {
        roots.add(der).map_err(|_| "ca.crt holds a certificate that cannot be an authority's".to_owned())?;
    }
    Ok(roots)
}

/// The certificates in a PEM text: one at least.
fn certificates(pem: &[u8], what: &str, most: usize) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).take(most + 1).collect();
    let all = all.map_err(|_| format!("{what} is no PEM text"))?;
    match all.len() {
        0 => Err(format!("{what} holds no PEM certificate")),
        count if count > most => Err(format!("{what} holds more than {most} certificates")),
        _ => Ok(all),
    }
}

/// The hosts that a certificate names, and until when it is good.
fn names(der: &CertificateDer<'_>) -> Result<(Vec<String>, i64), String> {
    let (_, parsed) =
        X509Certificate::from_der(der).map_err(|_| "tls.crt holds no X.509 certificate".to_owned())?;
    let listed = parsed.subject_alternative_name().ok().flatten();
    let listed = listed.iter().flat_map(|names| &names.value.general_names);
    let names = listed.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    Ok((names.take(NAMES_MAX).collect(), parsed.validity().not_after.timestamp()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::crypto::aws_lc_rs::default_provider;

    fn made(name: &str) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.into()]).unwrap().self_signed(&key).unwrap();
        Certificate {
            chain_pem: certificate.pem().into_bytes(),
            key_pem: key.serialize_pem().into_bytes(),
            authority_pem: certificate.pem().into_bytes(),
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let (one, other) = (made("a.example"), made("b.example"));
        let check = |change: &dyn Fn(&mut Certificate), want: &str| {
            let mut secret = one.clone();
            change(&mut secret);
            let got = match shown(&secret, &default_provider()) {
                Ok(shown) => shown.names.join(","),
                Err(why) => why,
            };
            assert!(got.contains(want), "{got:?}, not {want:?}");
        };
        check(&|_| {}, "a.example");
        check(&|s| s.chain_pem.clear(), "tls.crt holds no PEM certificate");
        check(&|s| s.key_pem = b"x".to_vec(), "tls.key holds no PEM private key");
        check(&|s| s.key_pem.clone_from(&other.key_pem), "is not the key of the certificate");
        check(&|s| s.chain_pem = s.chain_pem.repeat(CHAIN_MAX + 1), "more than 16 certificates");
        let garbled = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n".to_vec();
        check(&|s| s.chain_pem.clone_from(&garbled), "tls.crt holds no X.509 certificate");
        check(&|s| s.chain_pem = b"-----BEGIN CERTIFICATE-----\n***".to_vec(), "tls.crt is no PEM text");
    }

    #[test]
    fn the_last_good_one_stays() {
        let (provider, good) = (default_provider(), Arc::new(made("a.example")));
        let mut shelf = Shelf::new(shown);
        let world = |secret: &Arc<Certificate>| OrdMap::unit("s".to_owned(), secret.clone());
        let first = shelf.take("s", &world(&good), &provider).good.clone().unwrap();
        let bad = Arc::new(Certificate { key_pem: b"x".to_vec(), ..(*good).clone() });
        let kept = shelf.take("s", &world(&bad), &provider);
        assert!(Arc::ptr_eq(kept.good.as_ref().unwrap(), &first));
        assert!(kept.wrong.as_ref().unwrap().contains("tls.key"));
        let kept = shelf.take("s", &OrdMap::new(), &provider);
        assert!(Arc::ptr_eq(kept.good.as_ref().unwrap(), &first));
        assert!(kept.wrong.as_ref().unwrap().contains("not there"));
        let next = Arc::new(made("b.example"));
        let kept = shelf.take("s", &world(&next), &provider);
        assert_eq!((kept.good.as_ref().unwrap().names.join(","), &kept.wrong), ("b.example".into(), &None));
        shelf.retain(|_| false);
        assert_eq!(shelf.iter().count(), 0);
    }

    #[test]
    fn an_authority_is_one() {
        let provider = default_provider();
        assert!(authorities(&Certificate::default(), &provider).is_err());
        assert_eq!(authorities(&made("ca"), &provider).map(|roots| roots.len()), Ok(1));
    }
}
