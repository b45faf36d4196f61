//! DNS: us, gdnsd and Knot with the same zone, under dnsperf, in one run.
//!
//! Ten thousand names with three addresses each. We and gdnsd look up where the client stands among the same prefixes, and leave out
//! what is down; Knot has a plain zone. Every server has one UDP thread, so that the load generator has a core too. CPU is what
//! the server's process took while the load ran, by the kernel's count.

mod contender;
mod load;

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use self::contender::{Contender, start_all, start_ours};
use self::load::{Figures, run as load};
use crate::setup;
use crate::shell::say;

/// Names in the zone.
const NAMES: usize = 10_000;
/// Names with which ours is only weighed.
const MANY_NAMES: usize = 100_000;
/// Prefixes of clients.
const PREFIXES: u32 = 3_000;

#[derive(clap::Args)]
pub(super) struct Settings {
    /// Shorter runs, fewer rounds.
    #[arg(long)]
    quick: bool,
    /// Also write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One way of loading: its name, and how many questions a second are offered; as many as possible when none.
const LOADS: &[(&str, Option<u32>)] =
    &[("as fast as it goes", None), ("200,000 a second", Some(200_000)), ("20,000 a second", Some(20_000))];

pub(super) fn run(settings: &Settings) -> Result<()> {
    setup::install(&[("gdnsd", "gdnsd"), ("knotd", "knot"), ("dnsperf", "dnsperf")])?;
    let (rounds, seconds) = if settings.quick { (3, 3) } else { (5, 10) };
    let directory = std::env::temp_dir().join(format!("landfall-bench-dns-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let result = measure(&directory, rounds, seconds);
    // Nothing more can be done about files that do not go.
    let _ = std::fs::remove_dir_all(&directory);
    let Measured { table, weights } = result?;
    show(&table);
    weigh(&weights);
    if let Some(file) = &settings.json {
        let rows = table.iter().flat_map(|(load, rows)| {
            rows.iter().map(
                move |(server, figures)| json!({"load": load, "server": server, "figures": figures.json()}),
            )
        });
        let weights = weights
            .iter()
            .map(|weight| json!({"server": weight.server, "names": weight.names, "residentMb": weight.mb}));
        std::fs::write(file, serde_json::to_vec_pretty(&rows.chain(weights).collect::<Vec<_>>())?)?;
    }
    Ok(())
}

/// All that was measured.
struct Measured {
    table: Vec<Row>,
    weights: Vec<Weight>,
}

/// What a server weighs with so many names.
struct Weight {
    server: &'static str,
    names: usize,
    mb: f64,
}

/// Figures of one load, by contender.
type Row = (&'static str, Vec<(&'static str, Figures)>);

fn measure(directory: &std::path::Path, rounds: usize, seconds: u32) -> Result<Measured> {
    let contenders = start_all(directory, NAMES, PREFIXES)?;
    let questions = directory.join("questions");
    let lines: String = (0..NAMES).map(|n| format!("svc-{n}.bench.fed.example.com A\n")).collect();
    std::fs::write(&questions, lines)?;
    let mut table = Vec::new();
    for (name, rate) in LOADS {
        say(&format!("==> {name}"));
        let mut all: Vec<(&'static str, Vec<Figures>)> =
            contenders.iter().map(|c| (c.name, Vec::new())).collect();
        // In turn, so that a slow moment of the machine meets all of them.
        for _ in 0..rounds {
            for (contender, (_, figures)) in contenders.iter().zip(&mut all) {
                figures.push(load(contender, &questions, *rate, seconds)?);
            }
        }
        table
            .push((*name, all.into_iter().map(|(name, figures)| (name, Figures::middle(figures))).collect()));
    }
    let weight = |contender: &Contender, names: usize| {
        contender.weigh().map(|weighed| Weight { server: weighed.name, names, mb: weighed.memory_mb })
    };
    let mut weights: Vec<Weight> =
        contenders.iter().map(|contender| weight(contender, NAMES)).collect::<Result<_>>()?;
    weights.push(weight(&start_ours(MANY_NAMES, PREFIXES)?, MANY_NAMES)?);
    Ok(Measured { table, weights })
}

fn weigh(weights: &[Weight]) {
    say("");
    say("| server | names | resident, MB |");
    say("|---|--:|--:|");
    for Weight { server, names, mb } in weights {
        say(&format!("| {server} | {names} | {mb:.0} |"));
    }
}

fn show(table: &[Row]) {
    say("");
    say("| load | server | CPU per query, µs | ratio | queries/s | lost | mean latency, µs |");
    say("|---|---|--:|--:|--:|--:|--:|");
    for (load, rows) in table {
        let peer = rows.iter().find(|(name, _)| *name == "gdnsd").map_or(0.0, |(_, figures)| figures.cpu_us);
        for (name, figures) in rows {
            let ratio = if peer > 0.0 { figures.cpu_us / peer } else { 0.0 };
            say(&format!(
                "| {load} | {name} | {:.2} | {ratio:.2} | {:.0} | {} | {:.0} |",
                figures.cpu_us, figures.per_second, figures.lost, figures.latency_us
            ));
        }
    }
}
