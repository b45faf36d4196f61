//! One hub at a time does what should be done once: a Lease in the API says which.
//!
//! Reads:      Lease kube-system/landfall-hub
//! Decides:    here: take it when it is free or has run out, renew it while it is ours
//! Writes:     the same Lease
//! Wakes on:   a timer
//! Guarantees: work stops before the lease can run out; what runs is safe to run twice all the same
//! Limits:     15 s lease, renewed every 3 s

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use landfall_api::{Reason, Status, meta};
use landfall_runtime::clock;
use serde_json::{Value, json};

use crate::api::{Api, rfc3339_micro};
use crate::bootstrap::{by, server};
use crate::read;
use crate::write::update::{Part, current, update};
use crate::write::{Wanted, create};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "landfall-hub";

/// How long a leader that says nothing keeps its place.
const LEASE_S: i64 = 15;
/// How often a leader renews, and the others look.
const EVERY: Duration = Duration::from_secs(3);
/// How long after its last renewal a leader stops by itself.
const GIVE_UP: Duration = Duration::from_secs(10);

/// Runs `work` whenever this hub leads, until the server stops. `work` is dropped when leading ends.
pub async fn lead<F, W>(api: Arc<Api>, identity: String, work: W)
where
    F: Future<Output = ()> + Send,
    W: Fn() -> F + Send,
{
    loop {
        match hold(&api, &identity).await {
            Ok(true) => {
                tracing::info!(identity, "this hub leads");
                tokio::select! {
                    () = work() => {}
                    () = renew(&api, &identity) => tracing::warn!(identity, "this hub leads no longer"),
                }
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "cannot look at the leader's lease"),
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Gives the lease up, so that another hub need not wait for it to run out.
pub async fn resign(api: &Api, identity: &str) {
    let Ok(Some(lease)) = read_lease(api).await else { return };
    if holder(&lease) == identity {
        // A hub that cannot say so is waited for, that is all.
        let _ = write_lease(api, &lease, "", 1).await;
    }
}

/// Renews until that fails for too long or somebody else took over.
async fn renew(api: &Api, identity: &str) {
    let mut renewed = clock::instant();
    loop {
        tokio::time::sleep(EVERY).await;
        match hold(api, identity).await {
            Ok(true) => renewed = clock::instant(),
            Ok(false) => return,
            Err(error) => tracing::warn!(%error, "cannot renew the leader's lease"),
        }
        if renewed.elapsed() > GIVE_UP {
            return;
        }
    }
}

/// Takes or renews the lease; whether it is ours now.
async fn hold(api: &Api, identity: &str) -> Result<bool, Status> {
    let written = match read_lease(api).await? {
        None => create_lease(api, identity).await,
        Some(lease) if !is_free(&lease, identity) => return Ok(false),
        Some(lease) => write_lease(api, &lease, identity, LEASE_S).await,
    };
    match written {
        Ok(()) => Ok(true),
        // Somebody else was faster.
        Err(status) if matches!(status.reason, Reason::Conflict | Reason::AlreadyExists) => Ok(false),
        Err(status) => Err(status),
    }
}

fn holder(lease: &Value) -> &str {
    lease.pointer("/spec/holderIdentity").and_then(Value::as_str).unwrap_or("")
}

/// Whether the lease is ours, nobody's, or has run out.
fn is_free(lease: &Value, identity: &str) -> bool {
    let held = holder(lease);
    if held.is_empty() || held == identity {
        return true;
    }
    let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(LEASE_S);
    let renewed = lease.pointer("/spec/renewTime").and_then(Value::as_str).unwrap_or("");
    let Ok(renewed) = renewed.parse::<jiff::Timestamp>() else { return true };
    renewed.as_second().saturating_add(seconds) < clock::epoch_s()
}

async fn read_lease(api: &Api) -> Result<Option<Value>, Status> {
    let catalog = api.catalog.load_full();
    let kind = kind(&catalog)?;
    match read::get::entry(&*api.store, kind, NAMESPACE, NAME, "").await {
        Ok(entry) => current(kind, &entry).map(Some),
        Err(status) if status.reason == Reason::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}

fn kind(catalog: &crate::catalog::Catalog) -> Result<&Arc<landfall_api::Kind>, Status> {
    let found = catalog.find("coordination.k8s.io", "v1", "leases");
    found.ok_or_else(|| Status::internal("leases are not served"))
}

fn spec(identity: &str, seconds: i64, transitions: i64) -> Value {
    let now = rfc3339_micro(clock::since_epoch());
    json!({
        "holderIdentity": identity, "leaseDurationSeconds": seconds, "renewTime": now,
        "leaseTransitions": transitions,
    })
}

async fn create_lease(api: &Api, identity: &str) -> Result<(), Status> {
    let catalog = api.catalog.load_full();
    let object = json!({"metadata": {"name": NAME}, "spec": spec(identity, LEASE_S, 0)});
    let user = server();
    create::create(api, kind(&catalog)?, NAMESPACE, Wanted::new(object, Vec::new()), &by(&user))
        .await
        .map(drop)
}

async fn write_lease(api: &Api, lease: &Value, identity: &str, seconds: i64) -> Result<(), Status> {
    let catalog = api.catalog.load_full();
    let kind = kind(&catalog)?;
    let before = lease.pointer("/spec/leaseTransitions").and_then(Value::as_i64).unwrap_or(0);
    let transitions = before.saturating_add(i64::from(holder(lease) != identity));
    let mut object = lease.clone();
    object["spec"] = spec(identity, seconds, transitions);
    let user = server();
    debug_assert!(
        !meta::resource_version(&object).is_empty(),
        "a lease is only written on top of what was read"
    );
    update(api, kind, NAMESPACE, NAME, Part::Main, &by(&user), |_| {
        Ok(Wanted::new(object.clone(), Vec::new()))
    })
    .await
    .map(drop)
}
