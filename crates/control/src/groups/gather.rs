//! What a look sees: groups, ranges, claims, Ingresses and edges, read and put in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use landfall_api::landfall::{
    ClusterSelection, GroupPlan, IngressClaim, IngressReplicaSet, IngressReplicaSetSpec, IngressVIPRange,
    Load,
};
use landfall_api::selector::Selector;
use landfall_plan::binding::{self, Ask, Bound, Measured, Want};
use landfall_plan::placement::NAME_LABEL;
use landfall_plan::{claims, vips};
use serde::de::DeserializeOwned;

use super::ingresses::{self, Asked};
use crate::federation::Federation;
use crate::kinds::{CLAIMS, GROUP_PLANS, GROUPS, KindId, RANGES};
use crate::shelf::Key;
use crate::traffic::Grouped;

/// A group counts as overloaded when so much of it is used, where it says nothing else.
const OVERLOAD_PERCENT: i32 = 95;

/// A group, and all that belongs to it.
pub(super) struct Group {
    /// It.
    pub object: IngressReplicaSet,
    /// The members it runs in.
    pub clusters: Vec<String>,
    /// What is wrong with what it says of them.
    pub problem: Option<String>,
    /// Its edges.
    pub edges: Vec<Grouped>,
    /// None of them is heard, and nobody answers at its addresses: it is lost, whoever has not lapsed yet.
    pub lost: bool,
    /// Edges of it that may hold addresses, wherever they are.
    pub followers: Vec<vips::Follower>,
    /// It is being deleted, and waits until its addresses are free: nobody runs it, and nothing is bound to it.
    pub deleting: bool,
    /// What they carry together.
    pub load: (Load, Measured),
    /// Ingresses bound to it.
    pub bound: i32,
    /// Its plan.
    pub plan: Option<GroupPlan>,
}

/// Everything.
pub(super) struct Scene {
    /// The groups, by name.
    pub groups: BTreeMap<String, Group>,
    /// All edges of groups, also of those that are gone, and edges that are gone for good.
    pub pods: Vec<Grouped>,
    /// The ranges as they are.
    pub range_objects: BTreeMap<String, IngressVIPRange>,
    /// The ranges, read.
    pub ranges: Vec<vips::Range>,
    /// The claims.
    pub claim_objects: Vec<(Key, IngressClaim)>,
    /// The Ingresses.
    pub ingresses: Vec<(Key, Asked)>,
}

/// Looks at everything.
pub(super) fn scene(federation: &Arc<Federation>) -> Scene {
    let members = members(federation);
    let mut edges: BTreeMap<String, Vec<Grouped>> = BTreeMap::new();
    let pods = federation.traffic.edges.grouped();
    for edge in pods.iter().filter(|edge| !edge.retired).cloned() {
        edges.entry(edge.spec.ingress_replica_set.clone().unwrap_or_default()).or_default().push(edge);
    }
    let mut plans: BTreeMap<String, GroupPlan> =
        all(federation, GROUP_PLANS).map(|(key, plan)| (key.name.to_string(), plan)).collect();
    let mut groups = BTreeMap::new();
    for (key, object) in all::<IngressReplicaSet>(federation, GROUPS) {
        let deleting = object.metadata.deletion_timestamp.is_some();
        let (clusters, problem) = match deleting {
            true => (Vec::new(), None),
            false => select(object.spec.clusters.as_ref(), &members),
        };
        let mut own = edges.remove(&*key.name).unwrap_or_default();
        let followers = own.iter().filter_map(follower).collect();
        own.retain(|edge| clusters.contains(&edge.spec.cluster));
        let alive: Vec<_> = own.iter().filter(|edge| edge.alive).map(|edge| &edge.status).collect();
        let load = binding::measure(&object.spec, &alive);
        let (plan, lost) = (plans.remove(&*key.name), federation.traffic.edges.lost(&key.name));
        groups.insert(
            key.name.to_string(),
            Group { object, clusters, problem, edges: own, lost, followers, deleting, load, bound: 0, plan },
        );
    }
    let range_objects: BTreeMap<String, IngressVIPRange> =
        all(federation, RANGES).map(|(key, range)| (key.name.to_string(), range)).collect();
    let range = |(name, range): (&String, &IngressVIPRange)| {
        let chosen =
            range.spec.clusters.as_ref().map(|chosen| select(Some(chosen), &members).0.into_iter().collect());
        vips::Range::new(name, &range.spec, chosen)
    };
    Scene {
        ranges: range_objects.iter().map(range).collect(),
        range_objects,
        pods,
        groups,
        claim_objects: all(federation, CLAIMS).collect(),
        ingresses: ingresses::all(federation),
    }
}

