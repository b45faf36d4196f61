//! Where all nodes are one machine: its loopback addresses are everywhere already, so holding one is to have locked it.
//!
//! The lock is a socket bound at the address: the kernel gives it to one, and takes it back when that one ends.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use tokio::sync::watch;

use crate::words::Wish;
use crate::{Held, Holder, Problem, Reason, State, Wanted};

/// Where the lock is. Nothing is said there.
const PORT: u16 = 8112;
/// Between two tries to get it.
const AGAIN: Duration = Duration::from_millis(100);

/// Holds loopback addresses.
#[derive(Debug)]
pub struct Loopback(Wish);

impl Loopback {
    /// Holds nothing until something is wanted.
    #[must_use]
    pub fn start(tasks: &Tasks) -> Self {
        let (wish, wants, tell) = Wish::new();
        tasks.spawn_until_stop(follow(wants, tell));
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

async fn follow(mut wants: watch::Receiver<Option<Wanted>>, tell: watch::Sender<Held>) {
    let (mut locks, mut of) = (Vec::new(), Vec::new());
    loop {
        let wanted = wants.borrow_and_update().clone();
        let able = wanted.as_ref().is_some_and(|wanted| wanted.able);
        let vips = wanted.map(|wanted| wanted.vips).unwrap_or_default();
        if !able || vips != of {
            locks.clear();
        }
        let mut problem = None;
        if able && locks.is_empty() {
            match lock(&vips) {
                Ok(taken) => locks = taken,
                Err(why) => problem = Some(Reason::NoInterface.because(why)),
            }
        }
        let state = match (able, vips.is_empty(), locks.is_empty()) {
            (_, true, _) => State::Off,
            (false, ..) => State::Fault,
            (true, _, false) => State::Holder,
            (true, _, true) => State::Backup,
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

/// All or none. That another has them is no problem.
fn lock(vips: &[IpAddr]) -> Result<Vec<UdpSocket>, String> {
    let mut locks = Vec::new();
    for vip in vips {
        match UdpSocket::bind((*vip, PORT)) {
            Ok(lock) => locks.push(lock),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => return Ok(Vec::new()),
            Err(error) => return Err(format!("{vip} cannot be held on this machine: {error}")),
        }
    }
    Ok(locks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(able: bool) -> Option<Wanted> {
        Some(Wanted { vips: vec!["127.93.7.1".parse().unwrap()], able, ..Wanted::default() })
    }

    async fn becomes(holder: &Loopback, state: State) {
        holder.held().wait_for(|held| held.state == state).await.unwrap();
    }

    #[tokio::test]
    async fn one_holds_it_and_the_next_takes_it() {
        let (first, second) = (Tasks::default(), Tasks::default());
        let (one, two) = (Loopback::start(&first), Loopback::start(&second));
        one.want(wanted(true));
        becomes(&one, State::Holder).await;
        two.want(wanted(true));
        becomes(&two, State::Backup).await;
        // It drains: the other takes it.
        one.want(wanted(false));
        becomes(&one, State::Fault).await;
        becomes(&two, State::Holder).await;
        // It is well again, and takes nothing away.
        one.want(wanted(true));
        becomes(&one, State::Backup).await;
        // The other dies.
        second.join().await;
        becomes(&one, State::Holder).await;
        assert_eq!(one.held().borrow().taken, 2);
        one.want(None);
        becomes(&one, State::Off).await;
        first.join().await;
    }
}
