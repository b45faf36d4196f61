//! Namespaces: what every namespace has, and how one is emptied when it is deleted.
//!
//! Reads:      the namespace, and everything in it
//! Writes:     deletes of its contents; `status.phase` and `status.conditions`; at last `spec.finalizers`
//! Wakes on:   a namespace new or deleting, something in a deleting one gone, its own furniture gone, and every 5 s
//! Guarantees: a namespace goes only when nothing is left in it; pods go before anything else

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use landfall_api::{Reason, Status, meta};
use serde_json::{Value, json};

use super::client::{Delete, ObjectClient, Part, Place, Propagation, Resource};
use super::gc::{failed, outcome, unless_gone};
use super::queue::Outcome;

/// How long to wait before looking again at what remains.
const RECHECK: Duration = Duration::from_secs(5);
/// The finalizer of every namespace.
const FINALIZER: &str = "kubernetes";
/// The ConfigMap with the certificate authority.
pub const ROOT_CA: &str = "kube-root-ca.crt";
const ROOT_CA_ABOUT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// The conditions of a deleting namespace: type, and what is said when all is well.
const CONDITIONS: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

/// Where a namespace is.
pub fn place(name: &str) -> Place {
    Place::new("", "namespaces", "", name)
}

/// Empties a deleting namespace, and lets it go when it is empty. `now` is the time in RFC 3339.
pub async fn terminate(client: &dyn ObjectClient, name: &str, now: &str) -> Outcome {
    let namespace = match client.get(place(name)).await {
        Ok(namespace) if meta::deleting(&namespace) => namespace,
        Ok(_) => return Outcome::Done,
        Err(status) => return outcome(Err(status)),
    };
    if phase(&namespace) != "Terminating" {
        let mut changed = (*namespace).clone();
        meta::child_mut(&mut changed, "status").insert("phase".into(), "Terminating".into());
        // The change is seen, and the work goes on from there.
        return outcome(client.update(place(name), changed, Part::Status).await);
    }
    if finalizers(&namespace).is_empty() {
        return Outcome::Done;
    }
    let left = empty(client, name).await;
    if let Some(changed) = with_conditions(&namespace, &left, now) {
        // Its change wakes us again, with the namespace as it then is.
        return outcome(client.update(place(name), changed, Part::Status).await);
    }
    if !left.errors.is_empty() {
        return Outcome::Failed(left.errors.join(", "));
    }
    if left.total() > 0 {
        return Outcome::Again(RECHECK);
    }
    let mut freed = (*namespace).clone();
    let rest: Vec<&str> = finalizers(&namespace).into_iter().filter(|f| *f != FINALIZER).collect();
    let rest = json!(rest);
    meta::child_mut(&mut freed, "spec").insert("finalizers".into(), rest);
    outcome(client.update(place(name), freed, Part::Finalize).await)
}

/// What remains in a namespace after everything in it was told to go.
#[derive(Debug, Default)]
pub struct Left {
    /// How many of each kind, by `plural.group`.
    pub kinds: BTreeMap<String, usize>,
    /// How many objects have each finalizer.
    pub finalizers: BTreeMap<String, usize>,
    /// What could not be told to go.
    pub errors: Vec<String>,
}

impl Left {
    fn total(&self) -> usize {
        self.kinds.values().sum()
    }
}

/// Pods first; the rest only when they are gone, because pods may need it until then.
async fn empty(client: &dyn ObjectClient, name: &str) -> Left {
    let mut left = Left::default();
    let (pods, rest): (Vec<_>, Vec<_>) = client
        .resources()
        .into_iter()
        .filter(|resource| resource.namespaced && resource.deletable)
        .partition(|resource| resource.group.is_empty() && &*resource.plural == "pods");
    for resources in [pods, rest] {
        for resource in resources {
            if let Err(status) = empty_of(client, &resource, name, &mut left).await {
                left.errors.push(status.message);
            }
        }
        if left.total() > 0 || !left.errors.is_empty() {
            break;
        }
    }
    left.errors.sort();
    left
}

async fn empty_of(
    client: &dyn ObjectClient,
    resource: &Resource,
    namespace: &str,
    left: &mut Left,
) -> Result<(), Status> {
    let mut first_error = None;
    for object in client.list(&resource.group, &resource.plural, namespace).await? {
        if meta::deleting(&object) {
            continue;
        }
        let place = Place::new(&resource.group, &resource.plural, namespace, meta::name(&object));
        let how = Delete {
            uid: meta::uid(&object).into(),
            resource_version: String::new(),
            propagation: Propagation::Background,
        };
        // One that cannot be deleted does not keep the others from going.
        if let Err(status) = unless_gone(client.delete(place, how).await) {
            first_error.get_or_insert(status);
        }
    }
    let remaining = client.list(&resource.group, &resource.plural, namespace).await?;
    if !remaining.is_empty() {
        left.kinds.insert(format!("{}.{}", resource.plural, resource.group), remaining.len());
    }
    for finalizer in remaining.iter().flat_map(|object| meta::finalizers(object)) {
        *left.finalizers.entry(finalizer.to_owned()).or_default() += 1;
    }
    first_error.map_or(Ok(()), Err)
}

