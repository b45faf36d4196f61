//! Placement: which clusters get a shard of a federated object, and which lose theirs.
//!
//! Whether a cluster answers plays no part: one that is offline keeps its place and is owed what it misses. What is
//! taken away is only what the federation made itself; what it adopted is let go, what it never touched is not seen.

mod selector;
mod taints;

use std::collections::BTreeMap;

use landfall_api::landfall::{Taint, TaintEffect};

use crate::reason::Reason;

pub use selector::{ANNOTATION as SELECTOR_ANNOTATION, NAME_LABEL, Selection, SelectionError, V1_ANNOTATION};
pub use taints::{
    ANNOTATION as TOLERATIONS_ANNOTATION, Comparison, Effect, Toleration, TolerationError, tolerations,
};

/// What a federated object asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Which clusters.
    pub selection: Selection,
    /// Which taints it tolerates.
    pub tolerations: Vec<Toleration>,
}

/// One cluster, and what it has of the object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// No new shards here.
    pub cordoned: bool,
    /// Replicas are moved away; shards stay until the cluster leaves.
    pub draining: bool,
    /// Its API is known not to serve the object's kind.
    pub unserved: bool,
    /// What it has.
    pub has: Has,
    /// The replicas of its shard, for kinds that have some.
    pub replicas: Option<u32>,
}

/// What a cluster has of the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Has {
    /// Nothing of ours: no object, or one that we never touched.
    #[default]
    Nothing,
    /// A shard that we made.
    Created,
    /// An object that was there before and that we adopted.
    Adopted,
}

/// What becomes of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There shall be one.
    Place,
    /// It stays, and is kept up to date.
    Keep,
    /// Its replicas leave first (plan them as draining, and tell their number as [`Member::replicas`]); until then it stays.
    Evict,
    /// It is deleted: we made it.
    Remove,
    /// It is let go: it was there before us.
    Release,
    /// None, and nothing to do.
    Skip,
}

impl Verdict {
    /// Whether the cluster has a part in the plan.
    pub fn takes_part(self) -> bool {
        match self {
            Self::Place | Self::Keep | Self::Evict => true,
            Self::Remove | Self::Release | Self::Skip => false,
        }
    }
}

/// What becomes of one cluster's shard, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The cluster's name.
    pub cluster: String,
    /// What becomes of the shard.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
}

/// Decides for every cluster, in the order they are given; the order plays no other part.
pub fn place(wish: &Wish, members: &[Member]) -> Vec<Decision> {
    // Whether anyone takes the object without being asked not to: only then can others be preferred.
    let willing = members
        .iter()
        .any(|member| judge(wish, member, false).0.takes_part() && avoided(wish, member).is_none());
    members
        .iter()
        .map(|member| {
            let (verdict, reason) = judge(wish, member, willing);
            Decision { cluster: member.name.clone(), verdict, reason }
        })
        .collect()
}

fn avoided<'a>(wish: &Wish, member: &'a Member) -> Option<&'a Taint> {
    taints::untolerated(&member.taints, &wish.tolerations, TaintEffect::PreferNoSchedule)
}

fn judge(wish: &Wish, member: &Member, others: bool) -> (Verdict, Reason) {
    let has = member.has != Has::Nothing;
    if let Some(unmet) = wish.selection.unmet(&member.name, &member.labels) {
        let verdict = leave(member);
        return (verdict, Reason::new("NotSelected", format!("not selected: {unmet}")));
    }
    if let Some(taint) = taints::untolerated(&member.taints, &wish.tolerations, TaintEffect::NoExecute) {
        let reason = Reason::new("Evicted", format!("the taint {} is not tolerated", show(taint)));
        let busy = has && member.replicas.is_some_and(|replicas| replicas > 0);
        return (if busy { Verdict::Evict } else { leave(member) }, reason);
    }
    if member.unserved {
        return (
            Verdict::Skip,
            Reason::new("NotServed", "its API does not serve this kind, or not to the hub"),
        );
    }
    if has {
        let reason = if member.draining {
            Reason::new("Draining", "kept while its replicas and its traffic move away")
        } else {
            Reason::new("Selected", if member.has == Has::Adopted { "selected, adopted" } else { "selected" })
        };
        return (Verdict::Keep, reason);
    }
    let taint = taints::untolerated(&member.taints, &wish.tolerations, TaintEffect::NoSchedule);
    match (member.draining, member.cordoned, taint, avoided(wish, member)) {
        (true, ..) => {
            (Verdict::Skip, Reason::new("Draining", "the cluster is drained: nothing new is placed"))
        }
        (_, true, ..) => {
            (Verdict::Skip, Reason::new("Cordoned", "the cluster is cordoned: nothing new is placed"))
        }
        (_, _, Some(taint), _) => {
            (Verdict::Skip, Reason::new("Tainted", format!("the taint {} is not tolerated", show(taint))))
        }
        (_, _, None, Some(taint)) if others => (
            Verdict::Skip,
            Reason::new("Avoided", format!("others are preferred by the taint {}", show(taint))),
        ),
        (_, _, None, _) => (Verdict::Place, Reason::new("Selected", "selected")),
    }
}

/// What becomes of a shard in a cluster that shall have none.
fn leave(member: &Member) -> Verdict {
    match member.has {
        Has::Nothing => Verdict::Skip,
        Has::Created => Verdict::Remove,
        Has::Adopted => Verdict::Release,
    }
}

fn show(taint: &Taint) -> String {
    let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
    format!("{}{value}:{:?}", taint.key, taint.effect)
}
