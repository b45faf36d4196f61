//! What edges that are pods need in their member. Pure: from options to objects.
//!
//! A StatefulSet, because its pods keep their names: a pod that comes back is the same edge. Its token stands in a Secret
//! beside it, is good for edges of this member alone, and is needed only by pods that have no certificate yet: what each of them
//! has is kept in another Secret.
//!
//! Two Services, because where a client comes in says where it stands: `landfall-edge` is for the member's resolver, who asks for
//! pods, and leads to a port of its own; `landfall-edge-public` is for everybody, and keeps the clients' addresses.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser as _;
use landfall_api::landfall::GROUPS_NAMESPACE;
use landfall_api::rules::read::text;
use serde_json::{Value, json};

use super::options::PodOptions;
use super::token::Door;
use super::vault::{PAGES_MAX, page_name};
use crate::cli::{Arguments, Command};

/// Where edges live in a member.
pub(super) const NAMESPACE: &str = "landfall-system";
/// How everything of them is called.
pub(super) const NAME: &str = "landfall-edge";
/// The Service for everybody.
const PUBLIC: &str = "landfall-edge-public";
/// What lets pods of groups see endpoints.
const GROUPS_NAME: &str = "landfall-edge-groups";
/// The Secret that keeps what edges must not lose.
const KEPT: &str = "landfall-edge-kept";
/// Ports of the pod. Those for everybody are the Service's own, so what is taken outside is taken inside, and nothing else is:
/// ports of federated Services come beside them. The system is told to let anybody listen there.
const DNS_PORT: u16 = 53;
const INSIDE_PORT: u16 = 5354;
const ADMIN_PORT: u16 = 9440;
const ANY_PORT: (&str, &str) = ("net.ipv4.ip_unprivileged_port_start", "0");
/// Ports for clients and for other edges: name, number, and the edge's option for it.
const CARRIED: [(&str, u16, &str); 3] =
    [("http", 80, "--http-listen"), ("https", 443, "--https-listen"), ("peer", 9443, "--peer-listen")];
/// The pod's own addresses.
const POD_IPS: &str = "$(POD_IPS)";
/// Where the pods have the files that their options name.
const FILES: &str = "/etc/landfall";
/// What stopping takes beside what was asked for; and what pods have anyway.
const STOP_MARGIN: Duration = Duration::from_secs(5);
const GRACE_LEAST_S: u64 = 30;
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Everything that edges of a member need in it, in order.
pub(super) fn objects(cluster: &str, door: &Door, token: &str, pods: &PodOptions) -> Vec<Value> {
    let meta = metadata(NAME);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "stringData": {"token": token}});
    // Nothing is said of its content: that is the edges' own.
    let kept = kept().map(
        |name| json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata(&name), "type": "Opaque"}),
    );
    let public = (pods.service_type != "ClusterIP").then(|| service(PUBLIC, &pods.service_type, DNS_PORT));
    let mut all = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})];
    all.extend(rights());
    all.extend(groups());
    all.push(secret);
    all.extend(kept);
    all.push(service(NAME, "ClusterIP", INSIDE_PORT));
    all.extend(public);
    all.push(stateful_set(&meta, cluster, door, pods));
    all
}

/// What pods of groups need, which the hub itself may not make: a namespace where pods may use their node's network, an account, and the
/// Secrets that keep what they must not lose.
fn groups() -> Vec<Value> {
    let meta = |name: &str| json!({"name": name, "namespace": GROUPS_NAMESPACE, "labels": {"app": NAME}});
    let labels = json!({"pod-security.kubernetes.io/enforce": "privileged"});
    let subject = json!({"kind": "ServiceAccount", "name": NAME, "namespace": GROUPS_NAMESPACE});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME});
    let global = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME});
    let names: Vec<String> = kept().collect();
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get", "patch"]}]);
    let mut all = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": GROUPS_NAMESPACE, "labels": labels}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(NAME)}),
        json!({"apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": GROUPS_NAME, "labels": {"app": NAME}},
            "roleRef": global, "subjects": [subject]}),
        json!({"apiVersion": RBAC, "kind": "Role", "metadata": meta(NAME), "rules": rules}),
        json!({"apiVersion": RBAC, "kind": "RoleBinding", "metadata": meta(NAME), "roleRef": role, "subjects": [subject]}),
    ];
    let secret = |name: &String| json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta(name), "type": "Opaque"});
    all.extend(names.iter().map(secret));
    all
}

