//! The proxy: us, nginx and haproxy in front of the same backend, under wrk and h2load, in one run.
//!
//! Every proxy has one thread, so that the load generator and the backend have a core too; all of them add the same headers that
//! tell of the client, route by host, and keep connections open. CPU is what the proxy's process took while the load ran, by the
//! kernel's count; through two clusters, that of both proxies. Then twenty thousand clients come to each, and ask nothing. Afterwards ours has
//! five thousand routes: what it weighs, how long a changed route takes until a client sees it, and whether any request fails meanwhile.

pub(super) mod contender;
mod idle;
mod load;

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

use self::contender::{Backend, PEERS, landfall, start_all};
use self::idle::Idle;
use self::load::{Figures, LOADS, Load, NEAR, run as load};
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
}

/// Figures of one load, by contender.
type Row = (&'static str, Vec<(&'static str, Figures)>);

pub(super) fn run(settings: &Settings) -> Result<()> {
    setup::install(PEERS)?;
    idle::allow()?;
    let (rounds, seconds) = if settings.quick { (3, 3) } else { (5, 5) };
    let directory = std::env::temp_dir().join(format!("landfall-bench-proxy-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let result = measure(&directory, rounds, seconds);
    // Nothing more can be done about files that do not go.
    let _ = std::fs::remove_dir_all(&directory);
    let Figured { table, idle, changes } = result?;
    show(&table);
    show_idle(&idle);
    say("");
    say(&changes.told());
    if let Some(file) = &settings.json {
        let rows = table.iter().flat_map(|(load, rows)| {
            rows.iter().map(
                move |(server, figures)| json!({"load": load, "server": server, "figures": figures.json()}),
            )
        });
        let rows: Vec<_> = rows.collect();
        let idle: Vec<_> = idle.iter().map(Idle::json).collect();
        let all = json!({"loads": rows, "idle": idle, "changes": changes.json()});
        std::fs::write(file, serde_json::to_vec_pretty(&all)?)?;
    }
    Ok(())
}

/// All that was measured.
struct Figured {
    table: Vec<Row>,
    idle: Vec<Idle>,
    changes: Changes,
}

fn measure(directory: &Path, rounds: usize, seconds: u32) -> Result<Figured> {
    let backend = Backend::start(directory)?;
    let carry = contender::build()?;
    let contenders = start_all(directory, &carry, &backend)?;
    let mut table = Vec::new();
    for one in LOADS {
        say(&format!("==> {}", one.name));
        let mut all: Vec<(&'static str, Vec<Figures>)> =
            contenders.iter().map(|contender| (contender.name, Vec::new())).collect();
        // In turn, so that a slow moment of the machine meets all of them.
        for _ in 0..rounds {
            for (contender, (_, figures)) in contenders.iter().zip(&mut all) {
                figures.push(load(contender, one, seconds)?);
            }
        }
        let middle = all.into_iter().map(|(name, figures)| (name, Figures::middle(figures)));
        table.push((one.name, middle.collect()));
    }
    drop(contenders);
    // New ones: what the others weigh tells of the load.
    let mut idle = Vec::new();
    for contender in start_all(directory, &carry, &backend)? {
        say(&format!("==> {} clients that ask nothing: {}", idle::CLIENTS, contender.name));
        idle.push(idle::run(&contender)?);
    }
    say(&format!("==> {ROUTES} routes, ten changes a second under load"));
    let changes = changes(&carry, &backend, if rounds > 3 { 1_000 } else { 50 })?;
    Ok(Figured { table, idle, changes })
}

/// What many routes cost, and how changes fared.
struct Changes {
    resident_mb: f64,
    /// What our server said.
    said: String,
    figures: Figures,
}

impl Changes {
    fn told(&self) -> String {
        let Self { resident_mb, said, figures } = self;
        let Figures { failed, per_second, .. } = figures;
        format!(
            "{ROUTES} routes: {resident_mb:.1} MB resident; {said}; {failed} failed requests at {per_second:.0}/s meanwhile"
        )
    }

    fn json(&self) -> serde_json::Value {
        json!({"routes": ROUTES, "residentMb": self.resident_mb, "said": self.said, "figures": self.figures.json()})
    }
}

fn changes(carry: &Path, backend: &Backend, times: u32) -> Result<Changes> {
    let mut ours = landfall(carry, backend, ROUTES, false)?;
    let resident_mb = ours.resident_mb()?;
    ours.say(&format!("change {times} 100"))?;
    let steady = Load { name: "", port: 0, tool: load::Tool::Wrk, connections: 16, host: NEAR };
    let figures = load(&ours, &steady, times.div_ceil(10))?;
    let said = ours.hear()?;
    Ok(Changes { resident_mb, said, figures })
}

fn show(table: &[Row]) {
    say("");
    say("| load | server | CPU per request, µs | ratio to nginx | requests/s | p99, ms | failed |");
    say("|---|---|--:|--:|--:|--:|--:|");
    for (load, rows) in table {
        let peer = rows.iter().find(|(name, _)| *name == "nginx").map_or(0.0, |(_, figures)| figures.cpu_us);
        for (name, figures) in rows {
            let ratio = if peer > 0.0 { figures.cpu_us / peer } else { 0.0 };
            let Figures { cpu_us, per_second, p99_ms, failed } = figures;
            say(&format!(
                "| {load} | {name} | {cpu_us:.1} | {ratio:.2} | {per_second:.0} | {p99_ms:.2} | {failed} |"
            ));
        }
    }
}

fn show_idle(all: &[Idle]) {
    say("");
    say(&format!(
        "| {} clients that ask nothing | resident before, MB | with them, MB | KB each | let in within, s |",
        idle::CLIENTS
    ));
    say("|---|--:|--:|--:|--:|");
    for one in all {
        let Idle { server, before_mb, with_mb, took } = one;
        let (each, took) = (one.kb_each(), took.as_secs_f64());
        say(&format!("| {server} | {before_mb:.1} | {with_mb:.1} | {each:.1} | {took:.1} |"));
    }
}
