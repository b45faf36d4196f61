//! What stands at the hub and concerns services: Ingresses, workloads and policies, by namespace.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use landfall_api::landfall::{HealthCheck, TrafficPolicy};
use landfall_api::rules::read::{child, list, text};
use landfall_api::selector::Selector;
use landfall_plan::traffic::probe;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::shelf::Key;

/// Everything, by namespace.
#[derive(Debug, Default)]
pub(super) struct Index {
    spaces: Mutex<HashMap<Arc<str>, Space>>,
}

#[derive(Debug, Default)]
struct Space {
    ingresses: BTreeMap<Key, Vec<Backend>>,
    workloads: BTreeMap<Key, Value>,
    policies: BTreeMap<Arc<str>, TrafficPolicy>,
}

/// One host of an Ingress, and the Service that it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Backend {
    service: String,
    host: Option<String>,
}

impl Index {
    /// Hears of an Ingress, or that it is gone; gives the names of Services for which something is different.
    pub(super) fn ingress(&self, key: &Key, object: Option<&Value>) -> Vec<String> {
        self.space(key, |space| {
            let now = object.map(backends).unwrap_or_default();
            let before = space.ingresses.insert(key.clone(), now.clone()).unwrap_or_default();
            if object.is_none() {
                space.ingresses.remove(key);
            }
            if before == now {
                return Vec::new();
            }
            let mut names: Vec<String> =
                before.into_iter().chain(now).map(|backend| backend.service).collect();
            names.sort_unstable();
            names.dedup();
            names
        })
    }

    /// Hears of a workload, or that it is gone; whether what probes could be made of is different.
    pub(super) fn workload(&self, key: &Key, object: Option<&Value>) -> bool {
        let now = object.and_then(essence);
        self.space(key, |space| match now {
            Some(now) => space.workloads.insert(key.clone(), now.clone()).as_ref() != Some(&now),
            None => space.workloads.remove(key).is_some(),
        })
    }

    /// Hears of a policy, or that it is gone.
    pub(super) fn policy(&self, key: &Key, object: Option<TrafficPolicy>) {
        self.space(key, |space| match object {
            Some(policy) => _ = space.policies.insert(key.name.clone(), policy),
            None => _ = space.policies.remove(&key.name),
        });
    }

    /// The hosts that lead to a Service, and the Ingresses that have them.
    pub(super) fn hosts(&self, service: &Key) -> (Vec<String>, Vec<Key>) {
        self.space(service, |space| {
            let mut hosts = Vec::new();
            let mut ingresses = Vec::new();
            for (key, backends) in &space.ingresses {
                let mine = backends.iter().filter(|backend| *backend.service == *service.name);
                hosts.extend(mine.clone().filter_map(|backend| backend.host.clone()));
                if mine.count() > 0 {
                    ingresses.push(key.clone());
                }
            }
            hosts.sort_unstable();
            hosts.dedup();
            (hosts, ingresses)
        })
    }

    /// The names of the Services that an Ingress leads to.
    pub(super) fn services(&self, ingress: &Key) -> Vec<String> {
        self.space(ingress, |space| {
            let backends = space.ingresses.get(ingress).into_iter().flatten();
            backends.map(|backend| backend.service.clone()).collect()
        })
    }

    /// The policies of a namespace.
    pub(super) fn policies(&self, of: &Key) -> Vec<TrafficPolicy> {
        self.space(of, |space| space.policies.values().cloned().collect())
    }

    /// The health check that the pods behind a Service suggest.
    pub(super) fn health_check(&self, key: &Key, service: &Value) -> Option<HealthCheck> {
        let selector = child(service, "spec")
            .get("selector")
            .filter(|map| map.as_object().is_some_and(|m| !m.is_empty()));
        let selector = Selector::from_map(Some(selector?));
        self.space(key, |space| {
            let templates = space.workloads.values().filter(|template| selector.matches_object(template));
            templates.filter_map(|template| probe::from_template(service, template)).next()
        })
    }

    fn space<T>(&self, key: &Key, with: impl FnOnce(&mut Space) -> T) -> T {
        with(self.spaces.lock().entry(key.namespace.clone()).or_default())
    }
}

