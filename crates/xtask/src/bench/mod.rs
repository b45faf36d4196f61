//! `cargo xtask bench NAME`: us and the peer in one run on one machine, and the ratio.

mod apiserver;
mod binding;
mod dns;
mod drill;
mod failover;
mod members;
mod propagate;
mod proxy;
mod vip;

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::shell;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// The API server: kube-apiserver with etcd, our hub with etcd, our hub embedded, under the same load over TLS.
    Apiserver(apiserver::Settings),
    /// Binding: how long the planner takes to bind many Ingresses to many groups of edges, and how soon a lost group is made up for.
    Binding(binding::Settings),
    /// DNS: us, gdnsd and Knot with the same zone, under dnsperf.
    Dns(dns::Settings),
    /// The drill: a cluster is lost under load and comes back, behind us, nginx and haproxy.
    Drill(drill::Settings),
    /// Failover: how long names lead to a dead cluster, and which clients notice. Needs root.
    Failover(failover::Settings),
    /// Simulated members: how long many take to start in one process, and what they and their pods weigh.
    Members(members::Settings),
    /// Propagation: from the hub's acknowledgement until every one of many simulated members has it.
    Propagate(propagate::Settings),
    /// The proxy: us, nginx and haproxy in front of the same backend, under wrk and h2load; and many routes that change.
    Proxy(proxy::Settings),
    /// Virtual IPs: how long an address is lost when its holder is, beside a pair of keepalived written by hand. Needs root.
    Vip(vip::Settings),
}

pub(crate) fn run(options: &Options) -> Result<()> {
    // Their load generators are not ours, or what is measured is built apart.
    let theirs = matches!(
        options.what,
        What::Binding(_) | What::Dns(_) | What::Failover(_) | What::Proxy(_) | What::Vip(_)
    );
    if cfg!(debug_assertions) && !theirs {
        return run_optimised();
    }
    match &options.what {
        What::Apiserver(settings) => apiserver::run(settings),
        What::Binding(settings) => binding::run(settings),
        What::Dns(settings) => dns::run(settings),
        What::Drill(settings) => drill::run(settings),
        What::Failover(settings) => failover::run(settings),
        What::Members(settings) => members::run(settings),
        What::Propagate(settings) => propagate::run(settings),
        What::Proxy(settings) => proxy::run(settings),
        What::Vip(settings) => vip::run(settings),
    }
}

/// The load generator shares the machine with what it measures, so it must be quick too.
fn run_optimised() -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["run", "--release", "--quiet", "--package", "landfall-xtask", "--"]);
    shell::run(command.args(std::env::args_os().skip(1)))
}

/// Builds the binary that is measured.
fn landfall() -> Result<PathBuf> {
    shell::step("release build", || {
        shell::run(Command::new("cargo").args(["build", "--release", "--package", "landfall"]))?;
        shell::release_binary("landfall")
    })
}

/// CPU time that a process has taken, in seconds.
fn cpu_s(pid: u32) -> Result<f64> {
    use anyhow::Context as _;
    // The kernel counts in hundredths of a second, whatever its own clock.
    const TICKS_PER_S: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The program's name is in brackets and may hold anything.
    let rest = stat.rsplit_once(')').context("an odd stat")?.1;
    let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / TICKS_PER_S)
}

/// Resident memory of a process.
fn resident_mb(pid: u32) -> Result<f64> {
    use anyhow::Context as _;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    let kilobytes: f64 = line.split_whitespace().nth(1).context("no figure")?.parse()?;
    Ok(kilobytes / 1024.0)
}
