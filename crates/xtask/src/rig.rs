//! `cargo xtask rig …`: whole real Kubernetes clusters on this machine, and ways to break them.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use landfall_rig::{Config, Error, Rig, Say, Stop, assets, control};

use crate::shell::{output, root, say};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Which rig, when several run.
    #[arg(long, global = true, default_value = "default")]
    name: String,
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Starts clusters and runs until Ctrl-C or `rig down`.
    Up {
        /// How many clusters.
        #[arg(long, default_value_t = 3)]
        clusters: usize,
        /// How many nodes each has.
        #[arg(long, default_value_t = 2)]
        nodes: usize,
        /// The binary that images are made of; built if not given.
        #[arg(long)]
        landfall: Option<PathBuf>,
    },
    /// Starts a rig, stops it, looks for anything that it left behind, and does so again.
    Soak {
        /// How often.
        #[arg(long, default_value_t = 10)]
        times: u32,
        /// How many clusters.
        #[arg(long, default_value_t = 1)]
        clusters: usize,
        /// How many nodes each has.
        #[arg(long, default_value_t = 1)]
        nodes: usize,
        /// The binary that images are made of; built if not given.
        #[arg(long)]
        landfall: Option<PathBuf>,
    },
    /// Stops a running rig.
    Down,
    /// What runs, and what is broken.
    Status,
    /// Cuts two clusters off from each other, or a cluster from the `host`.
    Cut { a: String, b: String },
    /// Holds packets between two clusters back, each way.
    Delay {
        a: String,
        b: String,
        /// Milliseconds, each way.
        ms: u64,
        /// How many packets of a hundred are lost.
        #[arg(long, default_value_t = 0)]
        loss: u8,
    },
    /// Pulls the plug of a node.
    KillNode { node: String },
    /// Pulls the plug of a whole cluster.
    KillCluster { cluster: String },
    /// Ends a cluster's API server; its pods go on.
    KillApi { cluster: String },
    /// Undoes every fault and waits until all is well.
    Heal,
    /// Runs a program on a machine (us-east-1, us-east-control) or in the `backbone`.
    Exec {
        place: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let name = options.name.as_str();
    let order = |words: &[&str]| Ok(control::order(name, words).map(|text| say(&text))?);
    match &options.what {
        What::Up { clusters, nodes, landfall } => up(&config(name, *clusters, *nodes, landfall.as_ref())?),
        What::Soak { times, clusters, nodes, landfall } => {
            soak(&config(name, *clusters, *nodes, landfall.as_ref())?, *times)
        }
        What::Down => Ok(control::down(name)?),
        What::Status => order(&["status"]),
        What::Cut { a, b } => order(&["cut", a, b]),
        What::Delay { a, b, ms, loss } => order(&["delay", a, b, &ms.to_string(), &loss.to_string()]),
        What::KillNode { node } => order(&["kill-node", node]),
        What::KillCluster { cluster } => order(&["kill-cluster", cluster]),
        What::KillApi { cluster } => order(&["kill-api", cluster]),
        What::Heal => order(&["heal"]),
        What::Exec { place, command } => exec(name, place, command),
    }
}

/// Makes sure that tests can start rigs: the user, the programs, and the binaries, which are built if need be.
pub(crate) fn prepare() -> Result<()> {
    landfall_rig::check_machine()?;
    assets::binaries(&assets::all(), &|line| say(&format!("    {line}")))?;
    Ok(())
}

/// What a rig shall be; Ctrl-C stops it.
fn config(name: &str, clusters: usize, nodes: usize, landfall: Option<&PathBuf>) -> Result<Config> {
    landfall_rig::check_machine()?;
    if control::order(name, &["status"]).is_ok() {
        // Said before minutes are spent on building.
        return Err(Error::Running { name: name.to_owned(), directory: landfall_rig::directory(name) }.into());
    }
    let landfall = landfall.cloned().map_or_else(build, Ok)?;
    let stop = Stop::default();
    on_signal(&stop)?;
    let say: Say = Arc::new(|line| say(&format!("    {line}")));
    Ok(Config { name: name.to_owned(), clusters, nodes, landfall, stop, say })
}

