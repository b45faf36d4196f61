//! `landfall echo`: the echo program as a process of its own, for containers and for trying things out.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use landfall_sim::echo::{self, Echo, Identity, Journal, Load};
use landfall_sim::gate::Gate;
use landfall_sim::listen;
use rustls::ServerConfig;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{EchoOptions, Listen};

/// Serves until it is told to stop.
pub(crate) fn run(options: &EchoOptions) -> Result<()> {
    // One thread is enough for a pod, and leaves the others to the pods beside it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(serve(options));
    runtime.shutdown_background();
    result
}

async fn serve(options: &EchoOptions) -> Result<()> {
    // Before listening, so that nobody who sees us listen can stop us the hard way.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (tasks, life) = (Tasks::default(), Tasks::default());
    let echo = Arc::new(Echo {
        identity: identity(options),
        load: Arc::new(Load::default()),
        journal: if options.quiet { Arc::new(Nowhere) } else { Arc::new(StandardOutput) },
        gate: Gate::default(),
        life: life.clone(),
    });
    echo.load.rate_at(options.capacity);
    open(options, &echo, &tasks)?;
    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    tracing::info!("stopping: no new connections, open requests finish");
    echo.load.leave();
    let drained = tokio::time::timeout(echo::DRAIN_MAX, tasks.join());
    tokio::select! { _ = drained => {}, _ = interrupt.recv() => {} }
    life.stop();
    Ok(())
}

fn open(options: &EchoOptions, echo: &Arc<Echo>, tasks: &Tasks) -> Result<()> {
    let default = [Listen::DEFAULT];
    let nothing =
        [&options.http, &options.https, &options.tcp, &options.udp].iter().all(|list| list.is_empty());
    let http = if nothing { &default[..] } else { &options.http };
    for at in http {
        tasks.spawn(echo::run_http(echo.clone(), tcp(*at, "HTTP")?, None, tasks.clone()));
    }
    if let (Some(certificate), Some(key)) = (&options.cert, &options.key) {
        let tls = tls(certificate, key)?;
        for at in &options.https {
            tasks.spawn(echo::run_http(echo.clone(), tcp(*at, "HTTPS")?, Some(tls.clone()), tasks.clone()));
        }
    }
    for at in &options.tcp {
        tasks.spawn(echo::run_tcp(echo.clone(), tcp(*at, "TCP")?, tasks.clone()));
    }
    for at in &options.udp {
        let socket = listen::udp(at.0).with_context(|| format!("cannot listen on {} (UDP)", at.0))?;
        tracing::info!(at = %socket.local_addr()?, "listening for UDP");
        tasks.spawn(echo::run_udp(echo.clone(), socket, tasks.clone()));
    }
    Ok(())
}

fn tcp(at: Listen, what: &'static str) -> Result<tokio::net::TcpListener> {
    let listener = listen::tcp(at.0).with_context(|| format!("cannot listen on {} ({what})", at.0))?;
    tracing::info!(at = %listener.local_addr()?, "listening for {what}");
    Ok(listener)
}

fn tls(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>> {
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let both = || format!("{} and {}", certificate.display(), key.display());
    echo::tls_config(&read(certificate)?, &read(key)?).with_context(both)
}

fn identity(options: &EchoOptions) -> Identity {
    let hostname =
        || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    Identity {
        pod: options.pod_name.clone().unwrap_or_else(hostname),
        namespace: options.pod_namespace.clone(),
        node: options.node_name.clone(),
        cluster: options.cluster_name.clone(),
    }
}

/// The access log goes where `kubectl logs` finds it.
struct StandardOutput;

impl Journal for StandardOutput {
    fn line(&self, line: &str) {
        use std::io::Write;
        let now = landfall_apiserver::api::rfc3339_micro(clock::since_epoch());
        // Nobody listening is no reason to stop.
        let _ = writeln!(std::io::stdout(), "{now} {line}");
    }
}

/// No access log is wanted.
struct Nowhere;

impl Journal for Nowhere {
    fn line(&self, _: &str) {}
}
