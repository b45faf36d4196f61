//! The record sets of all services, kept as plans change: a changed plan is looked at alone.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use landfall_api::landfall::{
    FEDERATION_PLAN, PlanFederation, SYSTEM_NAMESPACE, TrafficPlan, TrafficPlanSpec,
};
use landfall_plan::publish::{Wanted, wanted};
use landfall_plan::records::sets::{Answer, Data, RecordSet, answer, of_service};
use landfall_plan::records::{Answers, Place, Resolved, Scene, Scope};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::queue::Queue;
use crate::shelf::{Key, Shelf};
use crate::watch::Change;

/// See the module.
pub(super) struct Index {
    /// All plans.
    pub(super) plans: Shelf,
    queue: Queue,
    /// All plans have been listed once; what the queue does not have any more has been looked at.
    listed: AtomicBool,
    state: Mutex<State>,
    /// Counts what changed; 0 while not everything has been looked at.
    news: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    federation: PlanFederation,
    scene: Option<Scene>,
    /// By plan, in order: of several services that claim a host the first has it.
    sets: BTreeMap<(Arc<str>, Arc<str>), Vec<RecordSet>>,
}

impl Index {
    /// Nothing is known yet.
    pub(super) fn new(plans: Shelf) -> Self {
        Self {
            plans,
            queue: Queue::default(),
            listed: AtomicBool::new(false),
            state: Mutex::default(),
            news: watch::channel(0).0,
        }
    }

    /// Tells of changes; 0 stands for not knowing yet.
    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Is told what a watch saw.
    pub(super) fn tell(&self, change: Change) {
        match change {
            Change::Object(key) => self.queue.push(key),
            Change::Synced(keys) | Change::Compared(keys) => {
                self.queue.push_all(keys);
                self.listed.store(true, Ordering::Release);
            }
        }
    }

    /// Looks at plans as they come, for ever.
    pub(super) async fn run(&self) {
        let mut changed = false;
        loop {
            let key = self.queue.next().await;
            changed |= self.look(&key);
            let known = self.listed.load(Ordering::Acquire) && self.state.lock().scene.is_some();
            if known && self.queue.is_empty() && (changed || *self.news.borrow() == 0) {
                self.news.send_modify(|count| *count += 1);
                changed = false;
            }
            // Others have work too.
            tokio::task::yield_now().await;
        }
    }

    /// What a zone shall have.
    pub(super) fn wanted(&self, zone: &str, ttl_min_s: u32) -> Wanted {
        let state = self.state.lock();
        wanted(state.sets.values().flatten(), zone, ttl_min_s)
    }

    /// Looks at one plan; whether anything is different.
    fn look(&self, key: &Key) -> bool {
        let plan =
            self.plans.get(key).and_then(|seen| serde_json::from_value::<TrafficPlan>(seen.value()).ok());
        let mut state = self.state.lock();
        if &*key.namespace == SYSTEM_NAMESPACE && &*key.name == FEDERATION_PLAN {
            // What the federation was stays true until it is told otherwise.
            let Some(federation) = plan.and_then(|plan| plan.spec.federation) else { return false };
            return self.meet(&mut state, federation);
        }
        let Some(scene) = &state.scene else { return false };
        let sets = plan.map(|plan| record_sets(scene, &key.namespace, &plan)).unwrap_or_default();
        let at = (key.name.clone(), key.namespace.clone());
        let before =
            if sets.is_empty() { state.sets.remove(&at) } else { state.sets.insert(at.clone(), sets) };
        state.sets.get(&at) != before.as_ref()
    }

    /// Takes over what the federation is; everything is looked at again if names depend on what changed.
    fn meet(&self, state: &mut State, mut federation: PlanFederation) -> bool {
        // Edges come and go; a client of whom nothing is known is told nothing of them.
        federation.edges.clear();
        if state.scene.is_some() && state.federation == federation {
            return false;
        }
        state.scene = Some(Scene::new(&federation, None));
        state.federation = federation;
        self.queue.push_all(self.plans.keys());
        true
    }
}

fn record_sets(scene: &Scene, namespace: &str, plan: &TrafficPlan) -> Vec<RecordSet> {
    let resolved = Resolved::new();
    let answers = Answers::new(scene, &plan.spec, &resolved);
    let mut sets = of_service(scene, (namespace, &plan.spec.target_ref.name), &answers, Place::Unknown);
    if !plan.spec.hosts.is_empty() {
        sets.extend(of_hosts(scene, plan.spec.clone()));
    }
    sets
}

/// The record sets of a service's hosts: where its Ingresses are reached, if they have addresses of their own.
fn of_hosts(scene: &Scene, mut spec: TrafficPlanSpec) -> Vec<RecordSet> {
    for cluster in &mut spec.clusters {
        if !cluster.ingress_addresses.is_empty() {
            cluster.addresses = std::mem::take(&mut cluster.ingress_addresses);
        }
    }
    let resolved = Resolved::new();
    let answers = Answers::new(scene, &spec, &resolved);
    let mut sets = Vec::new();
    for host in &spec.hosts {
        let mut add = |data| sets.push(RecordSet { name: host.clone(), ttl_s: answers.ttl_s, data });
        match answer(scene, &answers, Place::Unknown, Scope::All, None, false) {
            Answer::Cname(to) => add(Data::Cname(to)),
            Answer::Addresses(all) => {
                let v4 = |ip: &IpAddr| if let IpAddr::V4(ip) = ip { Some(*ip) } else { None };
                let v6 = |ip: &IpAddr| if let IpAddr::V6(ip) = ip { Some(*ip) } else { None };
                add(Data::A(all.iter().filter_map(|(_, ip)| v4(ip)).collect()));
                add(Data::Aaaa(all.iter().filter_map(|(_, ip)| v6(ip)).collect()));
            }
        }
    }
    sets
}
