//! Signed tokens in compact form (RFC 7515): keys, signing, checking signatures. Knows nothing of claims.
//!
//! The key decides the algorithm, never the token: `none` and key confusion have nowhere to happen.

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair, ParsedPublicKey, RsaKeyPair, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::sha256;

/// The longest token looked at; real ones have about 1 KiB.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// The algorithms keys can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Es256,
    Es384,
    Es512,
    Rs256,
}

/// One row per algorithm: its name, how to sign (elliptic curves only) and how to check.
const ALGORITHMS: [(
    Algorithm,
    &str,
    Option<&'static EcdsaSigningAlgorithm>,
    &'static dyn VerificationAlgorithm,
); 4] = [
    (
        Algorithm::Es256,
        "ES256",
        Some(&signature::ECDSA_P256_SHA256_FIXED_SIGNING),
        &signature::ECDSA_P256_SHA256_FIXED,
    ),
    (
        Algorithm::Es384,
        "ES384",
        Some(&signature::ECDSA_P384_SHA384_FIXED_SIGNING),
        &signature::ECDSA_P384_SHA384_FIXED,
    ),
    (
        Algorithm::Es512,
        "ES512",
        Some(&signature::ECDSA_P521_SHA512_FIXED_SIGNING),
        &signature::ECDSA_P521_SHA512_FIXED,
    ),
    (Algorithm::Rs256, "RS256", None, &signature::RSA_PKCS1_2048_8192_SHA256),
];

/// Why a key is not taken. Holds no part of the key.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(String);

/// A private key that signs tokens.
pub struct SigningKey {
    pair: Pair,
    public: VerifyingKey,
}

enum Pair {
    Ec(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

/// A public key that checks tokens.
pub struct VerifyingKey {
    id: String,
    algorithm: Algorithm,
    spki: Vec<u8>,
    parsed: ParsedPublicKey,
}

/// A token taken apart; its signature is not checked yet.
pub struct Parts<'a> {
    /// `kid` of the header; empty when there is none.
    pub key_id: String,
    /// `alg` of the header.
    pub algorithm: String,
    /// The claims, not to be trusted before [`VerifyingKey::verify`].
    pub claims: Value,
    signed: &'a str,
    signature: Vec<u8>,
}

// === impl SigningKey ===

impl SigningKey {
    /// A new P-256 key.
    pub fn generate() -> Result<Self, KeyError> {
        let pair = EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_FIXED_SIGNING)
            .map_err(|_| KeyError("cannot generate a key".into()))?;
        Self::from_pair(Pair::Ec(pair))
    }

    /// A PEM private key: PKCS#8, `EC PRIVATE KEY` (P-256, P-384, P-521) or `RSA PRIVATE KEY` (2048 bits or more).
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let der = PrivateKeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| KeyError("it holds no PEM private key".into()))?;
        Self::from_pair(pair_of(&der).ok_or_else(|| {
            KeyError("it is not an ECDSA (P-256, P-384, P-521) or RSA (2048 bits or more) private key".into())
        })?)
    }

    fn from_pair(pair: Pair) -> Result<Self, KeyError> {
        let spki: PublicKeyX509Der<'_> = match &pair {
            Pair::Ec(pair) => pair.public_key().as_der(),
            Pair::Rsa(pair) => pair.public_key().as_der(),
        }
        .map_err(|_| KeyError("its public key cannot be had".into()))?;
        let public = VerifyingKey::from_spki(spki.as_ref())?;
        Ok(Self { pair, public })
    }

    /// Its public half.
    pub const fn public(&self) -> &VerifyingKey {
        &self.public
    }

    /// Signs claims.
    pub fn sign(&self, claims: &Value) -> Result<String, KeyError> {
        let header = json!({"alg": self.public.algorithm(), "kid": self.public.id});
        let mut token =
            format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        let failed = |_| KeyError("cannot sign".into());
        let rng = SystemRandom::new();
        let signature = match &self.pair {
            Pair::Ec(pair) => pair.sign(&rng, token.as_bytes()).map_err(failed)?.as_ref().to_vec(),
            Pair::Rsa(pair) => {
                let mut out = vec![0; pair.public_modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &rng, token.as_bytes(), &mut out).map_err(failed)?;
                out
            }
        };
        token.push('.');
        token.push_str(&encode(&signature));
        Ok(token)
    }
}

