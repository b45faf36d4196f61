//! Virtual IPs: what this edge wants to hold of its group's, and what it tells of them.
//!
//! Whether it holds one is decided by those who hold them ([`landfall_vip`]): here it is only said what the plan says.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use landfall_api::landfall::{EdgeVip, GroupPlanSpec, VipState};
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;
use landfall_vip::{Held, Holder, Line, Loopback, State, Wanted};
use tokio::sync::watch;

use super::book::Plans;
use super::core::Config;
use super::status::{micro_time, time};

/// How long it may take to give an address away before the edge stops all the same; and then to tell the hub.
const GIVE_AWAY: Duration = Duration::from_secs(2);

/// Who holds virtual IPs for an edge.
#[derive(Clone, Debug, Default)]
pub(crate) enum Keeping {
    /// Nobody.
    #[default]
    None,
    /// The keeper that is met in this directory.
    Keeper(PathBuf),
    /// This machine has all loopback addresses; one edge locks each, and lets clients in at them to where it listens itself.
    Loopback(Vec<SocketAddr>),
}

/// This edge's part in its group's virtual IPs.
pub(crate) struct Vips {
    holder: Option<Box<dyn Holder>>,
    me: Me,
    wish: watch::Sender<Wish>,
    /// Whether the hub knows that this edge has no part in any address.
    known: watch::Sender<bool>,
}

/// What is wanted now.
#[derive(Clone, Debug, Default, PartialEq)]
struct Wish {
    /// The addresses, and how to hold them.
    wanted: Option<Wanted>,
    /// The revision of the plan that says so.
    revision: i64,
    /// What was wanted before and may not be off this node yet.
    left: Vec<IpAddr>,
    /// The edge stops: nothing is wanted any more.
    stopping: bool,
}

/// What this edge tells of virtual IPs.
#[derive(Debug)]
pub(crate) struct VipsTold {
    /// Each address that it has a part in.
    pub(crate) vips: Vec<EdgeVip>,
    /// The plan that it follows; none when it will not hold anything any more.
    pub(crate) revision: Option<i64>,
    /// Whether all is as it should be.
    pub(crate) condition: Condition,
}

/// Changes of what is told.
pub(crate) struct Changes {
    held: watch::Receiver<Held>,
    wish: watch::Receiver<Wish>,
}

impl Changes {
    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            changed = self.held.changed() => if changed.is_err() { std::future::pending().await },
            changed = self.wish.changed() => if changed.is_err() { std::future::pending().await },
        }
    }
}

/// Who wants it.
#[derive(Clone, Debug)]
struct Me {
    name: String,
    cluster: String,
    group: Option<String>,
    own: Vec<IpAddr>,
    check: Option<SocketAddr>,
}

impl Vips {
    /// Begins with nothing.
    pub(crate) fn start(
        config: &Config,
        http: Option<SocketAddr>,
        registry: &Registry,
        tasks: &Tasks,
    ) -> Self {
        let holder: Option<Box<dyn Holder>> = match &config.keeping {
            Keeping::None => None,
            Keeping::Keeper(dir) => Some(Box::new(Line::start(dir.clone(), tasks))),
            Keeping::Loopback(doors) => Some(Box::new(Loopback::start(doors.clone(), tasks))),
        };
        if let Some(holder) = &holder {
            count(registry, tasks, holder.held());
        }
        let me = Me {
            name: config.name.clone(),
            cluster: config.cluster.clone(),
            group: config.group.clone(),
            own: config.link_addresses.clone(),
            check: http.map(reachable),
        };
        Self { holder, me, wish: watch::channel(Wish::default()).0, known: watch::channel(true).0 }
    }

