//! From a DNSZone and its Secrets to a publisher.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hickory_proto::rr::TSigner;
use hickory_proto::rr::rdata::tsig::TsigAlgorithm as Algorithm;
use landfall_api::landfall::{
    DNSZone, Rfc2136 as Rfc2136Spec, SYSTEM_NAMESPACE, SecretKeyReference, SkyDns as SkyDnsSpec, Tsig,
    TsigAlgorithm, UpdateTransport,
};
use landfall_plan::publish::mark;
use serde_json::Value;

use super::publisher::{Fault, Publisher};
use super::rfc2136::Rfc2136;
use super::skydns::{Etcd, SkyDns};
use crate::Config;
use crate::federation::Federation;

/// By how many seconds clocks may differ, as servers have it.
const FUDGE_S: u16 = 300;
/// The entry of a Secret that has a key, unless another is named.
const SECRET_KEY: &str = "secret";
/// What all keys in etcd begin with, unless told otherwise: as CoreDNS has it.
const PREFIX: &str = "/skydns";

/// All that a publisher is made of. Not printed: it has secrets.
#[derive(Clone, PartialEq)]
pub(super) enum Opening {
    /// A server that takes dynamic updates.
    Rfc2136 {
        /// The zone.
        zone: String,
        /// The server.
        server: String,
        /// How updates are sent.
        transport: Option<UpdateTransport>,
        /// The key that signs them.
        key: Option<Key>,
    },
    /// An etcd that CoreDNS reads.
    SkyDns {
        /// The zone.
        zone: String,
        /// What all keys begin with.
        prefix: String,
        /// How it is reached.
        etcd: Etcd,
    },
}

/// A key for signatures.
#[derive(Clone, PartialEq)]
pub(super) struct Key {
    name: String,
    algorithm: TsigAlgorithm,
    secret: Vec<u8>,
}

/// Gathers what a zone's publisher is made of.
pub(super) fn gather(federation: &Federation, zone: &DNSZone) -> Result<Opening, Fault> {
    let spec = &zone.spec;
    match (&spec.rfc2136, &spec.skydns) {
        (Some(server), None) => rfc2136(federation, &spec.zone, server),
        (None, Some(etcd)) => skydns(federation, &spec.zone, etcd),
        (None, None) | (Some(_), Some(_)) => {
            Err(misconfigured("spec must have exactly one of rfc2136 and skydns"))
        }
    }
}

/// Makes a zone's publisher. Nothing is sent yet.
pub(super) fn open(config: &Config, opening: &Opening) -> Result<Arc<dyn Publisher>, Fault> {
    let mark = mark(&config.federation);
    match opening {
        Opening::Rfc2136 { zone, server, transport, key } => {
            let key = key.as_ref().map(signer).transpose()?;
            Ok(Arc::new(Rfc2136::new(zone, mark, server, *transport, key)?))
        }
        Opening::SkyDns { zone, prefix, etcd } => {
            let open = config.keys.ok_or_else(|| misconfigured("this hub cannot publish to etcd"))?;
            Ok(Arc::new(SkyDns::new(open(etcd)?, prefix, zone, mark)))
        }
    }
}

fn misconfigured(text: impl Into<String>) -> Fault {
    Fault::Misconfigured(text.into())
}

fn rfc2136(federation: &Federation, zone: &str, spec: &Rfc2136Spec) -> Result<Opening, Fault> {
    let key = |tsig: &Tsig| {
        let entry = tsig.secret_ref.key.as_deref().unwrap_or(SECRET_KEY);
        let text = secret(federation, &tsig.secret_ref)?;
        let text = String::from_utf8_lossy(&text);
        let secret = BASE64
            .decode(text.trim())
            .map_err(|_| misconfigured(format!("the Secret's {entry:?} is not a key in base64")))?;
        Ok(Key { name: tsig.key_name.clone(), algorithm: tsig.algorithm, secret })
    };
    Ok(Opening::Rfc2136 {
        zone: zone.to_owned(),
        server: spec.server.clone(),
        transport: spec.transport,
        key: spec.tsig.as_ref().map(key).transpose()?,
    })
}

fn skydns(federation: &Federation, zone: &str, spec: &SkyDnsSpec) -> Result<Opening, Fault> {
    let mut etcd = Etcd { endpoints: spec.endpoints.clone(), ..Etcd::default() };
    if let Some(reference) = &spec.credentials {
        let (namespace, name) = (reference.namespace.as_deref().unwrap_or(SYSTEM_NAMESPACE), &reference.name);
        let found = federation.secret(Some(namespace), name);
        let found = found.ok_or_else(|| misconfigured(format!("there is no Secret {namespace}/{name}")))?;
        let both = |one: &str, other: &str| entry(&found, one).zip(entry(&found, other));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
        etcd.ca = entry(&found, "ca.crt");
        etcd.certificate = both("tls.crt", "tls.key");
        etcd.login = both("username", "password").map(|(name, password)| (text(name), text(password)));
    }
    let prefix = spec.prefix.clone().unwrap_or_else(|| PREFIX.into());
    Ok(Opening::SkyDns { zone: zone.to_owned(), prefix, etcd })
}

fn signer(key: &Key) -> Result<TSigner, Fault> {
    let name = super::rfc2136::name(&key.name)
        .map_err(|error| misconfigured(format!("{:?} cannot be the name of a key: {error}", key.name)))?;
    let algorithm = match key.algorithm {
        TsigAlgorithm::HmacSha256 => Algorithm::HmacSha256,
        TsigAlgorithm::HmacSha384 => Algorithm::HmacSha384,
        TsigAlgorithm::HmacSha512 => Algorithm::HmacSha512,
    };
    TSigner::new(key.secret.clone(), algorithm, name, FUDGE_S)
        .map_err(|error| misconfigured(format!("the key cannot be used: {error}")))
}

/// One entry of a Secret.
fn secret(federation: &Federation, reference: &SecretKeyReference) -> Result<Vec<u8>, Fault> {
    let (name, entry) = (&reference.name, reference.key.as_deref().unwrap_or(SECRET_KEY));
    let namespace = reference.namespace.as_deref().unwrap_or(SYSTEM_NAMESPACE);
    let found = federation.secret(Some(namespace), name);
    let found = found.ok_or_else(|| misconfigured(format!("there is no Secret {namespace}/{name}")))?;
    self::entry(&found, entry)
        .ok_or_else(|| misconfigured(format!("the Secret {namespace}/{name} has no {entry:?}")))
}

fn entry(secret: &Value, entry: &str) -> Option<Vec<u8>> {
    BASE64.decode(secret.get("data")?.get(entry)?.as_str()?).ok()
}
