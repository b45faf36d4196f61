//! Endpoints of services in members, read out of their EndpointSlices as these are heard.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use landfall_api::landfall::PlanPod;
use landfall_api::rules::read::{child, list, text};
use parking_lot::Mutex;
use serde_json::Value;

use crate::shelf::Key;

/// The label that names a slice's Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// So many pods of a service in one member are told.
const PODS_MAX: usize = 1_000;

/// What all members' slices say.
#[derive(Debug, Default)]
pub(super) struct Slices {
    inner: Mutex<HashMap<String, Member>>,
}

/// A Service: its namespace and name.
type Service = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
struct Member {
    /// By Service, then by slice, in the order of their names: mostly one, and there are as many of these as shards.
    services: HashMap<Service, Vec<(Arc<str>, Slice)>>,
    /// The Service of each slice.
    of: HashMap<Key, Service>,
}

/// What one slice says.
#[derive(Clone, Debug, Default, PartialEq)]
struct Slice {
    /// The ready ones: whom they belong to, their addresses and host name.
    ready: Vec<(String, Vec<String>, Option<String>)>,
}

/// The endpoints of one service in one member.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Endpoints {
    /// How many are ready.
    pub ready: u32,
    /// The pods, each with all its addresses.
    pub pods: Vec<PlanPod>,
}

impl Slices {
    /// Hears a slice, or that it is gone; gives the Services for which something is different.
    pub(super) fn hear(&self, member: &str, key: &Key, slice: Option<&Value>) -> Vec<Service> {
        let mut inner = self.inner.lock();
        let member = inner.entry(member.to_owned()).or_default();
        let owner = slice.and_then(|slice| {
            let name = child(child(slice, "metadata"), "labels").get(SERVICE_LABEL)?.as_str()?;
            Some((key.namespace.clone(), Arc::from(name)))
        });
        let mut news = Vec::new();
        let before = member.of.get(key).cloned();
        if let Some(before) = before.filter(|before| Some(before) != owner.as_ref()) {
            member.of.remove(key);
            if let Some(slices) = member.services.get_mut(&before) {
                slices.retain(|(name, _)| *name != key.name);
                if slices.is_empty() {
                    member.services.remove(&before);
                }
            }
            news.push(before);
        }
        if let (Some(owner), Some(slice)) = (owner, slice) {
            let slice = Slice::read(slice);
            let slices = member.services.entry(owner.clone()).or_default();
            match slices.binary_search_by(|(name, _)| name.cmp(&key.name)) {
                Ok(at) if slices[at].1 == slice => return news,
                Ok(at) => slices[at].1 = slice,
                Err(at) => {
                    slices.reserve_exact(1);
                    slices.insert(at, (key.name.clone(), slice));
                }
            }
            member.of.insert(key.clone(), owner.clone());
            news.push(owner);
        }
        news
    }

    /// Forgets members that are no more.
    pub(super) fn keep(&self, members: &BTreeSet<String>) {
        self.inner.lock().retain(|name, _| members.contains(name));
    }

    /// The endpoints of a Service in a member.
    pub(super) fn of(&self, member: &str, namespace: &str, name: &str) -> Endpoints {
        let inner = self.inner.lock();
        let service: Service = (namespace.into(), name.into());
        let Some(slices) = inner.get(member).and_then(|member| member.services.get(&service)) else {
            return Endpoints::default();
        };
        // With two families of addresses every pod is told twice; it counts once.
        let mut pods: BTreeMap<&str, PlanPod> = BTreeMap::new();
        for (owner, ips, hostname) in slices.iter().flat_map(|(_, slice)| &slice.ready) {
            let pod = pods.entry(owner).or_default();
            pod.hostname = pod.hostname.take().or_else(|| hostname.clone());
            pod.ips.extend(ips.iter().cloned());
            pod.ips.sort_unstable();
            pod.ips.dedup();
        }
        let ready = u32::try_from(pods.len()).unwrap_or(u32::MAX);
        Endpoints { ready, pods: pods.into_values().take(PODS_MAX).collect() }
    }
}

impl Slice {
    fn read(slice: &Value) -> Self {
        let family = text(slice, "addressType");
        let one = |endpoint: &Value| {
            let conditions = child(endpoint, "conditions");
            // Not to know is to be ready, as Kubernetes has it.
            if conditions.get("ready").and_then(Value::as_bool) == Some(false) || family == "FQDN" {
                return None;
            }
            let addresses = list(endpoint, "addresses").iter().filter_map(Value::as_str);
            let ips: Vec<String> = addresses.map(str::to_owned).collect();
            let owner = Some(text(child(endpoint, "targetRef"), "name")).filter(|name| !name.is_empty());
            let owner = owner.map_or_else(|| ips.first().cloned(), |name| Some(name.to_owned()))?;
            let hostname = Some(text(endpoint, "hostname")).filter(|name| !name.is_empty());
            Some((owner, ips, hostname.map(str::to_owned)))
        };
        let ready = list(slice, "endpoints").iter().filter_map(one).collect();
        Self { ready }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::SLICES;

    fn slice(service: &str, family: &str, endpoints: &Value) -> Value {
        json!({"metadata": {"labels": {SERVICE_LABEL: service}}, "addressType": family, "endpoints": endpoints})
    }

    fn key(name: &str) -> Key {
        Key { kind: SLICES, namespace: "shop".into(), name: name.into() }
    }

    #[test]
    fn pods_are_counted_once_and_only_when_ready() {
        let slices = Slices::default();
        let pod = |name: &str, ip: &str, ready: Value| json!({"addresses": [ip], "conditions": {"ready": ready}, "targetRef": {"name": name}, "hostname": name});
        let four = slice(
            "web",
            "IPv4",
            &json!([
                pod("a", "10.0.0.1", json!(true)),
                pod("b", "10.0.0.2", json!(false)),
                pod("c", "10.0.0.3", json!(null))
            ]),
        );
        let six = slice("web", "IPv6", &json!([pod("a", "fd00::1", json!(true))]));
        let web: Service = ("shop".into(), "web".into());
        assert_eq!(slices.hear("eu", &key("web-4"), Some(&four)), std::slice::from_ref(&web));
        assert_eq!(slices.hear("eu", &key("web-4"), Some(&four)), []);
        slices.hear("eu", &key("web-6"), Some(&six));
        let seen = slices.of("eu", "shop", "web");
        let told: Vec<String> =
            seen.pods.iter().map(|pod| format!("{:?} {}", pod.hostname, pod.ips.join(" "))).collect();
        assert_eq!(
            (seen.ready, told.join(", ").as_str()),
            (2, "Some(\"a\") 10.0.0.1 fd00::1, Some(\"c\") 10.0.0.3")
        );
        assert_eq!(slices.of("us", "shop", "web"), Endpoints::default());
        // It moves to another Service, and then goes.
        let moved = slice("api", "IPv4", &json!([]));
        assert_eq!(
            slices.hear("eu", &key("web-4"), Some(&moved)),
            [web.clone(), ("shop".into(), "api".into())]
        );
        assert_eq!(slices.hear("eu", &key("web-6"), None), [web]);
        assert_eq!(slices.of("eu", "shop", "web").ready, 0);
    }
}
