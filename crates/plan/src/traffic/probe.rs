//! How a service is probed when no policy says it: as its pods' readiness is.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use landfall_api::landfall::{HealthCheck, PlanPort, ProbeProtocol};
use landfall_api::rules::read::{child, list, text};
use serde_json::Value;

/// The ports of a Service, as plans carry them.
pub fn ports(service: &Value) -> Vec<PlanPort> {
    let one = |port: &Value| {
        let number =
            |key: &str| port.get(key).and_then(Value::as_i64).and_then(|number| i32::try_from(number).ok());
        Some(PlanPort {
            name: text(port, "name").to_owned(),
            port: number("port")?,
            protocol: Some(text(port, "protocol"))
                .filter(|name| !name.is_empty())
                .unwrap_or("TCP")
                .to_owned(),
            app_protocol: text(port, "appProtocol").to_owned(),
            node_port: number("nodePort").filter(|number| *number > 0),
        })
    };
    list(child(service, "spec"), "ports").iter().filter_map(one).collect()
}

/// The health check that a pod template's readiness probe amounts to for a Service; none where it has no probe that can be
/// made from outside, or where the Service does not lead to the port that is probed.
pub fn from_template(service: &Value, template: &Value) -> Option<HealthCheck> {
    let containers = list(child(template, "spec"), "containers");
    containers.iter().find_map(|container| from_container(service, container))
}

fn from_container(service: &Value, container: &Value) -> Option<HealthCheck> {
    let probe = container.get("readinessProbe")?;
    let (kind, protocol) = match () {
        () if probe.get("httpGet").is_some_and(Value::is_object) => {
            let secure = text(child(probe, "httpGet"), "scheme") == "HTTPS";
            ("httpGet", if secure { ProbeProtocol::Https } else { ProbeProtocol::Http })
        }
        () if probe.get("grpc").is_some_and(Value::is_object) => ("grpc", ProbeProtocol::Grpc),
        () if probe.get("tcpSocket").is_some_and(Value::is_object) => ("tcpSocket", ProbeProtocol::Tcp),
        () => return None,
    };
    let action = child(probe, kind);
    let port = service_port(service, container, action.get("port")?)?;
    let given = |key: &str| Some(text(action, key)).filter(|value| !value.is_empty()).map(str::to_owned);
    let http = kind == "httpGet";
    Some(HealthCheck {
        protocol,
        port: Some(IntOrString::Int(port)),
        path: if http { given("path").or_else(|| Some("/".to_owned())) } else { None },
        host: if http { host_header(action).or_else(|| given("host")) } else { None },
        expected_statuses: if http { vec!["200-399".to_owned()] } else { Vec::new() },
        grpc_service: if kind == "grpc" { given("service") } else { None },
        ..defaults()
    })
}

/// A check as the API server fills it in: what is written must be what is read again. A readiness probe's own period and
/// thresholds are made for a kubelet, not for a failover.
fn defaults() -> HealthCheck {
    HealthCheck {
        interval_ms: Some(1_000),
        timeout_ms: Some(800),
        down_threshold: Some(3),
        up_threshold: Some(2),
        ..HealthCheck::default()
    }
}

fn host_header(action: &Value) -> Option<String> {
    let headers = list(action, "httpHeaders").iter();
    let host = headers.into_iter().find(|header| text(header, "name").eq_ignore_ascii_case("host"))?;
    Some(text(host, "value").to_owned()).filter(|value| !value.is_empty())
}

/// The Service's port that leads to a port of a container, which may be given by its name.
fn service_port(service: &Value, container: &Value, probed: &Value) -> Option<i32> {
    let declared = |name: &str| {
        let port = list(container, "ports").iter().find(|port| text(port, "name") == name)?;
        port.get("containerPort").and_then(Value::as_i64)
    };
    let number = |port: &Value| match port {
        Value::String(name) => declared(name),
        Value::Number(number) => number.as_i64(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let probed = number(probed)?;
    let leads = |port: &&Value| {
        let target = port.get("targetPort").filter(|target| !target.is_null()).or_else(|| port.get("port"));
        target.and_then(number) == Some(probed)
    };
    let port = list(child(service, "spec"), "ports").iter().find(leads)?;
    port.get("port").and_then(Value::as_i64).and_then(|port| i32::try_from(port).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn readiness_probes_become_health_checks() {
        let service = json!({"spec": {"ports": [
            {"name": "web", "port": 80, "protocol": "TCP", "targetPort": "http", "nodePort": 30080},
            {"name": "rpc", "port": 9000, "targetPort": 9001},
            {"name": "dns", "port": 53, "protocol": "UDP"},
        ]}});
        let check = |probe: Value| {
            let template = json!({"spec": {"containers": [{"name": "sidecar"}, {
                "ports": [{"name": "http", "containerPort": 8080}], "readinessProbe": probe,
            }]}});
            let check = from_template(&service, &template)?;
            assert_eq!((check.interval_ms, check.down_threshold), (Some(1000), Some(3)));
            let bare = HealthCheck {
                interval_ms: None,
                timeout_ms: None,
                down_threshold: None,
                up_threshold: None,
                ..check
            };
            serde_json::to_value(bare).ok()
        };
        for (probe, expected) in [
            (
                json!({"httpGet": {"path": "/ready", "port": "http", "httpHeaders": [{"name": "Host", "value": "a.example"}]}}),
                Some(
                    json!({"protocol": "HTTP", "port": 80, "path": "/ready", "host": "a.example", "expectedStatuses": ["200-399"]}),
                ),
            ),
            (
                json!({"httpGet": {"port": 8080, "scheme": "HTTPS"}}),
                Some(json!({"protocol": "HTTPS", "port": 80, "path": "/", "expectedStatuses": ["200-399"]})),
            ),
            (
                json!({"grpc": {"port": 9001, "service": "x"}}),
                Some(json!({"protocol": "GRPC", "port": 9000, "grpcService": "x"})),
            ),
            (json!({"tcpSocket": {"port": 53}}), Some(json!({"protocol": "TCP", "port": 53}))),
            (json!({"tcpSocket": {"port": 8081}}), None),
            (json!({"tcpSocket": {"port": "unknown"}}), None),
            (json!({"exec": {"command": ["true"]}}), None),
            (json!(7), None),
        ] {
            assert_eq!(check(probe.clone()), expected, "{probe}");
        }
        let ports = ports(&service);
        let told: Vec<String> =
            ports.iter().map(|p| format!("{} {} {} {:?}", p.name, p.port, p.protocol, p.node_port)).collect();
        assert_eq!(told, ["web 80 TCP Some(30080)", "rpc 9000 TCP None", "dns 53 UDP None"]);
    }
}
