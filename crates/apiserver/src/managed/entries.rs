//! `metadata.managedFields`: who owns what, read from and written to an object.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::fields;
use super::set::Set;

/// More owners by update than this are merged into [`OLD_UPDATES`], oldest first.
const UPDATE_MANAGERS_MAX: usize = 10;
/// The manager that inherits the fields of the oldest updates.
const OLD_UPDATES: &str = "ancient-changes";

/// How an owner came to own its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By create, update or another patch.
    Update,
}

impl Operation {
    /// The text in an entry.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Who an entry belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The field manager's name.
    pub manager: String,
    /// How it wrote.
    pub operation: Operation,
    /// The version its paths are in. Appliers are the same owner in every version.
    pub api_version: String,
    /// The subresource it wrote through, or nothing.
    pub subresource: String,
}

impl Owner {
    /// Whether two entries belong to one owner.
    pub(super) fn same(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// `"kubectl" with subresource "status" using apps/v1`, as conflicts name it.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }

    /// The order of owners in messages, and of updates made in the same second.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let key = |o: &Self| (o.manager.clone(), o.operation, o.api_version.clone(), o.subresource.clone());
        key(self).cmp(&key(other))
    }
}

/// One owner, its paths, and when they last changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Who.
    pub owner: Owner,
    /// When, in RFC 3339 and UTC; entries may lack it.
    pub time: Option<String>,
    /// What.
    pub set: Set,
}

/// All owners of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Managed {
    /// The entries, one per owner.
    pub entries: Vec<Entry>,
}

/// The list in the object, if it is there and not `null`.
pub(super) fn raw(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields").filter(|list| !list.is_null())
}

/// Takes the list out of an object.
pub(super) fn take(object: &mut Value) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.remove("managedFields").filter(|list| !list.is_null())
}

/// Whether the list asks for ownership to be forgotten: `[]` or `[{}]`.
pub(super) fn is_reset(list: &Value) -> bool {
    match list.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(only)]) => only.is_empty(),
        _ => false,
    }
}

impl Managed {
    /// Reads a list of entries.
    pub(super) fn decode(list: Option<&Value>) -> Result<Self, String> {
        let mut managed = Self::default();
        let entries = match list {
            None | Some(Value::Null) => return Ok(managed),
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err("managedFields must be a list".into()),
        };
        for (at, entry) in entries.iter().enumerate() {
            let entry = decode_entry(at, entry)?;
            match managed.find(&entry.owner) {
                Some(found) => *found = entry,
                None => managed.entries.push(entry),
            }
        }
        Ok(managed)
    }

    /// Puts the entries into the object, sorted; without entries the list goes away.
    pub(super) fn encode(mut self, object: &mut Value) {
        if self.entries.is_empty() {
            take(object);
            return;
        }
        self.entries.sort_by(|p, q| {
            let (a, b) = (&p.owner, &q.owner);
            let time = || seconds(p).cmp(seconds(q));
            let name = || a.manager.cmp(&b.manager).then_with(|| a.api_version.cmp(&b.api_version));
            a.operation
                .cmp(&b.operation)
                .then_with(time)
                .then_with(name)
                .then_with(|| a.subresource.cmp(&b.subresource))
        });
        let list = self.entries.into_iter().map(|entry| {
            let fields = fields::encode(&entry.set);
            encode_entry(entry.owner, entry.time, fields)
        });
        put(object, list.collect());
    }

