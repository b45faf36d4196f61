//! Virtual IPs: the holder of an address is lost again and again, in every way there is, and a client that asks in a loop tells how
//! long it was not answered. Beside us stands a pair of keepalived as anybody writes it by hand, on a link of the same kind.
//!
//! What is said on the link is heard all the while: two that hold the address and see each other are counted.

mod loss;
mod ours;
mod pair;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use self::loss::{Contender, LOSSES, Loss, Outcome};
use self::ours::Ours;
use self::pair::Pair;
use crate::setup;
use crate::shell::say;

/// Programs, and the packages they come from.
const PROGRAMS: &[(&str, &str)] =
    &[("keepalived", "keepalived"), ("tcpdump", "tcpdump"), ("nginx", "nginx-light"), ("curl", "curl")];
/// An address may be lost for so long at most.
const TARGET_MS: f64 = 1_000.0;
/// How often each kind of loss is tried.
const ROUNDS: usize = 10;
const ROUNDS_QUICK: usize = 2;
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(super) struct Settings {
    /// A fifth of the kills.
    #[arg(long)]
    quick: bool,
    /// The binary to measure; a release build is made when none is given.
    #[arg(long, value_name = "FILE")]
    landfall: Option<PathBuf>,
    /// Also write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What one contender went through.
type Outcomes = Vec<(Loss, Outcome)>;

pub(super) fn run(settings: &Settings) -> Result<()> {
    setup::install(PROGRAMS)?;
    let landfall = settings.landfall.clone().map_or_else(super::landfall, Ok)?;
    let directory = std::env::temp_dir().join(format!("landfall-bench-vip-{}", std::process::id()));
    let result = measure(settings, &landfall, &directory);
    // Nothing more can be done about files that do not go.
    let _ = std::fs::remove_dir_all(&directory);
    let (ours, theirs) = result?;
    show(&ours, &theirs);
    if let Some(file) = &settings.json {
        let found = json!({"landfall": figures(&ours), "keepalived": figures(&theirs)});
        std::fs::write(file, serde_json::to_vec_pretty(&found)?)?;
    }
    Ok(())
}

fn measure(settings: &Settings, landfall: &Path, directory: &Path) -> Result<(Outcomes, Outcomes)> {
    let rounds = if settings.quick { ROUNDS_QUICK } else { ROUNDS };
    let (own, peer) = (directory.join("landfall"), directory.join("pair"));
    std::fs::create_dir_all(&own)?;
    std::fs::create_dir_all(&peer)?;
    say("==> two edges with their keepers");
    let ours = lose(&mut Ours::start(landfall, &own)?, rounds)?;
    say("==> two nodes with nginx and keepalived, configured by hand");
    let theirs = lose(&mut Pair::start(&peer)?, rounds)?;
    Ok((ours, theirs))
}

/// Loses the holder in every way, so often.
fn lose(contender: &mut dyn Contender, rounds: usize) -> Result<Outcomes> {
    let mut outcomes = Vec::new();
    for round in 0..rounds {
        for loss in LOSSES {
            if !contender.has(loss) {
                continue;
            }
            let outcome = loss::once(contender, loss)?;
            say(&format!(
                "    {}, {} of {rounds}: not answered for {:.0} ms{}",
                loss.name(),
                round + 1,
                ms(outcome.lost),
                if outcome.doubles > 0 { "; two held it" } else { "" }
            ));
            outcomes.push((loss, outcome));
        }
    }
    Ok(outcomes)
}

/// Median, worst and number of some times, in milliseconds.
fn summary(outcomes: &Outcomes, loss: Option<Loss>) -> Option<(f64, f64, usize)> {
    let chosen = outcomes.iter().filter(|(own, _)| loss.is_none_or(|loss| loss == *own));
    let mut times: Vec<f64> = chosen.map(|(_, outcome)| ms(outcome.lost)).collect();
    times.sort_by(f64::total_cmp);
    Some((*times.get(times.len() / 2)?, *times.last()?, times.len()))
}

fn show(ours: &Outcomes, theirs: &Outcomes) {
    say("");
    say(
        "| lost by the holder | kills | median ms | worst ms | target ms | | by hand: median ms | worst ms | ratio of medians |",
    );
    say("|---|--:|--:|--:|--:|---|--:|--:|--:|");
    for loss in LOSSES.iter().copied().map(Some).chain([None]) {
        let Some((median, worst, kills)) = summary(ours, loss) else { continue };
        let word = if worst < TARGET_MS { "PASS" } else { "miss" };
        let peer = match summary(theirs, loss) {
            Some((theirs, worst, _)) => format!("{theirs:.0} | {worst:.0} | {:.1}", theirs / median),
            None => "| |".to_owned(),
        };
        let name = loss.map_or("all", Loss::name);
        say(&format!("| {name} | {kills} | {median:.0} | {worst:.0} | < {TARGET_MS:.0} | {word} | {peer} |"));
    }
    let doubles = |all: &Outcomes| all.iter().filter(|(_, outcome)| outcome.doubles > 0).count();
    let own = doubles(ours);
    say("");
    say(&format!(
        "Two that held the address and saw each other, heard on the link (VRRP and ARP): after {own} of {} kills (target 0, {}); \
         by hand after {} of {}.",
        ours.len(),
        if own == 0 { "PASS" } else { "miss" },
        doubles(theirs),
        theirs.len()
    ));
}

fn figures(outcomes: &Outcomes) -> Value {
    let one = |(loss, outcome): &(Loss, Outcome)| json!({"loss": loss.name(), "lostMs": ms(outcome.lost), "doubleHolders": outcome.doubles});
    outcomes.iter().map(one).collect()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Waits until something is so.
fn until(what: &str, mut so: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if so()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("not so after {} s: {what}", PATIENCE.as_secs())
}