/// An edge as one that may hold addresses, if it is.
fn follower(edge: &Grouped) -> Option<vips::Follower> {
    let vips = edge.status.vips.iter().filter_map(|vip| vip.address.parse().ok()).collect();
    Some(vips::Follower { revision: edge.status.group_revision?, vips })
}

/// All members with their labels.
fn members(federation: &Federation) -> BTreeMap<String, BTreeMap<String, String>> {
    let all = federation.clusters.keys();
    let one = |key: &Key| {
        let cluster = federation.cluster(&key.name)?;
        Some((key.name.to_string(), cluster.metadata.labels.unwrap_or_default()))
    };
    all.iter().filter_map(one).collect()
}

/// The members that are selected, in order, and what of the selection cannot be read. Whoever names none means all.
fn select(
    selection: Option<&ClusterSelection>,
    members: &BTreeMap<String, BTreeMap<String, String>>,
) -> (Vec<String>, Option<String>) {
    let Some(selection) = selection else { return (members.keys().cloned().collect(), None) };
    let selector = selection.selector.as_ref().and_then(|selector| serde_json::to_value(selector).ok());
    let (selector, problem) = match selector.map(|selector| Selector::from_object(Some(&selector))) {
        None => (None, None),
        Some(Ok(selector)) => (Some(selector), None),
        Some(Err(why)) => return (Vec::new(), Some(format!("clusters.selector: {why}"))),
    };
    let chosen = members.iter().filter(|(name, labels)| {
        let label = |key: &str| match (labels.get(key), key) {
            (Some(value), _) => Some(value.as_str()),
            (None, NAME_LABEL) => Some(name.as_str()),
            (None, _) => None,
        };
        let named = selection.names.is_empty() || selection.names.contains(*name);
        named && selector.as_ref().is_none_or(|selector| selector.matches_with(label))
    });
    (chosen.map(|(name, _)| name.clone()).collect(), problem)
}

fn all<T: DeserializeOwned>(federation: &Federation, kind: KindId) -> impl Iterator<Item = (Key, T)> {
    let shelf = federation.groups.shelf(kind);
    let mut keys = shelf.keys();
    keys.sort();
    keys.into_iter().filter_map(|key| {
        let object = serde_json::from_value(shelf.get(&key)?.value()).ok()?;
        Some((key, object))
    })
}

/// When an object was made, so that texts can be compared.
pub(super) fn created(metadata: &ObjectMeta) -> String {
    metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default()
}

/// An annotation of an object.
pub(super) fn note<'a>(metadata: &'a ObjectMeta, name: &str) -> &'a str {
    metadata.annotations.as_ref().and_then(|notes| notes.get(name)).map_or("", String::as_str)
}

/// A label of an object.
pub(super) fn label<'a>(metadata: &'a ObjectMeta, name: &str) -> &'a str {
    metadata.labels.as_ref().and_then(|labels| labels.get(name)).map_or("", String::as_str)
}

impl Group {
    /// The uid of the claim that it was made for; empty where it was not.
    pub(super) fn claim_uid(&self) -> &str {
        note(&self.object.metadata, claims::CLAIM_UID_ANNOTATION)
    }

    /// Whether it stays until its addresses are free, whatever happens.
    pub(super) fn guarded(&self) -> bool {
        self.object.metadata.finalizers.iter().flatten().any(|one| one == vips::FINALIZER)
    }

    /// What its edges were told last.
    fn told(&self) -> vips::Told {
        let Some(plan) = &self.plan else { return vips::Told::default() };
        let all = plan.spec.members.iter().flat_map(|member| &member.vips);
        vips::Told { revision: plan.spec.revision, vips: all.filter_map(|vip| vip.parse().ok()).collect() }
    }

    /// How many of its edges are alive.
    pub(super) fn ready(&self) -> usize {
        self.edges.iter().filter(|edge| edge.alive && !self.lost).count()
    }
}

impl Scene {
    /// Whether there is nothing that anybody could be bound to, or ask for.
    pub(super) fn is_empty(&self) -> bool {
        let asked = |(_, asked): &(Key, Asked)| !matches!(asked.ask, Ask::Nothing) || !asked.bound.is_empty();
        self.groups.is_empty()
            && self.pods.is_empty()
            && self.range_objects.is_empty()
            && self.claim_objects.is_empty()
            && !self.ingresses.iter().any(asked)
    }

