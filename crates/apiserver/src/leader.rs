//! One hub at a time does what should be done once: a Lease in the API says which.
//!
//! Reads:      Lease kube-system/landfall-hub
//! Decides:    here: take it when it is free or has run out, renew it while it is ours
//! Writes:     the same Lease
//! Wakes on:   a timer; while it leads, the Lease changing
//! Guarantees: work stops before the lease can run out, and as soon as somebody else is seen to hold it; what runs is safe to run twice all the same. Clocks of
//!             machines need not agree: another's lease runs from when it was last seen to change here
//! Limits:     15 s lease, renewed every 3 s; one that a dead process left in a store that nobody shares is taken at once

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_api::{Reason, Status, meta};
use landfall_runtime::clock;
use serde_json::{Value, json};

use crate::api::{Api, rfc3339_micro};
use crate::bootstrap::{by, server};
use crate::write::update::{Part, current, update};
use crate::write::{Wanted, create};
use crate::{encode, keys, read};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "landfall-hub";

/// How long a leader that says nothing keeps its place.
const LEASE_S: u64 = 15;
/// How often a leader renews, and the others look.
const EVERY: Duration = Duration::from_secs(3);
/// How long after its last renewal a leader stops by itself.
const GIVE_UP: Duration = Duration::from_secs(10);

/// How long a hub that stops tries to say so.
const RESIGN: Duration = Duration::from_secs(2);

/// The most changes of the lease taken from the store at once.
const CHANGES_MAX: usize = 16;

/// The lease as this hub last saw it.
struct Seen {
    /// Its resourceVersion; empty before the first look.
    version: String,
    /// When this hub first saw that version.
    since: Instant,
    /// The revision after which only this process can have written it.
    alone_since: Option<u64>,
}

/// Runs `work` whenever this hub leads, until the server stops, then lets another hub lead. `work` is dropped when
/// leading ends.
pub async fn lead<F, W>(api: Arc<Api>, identity: String, work: W)
where
    F: Future<Output = ()> + Send,
    W: Fn() -> F + Send,
{
    tokio::select! {
        () = lead_for_ever(&api, &identity, work) => {}
        () = api.tasks.stopping() => {}
    }
    // A hub that cannot say so is waited for, that is all.
    let _ = tokio::time::timeout(RESIGN, resign(&api, &identity)).await;
}

async fn lead_for_ever<F, W>(api: &Api, identity: &str, work: W)
where
    F: Future<Output = ()> + Send,
    W: Fn() -> F + Send,
{
    let alone_since = api.store.alone_since();
    let mut seen = Seen { version: String::new(), since: clock::instant(), alone_since };
    loop {
        let began = clock::instant();
        match hold_by(api, identity, &mut seen, began + GIVE_UP).await {
            Ok(true) => {
                tracing::info!(identity, "this hub leads");
                tokio::select! {
                    () = work() => {}
                    () = renew(api, identity, &mut seen, began) => {
                        tracing::warn!(identity, "this hub leads no longer");
                    }
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
        let _ = write_lease(api, &lease, "", 1).await;
    }
}

/// Renews until that fails for too long or somebody else took over. `renewed`: when the attempt began that took it,
/// because others may count from then.
async fn renew(api: &Api, identity: &str, seen: &mut Seen, mut renewed: Instant) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = taken(api, identity) => return,
        }
        let began = clock::instant();
        match hold_by(api, identity, seen, renewed + GIVE_UP).await {
            Ok(true) => renewed = began,
            Ok(false) => return,
            Err(error) => tracing::warn!(%error, "cannot renew the leader's lease"),
        }
        if renewed.elapsed() > GIVE_UP {
            return;
        }
    }
}

/// Waits until somebody else holds the lease.
async fn taken(api: &Api, identity: &str) {
    let key = keys::object("coordination.k8s.io", "leases", NAMESPACE, NAME);
    let ours = || {
        let entry = api.store.snapshot().get(&key).cloned();
        entry.and_then(|entry| encode::decode(&entry).ok()).is_none_or(|lease| holder(&lease) == identity)
    };
    let Ok(mut watch) = api.store.watch(&key, api.store.snapshot().revision()) else {
        return std::future::pending().await;
    };
    let mut events = Vec::new();
    while ours() {
        events.clear();
        if watch.next_batch(&mut events, CHANGES_MAX).await.is_err() {
            // The timer looks, too.
            return std::future::pending().await;
        }
    }
}

/// [`hold`], given up at `deadline`.
async fn hold_by(api: &Api, identity: &str, seen: &mut Seen, deadline: Instant) -> Result<bool, Status> {
    let attempt = tokio::time::timeout_at(deadline.into(), hold(api, identity, seen)).await;
    attempt.unwrap_or_else(|_| Err(Status::internal("the store did not answer in time")))
}

