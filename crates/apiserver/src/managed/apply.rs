//! Server-side apply: merges a configuration into a live object and decides who owns what afterwards.

use landfall_api::schema::Struct;
use landfall_api::status::{Reason, Status};
use landfall_api::{meta, schema};
use serde_json::{Map, Value};

use super::compare::{Made, compare};
use super::conflict::{self, Conflict};
use super::element::equal_values;
use super::entries::{self, Entry, Managed, Operation};
use super::last_applied;
use super::merge::merge;
use super::named::with_named_fields;
use super::remove::{drop_nulls, remove};
use super::set::Set;
use super::update::{retain_known_versions, update};
use super::walk::{field_set, validate};
use super::{Writer, strip_set};

/// The owner of what was there before the first apply of an object whose owners are not known.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager that takes over from `kubectl apply` without `--server-side`.
const KUBECTL: &str = "kubectl";

/// The object after applying `applied` to `live` (none: it is created), with its managedFields.
///
/// Fields that this manager applied before, applies no longer and nobody else owns are removed. Fields that
/// others own with other values are conflicts, unless `force` takes them. Defaults are not filled in here.
pub fn apply(
    schema: &Struct,
    live: Option<&Value>,
    applied: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, Status> {
    let managed = Managed::decode(live.and_then(entries::raw))
        .map_err(|why| unknown(format!("failed to decode managed fields: {why}")))?;
    check_applied(schema, applied, writer)?;
    let mut old = live.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    entries::take(&mut old);
    let managed = before_first_apply(schema, live.is_some(), &old, managed, writer);
    let apply = Apply { schema, live: &old, applied, writer };
    let done = match apply.run(managed.clone(), force) {
        Err(Refused::Conflicts(conflicts)) if writer.manager == KUBECTL => {
            let left = last_applied::unresolved(schema, &old, conflicts, writer.api_version);
            if left.is_empty() { apply.run(managed, true) } else { Err(Refused::Conflicts(left)) }
        }
        other => other,
    };
    let (object, managed) = done.map_err(Refused::into_status)?;
    let mut object = object.unwrap_or(old);
    if writer.manager == KUBECTL {
        last_applied::refresh(&mut object, applied);
    }
    managed.encode(&mut object);
    Ok(object)
}

/// 500 without a reason, as Kubernetes answers where it did not expect an error.
fn unknown(message: String) -> Status {
    Status::new(Reason::Unknown, message)
}

fn check_applied(schema: &schema::Struct, applied: &Value, writer: &Writer<'_>) -> Result<(), Status> {
    let text = |key: &str| applied.get(key).and_then(Value::as_str).unwrap_or("");
    let (version, kind) = (text("apiVersion"), text("kind"));
    if version != writer.api_version || kind != writer.kind {
        return Err(Status::bad_request(format!("invalid object type: {}", type_name(version, kind))));
    }
    if entries::raw(applied).is_some() {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    validate(schema, applied).map_err(|why| {
        let (namespace, name) = (meta::namespace(applied), meta::name(applied));
        let what = type_name(version, kind);
        unknown(format!("failed to create typed patch object ({namespace}/{name}; {what}): {why}"))
    })
}

/// `apps/v1, Kind=Deployment`, and `/v1, Kind=Service` in the core group.
fn type_name(version: &str, kind: &str) -> String {
    let slash = if version.contains('/') { "" } else { "/" };
    format!("{slash}{version}, Kind={kind}")
}

/// An object whose owners are not known gets one for all that it has.
fn before_first_apply(
    schema: &Struct,
    exists: bool,
    live: &Value,
    mut managed: Managed,
    writer: &Writer<'_>,
) -> Managed {
    if exists && managed.entries.is_empty() {
        let before = Writer { manager: BEFORE_FIRST_APPLY, ..*writer };
        update(schema, None, live, &mut managed, &before);
    }
    managed
}

enum Refused {
    Conflicts(Vec<Conflict>),
    Broken(String),
}

impl Refused {
    fn into_status(self) -> Status {
        match self {
            Self::Conflicts(conflicts) => conflict::status(conflicts),
            Self::Broken(why) => unknown(why),
        }
    }
}

struct Apply<'a> {
    schema: &'a Struct,
    live: &'a Value,
    applied: &'a Value,
    writer: &'a Writer<'a>,
}

impl Apply<'_> {
    /// The new object (none when nothing changes) and its owners.
    fn run(&self, mut managed: Managed, force: bool) -> Result<(Option<Value>, Managed), Refused> {
        retain_known_versions(self.schema, &mut managed, self.writer);
        let merged = merge(self.schema, self.live, self.applied)
            .map_err(|why| Refused::Broken(format!("failed to merge config: {why}")))?;
        let owner = self.writer.owner(Operation::Apply);
        let last = managed.remove(&owner);
        let set = field_set(self.schema, self.applied).recursive_difference(self.writer.reset);
        let time = last.as_ref().and_then(|entry| entry.time.clone());
        managed.entries.push(Entry { owner, time, set });
        let mut new = match &last {
            Some(last) if !last.set.is_empty() => self.prune(merged, &managed, &last.set),
            _ => merged,
        };
        self.take_over(&new, &mut managed, force)?;
        let changed = !equal_values(self.live, &new);
        self.finish_entry(&mut managed, changed);
        drop_nulls(self.schema, &mut new);
        Ok((changed.then_some(new), managed))
    }

    /// Takes what changes from its owners, or says who they are.
    fn take_over(&self, new: &Value, managed: &mut Managed, force: bool) -> Result<(), Refused> {
        let own = self.writer.owner(Operation::Apply);
        let delta = compare(self.schema, Some(self.live), new, Made::Merged).without(self.writer.reset);
        let changed = delta.modified.union(&delta.added);
        let others = || managed.entries.iter().filter(|entry| !entry.owner.same(&own));
        let conflicts: Vec<Conflict> = others()
            .map(|entry| Conflict { owner: entry.owner.clone(), set: entry.set.intersection(&changed) })
            .filter(|conflict| !conflict.set.is_empty())
            .collect();
        if !force && !conflicts.is_empty() {
            return Err(Refused::Conflicts(conflicts));
        }
        for entry in managed.entries.iter_mut().filter(|entry| !entry.owner.same(&own)) {
            entry.set = entry.set.difference(&changed).difference(&delta.removed);
        }
        managed.entries.retain(|entry| !entry.set.is_empty());
        Ok(())
    }

    fn finish_entry(&self, managed: &mut Managed, changed: bool) {
        let owner = self.writer.owner(Operation::Apply);
        let Some(mut entry) = managed.remove(&owner) else { return };
        entry.set = entry.set.difference(strip_set());
        if changed {
            entry.time = Some(self.writer.now.to_owned());
        }
        if !entry.set.is_empty() {
            managed.entries.push(entry);
        }
    }

    /// Removes what this manager applied last time and no longer applies, if nobody else owns it.
    fn prune(&self, merged: Value, managed: &Managed, last: &Set) -> Value {
        let schema = self.schema;
        let paths = |object: &Value| with_named_fields(schema, &field_set(schema, object));
        let last = with_named_fields(schema, last);
        let pruned = paths(&remove(schema, merged.clone(), &last));
        let owned = managed.entries.iter().fold(Set::EMPTY, |all, entry| all.union(&entry.set));
        let kept = pruned.union(&with_named_fields(schema, &owned));
        let all = paths(&merged);
        // What is left over after owned paths came back; and of that, only what was ours.
        let pruned = paths(&remove(schema, merged.clone(), &all.difference(&kept)));
        remove(schema, merged, &all.difference(&pruned).intersection(&last))
    }
}
