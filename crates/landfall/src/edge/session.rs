//! The edge at the hub: comes in, follows plans, says that it is alive and what it sees, renews its certificate; again and
//! again, for as long as the edge runs.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event};
use landfall_api::landfall::{GROUP, TrafficPlanSpec, VERSION};
use landfall_runtime::clock;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::book::Key;
use super::core::Core;
use super::identity::{self, Claim, Door, Identity};
use super::status;

/// How often the edge says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(2);
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
            Ok((door, identity)) => stay(core, &door, &identity).await,
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
    let claim = Claim { name: &config.name, cluster: &config.cluster };
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
    if let Err(ended) = patch(core, &edges, false, &announcement(core)).await {
        return ended;
    }
    tokio::select! {
        ended = heartbeat(core, &edges) => ended,
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
        "node": config.node, "zone": config.zone, "addresses": config.addresses,
        "peerAddress": core.peer_address(),
    }})
}

/// Says that the edge is alive, and what it sees when that has changed.
async fn heartbeat(core: &Core, edges: &Api<DynamicObject>) -> Ended {
    let mut changes = core.prober.changes();
    let (mut whole_due, mut answered) = (Instant::now(), Instant::now());
    loop {
        let whole = changes.has_changed().unwrap_or(false) || Instant::now() >= whole_due;
        changes.mark_unchanged();
        let told = if whole { core.report() } else { status::alive(core.now_ms()) };
        match patch(core, edges, true, &told).await {
            Ok(()) => {
                answered = Instant::now();
                if whole {
                    whole_due = answered + WHOLE_EVERY;
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
        }
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
    let claim = Claim { name: &core.config.name, cluster: &core.config.cluster };
    loop {
        let made = async { identity::obtain(client, claim).await?.save(&core.config.data_dir) };
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

/// Follows the hub's plans for ever.
async fn follow(core: &Core, client: kube::Client) {
    let api: Api<DynamicObject> = Api::all_with(client, &resource("TrafficPlan", "trafficplans"));
    let mut events = watcher::watcher(api, watcher::Config::default()).boxed();
    let mut listed = Vec::new();
    let mut pause = RETRY.0;
    loop {
        match events.try_next().await {
            Ok(Some(event)) => {
                pause = RETRY.0;
                take(core, event, &mut listed);
            }
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "the watch of plans failed and is begun again");
                tokio::time::sleep(spread(pause)).await;
                pause = (pause * 2).min(RETRY.1);
            }
        }
    }
}

fn take(core: &Core, event: Event<DynamicObject>, listed: &mut Vec<(Key, TrafficPlanSpec)>) {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => listed.extend(plan(core, object)),
        Event::InitDone => core.book.replace(std::mem::take(listed)),
        Event::Apply(object) => {
            if let Some((key, plan)) = plan(core, object) {
                core.book.put(key, plan);
            }
        }
        Event::Delete(object) => core.book.remove(&key(&object)),
    }
}

fn key(object: &DynamicObject) -> Key {
    (object.metadata.namespace.clone().unwrap_or_default(), object.metadata.name.clone().unwrap_or_default())
}

/// A plan as it arrived. One that cannot be read, as from a newer hub, is as it was before.
fn plan(core: &Core, mut object: DynamicObject) -> Option<(Key, TrafficPlanSpec)> {
    let key = key(&object);
    let spec = object.data.get_mut("spec").map(Value::take).unwrap_or_default();
    match serde_json::from_value(spec) {
        Ok(plan) => Some((key, plan)),
        Err(error) => {
            tracing::warn!(namespace = key.0, name = key.1, %error, "a plan cannot be read; it stays as it was");
            let before = core.book.now().services.get(&key).map(|plan| (**plan).clone());
            before.map(|plan| (key, plan))
        }
    }
}
