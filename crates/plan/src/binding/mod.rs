//! Binding: which groups of edges carry which Ingress, and why.
//!
//! ```text
//!   Ingress (annotations, claim) ─► ask ─┐
//!   groups: labels, capacity ────────────┼─► bind ─► bound to …, because …
//!   edges' reports ─► load ──────────────┘
//! ```
//!
//! An Ingress that is bound stays where it is, as a pod stays on its node: until its group is gone, does not match any
//! more, has no edge left while another one has, or carries more than it can. Who is moved because of load is moved a few at a
//! time (`budget`), and only to where there is clearly more room.
//!
//! A group is left out (*filter*) when its labels do not match, it is full, overloaded, has no edge that is ready, or belongs to a claim; the
//! best of the others (*score*) has the fewest Ingresses for its size and the least load, half and half; of equal ones
//! the one with fewer Ingresses, then the first by name.

mod ask;
mod load;
mod score;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use ask::{Ask, GROUPS_MAX, asks};
pub use load::{Measured, measure};

use crate::Reason;
use score::Field;

/// A group that Ingresses can be bound to.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// So many Ingresses at most.
    pub capacity: Option<u32>,
    /// How much of what it can carry is used, 1.0 when all is; and of what.
    pub load: Measured,
    /// Ingresses are moved away when so much is used.
    pub overload: f64,
    /// It has edges that are ready.
    pub ready: bool,
    /// Only Ingresses of claims are bound to it.
    pub claimed: bool,
}

/// An Ingress that asks to be bound.
#[derive(Clone, Debug, Default)]
pub struct Want {
    /// Which one.
    pub key: String,
    /// When it was made, so that they can be ordered.
    pub created: String,
    /// What it asks for.
    pub ask: Ask,
    /// What it is bound to.
    pub bound: Vec<String>,
}

/// What becomes of one Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What it is bound to from now on, ordered by name.
    pub groups: Vec<String>,
    /// Why, where that is different from before, or where it is bound to less than it asks for.
    pub reason: Option<Reason>,
    /// It was bound elsewhere before, and is moved because of load.
    pub relieved: bool,
}

/// Binds Ingresses to groups; `budget` of them may be moved because of load. The answers are in the order of `wants`.
pub fn bind(groups: &[Group], wants: &[Want], budget: usize) -> Vec<Bound> {
    let mut field = Field::new(groups);
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by(|a, b| {
        let key = |at: &usize| wants.get(*at).map(|want| (&want.created, &want.key));
        key(a).cmp(&key(b))
    });
    let mut made: Vec<Option<Bound>> = vec![None; wants.len()];
    // First everybody who stays, so that those who come see how full it is.
    let mut open: Vec<(usize, Vec<usize>, Option<Lost>)> = Vec::new();
    for at in order {
        let Some(want) = wants.get(at) else { continue };
        let (kept, lost) = keep(&mut field, want);
        let wrong = matches!(want.ask, Ask::Wrong(_));
        if lost.is_none() && !wrong && kept.len() >= field.wanted(&want.ask) {
            made[at] = Some(Bound { groups: field.names(&kept), reason: None, relieved: false });
        } else {
            open.push((at, kept, lost));
        }
    }
    for (at, kept, lost) in open {
        if let (Some(want), Some(place)) = (wants.get(at), made.get_mut(at)) {
            *place = Some(choose(&mut field, want, kept, lost));
        }
    }
    relieve(&mut field, wants, &mut made, budget);
    let nothing = || Bound { groups: Vec::new(), reason: None, relieved: false };
    made.into_iter().map(|one| one.unwrap_or_else(nothing)).collect()
}

/// Why an Ingress does not stay where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Lost {
    Gone(String),
    Unasked(String),
    Silent(String),
}

impl Lost {
    fn words(&self) -> String {
        match self {
            Self::Gone(group) => format!("the group {group} is gone"),
            Self::Unasked(group) => format!("it asks for the group {group} no longer"),
            Self::Silent(group) => format!("no edge of {group} is ready"),
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Gone(_) => "GroupGone",
            Self::Unasked(_) => "AskedOtherwise",
            Self::Silent(_) => "GroupSilent",
        }
    }
}