fn pair_of(der: &PrivateKeyDer<'_>) -> Option<Pair> {
    let bytes = der.secret_der();
    let rsa = match der {
        PrivateKeyDer::Pkcs8(_) => RsaKeyPair::from_pkcs8(bytes).ok(),
        PrivateKeyDer::Pkcs1(_) => RsaKeyPair::from_der(bytes).ok(),
        _ => None,
    };
    if let Some(pair) = rsa {
        return Some(Pair::Rsa(pair));
    }
    ALGORITHMS.iter().filter_map(|row| row.2).find_map(|algorithm| {
        let pair = match der {
            PrivateKeyDer::Pkcs8(_) => EcdsaKeyPair::from_pkcs8(algorithm, bytes).ok(),
            PrivateKeyDer::Sec1(_) => EcdsaKeyPair::from_private_key_der(algorithm, bytes).ok(),
            _ => None,
        };
        pair.map(Pair::Ec)
    })
}

// === impl VerifyingKey ===

impl VerifyingKey {
    /// A public key as SubjectPublicKeyInfo (DER).
    pub fn from_spki(spki: &[u8]) -> Result<Self, KeyError> {
        let unknown = || KeyError("it is not an ECDSA (P-256, P-384, P-521) or RSA public key".into());
        let (_, info) = SubjectPublicKeyInfo::from_der(spki).map_err(|_| unknown())?;
        let algorithm = match info.parsed().map_err(|_| unknown())? {
            PublicKey::RSA(_) => Algorithm::Rs256,
            PublicKey::EC(point) => match point.data().len() {
                65 => Algorithm::Es256,
                97 => Algorithm::Es384,
                133 => Algorithm::Es512,
                _ => return Err(unknown()),
            },
            _ => return Err(unknown()),
        };
        let (.., check) =
            ALGORITHMS.iter().find(|row| row.0 == algorithm).expect("every algorithm has a row");
        let parsed = ParsedPublicKey::new(*check, spki).map_err(|_| unknown())?;
        Ok(Self { id: encode(&sha256(spki)), algorithm, spki: spki.to_vec(), parsed })
    }

    /// A PEM `PUBLIC KEY`.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let der = rustls_pki_types::SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| KeyError("it holds no PEM public key".into()))?;
        Self::from_spki(&der)
    }

    /// Its SubjectPublicKeyInfo (DER).
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// Its id: the hash of the public key, as Kubernetes derives it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its algorithm's name.
    pub fn algorithm(&self) -> &'static str {
        ALGORITHMS.iter().find(|row| row.0 == self.algorithm).map_or("", |row| row.1)
    }

    /// Whether this key signed the token.
    pub fn verify(&self, token: &Parts<'_>) -> bool {
        token.algorithm == self.algorithm()
            && self.parsed.verify_sig(token.signed.as_bytes(), &token.signature).is_ok()
    }

    /// The JSON Web Key (RFC 7517).
    pub fn to_jwk(&self) -> Value {
        let mut jwk = json!({"use": "sig", "kty": "EC", "kid": self.id, "crv": "", "alg": self.algorithm()});
        let parsed = SubjectPublicKeyInfo::from_der(&self.spki).ok().map(|(_, info)| info);
        match parsed.as_ref().and_then(|info| info.parsed().ok()) {
            Some(PublicKey::EC(point)) => {
                let (x, y) = point.data().get(1..).map_or((&[][..], &[][..]), |p| p.split_at(p.len() / 2));
                jwk["crv"] = json!(match self.algorithm {
                    Algorithm::Es384 => "P-384",
                    Algorithm::Es512 => "P-521",
                    Algorithm::Es256 | Algorithm::Rs256 => "P-256",
                });
                (jwk["x"], jwk["y"]) = (json!(encode(x)), json!(encode(y)));
            }
            Some(PublicKey::RSA(key)) => {
                let trim =
                    |bytes: &[u8]| encode(&bytes.iter().copied().skip_while(|b| *b == 0).collect::<Vec<_>>());
                jwk = json!({"use": "sig", "kty": "RSA", "kid": self.id, "alg": "RS256",
                    "n": trim(key.modulus), "e": trim(key.exponent)});
            }
            _ => {}
        }
        jwk
    }
}

