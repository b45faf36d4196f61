//! A thread: takes clients in, and looks at the time.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;

use super::listen::{Bound, Entrance};
use crate::beside::welcome;
use crate::core::{Core, Phase, Shared};
use crate::handover::lead_on;
use crate::haproxy::Ends;
use crate::peer::standby;
use crate::ticker::TICK;

/// Ticks between two looks at connections, and between two sweeps.
const LOOK_TICKS: u64 = 5;
const SWEEP_TICKS: u64 = 20;
/// How often is looked whether there are connections to those who would be asked next.
const KEEP_TICKS: u64 = 10;
/// How long no client is taken in when that fails: there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Clients that are told at once that there is no room, by each thread, and how long each may take to hear it.
const TURNED_AWAY_MAX: usize = 256;
const TURN_AWAY: Duration = Duration::from_secs(1);
/// What they are told.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Runs a thread until the end.
pub(crate) fn run(shared: Arc<Shared>, index: usize, listeners: Bound, seed: u64) {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        // Whoever is ready has a turn before the kernel is asked who else is.
        .event_interval(256)
        .build_local(LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "a thread of the proxy cannot run");
            return;
        }
    };
    let core = Rc::new(Core::new(shared, index, seed));
    runtime.block_on(async {
        for (entrance, listener) in listeners {
            drop(tokio::task::spawn_local(open(core.clone(), entrance, listener)));
        }
        watch(&core).await;
    });
    // Connections that did not end in time end here.
    runtime.shutdown_timeout(Duration::ZERO);
}

/// Looks at the time until the end has come.
async fn watch(core: &Rc<Core>) {
    let mut phase = core.shared.phase.subscribe();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    for tick in 1_u64.. {
        let mut looks = tick % LOOK_TICKS == 0;
        tokio::select! {
            _ = ticks.tick() => {}
            changed = phase.changed() => looks |= changed.is_ok(),
        }
        core.ticker.tick();
        standby::spare_silent(core);
        let now = *phase.borrow();
        if looks || now > Phase::Serving {
            core.clients.look(core.ticker.now_ms(), &core.shared.config.limits, now);
        }
        if tick % SWEEP_TICKS == 0 {
            core.sweep();
        }
        if tick % KEEP_TICKS == 0 {
            standby::keep(core);
        }
        match now {
            Phase::Closed | Phase::Serving | Phase::Draining => {}
            Phase::Ending => return,
        }
    }
}

/// Takes clients in as soon as there is something to tell them.
async fn open(core: Rc<Core>, entrance: Entrance, listener: std::net::TcpListener) {
    let mut phase = core.shared.phase.subscribe();
    let serves = phase.wait_for(|phase| *phase > Phase::Closed).await.is_ok_and(|now| *now == Phase::Serving);
    if !serves {
        return;
    }
    match TcpListener::from_std(listener) {
        Ok(listener) => accept(core, entrance, listener).await,
        Err(error) => tracing::error!(%error, "a thread of the proxy cannot listen"),
    }
}

/// Takes clients in until the end is near; then those that are under way, and no more.
async fn accept(core: Rc<Core>, entrance: Entrance, listener: TcpListener) {
    let mut phase = core.shared.phase.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = near_end(&mut phase) => break,
        };
        match accepted {
            Ok((stream, client)) => enter(&core, entrance, stream, client),
            Err(error) => {
                tracing::warn!(%error, "a client cannot be taken in");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    lead_on(&listener, core.shared.config.cores());
    let under_way = async {
        loop {
            match listener.accept().await {
                Ok((stream, client)) => enter(&core, entrance, stream, client),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    };
    let _ = tokio::time::timeout(core.shared.config.handover, under_way).await;
    // They have been told that they are connected.
    while let Ok(Ok((stream, client))) = tokio::time::timeout(Duration::ZERO, listener.accept()).await {
        enter(&core, entrance, stream, client);
    }
}

async fn near_end(phase: &mut watch::Receiver<Phase>) {
    // An error means that the proxy is gone.
    let _ = phase.wait_for(|phase| *phase > Phase::Serving).await;
}

fn enter(core: &Rc<Core>, entrance: Entrance, stream: TcpStream, client: std::net::SocketAddr) {
    let shared = &core.shared;
    let Ok(local) = stream.local_addr() else { return };
    let most = shared.config.limits.connections;
    if shared.connections.fetch_add(1, Ordering::Relaxed) >= most || !core.lets_in() {
        shared.connections.fetch_sub(1, Ordering::Relaxed);
        shared.meters.rare.overfull.inc();
        if entrance == Entrance::Plain {
            turn_away(core, stream);
        }
        return;
    }
    let age = core.counts_client();
    let _ = stream.set_nodelay(true);
    let core = core.clone();
    tokio::task::spawn_local(async move {
        welcome(&core, entrance, stream, Ends { client, server: local }).await;
        if let Some(age) = age {
            core.new_clients.end(age);
        }
        core.shared.connections.fetch_sub(1, Ordering::Relaxed);
    });
}

/// Tells a client that there is no room; where there are too many of them, not even that.
fn turn_away(core: &Rc<Core>, mut stream: TcpStream) {
    if core.turned_away.get() >= TURNED_AWAY_MAX {
        return;
    }
    core.turned_away.set(core.turned_away.get() + 1);
    let core = core.clone();
    tokio::task::spawn_local(async move {
        let told = async {
            stream.write_all(FULL).await?;
            stream.shutdown().await?;
            // What it has sent is taken: else it would be told that nobody listens before it has read our answer.
            while stream.read(&mut [0; 1024]).await? > 0 {}
            std::io::Result::Ok(())
        };
        let _ = tokio::time::timeout(TURN_AWAY, told).await;
        core.turned_away.set(core.turned_away.get().saturating_sub(1));
    });
}
