//! Claims: groups of edges on demand. What is made, taken and disposed of for an `IngressClaim`, one step at a time.
//!
//! ```text
//!   Pending ──group made or taken, has its address──► Bound ──last ingress gone──► Released
//!      ▲  └──cannot be fulfilled as it is──► Failed                                    │
//!      └──────────────────────── an ingress of it is there again ──────────────────────┘
//! ```
//!
//! A group of a claim is named by the claim's uid and says whose it is from the first moment, so a hub that dies half-way
//! leaves nothing that the next one would not find. A claim that has, or may have, a group bears a finalizer; it goes after the
//! group was disposed of by the claim's policy: retained for an administrator, recycled for the next claim, or deleted.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use landfall_api::landfall::{ClaimPhase, IngressClaimSpec, IngressReplicaSetSpec, ReclaimPolicy};
use landfall_api::selector::Selector;

use crate::Reason;

/// The finalizer of claims that may have a group.
pub const FINALIZER: &str = "landfall.dev/ingress-claim";
/// The annotation of a group that was made for a claim: `namespace/name`.
pub const CLAIM_ANNOTATION: &str = "landfall.dev/claim";
/// The annotation with that claim's uid.
pub const CLAIM_UID_ANNOTATION: &str = "landfall.dev/claim-uid";
/// The label of groups that were made for claims and serve none now: `Retained` or `Recycled`.
pub const RELEASED_LABEL: &str = "landfall.dev/released";

/// So many edges in each member a claim may ask for; more is for those who may make groups themselves.
const CLAIM_REPLICAS_MAX: i32 = 4;

/// A claim.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// When it was made, so that they can be ordered.
    pub created: String,
    /// It is being deleted.
    pub deleting: bool,
    /// It bears our finalizer.
    pub finalizer: bool,
    /// What is claimed.
    pub spec: IngressClaimSpec,
    /// How far it was.
    pub phase: ClaimPhase,
    /// The ingresses it served.
    pub served: Vec<String>,
}

/// A group that was made for a claim.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The uid of the claim it serves or served last.
    pub claim: String,
    /// What has become of it since then; empty while it serves.
    pub released: String,
    /// It is being deleted.
    pub deleting: bool,
    /// What it is.
    pub spec: IngressReplicaSetSpec,
    /// Its addresses.
    pub vips: Vec<String>,
    /// Why it has no address.
    pub troubles: Vec<Reason>,
}

/// An Ingress, as claims see it.
#[derive(Clone, Debug, Default)]
pub struct Ingress {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// What is done for a claim: one thing at a time; the next look sees it and goes on.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing.
    Nothing,
    /// The claim gets the finalizer, before anything is made for it.
    AddFinalizer,
    /// A group is made.
    Make {
        /// Its name.
        group: String,
    },
    /// A recycled group becomes the claim's.
    Take {
        /// Which one.
        group: String,
    },
    /// The claim's retained group serves again.
    Resume {
        /// Which one.
        group: String,
    },
    /// The group serves no longer.
    Release {
        /// Which one.
        group: String,
        /// What becomes of it.
        policy: ReclaimPolicy,
    },
    /// The claim may go.
    RemoveFinalizer,
}

/// What becomes of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What is done now.
    pub step: Step,
    /// How far it is.
    pub phase: ClaimPhase,
    /// Its group.
    pub group: Option<String>,
    /// Its address; the first where there are several.
    pub vip: Option<String>,
    /// The names of the ingresses that it serves.
    pub serves: Vec<String>,
    /// Whether it has what it needs, and why not: the condition `Provisioned`.
    pub provisioned: (bool, Reason),
    /// Whether all its ingresses are its own, and why not: the condition `IngressesBound`.
    pub own: (bool, Reason),
}

/// The name of the first group that is made for a claim.
pub fn group_name(uid: &str) -> String {
    format!("claim-{uid}")
}

