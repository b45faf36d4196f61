//! What members are owed of objects that are gone from the hub: kept in ConfigMaps, the *books* of a cluster, so that it survives
//! every hub.
//!
//! An object is let go only after its debts are written; a debt is struck out when the member has been seen without the
//! shard, or with one that is not ours, or when the cluster is forgotten.
//!
//! The books of a cluster are `owed-CLUSTER`, `owed2-CLUSTER`, `owed3-CLUSTER`, …: one object of Kubernetes has an end, and what a
//! dead cluster is owed has none. A debt goes into the first book with room, and is struck out of every book that has it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use landfall_api::landfall::SYSTEM_NAMESPACE;
use landfall_plan::hash;
use landfall_plan::propagation::Debt;
use parking_lot::RwLock;
use serde_json::{Map, Value, json};

use crate::client::{Ask, Trouble, ask, ask_json};
use crate::kinds::Kinds;
use crate::shelf::Key;

/// What the names of these ConfigMaps begin with.
const PREFIX: &str = "owed";
/// The book that a cluster's debts begin with.
const FIRST: u32 = 1;
/// Most debts in one book: with the longest names and what the API notes of each, a book stays below a MiB.
const BOOK_MAX: usize = 1_000;
/// The longest key that a ConfigMap's data may have.
const ENTRY_CHARS_MAX: usize = 253;
const TIMEOUT: Duration = Duration::from_secs(10);

/// One of the ConfigMaps with what a cluster is owed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Book {
    /// The cluster.
    pub cluster: String,
    /// Which of its books.
    pub number: u32,
}

impl Book {
    /// The book that a ConfigMap is, if it is one.
    pub fn of(key: &Key) -> Option<Self> {
        let name = key.name.strip_prefix(PREFIX).filter(|_| &*key.namespace == SYSTEM_NAMESPACE)?;
        let (number, cluster) = name.split_once('-')?;
        let number = if number.is_empty() { FIRST } else { number.parse().ok().filter(|n| *n > FIRST)? };
        Some(Self { cluster: cluster.to_owned(), number })
    }

    fn name(&self) -> String {
        let number = if self.number == FIRST { String::new() } else { self.number.to_string() };
        format!("{PREFIX}{number}-{}", self.cluster)
    }

    fn path(&self) -> String {
        format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{}", self.name())
    }
}

/// What the books of one cluster say.
type Shelf = BTreeMap<u32, BTreeMap<Key, Debt>>;

/// All debts, as the hub's ConfigMaps tell them.
#[derive(Debug, Default)]
pub struct Debts {
    owed: RwLock<BTreeMap<String, Shelf>>,
}

impl Debts {
    /// Takes over what a book says now; none when it is gone. Gives the objects it says something new of.
    pub fn load(&self, book: &Book, map: Option<&Value>, kinds: &Kinds) -> Vec<Key> {
        let data = map.and_then(|map| map.get("data")).and_then(Value::as_object);
        let read = |(name, value): (&String, &Value)| read_entry(name, value.as_str()?, kinds);
        let debts: BTreeMap<Key, Debt> = data.into_iter().flatten().filter_map(read).collect();
        let mut owed = self.owed.write();
        let books = owed.entry(book.cluster.clone()).or_default();
        let before = books.remove(&book.number).unwrap_or_default();
        let new = |(key, debt): &(&Key, &Debt)| before.get(*key) != Some(*debt);
        let keys = debts.iter().filter(new).map(|(key, _)| key.clone()).collect();
        if !debts.is_empty() {
            books.insert(book.number, debts);
        }
        if books.is_empty() {
            owed.remove(&book.cluster);
        }
        keys
    }

    /// What is owed of one object: cluster and debt.
    pub fn of(&self, key: &Key) -> Vec<(String, Debt)> {
        let owed = self.owed.read();
        let of = |(cluster, books): (&String, &Shelf)| {
            Some((cluster.clone(), books.values().find_map(|debts| debts.get(key))?.clone()))
        };
        owed.iter().filter_map(of).collect()
    }

    /// Every object of which something is owed.
    pub fn keys(&self) -> BTreeSet<Key> {
        let owed = self.owed.read();
        owed.values().flat_map(BTreeMap::values).flat_map(|debts| debts.keys().cloned()).collect()
    }

    /// How many debts a cluster has.
    pub fn count(&self, cluster: &str) -> usize {
        self.owed.read().get(cluster).map_or(0, |books| books.values().map(BTreeMap::len).sum())
    }

