//! Binding: how long the planner takes for many Ingresses and many groups of edges; and how long an Ingress is not answered when all
//! edges of its group are lost.
//!
//! There is no peer beside it: nobody else has built what the proposal asked for.

mod lost;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::shell::{output, root, say, step};

/// An Ingress whose group is lost is answered elsewhere within so long, in milliseconds.
const TARGET_MS: f64 = 2_000.0;

#[derive(clap::Args)]
pub(super) struct Settings {
    /// How many Ingresses.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    ingresses: usize,
    /// How many groups.
    #[arg(long, default_value_t = 100, value_name = "N")]
    groups: usize,
    /// A tenth of the Ingresses, and fewer losses.
    #[arg(long)]
    quick: bool,
    /// The binary whose groups are lost; a release build is made when none is given.
    #[arg(long, value_name = "FILE")]
    landfall: Option<PathBuf>,
    /// Also write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(settings: &Settings) -> Result<()> {
    let ingresses = if settings.quick { settings.ingresses.div_ceil(10) } else { settings.ingresses };
    let groups = settings.groups;
    let times = lost(settings)?;
    let said = step("release build, and binding", || {
        let mut command = Command::new("cargo");
        command.args([
            "run",
            "--release",
            "--quiet",
            "--package",
            "landfall-plan",
            "--example",
            "binding",
            "--",
        ]);
        output(command.args([ingresses.to_string(), groups.to_string()]).current_dir(root()))
    })?;
    let mut found: Value = serde_json::from_str(said.trim()).context("the example tells something else")?;
    found["lostKilledMs"] = json!(times.killed);
    found["lostHungMs"] = json!(times.hung);
    let number = |key: &str| found[key].as_f64().unwrap_or(f64::NAN);
    say("");
    say(&format!("| {ingresses} Ingresses, {groups} groups | planner |\n|---|--:|"));
    say(&format!("| all are new | {:.1} ms |", number("firstMs")));
    say(&format!("| nothing changed | {:.1} ms |", number("againMs")));
    say(&format!(
        "| a group is lost ({} Ingresses move) | {:.1} ms |",
        found["movedOnLoss"],
        number("lostMs")
    ));
    show(&times);
    if let Some(file) = &settings.json {
        std::fs::write(file, serde_json::to_vec_pretty(&found)?)?;
    }
    Ok(())
}

/// Loses groups.
fn lost(settings: &Settings) -> Result<lost::Times> {
    let landfall = settings.landfall.clone().map_or_else(super::landfall, Ok)?;
    let directory = std::env::temp_dir().join(format!("landfall-bench-binding-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let times = step("groups that are lost", || lost::measure(&landfall, &directory, settings.quick));
    // Nothing more can be done about files that do not go.
    let _ = std::fs::remove_dir_all(&directory);
    times
}

fn show(times: &lost::Times) {
    say("");
    say(
        "| an Ingress, until it is answered at another group's address | losses | median ms | worst ms | target ms | |",
    );
    say("|---|--:|--:|--:|--:|---|");
    let row = |name: &str, times: &[f64], target: Option<f64>| {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN);
        let worst = sorted.last().copied().unwrap_or(f64::NAN);
        let (most, word) = match target {
            Some(most) => (format!("{most:.0}"), if worst <= most { "PASS" } else { "miss" }),
            None => (String::new(), ""),
        };
        say(&format!("| {name} | {} | {middle:.0} | {worst:.0} | {most} | {word} |", sorted.len()));
    };
    row("all edges of its group are killed", &times.killed, Some(TARGET_MS));
    // Nobody refuses a connection, so that others see nothing wrong: silence alone tells.
    row("all edges of its group hang", &times.hung, None);
}