    /// Wants what its group's plan says. What it says no more is let go of before anything else is wanted, so that it is known
    /// when that is done.
    pub(crate) fn follow(&self, plans: &Plans) {
        let Some(holder) = &self.holder else { return };
        let plan = self.me.group.as_ref().and_then(|group| plans.groups.get(group));
        let before = self.wish.borrow().clone();
        if before.stopping {
            return;
        }
        let wanted = plan.and_then(|plan| self.me.wants(plan));
        let revision = plan.map_or(0, |plan| plan.revision);
        let wish = before.next(wanted, revision, holder.held().borrow().state);
        holder.want(wish.wanted.clone());
        self.wish.send_if_modified(|known| {
            let changed = *known != wish;
            *known = wish;
            changed
        });
    }

    /// Lets another one have the addresses, and tells the hub, before this edge stops.
    pub(crate) async fn give_away(&self) {
        let Some(holder) = &self.holder else { return };
        let mut known = self.known.subscribe();
        let wish = self.wish.borrow().clone();
        let nothing = wish.wanted.is_none() && wish.left.is_empty() && *known.borrow_and_update();
        self.wish.send_modify(|wish| {
            wish.stopping = true;
            if let Some(wanted) = &mut wish.wanted {
                wanted.able = false;
            }
        });
        if nothing {
            return;
        }
        self.known.send_replace(false);
        holder.want(self.wish.borrow().wanted.clone());
        let mut held = holder.held();
        let given = held.wait_for(|held| held.state != State::Holder);
        if tokio::time::timeout(GIVE_AWAY, given).await.is_err() {
            tracing::warn!("stopping with virtual IPs that could not be given away");
        }
        // Who does not hear of it waits until this edge is gone for good before the address is another group's.
        if tokio::time::timeout(GIVE_AWAY, known.wait_for(|known| *known)).await.is_err() {
            tracing::debug!("stopping before the hub knows that virtual IPs were given away");
        }
    }

    /// The hub has been told; whether that this edge has a part in any address.
    pub(crate) fn was_told(&self, any: bool) {
        self.known.send_replace(!any);
    }

    /// Tells of changes; none where nothing is ever held.
    pub(crate) fn changes(&self) -> Option<Changes> {
        let held = self.holder.as_ref()?.held();
        Some(Changes { held, wish: self.wish.subscribe() })
    }

    /// What is told of them: each address, and whether all is as it should be.
    pub(crate) fn told(&self) -> Option<VipsTold> {
        let held = self.holder.as_ref()?.held().borrow().clone();
        Some(told(&held, &self.wish.borrow()))
    }
}

impl Wish {
    /// What is wanted next, given what a plan says and which part this node plays.
    fn next(&self, wanted: Option<Wanted>, revision: i64, state: State) -> Self {
        let new = |vip: &IpAddr| !wanted.as_ref().is_some_and(|wanted| wanted.vips.contains(vip));
        let old = self.wanted.iter().flat_map(|wanted| &wanted.vips).chain(&self.left);
        let left: Vec<IpAddr> = old.filter(|vip| state == State::Holder && new(vip)).copied().collect();
        let wanted = if left.is_empty() { wanted } else { None };
        Self { wanted, revision, left, stopping: false }
    }
}

impl Me {
    /// What the plan means for this edge; nothing where it is not in it.
    fn wants(&self, plan: &GroupPlanSpec) -> Option<Wanted> {
        let member = plan.members.iter().find(|member| member.cluster == self.cluster)?;
        let me = member.edges.iter().find(|edge| edge.name == self.name)?;
        let vips: Vec<IpAddr> = member.vips.iter().filter_map(|vip| vip.parse().ok()).collect();
        let first = vips.first()?;
        let others = member.edges.iter().filter(|edge| edge.name != self.name);
        let addresses = others.flat_map(|edge| &edge.addresses).filter_map(|address| address.parse().ok());
        let of_family = |address: &IpAddr| address.is_ipv4() == first.is_ipv4();
        Some(Wanted {
            group: self.group.clone().unwrap_or_default(),
            router_id: u8::try_from(member.router_id).ok().filter(|id| *id > 0)?,
            interface: plan.interface.clone(),
            own: self.own.iter().copied().find(of_family),
            priority: u8::try_from(me.priority).unwrap_or(100).clamp(1, 254),
            unicast: plan.unicast,
            peers: if plan.unicast { addresses.filter(of_family).collect() } else { Vec::new() },
            able: true,
            check: self.check,
            vips,
        })
    }
}

