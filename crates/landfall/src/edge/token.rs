//! `landfall edge token`: a bootstrap token for edges, as a Secret at the hub, and the command that uses it.

use std::path::Path;

use anyhow::{Context, Result, bail};
use kube::config::KubeConfigOptions;
use landfall_apiserver::authn::bootstrap_token;
use landfall_apiserver::{api, edges, pki};
use landfall_runtime::clock;
use serde_json::{Value, json};

use super::options::TokenOptions;
use crate::basics::target::{Target, escape, kubeconfig};
use crate::say::say;

/// Characters of tokens.
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// A token: its id, which may be known, and its secret.
pub(crate) struct Token {
    /// The part that names it.
    pub(crate) id: String,
    secret: String,
}

impl Token {
    /// A new one.
    pub(crate) fn new() -> Self {
        Self { id: random(6), secret: random(16) }
    }

    /// As it is shown once.
    pub(crate) fn text(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    /// Where its Secret is.
    pub(crate) fn path(id: &str) -> String {
        let name = format!("{}{id}", bootstrap_token::SECRET_PREFIX);
        format!("/api/v1/namespaces/{}/secrets/{}", bootstrap_token::NAMESPACE, escape(&name))
    }

    /// Its Secret, good until `until_s` (seconds since 1970), for edges of any group.
    pub(crate) fn secret(&self, cluster: Option<&str>, until_s: i64) -> Value {
        self.secret_for(cluster, None, until_s)
    }

    /// The same for edges of one group alone.
    fn secret_for(&self, cluster: Option<&str>, group: Option<&str>, until_s: i64) -> Value {
        let mut data = json!({
            "token-id": self.id,
            "token-secret": self.secret,
            "expiration": api::rfc3339(until_s),
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": edges::BOOTSTRAPPERS,
            "description": "Lets edges of the federation come in.",
        });
        if let Some(cluster) = cluster {
            data[bootstrap_token::CLUSTER_KEY] = json!(cluster);
        }
        if let Some(group) = group {
            data[bootstrap_token::GROUP_KEY] = json!(group);
        }
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": bootstrap_token::SECRET_TYPE, "stringData": data,
            "metadata": {
                "name": format!("{}{}", bootstrap_token::SECRET_PREFIX, self.id),
                "namespace": bootstrap_token::NAMESPACE,
            },
        })
    }
}

/// A new token for edges of a group in a member: as it is shown, and its Secret.
pub(crate) fn mint(cluster: &str, group: &str, until_s: i64) -> (String, Value) {
    let token = Token::new();
    (token.text(), token.secret_for(Some(cluster), Some(group), until_s))
}

/// So many characters that nobody can guess.
fn random(chars: usize) -> String {
    (0..chars).map(|_| char::from(ALPHABET[usize::from(luck()) % ALPHABET.len()])).collect()
}

/// A number below 252, which is a multiple of the alphabet's size: no character is likelier than another.
fn luck() -> u8 {
    loop {
        // The last byte of a version 4 UUID is random as a whole.
        let byte = uuid::Uuid::new_v4().as_bytes()[15];
        if byte < 252 {
            return byte;
        }
    }
}

pub(super) async fn run(options: &TokenOptions) -> Result<()> {
    let hub = Target::find(&options.connection).await?;
    if let Some(cluster) = &options.cluster
        && hub.look(&format!("/apis/landfall.dev/v1alpha1/clusters/{}", escape(cluster))).await?.is_none()
    {
        bail!("there is no cluster {cluster:?}; see `landfall get clusters`");
    }
    let ttl_s = i64::try_from(options.ttl.0.as_secs()).unwrap_or(i64::MAX);
    let until_s = clock::epoch_s().saturating_add(ttl_s);
    let token = Token::new();
    let place = format!("/api/v1/namespaces/{}/secrets", bootstrap_token::NAMESPACE);
    let (cluster, group) = (options.cluster.as_deref(), options.group.as_deref());
    hub.post(&place, &token.secret_for(cluster, group, until_s)).await?;
    let connection = &options.connection;
    let door = door_of(connection.kubeconfig.as_deref(), connection.context.clone()).await?;
    say(&token.text());
    say("");
    say(&format!("It is good until {}. To run an edge with it:", api::rfc3339(until_s)));
    say("");
    say(&format!("  landfall edge --hub {} \\", door.url));
    if let Some(hash) = &door.ca_hash {
        say(&format!("    --hub-ca-hash {hash} \\"));
    }
    let group = group.map(|group| format!(" --group {group}")).unwrap_or_default();
    say(&format!("    --cluster {}{group} --token {}", cluster.unwrap_or("CLUSTER"), token.text()));
    Ok(())
}

/// Where the hub is, and what it is known by.
pub(super) struct Door {
    /// Its URL.
    pub(super) url: String,
    /// The hash of its authority's key.
    pub(super) ca_hash: Option<String>,
}

/// The hub as a kubeconfig knows it.
pub(super) async fn door_of(file: Option<&Path>, context: Option<String>) -> Result<Door> {
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let config = kube::Config::from_custom_kubeconfig(kubeconfig(file)?, &options).await;
    let config = config.context("cannot use the kubeconfig")?;
    let authority = config.root_cert.as_ref().and_then(|all| all.first());
    Ok(Door {
        url: config.cluster_url.to_string().trim_end_matches('/').to_owned(),
        ca_hash: authority.and_then(|der| pki::key_hash(der)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_token_opens_its_own_secret() {
        let (token, other) = (Token::new(), Token::new());
        let text = token.text();
        let (id, secret) = bootstrap_token::parse(&text).expect("the form of a token");
        assert_eq!(id, token.id);
        assert_ne!(secret, other.secret);
        let mut object = token.secret(Some("us-east"), 1_000);
        let data = object["stringData"].take();
        let encode =
            |value: &Value| json!(landfall_apiserver::local::base64(value.as_str().expect("a text")));
        let data: serde_json::Map<String, Value> = data
            .as_object()
            .expect("a map")
            .iter()
            .map(|(key, value)| (key.clone(), encode(value)))
            .collect();
        object["data"] = Value::Object(data);
        let found = landfall_apiserver::authn::Found { object, ..Default::default() };
        let user = bootstrap_token::user(id, secret, &found, 999).expect("a user");
        assert!(user.in_group(edges::BOOTSTRAPPERS));
        assert_eq!(user.extra[bootstrap_token::CLUSTER_EXTRA], ["us-east"]);
        assert!(bootstrap_token::user(id, secret, &found, 1_000).is_none(), "its time is over");
    }
}
