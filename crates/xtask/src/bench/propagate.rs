//! Propagation: a hub and many simulated members on one machine; objects are created and changed at a steady pace, and each
//! is timed from the hub's acknowledgement until the last member has it.
//!
//! The members share the machine with the hub, so that what is measured is both; how many cores each of the two took is printed
//! beside the times, and says who of them was the bottleneck. No peer runs beside it: the figure to compare with is Karmada's
//! published one (989 to 1,298 ms at the 99th percentile, 100 members, 64 cores; at which rate is not told).

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use landfall_apiserver::local::{Change, Follow, base64};
use landfall_sim::world::config::WorldConfig;
use landfall_sim::world::{Site, Start, World};
use serde_json::{Value, json};

use super::apiserver::client::Connection;
use super::apiserver::contender::Contender;
use crate::shell::{self, say};

/// What rows may be at most, on two cores: (its number, the target).
const TARGETS: &[(&str, f64)] =
    &[("2.", 300.0), ("4.", 300.0), ("5.", 0.0), ("6.", 1_024.0), (RESTART, 5.0), ("9.", 0.0), ("10.", 1.0)];
/// The row that tells how long a restart takes; its target holds up to so many shards.
const RESTART: &str = "8.";
const RESTART_SHARDS: usize = 30_000;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// What takes longer is told one by one.
const SLOW: Duration = Duration::from_millis(300);
/// Slow objects closer to each other than this are told of together.
const TOGETHER: Duration = Duration::from_secs(1);
/// The label that says which version of an object a shard is.
const STEP: &str = "bench-step";

#[derive(clap::Args)]
pub(super) struct Settings {
    /// How many clusters.
    #[arg(long, default_value_t = 100, value_name = "N")]
    clusters: usize,
    /// How many Services.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    services: usize,
    /// How many Deployments; with no replicas, so that no pods are measured.
    #[arg(long, default_value_t = 500, value_name = "N")]
    deployments: usize,
    /// How many objects are created, and then changed, per second.
    #[arg(long, default_value_t = 8.0, value_name = "N")]
    rate: f64,
    /// A tenth of the objects.
    #[arg(long)]
    quick: bool,
    /// Also write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The binary to measure; a release build is made when none is given.
    #[arg(long, value_name = "FILE")]
    landfall: Option<PathBuf>,
}

pub(super) fn run(settings: &Settings) -> Result<()> {
    let landfall = settings.landfall.clone().map_or_else(super::landfall, Ok)?;
    let planner = planner()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut rows = runtime.block_on(measure(settings, &landfall))?;
    runtime.shutdown_background();
    rows.insert("10. replicas over 1,000 clusters planned, P99 ms", planner);
    say("");
    say(&format!(
        "| {} simulated members, {} objects a second | | target at most | |\n|---|--:|--:|---|",
        settings.clusters, settings.rate
    ));
    let number = |name: &str| {
        name.split_once(' ').and_then(|(number, _)| number.trim_end_matches('.').parse::<u32>().ok())
    };
    let shards = objects(settings).len() * settings.clusters;
    let mut ordered: Vec<(&&str, &f64)> = rows.iter().collect();
    ordered.sort_by_key(|(name, _)| number(name));
    for (name, value) in ordered {
        let target = TARGETS.iter().find(|(number, _)| name.split(' ').next() == Some(number));
        let target = target.filter(|(number, _)| *number != RESTART || shards <= RESTART_SHARDS);
        let (most, word) = match target {
            Some((_, most)) => (format!("{most:.1}"), if value <= most { "PASS" } else { "miss" }),
            None => (String::new(), ""),
        };
        say(&format!("| {name} | {value:.2} | {most} | {word} |"));
    }
    if let Some(file) = &settings.json {
        std::fs::write(file, serde_json::to_vec_pretty(&json!(rows))?)?;
    }
    Ok(())
}

/// The worst that the planner's own measurement tells, in milliseconds.
fn planner() -> Result<f64> {
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--release", "-p", "landfall-plan", "--example", "replicas"]);
    let said = shell::output(command.current_dir(shell::root()))?;
    let high = |line: &str| line.rsplit_once("P99 ")?.1.split(' ').next()?.parse::<f64>().ok();
    let worst =
        said.lines().filter_map(high).reduce(f64::max).context("the planner's measurement says nothing")?;
    Ok(worst / 1_000.0)
}

