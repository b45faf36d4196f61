//! The doors that are wanted, kept up as Services and slices change: a change costs what its own Service costs, however many
//! others there are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;

use landfall_api::meta;
use serde_json::Value;

use super::plan::{self, Door, SERVICE_NAME, Target};

/// Ports below this one may have to move, and so depend on other doors of their address.
const LOW_PORTS: u16 = 1024;

/// All doors, and whose they are. Services are known as `namespace/name`.
#[derive(Default)]
pub(super) struct Doors {
    services: HashMap<String, Parts>,
    /// The Service that each slice belongs to, by the slice's key.
    slices: HashMap<Arc<str>, String>,
    /// Who wants each door. The first by name gets it.
    claims: BTreeMap<Door, BTreeMap<String, Target>>,
}

/// What one Service's doors are made from.
#[derive(Default)]
struct Parts {
    service: Option<Arc<Value>>,
    slices: BTreeMap<Arc<str>, Arc<Value>>,
    doors: Vec<Door>,
}

impl Doors {
    /// Takes a change in; gives the doors that may have changed with it.
    pub(super) fn change(
        &mut self,
        key: &Arc<str>,
        object: Option<Arc<Value>>,
        nodes: &[(String, Ipv4Addr)],
    ) -> BTreeSet<Door> {
        let touched = match key.strip_prefix("core/services/") {
            Some(name) => {
                self.services.entry(name.to_owned()).or_default().service = object;
                BTreeSet::from([name.to_owned()])
            }
            None => self.change_slice(key, object),
        };
        let changed: BTreeSet<Door> = touched.iter().flat_map(|name| self.claim(name, nodes)).collect();
        let low = changed.iter().flat_map(|door| self.low(*door)).collect::<Vec<_>>();
        changed.into_iter().chain(low).collect()
    }

    fn change_slice(&mut self, key: &Arc<str>, object: Option<Arc<Value>>) -> BTreeSet<String> {
        let mut touched = BTreeSet::new();
        if let Some(before) = self.slices.remove(key) {
            if let Some(parts) = self.services.get_mut(&before) {
                parts.slices.remove(key);
            }
            touched.insert(before);
        }
        let now = object.and_then(|slice| {
            let service = meta::label(&slice, SERVICE_NAME)?;
            Some((format!("{}/{service}", meta::namespace(&slice)), slice))
        });
        if let Some((service, slice)) = now {
            self.slices.insert(key.clone(), service.clone());
            self.services.entry(service.clone()).or_default().slices.insert(key.clone(), slice);
            touched.insert(service);
        }
        touched
    }

    /// Makes a Service's claims anew; gives the doors that it claims or claimed, where that makes a difference.
    fn claim(&mut self, name: &str, nodes: &[(String, Ipv4Addr)]) -> Vec<Door> {
        let Some(parts) = self.services.get_mut(name) else { return Vec::new() };
        let wanted = plan::plan(&parts.service, parts.slices.values(), nodes);
        let before = std::mem::replace(&mut parts.doors, wanted.keys().copied().collect());
        if parts.service.is_none() && parts.slices.is_empty() {
            self.services.remove(name);
        }
        let mut changed = Vec::new();
        for door in before.into_iter().filter(|door| !wanted.contains_key(door)) {
            changed.push(door);
            let claims = self.claims.get_mut(&door);
            if claims.is_some_and(|claims| claims.remove(name).is_some() && claims.is_empty()) {
                self.claims.remove(&door);
            }
        }
        for (door, target) in wanted {
            let claims = self.claims.entry(door).or_default();
            if claims.get(name) != Some(&target) {
                claims.insert(name.to_owned(), target);
                changed.push(door);
            }
        }
        changed
    }

    /// The low doors of the same address: where they are may depend on this one.
    fn low(&self, door: Door) -> impl Iterator<Item = Door> + use<'_> {
        let at = |port: u16| Door { at: (door.at.ip(), port).into(), ..door };
        let doors = self.claims.range(at(0)..at(LOW_PORTS)).map(|(low, _)| *low);
        doors.filter(move |low| low.at.ip() == door.at.ip())
    }

    /// Where a door leads.
    pub(super) fn get(&self, door: Door) -> Option<&Target> {
        self.claims.get(&door).and_then(|claims| claims.values().next())
    }

    /// All doors.
    pub(super) fn all(&self) -> impl Iterator<Item = Door> + use<'_> {
        self.claims.keys().copied()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.claims.len()
    }

    /// A Service.
    pub(super) fn service(&self, name: &str) -> Option<&Arc<Value>> {
        self.services.get(name)?.service.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str, address: &str) -> Arc<Value> {
        Arc::new(json!({"metadata": {"name": name, "namespace": "a"}, "spec": {"clusterIP": address,
            "ports": [{"port": 80, "protocol": "TCP"}]}}))
    }

    fn slice(service: &str, address: &str) -> Arc<Value> {
        Arc::new(json!({"metadata": {"namespace": "a", "labels": {SERVICE_NAME: service}},
            "ports": [{"port": 8080, "protocol": "TCP"}], "endpoints": [{"addresses": [address]}]}))
    }

    /// Doors as `address>service endpoints`.
    fn shown(doors: &Doors) -> Vec<String> {
        let one = |door: Door| {
            let target = doors.get(door).unwrap();
            format!("{}>{} {:?}", door.at, target.service, target.endpoints)
        };
        doors.all().map(one).collect()
    }

    #[test]
    fn each_change_tells_which_doors_it_touches() {
        let mut doors = Doors::default();
        let mut change = |key: &str, object: Option<Arc<Value>>| {
            let touched = doors.change(&key.into(), object, &[]);
            (touched.iter().map(|door| door.at.to_string()).collect::<Vec<_>>().join(" "), shown(&doors))
        };
        let (touched, _) = change("core/services/a/x", Some(service("x", "127.1.0.1")));
        assert_eq!(touched, "127.1.0.1:80");
        assert_eq!(change("core/services/a/y", Some(service("y", "127.1.0.2"))).0, "127.1.0.2:80");
        let key = "discovery.k8s.io/endpointslices/a/s";
        let (touched, now) = change(key, Some(slice("x", "127.2.0.1")));
        assert_eq!(touched, "127.1.0.1:80");
        assert_eq!(now, ["127.1.0.1:80>a/x [127.2.0.1:8080]", "127.1.0.2:80>a/y []"]);
        assert_eq!(change(key, Some(slice("x", "127.2.0.1"))).0, "", "nothing is different");
        let (touched, now) = change(key, Some(slice("y", "127.2.0.1")));
        assert_eq!(touched, "127.1.0.1:80 127.1.0.2:80");
        assert_eq!(now, ["127.1.0.1:80>a/x []", "127.1.0.2:80>a/y [127.2.0.1:8080]"]);
        // Two want the same door: the first by name has it, and the other when that is gone.
        let (_, now) = change("core/services/a/z", Some(service("z", "127.1.0.1")));
        assert_eq!(now.len(), 2);
        assert_eq!(change("core/services/a/x", None).1[0], "127.1.0.1:80>a/z []");
        assert_eq!(change(key, None).0, "127.1.0.2:80");
        change("core/services/a/y", None);
        assert_eq!(change("core/services/a/z", None).1, Vec::<String>::new());
        assert!(doors.services.is_empty() && doors.slices.is_empty());
    }
}
