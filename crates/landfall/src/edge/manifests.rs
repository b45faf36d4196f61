//! `landfall edge manifests` and `landfall edge install`: edges as pods of a member.
//!
//! A StatefulSet, because its pods keep their names: a pod that comes back is the same edge. Its token stands in a Secret
//! beside it, is good for edges of this member alone, and is needed only by pods that have no certificate yet.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use landfall_api::rules::read::{child, list, text};
use landfall_apiserver::authn::bootstrap_token;
use landfall_runtime::clock;
use serde_json::{Value, json};

use super::options::{InstallOptions, ManifestsOptions, PodOptions};
use super::token::{Door, Token, door_of};
use crate::basics::target::{Target, escape, kubeconfig};
use crate::say::{print, say};

/// Where edges live in a member.
const NAMESPACE: &str = "landfall-system";
/// How everything of them is called.
const NAME: &str = "landfall-edge";
/// Ports inside the pod, which need no root.
const DNS_PORT: u16 = 5353;
const ADMIN_PORT: u16 = 9440;
/// How long the first edge may take to come in before we say so.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const READY_EVERY: Duration = Duration::from_millis(500);

/// Prints the manifests.
pub(super) async fn manifests(options: &ManifestsOptions) -> Result<()> {
    let hub = Target::find(&options.connection).await?;
    let door = door_of(options.connection.kubeconfig.as_deref(), options.connection.context.clone()).await?;
    let token = admit(&hub, &options.cluster, &options.pods).await?;
    for object in objects(&options.cluster, &door, &token, &options.pods) {
        print(&format!("---\n{}", serde_saphyr::to_string(&object)?));
    }
    Ok(())
}

/// Puts them into a member, and waits until an edge is there.
pub(super) async fn install(options: &InstallOptions) -> Result<()> {
    let file = options.hub.hub_kubeconfig.as_deref().or(options.member.kubeconfig.as_deref());
    let hub = Target::of(kubeconfig(file)?, options.hub.hub_context.as_deref()).await.context("the hub")?;
    let member = kubeconfig(options.member.kubeconfig.as_deref())?;
    let member = Target::of(member, options.member.context.as_deref()).await.context("the member")?;
    let cluster = options.name.as_ref().or(options.member.context.as_ref());
    let Some(cluster) = cluster else { bail!("say which member, with --context NAME") };
    let door = door_of(file, options.hub.hub_context.clone()).await?;
    let token = admit(&hub, cluster, &options.pods).await?;
    for object in objects(cluster, &door, &token, &options.pods) {
        let at = path(&object).with_context(|| format!("no place for {}", text(&object, "kind")))?;
        member.apply(&at, &object, true).await.with_context(|| format!("cannot make {at}"))?;
    }
    say(&format!("statefulset.apps/{NAME} installed in {cluster}"));
    if options.no_wait { Ok(()) } else { wait(&hub, cluster).await }
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

/// Waits until an edge of the member has said that it is ready. If none does, that is told, and no failure.
async fn wait(hub: &Target, cluster: &str) -> Result<()> {
    let began = clock::instant();
    while began.elapsed() < READY_TIMEOUT {
        let edges = hub.get("/apis/landfall.dev/v1alpha1/edges", "application/json").await?;
        let ready = list(&edges, "items").iter().find(|edge| {
            let conditions = list(child(edge, "status"), "conditions");
            text(child(edge, "spec"), "cluster") == cluster
                && conditions.iter().any(|c| text(c, "status") == "True")
        });
        if let Some(edge) = ready {
            say(&format!("{} is ready.", landfall_api::meta::name(edge)));
            return Ok(());
        }
        tokio::time::sleep(READY_EVERY).await;
    }
    say(&format!(
        "No edge of {cluster} is ready yet. See `kubectl -n {NAMESPACE} get pods` there, and `landfall edge list`."
    ));
    Ok(())
}

/// Everything that edges of a member need in it.
fn objects(cluster: &str, door: &Door, token: &str, pods: &PodOptions) -> Vec<Value> {
    let meta = json!({"name": NAME, "namespace": NAMESPACE, "labels": {"app": NAME}});
    let global = json!({"name": NAME, "labels": {"app": NAME}});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME});
    let subject = json!({"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE});
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}),
        // What the edge may do in the member: see endpoints, to probe them.
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": global,
            "rules": [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"],
                "verbs": ["get", "list", "watch"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": global,
            "roleRef": role, "subjects": [subject]}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "stringData": {"token": token}}),
        service(&meta, pods),
        stateful_set(&meta, cluster, door, pods),
    ]
}

