//! The proxy: us, nginx and haproxy in front of the same backend, under wrk and h2load, in one run.
//!
//! Every proxy has one thread, so that the load generator and the backend have a core too; all of them add the same headers that
//! tell of the client, route by host, and keep connections open. CPU is what the proxy's process took while the load ran, by the
//! kernel's count; through two clusters, that of both proxies. Each is loaded as much as it can take, and then at an easy pace, which is the same for all.
//! Then twenty thousand clients come to each, and ask nothing. Afterwards ours has
//! five thousand routes: what it weighs, how long a changed route takes until a client sees it, and whether any request fails meanwhile.
//! What should be reached is told at the end, with what was.

pub(super) mod contender;
mod idle;
mod load;
mod targets;

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

use self::contender::{Backend, PEERS, landfall, start_all};
use self::idle::Idle;
use self::load::{Figures, LOADS, Load, NEAR, PACE, run as load};
use crate::setup;
use crate::shell::say;

/// Routes in the second part.
const ROUTES: usize = 5_000;

#[derive(clap::Args)]
pub(super) struct Settings {
    /// Shorter runs, fewer rounds.
    #[arg(long)]
    quick: bool,
    /// Also write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only this load, such as "HTTP/2 over TLS", and nothing else; may be repeated.
    #[arg(long = "load", value_name = "NAME", value_parser = LOADS.iter().map(|load| load.name).collect::<Vec<_>>())]
    loads: Vec<String>,
}

/// Figures of one load, by contender.
type Row = (&'static str, Vec<(&'static str, Figures)>);

