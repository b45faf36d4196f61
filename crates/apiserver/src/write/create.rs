//! Creating an object.

use landfall_api::field::ErrorList;
use landfall_api::{Kind, Reason, Scope, Status, meta, rules};
use landfall_store::{Entry, Error};
use serde_json::{Value, json};

use super::{By, Deed, Wanted, Written, hooks, imagined};
use crate::api::Api;
use crate::{encode, errors, keys};

/// How often a generated name is tried anew when it is taken, as in Kubernetes.
const NAME_TRIES_MAX: u32 = 8;

/// How many characters of a generateName are kept before the random suffix.
const PREFIX_CHARS_MAX: usize = 63 - SUFFIX_CHARS;
const SUFFIX_CHARS: usize = 5;

/// Characters of generated suffixes: no vowels, so that no words come out.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Creates `object` in `namespace` (empty for cluster-scoped kinds).
pub async fn create(
    api: &Api,
    kind: &Kind,
    namespace: &str,
    wanted: Wanted,
    by: &By<'_>,
) -> Result<Written, Status> {
    let Wanted { mut object, applied, mut warnings } = wanted;
    place(kind, namespace, &mut object)?;
    api.definition_accepts(kind)?;
    api.namespace_accepts(kind, namespace, meta::name(&object)).await?;
    let generated = generated_name(&object);
    let mut tries = 0;
    loop {
        tries += 1;
        // Only a generated name is tried twice, so only then is the object needed again.
        let mut attempt = match &generated {
            Some(prefix) => {
                meta::metadata_mut(&mut object)
                    .insert("name".into(), json!(suffixed(api, kind, namespace, prefix)));
                object.clone()
            }
            None => std::mem::take(&mut object),
        };
        let name = meta::name(&attempt).to_owned();
        let key = keys::object(&kind.stored_as.0, &kind.stored_as.1, namespace, &name);
        settle(api, kind, &key, &mut attempt, applied, by)?;
        warnings.extend(kind.rules.warnings(&attempt));
        if by.dry_run {
            let entry = dry(api, kind, namespace, &name, &attempt).await?;
            return Ok(Written { entry, deed: Deed::Created, warnings });
        }
        let bytes = encode::stored(kind, &attempt);
        match api.store.create(&key, bytes, kind_ttl(kind)).await {
            Ok(entry) => {
                still_wanted(api, kind, namespace, &entry).await?;
                hooks::after(api, kind, entry.revision).await;
                return Ok(Written { entry, deed: Deed::Created, warnings });
            }
            Err(Error::Exists(_)) if generated.is_some() && tries < NAME_TRIES_MAX => {}
            Err(Error::Exists(_)) if generated.is_some() => return Err(name_taken(kind, &name)),
            Err(error) => return Err(errors::of_object(&error, kind, &name)),
        }
    }
}

/// Takes a new object back if its namespace or definition began to go away before it was committed: whoever empties
/// them may have looked already. What begins after the commit finds the object.
pub(super) async fn still_wanted(
    api: &Api,
    kind: &Kind,
    namespace: &str,
    entry: &Entry,
) -> Result<(), Status> {
    if kind.scope == Scope::Cluster && kind.strategic {
        return Ok(());
    }
    let name = entry.key.rsplit('/').next().unwrap_or_default();
    if api.store.snapshot().revision() < entry.revision {
        api.store.barrier().await.map_err(|e| errors::general(&e))?;
    }
    let accepted = match api.definition_accepts(kind) {
        Ok(()) => api.namespace_accepts(kind, namespace, name).await,
        refused => refused,
    };
    if accepted.is_err() {
        // Gone already, or changed by somebody who is emptying the namespace: theirs to finish.
        match api.store.delete(&entry.key, entry.revision).await {
            Ok(_) | Err(Error::Conflict(_)) => {}
            Err(error) => return Err(errors::general(&error)),
        }
    }
    accepted
}

pub(super) fn kind_ttl(kind: &Kind) -> Option<std::time::Duration> {
    (kind.ttl_s > 0).then(|| std::time::Duration::from_secs(u64::from(kind.ttl_s)))
}

