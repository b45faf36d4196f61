//! Where all nodes are one machine: its loopback addresses are everywhere already, so holding one is to have locked it.
//!
//! The lock is a socket bound at the address: the kernel gives it to one, and takes it back when that one ends. Whoever has it lets
//! clients in at the address, at the ports where the edge listens, and leads them there.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::words::Wish;
use crate::{Held, Holder, Problem, Reason, State, Wanted};

/// Where the lock is. Nothing is said there.
const PORT: u16 = 8112;
/// Between two tries to get it.
const AGAIN: Duration = Duration::from_millis(100);
/// Connections through one door at once; more wait in the system's queue.
const CONNECTIONS_MAX: usize = 256;

/// Holds loopback addresses.
#[derive(Debug)]
pub struct Loopback(Wish);

impl Loopback {
    /// Holds nothing until something is wanted. Clients of an address are led to these doors, each at the door's own port.
    #[must_use]
    pub fn start(doors: Vec<SocketAddr>, tasks: &Tasks) -> Self {
        let (wish, wants, tell) = Wish::new();
        tasks.spawn_until_stop(follow(doors, wants, tell));
        Self(wish)
    }
}

impl Holder for Loopback {
    fn want(&self, wanted: Option<Wanted>) {
        self.0.want(wanted);
    }

    fn held(&self) -> watch::Receiver<Held> {
        self.0.held.clone()
    }
}

async fn follow(
    doors: Vec<SocketAddr>,
    mut wants: watch::Receiver<Option<Wanted>>,
    tell: watch::Sender<Held>,
) {
    let (mut locked, mut of) = (None, Vec::new());
    loop {
        let wanted = wants.borrow_and_update().clone();
        let able = wanted.as_ref().is_some_and(|wanted| wanted.able);
        let vips = wanted.map(|wanted| wanted.vips).unwrap_or_default();
        if !able || vips != of {
            // Connections end with it, as they do where an address moves.
            locked = None;
        }
        let mut problem = None;
        if able && locked.is_none() && !vips.is_empty() {
            match lock(&vips, &doors).await {
                Ok(taken) => locked = taken,
                Err(why) => problem = Some(Reason::NoInterface.because(why)),
            }
        }
        let state = match (able, vips.is_empty(), locked.is_some()) {
            (_, true, _) => State::Off,
            (false, ..) => State::Fault,
            (true, _, true) => State::Holder,
            (true, _, false) => State::Backup,
        };
        of = vips;
        tell.send_if_modified(|held| become_(held, state, problem));
        tokio::select! {
            changed = wants.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

fn become_(held: &mut Held, state: State, problem: Option<Problem>) -> bool {
    let changed = held.state != state || held.problem != problem;
    if held.state != state {
        held.taken += u64::from(state == State::Holder);
        (held.state, held.since_ms) =
            (state, i64::try_from(clock::since_epoch().as_millis()).unwrap_or(i64::MAX));
    }
    held.problem = problem;
    changed
}

/// Addresses that are held: the locks, and those who let clients in.
struct Locked {
    _locks: Vec<UdpSocket>,
    _doors: JoinSet<()>,
}

/// All or none. That another has them is no problem.
async fn lock(vips: &[IpAddr], doors: &[SocketAddr]) -> Result<Option<Locked>, String> {
    let mut locks = Vec::new();
    for vip in vips {
        match UdpSocket::bind((*vip, PORT)) {
            Ok(lock) => locks.push(lock),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => return Ok(None),
            Err(error) => return Err(format!("{vip} cannot be held on this machine: {error}")),
        }
    }
    let mut open = JoinSet::new();
    for vip in vips {
        for door in doors {
            let at = SocketAddr::new(*vip, door.port());
            let cannot = |error| format!("cannot let clients in at {at}: {error}");
            open.spawn(let_in(TcpListener::bind(at).await.map_err(cannot)?, *door));
        }
    }
    Ok(Some(Locked { _locks: locks, _doors: open }))
}

/// Leads clients to a door, for ever.
async fn let_in(listener: TcpListener, door: SocketAddr) {
    let mut clients = FuturesUnordered::new();
    loop {
        tokio::select! {
            client = listener.accept(), if clients.len() < CONNECTIONS_MAX => match client {
                Ok((client, _)) => clients.push(pass(client, door)),
                Err(_) => tokio::time::sleep(AGAIN).await,
            },
            Some(()) = clients.next() => {}
        }
    }
}

async fn pass(mut client: TcpStream, door: SocketAddr) {
    let Ok(mut edge) = TcpStream::connect(door).await else { return };
    let _ = (client.set_nodelay(true), edge.set_nodelay(true));
    // Whoever ends it, both ends know.
    let _ = tokio::io::copy_bidirectional(&mut client, &mut edge).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn wanted(able: bool) -> Option<Wanted> {
        Some(Wanted { vips: vec!["127.93.7.1".parse().unwrap()], able, ..Wanted::default() })
    }

    /// Where an edge listens that says one byte to everybody.
    async fn door(byte: u8, tasks: &Tasks) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tasks.spawn_until_stop(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                client.write_all(&[byte]).await.unwrap();
            }
        });
        at
    }

    /// What is said at the address.
    async fn said(door: SocketAddr) -> Option<u8> {
        TcpStream::connect(("127.93.7.1", door.port())).await.ok()?.read_u8().await.ok()
    }

    async fn becomes(holder: &Loopback, state: State) {
        holder.held().wait_for(|held| held.state == state).await.unwrap();
    }

    #[tokio::test]
    async fn one_holds_it_and_the_next_takes_it() {
        let (first, second) = (Tasks::default(), Tasks::default());
        let edges = Tasks::default();
        let doors = [door(1, &edges).await, door(2, &edges).await];
        let (one, two) = (Loopback::start(vec![doors[0]], &first), Loopback::start(vec![doors[1]], &second));
        one.want(wanted(true));
        becomes(&one, State::Holder).await;
        two.want(wanted(true));
        becomes(&two, State::Backup).await;
        assert_eq!((said(doors[0]).await, said(doors[1]).await), (Some(1), None));
        // It drains: the other takes it.
        one.want(wanted(false));
        becomes(&one, State::Fault).await;
        becomes(&two, State::Holder).await;
        assert_eq!((said(doors[0]).await, said(doors[1]).await), (None, Some(2)));
        // It is well again, and takes nothing away.
        one.want(wanted(true));
        becomes(&one, State::Backup).await;
        // The other dies.
        second.join().await;
        becomes(&one, State::Holder).await;
        assert_eq!(one.held().borrow().taken, 2);
        one.want(None);
        becomes(&one, State::Off).await;
        assert_eq!(said(doors[0]).await, None);
        first.join().await;
        edges.join().await;
    }
}
