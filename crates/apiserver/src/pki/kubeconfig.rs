//! The administrator's kubeconfig, with the certificates inside.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{Authority, Error};

/// A kubeconfig for a new client certificate.
pub(super) fn admin(
    authority: &Authority,
    server: &str,
    (name, group): (&str, &str),
    days: i32,
    now_s: i64,
) -> Result<String, Error> {
    let (cert, key) = authority
        .client(name, group, days, now_s)
        .map_err(|source| Error::Make { what: "the administrator's certificate", source })?;
    let [ca, cert, key] = [authority.pem(), &cert, &key].map(|pem| STANDARD.encode(pem));
    // A JSON text is a YAML text, so nothing in a URL can break out of its quotes.
    let server = json!(server);
    Ok(format!(
        "apiVersion: v1
kind: Config
clusters:
- name: federation
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: admin
  user:
    client-certificate-data: {cert}
    client-key-data: {key}
contexts:
- name: federation
  context:
    cluster: federation
    user: admin
current-context: federation
"
    ))
}
