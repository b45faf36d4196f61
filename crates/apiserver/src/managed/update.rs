//! Ownership after a create, an update or a patch other than apply.

use landfall_api::meta;
use landfall_api::schema::{ListType, Struct};
use serde_json::{Map, Value};

use super::compare::{Made, compare};
use super::element::encode_field;
use super::entries::{self, Entry, Managed, Operation};
use super::named;
use super::set::Set;
use super::shape::{Atom, Fields, Place, empty_object, item_element};
use super::{Writer, strip_set};

/// Gives the fields that changed from `old` to `new` to the writer, and takes them from the other owners.
///
/// Clients may send managedFields themselves: those of `new` count when they can be read, those of `old`
/// otherwise; `[]` and `[{}]` forget them all, after which updates are not tracked until the next apply.
pub fn track_update(schema: &Struct, old: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    let sent = entries::take(new);
    let creating = old.is_none_or(|old| meta::uid(old).is_empty());
    if old.is_none() && sent.as_ref().is_none_or(entries::is_reset) {
        return track_create(schema, new, writer);
    }
    let mut managed = current(old, sent.as_ref(), writer);
    if managed.entries.is_empty() && !creating {
        return;
    }
    update(schema, old, new, &mut managed, writer);
    managed.cap();
    managed.encode(new);
}

fn current(old: Option<&Value>, sent: Option<&Value>, writer: &Writer<'_>) -> Managed {
    let live = || Managed::decode(old.and_then(entries::raw)).unwrap_or_default();
    match sent {
        _ if !writer.subresource.is_empty() => live(),
        Some(list) if entries::is_reset(list) => Managed::default(),
        Some(list) => match Managed::decode(Some(list)) {
            Ok(managed) if !managed.entries.is_empty() => managed,
            _ => live(),
        },
        None => live(),
    }
}

/// Moves what changed to the writer's entry; its time changes only when it gains something.
pub(super) fn update(
    schema: &Struct,
    old: Option<&Value>,
    new: &Value,
    managed: &mut Managed,
    writer: &Writer<'_>,
) {
    retain_known_versions(schema, managed, writer);
    let delta = compare(schema, old, new, Made::Whole).without(writer.reset);
    if delta.is_empty() {
        return;
    }
    let gained = delta.modified.union(&delta.added);
    for entry in &mut managed.entries {
        entry.set = entry.set.difference(&gained).difference(&delta.removed);
    }
    managed.entries.retain(|entry| !entry.set.is_empty());
    let gained = gained.difference(strip_set());
    if gained.is_empty() {
        return;
    }
    let owner = writer.owner(Operation::Update);
    let time = Some(writer.now.to_owned());
    match managed.find(&owner) {
        Some(entry) => {
            entry.set = gained.union(&entry.set);
            entry.time = time;
        }
        None => managed.entries.push(Entry { owner, time, set: gained }),
    }
}

/// Forgets owners in versions of other groups, and fits the rest to the schema of today.
pub(super) fn retain_known_versions(schema: &Struct, managed: &mut Managed, writer: &Writer<'_>) {
    let group = |version: &str| version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
    let own = group(writer.api_version);
    managed.entries.retain(|entry| group(&entry.owner.api_version) == own);
    for entry in &mut managed.entries {
        if let Some(set) = named::reconcile(schema, &entry.set) {
            entry.set = set;
        }
    }
}

/// The fast way for a new object without owners: its fields are written as FieldsV1 in one walk.
fn track_create(schema: &Struct, new: &mut Value, writer: &Writer<'_>) {
    let Value::Object(object) = &*new else { return };
    let mut out = Map::new();
    let root = Fields::Struct(schema);
    for (key, value) in object {
        if matches!(key.as_str(), "apiVersion" | "kind") {
            continue;
        }
        let reset = writer.reset.get_field(key);
        if reset.is_some_and(|node| node.member) {
            continue;
        }
        let skip = if key == "metadata" { strip_set().get_field(key) } else { None };
        let (member, mut below) =
            added(root.place_or_deduced(key), value, root.absent(key), Skip(reset.map(|n| &n.below)));
        if let Some(strip) = skip {
            strip.below.nodes().filter_map(|node| node.element.name()).for_each(|name| {
                below.remove(&encode_field(name));
            });
        }
        push(&mut out, encode_field(key), member && skip.is_none(), below);
    }
    if !out.is_empty() {
        let owner = writer.owner(Operation::Update);
        let entry = entries::encode_entry(owner, Some(writer.now.to_owned()), Value::Object(out));
        entries::put(new, vec![entry]);
    }
}

