//! The binary: command line and composition only.

mod admission;
mod basics;
mod cli;
mod clusters;
mod echo;
mod edge;
mod explain;
mod hub;
mod keys;
mod pause;
mod playground;
mod say;
mod sealing;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    if let Err(error) = landfall_runtime::telemetry::start_logs(arguments.log()) {
        return fail(&error.into());
    }
    let result = match &arguments.command {
        cli::Command::Edge(options) => edge::run(options),
        cli::Command::Hub(options) => hub::run(options),
        cli::Command::Echo(options) => echo::run(options),
        cli::Command::Pause => pause::run(),
        cli::Command::Playground(options) => playground::run(options),
        cli::Command::Join(options) => clusters::join(options),
        cli::Command::Unjoin(options) => clusters::unjoin(options),
        cli::Command::Forget(options) => clusters::forget(options),
        cli::Command::Cordon(options) => clusters::cordon(options),
        cli::Command::Uncordon(options) => clusters::uncordon(options),
        cli::Command::Drain(options) => clusters::drain(options),
        cli::Command::Status(options) => clusters::status(options),
        cli::Command::Explain(options) => explain::run(options),
        cli::Command::Get(options) => basics::get(options),
        cli::Command::Apply(options) => basics::apply(options),
        cli::Command::Describe(options) => basics::describe(options),
        cli::Command::Delete(options) => basics::delete(options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// Prints the whole chain of causes, once.
#[expect(clippy::print_stderr, reason = "the last words of a command go to standard error")]
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}
