//! `cargo xtask test`: everything, in the order in which a mistake shows soonest.

use std::process::Command;

use anyhow::Result;

use crate::shell::{self, say, step};
use crate::{arch, kubernetes, rig, setup, tidy};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only what needs no other program: formatting, lints, layer rules, unit tests.
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    step("formatting", || shell::run(&mut cargo(&["fmt", "--all", "--check"])))?;
    step("style", tidy::run)?;
    step("layer rules", || arch::run(&arch::Options { check: true }))?;
    step("lints", || {
        shell::run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))
    })?;
    if !options.quick {
        step("fuzz targets", fuzz_targets)?;
        step("programs", setup::programs)?;
        match step("Kubernetes, to compare with", kubernetes::binaries) {
            Ok(_) => {
                step("facts about kinds", || shell::run(&mut cargo(&["xtask", "gen", "facts", "--check"])))?
            }
            Err(error) => say(&format!("    SKIPPED: comparison with Kubernetes: {error:#}")),
        }
        if let Err(error) = step("Kubernetes, to run whole clusters", rig::prepare) {
            say(&format!("    SKIPPED: rig: {error:#}"));
        }
    }
    step("tests", || shell::run(&mut cargo(&["test", "--workspace", "--no-fail-fast"])))
}

/// They are a workspace of their own, which nothing else builds. They are only checked: to run them is `cargo fuzz`'s.
fn fuzz_targets() -> Result<()> {
    let mut check = cargo(&["check", "--quiet", "--manifest-path", "fuzz/Cargo.toml", "--target-dir"]);
    check.arg(shell::target()?.join("fuzz"));
    // Nothing is linked; without this it would be compiled, by a C++ compiler.
    check.env("CUSTOM_LIBFUZZER_PATH", "/nowhere/libfuzzer.a");
    shell::run(&mut check)
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments);
    command
}