/// Starts a rig and says how long it took and how large it is.
fn start(config: &Config) -> Result<Rig> {
    let began = Instant::now();
    say(&format!("==> starting {} clusters of {} nodes", config.clusters, config.nodes));
    let rig = Rig::up(config)?;
    let (processes, megabytes) = rig.size();
    say(&format!(
        "    ready in {:.1} s: {processes} processes, {megabytes} MB",
        began.elapsed().as_secs_f64()
    ));
    Ok(rig)
}

/// Up and down, again and again; an error names what was left behind.
fn soak(config: &Config, times: u32) -> Result<()> {
    let before = landfall_rig::surroundings()?;
    for number in 1..=times {
        let rig = start(config).with_context(|| format!("start {number} of {times}"))?;
        let began = Instant::now();
        drop(rig);
        let mut left = landfall_rig::traces(&config.name)?;
        left.extend(landfall_rig::surroundings()?.symmetric_difference(&before).cloned());
        if !left.is_empty() {
            let left: Vec<String> = left.into_iter().collect();
            bail!("left behind by start {number} of {times}:\n  {}", left.join("\n  "));
        }
        let took = began.elapsed().as_secs_f64();
        say(&format!("    {number} of {times}: stopped in {took:.1} s, nothing left behind"));
    }
    Ok(())
}

fn up(config: &Config) -> Result<()> {
    let rig = start(config)?;
    say(&format!("\n    export KUBECONFIG={}", rig.kubeconfig().display()));
    say(&format!("    kubectl --context={} get nodes", rig.cluster(0).name()));
    say("    cargo xtask rig status|cut|delay|kill-node|kill-cluster|kill-api|heal|exec, in another shell");
    say("    Ctrl-C, or `cargo xtask rig down`, stops it and leaves nothing behind\n");
    control::serve(&rig, &config.stop)?;
    say("==> stopping");
    drop(rig);
    Ok(())
}

fn exec(name: &str, place: &str, command: &[String]) -> Result<()> {
    let process = control::order(name, &["machine", place])?;
    let mut nsenter = Command::new("nsenter");
    nsenter.args(["--target", &process, "--pid", "--mount", "--net", "--uts", "--"]).args(command);
    let status = nsenter.status().context("cannot start nsenter")?;
    leave_as(status)
}

/// Ends as the program ended, so that scripts can ask.
#[expect(clippy::exit, reason = "the program's own words have been said; ours would only be in the way")]
fn leave_as(status: std::process::ExitStatus) -> Result<()> {
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => std::process::exit(code),
        None => bail!("the program was killed ({status})"),
    }
}

/// The debug build of Landfall: quick to make, and it is not what is measured here.
fn build() -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--package", "landfall", "--message-format", "json-render-diagnostics"]);
    let text = output(cargo.current_dir(root()))?;
    let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut binaries = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    let binary = binaries.next_back();
    binary.context("cargo named no binary of landfall")
}

/// Ctrl-C, a closed terminal and a polite kill all mean the same.
fn on_signal(stop: &Stop) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stop = stop.clone();
    let (ready, waiting) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        runtime.block_on(async {
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let signals: std::io::Result<Vec<_>> = kinds.into_iter().map(signal).collect();
            let _ = ready.send(signals.as_ref().err().map(ToString::to_string));
            let Ok(mut signals) = signals else { return };
            let [a, b, c] = signals.as_mut_slice() else { return };
            let name = tokio::select! {
                _ = a.recv() => "Ctrl-C", _ = b.recv() => "SIGTERM", _ = c.recv() => "SIGHUP",
            };
            say(&format!("==> {name}"));
            stop.ask(name);
        });
    });
    match waiting.recv()? {
        None => Ok(()),
        Some(error) => bail!("cannot listen for signals: {error}"),
    }
}