/// What an Ingress keeps of what it is bound to, and what it lost.
fn keep(field: &mut Field<'_>, want: &Want) -> (Vec<usize>, Option<Lost>) {
    let (mut kept, mut lost) = (Vec::new(), None);
    let asked: BTreeSet<usize> = field.asked(&want.ask).into_iter().collect();
    let most = field.wanted(&want.ask);
    for name in &want.bound {
        let Some(at) = field.find(name) else {
            lost = lost.or_else(|| Some(Lost::Gone(name.clone())));
            continue;
        };
        let elsewhere = || {
            asked
                .iter()
                .any(|other| *other != at && !want.bound.contains(field.name(*other)) && field.open(*other))
        };
        let barred = field.group(at).claimed && !matches!(want.ask, Ask::Claim(_));
        if !asked.contains(&at) || barred || kept.len() >= most {
            lost = lost.or_else(|| Some(Lost::Unasked(name.clone())));
        } else if matches!(want.ask, Ask::Selector { .. }) && !field.group(at).ready && elsewhere() {
            lost = lost.or_else(|| Some(Lost::Silent(name.clone())));
        } else if !kept.contains(&at) {
            kept.push(at);
        }
    }
    kept.iter().for_each(|at| field.add(*at));
    (kept, lost)
}

/// Finds groups for an Ingress that has fewer than it asks for.
fn choose(field: &mut Field<'_>, want: &Want, mut kept: Vec<usize>, lost: Option<Lost>) -> Bound {
    let asked = field.asked(&want.ask);
    let most = field.wanted(&want.ask);
    let found = field.best(&want.ask, &asked, &kept, most.saturating_sub(kept.len()));
    found.iter().for_each(|at| field.add(*at));
    let before = kept.clone();
    kept.extend(found.iter().copied());
    let why = match (&want.ask, kept.is_empty(), found.is_empty()) {
        (Ask::Nothing, ..) => Some(Reason::new("NotAsked", "it asks for no group")),
        (_, true, _) => Some(field.nowhere(&want.ask, &asked)),
        (_, false, true) if kept.len() < most => Some(field.partly(&want.ask, &asked, &kept, most)),
        (_, false, true) => None,
        (_, false, false) => Some(field.why(&want.ask, &asked, &found, &before)),
    };
    let reason = match (why, lost) {
        (Some(why), Some(lost)) if !kept.is_empty() => {
            Some(Reason::new(lost.code(), format!("{}; {}", lost.words(), why.message)))
        }
        (None, Some(lost)) => Some(Reason::new(lost.code(), lost.words())),
        (why, _) => why,
    };
    Bound { groups: field.names(&kept), reason, relieved: false }
}

/// Moves some Ingresses away from groups that carry more than they can.
fn relieve(field: &mut Field<'_>, wants: &[Want], made: &mut [Option<Bound>], budget: usize) {
    if budget == 0 || !field.any_overloaded() {
        return;
    }
    let mut left = budget;
    // The youngest are the last who came, and the first who go.
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by(|a, b| {
        let key = |at: &usize| wants.get(*at).map(|want| (&want.created, &want.key));
        key(b).cmp(&key(a))
    });
    for at in order {
        if left == 0 {
            return;
        }
        let (Some(want), Some(Some(bound))) = (wants.get(at), made.get_mut(at)) else { continue };
        if !matches!(want.ask, Ask::Selector { .. }) || bound.reason.is_some() {
            continue;
        }
        let own: Vec<usize> = bound.groups.iter().filter_map(|name| field.find(name)).collect();
        let Some(from) = own.iter().copied().find(|one| field.overloaded(*one)) else { continue };
        let asked = field.asked(&want.ask);
        let Some(to) = field.relief(&asked, &own) else { continue };
        let message = format!("{}; {}", field.loaded(from), field.loaded(to));
        field.remove(from);
        field.add(to);
        let now: Vec<usize> = own.iter().map(|one| if *one == from { to } else { *one }).collect();
        *bound = Bound {
            groups: field.names(&now),
            reason: Some(Reason::new("GroupOverloaded", message)),
            relieved: true,
        };
        left -= 1;
    }
}
