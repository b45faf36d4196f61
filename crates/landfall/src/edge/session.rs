//! The edge at the hub: comes in, follows plans, says that it is alive and what it sees, renews its certificate; again and
//! again, for as long as the edge runs.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::Resource;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event};
use landfall_api::landfall::{
    CERTIFICATES_NAMESPACE, GROUP, GroupPlanSpec, RoutePlanSpec, TrafficPlanSpec, VERSION, group_label,
};
use landfall_proxy::Certificate;
use landfall_runtime::clock;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::book::{Key, Page};
use super::core::Core;
use super::identity::{self, Claim, Door, Identity};
use super::reach::Place;
use super::status::{self, LoadsTold};
use super::vips::Changes;

/// How often the edge says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How often it says what it carries, while it carries something.
const CARRYING: Duration = Duration::from_secs(1);
/// Votes are told at most so often.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// Everything is told again at least so often, changed or not.
const WHOLE_EVERY: Duration = Duration::from_secs(15);
/// How long the hub may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// A hub that has not answered for so long is connected to anew.
const SILENCE_MAX: Duration = Duration::from_secs(8);
/// Between two attempts, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// Between two attempts of an edge that was refused.
const REFUSED_RETRY: Duration = Duration::from_secs(15);

/// Between two words about the same trouble.
const TELL_AGAIN: Duration = Duration::from_secs(30);

/// Whose fields these are.
const MANAGER: &str = "landfall-edge";

/// Why a time at the hub ended.
enum Ended {
    /// There is a new certificate.
    Renewed,
    /// The hub does not answer.
    Silent(anyhow::Error),
    /// The hub does not know us any more.
    Refused,
}

/// Is at the hub, for ever.
pub(super) async fn run(core: &Core) {
    let mut pause = RETRY.0;
    let mut refused = false;
    let mut told: Option<(String, Instant)> = None;
    loop {
        let ended = match enter(core, refused).await {
            Ok((door, identity)) => {
                core.carrier.identify(&door, &identity);
                stay(core, &door, &identity).await
            }
            Err(error) => Ended::Silent(error),
        };
        refused = matches!(ended, Ended::Refused);
        match ended {
            Ended::Renewed => {
                pause = RETRY.0;
                continue;
            }
            Ended::Silent(error) => {
                let error = format!("{error:#}");
                // The same again is told again, but not every time.
                if told.as_ref().is_none_or(|(before, at)| *before != error || at.elapsed() > TELL_AGAIN) {
                    tracing::warn!(error, "not at the hub; the last plans are followed meanwhile");
                    told = Some((error, Instant::now()));
                }
            }
            Ended::Refused => {
                tracing::error!(
                    "the hub refuses this edge's certificate: it was revoked, or its name was taken"
                );
                tokio::time::sleep(REFUSED_RETRY).await;
            }
        }
        // The hub was there until a moment ago: that it went is no reason to hesitate.
        if core.silent_for() < SILENCE_MAX * 2 {
            pause = RETRY.0;
        }
        tokio::time::sleep(spread(pause)).await;
        pause = (pause * 2).min(RETRY.1);
    }
}

/// About so long: edges that lost one hub do not all come back in the same moment.
fn spread(pause: Duration) -> Duration {
    let luck = u32::from(uuid::Uuid::new_v4().as_bytes()[15]);
    pause / 2 + pause * luck / 256
}

/// The certificate that is kept, or a new one by the token.
async fn enter(core: &Core, refused: bool) -> Result<(Door, Identity)> {
    let config = &core.config;
    let ca_pem = config.trust.authority(&config.data_dir).await?;
    let door = Door { url: config.trust.url.clone(), ca_pem };
    let kept = Identity::load(&config.data_dir, &config.name);
    if let Some(kept) = kept.clone().filter(|_| !refused) {
        return Ok((door, kept));
    }
    let claim = Claim { name: &config.name, cluster: &config.cluster, group: config.group.as_deref() };
    let made = match (&config.token, kept) {
        (Some(token), kept) => match (identity::register(&door, token, claim).await, kept) {
            (Ok(made), _) => made,
            // It may be the hub that is wrong: it may know us again later.
            (Err(error), Some(kept)) => {
                tracing::warn!(error = format!("{error:#}"), "cannot come in anew");
                return Ok((door, kept));
            }
            (Err(error), None) => return Err(error),
        },
        (None, Some(kept)) => return Ok((door, kept)),
        (None, None) => anyhow::bail!(
            "there is no good certificate in {}: give a token with --token (`landfall edge token` makes one)",
            config.data_dir.display()
        ),
    };
    made.save(&config.data_dir)?;
    tracing::info!(name = config.name, cluster = config.cluster, "came in");
    Ok((door, made))
}

