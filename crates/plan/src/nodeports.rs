//! Node ports: an Ingress that is the same in every cluster needs its Services' node ports to be the same everywhere.
//!
//! A port that the user gave is used as it is. Where none is given and an Ingress needs one, one is chosen by a hash, so that
//! every hub chooses the same, and another one when a member says that it is taken there.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::hash::fnv1_32;

/// The annotation of a Service that says how often a node port was chosen for it: a refusal adds one.
pub const ANNOTATION: &str = "landfall.dev/node-port-choice";

/// Kubernetes' range for node ports.
const FIRST: u32 = 30_000;
const COUNT: u32 = 2_768;

/// Whether a Service has ports that want a node port and have none.
pub fn lacks(service: &Value) -> bool {
    let kind = service.pointer("/spec/type").and_then(Value::as_str);
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    let lacking = |port: &Value| port.get("nodePort").and_then(Value::as_u64).unwrap_or(0) == 0;
    matches!(kind, Some("NodePort" | "LoadBalancer")) && ports.is_some_and(|ports| ports.iter().any(lacking))
}

/// The Services that an Ingress sends to.
pub fn backends(ingress: &Value) -> BTreeSet<&str> {
    fn service(backend: &Value) -> Option<&str> {
        backend.get("service")?.get("name")?.as_str()
    }
    let rules = ingress.pointer("/spec/rules").and_then(Value::as_array).into_iter().flatten();
    let paths = rules.filter_map(|rule| rule.pointer("/http/paths")?.as_array()).flatten();
    let own = ingress.pointer("/spec/defaultBackend");
    paths.filter_map(|path| path.get("backend")).chain(own).filter_map(service).collect()
}

/// The node ports of a Service.
pub fn used(service: &Value) -> Vec<u32> {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
    let number = |port: &Value| u32::try_from(port.get("nodePort")?.as_u64()?).ok();
    ports.filter_map(number).collect()
}

/// The ports of a Service with a node port each: those given, and chosen ones that nobody has. `choice` is how often was
/// chosen before. None when there is none left.
pub fn choose(key: &str, service: &Value, taken: &BTreeSet<u32>, choice: u32) -> Option<Value> {
    let mut taken = taken.clone();
    let mut ports = service.pointer("/spec/ports")?.as_array()?.clone();
    taken.extend(used(service));
    for port in &mut ports {
        let map = port.as_object_mut()?;
        if map.get("nodePort").and_then(Value::as_u64).unwrap_or(0) != 0 {
            continue;
        }
        let number = map.get("port").map(ToString::to_string).unwrap_or_default();
        let protocol = map.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
        let start = fnv1_32(&[key, "/", &number, protocol, &choice.to_string()]);
        let free = (0..COUNT)
            .map(|step| FIRST + start.wrapping_add(step) % COUNT)
            .find(|port| !taken.contains(port))?;
        taken.insert(free);
        map.insert("nodePort".to_owned(), free.into());
    }
    Some(ports.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn given_ports_stay_and_chosen_ones_are_free() {
        let service = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80}, {"port": 443, "nodePort": 30443}]}});
        assert!(lacks(&service));
        let first = choose("shop/web", &service, &BTreeSet::new(), 0).unwrap();
        assert_eq!(first[1]["nodePort"], 30443);
        let port = u32::try_from(first[0]["nodePort"].as_u64().unwrap()).unwrap();
        assert!((30_000..32_768).contains(&port));
        assert_eq!(
            choose("shop/web", &service, &BTreeSet::new(), 0),
            Some(first.clone()),
            "the same every time"
        );
        assert_ne!(choose("shop/web", &service, &BTreeSet::from([port]), 0), Some(first.clone()));
        assert_ne!(choose("shop/web", &service, &BTreeSet::new(), 1), Some(first));
        let all: BTreeSet<u32> = (30_000..32_768).collect();
        assert_eq!(choose("shop/web", &service, &all, 0), None);
        assert!(!lacks(&json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80}]}})));
    }

    #[test]
    fn backends_of_every_rule() {
        let backend = |name: &str| json!({"service": {"name": name, "port": {"number": 80}}});
        let ingress = json!({"spec": {
            "defaultBackend": backend("a"),
            "rules": [{"http": {"paths": [{"backend": backend("b")}, {"backend": {"resource": {}}}]}}, {"host": "x"}],
        }});
        assert_eq!(backends(&ingress), BTreeSet::from(["a", "b"]));
        assert!(backends(&json!({})).is_empty());
    }
}
