//! Sheets of services, endpoints, ingresses and network policies.

use serde_json::Value;

use super::cells::{
    NONE, UNKNOWN, UNSET, age, find, first_three, items, labels, load_balancer, name, number, plain,
    selector, text, text_or,
};
use super::sheet::{Col, Sheet};
use crate::meta;

pub(super) const SERVICE: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Type", "How the service is reached."),
        Col::text("Cluster-IP", "Its address inside the cluster."),
        Col::text("External-IP", "Its addresses outside the cluster."),
        Col::text("Port(s)", "Its ports."),
        Col::AGE,
        Col::text("Selector", "Which pods serve it.").wide(),
    ],
    |object, now_s| {
        vec![
            name(object),
            text(object, "/spec/type").into(),
            find(object, "/spec/clusterIPs/0").unwrap_or(NONE).into(),
            external_ip(object).into(),
            ports(object).into(),
            age(object, now_s),
            labels(object.pointer("/spec/selector")).into(),
        ]
    },
);

pub(super) const INGRESS: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Class", "The ingress class that serves it."),
        Col::text("Hosts", "Hosts it has rules for."),
        Col::text("Address", "Where it is served."),
        Col::text("Ports", "Ports it is served on."),
        Col::AGE,
    ],
    |object, now_s| {
        let ports = if items(object, "/spec/tls").is_empty() { "80" } else { "80, 443" };
        vec![
            name(object),
            find(object, "/spec/ingressClassName").unwrap_or(NONE).into(),
            hosts(items(object, "/spec/rules")).into(),
            load_balancer(object).into(),
            ports.into(),
            age(object, now_s),
        ]
    },
);

pub(super) const INGRESS_CLASS: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Controller", "Who serves ingresses of this class."),
        Col::text("Parameters", "Where more settings are."),
        Col::AGE,
    ],
    |object, now_s| {
        let default = meta::annotation(object, "ingressclass.kubernetes.io/is-default-class") == Some("true");
        let suffix = if default { " (default)" } else { "" };
        vec![
            format!("{}{suffix}", meta::name(object)).into(),
            text(object, "/spec/controller").into(),
            parameters(object).into(),
            age(object, now_s),
        ]
    },
);

pub(super) const NETWORK_POLICY: Sheet = Sheet::new(
    &[Col::NAME, Col::text("Pod-Selector", "Which pods it is about."), Col::AGE],
    |object, now_s| {
        vec![name(object), selector(object.pointer("/spec/podSelector")).into(), age(object, now_s)]
    },
);

pub(super) const ENDPOINTS: Sheet =
    Sheet::new(&[Col::NAME, Col::text("Endpoints", "Addresses and ports."), Col::AGE], |object, now_s| {
        vec![name(object), endpoints(object).into(), age(object, now_s)]
    });

pub(super) const ENDPOINT_SLICE: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("AddressType", "What the addresses are."),
        Col::text("Ports", "Ports of every endpoint."),
        Col::text("Endpoints", "Addresses."),
        Col::AGE,
    ],
    |object, now_s| {
        let port = |port: &Value| {
            plain(port.get("port")).unwrap_or_else(|| find(port, "/name").unwrap_or("*").into())
        };
        let ports: Vec<String> = items(object, "/ports").iter().map(port).collect();
        let addresses = items(object, "/endpoints").iter().flat_map(|endpoint| items(endpoint, "/addresses"));
        let addresses: Vec<String> =
            addresses.map(|address| address.as_str().unwrap_or("").to_owned()).collect();
        let shown = |list: &[String]| match first_three(list) {
            text if text.is_empty() => UNSET.to_owned(),
            text => text,
        };
        vec![
            name(object),
            text(object, "/addressType").into(),
            shown(&ports).into(),
            shown(&addresses).into(),
            age(object, now_s),
        ]
    },
);

fn external_ip(object: &Value) -> String {
    let extra = super::cells::items(object, "/spec/externalIPs").iter().filter_map(Value::as_str);
    let extra = extra.collect::<Vec<_>>().join(",");
    match text(object, "/spec/type") {
        "ClusterIP" | "NodePort" if extra.is_empty() => NONE.into(),
        "ClusterIP" | "NodePort" => extra,
        "LoadBalancer" => match (load_balancer(object), extra) {
            (balancer, extra) if balancer.is_empty() && extra.is_empty() => "<pending>".into(),
            (balancer, extra) if extra.is_empty() => balancer,
            (balancer, extra) if balancer.is_empty() => extra,
            (balancer, extra) => format!("{balancer},{extra}"),
        },
        "ExternalName" => text(object, "/spec/externalName").to_owned(),
        _ => UNKNOWN.into(),
    }
}

/// `80:30080/TCP,53/UDP`.
fn ports(object: &Value) -> String {
    let words = items(object, "/spec/ports").iter().map(|port| {
        let (at, protocol) = (number(port, "/port"), text(port, "/protocol"));
        match number(port, "/nodePort") {
            node if node > 0 => format!("{at}:{node}/{protocol}"),
            _ => format!("{at}/{protocol}"),
        }
    });
    match words.collect::<Vec<_>>().join(",") {
        none if none.is_empty() => NONE.into(),
        words => words,
    }
}

/// The first three hosts; rules without a host count among those left out, as Kubernetes counts them.
fn hosts(rules: &[Value]) -> String {
    const SHOWN: usize = 3;
    let named: Vec<&str> =
        rules.iter().map(|rule| text(rule, "/host")).filter(|host| !host.is_empty()).collect();
    if named.is_empty() {
        return "*".into();
    }
    let words = named.iter().take(SHOWN).copied().collect::<Vec<_>>().join(",");
    let third = rules.iter().enumerate().filter(|(_, rule)| !text(rule, "/host").is_empty()).nth(SHOWN - 1);
    match third {
        Some((at, _)) if at.saturating_add(1) < rules.len() => {
            format!("{words} + {} more...", rules.len().saturating_sub(SHOWN))
        }
        _ => words,
    }
}

/// `Kind.group/name`.
fn parameters(object: &Value) -> String {
    let Some(parameters) = object.pointer("/spec/parameters").filter(|p| p.is_object()) else {
        return NONE.into();
    };
    let group = find(parameters, "/apiGroup").map(|group| format!(".{group}")).unwrap_or_default();
    format!("{}{group}/{}", text(parameters, "/kind"), text(parameters, "/name"))
}

/// `10.0.0.1:80,10.0.0.2:80 + 2 more...`.
fn endpoints(object: &Value) -> String {
    let subsets = items(object, "/subsets");
    if subsets.is_empty() {
        return NONE.into();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = || items(subset, "/addresses").iter().map(|address| text_or(address, "/ip", ""));
        match items(subset, "/ports") {
            [] => all.extend(addresses().map(str::to_owned)),
            ports => {
                for port in ports {
                    all.extend(addresses().map(|ip| host_port(ip, number(port, "/port"))));
                }
            }
        }
    }
    first_three(&all)
}

fn host_port(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}