/// At the hub, until something ends it.
async fn stay(core: &Core, door: &Door, identity: &Identity) -> Ended {
    let client = match identity.client(door).await {
        Ok(client) => client,
        Err(error) => return Ended::Silent(error),
    };
    let edges: Api<DynamicObject> = Api::all_with(client.clone(), &resource("Edge", "edges"));
    let reach = core.reach.changes();
    if let Err(ended) = patch(core, &edges, false, &announcement(core)).await {
        return ended;
    }
    tokio::select! {
        ended = heartbeat(core, &edges) => ended,
        ended = announce_again(core, &edges, reach) => ended,
        ended = renew(core, &client, identity) => ended,
        () = follow(core, client.clone()) => Ended::Silent(anyhow::anyhow!("the watch of plans ended")),
    }
}

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), plural)
}

/// What the edge is, as a merge patch of its object.
fn announcement(core: &Core) -> Value {
    let config = &core.config;
    json!({"spec": {
        "node": config.node, "zone": config.zone, "ingressReplicaSet": config.group, "addresses": core.reach.now().addresses,
        "peerAddress": core.peer_address(), "linkAddresses": config.link_addresses,
        "carries": core.carrier.carries(), "reservedPorts": core.carrier.reserved_ports(),
        "linked": core.carrier.peer().is_some(),
        "httpPort": core.carrier.http().map(|at| at.port()),
    }})
}

/// Says where the edge is reached whenever that has changed.
async fn announce_again(core: &Core, edges: &Api<DynamicObject>, mut reach: watch::Receiver<Place>) -> Ended {
    while reach.changed().await.is_ok() {
        if let Err(ended) = patch(core, edges, false, &announcement(core)).await {
            return ended;
        }
    }
    std::future::pending().await
}

/// Says that the edge is alive, and what it sees when that has changed.
async fn heartbeat(core: &Core, edges: &Api<DynamicObject>) -> Ended {
    let mut changes = core.prober.changes();
    let mut vips = core.vips.changes();
    let (mut whole_due, mut answered) = (Instant::now(), Instant::now());
    let (mut carried, mut carrying_due) = (false, Instant::now());
    let mut loads = LoadsTold::default();
    loop {
        let whole = changes.has_changed().unwrap_or(false) || Instant::now() >= whole_due;
        changes.mark_unchanged();
        let mut told = if whole { core.report() } else { status::alive(core.now_ms()) };
        if Instant::now() >= carrying_due {
            carrying_due = Instant::now() + CARRYING;
            let services = core.carrier.report();
            // That there is nothing any more is told once.
            let carries = !services.is_empty();
            if carries || carried {
                told = status::carrying(told, services, &mut loads);
            }
            carried = carries;
        }
        match patch(core, edges, true, &told).await {
            Ok(()) => {
                answered = Instant::now();
                if whole {
                    whole_due = answered + WHOLE_EVERY;
                    core.vips.was_told(!told["status"]["vips"].as_array().is_none_or(Vec::is_empty));
                }
            }
            Err(Ended::Silent(error)) if answered.elapsed() < SILENCE_MAX => {
                tracing::debug!(error = format!("{error:#}"), "a heartbeat failed");
                // What was not told is told with the next one.
                whole_due = Instant::now();
            }
            Err(ended) => return ended,
        }
        let next = Instant::now() + HEARTBEAT;
        tokio::time::sleep(TELL_EVERY).await;
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            _ = changes.changed() => changes.mark_changed(),
            () = held(&mut vips) => whole_due = Instant::now(),
        }
    }
}