/// Takes or renews the lease; whether it is ours now.
async fn hold(api: &Api, identity: &str, seen: &mut Seen) -> Result<bool, Status> {
    let written = match read_lease(api).await? {
        None => create_lease(api, identity).await,
        Some(lease) if !is_free(&lease, identity, seen, clock::instant()) => return Ok(false),
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

/// Whether the lease is ours, nobody's, or has not changed here for as long as it lasts.
fn is_free(lease: &Value, identity: &str, seen: &mut Seen, now: Instant) -> bool {
    if seen.version != meta::resource_version(lease) {
        (seen.version, seen.since) = (meta::resource_version(lease).to_owned(), now);
    }
    let held = holder(lease);
    let version = meta::resource_version(lease).parse::<u64>();
    // Whoever wrote that was another process, and in a store that nobody shares it is dead.
    let orphaned = version.is_ok_and(|version| seen.alone_since.is_some_and(|since| version <= since));
    if held.is_empty() || held == identity || orphaned {
        return true;
    }
    let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_u64).unwrap_or(LEASE_S);
    now.saturating_duration_since(seen.since) > Duration::from_secs(seconds)
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

fn spec(identity: &str, seconds: u64, transitions: i64) -> Value {
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

async fn write_lease(api: &Api, lease: &Value, identity: &str, seconds: u64) -> Result<(), Status> {
    let catalog = api.catalog.load_full();
    let kind = kind(&catalog)?;
    let before = lease.pointer("/spec/leaseTransitions").and_then(Value::as_i64).unwrap_or(0);
    let transitions = before.saturating_add(i64::from(!identity.is_empty() && holder(lease) != identity));
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use landfall_store::{Event, Store};
    use tokio::net::TcpListener;

    use super::*;
    use crate::{pki, start};

    #[test]
    fn a_lease_of_another_runs_from_when_it_was_seen_to_change() {
        let begin = clock::instant();
        let mut seen = Seen { version: String::new(), since: begin, alone_since: None };
        // (resourceVersion, holder, seconds since the begin, whether it can be taken by "a")
        for (version, holder, at_s, free) in [
            ("1", "b", 0, false),
            ("1", "b", 15, false),
            ("2", "b", 16, false),
            ("2", "b", 31, false),
            ("2", "b", 32, true),
            ("3", "", 33, true),
            ("4", "a", 34, true),
            ("5", "b", 35, false),
        ] {
            // The other's clock is years behind.
            let lease = json!({"metadata": {"resourceVersion": version}, "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2001-01-01T00:00:00Z"}});
            let now = begin + Duration::from_secs(at_s);
            assert_eq!(is_free(&lease, "a", &mut seen, now), free, "{version} {holder} {at_s}");
        }
    }

    /// A hub that was killed and started again did nothing for 15 s.
    #[test]
    fn what_a_dead_process_left_is_free() {
        let begin = clock::instant();
        for (version, alone_since, free) in
            [("7", None, false), ("7", Some(6), false), ("7", Some(7), true), ("7", Some(9), true)]
        {
            let mut seen = Seen { version: String::new(), since: begin, alone_since };
            let lease = json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": "b"}});
            assert_eq!(is_free(&lease, "a", &mut seen, begin), free, "{version} {alone_since:?}");
        }
    }

    async fn serve(directory: &Path, store: &Arc<dyn Store>, identity: &str) -> start::Server {
        let config = start::Config {
            edge_certificate_s: 3600,
            pki: pki::Config { data_dir: directory.join(identity), ..pki::Config::default() },
            token_file: None,
            anonymous: false,
            audit: None,
            kinds: landfall_api::kinds::federation(),
            definitions: Vec::new(),
            identity: identity.to_owned(),
            admission: None,
            beside: None,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        start::start(config, store.clone(), listener).await.unwrap()
    }

    /// Waits until the lease's holder begins with `wanted`.
    async fn held_by(store: &Arc<dyn Store>, wanted: &str) {
        let key = keys::object("coordination.k8s.io", "leases", NAMESPACE, NAME);
        let mut watch = store.watch(&key, store.snapshot().revision()).unwrap();
        let mut events: Vec<Event> = Vec::new();
        loop {
            let lease = store.snapshot().get(&key).map(|entry| crate::encode::decode(entry).unwrap());
            if lease.is_some_and(|lease| holder(&lease).starts_with(wanted)) {
                return;
            }
            watch.next_batch(&mut events, 64).await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hub_that_stops_hands_over_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let config = landfall_store::embedded::Config::new(directory.path().join("store"));
        let store = landfall_store::open_embedded(config).unwrap();
        let first = serve(directory.path(), &store, "a").await;
        held_by(&store, "a_").await;
        let second = serve(directory.path(), &store, "b").await;
        first.stop().await;
        let within = Duration::from_secs(LEASE_S - 5);
        tokio::time::timeout(within, held_by(&store, "b_")).await.expect("taken before it ran out");
        second.stop().await;
        store.close().await;
    }

    /// A partitioned hub, or one that was held up, must not go on as if it led.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_is_dropped_when_somebody_else_holds_the_lease() {
        struct Told(Option<tokio::sync::oneshot::Sender<()>>);
        impl Drop for Told {
            fn drop(&mut self) {
                let _ = self.0.take().map(|told| told.send(()));
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let config = landfall_store::embedded::Config::new(directory.path().join("store"));
        let store = landfall_store::open_embedded(config).unwrap();
        let server = serve(directory.path(), &store, "a").await;
        held_by(&store, "a_").await;
        let lease = read_lease(&server.api).await.unwrap().unwrap();
        resign(&server.api, holder(&lease)).await;
        let (told, dropped) = tokio::sync::oneshot::channel();
        let guard = std::sync::Mutex::new(Some(Told(Some(told))));
        let api = server.api.clone();
        let leading = lead(api.clone(), "ours".into(), || {
            let guard = guard.lock().unwrap().take();
            async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            }
        });
        let usurping = async {
            held_by(&store, "ours").await;
            let lease = read_lease(&api).await.unwrap().unwrap();
            write_lease(&api, &lease, "theirs", LEASE_S).await.unwrap();
            dropped.await.unwrap();
        };
        tokio::select! { () = leading => {}, () = usurping => {} }
        server.stop().await;
        store.close().await;
    }
}