async fn measure(settings: &Settings, landfall: &Path) -> Result<BTreeMap<&'static str, f64>> {
    let mut rows = BTreeMap::new();
    let mut config = WorldConfig::of(settings.clusters);
    config.distances = false;
    let world = World::start(&config, &Start::default(), |_| ()).await?;
    let mut hub = Contender::start("embedded", landfall)?;
    hub.wait_ready().await?;
    let mut connection = hub.target().connect().await?;
    let arrivals = Arc::new(Arrivals { members: settings.clusters, seen: Mutex::default() });
    let followers = world.sites().iter().map(|site| site.member.client("bench").follow(wanted));
    let mut tasks = tokio::task::JoinSet::new();
    for (at, follow) in followers.enumerate() {
        let follow = follow.map_err(|status| anyhow::anyhow!(status.message))?;
        tasks.spawn(watch(arrivals.clone(), at, follow));
    }
    join(&mut connection, world.sites()).await?;
    let objects = objects(settings);
    first(&mut connection, &arrivals).await?;
    say(&format!("    {} members joined", settings.clusters));
    // Joining has written namespaces; what follows is counted from here.
    quiet(&mut connection, settings.clusters).await?;
    let joined = metric(&mut connection, "landfall_shard_writes_total").await?;

    for (step, names) in STEPS {
        let before = Cores::now(hub.pid()?)?;
        let times = paced(&mut connection, &arrivals, &objects, step, settings.rate).await?;
        let cores = Cores::now(hub.pid()?)?.since(&before);
        let shards = (objects.len() * settings.clusters) as f64;
        let (high, each) = (percentile(&times, 0.99), cores.hub_s * 1000.0 / shards);
        let of_hub = cores.hub_s / cores.at_s;
        let values = [percentile(&times, 0.5), high, of_hub, cores.members_s / cores.at_s, each];
        rows.extend(names.into_iter().zip(values));
        say(&format!(
            "    {step}: P99 {high:.0} ms; the hub took {of_hub:.2} cores, {each:.2} ms for each shard"
        ));
    }
    quiet(&mut connection, settings.clusters).await?;
    let writes = metric(&mut connection, "landfall_shard_writes_total").await? - joined;
    // Every object twice in every member.
    let needed = objects.len() * 2 * settings.clusters;
    rows.insert("5. writes to members beyond those that were needed", writes - needed as f64);
    rows.insert("6. resident memory of the hub, MB", hub.resident_mb()?);
    rows.insert("7. shards", (objects.len() * settings.clusters) as f64);
    drop(connection);
    let began = Instant::now();
    hub.restart(landfall)?;
    hub.wait_ready().await?;
    let mut connection = hub.target().connect().await?;
    let looked = quiet(&mut connection, settings.clusters).await?;
    rows.insert("8. restart to converged, s", looked.duration_since(began).as_secs_f64());
    rows.insert(
        "9. writes to members after the restart",
        metric(&mut connection, "landfall_shard_writes_total").await?,
    );
    Ok(rows)
}

/// What a step is called, and its rows: median, 99th percentile, cores of the hub, cores of the members (and of this program),
/// and the hub's time for each shard.
const STEPS: [(&str, [&str; 5]); 2] = [
    (
        "create",
        [
            "1. create to all members, median ms",
            "2. create to all members, P99 ms",
            "11. create: cores that the hub took",
            "12. create: cores that the members took",
            "13. create: CPU of the hub for each shard, ms",
        ],
    ),
    (
        "update",
        [
            "3. update to all members, median ms",
            "4. update to all members, P99 ms",
            "14. update: cores that the hub took",
            "15. update: cores that the members took",
            "16. update: CPU of the hub for each shard, ms",
        ],
    ),
];

/// Time that has passed, and what of it the hub and the members were at work; the members are in this process.
struct Cores {
    began: Instant,
    at_s: f64,
    hub_s: f64,
    members_s: f64,
}

impl Cores {
    fn now(hub: u32) -> Result<Self> {
        let (hub_s, members_s) = (super::cpu_s(hub)?, super::cpu_s(std::process::id())?);
        Ok(Self { began: Instant::now(), at_s: 0.0, hub_s, members_s })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            began: before.began,
            at_s: self.began.duration_since(before.began).as_secs_f64(),
            hub_s: self.hub_s - before.hub_s,
            members_s: self.members_s - before.members_s,
        }
    }
}

/// Where each object has arrived.
struct Arrivals {
    members: usize,
    seen: Mutex<HashMap<String, Arrival>>,
}

