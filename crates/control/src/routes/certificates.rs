//! Checked copies of the Secrets that routes name: edges read these and no others.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use landfall_api::landfall::{CERTIFICATES_NAMESPACE, group_label};
use landfall_api::rules::read::{child, text};
use landfall_plan::routes::{Part, copy_name};
use landfall_runtime::clock;
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::client::verify_server_name;
use rustls::crypto::aws_lc_rs;
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Map, Value, json};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::SOON;
use super::write::{Work, submit};
use crate::federation::Federation;
use crate::shelf::{Key, Seen};

/// The annotation of a copy: which Secret it is of, as `namespace/name`.
pub(super) const COPY_OF: &str = "landfall.dev/copy-of";

/// Most bytes of one entry that are looked at.
const ENTRY_MAX: usize = 256 << 10;

/// What was found out about Secrets, by version: a key is not read again and again.
#[derive(Debug, Default)]
pub(super) struct Checks {
    known: Mutex<HashMap<(Key, Part), Found>>,
}

/// What was found out about a Secret.
#[derive(Clone, Debug)]
struct Found {
    /// The version that was looked at.
    version: Box<str>,
    /// What is wrong with it, or its certificate.
    checked: Result<Option<Leaf>, String>,
}

/// A certificate, and when it ends.
#[derive(Clone, Debug)]
struct Leaf {
    der: CertificateDer<'static>,
    until_s: i64,
}

impl Checks {
    /// What is wrong with a part of a Secret; nothing if it can be used.
    pub(super) fn problem(&self, federation: &Federation, key: &Key, part: Part) -> Option<String> {
        let Some(checked) = self.look(federation, key, part) else {
            return Some(format!("there is no Secret {}", key.path()));
        };
        let problem = match checked {
            Err(wrong) => Some(wrong),
            // What has ended was good until then, and is what edges go on to show.
            Ok(Some(leaf)) if leaf.until_s <= clock::epoch_s() => {
                Some("its certificate has expired".to_owned())
            }
            Ok(_) => None,
        };
        problem.map(|wrong| format!("the Secret {} cannot be used: {wrong}", key.path()))
    }

    /// Why the certificate in a Secret is none for a host; nothing if it is, or if there is none.
    pub(super) fn misfit(&self, federation: &Federation, key: &Key, host: &str) -> Option<String> {
        let leaf = self.look(federation, key, Part::Certificate)?.ok()??;
        (!is_for(&leaf.der, host))
            .then(|| format!("the certificate in the Secret {} is not for {host}", key.path()))
    }

    /// What is known of a part of a Secret; nothing if it is not there.
    fn look(&self, federation: &Federation, key: &Key, part: Part) -> Option<Result<Option<Leaf>, String>> {
        let place = (key.clone(), part);
        let Some(seen) = federation.shelf(key.kind).get(key) else {
            self.known.lock().remove(&place);
            return None;
        };
        if let Some(found) = self.known.lock().get(&place)
            && found.version == seen.version
        {
            return Some(found.checked.clone());
        }
        let checked = check(&seen.value(), part);
        self.known.lock().insert(place, Found { version: seen.version.clone(), checked: checked.clone() });
        Some(checked)
    }

    fn forget(&self, key: &Key) {
        self.known.lock().retain(|(known, _), _| known != key);
    }
}

/// The Secret that a copy is of.
pub(super) fn copied(federation: &Federation, copy: &Key) -> Option<Key> {
    let seen = federation.shelf(copy.kind).get(copy)?;
    let value = seen.value();
    let of = child(child(child(&value, "metadata"), "annotations"), COPY_OF).as_str()?;
    let (namespace, name) = of.split_once('/')?;
    Some(Key { kind: copy.kind, namespace: namespace.into(), name: name.into() })
}

