//! Failover: how long names lead to a cluster that is dead, how soon a decision of the hub is in all answers, and which clients
//! notice.
//!
//! A playground of three clusters as far from each other as they are on the globe. There is no peer beside it: nobody else votes.

mod clients;
mod dns;
pub(super) mod world;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use self::clients::{CLASSES, Class, Request, Resolver};
use self::world::World;
use crate::shell::say;

/// How long clients ask before the cluster is killed, and after.
const BEFORE: Duration = Duration::from_secs(2);
const AFTER: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub(super) struct Settings {
    /// Fewer rounds.
    #[arg(long)]
    quick: bool,
    /// The binary to measure; a release build is made when none is given.
    #[arg(long, value_name = "FILE")]
    landfall: Option<PathBuf>,
    /// Also write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(settings: &Settings) -> Result<()> {
    let landfall = settings.landfall.clone().map_or_else(super::landfall, Ok)?;
    let directory = std::env::temp_dir().join(format!("landfall-bench-failover-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let result = measure(settings, &landfall, &directory);
    // Nothing more can be done about files that do not go.
    let _ = std::fs::remove_dir_all(&directory);
    let figures = result?;
    show(&figures);
    if let Some(file) = &settings.json {
        let clients: Vec<_> = figures
            .clients
            .iter()
            .map(|one| {
                json!({"class": one.class.name, "client": one.class.client,
            "survives": one.survives, "failed": one.failed, "pauseS": one.pause.as_secs_f64()})
            })
            .collect();
        let ms = |times: &[Duration]| times.iter().map(|time| time.as_secs_f64() * 1e3).collect::<Vec<_>>();
        let text = json!({"killToAnswersMs": ms(&figures.killed), "commitToAnswersMs": ms(&figures.committed), "clients": clients});
        std::fs::write(file, serde_json::to_vec_pretty(&text)?)?;
    }
    Ok(())
}

/// What was measured.
struct Figures {
    /// From killing a cluster until the last edge leaves it out.
    killed: Vec<Duration>,
    /// From the hub's commit of a plan until the last edge answers by it.
    committed: Vec<Duration>,
    clients: Vec<Outcome>,
}

/// What a client went through.
struct Outcome {
    class: &'static Class,
    /// Whether it was answered again.
    survives: bool,
    /// Requests that failed.
    failed: usize,
    /// The longest time without an answer.
    pause: Duration,
}

fn measure(settings: &Settings, landfall: &Path, directory: &Path) -> Result<Figures> {
    let world = World::start(landfall, directory)?;
    let (kills, commits) = if settings.quick { (2, 5) } else { (5, 20) };
    say("==> hub commit to answers");
    let committed = (0..commits).map(|round| commit(&world, 200 + round)).collect::<Result<Vec<_>>>()?;
    say("==> kill to answers");
    let mut killed = Vec::new();
    for round in 0..kills {
        killed.push(kill(&world, round)?);
    }
    // Clients stand nearest to a cluster that is not the hub's, and ask the others' edges only when its own is silent.
    let near = world.places.get(1).context("three clusters")?;
    let mut edges = vec![near.edge];
    edges.extend(world.places.iter().map(|place| place.edge).filter(|edge| *edge != near.edge));
    let resolver = Resolver::start(directory, &edges)?;
    let mut outcomes = Vec::new();
    for class in CLASSES.iter().filter(|class| class.is_here()) {
        say(&format!("==> {}: {}", class.name, class.client));
        outcomes.push(client(&world, class, &near.cluster, &resolver)?);
    }
    Ok(Figures { killed, committed, clients: outcomes })
}

/// Gives the name another TTL: from when a watcher at the hub hears of it until the last edge answers so.
fn commit(world: &World, ttl_s: u32) -> Result<Duration> {
    let mut watch = world.watch()?;
    let edges: Vec<SocketAddr> = world.places.iter().map(|place| place.edge).collect();
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| world.answers(&edges, |answer| answer.ttl_s == ttl_s));
        let heard = scope.spawn(move || watch.until_ttl(ttl_s));
        world.set_ttl(ttl_s)?;
        let heard = heard.join().map_err(|_| anyhow::anyhow!("the watch failed"))??;
        let last = answers.join().map_err(|_| anyhow::anyhow!("asking failed"))??.into_iter().max();
        // The nearest edge may be quicker than our own watcher.
        Ok(last.context("no edge")?.saturating_duration_since(heard))
    })
}