/// Where one object has arrived.
struct Arrival {
    there: Vec<bool>,
    count: usize,
    everywhere: Option<Instant>,
}

impl Arrivals {
    fn arrive(&self, member: usize, what: String) {
        let mut seen = self.seen.lock().expect("nobody panics with it");
        let new = || Arrival { there: vec![false; self.members], count: 0, everywhere: None };
        let arrival = seen.entry(what).or_insert_with(new);
        if !std::mem::replace(&mut arrival.there[member], true) {
            arrival.count += 1;
            if arrival.count == self.members {
                arrival.everywhere = Some(Instant::now());
            }
        }
    }

    /// When it was everywhere.
    async fn everywhere(&self, what: &str) -> Result<Instant> {
        let began = Instant::now();
        loop {
            let all = self
                .seen
                .lock()
                .expect("nobody panics with it")
                .get(what)
                .and_then(|arrival| arrival.everywhere);
            match all {
                Some(all) => return Ok(all),
                None if began.elapsed() > PATIENCE => bail!("{what} did not arrive everywhere"),
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
}

fn wanted(key: &str) -> bool {
    ["core/services/bench/", "apps/deployments/bench/", "core/namespaces/bench"]
        .iter()
        .any(|start| key.starts_with(start))
}

async fn watch(arrivals: Arc<Arrivals>, member: usize, mut follow: Follow) {
    while let Ok(batch) = follow.next().await {
        for change in batch.changes {
            let Change::Put(place, object) = change else { continue };
            let step =
                object.pointer(&format!("/metadata/labels/{STEP}")).and_then(Value::as_str).unwrap_or("");
            arrivals.arrive(member, format!("{}/{}/{step}", place.plural, place.name));
        }
    }
}

async fn send(connection: &mut Connection, method: &str, path: &str, body: &Value) -> Result<()> {
    let (code, answer) = connection.ask(method, path, &body.to_string()).await?;
    if !(200..300).contains(&code) {
        bail!("{method} {path}: {code} {answer}");
    }
    Ok(())
}

async fn join(connection: &mut Connection, sites: &[Site]) -> Result<()> {
    let namespace = json!({"metadata": {"name": "landfall-system"}});
    send(connection, "POST", "/api/v1/namespaces", &namespace).await?;
    for site in sites {
        let (name, credentials) = (site.member.name(), site.member.credentials());
        let secret = json!({
            "metadata": {"name": format!("cluster-{name}")}, "type": "kubernetes.io/tls",
            "data": {"tls.crt": base64(&credentials.cert_pem), "tls.key": base64(&credentials.key_pem)},
        });
        send(connection, "POST", "/api/v1/namespaces/landfall-system/secrets", &secret).await?;
        let cluster = json!({
            "apiVersion": "landfall.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {
                "endpoints": [{"server": credentials.server}], "caBundle": base64(&credentials.ca_pem),
                "credentials": {"name": format!("cluster-{name}")},
            },
        });
        send(connection, "POST", "/apis/landfall.dev/v1alpha1/clusters", &cluster).await?;
    }
    Ok(())
}

/// The namespace of all that follows; when it is everywhere, everybody has joined.
async fn first(connection: &mut Connection, arrivals: &Arrivals) -> Result<()> {
    let namespace = json!({"metadata": {"name": "bench"}});
    send(connection, "POST", "/api/v1/namespaces", &namespace).await?;
    arrivals.everywhere("namespaces/bench/").await.map(drop)
}

/// (path of the collection, plural, name, object)
type Object = (&'static str, &'static str, String, Value);

fn objects(settings: &Settings) -> Vec<Object> {
    let many = |count: usize| if settings.quick { count.div_ceil(10) } else { count };
    let service = |at: usize| {
        let name = format!("service-{at}");
        let object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": {}},
            "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
        });
        ("/api/v1/namespaces/bench/services", "services", name, object)
    };
    let deployment = |at: usize| {
        let name = format!("deployment-{at}");
        let labels = json!({"app": name});
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {}},
            "spec": {
                "replicas": 0, "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "echo", "image": "echo", "ports": [{"containerPort": 8080}]}]},
                },
            },
        });
        ("/apis/apps/v1/namespaces/bench/deployments", "deployments", name, object)
    };
    let (services, deployments) = (many(settings.services), many(settings.deployments));
    let mut all: Vec<Object> = (0..services).map(service).chain((0..deployments).map(deployment)).collect();
    // Mixed, always in the same way: sums alone would keep names apart that begin alike.
    all.sort_by_key(|(_, _, name, _)| {
        let sum = name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        sum.wrapping_mul(0x9e37_79b1).rotate_left(15).wrapping_mul(0x85eb_ca6b)
    });
    all
}

