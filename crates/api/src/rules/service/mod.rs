//! Services.
//!
//! A federated Service has no cluster IP: every member allocates its own. The same rules serve simulated members,
//! which allocate before they validate.

mod change;
mod spec;

use serde_json::{Value, json};

use super::read::{self, child, default_absent, default_to, field, items_mut, list, text};
use crate::addresses;
use crate::field::{ErrorList, Path};
use crate::kind::Rules;
use crate::{meta, names};

pub(super) use spec::{PROTOCOLS, validate_protocol};

/// Seconds that ClientIP affinity lasts unless told otherwise.
const AFFINITY_S: u32 = 10_800;
const NO_CLUSTER_IP: &str = "a federated Service has no cluster IP, each member cluster allocates its own; leave it out, or use 'None'";

/// The rules of Services.
pub struct ServiceRules {
    /// Whether cluster IPs and node ports are allocated here (a member) or nowhere (the federation).
    pub allocates: bool,
}

impl Rules for ServiceRules {
    fn default(&self, object: &mut Value) {
        default_status(object);
        let spec = meta::child_mut(object, "spec");
        default_affinity(spec);
        default_to(spec, "type", "ClusterIP");
        for port in items_mut(spec, "ports") {
            default_to(port, "protocol", "TCP");
            let target = port.get("targetPort");
            if target.is_none_or(|t| read::is_empty(t) || t.as_str() == Some("")) {
                let number = port.get("port").cloned().unwrap_or_else(|| json!(0));
                port.insert("targetPort".into(), number);
            }
        }
        if spec::externally_accessible(spec) {
            default_to(spec, "externalTrafficPolicy", "Cluster");
        }
        let ty = spec.get("type").and_then(Value::as_str).unwrap_or("");
        let (load_balancer, alias) = (ty == "LoadBalancer", ty == "ExternalName");
        if load_balancer || matches!(ty, "NodePort" | "ClusterIP") {
            default_absent(spec, "internalTrafficPolicy", "Cluster");
        }
        if alias && matches!(policy(spec), Some("Cluster" | "Local")) {
            // Means nothing for a name, and Kubernetes never shows it there.
            spec.remove("internalTrafficPolicy");
        }
        if load_balancer {
            default_absent(spec, "allocateLoadBalancerNodePorts", true);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        let spec = meta::child_mut(object, "spec");
        let ip = spec.get("clusterIP").and_then(Value::as_str).unwrap_or("");
        if !ip.is_empty() && spec.get("clusterIPs").is_none_or(read::is_empty) {
            spec.insert("clusterIPs".into(), json!([ip]));
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        change::prepare(object, old);
    }

    fn validate(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        spec::validate(self.allocates, object, &mut errors);
        errors
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let ip = text(read::spec(object), "clusterIP");
        if !self.allocates && !matches!(ip, "" | "None") {
            errors.forbidden(&Path::new("spec").child("clusterIP"), NO_CLUSTER_IP);
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        change::validate(self.allocates, object, old, &mut errors);
        errors
    }

    fn validate_status(&self, object: &Value, _old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        validate_load_balancer(object, &mut errors);
        errors
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        names::name_is_label(name, prefix)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        warnings(object)
    }
}

fn policy(spec: &serde_json::Map<String, Value>) -> Option<&str> {
    spec.get("internalTrafficPolicy").and_then(Value::as_str)
}

fn default_affinity(spec: &mut serde_json::Map<String, Value>) {
    default_to(spec, "sessionAffinity", "None");
    match spec.get("sessionAffinity").and_then(Value::as_str) {
        Some("None") => {
            spec.remove("sessionAffinityConfig");
        }
        Some("ClientIP") => {
            let timeout =
                spec.get("sessionAffinityConfig").and_then(|c| c.get("clientIP")?.get("timeoutSeconds"));
            if timeout.is_none_or(Value::is_null) {
                let config = json!({"clientIP": {"timeoutSeconds": AFFINITY_S}});
                spec.insert("sessionAffinityConfig".into(), config);
            }
        }
        _ => {}
    }
}

fn default_status(object: &mut Value) {
    let Some(balancer) = object.get_mut("status").and_then(|s| s.get_mut("loadBalancer")) else { return };
    let Some(balancer) = balancer.as_object_mut() else { return };
    for ingress in items_mut(balancer, "ingress") {
        if ingress.get("ip").and_then(Value::as_str).is_some_and(|ip| !ip.is_empty()) {
            default_absent(ingress, "ipMode", "VIP");
        }
    }
}

fn validate_load_balancer(object: &Value, errors: &mut ErrorList) {
    let status = Path::new("status");
    let balancer = status.child("loadBalancer");
    let path = balancer.child("ingress");
    let ingress = list(child(child(object, "status"), "loadBalancer"), "ingress");
    if text(read::spec(object), "type") != "LoadBalancer" && !ingress.is_empty() {
        return errors.forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'");
    }
    for (at, one) in ingress.iter().enumerate() {
        let path = path.index(at);
        let (ip, mode) = (text(one, "ip"), field(one, "ipMode").and_then(Value::as_str));
        if !ip.is_empty() {
            addresses::validate_ip(ip, &path.child("ip"), errors);
        }
        let at_mode = path.child("ipMode");
        match mode {
            None if !ip.is_empty() => errors.required(&at_mode, "must be specified when `ip` is set"),
            Some(_) if ip.is_empty() => {
                errors.forbidden(&at_mode, "may not be specified when `ip` is not set");
            }
            Some(mode) if !matches!(mode, "VIP" | "Proxy") => {
                errors.not_supported(&at_mode, mode, &["VIP", "Proxy"]);
            }
            _ => {}
        }
        validate_balancer_host(text(one, "hostname"), &path.child("hostname"), errors);
    }
}

/// The host name of a load balancer: a DNS name, or none.
pub(super) fn validate_balancer_host(host: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if host.is_empty() {
        return;
    }
    read::sentences(names::dns1123_subdomain(host), host, path, errors);
    if addresses::parse_ip(host).is_some() {
        errors.invalid(path, host, "must be a DNS name, not an IP address");
    }
}

fn warnings(object: &Value) -> Vec<String> {
    let spec = read::spec(object);
    let ty = text(spec, "type");
    let headless = ty == "ClusterIP" && text(spec, "clusterIP") == "None";
    let external_ips = !list(spec, "externalIPs").is_empty();
    let balancer_ip = text(spec, "loadBalancerIP");
    let hints = meta::annotation(object, "service.kubernetes.io/topology-aware-hints").is_some();
    let mut warnings = Vec::new();
    let mut warn = |when: bool, text: &str| warnings.extend(when.then(|| text.to_owned()));
    warn(
        hints,
        "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead",
    );
    warn(headless && !balancer_ip.is_empty(), "spec.loadBalancerIP is ignored for headless services");
    warn(headless && external_ips, "spec.externalIPs is ignored for headless services");
    warn(
        headless && text(spec, "sessionAffinity") != "None",
        "spec.SessionAffinity is ignored for headless services",
    );
    let path = Path::new("spec");
    let at_ips = path.child("externalIPs");
    for (at, ip) in list(spec, "externalIPs").iter().enumerate() {
        warnings.extend(addresses::ip_warning(ip.as_str().unwrap_or(""), &at_ips.index(at)));
    }
    let mut warn = |when: bool, text: &str| warnings.extend(when.then(|| text.to_owned()));
    warn(
        external_ips && !headless && ty != "ExternalName",
        "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
    );
    warnings.extend(addresses::ip_warning(balancer_ip, &path.child("loadBalancerIP")));
    let at_ranges = path.child("loadBalancerSourceRanges");
    for (at, range) in list(spec, "loadBalancerSourceRanges").iter().enumerate() {
        warnings.extend(addresses::cidr_warning(range.as_str().unwrap_or(""), &at_ranges.index(at)));
    }
    let mut warn = |when: bool, text: &str| warnings.extend(when.then(|| text.to_owned()));
    warn(
        external_ips && ty == "ExternalName",
        "spec.externalIPs is ignored when spec.type is \"ExternalName\"",
    );
    warn(
        ty != "ExternalName" && !text(spec, "externalName").is_empty(),
        "spec.externalName is ignored when spec.type is not \"ExternalName\"",
    );
    warn(
        text(spec, "trafficDistribution") == "PreferClose",
        "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
    );
    warnings
}

#[cfg(test)]
mod tests;
