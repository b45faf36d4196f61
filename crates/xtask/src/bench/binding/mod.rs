//! Binding: how long the planner takes for many Ingresses and many groups of edges.
//!
//! There is no peer beside it: nobody else has built what the proposal asked for.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell::{output, root, say, step};

#[derive(clap::Args)]
pub(super) struct Settings {
    /// How many Ingresses.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    ingresses: usize,
    /// How many groups.
    #[arg(long, default_value_t = 100, value_name = "N")]
    groups: usize,
    /// A tenth of the Ingresses.
    #[arg(long)]
    quick: bool,
    /// Also write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(settings: &Settings) -> Result<()> {
    let ingresses = if settings.quick { settings.ingresses.div_ceil(10) } else { settings.ingresses };
    let groups = settings.groups;
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
    let found: Value = serde_json::from_str(said.trim()).context("the example tells something else")?;
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
    if let Some(file) = &settings.json {
        std::fs::write(file, serde_json::to_vec_pretty(&found)?)?;
    }
    Ok(())
}