/// The name of the group that is made now: the claim's first one may have been recycled, and be another's. Names are tried in order,
/// so that two hubs, or one that has not seen yet what it made, make one group and not two.
fn free_name(uid: &str, groups: &[Group]) -> String {
    let first = group_name(uid);
    let later = (2..).map(|nth: usize| format!("{first}-{nth}"));
    let mut names = std::iter::once(first.clone()).chain(later).take(groups.len() + 1);
    let is_free = |name: &String| groups.iter().all(|group| group.name != *name);
    names.find(is_free).expect("one more name than there are groups")
}

/// What a claim asks for that only those may who make groups themselves, in words.
pub fn beyond(spec: &IngressReplicaSetSpec) -> Option<&'static str> {
    let table = [
        (!spec.node_selector.is_empty(), "its group chooses nodes (nodeSelector)"),
        (!spec.tolerations.is_empty(), "its group runs on nodes that keep others off (tolerations)"),
        (spec.vip.is_some() || !spec.vips.is_empty(), "its group asks for a certain address (vip, vips)"),
        (spec.vip_range.is_some(), "its group chooses a range of addresses (vipRange)"),
        (spec.interface.is_some(), "its group chooses a network interface (interface)"),
        (spec.resources.is_some(), "its group says what its pods may use (resources)"),
        (spec.replicas.is_some_and(|most| most > CLAIM_REPLICAS_MAX), "its group has more than 4 replicas"),
    ];
    table.into_iter().find(|(asked, _)| *asked).map(|(_, words)| words)
}

/// Decides about all claims, in their order; also which Ingress, as `namespace/name`, belongs to which claim's group. Whoever serves an
/// Ingress keeps it for as long as it means it; else the oldest claim has it.
pub fn decide(
    claims: &[Claim],
    groups: &[Group],
    ingresses: &[Ingress],
) -> (Vec<Outcome>, BTreeMap<String, String>) {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_by_key(|at| claims.get(*at).map(|claim| (&claim.created, &claim.namespace, &claim.name)));
    let mut by_namespace: BTreeMap<&str, Vec<&Ingress>> = BTreeMap::new();
    for ingress in ingresses {
        by_namespace.entry(&ingress.namespace).or_default().push(ingress);
    }
    let mut owners: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let meant: Vec<Meant<'_>> = claims.iter().map(|claim| Meant::of(claim, &by_namespace)).collect();
    for at in &order {
        let Some((claim, meant)) = claims.get(*at).zip(meant.get(*at)) else { continue };
        for ingress in meant.ingresses.iter().filter(|ingress| claim.served.contains(&ingress.name)) {
            owners.entry((&ingress.namespace, &ingress.name)).or_insert(&claim.name);
        }
    }
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    let mut bound = BTreeMap::new();
    let mut made: Vec<Option<Outcome>> = vec![None; claims.len()];
    for at in order {
        let Some((claim, meant)) = claims.get(at).zip(meant.get(at)) else { continue };
        let found = find(claim, meant, &mut owners);
        let outcome = one(claim, &found, groups, &mut taken);
        if let (Some(group), ClaimPhase::Bound | ClaimPhase::Pending) = (&outcome.group, outcome.phase) {
            for name in &found.serves {
                bound.insert(format!("{}/{name}", claim.namespace), group.clone());
            }
        }
        made[at] = Some(outcome);
    }
    (made.into_iter().flatten().collect(), bound)
}

/// The ingresses of a claim.
#[derive(Debug, Default)]
struct Found {
    serves: Vec<String>,
    /// Those that another claim has.
    taken: Vec<String>,
    /// Those that are named and not there.
    missing: Vec<String>,
    problem: Option<String>,
}

/// The ingresses that a claim means, whoever has them.
#[derive(Debug, Default)]
struct Meant<'a> {
    ingresses: Vec<&'a Ingress>,
    /// Those that are named and not there.
    missing: Vec<String>,
    problem: Option<String>,
}

