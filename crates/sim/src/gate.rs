//! The faults of one member, and its distance from others, shared by its API server, its node agents and its forwarder.
//!
//! A [`Gate`] is asked by whoever accepts a connection, moves its bytes, or does something in the name of a node. It
//! answers from one immutable [`Faults`] value; changing it is swapping the value, and everybody can wait for that.
//!
//! | fault | what others see |
//! |---|---|
//! | dead | connections refused; open ones reset; nodes fall silent |
//! | cut from another cluster, or from the hub | connections from there, new and old, stand still until it is healed, as lost packets do |
//! | API down | the API server's door is closed (its owner asks [`Faults::api_down`]); nodes cannot report |
//! | node lost | its pods' listeners vanish, no heartbeat, nothing of it is reported |
//! | pods crashing, slow, overloaded | containers exit; every request waits; 503, or a queue, beyond a number of requests at once |
//! | address lost | a load balancer's address refuses connections; open ones are reset |

pub mod distance;
mod line;
mod stream;

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use landfall_api::selector::Selector;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use crate::address::Block;

pub use distance::Distances;
pub use stream::Gated;

/// A handle to the faults of one member; clones share them.
#[derive(Clone, Debug)]
pub struct Gate {
    faults: watch::Sender<Arc<Faults>>,
    way: Arc<Way>,
}

/// The way to a member.
#[derive(Debug, Default)]
struct Way {
    /// Where it stands; none when it is near to everybody.
    stands: Option<(Origin, Arc<Distances>)>,
    /// Local addresses of connections that the member itself passes on, and that have come from far already. Several may
    /// share one.
    relayed: Mutex<HashMap<SocketAddr, usize>>,
}

/// A connection that is passed on, until this is dropped.
pub struct Relayed {
    way: Arc<Way>,
    from: SocketAddr,
}

/// Everything that is wrong with a member.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The whole cluster is gone.
    pub dead: bool,
    /// The API server does not answer.
    pub api_down: bool,
    /// Who packets neither come from nor go to. Whoever stands outside is never cut off.
    pub cut: BTreeSet<Origin>,
    /// Names of nodes that are gone.
    pub nodes_lost: BTreeSet<String>,
    /// Load balancer addresses that are gone.
    pub addresses_lost: BTreeSet<Ipv4Addr>,
    /// What pods suffer from; the first that fits a pod counts.
    pub pods: Vec<PodFault>,
}

/// A fault of some pods.
#[derive(Clone, Debug)]
pub struct PodFault {
    /// Only pods of this namespace; none for all.
    pub namespace: Option<String>,
    /// Only pods with such labels; the empty selector fits all.
    pub selector: Selector,
    /// What happens to them.
    pub effect: Effect,
}

/// What happens to a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    #[default]
    None,
    /// Its containers exit, and exit again when they are restarted.
    Crash,
    /// Every request takes so much longer.
    Slow(Duration),
    /// More than so many requests at once are answered with 503.
    Overloaded {
        /// How many at once are still served; 0 refuses all.
        requests_max: u32,
    },
    /// More than so many requests at once wait for their turn.
    Queueing {
        /// How many at once are served.
        requests_max: u32,
    },
    /// Exec probes, which have nothing to run here, fail.
    Unhealthy,
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The addresses of a member.
    Member(Block),
    /// The hub. It has no addresses of its own: whoever else comes to a member's backbone address is the hub.
    Hub,
    /// Somewhere else: users, who stand outside of the federation.
    Outside,
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It goes on.
    Open,
    /// Its bytes stand still.
    Blackhole,
    /// It is reset.
    Reset,
}

// === impl Gate ===

impl Default for Gate {
    fn default() -> Self {
        Self { faults: watch::Sender::new(Arc::default()), way: Arc::default() }
    }
}

impl Gate {
    /// Of a member whose traffic takes its time.
    pub fn distant(here: Block, distances: Arc<Distances>) -> Self {
        let way = Way { stands: Some((Origin::Member(here), distances)), ..Way::default() };
        Self { way: Arc::new(way), ..Self::default() }
    }

    /// How long a round trip from there takes.
    pub fn round_trip(&self, from: Origin) -> Duration {
        self.way.stands.as_ref().map_or(Duration::ZERO, |(here, distances)| distances.round_trip(*here, from))
    }

    /// Tells that a connection from this address is passed on by the member: it has come all the way. None when it was
    /// no way.
    pub fn relay(&self, from: SocketAddr) -> Option<Relayed> {
        if self.round_trip(Origin::of(from.ip())).is_zero() {
            return None;
        }
        *self.way.relayed.lock().entry(from).or_default() += 1;
        Some(Relayed { way: self.way.clone(), from })
    }

    /// Whether a connection is passed on by the member itself.
    fn relays(&self, peer: SocketAddr) -> bool {
        self.way.relayed.lock().contains_key(&peer)
    }

    /// What is wrong now.
    pub fn now(&self) -> Arc<Faults> {
        self.faults.borrow().clone()
    }

    /// Changes what is wrong, for everybody at once.
    pub fn change(&self, change: impl FnOnce(&mut Faults)) {
        self.faults.send_modify(|faults| change(Arc::make_mut(faults)));
    }

    /// Nothing is wrong any more.
    pub fn heal(&self) {
        self.change(|faults| *faults = Faults::default());
    }

    /// Whether the API server is unreachable: down itself, or with its whole cluster.
    pub fn api_down(&self) -> bool {
        self.faults.borrow().api_down()
    }

