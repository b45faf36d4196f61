//! `Doors`: ports of federated Services that are open at this edge, opened at the Service by which it is reached, too.
//!
//! Every edge says which ports it has itself, by server-side apply under its own name. So edges of a member never argue: a port is
//! there while any of them has it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::own::{self, Access};

/// How long to wait after it could not be told.
const RETRY: Duration = Duration::from_secs(2);
/// How often it is told again, for somebody may have made the Service anew.
const AGAIN_EVERY: Duration = Duration::from_secs(60);
/// More than load balancers of clouds take.
const DOORS_MAX: usize = 500;

/// A protocol and a port.
pub(crate) type Door = (&'static str, u16);

/// The ports that are open; none until plans are known, for what is not known is not closed.
#[derive(Default)]
pub(crate) struct Doors(watch::Sender<Option<BTreeSet<Door>>>);

impl Doors {
    /// These are open.
    pub(crate) fn set(&self, open: BTreeSet<Door>) {
        self.0.send_if_modified(|before| before.replace(open.clone()) != Some(open));
    }

    /// Tells a Service of the edge's own namespace, for ever.
    pub(crate) async fn follow(&self, access: &Access, service: &str, edge: &str) {
        let mut changes = self.0.subscribe();
        loop {
            let open = changes.borrow_and_update().clone();
            let told = match &open {
                Some(open) => tell(access, service, edge, open).await,
                None => Ok(()),
            };
            let wait = if told.is_ok() { AGAIN_EVERY } else { RETRY };
            if let Err(error) = told {
                tracing::warn!(
                    error = format!("{error:#}"),
                    service,
                    "ports of Services cannot be opened there"
                );
            }
            // The sender lives as long as we do.
            let _ = tokio::time::timeout(wait, changes.changed()).await;
        }
    }
}

async fn tell(access: &Access, service: &str, edge: &str, open: &BTreeSet<Door>) -> Result<()> {
    let api: Api<Service> = Api::default_namespaced(own::connect(access).await?);
    // A patch would make what is not there.
    if api.get_opt(service).await.context("cannot look at the Service")?.is_none() {
        return Ok(());
    }
    if open.len() > DOORS_MAX {
        tracing::warn!(
            open = open.len(),
            limit = DOORS_MAX,
            "too many ports of Services; the others stay shut"
        );
    }
    let manager = PatchParams::apply(edge).force();
    api.patch(service, &manager, &Patch::Apply(object(service, open)))
        .await
        .context("cannot change the Service")?;
    Ok(())
}

/// What an edge says of its Service: the ports, and nothing else.
fn object(service: &str, open: &BTreeSet<Door>) -> Value {
    let port = |(protocol, port): &Door| {
        let name = format!("{}-{port}", protocol.to_lowercase());
        json!({"name": name, "port": port, "protocol": protocol, "targetPort": port})
    };
    let ports: Vec<Value> = open.iter().take(DOORS_MAX).map(port).collect();
    // A Service without ports of ours names none, not even an empty list.
    let spec = if ports.is_empty() { json!({}) } else { json!({"ports": ports}) };
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": service}, "spec": spec})
}
