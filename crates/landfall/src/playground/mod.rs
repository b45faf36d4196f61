//! `landfall playground`: a hub and simulated clusters in one process, joined, until Ctrl-C.
//!
//! ```text
//!   home (directory, lock) ──► world (simulated clusters) ──► hub ──► files (kubeconfig, addresses) ──► join ──► edges, groups ──► control
//! ```
//!
//! Reading order: [`options`], [`run`], then the files in the order of the picture.

mod control;
mod edges;
mod files;
mod groups;
mod home;
mod join;
pub(crate) mod options;
mod relay;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use landfall_sim::world::config::{CLUSTERS_MAX, WorldConfig};
use landfall_sim::world::file::BadConfig;
use landfall_sim::world::{Site, Start, World};

use crate::basics::options::Connection;
use crate::basics::target::Target;
use crate::cli::HubOptions;
use crate::hub::{self, Hub};
use crate::say::say;
use files::Before;
use home::Home;
use options::{FaultOptions, PlaygroundCommand, PlaygroundOptions};

pub(crate) use home::only_running;

/// How many clusters there are when nobody says.
const CLUSTERS: usize = 3;

/// More clusters than this are counted, not listed.
const LISTED_MAX: usize = 12;

/// Runs a playground until it is told to stop, or breaks something in the one that runs.
pub(crate) fn run(options: &PlaygroundOptions) -> Result<()> {
    if let Some(PlaygroundCommand::Fault(fault)) = &options.command {
        return break_or_mend(fault);
    }
    let mut config = config(options)?;
    config.distances &= !options.no_distances;
    let home = Home::open(options.keep.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(serve(&config, &home, options));
    // Whatever still runs has had its time to stop.
    runtime.shutdown_background();
    result
}

fn break_or_mend(options: &FaultOptions) -> Result<()> {
    let running = home::find(options.dir.as_deref())?;
    say(&control::ask(&running.dir, (&options.what).into())?);
    Ok(())
}

fn config(options: &PlaygroundOptions) -> Result<WorldConfig> {
    let Some(file) = &options.config else {
        let clusters = options.clusters.unwrap_or(CLUSTERS);
        anyhow::ensure!(
            (1..=CLUSTERS_MAX).contains(&clusters),
            "--clusters: give between 1 and {CLUSTERS_MAX}"
        );
        return Ok(WorldConfig::of(clusters));
    };
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    text.parse().map_err(|error: BadConfig| anyhow::anyhow!(error.in_file(file)))
}

/// A playground that runs.
struct Playground {
    world: Arc<World>,
    hub: Hub,
    tasks: Tasks,
}

async fn serve(config: &WorldConfig, home: &Home, options: &PlaygroundOptions) -> Result<()> {
    let began = clock::instant();
    let stop = hub::stop_signals()?;
    tokio::pin!(stop);
    let playground = tokio::select! {
        // A start that is dropped half-way leaves nothing: what it has made lives in this process and in `home`.
        () = &mut stop => return Ok(()),
        started = start(config, home, options) => started?,
    };
    say(&next(home, &playground.world, options, began.elapsed()));
    stop.await;
    say("\nStopping.");
    playground.tasks.join().await;
    playground.hub.stop().await;
    playground.world.stop().await;
    Ok(())
}

async fn start(config: &WorldConfig, home: &Home, options: &PlaygroundOptions) -> Result<Playground> {
    let before = if home.kept() { Before::read(home) } else { Before::default() };
    say(&format!("Starting {} simulated clusters and a hub.", config.clusters.len()));
    let members = home.join("members");
    let start = Start { keep: home.kept().then_some(members.as_path()), before: before.blocks.clone() };
    let listed = config.clusters.len() <= LISTED_MAX;
    let mut count = 0;
    let ready = |site: &Site| {
        count += 1;
        if listed {
            say(&format!("  {:<14} {}", site.member.name(), described(site)));
        } else if count % 25 == 0 {
            say(&format!("  {count} clusters ready"));
        }
    };
    let world = Arc::new(World::start(config, &start, ready).await?);
    let own = hub_options(home, before.hub_port, &options.domain, &world);
    let hub = hub::start(&own).await.context("cannot start the hub")?;
    say(&format!("  {:<14} {}", "hub", hub.url));
    files::write_kubeconfig(home, &hub.server.admin_kubeconfig, &world)?;
    files::write_addresses(home, &hub.url, &world, !options.no_edges)?;
    let connection = Connection {
        kubeconfig: Some(home.join("kubeconfig")),
        context: Some(files::FEDERATION.into()),
        namespace: None,
    };
    join::join(&connection, &world).await?;
    let tasks = Tasks::default();
    if !options.no_edges {
        let target = Target::find(&connection).await?;
        edges::start(home, &target, hub.address, &world, &tasks).await?;
        groups::start(home, target, &world, &tasks).await?;
    }
    control::serve(home, world.clone(), &tasks).await?;
    Ok(Playground { world, hub, tasks })
}

fn described(site: &Site) -> String {
    let nodes = site.member.nodes().len();
    let nodes = if nodes == 1 { "1 node".into() } else { format!("{nodes} nodes") };
    format!("{}   {nodes} in {}", site.member.credentials().server, site.config.zones.join(", "))
}

fn hub_options(home: &Home, port: u16, domain: &str, world: &World) -> HubOptions {
    // The port from before, unless somebody else has it now.
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let port = if free { port } else { 0 };
    // Edges reach it at addresses of their clusters; users at the first.
    let names = world.sites().iter().map(|site| edges::address(site).to_string());
    HubOptions {
        advertise: std::iter::once(Ipv4Addr::LOCALHOST.to_string()).chain(names).collect(),
        domain: (!domain.is_empty()).then(|| domain.to_owned()),
        ..HubOptions::local(home.join("hub"), SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }
}

/// What to type next.
fn next(home: &Home, world: &World, options: &PlaygroundOptions, took: std::time::Duration) -> String {
    let first = world.sites().first().map_or("us-east", |site| site.member.name());
    let kubeconfig = home.join("kubeconfig");
    let ready = format!(
        "\nThe playground is ready after {:.1} s, with {} clusters joined. Ctrl-C stops it.\n\nIn another shell:\n",
        took.as_secs_f64(),
        world.sites().len()
    );
    let commands = if installed("kubectl") {
        format!(
            "  export KUBECONFIG={kubeconfig}
  kubectl get clusters
  kubectl create deployment web --image=echo --replicas=6
  kubectl expose deployment web --port=8080 --type=LoadBalancer
  kubectl --context {first} get pods,services{asked}
  {own} playground fault kill {first}",
            kubeconfig = kubeconfig.display(),
            own = own_name(),
            asked = asked(world, options),
        )
    } else {
        format!(
            "  export KUBECONFIG={kubeconfig}
  {own} get clusters
  {own} --help                # kubectl is not installed; the basics are here: get, apply, describe, delete
  {own} playground fault kill {first}",
            kubeconfig = kubeconfig.display(),
            own = own_name(),
        )
    };
    ready + &commands
}

/// What to ask an edge for: a name, and a page.
fn asked(world: &World, options: &PlaygroundOptions) -> String {
    let (domain, silent) = (&options.domain, options.no_edges || options.domain.is_empty());
    let Some(site) = world.sites().first().filter(|_| !silent) else { return String::new() };
    let (at, dns, http) = (edges::address(site), edges::DNS_PORT, edges::HTTP_PORT);
    format!(
        "
  kubectl create ingress web --rule='web.{domain}/*=web:8080'
  dig +noall +answer @{at} -p {dns} web.default.federation.{domain}
  curl -H 'Host: web.{domain}' http://{at}:{http}/"
    )
}

/// How this program was called, so that what is printed can be typed.
fn own_name() -> String {
    std::env::args_os().next().map_or_else(|| "landfall".into(), |own| Path::new(&own).display().to_string())
}

fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
