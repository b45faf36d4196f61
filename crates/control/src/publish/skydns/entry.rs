//! Names as keys, records as values: SkyDNS' format, written and read.

use std::net::IpAddr;

use landfall_plan::publish::{Found, Held, Set, Sets, Type, Wanted};
use landfall_plan::records::sets::{Data, Service};
use serde::{Deserialize, Serialize};

use super::Pair;

/// The last part of our keys; no host has such a label.
const OURS: &str = "_landfall";
/// How many names another name may lead through.
const HOPS_MAX: usize = 4;

/// One record, as SkyDNS has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Entry {
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    host: String,
    #[serde(skip_serializing_if = "is_zero")]
    port: i64,
    #[serde(skip_serializing_if = "is_zero")]
    priority: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
    #[serde(skip_serializing_if = "is_zero")]
    ttl: i64,
    #[serde(skip_serializing_if = "is_zero")]
    weight: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks it so")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Where a zone's keys are, and whose mark we set.
pub(super) struct Place {
    prefix: String,
    zone: String,
    mark: String,
}

impl Place {
    /// A zone under a prefix.
    pub(super) fn new(prefix: &str, zone: &str, mark: String) -> Self {
        let prefix = format!("/{}", prefix.trim_matches('/'));
        Self { prefix, zone: zone.trim_matches('.').to_ascii_lowercase(), mark }
    }

    /// What all keys of the zone begin with.
    pub(super) fn base(&self) -> String {
        format!("{}/", self.path(&self.zone))
    }

    fn path(&self, name: &str) -> String {
        let labels: Vec<&str> = name.rsplit('.').collect();
        format!("{}/{}", self.prefix, labels.join("/"))
    }

    /// The key and the value of a name's mark.
    pub(super) fn mark(&self, name: &str) -> (String, Vec<u8>) {
        let entry = Entry { text: self.mark.clone(), group: name.to_owned(), ..Entry::default() };
        (format!("{}/{OURS}", self.path(name)), serde_json::to_vec(&entry).unwrap_or_default())
    }

    /// The keys of a name's records.
    pub(super) fn keys(&self, name: &str, sets: &Sets) -> Vec<String> {
        let path = self.path(name);
        let keys = |(ty, set): (&Type, &Set)| {
            let word = word(*ty);
            let path = path.clone();
            (0..set.data.len()).map(move |at| format!("{path}/{OURS}-{word}-{at:04}"))
        };
        sets.iter().flat_map(keys).collect()
    }

    /// The keys and values of a name's records.
    pub(super) fn entries(&self, name: &str, sets: &Sets) -> Vec<Pair> {
        let entries = sets.values().flat_map(|set| {
            let ttl = i64::from(set.ttl_s);
            let host = |host: String| Entry { host, ttl, group: name.to_owned(), ..Entry::default() };
            match &set.data {
                Data::A(all) => all.iter().map(|ip| host(ip.to_string())).collect::<Vec<_>>(),
                Data::Aaaa(all) => all.iter().map(|ip| host(ip.to_string())).collect(),
                Data::Cname(to) => vec![host(to.clone())],
                Data::Srv(all) => {
                    all.iter().map(|service| srv(host(service.target.clone()), service)).collect()
                }
            }
        });
        let bytes = entries.map(|entry| serde_json::to_vec(&entry).unwrap_or_default());
        self.keys(name, sets).into_iter().zip(bytes).collect()
    }

    /// What is wanted, in records that SkyDNS can have: another name for ports is what that name has; priorities begin at one,
    /// because none means ten; a weight or a time of nothing means some other one. What is below a name that is somebody
    /// else's is left out.
    pub(super) fn fit(&self, wanted: &Wanted, found: &Found) -> Wanted {
        let ours = |held: &Held| held.owner.as_deref() == Some(&self.mark);
        let taken = |name: &str| wanted.contains_key(name) && found.get(name).is_some_and(|held| !ours(held));
        let below =
            |name: &str| name.match_indices('.').any(|(dot, _)| name.get(dot + 1..).is_some_and(taken));
        let mut fitting = Wanted::new();
        for (name, sets) in wanted {
            // An asterisk is a question there, not a name.
            if name.contains('*') || below(name) {
                continue;
            }
            let sets = if name.starts_with('_') && sets.contains_key(&Type::Cname) {
                ports(wanted, name).map(|set| Sets::from([(Type::Srv, set)])).unwrap_or_default()
            } else {
                sets.clone()
            };
            let sets: Sets = sets.into_iter().map(|(ty, set)| (ty, fit_set(set))).collect();
            if !sets.is_empty() {
                fitting.insert(name.clone(), sets);
            }
        }
        fitting
    }