fn told(held: &Held, wish: &Wish) -> VipsTold {
    let problem = held.problem.as_ref();
    let state = match held.state {
        State::Holder => VipState::Holding,
        State::Backup => VipState::Standby,
        State::Off | State::Fault => VipState::Fault,
    };
    let reason = match (held.state, problem) {
        (_, Some(problem)) => problem.message.clone(),
        (State::Fault, None) => "this edge or its link is not well".into(),
        _ => String::new(),
    };
    let vip = |address: &IpAddr| EdgeVip {
        address: address.to_string(),
        state,
        since: Some(micro_time(held.since_ms)),
        transitions: i64::try_from(held.taken).ok(),
        reason: reason.clone(),
    };
    // One that stops will not take them again.
    let over = wish.stopping && held.state != State::Holder;
    let wanted = wish.wanted.as_ref().filter(|_| !over);
    let vips = wanted.iter().flat_map(|wanted| &wanted.vips).chain(&wish.left).map(vip).collect();
    let (status, word, message) = match (problem, wanted) {
        (Some(problem), _) => ("False", problem.reason.as_str(), problem.message.as_str()),
        (None, None) => ("False", "NoPlan", "no plan of its group gives it an address to hold"),
        (None, Some(_)) => ("True", "Following", "it takes part in holding its group's addresses"),
    };
    let condition = Condition {
        type_: "VirtualIP".into(),
        status: status.into(),
        reason: word.into(),
        message: message.into(),
        last_transition_time: time(held.since_ms),
        observed_generation: None,
    };
    VipsTold { vips, revision: (!over).then_some(wish.revision), condition }
}

/// Where this machine itself reaches what listens there.
fn reachable(at: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => std::net::Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, at.port())
}