/// Waits until virtual IPs are held, or wanted, otherwise; for ever where there are none.
async fn held(changes: &mut Option<Changes>) {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

async fn patch(core: &Core, edges: &Api<DynamicObject>, status: bool, what: &Value) -> Result<(), Ended> {
    let (params, what) = (PatchParams::apply(MANAGER), Patch::Merge(what));
    let params = PatchParams { force: false, ..params };
    let name = &core.config.name;
    let answer = async {
        match status {
            true => edges.patch_status(name, &params, &what).await,
            false => edges.patch(name, &params, &what).await,
        }
    };
    match tokio::time::timeout(ANSWER_MAX, answer).await {
        Ok(Ok(_)) => {
            core.heard();
            Ok(())
        }
        Ok(Err(kube::Error::Api(said))) if said.code == 401 => Err(Ended::Refused),
        Ok(Err(error)) => {
            Err(Ended::Silent(anyhow::Error::new(error).context("the hub does not take our word")))
        }
        Err(_) => Err(Ended::Silent(anyhow::anyhow!("the hub does not answer"))),
    }
}

/// Waits until the certificate has lived for long enough, and gets a new one.
async fn renew(core: &Core, client: &kube::Client, identity: &Identity) -> Ended {
    tokio::time::sleep(identity.renew_in(clock::epoch_s())).await;
    let config = &core.config;
    let claim = Claim { name: &config.name, cluster: &config.cluster, group: config.group.as_deref() };
    loop {
        let made = async { identity::obtain(client, claim).await?.save(&config.data_dir) };
        match made.await.context("cannot renew the certificate") {
            Ok(()) => {
                tracing::info!("the certificate is renewed");
                return Ended::Renewed;
            }
            Err(error) => tracing::warn!(error = format!("{error:#}"), "trying again"),
        }
        tokio::time::sleep(spread(RETRY.1)).await;
    }
}

/// Follows what the hub tells, for ever.
async fn follow(core: &Core, client: kube::Client) {
    let all = |kind: &str, plural: &str| Api::all_with(client.clone(), &resource(kind, plural));
    let secrets = Api::<Secret>::namespaced(client.clone(), CERTIFICATES_NAMESPACE);
    let certificate = |secret: Secret| {
        let mut data = secret.data.unwrap_or_default();
        let mut take = |entry: &str| data.remove(entry).map(|bytes| bytes.0).unwrap_or_default();
        Some(Certificate {
            chain_pem: take("tls.crt"),
            key_pem: take("tls.key"),
            authority_pem: take("ca.crt"),
        })
    };
    tokio::join!(
        listen(core, all("TrafficPlan", "trafficplans"), everything(), spec::<TrafficPlanSpec>),
        listen(core, all("RoutePlan", "routeplans"), of_own_group(core), spec::<RoutePlanSpec>),
        listen(core, secrets, of_own_group(core), certificate),
        // Of the own group because of its addresses, of others to see whether somebody answers at theirs.
        listen(core, all("GroupPlan", "groupplans"), everything(), spec::<GroupPlanSpec>),
    );
}

fn everything() -> watcher::Config {
    watcher::Config::default()
}

/// What its group carries, and the certificates for that: others' routes and keys are none of its business.
fn of_own_group(core: &Core) -> watcher::Config {
    everything().labels(&group_label(core.config.group.as_deref()))
}

/// Keeps one kind in the book as the hub has it, for ever.
async fn listen<K, P>(core: &Core, api: Api<K>, which: watcher::Config, read: impl Fn(K) -> Option<P>)
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
    P: Page,
{
    let mut events = watcher::watcher(api, which).boxed();
    let mut listed: Vec<(Key, P)> = Vec::new();
    let mut pause = RETRY.0;
    // One that cannot be read, as from a newer hub, is as it was before.
    let page = |object: K| {
        let key = key(&object);
        let before = || P::get(&core.book.now(), &key).map(|page| (*page).clone());
        read(object).or_else(before).map(|page| (key.clone(), page))
    };
    loop {
        match events.try_next().await {
            Ok(Some(event)) => {
                pause = RETRY.0;
                match event {
                    Event::Init => listed.clear(),
                    Event::InitApply(object) => listed.extend(page(object)),
                    Event::InitDone => core.book.replace(std::mem::take(&mut listed)),
                    Event::Apply(object) => {
                        if let Some((key, page)) = page(object) {
                            core.book.put(key, page);
                        }
                    }
                    Event::Delete(object) => core.book.remove::<P>(&key(&object)),
                }
            }
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "a watch of plans failed and is begun again");
                tokio::time::sleep(spread(pause)).await;
                pause = (pause * 2).min(RETRY.1);
            }
        }
    }
}

fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

fn spec<P: serde::de::DeserializeOwned>(mut object: DynamicObject) -> Option<P> {
    let spec = object.data.get_mut("spec").map(Value::take).unwrap_or_default();
    match serde_json::from_value(spec) {
        Ok(plan) => Some(plan),
        Err(error) => {
            let (namespace, name) = key(&object);
            tracing::warn!(namespace, name, %error, "a plan cannot be read; it stays as it was");
            None
        }
    }
}
