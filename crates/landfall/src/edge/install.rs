//! `landfall edge manifests`, `landfall edge install` and `landfall edge uninstall`: edges as pods of a member.
//!
//! The member's resolver is pointed at the edges here and not when the member joins: before there are edges nobody would answer.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use landfall_api::landfall::{EDGE_PODS, FEDERATION_PLAN, SYSTEM_NAMESPACE};
use landfall_api::rules::read::{child, list, text};
use landfall_apiserver::authn::bootstrap_token;
use landfall_runtime::clock;
use serde_json::{Value, json};

use super::manifests::{self, NAME, NAMESPACE};
use super::options::{InstallOptions, ManifestsOptions, PodOptions, UninstallOptions};
use super::resolver::{self, Stub};
use super::token::{Door, Token, door_of};
use crate::basics::target::{Target, escape, kubeconfig};
use crate::clusters::options::{HubConnection, MemberConnection};
use crate::say::{print, say};

/// The zone of the Multi-Cluster Services API.
const CLUSTERSET: &str = "clusterset.local";
const EDGES: &str = "/apis/landfall.dev/v1alpha1/edges";
/// How long the first edge may take to come in before we say so.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const READY_EVERY: Duration = Duration::from_millis(500);

/// Prints the manifests.
pub(super) async fn manifests(options: &ManifestsOptions) -> Result<()> {
    let hub = Target::find(&options.connection).await?;
    let door = door_of(options.connection.kubeconfig.as_deref(), options.connection.context.clone()).await?;
    manifests::check(&options.cluster, &door, &options.pods)?;
    let token = admit(&hub, &options.cluster, &options.pods).await?;
    for object in manifests::objects(&options.cluster, &door, &token, &options.pods) {
        print(&format!("---\n{}", serde_saphyr::to_string(&object)?));
    }
    Ok(())
}

/// Puts them into a member, and waits until an edge is there.
pub(super) async fn install(options: &InstallOptions) -> Result<()> {
    let (hub, member, cluster) = find(&options.hub, &options.member, options.name.as_ref()).await?;
    let file = options.hub.hub_kubeconfig.as_deref().or(options.member.kubeconfig.as_deref());
    let door = door_of(file, options.hub.hub_context.clone()).await?;
    manifests::check(&cluster, &door, &options.pods)?;
    let token = admit(&hub, &cluster, &options.pods).await?;
    let mut address = String::new();
    for object in manifests::objects(&cluster, &door, &token, &options.pods) {
        let at =
            manifests::path(&object).with_context(|| format!("no place for {}", text(&object, "kind")))?;
        let made = member.apply(&at, &object, true).await.with_context(|| format!("cannot make {at}"))?;
        if text(&made, "kind") == "Service" && landfall_api::meta::name(&made) == NAME {
            text(child(&made, "spec"), "clusterIP").clone_into(&mut address);
        }
    }
    note(&hub, &cluster, &door, Some(&options.pods))
        .await
        .context("cannot tell the hub how edges are run there")?;
    say(&format!("statefulset.apps/{NAME} installed in {cluster}"));
    let ready = options.no_wait || wait(&hub, &cluster).await?;
    if options.no_dns {
        return Ok(());
    }
    // Not before somebody answers; if nobody does yet, that was told.
    if ready {
        let stub = Stub { zones: zones(&hub).await?, address };
        say(&resolver::point(&member, &stub).await?);
    } else {
        say("The member's resolver was left alone; run this again when an edge is ready.");
    }
    Ok(())
}

/// Takes them out of a member, and shuts them out at the hub.
pub(super) async fn uninstall(options: &UninstallOptions) -> Result<()> {
    let (hub, member, cluster) = find(&options.hub, &options.member, options.name.as_ref()).await?;
    let door = Door { url: String::new(), ca_hash: None };
    note(&hub, &cluster, &door, None)
        .await
        .context("cannot tell the hub that edges are not run there any more")?;
    remove(&member).await?;
    let edges = hub.get(EDGES, "application/json").await?;
    let pods = format!("{cluster}-{NAME}-");
    for edge in list(&edges, "items").iter().filter(|edge| text(child(edge, "spec"), "cluster") == cluster) {
        let name = landfall_api::meta::name(edge);
        if name.starts_with(&pods) && hub.remove(&format!("{EDGES}/{}", escape(name))).await? {
            say(&format!("edge.landfall.dev/{name} revoked"));
        }
    }
    say(&format!("edges are taken out of {cluster}"));
    Ok(())
}

