//! The signer `landfall.dev/edge`: approves requests for edges' certificates and signs them, in the hub that leads.
//!
//! Reads:      CertificateSigningRequests of our signer; Edges, Clusters
//! Decides:    [`super::decide`]
//! Writes:     the request's approval and certificate; the Edge that a new certificate is for
//! Wakes on:   any request changing, and every [`LOOK_EVERY`]
//! Guarantees: the Edge is made first and says for which request, so a pass that was cut short is taken up where it ended
//! Limits:     one request at a time: two that want one name are decided one after the other

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use landfall_api::landfall::{API_VERSION, GROUP};
use landfall_api::rules::read::{child, list, text};
use landfall_api::{Status, age, meta};
use landfall_runtime::clock;
use landfall_store::{Error, Event};
use serde_json::{Value, json};

use super::decide::{Asked, Decision, Holder, How, decide};
use super::{
    CLUSTER_ANNOTATION, GROUP_ANNOTATION, PLURAL, REQUEST_ANNOTATION, SIGNER, TOKEN_ANNOTATION, USER_PREFIX,
    sweep,
};
use crate::api::Api;
use crate::authn::bootstrap_token;
use crate::bootstrap::{by, server};
use crate::certificates::{self, Subject, subject};
use crate::errors;
use crate::housekeeping::ObjectClient as _;
use crate::housekeeping::client::{Delete, Place, Propagation};
use crate::inside::Inside;
use crate::pki::Authority;
use crate::write::Wanted;
use crate::write::update::{Part, update};
use crate::{encode, keys};

/// How often everything is looked at, whether it changed or not.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How long to wait after the store could not be watched.
const RETRY: Duration = Duration::from_millis(500);
/// The most changes taken from the store at once.
const BATCH_MAX: usize = 256;
/// Certificates are good from a little before they are made, for clocks that differ; short ones by less.
const BACKDATE_S_MAX: i64 = 5 * 60;
const BACKDATE_PART: i64 = 10;

/// Signs for edges.
pub struct Signer {
    /// With whose key.
    pub authority: Authority,
    /// How long certificates last at most.
    pub lifetime_s: i64,
}