/// Kills a cluster, another one each time but the hub's; until the last of the others leaves it out.
fn kill(world: &World, round: usize) -> Result<Duration> {
    let dead = world.places.get(1 + round % 2).context("three clusters")?;
    let others: Vec<SocketAddr> =
        world.places.iter().filter(|place| place.cluster != dead.cluster).map(|place| place.edge).collect();
    let began = Instant::now();
    world.fault(&["kill", &dead.cluster])?;
    let last = world.answers(&others, |answer| !answer.addresses.contains(&dead.balancer))?.into_iter().max();
    let took = last.context("no edge")?.duration_since(began);
    world.fault(&["heal"])?;
    world.whole()?;
    Ok(took)
}

/// A client whose nearest cluster is killed.
fn client(world: &World, class: &'static Class, near: &str, resolver: &Resolver) -> Result<Outcome> {
    let stop = AtomicBool::new(false);
    let (killed, requests) = std::thread::scope(|scope| -> Result<(Instant, Vec<Request>)> {
        let asking = scope.spawn(|| resolver.client(class, &stop));
        std::thread::sleep(BEFORE);
        let killed = Instant::now();
        let broken = world.fault(&["kill", near]);
        std::thread::sleep(AFTER);
        stop.store(true, Ordering::Relaxed);
        broken?;
        Ok((killed, asking.join().map_err(|_| anyhow::anyhow!("a client failed"))??))
    })?;
    world.fault(&["heal"])?;
    world.whole()?;
    outcome(class, killed, &requests)
}

fn outcome(class: &'static Class, killed: Instant, requests: &[Request]) -> Result<Outcome> {
    let first = requests.iter().rfind(|request| request.at < killed && request.good);
    let mut last = first.with_context(|| format!("{} was never answered", class.client))?.at;
    let after: Vec<&Request> = requests.iter().filter(|request| request.at >= killed).collect();
    let mut pause = Duration::ZERO;
    for request in after.iter().filter(|request| request.good) {
        pause = pause.max(request.at.duration_since(last));
        last = request.at;
    }
    Ok(Outcome {
        class,
        survives: after.last().is_some_and(|request| request.good),
        failed: after.iter().filter(|request| !request.good).count(),
        pause,
    })
}

fn show(figures: &Figures) {
    let row = |name: &str, times: &[Duration], target: &str| {
        let mut sorted = times.to_vec();
        sorted.sort();
        let middle = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
        let worst = sorted.last().copied().unwrap_or_default();
        let ms = |time: Duration| format!("{:.0}", time.as_secs_f64() * 1e3);
        say(&format!("| {name} | {} | {} | {} | {target} |", sorted.len(), ms(middle), ms(worst)));
    };
    say("");
    say("| three simulated clusters | rounds | median ms | worst ms | target ms |\n|---|--:|--:|--:|--:|");
    row("a cluster is killed: until no other edge answers with it", &figures.killed, "5000");
    row("the hub commits a plan: until all edges answer by it", &figures.committed, "200");
    say("");
    say(
        "| class | client, asking ten times a second | survives | failed requests | longest time without an answer, s |",
    );
    say("|---|---|---|--:|--:|");
    for one in &figures.clients {
        let pause = if one.survives {
            format!("{:.1}", one.pause.as_secs_f64())
        } else {
            "until the cluster is back".into()
        };
        let survives = if one.survives { "yes" } else { "no" };
        say(&format!(
            "| {} | {} | {survives} | {} | {pause} |",
            one.class.name, one.class.client, one.failed
        ));
    }
}