pub(super) fn run(settings: &Settings) -> Result<()> {
    setup::install(PEERS)?;
    let work = Work::new(settings.quick, idle::allow()?);
    let directory = std::env::temp_dir().join(format!("landfall-bench-proxy-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let result = measure(&directory, &work, &settings.loads);
    // Nothing more can be done about files that do not go.
    let _ = std::fs::remove_dir_all(&directory);
    let figured = result?;
    let targets = targets::of(&figured);
    let Figured { table, idle, changes } = figured;
    show(&table);
    show_idle(&idle);
    if let Some(changes) = &changes {
        say("");
        say(&changes.told());
    }
    targets::show(&targets);
    if let Some(file) = &settings.json {
        let rows = table.iter().flat_map(|(load, rows)| {
            rows.iter().map(
                move |(server, figures)| json!({"load": load, "server": server, "figures": figures.json()}),
            )
        });
        let rows: Vec<_> = rows.collect();
        let idle: Vec<_> = idle.iter().map(Idle::json).collect();
        let all = json!({"loads": rows, "idle": idle, "changes": changes.as_ref().map(Changes::json), "targets": targets::json(&targets)});
        std::fs::write(file, serde_json::to_vec_pretty(&all)?)?;
    }
    Ok(())
}

/// How much is done.
struct Work {
    rounds: usize,
    seconds: u32,
    clients: usize,
    changes: u32,
}

impl Work {
    fn new(quick: bool, clients: usize) -> Self {
        let (rounds, seconds, changes) = if quick { (3, 3, 50) } else { (5, 5, 1_000) };
        Self { rounds, seconds, clients, changes }
    }
}

/// All that was measured.
struct Figured {
    table: Vec<Row>,
    idle: Vec<Idle>,
    /// None where only some loads were asked for.
    changes: Option<Changes>,
}

fn measure(directory: &Path, work: &Work, loads: &[String]) -> Result<Figured> {
    let backend = Backend::start(directory)?;
    let carry = contender::build()?;
    let contenders = start_all(directory, &carry, &backend)?;
    let mut table = Vec::new();
    for one in LOADS.iter().filter(|one| loads.is_empty() || loads.iter().any(|name| name == one.name)) {
        say(&format!("==> {}", one.name));
        let mut all: Vec<(&'static str, Vec<Figures>)> =
            contenders.iter().map(|contender| (contender.name, Vec::new())).collect();
        // In turn, so that a slow moment of the machine meets all of them; and each is the first once, should that matter.
        for round in 0..work.rounds {
            for turn in 0..contenders.len() {
                let at = (round + turn) % contenders.len();
                if let (Some(contender), Some((_, figures))) = (contenders.get(at), all.get_mut(at)) {
                    figures.push(load(contender, one, work.seconds)?);
                }
            }
        }
        let middle = all.into_iter().map(|(name, figures)| (name, Figures::middle(&figures)));
        table.push((one.name, middle.collect()));
    }
    drop(contenders);
    if !loads.is_empty() {
        return Ok(Figured { table, idle: Vec::new(), changes: None });
    }
    // New ones: what the others weigh tells of the load.
    let mut idle = Vec::new();
    for contender in start_all(directory, &carry, &backend)? {
        say(&format!("==> {} clients that ask nothing: {}", work.clients, contender.name));
        idle.push(idle::run(&contender, work.clients)?);
    }
    say(&format!("==> {ROUTES} routes, ten changes a second under load"));
    let changes = Some(changes(&carry, &backend, work.changes)?);
    Ok(Figured { table, idle, changes })
}

/// What many routes cost, and how changes fared.
struct Changes {
    times: u32,
    resident_mb: f64,
    /// When all was over.
    after_mb: f64,
    /// What our server said.
    said: String,
    figures: Figures,
}

impl Changes {
    fn told(&self) -> String {
        let Self { resident_mb, after_mb, said, figures, .. } = self;
        let Figures { failed, per_second, .. } = figures;
        format!(
            "{ROUTES} routes: {resident_mb:.1} MB resident, {after_mb:.1} MB afterwards; {said}; \
             {failed} failed requests at {per_second:.0}/s meanwhile"
        )
    }

    /// A figure that our server told by this name.
    fn figure(&self, name: &str) -> Option<f64> {
        let mut words = self.said.split_whitespace().skip_while(|word| *word != name);
        words.nth(1)?.parse().ok()
    }

    fn json(&self) -> serde_json::Value {
        let Self { times, resident_mb, after_mb, said, figures } = self;
        json!({
            "routes": ROUTES, "times": times, "residentMb": resident_mb, "afterMb": after_mb, "said": said,
            "figures": figures.json()
        })
    }
}

fn changes(carry: &Path, backend: &Backend, times: u32) -> Result<Changes> {
    let mut ours = landfall(carry, backend, ROUTES, false)?;
    let resident_mb = ours.resident_mb()?;
    ours.say(&format!("change {times} 100"))?;
    let steady = Load { name: "", port: 0, tool: load::Tool::Wrk, connections: 16, host: NEAR };
    // A change takes a moment itself: the load must not end before the last.
    let figures = load::at_pace(&ours, &steady, times.div_ceil(10) + times / 200 + 1)?;
    let said = ours.hear()?;
    Ok(Changes { times, resident_mb, after_mb: ours.resident_mb()?, said, figures })
}

fn show(table: &[Row]) {
    say("");
    say(&format!(
        "| load | server | CPU per request, µs | ratio to nginx | requests/s | p99, ms (time that the host took) | p99 at {PACE} requests/s, ms | failed |"
    ));
    say("|---|---|--:|--:|--:|--:|--:|--:|");
    for (load, rows) in table {
        let peer = rows.iter().find(|(name, _)| *name == "nginx").map_or(0.0, |(_, figures)| figures.cpu_us);
        for (name, figures) in rows {
            let ratio = if peer > 0.0 { figures.cpu_us / peer } else { 0.0 };
            let Figures { cpu_us, per_second, p99, paced_p99, failed } = figures;
            say(&format!(
                "| {load} | {name} | {cpu_us:.1} | {ratio:.2} | {per_second:.0} | {:.2} ({:.0} %) | {:.2} ({:.0} %) | {failed} |",
                p99.ms,
                p99.stolen * 100.0,
                paced_p99.ms,
                paced_p99.stolen * 100.0
            ));
        }
    }
}

fn show_idle(all: &[Idle]) {
    if all.is_empty() {
        return;
    }
    say("");
    say(
        "| clients that ask nothing | how many | resident before, MB | with them, MB | KB each | let in within, s |",
    );
    say("|---|--:|--:|--:|--:|--:|");
    for one in all {
        let Idle { server, clients, before_mb, with_mb, took } = one;
        let (each, took) = (one.kb_each(), took.as_secs_f64());
        say(&format!("| {server} | {clients} | {before_mb:.1} | {with_mb:.1} | {each:.1} | {took:.1} |"));
    }
}
