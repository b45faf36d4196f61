//! Garbage collection: objects go when all their owners are gone.
//!
//! Reads:      owners and dependents, at the source
//! Decides:    [`super::plan`]
//! Writes:     deletes; `metadata.ownerReferences` and `metadata.finalizers` of what it lets go
//! Wakes on:   an owner gone, a dependent new, changed or gone, a deletion that waits
//! Guarantees: never deletes an object that has an owner which is there and stays; safe to run twice at once
//! Limits:     one piece of work per object at a time

use std::sync::Arc;

use landfall_api::{Reason, Status, meta};
use serde_json::Value;

use super::client::{Delete, ObjectClient, Part, Place, Propagation, Resource};
use super::graph::{FOREGROUND, Graph, ORPHAN, Owner, Uid, owners, waits_for_dependents};
use super::plan::{self, Action, Below, Found, OwnerAction};
use super::queue::Outcome;

/// Looks at one object that has owners.
pub async fn dependent(client: &dyn ObjectClient, place: Place, uid: Uid, below: Below) -> Outcome {
    let object = match current(client, &place, &uid).await {
        Ok(Some(object)) => object,
        Ok(None) => return Outcome::Done,
        Err(status) => return failed(&status),
    };
    let resources = client.resources();
    let mut found = Vec::new();
    for owner in owners(&object) {
        match look_up(client, &resources, &owner, &place).await {
            Ok(state) => found.push((owner, state)),
            Err(Unclear::Never(why)) => {
                tracing::warn!(%place, owner = %owner.name, why, "an owner cannot be judged; nothing is collected");
                return Outcome::Done;
            }
            Err(Unclear::Later(status)) => return failed(&status),
        }
    }
    match plan::dependent(&object, &found, below) {
        Action::Keep(_) => Outcome::Done,
        Action::Release(uids) => match plan::without_owners(&object, &uids) {
            Some(released) => outcome(client.update(place, released, Part::Main).await),
            None => Outcome::Done,
        },
        Action::Delete { unblock: true, .. } if plan::unblocked(&object).is_some() => {
            let unblocked = plan::unblocked(&object).unwrap_or_default();
            // The change is seen and looked at again, and then there is nothing left to unblock.
            outcome(client.update(place, unblocked, Part::Main).await)
        }
        Action::Delete { propagation, reason, .. } => {
            tracing::info!(%place, ?propagation, reason, "collected");
            delete(client, place, &object, propagation).await
        }
    }
}

/// What the graph knows around an object whose deletion waits.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// Its dependents, and whether they block it.
    pub dependents: Vec<(Uid, Place, bool)>,
    /// See [`Graph::is_orphaning`].
    pub orphaning: bool,
}

/// Looks at one object whose deletion waits for its dependents.
pub async fn owner(client: &dyn ObjectClient, place: Place, uid: Uid, around: Around) -> Outcome {
    let object = match current(client, &place, &uid).await {
        Ok(Some(object)) => object,
        Ok(None) => return Outcome::Done,
        Err(status) => return failed(&status),
    };
    let blocked = around.dependents.iter().any(|(_, _, blocks)| *blocks);
    let finalizer = match plan::owner(&object, blocked, around.orphaning) {
        OwnerAction::Keep | OwnerAction::Wait => return Outcome::Done,
        OwnerAction::Finish => FOREGROUND,
        OwnerAction::Orphan => {
            for (dependent, place, _) in around.dependents {
                if let Err(status) = let_go(client, place, &dependent, &uid).await {
                    return failed(&status);
                }
            }
            ORPHAN
        }
    };
    match plan::without_finalizer(&object, finalizer) {
        Some(freed) => outcome(client.update(place, freed, Part::Main).await),
        None => Outcome::Done,
    }
}

/// What [`owner`] must know of the graph.
pub fn around(graph: &Graph, uid: &str) -> Around {
    Around { dependents: graph.dependents(uid), orphaning: graph.is_orphaning(uid) }
}

/// What [`dependent`] must know of the graph.
pub fn below(graph: &Graph, uid: &str) -> Below {
    let dependents = graph.dependents(uid);
    Below { any: !dependents.is_empty(), waiting: dependents.iter().any(|(uid, ..)| graph.is_waiting(uid)) }
}

async fn let_go(client: &dyn ObjectClient, place: Place, dependent: &Uid, owner: &Uid) -> Result<(), Status> {
    let Some(object) = current(client, &place, dependent).await? else { return Ok(()) };
    match plan::without_owners(&object, &[owner.to_string()]) {
        Some(released) => unless_gone(client.update(place, released, Part::Main).await),
        None => Ok(()),
    }
}

/// Why an owner's state is not known.
enum Unclear {
    /// It will never be.
    Never(&'static str),
    /// It may be, later.
    Later(Status),
}

async fn look_up(
    client: &dyn ObjectClient,
    resources: &[Resource],
    owner: &Owner,
    dependent: &Place,
) -> Result<Found, Unclear> {
    let Some(resource) = resources.iter().find(|r| r.group == owner.group && r.kind == owner.kind) else {
        // A kind that is not served may come back (a definition applied again): not the same as an absent owner.
        let message = format!("no kind {:?} is served in group {:?}", owner.kind, owner.group);
        return Err(Unclear::Later(Status::new(Reason::NotFound, message)));
    };
    if resource.namespaced && dependent.namespace.is_empty() {
        return Err(Unclear::Never("it is namespaced, and the dependent is not"));
    }
    let namespace = if resource.namespaced { &*dependent.namespace } else { "" };
    let place = Place::new(&resource.group, &resource.plural, namespace, &owner.name);
    Ok(match current(client, &place, &owner.uid).await.map_err(Unclear::Later)? {
        // A kind that stopped being served meanwhile looks like an absent object, and says nothing.
        None if !client.resources().contains(resource) => {
            return Err(Unclear::Later(Status::new(
                Reason::NotFound,
                "the owner's kind is no longer served",
            )));
        }
        None => Found::Absent,
        Some(object) if waits_for_dependents(&object) => Found::Waiting,
        Some(_) => Found::Alive,
    })
}

/// The object at a place, if it is there and is the one meant.
async fn current(client: &dyn ObjectClient, place: &Place, uid: &str) -> Result<Option<Arc<Value>>, Status> {
    match client.get(place.clone()).await {
        Ok(object) => Ok(Some(object).filter(|object| meta::uid(object) == uid)),
        Err(status) if status.reason == Reason::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}

async fn delete(
    client: &dyn ObjectClient,
    place: Place,
    object: &Value,
    propagation: Propagation,
) -> Outcome {
    let how = Delete {
        uid: meta::uid(object).into(),
        resource_version: meta::resource_version(object).to_owned(),
        propagation,
    };
    outcome(client.delete(place, how).await)
}

pub(super) fn failed(status: &Status) -> Outcome {
    Outcome::Failed(status.message.clone())
}

pub(super) fn outcome(result: Result<(), Status>) -> Outcome {
    match unless_gone(result) {
        Ok(()) => Outcome::Done,
        Err(status) => failed(&status),
    }
}

/// Something that is gone already needs no more work.
pub(super) fn unless_gone(result: Result<(), Status>) -> Result<(), Status> {
    match result {
        Err(status) if status.reason == Reason::NotFound => Ok(()),
        result => result,
    }
}