    /// Where a debt is written: where it stands, or else the first book with room.
    fn place(&self, cluster: &str, key: &Key) -> Book {
        let owed = self.owed.read();
        let full = |number: u32| {
            let book = owed.get(cluster).and_then(|books| books.get(&number));
            book.is_some_and(|debts| debts.len() >= BOOK_MAX)
        };
        let stands =
            owed.get(cluster).and_then(|books| books.iter().find(|(_, debts)| debts.contains_key(key)));
        let number = match stands {
            Some((number, _)) => *number,
            None => (FIRST..).find(|number| !full(*number)).expect("a cluster has fewer books than numbers"),
        };
        Book { cluster: cluster.to_owned(), number }
    }

    /// Notes what was written, before the hub's watch tells it.
    fn note(&self, book: &Book, key: &Key, debt: &Debt) {
        let mut owed = self.owed.write();
        let books = owed.entry(book.cluster.clone()).or_default();
        books.entry(book.number).or_default().insert(key.clone(), debt.clone());
    }

    /// A cluster's books that say something of an object, or, without one, all of them and the first.
    fn books(&self, cluster: &str, key: Option<&Key>) -> Vec<Book> {
        let owed = self.owed.read();
        let books = owed.get(cluster).into_iter().flatten();
        let those = books.filter(|(_, debts)| key.is_none_or(|key| debts.contains_key(key)));
        let mut numbers: BTreeSet<u32> = those.map(|(number, _)| *number).collect();
        if key.is_none() {
            numbers.insert(FIRST);
        }
        numbers.into_iter().map(|number| Book { cluster: cluster.to_owned(), number }).collect()
    }
}

/// Writes a debt down, or strikes it out.
pub async fn write(
    client: &kube::Client,
    (debts, kinds): (&Debts, &Kinds),
    cluster: &str,
    key: &Key,
    debt: Option<&Debt>,
) -> Result<(), Trouble> {
    let Some(debt) = debt else {
        let entry = Map::from_iter([(entry_name(key, kinds), Value::Null)]);
        for book in debts.books(cluster, Some(key)) {
            strike(client, &book, &entry).await?;
        }
        return Ok(());
    };
    let book = debts.place(cluster, key);
    let entry = Map::from_iter([(entry_name(key, kinds), write_debt(key, debt, kinds))]);
    let path = book.path();
    let request = Ask::with(Method::PATCH, &path, "application/merge-patch+json", &json!({"data": entry}));
    match ask_json(client, request, TIMEOUT).await {
        Ok(_) => {}
        // The first debt of the book.
        Err(trouble) if trouble.code() == Some(404) => {
            let metadata = json!({"name": book.name()});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": entry});
            let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps");
            ask(client, Ask::with(Method::POST, &path, "application/json", &map), TIMEOUT).await?;
        }
        Err(trouble) => return Err(trouble),
    }
    debts.note(&book, key, debt);
    Ok(())
}

