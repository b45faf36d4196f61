//! The catalog: takes plans in, one at a time or all at once, and gives the next snapshot.

use std::collections::HashMap;
use std::sync::Arc;

use landfall_api::landfall::{PlanFederation, TrafficPlanSpec};
use landfall_plan::records::hosts::front;
use landfall_plan::records::{Answers, Resolved, Scene};

use super::apex::Apex;
use super::hosts::Hosts;
use super::service::{Service, label};
use super::table::Table;
use super::{Snapshot, Stage};
use crate::wire::name::to_wire;
use crate::world::World;

/// The parts of a federation that every service's records depend on.
type Basis = (String, Option<String>, Vec<landfall_api::landfall::PlanMember>);

/// Labels as they stand in packets.
type Bytes = Box<[u8]>;

/// A plan that changed; none if it is gone.
pub type Change<'a> = (&'a str, &'a str, Option<&'a TrafficPlanSpec>);

/// What is needed to make the next snapshot.
#[derive(Debug)]
pub(crate) struct Catalog {
    cluster: Option<String>,
    federation: PlanFederation,
    world: Option<Arc<World>>,
    resolved: Resolved,
    /// Hosts of services that have some, by `svc.ns`.
    hosts: HashMap<Bytes, Vec<String>>,
    snapshot: Snapshot,
}

impl Catalog {
    /// An empty catalog, for an edge of this member.
    pub(crate) fn new(cluster: Option<String>, world: Option<Arc<World>>) -> Self {
        let federation = PlanFederation::default();
        let stage = stage(&federation, cluster.as_deref());
        let apex = Arc::new(Apex::new(&federation, &stage.scene.names));
        let snapshot = Snapshot {
            stage: Arc::new(stage),
            services: Table::default(),
            fronts: Table::default(),
            namespaces: Table::default(),
            hosts: Hosts::default(),
            apex,
            serial: 0,
        };
        let (resolved, hosts) = (Resolved::new(), HashMap::new());
        Self { cluster, federation, world, resolved, hosts, snapshot }
    }

    /// What is answered now.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// What load balancers' host names resolve to, for all that is compiled from now on.
    pub(crate) fn resolve(&mut self, resolved: Resolved) {
        self.resolved = resolved;
    }

    /// Forgets all services: they are to be given again.
    pub(crate) fn forget(&mut self) {
        self.hosts.clear();
        self.snapshot.services = Table::default();
        self.snapshot.fronts = Table::default();
        self.snapshot.namespaces = Table::default();
        self.snapshot.hosts = Hosts::default();
    }

    /// Whether all plans must be given anew with this federation: its names or its members are others.
    pub(crate) fn is_new(&self, federation: &PlanFederation) -> bool {
        basis(&self.federation) != basis(federation)
    }

    /// Takes in a federation. Where it is new, services are forgotten: they are to be given again.
    pub(crate) fn federation(&mut self, federation: &PlanFederation, serial: u32) {
        let fresh = self.is_new(federation);
        if fresh || self.federation.prefixes != federation.prefixes {
            let mut stage = stage(federation, self.cluster.as_deref());
            // Where clients stand in the world depends on members only, and is long to compute.
            let world = || self.world.as_ref().map(|world| Arc::new(world.prefixes(&stage.scene.places)));
            stage.world = if fresh { world() } else { self.snapshot.stage.world.clone() };
            self.snapshot.stage = Arc::new(stage);
        }
        if fresh {
            self.forget();
        }
        self.federation = federation.clone();
        self.snapshot.apex = Arc::new(Apex::new(federation, &self.snapshot.stage.scene.names));
        self.snapshot.serial = serial;
    }

    /// Takes in plans that changed.
    pub(crate) fn change<'a>(&mut self, changes: impl IntoIterator<Item = Change<'a>>, serial: u32) {
        let names = &self.snapshot.stage.scene.names;
        let domain = (!names.domain.is_empty()).then(|| to_wire(&names.domain.join("."))).flatten();
        let (mut services, mut fronts) = (Vec::new(), Vec::new());
        let mut counts: HashMap<Bytes, i64> = HashMap::new();
        // A plan may be given twice: what was there before is what stands in the table, or came earlier.
        let mut seen: HashMap<Bytes, bool> = HashMap::new();
        for (namespace, name, plan) in changes {
            let Some((key, space)) = key(namespace, name) else { continue };
            let stage = &self.snapshot.stage;
            let service = plan.map(|plan| Service::new(&Answers::new(&stage.scene, plan, &self.resolved)));
            let before = seen.insert(key.clone(), service.is_some());
            let before = before.unwrap_or_else(|| self.snapshot.services.get(&key).is_some());
            *counts.entry(space).or_default() += i64::from(service.is_some()) - i64::from(before);
            let hosts = plan.map(|plan| plan.hosts.clone()).unwrap_or_default();
            self.claim(&key, hosts, domain.as_deref());
            let front = plan.and_then(front);
            let front = front
                .map(|plan| Service::new(&Answers::new(&self.snapshot.stage.scene, &plan, &self.resolved)));
            if front.is_some() || self.snapshot.fronts.get(&key).is_some() {
                fronts.push((key.clone(), front.map(Arc::new)));
            }
            services.push((key, service.map(Arc::new)));
        }
        let counts = counts.into_iter().filter(|(_, change)| *change != 0).map(|(space, change)| {
            let now = self.snapshot.namespaces.get(&space).map_or(0, |now| i64::from(*now)) + change;
            (space, u32::try_from(now).ok().filter(|now| *now > 0))
        });
        let counts: Vec<_> = counts.collect();
        self.snapshot.namespaces.change(counts);
        self.snapshot.services.change(services);
        self.snapshot.fronts.change(fronts);
        self.snapshot.serial = serial;
    }

    /// Gives a service the hosts it has now.
    fn claim(&mut self, key: &[u8], hosts: Vec<String>, domain: Option<&[u8]>) {
        let before = self.hosts.remove(key).unwrap_or_default();
        if before != hosts {
            before.iter().for_each(|host| self.snapshot.hosts.claim(host, key, domain, false));
            hosts.iter().for_each(|host| self.snapshot.hosts.claim(host, key, domain, true));
        }
        if !hosts.is_empty() {
            self.hosts.insert(key.into(), hosts);
        }
    }
}

fn basis(federation: &PlanFederation) -> Basis {
    (federation.name.clone(), federation.domain.clone(), federation.members.clone())
}

fn stage(federation: &PlanFederation, cluster: Option<&str>) -> Stage {
    let scene = Scene::new(federation, cluster);
    let labels = scene.places.members.iter().map(|member| label(&member.name).unwrap_or_default());
    let labels = labels.collect();
    Stage { scene, labels, world: None }
}

/// A service's key, `svc.ns` as it stands in packets, and its namespace's label.
fn key(namespace: &str, name: &str) -> Option<(Bytes, Bytes)> {
    let (service, space) = (label(name)?, label(namespace)?);
    Some(([&*service, &*space].concat().into(), space[1..].into()))
}