/// Where all of it is, last first. The namespace stays, for it may hold more than ours.
pub(super) fn places() -> Vec<String> {
    let public = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(PUBLIC)});
    let plain =
        |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": metadata(name)});
    let mut all = vec![public, plain("Service", NAME), plain("Secret", NAME)];
    all.extend(kept().map(|name| plain("Secret", &name)));
    // The namespace goes with the federation, as any other that it brought.
    all.extend(groups().into_iter().skip(1).rev());
    all.extend(rights().into_iter().rev());
    [set_path()].into_iter().chain(all.iter().filter_map(path)).collect()
}

/// Where the StatefulSet is.
pub(super) fn set_path() -> String {
    format!("/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{NAME}")
}

/// The Secrets that keep what edges must not lose: one, and further ones for plans that do not fit.
fn kept() -> impl Iterator<Item = String> {
    std::iter::once(KEPT.to_owned()).chain((1..=PAGES_MAX).map(|page| page_name(KEPT, page)))
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": NAMESPACE, "labels": {"app": NAME}})
}

/// Who edges are in the member, and what they may do there: see endpoints, to probe them; see by which address they are reached, and
/// open ports there; read and change the Secrets that keep what they must not lose.
fn rights() -> Vec<Value> {
    let global = json!({"name": NAME, "labels": {"app": NAME}});
    let subject = json!({"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE});
    let bind = |kind: &str, metadata: &Value| {
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME});
        json!({"apiVersion": RBAC, "kind": format!("{kind}Binding"), "metadata": metadata, "roleRef": role, "subjects": [subject]})
    };
    let endpoints = json!([{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}]);
    let own = json!([
        {"apiGroups": [""], "resources": ["services"], "resourceNames": [PUBLIC], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": kept().collect::<Vec<_>>(), "verbs": ["get", "patch"]},
    ]);
    let meta = metadata(NAME);
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}),
        json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": global, "rules": endpoints}),
        bind("ClusterRole", &global),
        json!({"apiVersion": RBAC, "kind": "Role", "metadata": meta, "rules": own}),
        bind("Role", &meta),
    ]
}