/// Takes a token apart; none when it is not a signed token at all.
pub fn parse(token: &str) -> Option<Parts<'_>> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
    let claims: Value = serde_json::from_slice(&decode(claims)?).ok()?;
    // A `crit` header asks for something we do not know (RFC 7515 §4.1.11).
    if !header.is_object() || !claims.is_object() || header.get("crit").is_some() {
        return None;
    }
    let text = |key: &str| header.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(Parts { key_id: text("kid"), algorithm: text("alg"), claims, signed, signature: decode(signature)? })
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rsa_key() -> SigningKey {
        let pair = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048)
            .expect("an RSA key");
        SigningKey::from_pem(&pair.serialize_pem()).expect("taken")
    }

    #[test]
    fn what_a_key_signs_only_its_public_half_accepts() {
        let (a, b, rsa) =
            (SigningKey::generate().expect("a key"), SigningKey::generate().expect("a key"), rsa_key());
        let claims = json!({"sub": "x"});
        let check = |signer: &SigningKey, verifier: &SigningKey, expected: bool| {
            let token = signer.sign(&claims).expect("signed");
            let parts = parse(&token).expect("a token");
            assert_eq!(parts.key_id, signer.public().id());
            assert_eq!(parts.claims, claims);
            assert_eq!(verifier.public().verify(&parts), expected);
        };
        check(&a, &a, true);
        check(&b, &b, true);
        check(&rsa, &rsa, true);
        check(&a, &b, false);
        check(&rsa, &a, false);
        check(&a, &rsa, false);
    }

    #[test]
    fn any_changed_part_is_refused() {
        let key = SigningKey::generate().expect("a key");
        let token = key.sign(&json!({"sub": "x"})).expect("signed");
        let check = |changed: &str| {
            let accepted = parse(changed).is_some_and(|parts| key.public().verify(&parts));
            assert!(!accepted, "{changed}");
        };
        let parts: Vec<&str> = token.split('.').collect();
        let other = encode(json!({"sub": "y"}).to_string().as_bytes());
        let none = encode(json!({"alg": "none"}).to_string().as_bytes());
        let hs256 = encode(json!({"alg": "HS256", "kid": key.public().id()}).to_string().as_bytes());
        check(&format!("{}.{other}.{}", parts[0], parts[2]));
        check(&format!("{none}.{}.", parts[1]));
        check(&format!("{none}.{}.{}", parts[1], parts[2]));
        check(&format!("{hs256}.{}.{}", parts[1], parts[2]));
        check(&format!("{}.{}", parts[0], parts[1]));
        check(&format!("{}.{}.{}x", parts[0], parts[1], parts[2]));
        for bad in ["", ".", "..", "...", "a.b.c", "é.é.é"] {
            check(bad);
        }
        check(&"a".repeat(TOKEN_BYTES_MAX + 1));
    }

    #[test]
    fn keys_show_their_public_half_as_jwk() {
        let key = SigningKey::generate().expect("a key");
        let jwk = key.public().to_jwk();
        assert_eq!((&jwk["kty"], &jwk["crv"], &jwk["alg"]), (&json!("EC"), &json!("P-256"), &json!("ES256")));
        assert_eq!(jwk["x"].as_str().map(str::len), Some(43));
        assert_eq!(rsa_key().public().to_jwk()["e"], "AQAB");
    }

    #[test]
    fn other_files_are_not_keys() {
        for bad in ["", "hello", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            assert!(SigningKey::from_pem(bad).is_err(), "{bad}");
        }
    }
}