/// Looks at one Secret: its copy has what routes name and what is right.
pub(super) fn look(federation: &Arc<Federation>, key: &Key) {
    let routes = &federation.routes;
    let copy = Key {
        kind: key.kind,
        namespace: CERTIFICATES_NAMESPACE.into(),
        name: copy_name(&key.namespace, &key.name).into(),
    };
    if &*key.namespace == CERTIFICATES_NAMESPACE || routes.writer.busy(&copy) {
        if routes.writer.busy(&copy) {
            routes.queue.push_after(key, SOON);
        }
        return;
    }
    let shelf = federation.shelf(key.kind);
    let before = shelf.get(&copy);
    let parts = routes.index.parts(key);
    if parts.is_empty() {
        routes.checks.forget(key);
        let ours = copied(federation, &copy).as_ref() == Some(key);
        // Before all sources were looked at, nobody knows that none names it.
        let complete = routes.complete.load(std::sync::atomic::Ordering::Acquire);
        if let Some(before) = before.filter(|before| ours && complete && !before.deleting) {
            submit(federation, &copy, Work { delete: Some(before.uid.to_string()), ..Work::new(key) });
        }
        return;
    }
    let source = shelf.get(key).map(|seen| seen.value()).unwrap_or_default();
    let old = before.as_ref().map(|before| before.value()).unwrap_or_default();
    let mut data = json!({});
    for part in parts {
        // What is wrong, or gone, stays what it was.
        let good = routes.checks.problem(federation, key, part).is_none();
        let from = if good { &source } else { &old };
        for entry in entries(part) {
            if let Some(value) = child(from, "data").get(entry) {
                data[*entry] = value.clone();
            }
        }
    }
    let labels: Map<String, Value> =
        routes.index.needing(key).iter().map(|group| (group_label(group.as_deref()), "".into())).collect();
    let labels = Value::from(labels);
    let same = data == *child(&old, "data") && labels == *child(child(&old, "metadata"), "labels");
    if same || data == json!({}) {
        return;
    }
    let mut object = object(&copy, key, before.as_deref(), data);
    object["metadata"]["labels"] = labels;
    let work = Work { object: Some(object), ..Work::new(key) };
    submit(federation, &copy, work);
}

fn object(copy: &Key, of: &Key, before: Option<&Seen>, data: Value) -> Value {
    let mut object = before.map_or_else(
        || {
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                "metadata": {"name": &*copy.name, "namespace": &*copy.namespace},
            })
        },
        Seen::value,
    );
    object["metadata"]["annotations"][COPY_OF] = of.path().into();
    object["data"] = data;
    object
}

fn entries(part: Part) -> &'static [&'static str] {
    match part {
        Part::Certificate => &["tls.crt", "tls.key"],
        Part::Authority => &["ca.crt"],
    }
}

/// Whether a certificate is for a host; one for a wildcard is for any name below it.
fn is_for(der: &CertificateDer<'_>, host: &str) -> bool {
    let name = host.strip_prefix("*.").map_or_else(|| host.to_owned(), |domain| format!("any-name.{domain}"));
    let (Ok(parsed), Ok(name)) = (ParsedCertificate::try_from(der), ServerName::try_from(name)) else {
        return false;
    };
    verify_server_name(&parsed, &name).is_ok()
}

/// Whether a part of a Secret can be used; its certificate, if it has one.
fn check(secret: &Value, part: Part) -> Result<Option<Leaf>, String> {
    let entry = |name: &str| {
        let text = text(child(secret, "data"), name);
        if text.is_empty() {
            return Err(format!("it has no {name}"));
        }
        let bytes = BASE64.decode(text).map_err(|_| format!("{name} is not base64"))?;
        if bytes.len() > ENTRY_MAX { Err(format!("{name} is too large")) } else { Ok(bytes) }
    };
    let certificates = |name: &str| {
        let all: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_slice_iter(&entry(name)?).collect();
        match all {
            Ok(all) if !all.is_empty() => Ok(all),
            Ok(_) => Err(format!("{name} has no certificate")),
            Err(_) => Err(format!("{name} is no certificate in PEM")),
        }
    };
    match part {
        Part::Certificate => {
            let chain = certificates("tls.crt")?;
            let key = PrivateKeyDer::from_pem_slice(&entry("tls.key")?)
                .map_err(|_| "tls.key is no private key in PEM".to_owned())?;
            let pair = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider());
            let pair = pair.map_err(|error| format!("tls.crt and tls.key do not go together: {error}"))?;
            let leaf = pair.cert.first().and_then(|der| {
                let (_, parsed) = X509Certificate::from_der(der).ok()?;
                Some(Leaf { until_s: parsed.validity().not_after.timestamp(), der: der.clone() })
            });
            leaf.ok_or_else(|| "tls.crt is no certificate".to_owned()).map(Some)
        }
        Part::Authority => {
            let mut store = RootCertStore::empty();
            for one in certificates("ca.crt")? {
                store.add(one).map_err(|error| format!("ca.crt is no authority: {error}"))?;
            }
            Ok(None)
        }
    }
}
