//! Makes the simulated clusters members of the federation: a `Cluster` each, and a Secret with what opens its API.

use anyhow::{Context, Result};
use landfall_apiserver::local::base64;
use landfall_sim::world::{Site, World};
use serde_json::{Value, json};

use crate::basics::options::Connection;
use crate::basics::target::Target;

/// Where the federation keeps what is its own.
const NAMESPACE: &str = "landfall-system";

/// Registers every cluster at the hub; again, when it is there already.
pub(super) async fn join(connection: &Connection, world: &World) -> Result<()> {
    let hub = Target::find(connection).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    hub.apply(&format!("/api/v1/namespaces/{NAMESPACE}"), &namespace, true).await?;
    for site in world.sites() {
        let name = site.member.name();
        let (secret, cluster) = (secret(site), cluster(site));
        let at = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{}", secret_name(name));
        hub.apply(&at, &secret, true).await.with_context(|| format!("cannot join {name}"))?;
        let at = format!("/apis/landfall.dev/v1alpha1/clusters/{name}");
        hub.apply(&at, &cluster, true).await.with_context(|| format!("cannot join {name}"))?;
    }
    Ok(())
}

fn secret_name(cluster: &str) -> String {
    format!("cluster-{cluster}")
}

fn secret(site: &Site) -> Value {
    let credentials = site.member.credentials();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(site.member.name()), "namespace": NAMESPACE},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": base64(&credentials.cert_pem), "tls.key": base64(&credentials.key_pem)},
    })
}

fn cluster(site: &Site) -> Value {
    let (name, credentials) = (site.member.name(), site.member.credentials());
    let mut spec = json!({
        "endpoints": [{"server": site.backbone_url()}],
        "caBundle": base64(&credentials.ca_pem),
        "credentials": {"namespace": NAMESPACE, "name": secret_name(name)},
        "region": site.config.region,
        "zones": site.config.zones,
        "provider": "simulated",
    });
    if let Some((latitude, longitude)) = site.config.coordinates() {
        spec["coordinates"] = json!({"latitude": latitude, "longitude": longitude});
    }
    json!({
        "apiVersion": "landfall.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/region": site.config.region}},
        "spec": spec,
    })
}
