//! `landfall pause`: waits, as the process that holds a pod's namespaces does, and buries orphans.

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

/// Waits until it is told to stop.
pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut child = signal(SignalKind::child())?;
        loop {
            tokio::select! {
                _ = terminate.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                _ = child.recv() => bury(),
            }
        }
    })
}

/// Takes note of every child that has died, so that the system forgets it. As process 1 it inherits orphans.
fn bury() {
    while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
}