fn service(meta: &Value, pods: &PodOptions) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {
        "type": pods.service_type, "selector": {"app": NAME},
        "ports": [
            {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": DNS_PORT},
            {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": DNS_PORT},
        ],
    }})
}

fn stateful_set(meta: &Value, cluster: &str, door: &Door, pods: &PodOptions) -> Value {
    let url = pods.hub_url.as_deref().unwrap_or(&door.url);
    let mut arguments = vec![
        "edge".to_owned(),
        format!("--hub={url}"),
        format!("--cluster={cluster}"),
        format!("--name={cluster}-$(POD_NAME)"),
        "--data-dir=/data".into(),
        format!("--dns-listen=:{DNS_PORT}"),
        format!("--admin-listen=:{ADMIN_PORT}"),
        "--in-cluster".into(),
    ];
    arguments.extend(door.ca_hash.iter().map(|hash| format!("--hub-ca-hash={hash}")));
    arguments.extend(pods.inside.iter().map(|cidr| format!("--inside={cidr}")));
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": ADMIN_PORT}, "periodSeconds": 5});
    let container = json!({
        "name": "edge", "image": pods.image, "command": ["/bin/landfall"], "args": arguments,
        "env": [
            field("POD_NAME", "metadata.name"),
            field("NODE_NAME", "spec.nodeName"),
            field("LANDFALL_EDGE_ADDRESS", "status.podIP"),
            {"name": "LANDFALL_EDGE_TOKEN", "valueFrom": {"secretKeyRef": {"name": NAME, "key": "token"}}},
        ],
        "ports": [
            {"name": "dns", "containerPort": DNS_PORT, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": DNS_PORT, "protocol": "TCP"},
            {"name": "admin", "containerPort": ADMIN_PORT, "protocol": "TCP"},
        ],
        "livenessProbe": probe("/healthz"),
        "readinessProbe": probe("/readyz"),
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    });
    // On nodes of their own where there are some: one node that dies must not take all of them.
    let apart = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": {"labelSelector": {"matchLabels": {"app": NAME}}, "topologyKey": "kubernetes.io/hostname"},
    }]}});
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": {
        "serviceName": NAME, "replicas": pods.replicas, "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": NAME}},
        "template": {"metadata": {"labels": {"app": NAME}}, "spec": {
            "serviceAccountName": NAME, "affinity": apart, "containers": [container],
            "volumes": [{"name": "data", "emptyDir": {}}],
        }},
    }})
}

/// Where an object is.
fn path(object: &Value) -> Option<String> {
    let plural = match text(object, "kind") {
        "Namespace" => "namespaces",
        "ServiceAccount" => "serviceaccounts",
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "Secret" => "secrets",
        "Service" => "services",
        "StatefulSet" => "statefulsets",
        _ => return None,
    };
    let version = text(object, "apiVersion");
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let (namespace, name) = (landfall_api::meta::namespace(object), landfall_api::meta::name(object));
    let space = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    Some(format!("{root}{space}/{plural}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_has_a_place_and_no_more_rights_than_needed() {
        let door = Door { url: "https://hub:6443".into(), ca_hash: Some("sha256:00".into()) };
        let pods = PodOptions {
            image: "landfall:dev".into(),
            replicas: 2,
            hub_url: None,
            service_type: "ClusterIP".into(),
            inside: vec!["10.0.0.0/8".into()],
            ttl: crate::cli::Span::DAY,
        };
        let all = objects("us-east", &door, "abcdef.0123456789abcdef", &pods);
        let places: Vec<String> = all.iter().filter_map(path).collect();
        assert_eq!(places.len(), all.len());
        assert_eq!(places[6], "/apis/apps/v1/namespaces/landfall-system/statefulsets/landfall-edge");
        assert_eq!(all[2]["rules"].as_array().map(Vec::len), Some(1));
        let set = all[6].to_string();
        assert!(!set.contains("0123456789abcdef"), "the token stands in the Secret alone");
        assert!(set.contains("--hub-ca-hash=sha256:00") && set.contains("--inside=10.0.0.0/8"), "{set}");
    }
}
