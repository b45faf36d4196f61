//! What a playground writes for its users: a kubeconfig with a context per cluster, and every address as JSON.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use landfall_sim::address::Block;
use landfall_sim::member::Credentials;
use landfall_sim::world::World;
use serde_json::{Value, json};

use super::home::Home;

/// The context of the hub.
pub(super) const FEDERATION: &str = "federation";

/// Writes the kubeconfig: the hub's as it made it, and one more context for each cluster.
pub(super) fn write_kubeconfig(home: &Home, hub: &Path, world: &World) -> Result<()> {
    let text = std::fs::read_to_string(hub).with_context(|| format!("cannot read {}", hub.display()))?;
    let hub: Value = serde_saphyr::from_str(&text).context("the hub's kubeconfig")?;
    let mut all = json!({"apiVersion": "v1", "kind": "Config", "current-context": FEDERATION});
    let part = |pointer: &str| hub.pointer(pointer).cloned().unwrap_or_default();
    let mut clusters = vec![json!({"name": FEDERATION, "cluster": part("/clusters/0/cluster")})];
    let mut users = vec![json!({"name": FEDERATION, "user": part("/users/0/user")})];
    let mut contexts = vec![context(FEDERATION)];
    for site in world.sites() {
        let (name, credentials) = (site.member.name(), site.member.credentials());
        clusters.push(json!({"name": name, "cluster": cluster(credentials)}));
        users.push(json!({"name": name, "user": user(credentials)}));
        contexts.push(context(name));
    }
    all["clusters"] = clusters.into();
    all["users"] = users.into();
    all["contexts"] = contexts.into();
    write_private(&home.join("kubeconfig"), serde_saphyr::to_string(&all)?.as_bytes())
}

fn context(name: &str) -> Value {
    json!({"name": name, "context": {"cluster": name, "user": name}})
}

fn cluster(credentials: &Credentials) -> Value {
    let ca = landfall_apiserver::local::base64(&credentials.ca_pem);
    json!({"server": credentials.server, "certificate-authority-data": ca})
}

fn user(credentials: &Credentials) -> Value {
    let data = landfall_apiserver::local::base64;
    json!({"client-certificate-data": data(&credentials.cert_pem), "client-key-data": data(&credentials.key_pem)})
}

/// Writes `playground.json`, which names every address.
pub(super) fn write_addresses(home: &Home, hub_url: &str, world: &World, edges: bool) -> Result<()> {
    let member = |site: &landfall_sim::world::Site| {
        json!({
            "name": site.member.name(),
            "url": site.member.credentials().server,
            "backbone": site.backbone_url(),
            "region": site.config.region,
            "latitude": site.config.latitude,
            "longitude": site.config.longitude,
            "block": site.block().to_string(),
        })
    };
    let members: Vec<Value> = world.sites().iter().map(member).collect();
    let all = json!({
        "kubeconfig": home.join("kubeconfig"),
        "hub": {"url": hub_url},
        "members": members,
        "edges": if edges { super::edges::described(world) } else { Vec::new() },
    });
    write_private(&home.join("playground.json"), &serde_json::to_vec_pretty(&all)?)
}

/// What a kept playground used before: the hub's port, and each cluster's addresses.
#[derive(Default)]
pub(super) struct Before {
    pub(super) hub_port: u16,
    pub(super) blocks: Vec<(String, Block)>,
}

impl Before {
    /// Reads it; what cannot be read was not there.
    pub(super) fn read(home: &Home) -> Self {
        let text = std::fs::read(home.join("playground.json")).unwrap_or_default();
        let all: Value = serde_json::from_slice(&text).unwrap_or_default();
        let url = all.pointer("/hub/url").and_then(Value::as_str).unwrap_or_default();
        let member = |member: &Value| {
            let name = member.get("name")?.as_str()?;
            Some((name.to_owned(), member.get("block")?.as_str()?.parse().ok()?))
        };
        let members = all.get("members").and_then(Value::as_array).into_iter().flatten();
        Self {
            hub_port: url.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0),
            blocks: members.filter_map(member).collect(),
        }
    }
}

/// Writes a file whole, for its owner only.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    let next = path.with_extension("next");
    let write = || {
        let mut file =
            std::fs::File::options().create(true).truncate(true).write(true).mode(0o600).open(&next)?;
        file.write_all(bytes)?;
        std::fs::rename(&next, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
