//! What Kubernetes fills into a pod's spec.

use serde_json::{Map, Value, json};

use super::super::read::{child, child_or_new, fill, fill_int, fill_text, maps};
use super::{image, resources};

type Object = Map<String, Value>;

/// `{metadata, spec}` of a controller; nothing is made when the template is absent.
pub(in super::super) fn template(owner: &mut Object) {
    // Go keeps templates by value: an absent one is an empty one.
    if let Some(template) = child_or_new(owner, "template") {
        fill(template, "metadata", Value::Object(Object::new()));
        if let Some(spec) = child_or_new(template, "spec") {
            pod_spec(spec);
        }
    }
}

/// What a pod's spec gets wherever it stands.
pub(in super::super) fn pod_spec(spec: &mut Object) {
    fill_text(spec, "dnsPolicy", "ClusterFirst");
    fill_text(spec, "restartPolicy", "Always");
    fill_text(spec, "schedulerName", "default-scheduler");
    fill(spec, "securityContext", Value::Object(Object::new()));
    fill(spec, "terminationGracePeriodSeconds", 30);
    service_account(spec);
    resources::round_list(spec, "overhead");
    if let Some(pod) = child(spec, "resources") {
        resources::round_list(pod, "limits");
        resources::round_list(pod, "requests");
    }
    for each in maps(spec, "volumes") {
        volume(each);
    }
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        for each in maps(spec, field) {
            container(each);
        }
    }
}

/// What only pods get, not templates.
pub(in super::super) fn pod_only(spec: &mut Object) {
    for field in ["containers", "initContainers"] {
        for each in maps(spec, field) {
            requests_from_limits(each);
        }
    }
    fill(spec, "enableServiceLinks", true);
    host_network_ports(spec);
}

/// `serviceAccount` is the old name of `serviceAccountName`; the two are kept equal.
fn service_account(spec: &mut Object) {
    let name = |of: &Object, field| of.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
    let (new, old) = (name(spec, "serviceAccountName"), name(spec, "serviceAccount"));
    let account = if new.is_empty() { old } else { new };
    if !account.is_empty() {
        spec.insert("serviceAccountName".into(), Value::String(account.clone()));
        spec.insert("serviceAccount".into(), Value::String(account));
    }
}

fn host_network_ports(spec: &mut Object) {
    if spec.get("hostNetwork").and_then(Value::as_bool) != Some(true) {
        return;
    }
    for field in ["containers", "initContainers"] {
        for container in maps(spec, field) {
            for port in maps(container, "ports") {
                let number = port.get("containerPort").and_then(Value::as_i64).unwrap_or(0);
                if number != 0 {
                    fill_int(port, "hostPort", number);
                }
            }
        }
    }
}

fn requests_from_limits(container: &mut Object) {
    let Some(resources) = child(container, "resources") else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if let Some(requests) = child_or_new(resources, "requests") {
        for (name, amount) in limits {
            requests.entry(name).or_insert(amount);
        }
    }
}

fn container(container: &mut Object) {
    if container.get("imagePullPolicy").and_then(Value::as_str).unwrap_or("").is_empty() {
        let policy = pull_policy(container, "image");
        container.insert("imagePullPolicy".into(), policy.into());
    }
    fill_text(container, "terminationMessagePath", "/dev/termination-log");
    fill_text(container, "terminationMessagePolicy", "File");
    if let Some(resources) = child_or_new(container, "resources") {
        resources::round_list(resources, "limits");
        resources::round_list(resources, "requests");
    }
    for port in maps(container, "ports") {
        fill_text(port, "protocol", "TCP");
    }
    for variable in maps(container, "env") {
        if let Some(from) = child(variable, "valueFrom") {
            value_from(from);
        }
    }
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = child(container, field) {
            self::probe(probe);
        }
    }
    if let Some(lifecycle) = child(container, "lifecycle") {
        for field in ["postStart", "preStop"] {
            if let Some(http) = child(lifecycle, field).and_then(|hook| child(hook, "httpGet")) {
                http_get(http);
            }
        }
    }
}

