//! What a Service's `spec` may be.

use serde_json::{Map, Value};

use super::super::read::{self, child, field, list, text, unsupported};
use crate::addresses::{self, EndpointAddresses};
use crate::field::{ErrorList, ErrorType, Path};
use crate::{labels, meta, names};

const SPEC: Path<'static> = Path::new("spec");
/// Longest ClientIP affinity: a day.
const AFFINITY_S_MAX: i64 = 86_400;
/// Where node ports may lie.
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
/// What a port's protocol may be.
pub(in crate::rules) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// Whether clients outside a cluster can reach it, so that an `externalTrafficPolicy` makes sense.
pub(super) fn externally_accessible(spec: &Map<String, Value>) -> bool {
    match spec.get("type").and_then(Value::as_str) {
        Some("LoadBalancer" | "NodePort") => true,
        Some("ClusterIP") => {
            spec.get("externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty())
        }
        _ => false,
    }
}

/// Whether a load balancer asks nodes for their health: a balancer that keeps traffic on its nodes.
pub(super) fn needs_health_check(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

/// Whether it has no virtual address.
pub(super) fn headless(spec: &Value) -> bool {
    matches!(list(spec, "clusterIPs"), [one] if one == "None")
}

pub(super) fn validate(allocates: bool, object: &Value, errors: &mut ErrorList) {
    let spec = read::spec(object);
    validate_topology(object, errors);
    validate_type_needs(spec, errors);
    validate_ports(spec, errors);
    labels::validate_labels(spec.get("selector"), &SPEC.child("selector"), errors);
    validate_affinity(spec, errors);
    validate_cluster_ips(spec, errors);
    validate_external_ips(spec, errors);
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    one_of(spec, "type", &types, errors);
    validate_node_ports(spec, errors);
    validate_source_ranges(object, spec, errors);
    validate_balancer_fields(spec, errors);
    validate_traffic_policies(allocates, spec, errors);
    if !allocates {
        validate_node_port_range(spec, errors);
    }
}

fn one_of(spec: &Value, name: &str, values: &[&str], errors: &mut ErrorList) {
    match text(spec, name) {
        "" => errors.required(&SPEC.child(name), ""),
        value if !values.contains(&value) => errors.not_supported(&SPEC.child(name), value, values),
        _ => {}
    }
}

fn validate_topology(object: &Value, errors: &mut ErrorList) {
    let (hints, mode) = (meta::annotation(object, TOPOLOGY_HINTS), meta::annotation(object, TOPOLOGY_MODE));
    if let (Some(hints), Some(mode)) = (hints, mode)
        && hints != mode
    {
        let metadata = Path::new("metadata");
        let detail = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
        errors.invalid(&metadata.child("annotations").key(TOPOLOGY_MODE), mode, detail);
    }
}

fn validate_type_needs(spec: &Value, errors: &mut ErrorList) {
    let ty = text(spec, "type");
    if list(spec, "ports").is_empty() && !headless(spec) && ty != "ExternalName" {
        errors.required(&SPEC.child("ports"), "");
    }
    match ty {
        "LoadBalancer" | "NodePort" if headless(spec) => {
            let detail = format!("may not be set to 'None' for {ty} services");
            errors.invalid(&SPEC.child("clusterIPs").index(0), "None", detail);
        }
        "ExternalName" => {
            for name in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if field(spec, name).is_some_and(|v| !read::is_empty(v)) {
                    errors.forbidden(&SPEC.child(name), "may not be set for ExternalName services");
                }
            }
            let name = text(spec, "externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            let path = SPEC.child("externalName");
            if name.is_empty() {
                errors.required(&path, "");
            } else {
                read::sentences(names::dns1123_subdomain(name), name, &path, errors);
            }
        }
        _ => {}
    }
}

fn validate_ports(spec: &Value, errors: &mut ErrorList) {
    let ports = list(spec, "ports");
    let at_ports = SPEC.child("ports");
    for (at, port) in ports.iter().enumerate() {
        let path = at_ports.index(at);
        let name = text(port, "name");
        let at_name = path.child("name");
        if name.is_empty() && ports.len() > 1 {
            errors.required(&at_name, "");
        } else if !name.is_empty() {
            read::sentences(names::dns1123_label(name), name, &at_name, errors);
            if ports.iter().take(at).any(|p| text(p, "name") == name) {
                errors.duplicate(&at_name, name);
            }
        }
        let number = read::int(port, "port");
        for sentence in names::port_number(number) {
            errors.invalid(&path.child("port"), number, sentence);
        }
        validate_protocol(port, &path, errors);
        validate_port_or_name(child(port, "targetPort"), &path.child("targetPort"), errors);
        if let Some(protocol) = field(port, "appProtocol").and_then(Value::as_str) {
            read::sentences(names::qualified_name(protocol), protocol, &path.child("appProtocol"), errors);
        }
    }
}

/// A port's `protocol`.
pub(in crate::rules) fn validate_protocol(port: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    match text(port, "protocol") {
        "" => errors.required(&path.child("protocol"), ""),
        other if !PROTOCOLS.contains(&other) => {
            errors.not_supported(&path.child("protocol"), other, PROTOCOLS);
        }
        _ => {}
    }
}

fn validate_port_or_name(port: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(name) = port.as_str() {
        read::sentences(names::port_name(name), name, path, errors);
    } else {
        let number = port.as_i64().unwrap_or(0);
        for sentence in names::port_number(number) {
            errors.invalid(path, number, sentence);
        }
    }
}

fn validate_affinity(spec: &Value, errors: &mut ErrorList) {
    one_of(spec, "sessionAffinity", &["ClientIP", "None"], errors);
    let path = SPEC.child("sessionAffinityConfig");
    let config = field(spec, "sessionAffinityConfig");
    match text(spec, "sessionAffinity") {
        "ClientIP" => {
            let client = config.and_then(|c| field(c, "clientIP"));
            let timeout = client.and_then(|c| field(c, "timeoutSeconds")).and_then(Value::as_i64);
            let why = "when session affinity type is ClientIP";
            let at_client = path.child("clientIP");
            let at_timeout = at_client.child("timeoutSeconds");
            match (config, client, timeout) {
                (None, ..) => errors.required(&path, why),
                (_, None, _) => errors.required(&at_client, why),
                (_, _, None) => errors.required(&at_timeout, why),
                (_, _, Some(s)) if !(1..=AFFINITY_S_MAX).contains(&s) => {
                    let detail = format!("must be greater than 0 and less than {AFFINITY_S_MAX}");
                    errors.invalid(&at_timeout, s, detail);
                }
                _ => {}
            }
        }
        "None" if config.is_some() => {
            errors.forbidden(&path, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

fn validate_cluster_ips(spec: &Value, errors: &mut ErrorList) {
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let (ip, ips) = (text(spec, "clusterIP"), list(spec, "clusterIPs"));
    let path = SPEC.child("clusterIPs");
    if ip.is_empty() && !ips.is_empty() {
        errors.invalid(&path, ips.to_vec(), "must be empty when `clusterIP` is not specified");
    } else if !ip.is_empty() && ips.is_empty() {
        errors.required(&path, "");
    } else if !ip.is_empty() && ips.first().is_some_and(|first| first != ip) {
        errors.invalid(&path, ips.to_vec(), "first value must match `clusterIP`");
    }
    validate_families(spec, errors);
    if validate_each_cluster_ip(ips, &path, errors) {
        validate_stacks(spec, ips, &path, errors);
    }
}

fn validate_families(spec: &Value, errors: &mut ErrorList) {
    let path = SPEC.child("ipFamilies");
    let families = list(spec, "ipFamilies");
    for (at, family) in families.iter().enumerate() {
        if !matches!(family.as_str(), Some("IPv4" | "IPv6")) {
            errors.not_supported(&path.index(at), family.clone(), &["IPv4", "IPv6"]);
        }
        if families.iter().take(at).any(|f| f == family) {
            errors.duplicate(&path.index(at), family.clone());
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if let Some(policy) = field(spec, "ipFamilyPolicy").and_then(Value::as_str)
        && !policies.contains(&policy)
    {
        errors.not_supported(&SPEC.child("ipFamilyPolicy"), policy, &policies);
    }
}

/// Each on its own; whether they are right, so that they can be looked at together.
fn validate_each_cluster_ip(ips: &[Value], path: &Path<'_>, errors: &mut ErrorList) -> bool {
    let mut right = true;
    for (at, ip) in ips.iter().enumerate() {
        if at == 0 && ip == "None" {
            if ips.len() > 1 {
                right = false;
                errors.invalid(path, ips.to_vec(), "'None' must be the first and only value");
            }
            continue;
        }
        right &= addresses::validate_ip(ip.as_str().unwrap_or(""), &path.index(at), errors);
    }
    if ips.len() > 2 {
        errors.invalid(path, ips.to_vec(), "may only hold up to 2 values");
    }
    right
}

fn validate_stacks(spec: &Value, ips: &[Value], path: &Path<'_>, errors: &mut ErrorList) {
    let is_v6 = |ip: &Value| ip.as_str().and_then(addresses::parse_ip).is_some_and(|ip| ip.is_ipv6());
    if let [first, rest @ ..] = ips
        && rest.iter().any(|ip| rest.len() > 1 || is_v6(ip) == is_v6(first))
    {
        errors.invalid(path, ips.to_vec(), "may specify no more than one IP for each IP family");
    }
    if headless(spec) {
        return;
    }
    for (at, (ip, family)) in ips.iter().zip(list(spec, "ipFamilies")).enumerate() {
        let (wanted, wrong) = match family.as_str() {
            Some("IPv4") => ("IPv4", is_v6(ip)),
            Some("IPv6") => ("IPv6", !is_v6(ip)),
            _ => continue,
        };
        if wrong {
            let detail = format!("expected an {wanted} value as indicated by `ipFamilies[{at}]`");
            errors.invalid(&path.index(at), ip.clone(), detail);
        }
    }
}

fn validate_external_ips(spec: &Value, errors: &mut ErrorList) {
    let path = SPEC.child("externalIPs");
    for (at, ip) in list(spec, "externalIPs").iter().enumerate() {
        let ip = ip.as_str().unwrap_or("");
        if addresses::validate_ip(ip, &path.index(at), errors) {
            EndpointAddresses::REACHABLE.validate(ip, &path.index(at), errors);
        }
    }
}

fn validate_node_ports(spec: &Value, errors: &mut ErrorList) {
    let at_ports = SPEC.child("ports");
    let ports = list(spec, "ports");
    if text(spec, "type") == "ClusterIP" {
        for (at, _) in ports.iter().enumerate().filter(|(_, p)| read::int(p, "nodePort") != 0) {
            let detail = "may not be used when `type` is 'ClusterIP'";
            errors.forbidden(&at_ports.index(at).child("nodePort"), detail);
        }
    }
    for (at, port) in ports.iter().enumerate() {
        let number = read::int(port, "nodePort");
        if number != 0 && ports.iter().take(at).any(|p| same_port(p, port, "nodePort")) {
            errors.duplicate(&at_ports.index(at).child("nodePort"), number);
        }
    }
    for (at, port) in ports.iter().enumerate() {
        if ports.iter().take(at).any(|p| same_port(p, port, "port")) {
            // Go shows its own struct here, in its own order.
            let shown = format!(
                r#"{{"Name":"","Protocol":{},"AppProtocol":null,"Port":{},"TargetPort":0,"NodePort":0}}"#,
                child(port, "protocol"),
                read::int(port, "port")
            );
            errors.add(ErrorType::Duplicate, &at_ports.index(at), None, shown);
        }
    }
}

fn same_port(a: &Value, b: &Value, number: &str) -> bool {
    read::int(a, number) == read::int(b, number) && text(a, "protocol") == text(b, "protocol")
}

fn validate_source_ranges(object: &Value, spec: &Value, errors: &mut ErrorList) {
    let balancer = text(spec, "type") == "LoadBalancer";
    let only = "may only be used when `type` is 'LoadBalancer'";
    let ranges = list(spec, "loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let path = SPEC.child("LoadBalancerSourceRanges");
        if !balancer {
            errors.forbidden(&path, only);
        }
        for (at, range) in ranges.iter().enumerate() {
            addresses::validate_cidr(range.as_str().unwrap_or("").trim(), &path.index(at), errors);
        }
    } else if let Some(ranges) = meta::annotation(object, SOURCE_RANGES) {
        let metadata = Path::new("metadata");
        let annotations = metadata.child("annotations");
        let path = annotations.key(SOURCE_RANGES);
        if !balancer {
            errors.forbidden(&path, only);
        }
        if !ranges.trim().is_empty() {
            for range in ranges.split(',') {
                addresses::validate_cidr(range.trim(), &path, errors);
            }
        }
    }
}

fn validate_balancer_fields(spec: &Value, errors: &mut ErrorList) {
    let balancer = text(spec, "type") == "LoadBalancer";
    let only = "may only be used when `type` is 'LoadBalancer'";
    match field(spec, "allocateLoadBalancerNodePorts") {
        Some(_) if !balancer => errors.forbidden(&SPEC.child("allocateLoadBalancerNodePorts"), only),
        None if balancer => errors.required(&Path::new("allocateLoadBalancerNodePorts"), ""),
        _ => {}
    }
    let path = SPEC.child("loadBalancerClass");
    match field(spec, "loadBalancerClass").and_then(Value::as_str) {
        Some(class) if balancer => read::sentences(names::qualified_name(class), class, &path, errors),
        Some(_) => errors.forbidden(&path, only),
        None => {}
    }
}

fn validate_traffic_policies(allocates: bool, spec: &Value, errors: &mut ErrorList) {
    let external = text(spec, "externalTrafficPolicy");
    let path = SPEC.child("externalTrafficPolicy");
    let accessible = spec.as_object().is_some_and(externally_accessible);
    match (accessible, external) {
        (true, _) => one_of(spec, "externalTrafficPolicy", &["Cluster", "Local"], errors),
        (false, "") => {}
        (false, _) => {
            errors.invalid(&path, external, "may only be set for externally-accessible services");
        }
    }
    let health = read::int(spec, "healthCheckNodePort");
    let path = SPEC.child("healthCheckNodePort");
    match (needs_health_check(spec), health) {
        (false, 0) => {}
        (false, _) => errors.invalid(
            &path,
            health,
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        ),
        (true, 0) if allocates => errors.required(&path, ""),
        (true, 0) => {}
        (true, _) => {
            for sentence in names::port_number(health) {
                errors.invalid(&path, health, sentence);
            }
        }
    }
    let path = SPEC.child("internalTrafficPolicy");
    match field(spec, "internalTrafficPolicy").and_then(Value::as_str) {
        Some("Cluster" | "Local") => {}
        Some(other) => errors.not_supported(&path, other, &["Cluster", "Local"]),
        None if matches!(text(spec, "type"), "ClusterIP" | "NodePort" | "LoadBalancer") => {
            errors.required(&path, "");
        }
        None => {}
    }
    let values = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    if let Some(value) = field(spec, "trafficDistribution").and_then(Value::as_str)
        && !values.contains(&value)
    {
        unsupported(errors, &SPEC.child("trafficDistribution"), value, &values);
    }
}

/// Where ports are not allocated, nothing else says that they lie where no cluster has node ports.
fn validate_node_port_range(spec: &Value, errors: &mut ErrorList) {
    if !matches!(text(spec, "type"), "NodePort" | "LoadBalancer") {
        return;
    }
    let at_ports = SPEC.child("ports");
    for (at, port) in list(spec, "ports").iter().enumerate() {
        let number = read::int(port, "nodePort");
        if number != 0 && !NODE_PORTS.contains(&number) {
            let detail = "provided port is not in the valid range. The range of valid ports is 30000-32767";
            errors.invalid(&at_ports.index(at).child("nodePort"), number, detail);
        }
    }
}
