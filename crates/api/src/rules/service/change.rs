//! What may change about a Service, and what an update keeps without being told.

use serde_json::{Map, Value, json};

use super::super::read::{self, child, field, int, items_mut, list, same, text};
use super::NO_CLUSTER_IP;
use super::spec::{externally_accessible, headless, needs_health_check};
use crate::field::{ErrorList, Path};
use crate::meta;

const SPEC: Path<'static> = Path::new("spec");
const ONCE: &str = "may not change once set";

fn has_cluster_ip(spec: &Value) -> bool {
    text(spec, "type") != "ExternalName"
}

fn has_node_ports(spec: &Value) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

/// Keeps what was allocated or chosen before, and drops what no longer makes sense after a change of type.
pub(super) fn prepare(object: &mut Value, old: &Value) {
    let before = read::spec(old);
    let now = read::spec(object).clone();
    let spec = meta::child_mut(object, "spec");
    keep(spec, &now, before);
    let now = Value::Object(spec.clone());
    drop_dependent(spec, &now, before);
    if text(&now, "type") != "LoadBalancer"
        && let Some(status) = read::map_mut(object, "status")
        && status.contains_key("loadBalancer")
    {
        status.insert("loadBalancer".into(), json!({}));
    }
}

fn keep(spec: &mut Map<String, Value>, now: &Value, before: &Value) {
    if has_cluster_ip(before) && has_cluster_ip(now) {
        for name in ["clusterIP", "clusterIPs"] {
            if field(now, name).is_none_or(read::is_empty)
                && let Some(value) = field(before, name)
            {
                spec.insert(name.into(), value.clone());
            }
        }
    }
    let ip = spec.get("clusterIP").and_then(Value::as_str).unwrap_or("").to_owned();
    let unchanged = same(spec.get("clusterIPs"), before.get("clusterIPs"));
    if ip != text(before, "clusterIP") && unchanged {
        // Only the older field was changed: the newer follows.
        match ip.as_str() {
            "" => spec.remove("clusterIPs"),
            ip => spec.insert("clusterIPs".into(), json!([ip])),
        };
    }
    if has_node_ports(before) && has_node_ports(now) {
        keep_node_ports(spec, now, before);
    }
    if needs_health_check(before) && needs_health_check(now) && int(now, "healthCheckNodePort") == 0 {
        let port = int(before, "healthCheckNodePort");
        if port != 0 {
            spec.insert("healthCheckNodePort".into(), json!(port));
        }
    }
}

fn keep_node_ports(spec: &mut Map<String, Value>, now: &Value, before: &Value) {
    let used = |number: i64| list(now, "ports").iter().any(|p| int(p, "nodePort") == number);
    for port in items_mut(spec, "ports") {
        if port.get("nodePort").and_then(Value::as_i64).unwrap_or(0) != 0 {
            continue;
        }
        let name = port.get("name").and_then(Value::as_str).unwrap_or("");
        let was = list(before, "ports").iter().rev().find(|p| text(p, "name") == name);
        let number = was.map_or(0, |p| int(p, "nodePort"));
        if number != 0 && !used(number) {
            port.insert("nodePort".into(), json!(number));
        }
    }
}

fn drop_dependent(spec: &mut Map<String, Value>, now: &Value, before: &Value) {
    let unchanged = |name: &str| same(now.get(name), before.get(name));
    if has_cluster_ip(before) && !has_cluster_ip(now) {
        if unchanged("clusterIP") && unchanged("clusterIPs") {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        for name in ["ipFamilies", "ipFamilyPolicy"] {
            if unchanged(name) {
                spec.remove(name);
            }
        }
    }
    let known = |port: &Value| {
        let number = int(port, "nodePort");
        number == 0 || list(before, "ports").iter().any(|p| int(p, "nodePort") == number)
    };
    if has_node_ports(before) && !has_node_ports(now) && list(now, "ports").iter().all(known) {
        for port in items_mut(spec, "ports") {
            port.remove("nodePort");
        }
    }
    if needs_health_check(before) && !needs_health_check(now) && unchanged("healthCheckNodePort") {
        spec.remove("healthCheckNodePort");
    }
    let balancer = |spec: &Value| text(spec, "type") == "LoadBalancer";
    if balancer(before) && !balancer(now) {
        for name in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if unchanged(name) {
                spec.remove(name);
            }
        }
    }
    let accessible = |spec: &Value| spec.as_object().is_some_and(externally_accessible);
    if accessible(before) && !accessible(now) && unchanged("externalTrafficPolicy") {
        spec.remove("externalTrafficPolicy");
    }
}