impl<'a> Meant<'a> {
    fn of(claim: &Claim, by_namespace: &BTreeMap<&str, Vec<&'a Ingress>>) -> Self {
        let mut meant = Self::default();
        if claim.deleting {
            return meant;
        }
        let spec = &claim.spec;
        let near = by_namespace.get(claim.namespace.as_str()).map(Vec::as_slice).unwrap_or_default();
        let selector = match &spec.ingress_selector {
            None => None,
            Some(selector) => match Selector::from_object(serde_json::to_value(selector).ok().as_ref()) {
                Ok(selector) => Some(selector),
                Err(why) => {
                    meant.problem = Some(format!("ingressSelector: {why}"));
                    None
                }
            },
        };
        let named: BTreeSet<&str> = spec.ingresses.iter().map(|one| one.name.as_str()).collect();
        let means = |ingress: &&&Ingress| {
            let label = |key: &str| ingress.labels.get(key).map(String::as_str);
            named.contains(ingress.name.as_str())
                || selector.as_ref().is_some_and(|one| one.matches_with(label))
        };
        meant.ingresses = near.iter().filter(means).copied().collect();
        let there = |name: &&&str| near.iter().any(|ingress| ingress.name == ***name);
        meant.missing = named.iter().filter(|name| !there(name)).map(|name| (*name).to_owned()).collect();
        meant
    }
}

fn find<'a>(
    claim: &'a Claim,
    meant: &Meant<'a>,
    owners: &mut BTreeMap<(&'a str, &'a str), &'a str>,
) -> Found {
    let (missing, problem) = (meant.missing.clone(), meant.problem.clone());
    let mut found = Found { missing, problem, ..Found::default() };
    for ingress in &meant.ingresses {
        let owner = owners.entry((&ingress.namespace, &ingress.name)).or_insert(&claim.name);
        match *owner == claim.name {
            true => found.serves.push(ingress.name.clone()),
            false => found.taken.push(format!("{} ({owner})", ingress.name)),
        }
    }
    found.serves.sort_unstable();
    found
}

fn one<'a>(claim: &Claim, found: &Found, groups: &'a [Group], taken: &mut BTreeSet<&'a str>) -> Outcome {
    let own = groups.iter().find(|group| group.claim == claim.uid && group.released != "Recycled");
    let state = Step::Nothing;
    let mut outcome = Outcome {
        step: state,
        phase: claim.phase,
        group: own.map(|group| group.name.clone()),
        vip: own.and_then(|group| group.vips.first().cloned()),
        serves: found.serves.clone(),
        provisioned: (false, Reason::new("Pending", "no group is there yet")),
        own: ownership(claim, found),
    };
    if claim.deleting {
        leave(claim, own, &mut outcome);
    } else if !claim.finalizer {
        outcome.step = Step::AddFinalizer;
        outcome.phase = ClaimPhase::Pending;
    } else if let Some(problem) = &found.problem {
        outcome.phase = ClaimPhase::Failed;
        outcome.provisioned = (false, Reason::new("Invalid", problem.clone()));
    } else if over(claim, found) {
        release(claim, own, &mut outcome);
    } else {
        provide(claim, own, groups, taken, &mut outcome);
    }
    outcome
}

/// Whether a claim has served ingresses and has none any more.
fn over(claim: &Claim, found: &Found) -> bool {
    found.serves.is_empty() && (!claim.served.is_empty() || claim.phase == ClaimPhase::Released)
}

/// The claim is being deleted.
fn leave(claim: &Claim, own: Option<&Group>, outcome: &mut Outcome) {
    outcome.phase = ClaimPhase::Released;
    outcome.provisioned = (false, Reason::new("Released", "the claim is being deleted"));
    outcome.step = match own.filter(|group| !group.deleting) {
        Some(group) if group.released.is_empty() => {
            Step::Release { group: group.name.clone(), policy: claim.spec.reclaim_policy }
        }
        // A group that is retained stays; one that is on its way need not be waited for.
        Some(_) | None if claim.finalizer => Step::RemoveFinalizer,
        Some(_) | None => Step::Nothing,
    };
}

