//! Definitions of kinds: which names they get, and how one takes its objects with it.
//!
//! Reads:      CustomResourceDefinitions; the objects of a deleting one
//! Decides:    [`crate::crd::settle`]
//! Writes:     `status` of definitions; deletes of custom objects; at last the cleanup finalizer
//! Wakes on:   a definition new, changed or gone; an object of a deleting one gone, and every 5 s
//! Guarantees: never deletes objects of a built-in kind; the finalizer goes only when no object is left

use std::time::Duration;

use landfall_api::{Kind, Status, meta};
use serde_json::Value;

use super::client::{Delete, ObjectClient, Part, Place, Propagation};
use super::gc::{failed, outcome, unless_gone};
use super::plan::without_finalizer;
use super::queue::Outcome;
use crate::crd::{self, FINALIZER, GROUP, PLURAL, Taken, names, status};

/// How long to wait before looking again at what remains.
const RECHECK: Duration = Duration::from_secs(5);

/// Where a definition is.
pub fn place(name: &str) -> Place {
    Place::new(GROUP, PLURAL, "", name)
}

/// Looks at one definition. `now` is the time in RFC 3339.
pub async fn reconcile(client: &dyn ObjectClient, name: &str, builtin: &[Kind], now: &str) -> Outcome {
    let definition = match client.get(place(name)).await {
        Ok(definition) => definition,
        Err(status) => return outcome(Err(status)),
    };
    if meta::deleting(&definition) {
        return clean_up(client, &definition, builtin, now).await;
    }
    if crd::is_settled(&definition) {
        return Outcome::Done;
    }
    let all = match client.list(GROUP, PLURAL, "").await {
        Ok(all) => all,
        Err(status) => return failed(&status),
    };
    let taken = Taken::around(&definition, all.iter().map(|d| &**d), builtin.iter());
    match crd::settle(&definition, &taken, now) {
        Some(settled) => outcome(client.update(place(name), settled, Part::Status).await),
        None => Outcome::Done,
    }
}

async fn clean_up(client: &dyn ObjectClient, definition: &Value, builtin: &[Kind], now: &str) -> Outcome {
    if !meta::finalizers(definition).any(|f| f == FINALIZER) {
        return Outcome::Done;
    }
    let name = meta::name(definition);
    let (group, plural) = names(definition);
    let overlaps = builtin.iter().any(|kind| kind.group == group && kind.plural == plural);
    if !overlaps && status::is_true(definition, "Established") {
        let mut marked = definition.clone();
        let why = ("InstanceDeletionInProgress", "CustomResource deletion is in progress");
        status::set_condition(&mut marked, "Terminating", "True", why, now);
        if marked != *definition {
            // The change is seen, and the work goes on from there.
            return outcome(client.update(place(name), marked, Part::Status).await);
        }
        match delete_all(client, group, plural).await {
            Ok(0) => {}
            Ok(_) => return Outcome::Again(RECHECK),
            Err(status) => return failed(&status),
        }
    }
    match without_finalizer(definition, FINALIZER) {
        Some(freed) => outcome(client.update(place(name), freed, Part::Main).await),
        None => Outcome::Done,
    }
}

/// Tells all objects of a kind to go; how many are left.
async fn delete_all(client: &dyn ObjectClient, group: &str, plural: &str) -> Result<usize, Status> {
    for object in client.list(group, plural, "").await? {
        if meta::deleting(&object) {
            continue;
        }
        let place = Place::new(group, plural, meta::namespace(&object), meta::name(&object));
        let how = Delete {
            uid: meta::uid(&object).into(),
            resource_version: String::new(),
            propagation: Propagation::Background,
        };
        unless_gone(client.delete(place, how).await)?;
    }
    Ok(client.list(group, plural, "").await?.len())
}