/// Strikes something out of a book.
async fn strike(client: &kube::Client, book: &Book, entry: &Map<String, Value>) -> Result<(), Trouble> {
    let path = book.path();
    let request = Ask::with(Method::PATCH, &path, "application/merge-patch+json", &json!({"data": entry}));
    match ask_json(client, request, TIMEOUT).await {
        Ok(map) => sweep(client, &path, &map).await,
        Err(trouble) if trouble.code() == Some(404) => Ok(()),
        Err(trouble) => Err(trouble),
    }
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
pub async fn forgive(client: &kube::Client, debts: &Debts, cluster: &str) -> Result<(), Trouble> {
    for book in debts.books(cluster, None) {
        match ask(client, Ask::new(Method::DELETE, &book.path()), TIMEOUT).await {
            Err(trouble) if trouble.code() != Some(404) => return Err(trouble),
            _ => {}
        }
    }
    Ok(())
}

/// What a debt is called in its book: the object, or a number made of it where that is too long.
fn entry_name(key: &Key, kinds: &Kinds) -> String {
    let whole = write_key(key, kinds);
    if whole.len() <= ENTRY_CHARS_MAX {
        whole
    } else {
        format!("long.{:016x}", hash::bytes(whole.as_bytes()))
    }
}

fn read_entry(name: &str, text: &str, kinds: &Kinds) -> Option<(Key, Debt)> {
    let value: Value = serde_json::from_str(text).ok()?;
    let whole = value.get("of").and_then(Value::as_str).unwrap_or(name);
    Some((read_key(whole, kinds)?, read_debt(&value)?))
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

fn write_debt(key: &Key, debt: &Debt, kinds: &Kinds) -> Value {
    let mut text = match debt {
        Debt::Apply => json!({"do": "Apply"}),
        Debt::Delete { uid: Some(uid) } => json!({"do": "Delete", "uid": uid}),
        Debt::Delete { uid: None } => json!({"do": "Delete"}),
        Debt::Orphan => json!({"do": "Orphan"}),
    };
    let whole = write_key(key, kinds);
    if whole.len() > ENTRY_CHARS_MAX {
        text["of"] = whole.into();
    }
    text.to_string().into()
}

fn read_debt(value: &Value) -> Option<Debt> {
    match value.get("do")?.as_str()? {
        "Delete" => Some(Debt::Delete { uid: value.get("uid").and_then(Value::as_str).map(str::to_owned) }),
        "Orphan" => Some(Debt::Orphan),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the hub takes in one object.
    const OBJECT_BYTES_MAX: usize = 1 << 20;

    fn key(kinds: &Kinds, (group, kind): (&str, &str), namespace: &str, name: &str) -> Key {
        Key { kind: kinds.find(group, kind).unwrap().id, namespace: namespace.into(), name: name.into() }
    }

    fn book(cluster: &str, number: u32) -> Book {
        Book { cluster: cluster.into(), number }
    }

    #[test]
    fn debts_are_read_as_they_were_written() {
        let kinds = Kinds::default();
        let long = "x".repeat(253);
        let debts = [
            (key(&kinds, ("apps", "Deployment"), "shop", "web.x"), Debt::Delete { uid: Some("u".into()) }),
            (key(&kinds, ("", "ConfigMap"), "shop", &long), Debt::Delete { uid: None }),
            (key(&kinds, ("", "Namespace"), "", "web"), Debt::Orphan),
        ];
        let entry = |(key, debt): &(Key, Debt)| (entry_name(key, &kinds), write_debt(key, debt, &kinds));
        let mut data: Map<String, Value> = debts.iter().map(entry).collect();
        assert!(data.keys().all(|name| name.len() <= ENTRY_CHARS_MAX));
        data.insert("nonsense".into(), "{}".into());
        let all = Debts::default();
        let east = book("east", 1);
        assert_eq!(all.load(&east, Some(&json!({"data": data})), &kinds).len(), 3);
        assert_eq!(all.load(&east, Some(&json!({"data": data})), &kinds), [], "nothing new");
        for (key, debt) in debts {
            assert_eq!(all.of(&key), [("east".to_owned(), debt)]);
        }
        all.load(&east, None, &kinds);
        assert_eq!((all.keys().len(), all.count("east")), (0, 0));
    }

    #[test]
    fn books_are_known_by_their_names() {
        let kinds = Kinds::default();
        let read = |namespace: &str, name: &str| Book::of(&key(&kinds, ("", "ConfigMap"), namespace, name));
        for expected in [book("east", 1), book("east-2", 1), book("east", 2), book("east-2", 12)] {
            assert_eq!(read(SYSTEM_NAMESPACE, &expected.name()), Some(expected));
        }
        for name in ["owed", "owed1-east", "owed0-east", "owedx-east", "regions"] {
            assert_eq!(read(SYSTEM_NAMESPACE, name), None, "{name}");
        }
        assert_eq!(read("default", "owed-east"), None);
    }

    /// A cluster that was dead while 10,000 objects were deleted had more written down than fits into one ConfigMap, and
    /// nothing could be deleted any more.
    #[test]
    fn thousands_of_debts_fit_into_books_that_the_hub_takes() {
        let kinds = Kinds::default();
        let debts = Debts::default();
        let debt = Debt::Delete { uid: Some("0".repeat(36)) };
        let name = |at: usize| format!("{at:05}.{}", "x".repeat(247));
        let keys: Vec<Key> =
            (0..10_000).map(|at| key(&kinds, ("", "ConfigMap"), &"n".repeat(63), &name(at))).collect();
        let mut books: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        for key in &keys {
            let book = debts.place("east", key);
            debts.note(&book, key, &debt);
            let entry = (entry_name(key, &kinds), write_debt(key, &debt, &kinds));
            books.entry(book.name()).or_default().extend([entry]);
        }
        assert_eq!((debts.count("east"), books.len()), (10_000, 10));
        for (name, data) in &books {
            // The API notes the owner of every entry beside it.
            let owners: usize = data.keys().map(|entry| entry.len() + r#""f:":{},"#.len()).sum();
            let bytes = json!({"data": data}).to_string().len() + owners;
            assert!(bytes < OBJECT_BYTES_MAX, "{name}: {bytes} bytes");
        }
        // What stands somewhere stays there, and a book with room again is used again.
        assert_eq!(debts.place("east", &keys[9_999]), book("east", 10));
        debts.load(&book("east", 3), None, &kinds);
        assert_eq!(debts.place("east", &key(&kinds, ("", "ConfigMap"), "n", "new")), book("east", 3));
        assert_eq!(debts.books("east", Some(&keys[0])), [book("east", 1)]);
        assert_eq!((debts.books("east", None).len(), debts.books("west", None)), (9, vec![book("west", 1)]));
    }
}