/// The last ingress is gone.
fn release(claim: &Claim, own: Option<&Group>, outcome: &mut Outcome) {
    outcome.phase = ClaimPhase::Released;
    let words = match claim.spec.reclaim_policy {
        ReclaimPolicy::Retain => "its ingresses are gone; the group is retained",
        ReclaimPolicy::Recycle => "its ingresses are gone; the group waits for the next claim",
        ReclaimPolicy::Delete => "its ingresses are gone; the group is deleted",
    };
    outcome.provisioned = (false, Reason::new("Released", words));
    if let Some(group) = own.filter(|group| !group.deleting && group.released.is_empty()) {
        outcome.step = Step::Release { group: group.name.clone(), policy: claim.spec.reclaim_policy };
    }
    if claim.spec.reclaim_policy != ReclaimPolicy::Retain {
        (outcome.group, outcome.vip) = (None, None);
    }
}

/// The claim needs a group.
fn provide<'a>(
    claim: &Claim,
    own: Option<&Group>,
    groups: &'a [Group],
    taken: &mut BTreeSet<&'a str>,
    outcome: &mut Outcome,
) {
    outcome.phase = ClaimPhase::Pending;
    let Some(group) = own.filter(|group| !group.deleting) else {
        let free = groups.iter().find(|group| {
            let free =
                group.released == "Recycled" && !group.deleting && !taken.contains(group.name.as_str());
            free && fits(&claim.spec.ingress_replica_set_spec, group)
        });
        outcome.step = match (free, own) {
            (Some(group), None) => {
                taken.insert(&group.name);
                Step::Take { group: group.name.clone() }
            }
            // The name is free again when it is gone.
            (_, Some(old)) => {
                let sentence = format!("the group {} is being deleted, and has not gone yet", old.name);
                outcome.provisioned = (false, Reason::new("GroupDeleting", sentence));
                Step::Nothing
            }
            (None, None) => Step::Make { group: free_name(&claim.uid, groups) },
        };
        (outcome.group, outcome.vip) = (None, None);
        return;
    };
    if !group.released.is_empty() {
        outcome.step = Step::Resume { group: group.name.clone() };
        return;
    }
    if group.vips.is_empty() {
        let wrong = group.troubles.first().cloned();
        // What no range will ever have is no matter of waiting.
        let hopeless = wrong.as_ref().is_some_and(|reason| ["InvalidVIP"].contains(&reason.code));
        if hopeless {
            outcome.phase = ClaimPhase::Failed;
        }
        let waiting = || Reason::new("NoAddress", format!("the group {} has no address yet", group.name));
        outcome.provisioned = (false, wrong.unwrap_or_else(waiting));
        return;
    }
    outcome.phase = ClaimPhase::Bound;
    outcome.provisioned =
        (true, Reason::new("Provisioned", format!("the group {} has {}", group.name, group.vips.join(", "))));
}

/// Whether a recycled group is what a claim asks for.
fn fits(asked: &IngressReplicaSetSpec, group: &Group) -> bool {
    let wanted = [asked.vip.as_ref()].into_iter().flatten().chain(asked.vips.iter().map(|vip| &vip.address));
    let mut wanted = wanted.peekable();
    let addresses = wanted.peek().is_none() || wanted.all(|address| group.vips.contains(address));
    let plain =
        |spec: &IngressReplicaSetSpec| IngressReplicaSetSpec { vip: None, vips: Vec::new(), ..spec.clone() };
    addresses && plain(asked) == plain(&group.spec)
}

/// Whether the ingresses of a claim are its own.
fn ownership(claim: &Claim, found: &Found) -> (bool, Reason) {
    let namespace = &claim.namespace;
    if !found.taken.is_empty() {
        let sentence = format!("other claims in {namespace} have {}", found.taken.join(", "));
        return (false, Reason::new("ClaimedElsewhere", sentence));
    }
    if !found.missing.is_empty() {
        return (false, Reason::new("IngressNotFound", format!("not there: {}", found.missing.join(", "))));
    }
    if found.serves.is_empty() {
        return (false, Reason::new("NoIngress", "no ingress is there yet"));
    }
    (true, Reason::new("AllBound", format!("it serves {}", found.serves.join(", "))))
}