/// `Always` for `:latest` and for images without tag and digest; an image that cannot be read counts as tagged.
fn pull_policy(of: &Object, field: &str) -> &'static str {
    let image = of.get(field).and_then(Value::as_str).unwrap_or("");
    if image::tag(image) == Some("latest") { "Always" } else { "IfNotPresent" }
}

fn value_from(from: &mut Object) {
    if let Some(reference) = child(from, "fieldRef") {
        fill_text(reference, "apiVersion", "v1");
    }
    if let Some(reference) = child(from, "resourceFieldRef") {
        fill(reference, "divisor", "0");
    }
    if let Some(reference) = child(from, "fileKeyRef") {
        fill(reference, "optional", false);
    }
}

fn probe(probe: &mut Object) {
    for (field, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        fill_int(probe, field, value);
    }
    if let Some(http) = child(probe, "httpGet") {
        http_get(http);
    }
    if let Some(grpc) = child(probe, "grpc") {
        fill(grpc, "service", "");
    }
}

fn http_get(http: &mut Object) {
    fill_text(http, "path", "/");
    fill_text(http, "scheme", "HTTP");
}

/// The sources a volume may have.
pub(super) const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Fields that a source of a volume gets when it lacks them: (source, field, value).
const SOURCE_TEXTS: [(&str, &str, &str); 6] = [
    ("iscsi", "iscsiInterface", "default"),
    ("rbd", "pool", "rbd"),
    ("rbd", "user", "admin"),
    ("rbd", "keyring", "/etc/ceph/keyring"),
    ("scaleIO", "storageMode", "ThinProvisioned"),
    ("scaleIO", "fsType", "xfs"),
];

fn volume(volume: &mut Object) {
    if !SOURCES.iter().any(|source| volume.get(*source).is_some_and(|v| !v.is_null())) {
        volume.insert("emptyDir".into(), Value::Object(Object::new()));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(files) = child(volume, source) {
            fill(files, "defaultMode", 0o644);
        }
    }
    for (source, field, value) in SOURCE_TEXTS {
        if let Some(of) = child(volume, source) {
            fill_text(of, field, value);
        }
    }
    if let Some(path) = child(volume, "hostPath") {
        fill(path, "type", "");
    }
    if let Some(disk) = child(volume, "azureDisk") {
        for (field, value) in [
            ("cachingMode", json!("ReadWrite")),
            ("fsType", json!("ext4")),
            ("readOnly", json!(false)),
            ("kind", json!("Shared")),
        ] {
            fill(disk, field, value);
        }
    }
    if let Some(files) = child(volume, "downwardAPI") {
        downward(files);
    }
    if let Some(projected) = child(volume, "projected") {
        for source in maps(projected, "sources") {
            if let Some(files) = child(source, "downwardAPI") {
                downward(files);
            }
            if let Some(token) = child(source, "serviceAccountToken") {
                fill(token, "expirationSeconds", 3600);
            }
        }
        // Kept by value in a list that Go writes even when it is empty.
        fill(projected, "sources", Value::Null);
    }
    if let Some(image) = child(volume, "image")
        && image.get("pullPolicy").and_then(Value::as_str).unwrap_or("").is_empty()
    {
        let policy = pull_policy(image, "reference");
        image.insert("pullPolicy".into(), policy.into());
    }
    if let Some(template) = child(volume, "ephemeral").and_then(|e| child(e, "volumeClaimTemplate")) {
        fill(template, "metadata", Value::Object(Object::new()));
        claim_spec(template);
    }
}

fn downward(files: &mut Object) {
    for file in maps(files, "items") {
        if let Some(reference) = child(file, "fieldRef") {
            fill_text(reference, "apiVersion", "v1");
        }
        if let Some(reference) = child(file, "resourceFieldRef") {
            fill(reference, "divisor", "0");
        }
    }
}

/// `spec` of a claim or of a claim's template.
pub(in super::super) fn claim_spec(claim: &mut Object) {
    if let Some(spec) = child_or_new(claim, "spec") {
        fill(spec, "volumeMode", "Filesystem");
        if let Some(resources) = child_or_new(spec, "resources") {
            resources::round_list(resources, "limits");
            resources::round_list(resources, "requests");
        }
    }
}