fn service(name: &str, kind: &str, port: u16) -> Value {
    let mut spec = json!({
        "type": kind, "selector": {"app": NAME},
        "ports": [
            {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": port},
            {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": port},
        ],
    });
    if kind != "ClusterIP" {
        let carried = CARRIED.map(
            |(name, port, _)| json!({"name": name, "port": port, "protocol": "TCP", "targetPort": port}),
        );
        if let Some(ports) = spec["ports"].as_array_mut() {
            ports.extend(carried);
        }
        // Who asks is answered by where they stand: nodes must not put their own address in the place of theirs.
        spec["externalTrafficPolicy"] = "Local".into();
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(name), "spec": spec})
}

/// Whether an edge takes what it will be told: better said here than by pods that do not start.
pub(super) fn check(cluster: &str, door: &Door, pods: &PodOptions) -> Result<()> {
    match understood(cluster, door, pods) {
        Ok(_) => Ok(()),
        Err(error) => bail!("edges would not take these options: {error}"),
    }
}

/// What an edge makes of what it will be told.
fn understood(cluster: &str, door: &Door, pods: &PodOptions) -> Result<Arguments, clap::Error> {
    // What the pod's system fills in is an address, too.
    let told = arguments(cluster, door, pods).into_iter().map(|one| one.replace(POD_IPS, "192.0.2.1"));
    Arguments::try_parse_from(std::iter::once("landfall".to_owned()).chain(told))
}

/// How long the pods may take to stop: as long as they want, and a moment.
fn grace_s(cluster: &str, door: &Door, pods: &PodOptions) -> u64 {
    match understood(cluster, door, pods).map(|typed| typed.command) {
        Ok(Command::Edge(edge)) => {
            (edge.daemon.shutdown_delay() + edge.daemon.drain.0 + STOP_MARGIN).as_secs().max(GRACE_LEAST_S)
        }
        Ok(_) | Err(_) => GRACE_LEAST_S,
    }
}

/// What the pods run: what every edge of a member is told, and what was typed for these.
fn arguments(cluster: &str, door: &Door, pods: &PodOptions) -> Vec<String> {
    let url = pods.hub_url.as_deref().unwrap_or(&door.url);
    let mut arguments = vec![
        "edge".to_owned(),
        format!("--hub={url}"),
        format!("--cluster={cluster}"),
        format!("--name={cluster}-$(POD_NAME)"),
        "--data-dir=/data".into(),
        format!("--dns-listen=:{DNS_PORT}"),
        format!("--dns-listen-inside=:{INSIDE_PORT}"),
        format!("--keep-in={KEPT}"),
        format!("--admin-listen=:{ADMIN_PORT}"),
        "--in-cluster".into(),
    ];
    arguments.extend(door.ca_hash.iter().map(|hash| format!("--hub-ca-hash={hash}")));
    arguments.extend(pods.inside.iter().map(|cidr| format!("--inside={cidr}")));
    if pods.service_type != "ClusterIP" {
        arguments.push(format!("--service={PUBLIC}"));
        arguments.extend(CARRIED.map(|(_, port, option)| format!("{option}=:{port}")));
        arguments.push(format!("--ports-on={POD_IPS}"));
    }
    arguments.extend(pods.further.iter().cloned());
    arguments
}

fn stateful_set(meta: &Value, cluster: &str, door: &Door, pods: &PodOptions) -> Value {
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": ADMIN_PORT}, "periodSeconds": 5});
    let mut volumes = vec![json!({"name": "data", "emptyDir": {}})];
    let mut mounts = vec![json!({"name": "data", "mountPath": "/data"})];
    if let Some(secret) = &pods.files_from {
        volumes.push(json!({"name": "files", "secret": {"secretName": secret}}));
        mounts.push(json!({"name": "files", "mountPath": FILES, "readOnly": true}));
    }
    let container = json!({
        "name": "edge", "image": pods.image, "command": ["/bin/landfall"], "args": arguments(cluster, door, pods),
        "env": [
            field("POD_NAME", "metadata.name"),
            field("POD_IPS", "status.podIPs"),
            field("NODE_NAME", "spec.nodeName"),
            {"name": "LANDFALL_EDGE_TOKEN", "valueFrom": {"secretKeyRef": {"name": NAME, "key": "token", "optional": true}}},
        ],
        "ports": [
            {"name": "dns", "containerPort": DNS_PORT, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": DNS_PORT, "protocol": "TCP"},
            {"name": "inside", "containerPort": INSIDE_PORT, "protocol": "UDP"},
            {"name": "inside-tcp", "containerPort": INSIDE_PORT, "protocol": "TCP"},
            {"name": "admin", "containerPort": ADMIN_PORT, "protocol": "TCP"},
        ],
        "livenessProbe": probe("/healthz"),
        "readinessProbe": probe("/readyz"),
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": mounts,
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
            "serviceAccountName": NAME, "affinity": apart, "containers": [container], "volumes": volumes,
            "terminationGracePeriodSeconds": grace_s(cluster, door, pods),
            "securityContext": {"sysctls": [{"name": ANY_PORT.0, "value": ANY_PORT.1}]},
        }},
    }})
}