    /// The entry of that owner.
    pub(super) fn find(&mut self, owner: &Owner) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.owner.same(owner))
    }

    /// Removes and returns the entry of that owner.
    pub(super) fn remove(&mut self, owner: &Owner) -> Option<Entry> {
        let at = self.entries.iter().position(|entry| entry.owner.same(owner))?;
        Some(self.entries.swap_remove(at))
    }

    /// Merges the oldest updates of each version until there are few enough of them.
    pub(super) fn cap(&mut self) {
        let updates = self.entries.iter().filter(|entry| entry.owner.operation == Operation::Update);
        let mut oldest: Vec<(String, Owner)> =
            updates.map(|entry| (seconds(entry).to_owned(), entry.owner.clone())).collect();
        let mut left = oldest.len();
        oldest.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.order(&b.1)));
        let mut first: Vec<Owner> = Vec::new();
        for (_, owner) in oldest {
            if left <= UPDATE_MANAGERS_MAX {
                return;
            }
            match first.iter().position(|f| f.api_version == owner.api_version) {
                None => first.push(owner),
                Some(at) => {
                    first[at] = self.fold(&first[at], &owner);
                    left = left.saturating_sub(1);
                }
            }
        }
    }

    /// Moves two owners' fields to the bucket of their version; the newer one's time is the bucket's.
    fn fold(&mut self, older: &Owner, newer: &Owner) -> Owner {
        let bucket = Owner {
            manager: OLD_UPDATES.into(),
            operation: Operation::Update,
            api_version: newer.api_version.clone(),
            subresource: String::new(),
        };
        let (older, newer) = (self.remove(older), self.remove(newer));
        let rest = self.remove(&bucket);
        let time = newer.as_ref().and_then(|entry| entry.time.clone());
        let sets = [older, newer, rest].into_iter().flatten().map(|entry| entry.set);
        let set = sets.reduce(|a, b| a.union(&b)).unwrap_or_default();
        self.entries.push(Entry { owner: bucket.clone(), time, set });
        bucket
    }
}

fn seconds(entry: &Entry) -> &str {
    entry.time.as_deref().unwrap_or("")
}

fn text(entry: &Value, key: &str) -> String {
    entry.get(key).and_then(Value::as_str).unwrap_or("").to_owned()
}

fn decode_entry(at: usize, entry: &Value) -> Result<Entry, String> {
    let operation = match entry.get("operation").and_then(Value::as_str) {
        Some("Apply") => Operation::Apply,
        Some("Update") => Operation::Update,
        _ => return Err("operation must be `Apply` or `Update`".into()),
    };
    let api_version = text(entry, "apiVersion");
    if api_version.is_empty() {
        return Err("apiVersion must not be empty".into());
    }
    match text(entry, "fieldsType").as_str() {
        "FieldsV1" => {}
        "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
        other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {at}")),
    }
    let set = fields::decode(entry.get("fieldsV1").unwrap_or(&Value::Null))?;
    let owner = Owner {
        manager: text(entry, "manager"),
        operation,
        api_version,
        subresource: text(entry, "subresource"),
    };
    Ok(Entry { owner, time: entry.get("time").and_then(Value::as_str).and_then(utc), set })
}

/// The time in UTC and whole seconds, as Kubernetes writes it back.
fn utc(time: &str) -> Option<String> {
    if time.len() == 20 && time.ends_with('Z') {
        return Some(time.to_owned());
    }
    let parsed: jiff::Timestamp = time.parse().ok()?;
    Some(parsed.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// One entry as JSON.
pub(super) fn encode_entry(owner: Owner, time: Option<String>, fields: Value) -> Value {
    let mut entry = Map::new();
    let mut put = |key: &str, value: Value| entry.insert(key.into(), value);
    put("apiVersion", owner.api_version.into());
    put("fieldsType", "FieldsV1".into());
    put("fieldsV1", fields);
    if !owner.manager.is_empty() {
        put("manager", owner.manager.into());
    }
    put("operation", owner.operation.as_str().into());
    if !owner.subresource.is_empty() {
        put("subresource", owner.subresource.into());
    }
    if let Some(time) = time {
        put("time", time.into());
    }
    Value::Object(entry)
}

/// Puts a list of entries into an object; something that is not an object is left alone.
pub(super) fn put(object: &mut Value, list: Vec<Value>) {
    if object.is_object() {
        landfall_api::meta::metadata_mut(object).insert("managedFields".into(), Value::Array(list));
    }
}