/// Tells the hub with which image, and to which hub, edges run in a member, so that it can run groups of them there; or that none do.
async fn note(hub: &Target, cluster: &str, door: &Door, pods: Option<&PodOptions>) -> Result<()> {
    let at = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{EDGE_PODS}");
    let url = |pods: &PodOptions| pods.hub_url.clone().unwrap_or_else(|| door.url.clone());
    let entry = pods
        .map(|pods| json!({"image": pods.image, "hubUrl": url(pods), "caHash": door.ca_hash}).to_string());
    let found = hub.look(&at).await?;
    let mut data = found.as_ref().map(|map| child(map, "data").clone()).unwrap_or_default();
    match (entry, data.as_object_mut()) {
        (Some(entry), Some(data)) => drop(data.insert(cluster.to_owned(), entry.into())),
        (Some(entry), None) => data = json!({cluster: entry}),
        (None, Some(data)) => drop(data.remove(cluster)),
        (None, None) => return Ok(()),
    }
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": EDGE_PODS, "namespace": SYSTEM_NAMESPACE}, "data": data});
    hub.apply(&at, &map, true).await.map(drop)
}

/// Takes everything of edges out of a member; its resolver goes first, so that it never asks nobody.
pub(crate) async fn remove(member: &Target) -> Result<()> {
    let installed = member.look(&manifests::set_path()).await?.is_some();
    if installed {
        say(&resolver::restore(member).await?);
    }
    for at in manifests::places() {
        member.remove(&at).await.with_context(|| format!("cannot remove {at}"))?;
    }
    Ok(())
}

/// The hub, the member, and the member's name.
async fn find(
    hub: &HubConnection,
    member: &MemberConnection,
    name: Option<&String>,
) -> Result<(Target, Target, String)> {
    let file = hub.hub_kubeconfig.as_deref().or(member.kubeconfig.as_deref());
    let at_hub = Target::of(kubeconfig(file)?, hub.hub_context.as_deref()).await.context("the hub")?;
    let config = kubeconfig(member.kubeconfig.as_deref())?;
    let at_member = Target::of(config, member.context.as_deref()).await.context("the member")?;
    let Some(cluster) = name.or(member.context.as_ref()) else {
        bail!("say which member, with --context NAME")
    };
    Ok((at_hub, at_member, cluster.clone()))
}

/// A token for edges of this member, which must be one.
async fn admit(hub: &Target, cluster: &str, pods: &PodOptions) -> Result<String> {
    if hub.look(&format!("/apis/landfall.dev/v1alpha1/clusters/{}", escape(cluster))).await?.is_none() {
        bail!("there is no cluster {cluster:?}; `landfall join` makes it a member");
    }
    let ttl_s = i64::try_from(pods.ttl.0.as_secs()).unwrap_or(i64::MAX);
    let token = Token::new();
    let secret = token.secret(Some(cluster), clock::epoch_s().saturating_add(ttl_s));
    hub.post(&format!("/api/v1/namespaces/{}/secrets", bootstrap_token::NAMESPACE), &secret).await?;
    Ok(token.text())
}

/// The zones that edges answer: the federation's domain, if it has one, and the clusters' common one.
async fn zones(hub: &Target) -> Result<Vec<String>> {
    let plan =
        format!("/apis/landfall.dev/v1alpha1/namespaces/{SYSTEM_NAMESPACE}/trafficplans/{FEDERATION_PLAN}");
    let plan = hub.look(&plan).await?.unwrap_or_default();
    let domain = text(child(child(&plan, "spec"), "federation"), "domain").trim_end_matches('.');
    let domain = Some(domain).filter(|domain| !domain.is_empty());
    Ok(domain.into_iter().chain([CLUSTERSET]).map(str::to_owned).collect())
}

/// Waits until an edge of the member has said that it is ready. If none does, that is told, and no failure.
async fn wait(hub: &Target, cluster: &str) -> Result<bool> {
    let began = clock::instant();
    while began.elapsed() < READY_TIMEOUT {
        let edges = hub.get(EDGES, "application/json").await?;
        let ready = list(&edges, "items").iter().find(|edge| is_ready(edge, cluster));
        if let Some(edge) = ready {
            say(&format!("{} is ready.", landfall_api::meta::name(edge)));
            return Ok(true);
        }
        tokio::time::sleep(READY_EVERY).await;
    }
    say(&format!(
        "No edge of {cluster} is ready yet. See `kubectl -n {NAMESPACE} get pods` there, and `landfall edge list`."
    ));
    Ok(false)
}

fn is_ready(edge: &Value, cluster: &str) -> bool {
    let conditions = list(child(edge, "status"), "conditions");
    text(child(edge, "spec"), "cluster") == cluster
        && conditions.iter().any(|condition| text(condition, "status") == "True")
}