    /// The groups, as addresses are given to them.
    pub(super) fn wanting(&self) -> Vec<vips::Group> {
        let one = |(name, group): (&String, &Group)| {
            let IngressReplicaSetSpec { vip, vips, vip_range, ip_families, .. } = &group.object.spec;
            let asked = vip.iter().map(|vip| (None, vip.clone()));
            let each = vips.iter().map(|vip| (Some(vip.cluster.clone()), vip.address.clone()));
            let status = group.object.status.as_ref();
            vips::Group {
                name: name.clone(),
                created: created(&group.object.metadata),
                clusters: group.clusters.clone(),
                wanted: asked.chain(each).collect(),
                range: vip_range.clone(),
                families: ip_families.clone(),
                held: status.map(|status| status.vips.clone()).unwrap_or_default(),
                releasing: status.map(|status| status.releasing.clone()).unwrap_or_default(),
                told: group.told(),
                followers: group.followers.clone(),
            }
        };
        self.groups.iter().map(one).collect()
    }

    /// The claims, as they are decided about.
    pub(super) fn claims(&self) -> Vec<claims::Claim> {
        let one = |(key, claim): &(Key, IngressClaim)| {
            let status = claim.status.clone().unwrap_or_default();
            let finalizers = claim.metadata.finalizers.iter().flatten();
            claims::Claim {
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
                uid: claim.metadata.uid.clone().unwrap_or_default(),
                created: created(&claim.metadata),
                deleting: claim.metadata.deletion_timestamp.is_some(),
                finalizer: finalizers.into_iter().any(|one| one == claims::FINALIZER),
                spec: claim.spec.clone(),
                phase: status.phase.unwrap_or_default(),
                served: status.ingresses,
            }
        };
        self.claim_objects.iter().map(one).collect()
    }

    /// The groups that were made for claims.
    pub(super) fn claimed_groups(&self, made: &BTreeMap<String, vips::Allocation>) -> Vec<claims::Group> {
        let one = |(name, group): (&String, &Group)| {
            let own = made.get(name).cloned().unwrap_or_default();
            claims::Group {
                name: name.clone(),
                claim: group.claim_uid().to_owned(),
                released: label(&group.object.metadata, claims::RELEASED_LABEL).to_owned(),
                deleting: group.deleting,
                spec: group.object.spec.clone(),
                vips: own.vips.into_iter().map(|vip| vip.address).collect(),
                troubles: own.troubles,
            }
        };
        self.groups.iter().map(one).collect()
    }

    /// The Ingresses, as claims see them.
    pub(super) fn claim_ingresses(&self) -> Vec<claims::Ingress> {
        if self.claim_objects.is_empty() {
            return Vec::new();
        }
        let one = |(key, asked): &(Key, Asked)| claims::Ingress {
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            labels: asked.labels.clone(),
        };
        self.ingresses.iter().map(one).collect()
    }

    /// The groups, as Ingresses are bound to them.
    pub(super) fn bindable(&self) -> Vec<binding::Group> {
        let one = |(name, group): (&String, &Group)| {
            let spec = &group.object.spec;
            let capacity = spec.capacity.as_ref().and_then(|capacity| capacity.ingresses);
            binding::Group {
                name: name.clone(),
                labels: group.object.metadata.labels.clone().unwrap_or_default(),
                capacity: capacity.map(|most| u32::try_from(most).unwrap_or(0)),
                load: group.load.1,
                overload: f64::from(spec.overload_percent.unwrap_or(OVERLOAD_PERCENT)) / 100.0,
                ready: group.ready() > 0,
                claimed: !group.claim_uid().is_empty(),
            }
        };
        self.groups.iter().filter(|(_, group)| !group.deleting).map(one).collect()
    }

    /// The Ingresses, as they ask to be bound.
    pub(super) fn wants(&self, served: &BTreeMap<String, String>) -> Vec<Want> {
        let one = |(key, asked): &(Key, Asked)| {
            let path = key.path();
            let ask = served.get(&path).map_or_else(|| asked.ask.clone(), |group| Ask::Claim(group.clone()));
            Want { key: path, created: asked.created.clone(), ask, bound: asked.bound.clone() }
        };
        self.ingresses.iter().map(one).collect()
    }

    /// Takes over how many are bound to each group.
    pub(super) fn count(&mut self, bound: &[Bound]) {
        for name in bound.iter().flat_map(|one| &one.groups) {
            if let Some(group) = self.groups.get_mut(name) {
                group.bound = group.bound.saturating_add(1);
            }
        }
    }
}
