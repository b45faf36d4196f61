//! Commands for developers: test, bench, arch, gen.

use clap::Parser as _;

mod r#gen;

/// Commands for developers.
#[derive(clap::Parser)]
enum Cli {
    /// Writes or checks the committed tables that are made from something else.
    #[command(subcommand)]
    Gen(r#gen::What),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse() {
        Cli::Gen(what) => r#gen::run(&what),
    }
}
