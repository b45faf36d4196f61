//! The hub as these commands see it: its clusters, and what its objects say of them.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use landfall_api::landfall::{Cluster, SYSTEM_NAMESPACE};
use landfall_control::kinds::Row;
use serde_json::Value;

use super::federated;
use super::options::{HubConnection, MemberConnection};
use crate::basics::options::Connection;
use crate::basics::target::{Target, escape, kubeconfig};

/// Only what says which and where: nobody's data, and no Secrets, cross the wire for it.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const CLUSTERS: &str = "/apis/landfall.dev/v1alpha1/clusters";

/// The hub.
pub(super) struct Hub {
    pub(super) target: Target,
}

impl Hub {
    /// The hub that was typed where the usual options mean it.
    pub(super) async fn find(connection: &Connection) -> Result<Self> {
        Self::check(Target::find(connection).await?).await
    }

    /// The hub that was typed where the usual options mean a member.
    pub(super) async fn beside(hub: &HubConnection, member: &MemberConnection) -> Result<Self> {
        let file = hub.hub_kubeconfig.as_deref().or(member.kubeconfig.as_deref());
        let target = Target::of(kubeconfig(file)?, hub.hub_context.as_deref()).await.context("the hub")?;
        Self::check(target).await
    }

    async fn check(target: Target) -> Result<Self> {
        let served = target.look("/apis/landfall.dev/v1alpha1").await.context("cannot reach the hub")?;
        if served.is_none() {
            bail!(
                "this server is no hub: it does not serve landfall.dev/v1alpha1. Which context is the hub's?"
            );
        }
        Ok(Self { target })
    }

    /// All clusters, by name.
    pub(super) async fn clusters(&self) -> Result<Vec<Cluster>> {
        let list = self.target.get(CLUSTERS, "application/json").await?;
        let items = list.get("items").cloned().unwrap_or_default();
        serde_json::from_value(items).context("cannot read the clusters")
    }

    /// All objects of one of our kinds, by its plural.
    pub(super) async fn list<T: serde::de::DeserializeOwned>(&self, plural: &str) -> Result<Vec<T>> {
        let path = format!("/apis/landfall.dev/v1alpha1/{plural}");
        let list = self.target.get(&path, "application/json").await?;
        let items = list.get("items").cloned().unwrap_or_default();
        serde_json::from_value(items).with_context(|| format!("cannot read the {plural}"))
    }

    /// One cluster, if it is there.
    pub(super) async fn cluster(&self, name: &str) -> Result<Option<Cluster>> {
        let found = self.target.look(&cluster_path(name)).await?;
        found.map(|value| serde_json::from_value(value).context("cannot read the cluster")).transpose()
    }

    /// One cluster, which must be there.
    pub(super) async fn expect(&self, name: &str) -> Result<Cluster> {
        if let Some(found) = self.cluster(name).await? {
            return Ok(found);
        }
        let known: Vec<String> =
            self.clusters().await?.iter().map(|cluster| name_of(cluster).to_owned()).collect();
        if known.is_empty() {
            bail!("there is no cluster {name:?}; none has joined yet");
        }
        bail!("there is no cluster {name:?}; there are {}", known.join(", "));
    }

    /// The metadata of all objects of a federated kind.
    pub(super) async fn objects(&self, kind: &Row) -> Result<Vec<Value>> {
        let mut list = self.target.get(&kind.collection(""), METADATA).await?;
        Ok(match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        })
    }

    /// What the federation has in a cluster: lines with their objects, of those kinds that are wanted.
    pub(super) async fn shards(
        &self,
        cluster: &str,
        wanted: fn(&Row) -> bool,
    ) -> Result<Vec<(Arc<Row>, federated::Line)>> {
        let mut found = Vec::new();
        for kind in federated::kinds(&self.target).await?.into_iter().filter(|kind| wanted(kind)) {
            for object in self.objects(&kind).await? {
                let lines =
                    federated::lines(&kind, &object).into_iter().filter(|line| line.cluster == cluster);
                found.extend(lines.map(|line| (kind.clone(), line)));
            }
        }
        Ok(found)
    }
}

/// Where a cluster is.
pub(super) fn cluster_path(name: &str) -> String {
    format!("{CLUSTERS}/{}", escape(name))
}

/// The Secret with what opens a cluster.
pub(super) fn secret_name(cluster: &str) -> String {
    format!("cluster-{cluster}")
}

/// Where that Secret is.
pub(super) fn secret_path(cluster: &str) -> String {
    format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/{}", escape(&secret_name(cluster)))
}

/// A cluster's name.
pub(super) fn name_of(cluster: &Cluster) -> &str {
    cluster.metadata.name.as_deref().unwrap_or("")
}

/// The status of a condition; empty when it is not there.
pub(super) fn condition<'a>(cluster: &'a Cluster, kind: &str) -> (&'a str, &'a str) {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.into_iter().find(|condition| condition.type_ == kind);
    found.map_or(("", ""), |condition| (&condition.status, &condition.message))
}