/// Keeps metrics as they are held.
fn count(registry: &Registry, tasks: &Tasks, mut held: watch::Receiver<Held>) {
    let holding =
        registry.gauge("landfall_edge_vip_holding", "Whether this edge holds its group's virtual IPs.", "");
    let taken = registry.counter(
        "landfall_edge_vip_transitions_total",
        "How often this edge took its group's virtual IPs.",
        "",
    );
    tasks.spawn_until_stop(async move {
        let mut before = 0;
        loop {
            let now = held.borrow_and_update().clone();
            holding.set(i64::from(now.state == State::Holder));
            taken.add(now.taken.saturating_sub(before));
            before = now.taken;
            if held.changed().await.is_err() {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use landfall_api::landfall::{GroupPlanEdge, GroupPlanMember};
    use landfall_vip::Reason;

    use super::*;

    fn edge(name: &str, address: &str, priority: i32) -> GroupPlanEdge {
        GroupPlanEdge {
            name: name.into(),
            addresses: vec![address.into()],
            priority,
            ..GroupPlanEdge::default()
        }
    }

    fn plan() -> GroupPlanSpec {
        GroupPlanSpec {
            members: vec![GroupPlanMember {
                cluster: "us".into(),
                router_id: 7,
                vips: vec!["192.0.2.100".into()],
                http_port: None,
                edges: vec![
                    edge("a", "192.0.2.1", 200),
                    edge("b", "192.0.2.2", 100),
                    edge("c", "2001:db8::3", 50),
                ],
            }],
            ..GroupPlanSpec::default()
        }
    }

    fn me() -> Me {
        Me {
            name: "a".into(),
            cluster: "us".into(),
            group: Some("front".into()),
            own: vec!["2001:db8::1".parse().unwrap(), "192.0.2.1".parse().unwrap()],
            check: None,
        }
    }

    #[test]
    fn the_plan_says_what_is_wanted() {
        let wanted = me().wants(&plan()).unwrap();
        assert_eq!((wanted.router_id, wanted.priority, wanted.peers.len()), (7, 200, 0));
        assert_eq!(wanted.own, Some("192.0.2.1".parse().unwrap()));
        let unicast = GroupPlanSpec { unicast: true, ..plan() };
        let peers = me().wants(&unicast).unwrap().peers;
        assert_eq!(peers, ["192.0.2.2".parse::<IpAddr>().unwrap()], "of the address's family");
        let elsewhere = Me { cluster: "eu".into(), ..me() };
        assert_eq!(elsewhere.wants(&plan()), None);
        let unknown = Me { name: "z".into(), ..me() };
        assert_eq!(unknown.wants(&plan()), None, "whom the plan does not know must not take part");
        let mut none = plan();
        none.members[0].vips.clear();
        assert_eq!(me().wants(&none), None);
    }

    #[test]
    fn what_is_held_is_told() {
        let wanted = Wish { wanted: me().wants(&plan()), revision: 4, ..Wish::default() };
        let held = Held { state: State::Holder, since_ms: 1_000, taken: 2, problem: None };
        let VipsTold { vips, revision, condition } = told(&held, &wanted);
        assert_eq!((vips[0].state, vips[0].transitions, revision), (VipState::Holding, Some(2), Some(4)));
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("True", "Following"));
        let problem = Some(Reason::KeepalivedMissing.because("install it"));
        let VipsTold { vips, condition, .. } = told(&Held { problem, ..Held::default() }, &wanted);
        assert_eq!((vips[0].state, vips[0].reason.as_str()), (VipState::Fault, "install it"));
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "KeepalivedMissing"));
        assert_eq!(told(&Held::default(), &Wish::default()).condition.reason, "NoPlan");
        // It stops, and has given them away: it has no part in them any more.
        let stopping = Wish { stopping: true, ..wanted };
        assert_eq!(told(&held, &stopping).vips.len(), 1);
        let over = told(&Held { state: State::Fault, ..held }, &stopping);
        assert_eq!((over.vips, over.revision), (Vec::new(), None));
    }

    #[test]
    fn what_is_wanted_no_more_is_off_before_anything_else_is_wanted() {
        let (first, mut other) = (me().wants(&plan()).unwrap(), plan());
        other.members[0].vips = vec!["192.0.2.101".into()];
        let second = me().wants(&other).unwrap();
        let held = Held { state: State::Holder, ..Held::default() };
        let wish = Wish::default().next(Some(first.clone()), 1, State::Off);
        assert_eq!(wish.wanted, Some(first.clone()));
        let wish = wish.next(Some(second.clone()), 2, State::Holder);
        assert_eq!((&wish.wanted, wish.left.as_slice()), (&None, first.vips.as_slice()));
        assert_eq!(told(&held, &wish).vips[0].state, VipState::Holding, "it is on the node as long as it is");
        let wish = wish.next(Some(second.clone()), 2, State::Holder);
        assert_eq!((&wish.wanted, wish.left.len()), (&None, 1));
        let wish = wish.next(Some(second.clone()), 2, State::Off);
        assert_eq!((wish.wanted, wish.left.len()), (Some(second.clone()), 0));
        // One more address, or an edge that holds nothing: nothing is in the way.
        let both = Wanted { vips: [first.vips.clone(), second.vips.clone()].concat(), ..first.clone() };
        let wish = Wish { wanted: Some(first), ..Wish::default() };
        assert_eq!(wish.next(Some(both.clone()), 2, State::Holder).wanted, Some(both));
        assert_eq!(wish.next(Some(second.clone()), 2, State::Backup).wanted, Some(second));
        assert_eq!(wish.next(None, 2, State::Holder).left.len(), 1);
    }
}
