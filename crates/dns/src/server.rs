//! The server: started once, given plans as they come, stopped with the tasks it belongs to.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;
use socket2::Socket;

use crate::config::{Config, StartError};
use crate::notify;
use crate::responder::{Responder, random};
use crate::serve::{socket, tcp, udp};
use crate::state::Shared;

/// A running server. Dropping it does not stop it: it stops with its tasks.
pub struct Server {
    responder: Responder,
    addresses: Vec<SocketAddr>,
}

/// Starts a server; its name servers' records are empty until a federation is given.
pub fn start(config: &Config, tasks: &Tasks, registry: &Registry) -> Result<Server, StartError> {
    let responder = Responder::new(config, registry)?;
    let shared = responder.shared.clone();
    let mut addresses = Vec::new();
    let mut sockets = Vec::new();
    let inside = config.listen_inside.iter().map(|listen| (listen, true));
    for (listen, inside) in config.listen.iter().map(|listen| (listen, false)).chain(inside) {
        let (address, listener, own) =
            bind(config, *listen).map_err(|source| StartError::Listen { address: *listen, source })?;
        addresses.push(address);
        let listening = udp::Listening { asks_address: address.ip().is_unspecified(), inside };
        sockets.extend(own.into_iter().map(|socket| (Arc::new(socket), listening)));
        let listener = tokio::net::TcpListener::from_std(listener);
        let listener = listener.map_err(|source| StartError::Listen { address, source })?;
        tasks.spawn_until_stop(tcp::run(shared.clone(), listener, inside, tasks.clone()));
    }
    notify::start(config, &shared, tasks)?;
    threads(&shared, sockets, tasks)?;
    Ok(Server { responder, addresses })
}

/// The sockets of one address: where port 0 is asked, TCP chooses, and UDP must have the same.
fn bind(
    config: &Config,
    listen: SocketAddr,
) -> std::io::Result<(SocketAddr, std::net::TcpListener, Vec<Socket>)> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if config.threads == 0 { cores() } else { config.threads };
    let mut attempts = 0;
    loop {
        let listener = socket::tcp(listen)?;
        let address = listener.local_addr()?;
        let sockets: std::io::Result<Vec<Socket>> = (0..threads).map(|_| socket::udp(address)).collect();
        match sockets {
            Ok(sockets) => return Ok((address, listener, sockets)),
            // Somebody else has that port by UDP.
            Err(_) if listen.port() == 0 && attempts < 16 => attempts += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Starts a thread for each socket, and a task that ends them.
fn threads(
    shared: &Arc<Shared>,
    sockets: Vec<(Arc<Socket>, udp::Listening)>,
    tasks: &Tasks,
) -> Result<(), StartError> {
    let mut running: Vec<(Arc<Socket>, JoinHandle<()>)> = Vec::new();
    for (socket, listening) in sockets {
        let (shared, own) = (shared.clone(), socket.clone());
        let seed = u64::from_ne_bytes(random()?);
        let thread = std::thread::Builder::new().name("dns".to_owned());
        let handle = thread.spawn(move || udp::run(&shared, &own, listening, seed));
        running.push((socket, handle.map_err(StartError::Thread)?));
    }
    let (shared, stop) = (shared.clone(), tasks.stopping());
    tasks.spawn(async move {
        stop.await;
        shared.stopping.store(true, Ordering::Relaxed);
        let ended = tokio::task::spawn_blocking(move || {
            for (socket, handle) in running {
                udp::wake(&socket);
                // A thread that panicked is gone too.
                let _ = handle.join();
            }
        });
        let _ = ended.await;
    });
    Ok(())
}

impl Server {
    /// The addresses it answers on: those for everybody, then those for clients inside.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Deref for Server {
    type Target = Responder;

    fn deref(&self) -> &Responder {
        &self.responder
    }
}