/// Signs until it is dropped.
pub async fn run(api: Arc<Api>, signer: Arc<Signer>) {
    loop {
        match follow(&api, &signer).await {
            Ok(()) => {}
            Err(Error::Closed) => return,
            Err(error) => {
                tracing::warn!(%error, "cannot watch requests for certificates; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Looks at all requests, then at those that change, for a while.
async fn follow(api: &Arc<Api>, signer: &Signer) -> Result<(), Error> {
    api.store.barrier().await?;
    let snapshot = api.store.snapshot();
    let prefix = keys::collection(certificates::GROUP, certificates::PLURAL);
    let mut watch = api.store.watch(&prefix, snapshot.revision())?;
    for entry in snapshot.range(&prefix, "") {
        if let Ok(request) = encode::decode(entry) {
            consider(api, signer, &request).await;
        }
    }
    sweep::run(api, &snapshot, clock::epoch_s()).await;
    let until = tokio::time::Instant::now() + LOOK_EVERY;
    let mut events = Vec::new();
    loop {
        match tokio::time::timeout_at(until, watch.next_batch(&mut events, BATCH_MAX)).await {
            Ok(next) => next?,
            Err(_) => return Ok(()),
        }
        for event in events.drain(..) {
            if let Event::Change(change) = event
                && !change.removed
                && let Ok(request) = encode::decode(&change.entry)
            {
                consider(api, signer, &request).await;
            }
        }
    }
}

/// Does what is to be done about a request. What fails is tried again when everything is looked at.
async fn consider(api: &Arc<Api>, signer: &Signer, request: &Value) {
    if !is_open(request) {
        return;
    }
    // What is told is what was; our own writes are told, too.
    let key = keys::object(certificates::GROUP, certificates::PLURAL, "", meta::name(request));
    let now = api.store.snapshot().get(&key).and_then(|entry| encode::decode(entry).ok());
    let Some(request) = now.as_ref().filter(|now| is_open(now)) else { return };
    if let Err(status) = settle(api, signer, request).await {
        let (name, why) = (meta::name(request), status.message);
        tracing::warn!(request = name, why, "cannot settle a request for an edge's certificate");
    }
}

/// Whether a request is ours and nothing has become of it yet, or it was approved and nobody has signed.
fn is_open(request: &Value) -> bool {
    let status = child(request, "status");
    text(child(request, "spec"), "signerName") == SIGNER
        && text(status, "certificate").is_empty()
        && !has(request, "Denied")
        && !has(request, "Failed")
        && !meta::deleting(request)
}

fn has(request: &Value, condition: &str) -> bool {
    list(child(request, "status"), "conditions").iter().any(|c| text(c, "type") == condition)
}

async fn settle(api: &Arc<Api>, signer: &Signer, request: &Value) -> Result<(), Status> {
    // Edges and clusters may have been written through another hub a moment ago.
    api.store.barrier().await.map_err(|error| errors::general(&error))?;
    let spec = child(request, "spec");
    let pem = STANDARD.decode(text(spec, "request")).unwrap_or_default();
    let asked = asked(request, subject(&pem).unwrap_or_default());
    let edge = asked.subject.names.first().and_then(|name| name.strip_prefix(USER_PREFIX)).unwrap_or("");
    let snapshot = api.store.snapshot();
    let get = |plural: &str, name: &str| {
        let entry = snapshot.get(&keys::object(GROUP, plural, "", name))?;
        encode::decode(entry).ok().filter(|object| !meta::deleting(object))
    };
    let holder = get(PLURAL, edge).as_ref().map(holder);
    let is_cluster = |name: &str| get("clusters", name).is_some();
    match decide(&asked, holder.as_ref(), &is_cluster, clock::epoch_s()) {
        Decision::Leave => Ok(()),
        Decision::Deny(why) if asked.approved => {
            tracing::info!(request = asked.name, why, "a request for an edge's certificate has failed");
            conditions(api, request, Part::Status, "Failed", "EdgeRefused", &why).await
        }
        Decision::Deny(why) => {
            tracing::info!(request = asked.name, who = asked.username, why, "an edge is refused");
            conditions(api, request, Part::Approval, "Denied", "EdgeRefused", &why).await
        }
        Decision::Sign { edge, how } => {
            let owner = |cluster: &str| get("clusters", cluster).map(|object| meta::uid(&object).to_owned());
            let uid = edge_object(api, &edge, how, owner, request).await?;
            if !asked.approved {
                let why = format!("{} may have a certificate for the edge {edge}", asked.username);
                conditions(api, request, Part::Approval, "Approved", "AutoApproved", &why).await?;
            }
            sign(api, signer, request, &edge, &uid, &pem).await
        }
    }
}

fn asked<'a>(request: &'a Value, subject: Subject) -> Asked<'a> {
    let spec = child(request, "spec");
    let texts = |name: &str| list(spec, name).iter().filter_map(Value::as_str).collect::<Vec<_>>();
    let bound = |to: &str| list(child(spec, "extra"), to).first().and_then(Value::as_str).unwrap_or("");
    Asked {
        name: meta::name(request),
        username: text(spec, "username"),
        uid: text(spec, "uid"),
        groups: texts("groups"),
        bound: bound(bootstrap_token::CLUSTER_EXTRA),
        cluster: meta::annotation(request, CLUSTER_ANNOTATION).unwrap_or(""),
        bound_group: bound(bootstrap_token::GROUP_EXTRA),
        group: meta::annotation(request, GROUP_ANNOTATION).unwrap_or(""),
        usages: texts("usages"),
        subject,
        approved: has(request, "Approved"),
    }
}

fn holder(edge: &Value) -> Holder {
    let made = age::seconds(Some(meta::string(edge, "creationTimestamp")));
    let spoke = age::seconds(Some(text(child(edge, "status"), "heartbeatTime")));
    Holder {
        uid: meta::uid(edge).into(),
        cluster: text(child(edge, "spec"), "cluster").into(),
        spoke_s: spoke.max(made).unwrap_or(0),
        request: meta::annotation(edge, REQUEST_ANNOTATION).unwrap_or("").into(),
    }
}

/// The uid of the Edge that a certificate is for, which is made if it must be.
///
/// It is its cluster's: when that is no member any more, its edges are none of the federation's.
async fn edge_object(
    api: &Arc<Api>,
    name: &str,
    how: How,
    owner: impl Fn(&str) -> Option<String>,
    request: &Value,
) -> Result<String, Status> {
    let (cluster, instead_of) = match how {
        How::Keep { uid } => return Ok(uid),
        How::Make { cluster, instead_of } => (cluster, instead_of),
    };
    let inside = Inside(api.clone());
    let place = Place::new(GROUP, PLURAL, "", name);
    if let Some(uid) = instead_of {
        tracing::info!(edge = name, "an edge takes the place of a dead one of its name");
        let how = Delete {
            uid: uid.as_str().into(),
            resource_version: String::new(),
            propagation: Propagation::Background,
        };
        inside.delete(place.clone(), how).await?;
    }
    let mut annotations = json!({REQUEST_ANNOTATION: meta::name(request)});
    let requester = text(child(request, "spec"), "username");
    if let Some(id) = requester.strip_prefix(bootstrap_token::USER_PREFIX) {
        annotations[TOKEN_ANNOTATION] = json!(id);
    }
    let mut edge = json!({
        "apiVersion": API_VERSION, "kind": "Edge",
        "metadata": {"name": name, "annotations": annotations}, "spec": {"cluster": cluster},
    });
    if let Some(group) = meta::annotation(request, GROUP_ANNOTATION).filter(|group| !group.is_empty()) {
        edge["spec"]["ingressReplicaSet"] = group.into();
    }
    if let Some(uid) = owner(&cluster) {
        let owner = json!({"apiVersion": API_VERSION, "kind": "Cluster", "name": cluster, "uid": uid});
        edge["metadata"]["ownerReferences"] = json!([owner]);
    }
    inside.create(place.clone(), edge).await?;
    let made = inside.get(place).await?;
    tracing::info!(edge = name, cluster, "an edge comes in");
    Ok(meta::uid(&made).to_owned())
}

async fn conditions(
    api: &Api,
    request: &Value,
    part: Part,
    kind: &str,
    reason: &str,
    message: &str,
) -> Result<(), Status> {
    let condition = json!({"type": kind, "status": "True", "reason": reason, "message": message});
    change(api, request, part, |object| {
        let conditions = meta::child_mut(object, "status").entry("conditions").or_insert_with(|| json!([]));
        if let Some(all) = conditions.as_array_mut() {
            all.retain(|c| text(c, "type") != kind);
            all.push(condition.clone());
        }
    })
    .await
}

async fn sign(
    api: &Api,
    signer: &Signer,
    request: &Value,
    edge: &str,
    uid: &str,
    pem: &[u8],
) -> Result<(), Status> {
    let wanted_s = child(request, "spec").get("expirationSeconds").and_then(Value::as_i64);
    let lifetime_s = wanted_s.unwrap_or(signer.lifetime_s).min(signer.lifetime_s);
    let now_s = clock::epoch_s();
    let backdate_s = BACKDATE_S_MAX.min(lifetime_s / BACKDATE_PART);
    let certificate = signer.authority.edge(
        &String::from_utf8_lossy(pem),
        (&format!("{USER_PREFIX}{edge}"), super::EDGES, uid),
        (now_s.saturating_sub(backdate_s), now_s.saturating_add(lifetime_s)),
        list(child(request, "spec"), "usages").iter().any(|usage| usage == "server auth"),
    );
    let certificate = certificate.map_err(|error| Status::internal(error.to_string()))?;
    change(api, request, Part::Status, |object| {
        let status = meta::child_mut(object, "status");
        status.insert("certificate".into(), json!(STANDARD.encode(&certificate)));
    })
    .await
}

/// Changes a request, unless it is another one by now.
async fn change(
    api: &Api,
    request: &Value,
    part: Part,
    mut edit: impl FnMut(&mut Value) + Send,
) -> Result<(), Status> {
    let catalog = api.catalog.load_full();
    let Some(kind) = catalog.find_resource(certificates::GROUP, certificates::PLURAL) else { return Ok(()) };
    let (user, name) = (server(), meta::name(request));
    let by = by(&user);
    let written = update(api, kind, "", name, part, &by, |old| {
        if meta::uid(old) != meta::uid(request) {
            return Err(errors::modified(kind, name));
        }
        let mut object = old.clone();
        edit(&mut object);
        Ok(Wanted::new(object, Vec::new()))
    });
    written.await.map(drop)
}