/// The namespace with conditions that say what remains; none when it says so already.
pub fn with_conditions(namespace: &Value, left: &Left, now: &str) -> Option<Value> {
    let mut changed = namespace.clone();
    for (ty, reason, message) in CONDITIONS {
        let (status, reason, message) = trouble(ty, left)
            .map_or_else(|| ("False", reason, message.to_owned()), |(why, said)| ("True", why, said));
        let same = existing(&changed, ty).is_some_and(|c| {
            [("status", status), ("reason", reason), ("message", &message)]
                .iter()
                .all(|(key, value)| c.get(*key).and_then(Value::as_str) == Some(*value))
        });
        if !same {
            crate::crd::status::set_condition(&mut changed, ty, status, (reason, &message), now);
        }
    }
    (changed != *namespace).then_some(changed)
}

fn trouble(ty: &str, left: &Left) -> Option<(&'static str, String)> {
    match ty {
        "NamespaceDeletionContentFailure" if !left.errors.is_empty() => {
            let (count, all) = (left.errors.len(), left.errors.join(", "));
            let message = format!("Failed to delete all resource types, {count} remaining: {all}");
            Some(("ContentDeletionFailed", message))
        }
        "NamespaceContentRemaining" if left.total() > 0 => {
            let each =
                left.kinds.iter().map(|(kind, count)| format!("{kind} has {count} resource instances"));
            let each: Vec<String> = each.collect();
            Some(("SomeResourcesRemain", format!("Some resources are remaining: {}", each.join(", "))))
        }
        "NamespaceFinalizersRemaining" if !left.finalizers.is_empty() => {
            let each =
                left.finalizers.iter().map(|(name, count)| format!("{name} in {count} resource instances"));
            let each: Vec<String> = each.collect();
            let message =
                format!("Some content in the namespace has finalizers remaining: {}", each.join(", "));
            Some(("SomeFinalizersRemain", message))
        }
        _ => None,
    }
}

fn existing<'a>(namespace: &'a Value, ty: &str) -> Option<&'a Value> {
    let conditions = namespace.get("status")?.get("conditions")?.as_array()?;
    conditions.iter().find(|c| c.get("type").and_then(Value::as_str) == Some(ty))
}

fn phase(namespace: &Value) -> &str {
    namespace.get("status").and_then(|s| s.get("phase")).and_then(Value::as_str).unwrap_or("")
}

fn finalizers(namespace: &Value) -> Vec<&str> {
    let list = namespace.get("spec").and_then(|s| s.get("finalizers")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Gives a namespace what each one has: the service account `default`, and the certificate authority.
pub async fn furnish(client: &dyn ObjectClient, name: &str, root_ca: Option<Arc<str>>) -> Outcome {
    match client.get(place(name)).await {
        Ok(namespace) if !meta::deleting(&namespace) => {}
        Ok(_) => return Outcome::Done,
        Err(status) => return outcome(Err(status)),
    }
    let account = Place::new("", "serviceaccounts", name, "default");
    let blank = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}});
    let mut results = vec![ensure(client, account, blank, |_| None).await];
    if let Some(root_ca) = root_ca {
        let bundle = Place::new("", "configmaps", name, ROOT_CA);
        let data = json!({"ca.crt": &*root_ca});
        let annotations = json!({"kubernetes.io/description": ROOT_CA_ABOUT});
        let metadata = json!({"name": ROOT_CA, "namespace": name, "annotations": annotations});
        let blank =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data.clone()});
        let mend = move |found: &Value| {
            let described =
                meta::annotation(found, "kubernetes.io/description").is_some_and(|d| !d.is_empty());
            if found.get("data") == Some(&data) && described {
                return None;
            }
            let mut mended = found.clone();
            mended.as_object_mut()?.insert("data".into(), data.clone());
            let annotations =
                meta::metadata_mut(&mut mended).entry("annotations").or_insert_with(|| json!({}));
            annotations.as_object_mut()?.insert("kubernetes.io/description".into(), ROOT_CA_ABOUT.into());
            Some(mended)
        };
        results.push(ensure(client, bundle, blank, mend).await);
    }
    results.into_iter().find_map(Result::err).map_or(Outcome::Done, |status| failed(&status))
}

/// Makes an object that is not there, or mends one that is.
async fn ensure(
    client: &dyn ObjectClient,
    place: Place,
    blank: Value,
    mend: impl FnOnce(&Value) -> Option<Value>,
) -> Result<(), Status> {
    match client.get(place.clone()).await {
        Ok(found) => match mend(&found) {
            Some(mended) => client.update(place, mended, Part::Main).await,
            None => Ok(()),
        },
        Err(status) if status.reason == Reason::NotFound => match client.create(place, blank).await {
            // Another hub was faster, or the namespace is going.
            Err(status)
                if matches!(status.reason, Reason::AlreadyExists | Reason::Forbidden | Reason::NotFound) =>
            {
                Ok(())
            }
            result => result,
        },
        Err(status) => Err(status),
    }
}
