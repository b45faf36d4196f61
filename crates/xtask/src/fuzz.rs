//! The fuzzers of `fuzz/`, with the stable toolchain: coverage is asked of the compiler by flags that need no nightly.
//!
//! There is no address sanitizer that way; ours are safe decoders, so what is looked for is a panic, a disagreement of two readers, or no
//! end. What is found new does not go into the committed corpora by itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell::{output, root, run, say, step, target};

/// What libFuzzer needs to see where a run has come.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Ccodegen-units=1";
/// The longest input: the shapes that matter are shorter.
const LONGEST: usize = 4096;

/// Runs the fuzzers.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Which ones; all when none is named.
    targets: Vec<String>,
    /// How long each one runs.
    #[arg(long, default_value_t = 60, value_name = "N")]
    seconds: u32,
}

pub(crate) fn run_all(options: &Options) -> Result<()> {
    let fuzz = root().join("fuzz");
    let known = targets(&fuzz)?;
    if let Some(odd) = options.targets.iter().find(|name| !known.contains(name)) {
        bail!("there is no fuzz target `{odd}`: there are {}", known.join(", "));
    }
    let chosen = if options.targets.is_empty() { known } else { options.targets.clone() };
    let built = step("build of the fuzzers", || build(&fuzz))?;
    for name in &chosen {
        step(&format!("{name}, {} s", options.seconds), || one(&fuzz, &built, name, options.seconds))?;
    }
    Ok(())
}

fn targets(fuzz: &Path) -> Result<Vec<String>> {
    let files = std::fs::read_dir(fuzz.join("fuzz_targets"))?;
    let names = files.flatten().filter_map(|file| Some(file.path().file_stem()?.to_str()?.to_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

/// Builds them all; where they are.
fn build(fuzz: &Path) -> Result<PathBuf> {
    let (host, into) = (host()?, target()?.join("fuzz"));
    let mut cargo = Command::new("cargo");
    // For a target that is named, build scripts and macros do without the flags.
    cargo.args(["build", "--release", "--quiet", "--bins", "--target", &host]);
    cargo.arg("--manifest-path").arg(fuzz.join("Cargo.toml")).arg("--target-dir").arg(&into);
    run(cargo.env("RUSTFLAGS", FLAGS))?;
    Ok(into.join(host).join("release"))
}

fn host() -> Result<String> {
    let told = output(Command::new("rustc").arg("-vV"))?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}

/// Runs one, from its corpus and what it has found itself before.
fn one(fuzz: &Path, built: &Path, name: &str, seconds: u32) -> Result<()> {
    let found = built.join("found").join(name);
    let artifacts = fuzz.join("artifacts").join(name);
    std::fs::create_dir_all(&found)?;
    std::fs::create_dir_all(&artifacts)?;
    let mut fuzzer = Command::new(built.join(name));
    fuzzer.arg(&found).arg(fuzz.join("corpus").join(name));
    fuzzer.args([&format!("-max_total_time={seconds}"), &format!("-max_len={LONGEST}"), "-timeout=10"]);
    fuzzer.arg(format!("-artifact_prefix={}/", artifacts.display()));
    let ran = fuzzer.output().with_context(|| format!("cannot start the fuzzer {name}"))?;
    let told = String::from_utf8_lossy(&ran.stderr);
    if !ran.status.success() {
        let lines: Vec<&str> = told.lines().rev().take(40).collect();
        lines.iter().rev().for_each(|line| say(line));
        bail!("{name} found something: look into {}", artifacts.display());
    }
    say(&format!("    {}", told.lines().last().unwrap_or_default()));
    Ok(())
}
