//! Which endpoint a client gets: one after the other, or the same as last time where the Service asks for that.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::plan::Target;

/// Clients remembered for one door; when there are more, those that came first lose their place.
const CLIENTS_MAX: usize = 4_096;

/// Chooses endpoints behind one door.
pub(super) struct Chooser {
    target: ArcSwap<Target>,
    next: AtomicUsize,
    clients: Mutex<HashMap<IpAddr, (SocketAddr, Instant)>>,
}

impl Chooser {
    pub(super) fn new(target: Target) -> Self {
        let target = ArcSwap::from_pointee(target);
        Self { target, next: AtomicUsize::new(0), clients: Mutex::default() }
    }

    /// From now on the door leads there.
    pub(super) fn set(&self, target: Target) {
        if **self.target.load() != target {
            self.target.store(target.into());
        }
    }

    /// The endpoint for a client; none when there is nobody.
    pub(super) fn choose(&self, client: IpAddr, now: Instant) -> Option<SocketAddr> {
        let target = self.target.load();
        let Some(stay) = target.affinity else { return self.rotate(&target) };
        let mut clients = self.clients.lock();
        let known = clients.get(&client).filter(|(at, used)| {
            now.saturating_duration_since(*used) < stay && target.endpoints.contains(at)
        });
        let at = known.map(|(at, _)| *at).or_else(|| self.rotate(&target))?;
        if clients.len() >= CLIENTS_MAX && !clients.contains_key(&client) {
            make_room(&mut clients, stay, now);
        }
        clients.insert(client, (at, now));
        Some(at)
    }

    fn rotate(&self, target: &Target) -> Option<SocketAddr> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        target.endpoints.get(turn.checked_rem(target.endpoints.len())?).copied()
    }
}

/// Forgets clients whose time is over, or else the one that was away longest.
fn make_room(clients: &mut HashMap<IpAddr, (SocketAddr, Instant)>, stay: Duration, now: Instant) {
    clients.retain(|_, (_, used)| now.saturating_duration_since(*used) < stay);
    if clients.len() >= CLIENTS_MAX {
        let oldest = clients.iter().min_by_key(|(_, (_, used))| *used).map(|(client, _)| *client);
        oldest.and_then(|oldest| clients.remove(&oldest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(endpoints: &[&str], affinity: Option<Duration>) -> Target {
        let endpoints = endpoints.iter().map(|e| e.parse().unwrap()).collect();
        Target { service: "a/web".into(), endpoints, affinity, balancer: false }
    }

    fn choices(chooser: &Chooser, client: &str, at: Instant, count: usize) -> Vec<String> {
        let client = client.parse().unwrap();
        (0..count).map(|_| chooser.choose(client, at).map_or_else(|| "-".into(), |e| e.to_string())).collect()
    }

    #[test]
    fn one_after_the_other() {
        let chooser = Chooser::new(target(&["1.1.1.1:1", "2.2.2.2:2"], None));
        let now = landfall_runtime::clock::instant();
        assert_eq!(choices(&chooser, "9.9.9.9", now, 3), ["1.1.1.1:1", "2.2.2.2:2", "1.1.1.1:1"]);
        chooser.set(target(&[], None));
        assert_eq!(choices(&chooser, "9.9.9.9", now, 1), ["-"]);
    }

    #[test]
    fn a_client_stays_while_its_endpoint_does() {
        let stay = Duration::from_secs(10);
        let chooser = Chooser::new(target(&["1.1.1.1:1", "2.2.2.2:2"], Some(stay)));
        let now = landfall_runtime::clock::instant();
        assert_eq!(choices(&chooser, "9.9.9.9", now, 2), ["1.1.1.1:1", "1.1.1.1:1"]);
        assert_eq!(choices(&chooser, "8.8.8.8", now, 2), ["2.2.2.2:2", "2.2.2.2:2"]);
        assert_eq!(choices(&chooser, "9.9.9.9", now + stay, 1), ["1.1.1.1:1"], "chosen anew, by turn");
        chooser.set(target(&["2.2.2.2:2"], Some(stay)));
        assert_eq!(choices(&chooser, "9.9.9.9", now + stay, 1), ["2.2.2.2:2"]);
    }

    #[test]
    fn clients_do_not_pile_up() {
        let chooser = Chooser::new(target(&["1.1.1.1:1"], Some(Duration::from_secs(10))));
        let now = landfall_runtime::clock::instant();
        for n in 0..u32::try_from(CLIENTS_MAX).unwrap() + 10 {
            chooser.choose(std::net::Ipv4Addr::from(n).into(), now);
        }
        assert_eq!(chooser.clients.lock().len(), CLIENTS_MAX);
    }
}