    /// To wait for changes: [`watch::Receiver::changed`] ends with every one of them.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Faults>> {
        self.faults.subscribe()
    }

    /// Waits until the faults are as wanted.
    pub async fn until(&self, mut wanted: impl FnMut(&Faults) -> bool) {
        // The sender lives as long as this handle, so waiting cannot fail.
        let _ = self.subscribe().wait_for(|faults| wanted(faults)).await;
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        let mut relayed = self.way.relayed.lock();
        match relayed.get_mut(&self.from) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(relayed.remove(&self.from)),
        }
    }
}

// === impl Origin ===

impl Origin {
    /// Where a client with this address stands when it comes to an address of pods or Services.
    pub fn of(peer: IpAddr) -> Self {
        Block::of(peer).map_or(Self::Outside, Self::Member)
    }

    /// Where a client with this address stands when it comes to a member's backbone address.
    pub fn on_backbone(peer: IpAddr) -> Self {
        Block::of(peer).map_or(Self::Hub, Self::Member)
    }
}

// === impl Faults ===

impl Faults {
    /// Whether the API server is unreachable.
    pub const fn api_down(&self) -> bool {
        self.api_down || self.dead
    }

    /// Whether a node is gone.
    pub fn node_lost(&self, node: &str) -> bool {
        self.dead || self.nodes_lost.contains(node)
    }

    /// Whether nobody listens at an address of a load balancer.
    pub fn address_lost(&self, address: Ipv4Addr) -> bool {
        self.dead || self.addresses_lost.contains(&address)
    }

    /// What becomes of a connection from there.
    pub fn passage(&self, from: Origin) -> Passage {
        match (self.dead, self.cut.contains(&from)) {
            (true, _) => Passage::Reset,
            (false, true) => Passage::Blackhole,
            (false, false) => Passage::Open,
        }
    }

    /// What a pod suffers from.
    pub fn effect(&self, pod: &Value) -> Effect {
        let fits = |fault: &&PodFault| {
            let here = fault.namespace.as_deref().is_none_or(|n| n == landfall_api::meta::namespace(pod));
            here && fault.selector.matches_object(pod)
        };
        self.pods.iter().find(fits).map_or(Effect::None, |fault| fault.effect)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn passages() {
        let near = Block::all().next().unwrap();
        let far = Block::all().nth(1).unwrap();
        let user: IpAddr = "127.0.0.1".parse().unwrap();
        let check = |faults: &Faults, from: Origin, want: Passage| assert_eq!(faults.passage(from), want);
        let mut faults = Faults::default();
        check(&faults, Origin::of(near.api().into()), Passage::Open);
        faults.cut.insert(Origin::Member(near));
        check(&faults, Origin::of(near.api().into()), Passage::Blackhole);
        check(&faults, Origin::on_backbone(near.api().into()), Passage::Blackhole);
        check(&faults, Origin::of(far.api().into()), Passage::Open);
        check(&faults, Origin::on_backbone(user), Passage::Open);
        faults.cut.insert(Origin::Hub);
        check(&faults, Origin::on_backbone(user), Passage::Blackhole);
        check(&faults, Origin::of(user), Passage::Open);
        faults.dead = true;
        check(&faults, Origin::of(near.api().into()), Passage::Reset);
        check(&faults, Origin::of(user), Passage::Reset);
        assert!(faults.api_down() && faults.node_lost("any"));
    }

    #[test]
    fn a_pod_suffers_from_the_first_fault_that_fits() {
        let pod = |namespace: &str, app: &str| json!({"metadata": {"namespace": namespace, "labels": {"app": app}}});
        let fault = |namespace: Option<&str>, selector: &str, effect| PodFault {
            namespace: namespace.map(Into::into),
            selector: Selector::parse(selector).unwrap(),
            effect,
        };
        let slow = Effect::Slow(Duration::from_millis(5));
        let faults = Faults {
            pods: vec![fault(Some("a"), "app=web", Effect::Crash), fault(None, "", slow)],
            ..Faults::default()
        };
        for (namespace, app, want) in [("a", "web", Effect::Crash), ("b", "web", slow), ("a", "db", slow)] {
            assert_eq!(faults.effect(&pod(namespace, app)), want, "{namespace} {app}");
        }
        assert_eq!(Faults::default().effect(&pod("a", "web")), Effect::None);
    }

    #[test]
    fn what_is_passed_on_is_near() {
        let [here, far] = [0, 1].map(|n| Block::all().nth(n).unwrap());
        let gate = Gate::distant(here, Arc::default());
        let from = |block: Block| SocketAddr::from((block.api(), 1));
        assert!(gate.relay(from(here)).is_none(), "nothing to remember");
        let (one, two) = (gate.relay(from(far)), gate.relay(from(far)));
        assert!(one.is_some() && gate.relays(from(far)) && !gate.relays(from(here)));
        drop(one);
        assert!(gate.relays(from(far)), "two share an address");
        drop(two);
        assert!(!gate.relays(from(far)));
    }

    #[tokio::test]
    async fn a_change_is_seen_by_all_who_wait() {
        let gate = Gate::default();
        let other = gate.clone();
        let waiting = async move { other.until(|faults| faults.api_down).await };
        let changing = async { gate.change(|faults| faults.api_down = true) };
        tokio::join!(waiting, changing);
        gate.heal();
        assert!(!gate.api_down());
    }
}