/// A dry run meets an existing object as a real create would.
async fn dry(
    api: &Api,
    kind: &Kind,
    namespace: &str,
    name: &str,
    object: &Value,
) -> Result<std::sync::Arc<Entry>, Status> {
    api.store.barrier().await.map_err(|e| errors::general(&e))?;
    let snapshot = api.store.snapshot();
    let key = keys::object(&kind.stored_as.0, &kind.stored_as.1, namespace, name);
    if snapshot.get(&key).is_some() {
        return Err(Status::already_exists(&kind.group, &kind.plural, name));
    }
    Ok(imagined(kind, object, 0))
}

fn name_taken(kind: &Kind, name: &str) -> Status {
    let mut status = Status::already_exists(&kind.group, &kind.plural, name);
    status.message.push_str(", the server was not able to generate a unique name for the object");
    status.retry_after_s = 1;
    status
}

/// The namespace in the body must be the one in the path.
fn place(kind: &Kind, namespace: &str, object: &mut Value) -> Result<(), Status> {
    let given = meta::namespace(object);
    if kind.scope == Scope::Namespaced {
        if !given.is_empty() && given != namespace {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        meta::metadata_mut(object).insert("namespace".into(), json!(namespace));
    }
    if !meta::resource_version(object).is_empty() {
        // Kubernetes has no reason for this one.
        let why = "resourceVersion should not be set on objects to be created";
        return Err(Status::new(Reason::Unknown, why));
    }
    Ok(())
}

/// The prefix to make a name from, when only that was given.
fn generated_name(object: &Value) -> Option<String> {
    let prefix = meta::string(object, "generateName");
    (meta::name(object).is_empty() && !prefix.is_empty())
        .then(|| prefix.chars().take(PREFIX_CHARS_MAX).collect())
}

fn suffixed(api: &Api, kind: &Kind, namespace: &str, prefix: &str) -> String {
    let mut luck = api.luck(&format!("name {}/{namespace}/{prefix}", kind.plural));
    let mut name = prefix.to_owned();
    for _ in 0..SUFFIX_CHARS {
        let at = usize::try_from(luck % SUFFIX_ALPHABET.len() as u128).expect("smaller than the alphabet");
        name.push(char::from(SUFFIX_ALPHABET[at]));
        luck /= SUFFIX_ALPHABET.len() as u128;
    }
    name
}

/// Everything between decoding and storing.
fn settle(
    api: &Api,
    kind: &Kind,
    key: &str,
    object: &mut Value,
    applied: bool,
    by: &By<'_>,
) -> Result<(), Status> {
    let now = api.now_text();
    let uid = uuid::Builder::from_random_bytes(api.luck(key).to_be_bytes()).into_uuid();
    stamp(kind, object, &now, &uid.to_string());
    kind.rules.default(object);
    // What the server itself adds from here on is nobody's.
    if !applied {
        by.track(kind, "", None, object, &now);
    }
    kind.rules.prepare_create(object);
    hooks::before_create(api, kind, object, by)?;
    refuse_invalid(kind, object, &rules::check_create(kind, object))?;
    landfall_api::schema::complete(kind.schema.get(), object);
    Ok(())
}

/// What the server alone decides about a new object.
fn stamp(kind: &Kind, object: &mut Value, now: &str, uid: &str) {
    object["apiVersion"] = json!(encode::api_version(&kind.group, &kind.version));
    object["kind"] = json!(&*kind.kind);
    let metadata = meta::metadata_mut(object);
    for field in
        ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "generation"]
    {
        metadata.remove(field);
    }
    metadata.insert("uid".into(), json!(uid));
    metadata.insert("creationTimestamp".into(), json!(now));
    if kind.has_generation {
        metadata.insert("generation".into(), json!(1));
    }
    if kind.sub.status
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
    }
}

pub(super) fn refuse_invalid(kind: &Kind, object: &Value, found: &ErrorList) -> Result<(), Status> {
    if found.is_empty() {
        return Ok(());
    }
    Err(rules::refuse(kind, object, found))
}

/// 403 while a namespace is going away.
pub fn terminating(kind: &Kind, namespace: &str, name: &str) -> Status {
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut status = Status::forbidden(&kind.group, &kind.plural, name, &why);
    status.reason = Reason::Forbidden;
    status.causes.push(landfall_api::status::Cause {
        reason: "NamespaceTerminating".into(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".into(),
    });
    status
}