/// Where an object is.
pub(super) fn path(object: &Value) -> Option<String> {
    let plural = match text(object, "kind") {
        "Namespace" => "namespaces",
        "ServiceAccount" => "serviceaccounts",
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "Role" => "roles",
        "RoleBinding" => "rolebindings",
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
        let (door, mut pods) = (door(), pods());
        for (kind, count) in [("ClusterIP", 16 + 2 * PAGES_MAX), ("LoadBalancer", 17 + 2 * PAGES_MAX)] {
            pods.service_type = kind.into();
            let all = objects("us-east", &door, "abcdef.0123456789abcdef", &pods);
            let made: Vec<String> = all.iter().filter_map(path).collect();
            assert_eq!((made.len(), all.len()), (count, count));
            assert_eq!(made.last(), Some(&set_path()));
            let removed = places();
            let left: Vec<&String> = made.iter().filter(|place| !removed.contains(place)).collect();
            assert_eq!(
                left,
                ["/api/v1/namespaces/landfall-system", "/api/v1/namespaces/landfall-groups"],
                "what is made is removed, but the namespaces"
            );
            let role = all.iter().find(|object| object["kind"] == "Role").unwrap();
            assert!(
                role["rules"].as_array().unwrap().iter().all(|rule| rule["resourceNames"].is_array()),
                "{role}"
            );
            let set = all.last().unwrap().to_string();
            assert!(!set.contains("0123456789abcdef"), "the token stands in the Secret alone");
            assert!(set.contains("--hub-ca-hash=sha256:00") && set.contains("--inside=10.0.0.0/8"), "{set}");
            assert_eq!(set.contains("--service="), kind == "LoadBalancer", "{set}");
        }
    }

    #[test]
    fn pods_have_the_time_to_stop_that_they_want() {
        for (further, want) in
            [(&[][..], 30), (&["--drain=2m"], 130), (&["--drain=1s", "--shutdown-delay=1m"], 66)]
        {
            let pods = PodOptions { further: further.iter().map(|&one| one.into()).collect(), ..pods() };
            let set = stateful_set(&metadata(NAME), "us-east", &door(), &pods);
            let grace = &set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"];
            assert_eq!(grace, want, "{further:?}");
        }
    }

    #[test]
    fn pods_are_told_what_was_typed_if_edges_take_it() {
        let check = |further: &[&str], refused: Option<&str>| {
            let pods = PodOptions { further: further.iter().map(|&one| one.into()).collect(), ..pods() };
            let said = check("us-east", &door(), &pods).map_err(|error| error.to_string());
            match refused {
                None => assert_eq!(said, Ok(())),
                Some(why) => assert!(said.as_ref().is_err_and(|said| said.contains(why)), "{said:?}"),
            }
        };
        check(&[], None);
        check(
            &[
                "--access-log=all",
                "--otlp-endpoint=http://collector:4318",
                "--trace-sample=1/100",
                "--proxy-protocol-from=10.0.0.0/8",
                "--geo-database=/geo.mmdb",
                "--transfer-key-file=/etc/landfall/keys",
                "--notify=192.0.2.9:53",
                "--bucket-ca=/etc/landfall/ca.crt",
            ],
            None,
        );
        check(&["--acces-log=all"], Some("unexpected argument '--acces-log'"));
        check(&["--hub=https://elsewhere"], Some("cannot be used multiple times"));
        check(&["--access-log=some"], Some("expected off, errors, retried, all"));
        check(&["token"], Some("the subcommand 'token' cannot be used"));

        let pods = PodOptions {
            further: vec!["--access-log=all".into()],
            files_from: Some("files".into()),
            service_type: "LoadBalancer".into(),
            ..pods()
        };
        let all = objects("us-east", &door(), "abcdef.0123456789abcdef", &pods);
        let pod = &all.last().unwrap()["spec"]["template"]["spec"];
        let told = pod["containers"][0]["args"].as_array().unwrap();
        assert_eq!(told.last().unwrap(), "--access-log=all");
        assert!(told.contains(&json!("--ports-on=$(POD_IPS)")), "{told:?}");
        assert_eq!(pod["volumes"][1]["secret"]["secretName"], "files");
        assert_eq!(pod["containers"][0]["volumeMounts"][1]["mountPath"], "/etc/landfall");
        // What the Service leads to is where the edge listens.
        let public = all.iter().find(|object| landfall_api::meta::name(object) == PUBLIC).unwrap();
        for port in public["spec"]["ports"].as_array().unwrap() {
            let listens =
                |one: &Value| one.as_str().unwrap().ends_with(&format!("-listen=:{}", port["targetPort"]));
            assert!(told.iter().any(listens), "{port} of {told:?}");
        }
    }

    fn door() -> Door {
        Door { url: "https://hub:6443".into(), ca_hash: Some("sha256:00".into()) }
    }

    fn pods() -> PodOptions {
        PodOptions {
            image: "landfall:dev".into(),
            replicas: 2,
            hub_url: None,
            service_type: "ClusterIP".into(),
            inside: vec!["10.0.0.0/8".into()],
            ttl: crate::cli::Span::DAY,
            files_from: None,
            further: Vec::new(),
        }
    }
}