    /// What the names of the zone have. What is not ours is not looked into: it is there, at its own name and at the one
    /// above, which is answered with it too.
    pub(super) fn read(&self, keys: &[Pair]) -> Found {
        let mut found = Found::new();
        for (key, value) in keys {
            let Some(path) = key.strip_prefix(&self.prefix).and_then(|path| path.strip_prefix('/')) else {
                continue;
            };
            let (above, last) = path.rsplit_once('/').unwrap_or(("", path));
            let entry = serde_json::from_slice::<Entry>(value).unwrap_or_default();
            match last.strip_prefix(OURS) {
                Some("") => found.entry(name(above)).or_default().owner = Some(entry.text),
                Some(rest) if rest.starts_with('-') => {
                    put(found.entry(name(above)).or_default(), rest, entry)
                }
                _ => {
                    found.entry(name(path)).or_default().others = true;
                    found.entry(name(above)).or_default().others = true;
                }
            }
        }
        found
    }
}

fn srv(entry: Entry, service: &Service) -> Entry {
    Entry {
        port: service.port.into(),
        priority: service.priority.into(),
        weight: service.weight.into(),
        ..entry
    }
}

fn put(held: &mut Held, rest: &str, entry: Entry) {
    let ty = [Type::A, Type::Aaaa, Type::Cname, Type::Srv].into_iter().find(|ty| {
        rest.get(1..).and_then(|rest| rest.strip_prefix(word(*ty))).is_some_and(|end| end.starts_with('-'))
    });
    let number = |number: i64| u16::try_from(number).unwrap_or(0);
    let data = match (ty, entry.host.parse::<IpAddr>()) {
        (Some(Type::A), Ok(IpAddr::V4(ip))) => Data::A(vec![ip]),
        (Some(Type::Aaaa), Ok(IpAddr::V6(ip))) => Data::Aaaa(vec![ip]),
        (Some(Type::Cname), _) => Data::Cname(entry.host),
        (Some(Type::Srv), _) => Data::Srv(vec![Service {
            priority: number(entry.priority),
            weight: number(entry.weight),
            port: number(entry.port),
            target: entry.host,
        }]),
        // Ours by its key, but not as we write it: it counts as different.
        _ => {
            held.others = true;
            return;
        }
    };
    let ttl_s = u32::try_from(entry.ttl).unwrap_or(0);
    match held.sets.get_mut(&data.of_type()) {
        None => drop(held.sets.insert(data.of_type(), Set { ttl_s, data })),
        Some(set) => {
            // Half of a set may be old: then none of it is what is wanted.
            set.ttl_s = if set.ttl_s == ttl_s { ttl_s } else { 0 };
            match (&mut set.data, data) {
                (Data::A(all), Data::A(more)) => all.extend(more),
                (Data::Aaaa(all), Data::Aaaa(more)) => all.extend(more),
                (Data::Srv(all), Data::Srv(more)) => all.extend(more),
                _ => held.others = true,
            }
        }
    }
}

fn word(ty: Type) -> &'static str {
    match ty {
        Type::A => "a",
        Type::Aaaa => "aaaa",
        Type::Cname => "cname",
        Type::Srv => "srv",
    }
}

fn name(path: &str) -> String {
    path.rsplit('/').collect::<Vec<_>>().join(".").to_ascii_lowercase()
}

/// What a name for ports leads to, in the end.
fn ports(wanted: &Wanted, name: &str) -> Option<Set> {
    let mut name = name.to_owned();
    for _ in 0..HOPS_MAX {
        let sets = wanted.get(&name)?;
        match sets.get(&Type::Cname).map(|set| &set.data) {
            Some(Data::Cname(to)) => name.clone_from(to),
            _ => return sets.get(&Type::Srv).cloned(),
        }
    }
    None
}

fn fit_set(mut set: Set) -> Set {
    set.ttl_s = set.ttl_s.max(1);
    if let Data::Srv(all) = &mut set.data {
        for service in all {
            service.priority = service.priority.saturating_add(1);
            service.weight = service.weight.max(1);
        }
    }
    set
}