/// Sends one step of every object at a steady pace; how long each took to be everywhere, in milliseconds.
async fn paced(
    connection: &mut Connection,
    arrivals: &Arrivals,
    objects: &[Object],
    step: &str,
    rate: f64,
) -> Result<Vec<f64>> {
    let began = Instant::now();
    let mut acknowledged = Vec::with_capacity(objects.len());
    for (at, (collection, plural, name, object)) in objects.iter().enumerate() {
        let due = began + Duration::from_secs_f64(at as f64 / rate);
        tokio::time::sleep_until(due.into()).await;
        let mut object = object.clone();
        object["metadata"]["labels"][STEP] = step.into();
        if step == "create" {
            send(connection, "POST", collection, &object).await?;
        } else {
            update(connection, &format!("{collection}/{name}"), step).await?;
        }
        acknowledged.push((format!("{plural}/{name}/{step}"), Instant::now()));
    }
    let mut times = Vec::with_capacity(acknowledged.len());
    let mut slow = Vec::new();
    for (what, since) in &acknowledged {
        let took = arrivals.everywhere(what).await?.saturating_duration_since(*since);
        if took > SLOW {
            slow.push((since.duration_since(began), took));
        }
        times.push(took.as_secs_f64() * 1000.0);
    }
    say_slow(&slow);
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Says when it was slow: one pause of the machine and a slowness of ours look the same in a percentile.
fn say_slow(slow: &[(Duration, Duration)]) {
    let mut spans: Vec<(Duration, Duration, Duration, usize)> = Vec::new();
    for (at, took) in slow {
        match spans.last_mut() {
            Some((_, until, longest, count)) if at.saturating_sub(*until) < TOGETHER => {
                (*until, *longest, *count) = (*at, (*longest).max(*took), *count + 1);
            }
            _ => spans.push((*at, *at, *took, 1)),
        }
    }
    for (from, until, longest, count) in spans {
        say(&format!(
            "    slow from {:.1} s to {:.1} s: {count} objects, at most {} ms",
            from.as_secs_f64(),
            until.as_secs_f64(),
            longest.as_millis()
        ));
    }
}

/// Changes an object as users do: read, change, write, and again when somebody else wrote meanwhile.
async fn update(connection: &mut Connection, path: &str, step: &str) -> Result<()> {
    for _ in 0..10 {
        let (_, text) = connection.ask("GET", path, "").await?;
        let mut object: Value = serde_json::from_str(&text).with_context(|| format!("GET {path}"))?;
        object["metadata"]["labels"][STEP] = step.into();
        match connection.ask("PUT", path, &object.to_string()).await? {
            (200, _) => return Ok(()),
            (409, _) => {}
            (code, answer) => bail!("PUT {path}: {code} {answer}"),
        }
    }
    bail!("{path} never stands still")
}

/// Waits until all members are connected and nobody has anything to do; since when that is so.
async fn quiet(connection: &mut Connection, clusters: usize) -> Result<Instant> {
    let began = Instant::now();
    let (mut last, mut since) = (-1.0, Instant::now());
    while began.elapsed() < PATIENCE {
        let looks = metric(connection, "landfall_reconcile_total").await?;
        let waiting = metric(connection, "landfall_workqueue_depth").await?;
        let ready = metric(connection, "landfall_clusters_ready").await?;
        if looks != last || waiting > 0.0 || (ready as usize) < clusters {
            (last, since) = (looks, Instant::now());
        }
        if since.elapsed() > Duration::from_secs(3) {
            return Ok(since);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("the hub never came to rest")
}

async fn metric(connection: &mut Connection, name: &str) -> Result<f64> {
    let (_, text) = connection.ask("GET", "/metrics", "").await?;
    let line = text.lines().find(|line| line.starts_with(name) && line[name.len()..].starts_with(' '));
    Ok(line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok()).unwrap_or(0.0))
}

fn percentile(sorted: &[f64], part: f64) -> f64 {
    let at = (sorted.len().saturating_sub(1) as f64 * part).round() as usize;
    sorted.get(at).copied().unwrap_or(0.0)
}