/// Paths that are left out, with all below them.
#[derive(Clone, Copy)]
struct Skip<'a>(Option<&'a Set>);

impl<'a> Skip<'a> {
    const NOTHING: Self = Skip(None);

    fn whole(self, name: &str) -> bool {
        self.0.and_then(|set| set.get_field(name)).is_some_and(|node| node.member)
    }
    fn below(self, name: &str) -> Self {
        Skip(self.0.and_then(|set| set.get_field(name)).map(|node| &node.below))
    }
}

fn push(out: &mut Map<String, Value>, key: String, member: bool, mut below: Map<String, Value>) {
    if below.is_empty() && !member {
        return;
    }
    if member && !below.is_empty() {
        below.insert(".".into(), Value::Object(Map::new()));
    }
    out.insert(key, Value::Object(below));
}

/// What `value` adds to `before` (nothing, or what an empty object has there): the same answer as
/// [`compare`] gives, as FieldsV1.
fn added(
    place: Place<'_>,
    value: &Value,
    before: Option<&Value>,
    skip: Skip<'_>,
) -> (bool, Map<String, Value>) {
    let leaf = || (before.is_none_or(|before| before != value), Map::new());
    match place.atom(Some(value)) {
        Atom::Scalar => leaf(),
        Atom::List(items) => match value {
            Value::Array(values) if !values.is_empty() => match items.associative() {
                Some(list) => (before.is_none(), added_items(list, values)),
                None => leaf(),
            },
            _ => leaf(),
        },
        Atom::Map(fields) if fields.atomic() => leaf(),
        Atom::Map(fields) => {
            let map = value.as_object();
            // Compared with nothing, or with an object of the same kind that has nothing written.
            let bare = |there: bool| !there || fields.implied().next().is_none();
            let existed = before.is_some_and(Value::is_object);
            if map.is_none_or(Map::is_empty) && bare(existed) && bare(map.is_some()) {
                return leaf();
            }
            (before.is_none(), map.map_or_else(Map::new, |map| added_fields(fields, map, before, skip)))
        }
    }
}

fn added_fields(
    fields: Fields<'_>,
    map: &Map<String, Value>,
    before: Option<&Value>,
    skip: Skip<'_>,
) -> Map<String, Value> {
    let mut out = Map::new();
    let existed = before.is_some_and(Value::is_object);
    for (key, value) in map {
        if skip.whole(key) {
            continue;
        }
        let (place, absent) = fields.find(key);
        let (member, below) = added(place, value, absent.filter(|_| existed), skip.below(key));
        push(&mut out, encode_field(key), member, below);
    }
    if !existed {
        for field in fields.implied().filter(|field| !map.contains_key(&*field.name)) {
            let (member, below) = added(Place::Type(&field.ty), empty_object(), None, Skip::NOTHING);
            push(&mut out, encode_field(&field.name), member, below);
        }
    }
    out
}

fn added_items(list: &ListType, values: &[Value]) -> Map<String, Value> {
    let mut out = Map::new();
    let mut twice: Vec<String> = Vec::new();
    for value in values {
        let Ok(element) = item_element(list, value) else { continue };
        let key = element.encode();
        if out.contains_key(&key) {
            twice.push(key);
            continue;
        }
        let (_, below) = added(Place::Type(&list.item), value, None, Skip::NOTHING);
        push(&mut out, key, true, below);
    }
    // Items that are there twice are owned by their key alone.
    for key in twice {
        out.insert(key, Value::Object(Map::new()));
    }
    out
}
