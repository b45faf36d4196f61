//! Commands for developers: the only list of them.

mod arch;
mod bench;
mod fuzz;
mod r#gen;
mod kubernetes;
mod rig;
mod setup;
mod shell;
mod test;
mod tidy;

use clap::Parser as _;

/// Benchmarks run simulated clusters in this process; they shall cost what they cost in the playground.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Commands for developers.
#[derive(clap::Parser)]
#[command(bin_name = "cargo xtask")]
enum Cli {
    /// Sets up what the tests need and runs all of them.
    Test(test::Options),
    /// Measures us and the peer side by side.
    Bench(bench::Options),
    /// Runs the fuzzers, each for a while.
    Fuzz(fuzz::Options),
    /// Draws the crates into docs/arch and fails when a layer rule is broken.
    Arch(arch::Options),
    /// Builds the real Kubernetes binaries that tests and benchmarks compare with (once; they are cached).
    Kubernetes,
    /// Starts, breaks and stops whole real Kubernetes clusters on this machine (needs root).
    Rig(rig::Options),
    /// Checks what style asks of every file.
    Tidy,
    /// Writes or checks the committed tables that are made from something else.
    #[command(subcommand)]
    Gen(r#gen::What),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse() {
        Cli::Test(options) => test::run(&options),
        Cli::Bench(options) => bench::run(&options),
        Cli::Fuzz(options) => fuzz::run_all(&options),
        Cli::Arch(options) => arch::run(&options),
        Cli::Kubernetes => kubernetes::binaries().map(|found| shell::say(&format!("{}", found.display()))),
        Cli::Rig(options) => rig::run(&options),
        Cli::Tidy => tidy::run(),
        Cli::Gen(what) => r#gen::run(&what),
    }
}