pub(super) fn validate(allocates: bool, object: &Value, old: &Value, errors: &mut ErrorList) {
    let (now, before) = (read::spec(object), read::spec(old));
    if has_cluster_ip(now) && has_cluster_ip(before) {
        if !(headless(now) && headless(before)) {
            validate_cluster_ips(allocates, now, before, errors);
        }
        if !headless(now) && !headless(before) {
            validate_families(now, before, errors);
        }
    }
    let ip = text(now, "clusterIP");
    // An address that is refused already need not be refused twice.
    let refused =
        text(now, "type") == "ExternalName" || errors.iter().any(|e| e.field.starts_with("spec.clusterIP"));
    if !allocates && !refused && !matches!(ip, "" | "None") && ip != text(before, "clusterIP") {
        errors.forbidden(&SPEC.child("clusterIP"), NO_CLUSTER_IP);
    }
    let balancers = text(now, "type") == "LoadBalancer" && text(before, "type") == "LoadBalancer";
    let class = "loadBalancerClass";
    if balancers && field(now, class) != field(before, class) {
        errors.invalid(&SPEC.child(class), child(now, class).clone(), ONCE);
    }
    let port = "healthCheckNodePort";
    if needs_health_check(before) && needs_health_check(now) && int(before, port) != int(now, port) {
        errors.forbidden(&SPEC.child(port), "field is immutable");
    }
}

fn validate_cluster_ips(allocates: bool, now: &Value, before: &Value, errors: &mut ErrorList) {
    let (ips, were) = (list(now, "clusterIPs"), list(before, "clusterIPs"));
    let path = SPEC.child("clusterIPs");
    if ips.len() == were.len() {
        for (at, _) in ips.iter().zip(were).enumerate().filter(|(_, (ip, was))| ip != was) {
            errors.invalid(&path.index(at), ips.to_vec(), ONCE);
        }
        return;
    }
    match (ips.first(), were.first()) {
        (None, _) => {
            errors.invalid(&path.index(0), ips.to_vec(), "primary clusterIP can not be unset");
        }
        // Where nothing is allocated a Service without an address still cannot become a headless one.
        (Some(_), None) if !allocates && headless(now) => errors.invalid(&path.index(0), ips.to_vec(), ONCE),
        (Some(ip), Some(was)) if ip != was => errors.invalid(&path.index(0), ips.to_vec(), ONCE),
        _ => {}
    }
    if ips.len() == 1 && were.len() > 1 {
        let detail = "must be set to 'SingleStack' when releasing the secondary clusterIP";
        validate_single_stack(now, detail, errors);
    }
}

fn validate_families(now: &Value, before: &Value, errors: &mut ErrorList) {
    let (families, were) = (list(now, "ipFamilies"), list(before, "ipFamilies"));
    let path = SPEC.child("ipFamilies");
    if families.len() == were.len() {
        for _ in families.iter().zip(were).filter(|(family, was)| family != was) {
            errors.invalid(&path.index(0), families.to_vec(), ONCE);
        }
        return;
    }
    if let (Some(first), Some(was)) = (families.first(), were.first())
        && first != was
    {
        errors.invalid(&path.index(0), list(now, "clusterIPs").to_vec(), ONCE);
    }
    if families.len() == 1 && were.len() > 1 {
        let detail = "must be set to 'SingleStack' when releasing the secondary ipFamily";
        validate_single_stack(now, detail, errors);
    }
}

fn validate_single_stack(now: &Value, detail: &str, errors: &mut ErrorList) {
    if text(now, "ipFamilyPolicy") != "SingleStack" {
        let policy = child(now, "ipFamilyPolicy").clone();
        errors.invalid(&SPEC.child("ipFamilyPolicy"), policy, detail);
    }
}
