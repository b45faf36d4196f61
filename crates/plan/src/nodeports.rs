//! Node ports: an Ingress that is the same in every cluster needs its Services' node ports to be the same everywhere.
//!
//! A port that the user gave is used as it is. Where none is given and an Ingress needs one, one is chosen by a hash, so that
//! every hub chooses the same, and another one when a member says that it is taken there.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::hash::fnv1_32;

/// The annotation of a Service that says how often node ports were chosen for it, and which: `2:31234,31235`. A refusal
/// adds one.
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

/// How often was chosen, and what.
pub fn read_choice(text: &str) -> (u32, BTreeSet<u32>) {
    let (count, ports) = text.split_once(':').unwrap_or((text, ""));
    (count.parse().unwrap_or(0), ports.split(',').filter_map(|port| port.parse().ok()).collect())
}

/// Writes how often was chosen, and what was chosen now: what the Service did not have before.
pub fn write_choice(count: u32, before: &Value, ports: &Value) -> String {
    let had = used(before);
    let all = ports.as_array().into_iter().flatten();
    let new = all
        .filter_map(|port| u32::try_from(port.get("nodePort")?.as_u64()?).ok())
        .filter(|port| !had.contains(port));
    format!("{count}:{}", new.map(|port| port.to_string()).collect::<Vec<_>>().join(","))
}

/// The Service without node ports that were chosen for it.
pub fn without(service: &Value, chosen: &BTreeSet<u32>) -> Value {
    let mut bare = service.clone();
    let ports = bare.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten();
    for port in ports.filter_map(Value::as_object_mut) {
        let number =
            port.get("nodePort").and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
        if number.is_some_and(|number| chosen.contains(&number)) {
            port.remove("nodePort");
        }
    }
    bare
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
        // What was chosen can be taken back; what was given cannot.
        let given = json!({"spec": {"ports": choose("shop/web", &service, &BTreeSet::new(), 0).unwrap()}});
        let (count, chosen) = read_choice(&write_choice(1, &service, &given["spec"]["ports"]));
        assert_eq!((count, chosen.len()), (1, 1));
        assert_eq!(used(&without(&given, &chosen)), [30443]);
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
