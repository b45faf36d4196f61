//! What members are owed of objects that are gone from the hub: kept in a ConfigMap per cluster, so that it survives every hub.
//!
//! An object is let go only after its debts are written; a debt is struck out when the member has been seen without the
//! shard, or with one that is not ours, or when the cluster is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use landfall_api::landfall::SYSTEM_NAMESPACE;
use landfall_plan::propagation::Debt;
use parking_lot::RwLock;
use serde_json::{Map, Value, json};

use crate::client::{Ask, Trouble, ask, ask_json};
use crate::kinds::Kinds;
use crate::shelf::Key;

/// What the names of these ConfigMaps begin with.
const PREFIX: &str = "owed-";
const TIMEOUT: Duration = Duration::from_secs(10);

/// All debts, as the hub's ConfigMaps tell them.
#[derive(Debug, Default)]
pub struct Debts {
    owed: RwLock<BTreeMap<String, BTreeMap<Key, Debt>>>,
}

impl Debts {
    /// The cluster whose debts a ConfigMap holds, if it holds some.
    pub fn cluster_of(key: &Key) -> Option<&str> {
        (&*key.namespace == SYSTEM_NAMESPACE).then(|| key.name.strip_prefix(PREFIX)).flatten()
    }

    /// Takes over what a ConfigMap says now; none when it is gone. Gives the objects it speaks of.
    pub fn load(&self, cluster: &str, map: Option<&Value>, kinds: &Kinds) -> Vec<Key> {
        let data = map.and_then(|map| map.get("data")).and_then(Value::as_object);
        let read =
            |(name, value): (&String, &Value)| Some((read_key(name, kinds)?, read_debt(value.as_str()?)?));
        let debts: BTreeMap<Key, Debt> = data.into_iter().flatten().filter_map(read).collect();
        let keys = debts.keys().cloned().collect();
        let mut owed = self.owed.write();
        if debts.is_empty() {
            owed.remove(cluster);
        } else {
            owed.insert(cluster.to_owned(), debts);
        }
        keys
    }

    /// What is owed of one object: cluster and debt.
    pub fn of(&self, key: &Key) -> Vec<(String, Debt)> {
        let owed = self.owed.read();
        let of = |(cluster, debts): (&String, &BTreeMap<Key, Debt>)| {
            Some((cluster.clone(), debts.get(key)?.clone()))
        };
        owed.iter().filter_map(of).collect()
    }

    /// Every object of which something is owed.
    pub fn keys(&self) -> BTreeSet<Key> {
        self.owed.read().values().flat_map(|debts| debts.keys().cloned()).collect()
    }

    /// How many debts a cluster has.
    pub fn count(&self, cluster: &str) -> usize {
        self.owed.read().get(cluster).map_or(0, BTreeMap::len)
    }
}

/// Writes a debt down, or strikes it out.
pub async fn write(
    client: &kube::Client,
    kinds: &Kinds,
    cluster: &str,
    key: &Key,
    debt: Option<&Debt>,
) -> Result<(), Trouble> {
    let entry = Map::from_iter([(write_key(key, kinds), debt.map_or(Value::Null, write_debt))]);
    let name = format!("{PREFIX}{cluster}");
    let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{name}");
    let patch = json!({"data": entry});
    let request = Ask::with(Method::PATCH, &path, "application/merge-patch+json", &patch);
    match (ask_json(client, request, TIMEOUT).await, debt) {
        (Ok(_), Some(_)) => return Ok(()),
        (Ok(map), None) => return sweep(client, &path, &map).await,
        (Err(trouble), None) if trouble.code() == Some(404) => return Ok(()),
        // The first debt of a cluster.
        (Err(trouble), Some(_)) if trouble.code() == Some(404) => {}
        (Err(trouble), _) => return Err(trouble),
    }
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": entry});
    let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps");
    ask(client, Ask::with(Method::POST, &path, "application/json", &map), TIMEOUT).await.map(drop)
}

/// Takes a ConfigMap away when nothing stands in it any more.
async fn sweep(client: &kube::Client, path: &str, map: &Value) -> Result<(), Trouble> {
    if map.get("data").and_then(Value::as_object).is_some_and(|data| !data.is_empty()) {
        return Ok(());
    }
    let version = map.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    let options = json!({"preconditions": {"resourceVersion": version}});
    match ask(client, Ask::with(Method::DELETE, path, "application/json", &options), TIMEOUT).await {
        // Somebody wrote a new debt meanwhile, or swept as well.
        Err(trouble) if !matches!(trouble.code(), Some(404 | 409)) => Err(trouble),
        _ => Ok(()),
    }
}

/// Forgets all that a cluster is owed.
pub async fn forgive(client: &kube::Client, cluster: &str) -> Result<(), Trouble> {
    let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{PREFIX}{cluster}");
    match ask(client, Ask::new(Method::DELETE, &path), TIMEOUT).await {
        Err(trouble) if trouble.code() != Some(404) => Err(trouble),
        _ => Ok(()),
    }
}

/// `Kind.group_namespace_name`: no name of Kubernetes has an underscore.
fn write_key(key: &Key, kinds: &Kinds) -> String {
    let row = kinds.get(key.kind);
    let group = if row.group.is_empty() { String::new() } else { format!(".{}", row.group) };
    format!("{}{group}_{}_{}", row.kind, key.namespace, key.name)
}

fn read_key(text: &str, kinds: &Kinds) -> Option<Key> {
    let mut parts = text.splitn(3, '_');
    let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
    let row = kinds.find(group, kind)?;
    Some(Key { kind: row.id, namespace: namespace.into(), name: name.into() })
}

fn write_debt(debt: &Debt) -> Value {
    let text = match debt {
        Debt::Apply => json!({"do": "Apply"}),
        Debt::Delete { uid: Some(uid) } => json!({"do": "Delete", "uid": uid}),
        Debt::Delete { uid: None } => json!({"do": "Delete"}),
        Debt::Orphan => json!({"do": "Orphan"}),
    };
    text.to_string().into()
}

fn read_debt(text: &str) -> Option<Debt> {
    let value: Value = serde_json::from_str(text).ok()?;
    match value.get("do")?.as_str()? {
        "Delete" => Some(Debt::Delete { uid: value.get("uid").and_then(Value::as_str).map(str::to_owned) }),
        "Orphan" => Some(Debt::Orphan),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debts_are_read_as_they_were_written() {
        let kinds = Kinds::default();
        let key = |group: &str, kind: &str, namespace: &str| Key {
            kind: kinds.find(group, kind).unwrap().id,
            namespace: namespace.into(),
            name: "web.x".into(),
        };
        let debts = [
            (key("apps", "Deployment", "shop"), Debt::Delete { uid: Some("u".into()) }),
            (key("", "Namespace", ""), Debt::Orphan),
        ];
        let entry = |(key, debt): &(Key, Debt)| (write_key(key, &kinds), write_debt(debt));
        let mut data: Map<String, Value> = debts.iter().map(entry).collect();
        data.insert("nonsense".into(), "{}".into());
        let all = Debts::default();
        assert_eq!(all.load("east", Some(&json!({"data": data})), &kinds).len(), 2);
        for (key, debt) in debts {
            assert_eq!(all.of(&key), [("east".to_owned(), debt)]);
        }
        all.load("east", None, &kinds);
        assert_eq!((all.keys().len(), all.count("east")), (0, 0));
    }
}