fn backends(ingress: &Value) -> Vec<Backend> {
    let spec = child(ingress, "spec");
    let service = |backend: &Value| {
        let name = text(child(backend, "service"), "name");
        (!name.is_empty()).then(|| name.to_owned())
    };
    let mut all: Vec<Backend> = service(child(spec, "defaultBackend"))
        .map(|service| Backend { service, host: None })
        .into_iter()
        .collect();
    for rule in list(spec, "rules") {
        let host = Some(text(rule, "host")).filter(|host| !host.is_empty()).map(str::to_owned);
        let paths = list(child(rule, "http"), "paths").iter();
        let found = paths.filter_map(|path| service(child(path, "backend")));
        all.extend(found.map(|service| Backend { service, host: host.clone() }));
    }
    all
}

/// The labels of a workload's pods, and what says how these are probed; nothing where there is nothing to probe by.
fn essence(workload: &Value) -> Option<Value> {
    let template = child(child(workload, "spec"), "template");
    let containers = list(child(template, "spec"), "containers");
    if !containers.iter().any(|container| container.get("readinessProbe").is_some()) {
        return None;
    }
    let kept = |container: &Value| json!({"ports": child(container, "ports"), "readinessProbe": child(container, "readinessProbe")});
    let containers: Vec<Value> = containers.iter().map(kept).collect();
    let labels = child(child(template, "metadata"), "labels");
    Some(json!({"metadata": {"labels": labels}, "spec": {"containers": containers}}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kinds;

    fn key(kind: (&str, &str), name: &str) -> Key {
        let row = Kinds::default().find(kind.0, kind.1).expect("a kind");
        Key { kind: row.id, namespace: "shop".into(), name: name.into() }
    }

    #[test]
    fn hosts_lead_to_services() {
        let index = Index::default();
        let ingress = json!({"spec": {
            "defaultBackend": {"service": {"name": "rest"}},
            "rules": [
                {"host": "shop.example.com", "http": {"paths": [
                    {"backend": {"service": {"name": "web"}}}, {"backend": {"service": {"name": "api"}}},
                ]}},
                {"http": {"paths": [{"backend": {"service": {"name": "web"}}}, {"backend": {"resource": {}}}]}},
            ],
        }});
        let at = key(("networking.k8s.io", "Ingress"), "front");
        assert_eq!(index.ingress(&at, Some(&ingress)), ["api", "rest", "web"]);
        assert_eq!(index.ingress(&at, Some(&ingress)), Vec::<String>::new());
        let of = |name: &str| {
            let (hosts, ingresses) = index.hosts(&key(("", "Service"), name));
            (hosts.join(" "), ingresses.len())
        };
        assert_eq!(of("web"), ("shop.example.com".to_owned(), 1));
        assert_eq!(of("rest"), (String::new(), 1));
        assert_eq!(of("other"), (String::new(), 0));
        assert_eq!(index.ingress(&at, None), ["api", "rest", "web"]);
        assert_eq!(of("web"), (String::new(), 0));
    }

    #[test]
    fn probes_are_found_by_the_selector() {
        let index = Index::default();
        let workload = |path: &str, replicas: i32| {
            let probe = json!({"httpGet": {"path": path, "port": 8080}});
            json!({"spec": {"replicas": replicas, "template": {
                "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"readinessProbe": probe}]},
            }}})
        };
        let at = key(("apps", "Deployment"), "web");
        assert!(index.workload(&at, Some(&workload("/ready", 1))));
        assert!(!index.workload(&at, Some(&workload("/ready", 2))), "replicas are no news");
        let service = |app: &str| json!({"spec": {"selector": {"app": app}, "ports": [{"port": 80, "targetPort": 8080}]}});
        let path = |app: &str| {
            index.health_check(&key(("", "Service"), "web"), &service(app)).and_then(|check| check.path)
        };
        assert_eq!((path("web").as_deref(), path("api")), (Some("/ready"), None));
        assert!(index.workload(&at, None));
        assert_eq!(path("web"), None);
    }
}
