//! Running other programs and speaking to the person who waits for them.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// Prints a line.
#[expect(clippy::print_stdout, reason = "a developer's command speaks on standard output")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// The root of the checkout: the one that cargo was called in. Checkouts may share what they have built, so where this was built says
/// something only when nobody else does.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let here = here.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    here.ancestors().nth(2).unwrap_or(&here).to_owned()
}

/// Runs a program in the checkout and shows what it prints; an error if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command.current_dir(root()).status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs a program and gives what it printed; an error with its words if it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        bail!("`{shown}` failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program can be found.
#[expect(clippy::disallowed_methods, reason = "PATH is the environment's to say")]
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Says what is being done, does it, and says how long it took.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    say(&format!("==> {name}"));
    let began = Instant::now();
    let result = work().with_context(|| name.to_owned());
    say(&format!(
        "    {} in {:.1} s",
        if result.is_ok() { "done" } else { "FAILED" },
        began.elapsed().as_secs_f64()
    ));
    result
}

fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// The release build of a program of ours.
pub(crate) fn release_binary(name: &str) -> Result<PathBuf> {
    Ok(target()?.join("release").join(name))
}

/// Where cargo builds.
pub(crate) fn target() -> Result<PathBuf> {
    let text = output(
        Command::new("cargo").args(["metadata", "--format-version", "1", "--no-deps"]).current_dir(root()),
    )?;
    let metadata: serde_json::Value = serde_json::from_str(&text)?;
    let target = metadata["target_directory"].as_str().context("cargo names no target directory")?;
    Ok(PathBuf::from(target))
}
