//! A member-to-be: which server it is, and what it tells about itself.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::config::{AuthInfo, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use landfall_api::rules::read::{child, list, text};
use landfall_plan::membership::{Topology, topology};
use serde_json::Value;

use super::options::MemberConnection;
use crate::basics::target::{Target, kubeconfig};

/// How long a member may take to tell about itself.
const LOOK_TIMEOUT: Duration = Duration::from_secs(15);

/// A member-to-be.
pub(super) struct Member {
    pub(super) target: Target,
    /// Where its API is.
    pub(super) server: String,
    /// Its authority, PEM in base64.
    pub(super) ca_bundle: Option<String>,
    /// The name its certificate is checked for.
    pub(super) tls_server_name: Option<String>,
}

/// What it tells about itself.
pub(super) struct Seen {
    /// The uid of `kube-system`.
    pub(super) id: String,
    pub(super) version: String,
    pub(super) nodes: usize,
    pub(super) topology: Topology,
}

impl Member {
    /// The member that was typed. A context with the cluster's own name is taken when none is given.
    pub(super) async fn find(connection: &MemberConnection, name: &str) -> Result<Self> {
        let config = kubeconfig(connection.kubeconfig.as_deref())?;
        let known: Vec<&str> = config.contexts.iter().map(|context| context.name.as_str()).collect();
        let context = match connection.context.as_deref() {
            Some(context) => context.to_owned(),
            None if known.contains(&name) => name.to_owned(),
            None => bail!("say which context is the member's: --context; there are {}", known.join(", ")),
        };
        let cluster = cluster_of(&config, &context).unwrap_or_default();
        if cluster.insecure_skip_tls_verify == Some(true) {
            bail!(
                "the context {context:?} does not check the server's certificate; the hub always does: give the \
                 certificate authority in the kubeconfig"
            );
        }
        let ca_bundle = match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
            (Some(data), _) => Some(data.clone()),
            (None, Some(file)) => {
                let pem = std::fs::read(file).with_context(|| format!("cannot read {file}"))?;
                Some(BASE64.encode(pem))
            }
            (None, None) => None,
        };
        let target = Target::of(config, Some(&context)).await.context("the member")?;
        let server = cluster.server.clone().context("the member's context names no server")?;
        Ok(Self { target, server, ca_bundle, tls_server_name: cluster.tls_server_name })
    }

    /// The same server, with a token in place of who we are.
    pub(super) async fn with_token(&self, token: &str) -> Result<Target> {
        let cluster = kube::config::Cluster {
            server: Some(self.server.clone()),
            certificate_authority_data: self.ca_bundle.clone(),
            tls_server_name: self.tls_server_name.clone(),
            ..kube::config::Cluster::default()
        };
        let user = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
        let context = kube::config::Context {
            cluster: "it".into(),
            user: Some("us".into()),
            ..kube::config::Context::default()
        };
        let config = Kubeconfig {
            clusters: vec![NamedCluster {
                name: "it".into(),
                cluster: Some(cluster),
                ..NamedCluster::default()
            }],
            auth_infos: vec![NamedAuthInfo {
                name: "us".into(),
                auth_info: Some(user),
                ..NamedAuthInfo::default()
            }],
            contexts: vec![NamedContext {
                name: "it".into(),
                context: Some(context),
                ..NamedContext::default()
            }],
            current_context: Some("it".into()),
            ..Kubeconfig::default()
        };
        Target::of(config, None).await
    }

    /// Asks it who and where it is.
    pub(super) async fn look(&self) -> Result<Seen> {
        let asked = async {
            // A hub has no nodes, and is refused for a better reason.
            let (version, id, nodes) = tokio::try_join!(
                self.target.get("/version", "application/json"),
                identity(&self.target),
                self.target.look("/api/v1/nodes"),
            )?;
            let nodes = nodes.unwrap_or_default();
            let nodes = list(&nodes, "items");
            let labels: Vec<BTreeMap<String, String>> = nodes.iter().map(labels).collect();
            Ok(Seen {
                id,
                version: text(&version, "gitVersion").to_owned(),
                nodes: nodes.len(),
                topology: topology(&Topology::default(), &Topology::default(), &labels),
            })
        };
        let answer = tokio::time::timeout(LOOK_TIMEOUT, asked).await;
        let late = || format!("it did not answer within {} s", LOOK_TIMEOUT.as_secs());
        answer
            .with_context(late)
            .flatten()
            .with_context(|| format!("cannot reach the member at {}", self.server))
    }
}

/// A cluster's own identity: the uid of its `kube-system`.
pub(super) async fn identity(target: &Target) -> Result<String> {
    let namespace = target.get("/api/v1/namespaces/kube-system", "application/json").await?;
    Ok(landfall_api::meta::uid(&namespace).to_owned())
}

fn labels(node: &Value) -> BTreeMap<String, String> {
    let labels = child(child(node, "metadata"), "labels").as_object();
    let one = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    labels.into_iter().flatten().filter_map(one).collect()
}

fn cluster_of(config: &Kubeconfig, context: &str) -> Option<kube::config::Cluster> {
    let context = config.contexts.iter().find(|named| named.name == context)?.context.as_ref()?;
    config.clusters.iter().find(|named| named.name == context.cluster)?.cluster.clone()
}
