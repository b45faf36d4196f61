//! The API server beside kube-apiserver: the same load over TLS on each in turn.

pub(super) mod client;
pub(super) mod contender;
mod load;
mod table;
mod watchers;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::shell::say;
use contender::Contender;
use table::Row;

#[derive(clap::Args)]
pub(super) struct Settings {
    /// A tenth of the work; figures are rough.
    #[arg(long)]
    quick: bool,
    /// Also write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only these: kubernetes, etcd, embedded (separated by commas).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// How much is done of each thing.
#[derive(Clone, Copy)]
struct Work {
    objects: usize,
    reads: Duration,
    watchers: usize,
    writes_per_s: u32,
    watch: Duration,
}

const FULL: Work = Work {
    objects: 16_000,
    reads: Duration::from_secs(8),
    watchers: 1_000,
    writes_per_s: 500,
    watch: Duration::from_secs(5),
};

const QUICK: Work = Work {
    objects: 1_500,
    reads: Duration::from_secs(1),
    watchers: 100,
    writes_per_s: 500,
    watch: Duration::from_secs(1),
};

/// Connections that create and get, and that list.
const CONNECTIONS: usize = 192;
const LIST_CONNECTIONS: usize = 8;

pub(super) fn run(settings: &Settings) -> Result<()> {
    let landfall = super::landfall()?;
    let wanted = |name: &str| settings.only.is_empty() || settings.only.iter().any(|only| only == name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work = if settings.quick { QUICK } else { FULL };
    let mut rows = Vec::new();
    for name in contender::NAMES.iter().filter(|name| wanted(name)) {
        say(&format!("==> {name}"));
        let contender = Contender::start(name, &landfall).with_context(|| format!("cannot start {name}"))?;
        let row =
            runtime.block_on(measure(name, contender, work)).with_context(|| format!("measuring {name}"))?;
        rows.push(row);
    }
    say("");
    say(&table::render(&rows));
    if let Some(file) = &settings.json {
        std::fs::write(file, serde_json::to_vec_pretty(&table::to_json(&rows))?)?;
    }
    Ok(())
}

async fn measure(name: &str, contender: Contender, work: Work) -> Result<Row> {
    let mut row = Row::new(name);
    row.ready_ms = contender.wait_ready().await?.as_secs_f64() * 1e3;
    say(&format!("    ready after {:.0} ms, {:.0} MB", row.ready_ms, contender.resident_mb()?));
    let target = contender.target();
    for number in 0..work.objects / load::NAMESPACE_OBJECTS {
        load::create_namespace(&target, &load::namespace(number)).await?;
    }
    let created = load::create(&target, work.objects, CONNECTIONS).await?;
    ensure!(created.failures == 0, "{} of {} creates failed", created.failures, work.objects);
    row.creates_per_s = created.per_s();
    say(&format!("    {:.0} creates/s", row.creates_per_s));
    let got = load::get(&target, work.objects, CONNECTIONS, work.reads).await?;
    row.gets_per_s = got.per_s();
    say(&format!("    {:.0} gets/s ({} failed)", row.gets_per_s, got.failures));
    let listed = load::list(&target, work.objects, LIST_CONNECTIONS, work.reads).await?;
    row.lists_per_s = listed.per_s();
    say(&format!("    {:.0} lists of 500/s ({} failed)", row.lists_per_s, listed.failures));
    row.resident_mb = contender.resident_mb()?;
    say(&format!("    {:.0} MB resident with {} objects", row.resident_mb, work.objects));
    let seen = watchers::run(&target, work.watchers, work.writes_per_s, work.watch).await?;
    say(&format!(
        "    {} watchers: {} of {} events each at least, {:.0} writes/s",
        work.watchers, seen.least, seen.written, seen.writes_per_s
    ));
    row.watch_least = seen.least;
    row.watch_written = seen.written;
    row.watch_writes_per_s = seen.writes_per_s;
    Ok(row)
}
