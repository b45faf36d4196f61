//! The groups while Ingresses are bound to them: who is asked for, who has room, who is best.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::rc::Rc;

use super::{Ask, Group};
use crate::Reason;

/// A group without a limit counts as half full when so many Ingresses are bound to it.
const HALF_FULL: f64 = 100.0;
/// An Ingress that is moved because of load goes where at most so much of what counts as overload is used.
const RELIEF: f64 = 0.8;
/// So many groups are told of in one sentence.
const TOLD_MAX: usize = 4;

/// All groups, and how many Ingresses each has.
pub(super) struct Field<'a> {
    groups: &'a [Group],
    by_name: HashMap<&'a str, usize>,
    count: Vec<u32>,
    /// Which groups a selector means, by its text: many Ingresses have the same.
    meant: RefCell<HashMap<String, Rc<Vec<usize>>>>,
}

/// Why a group cannot take one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Bar {
    Claimed,
    Silent,
    Full,
    Overloaded,
}

impl<'a> Field<'a> {
    pub(super) fn new(groups: &'a [Group]) -> Self {
        let by_name = groups.iter().zip(0..).map(|(group, at)| (group.name.as_str(), at)).collect();
        Self { groups, by_name, count: vec![0; groups.len()], meant: RefCell::default() }
    }

    pub(super) fn group(&self, at: usize) -> &'a Group {
        &self.groups[at]
    }

    pub(super) fn name(&self, at: usize) -> &'a String {
        &self.groups[at].name
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub(super) fn names(&self, all: &[usize]) -> Vec<String> {
        let mut names: Vec<String> = all.iter().map(|at| self.name(*at).clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    pub(super) fn add(&mut self, at: usize) {
        if let Some(count) = self.count.get_mut(at) {
            *count = count.saturating_add(1);
        }
    }

    pub(super) fn remove(&mut self, at: usize) {
        if let Some(count) = self.count.get_mut(at) {
            *count = count.saturating_sub(1);
        }
    }

    /// How many groups it asks for.
    pub(super) fn wanted(&self, ask: &Ask) -> usize {
        match ask {
            Ask::Nothing | Ask::Wrong(_) => 0,
            Ask::Claim(_) => 1,
            Ask::Names(names) => names.len(),
            Ask::Selector { count, .. } => *count,
        }
    }

    /// The groups that it asks for, whether they have room or not.
    pub(super) fn asked(&self, ask: &Ask) -> Vec<usize> {
        match ask {
            Ask::Nothing | Ask::Wrong(_) => Vec::new(),
            Ask::Claim(group) => self.find(group).into_iter().collect(),
            Ask::Names(names) => names.iter().filter_map(|name| self.find(name)).collect(),
            Ask::Selector { text, selector, .. } => {
                let mut meant = self.meant.borrow_mut();
                let known = meant.entry(text.clone()).or_insert_with(|| {
                    let label = |group: &'a Group| move |key: &str| group.labels.get(key).map(String::as_str);
                    let all =
                        self.groups.iter().zip(0..).filter(|(group, _)| selector.matches_with(label(group)));
                    Rc::new(all.map(|(_, at)| at).collect())
                });
                known.as_ref().clone()
            }
        }
    }

    fn bar(&self, at: usize, by_name: bool, by_claim: bool) -> Option<Bar> {
        let group = self.group(at);
        let full = group.capacity.is_some_and(|most| self.count[at] >= most);
        let bars = [
            (group.claimed && !by_claim, Bar::Claimed),
            (full && !by_claim, Bar::Full),
            // Whoever names a group knows what it is for.
            (!group.ready && !by_name && !by_claim, Bar::Silent),
            (self.overloaded(at) && !by_name && !by_claim, Bar::Overloaded),
        ];
        bars.into_iter().find(|(is, _)| *is).map(|(_, bar)| bar)
    }

    /// Whether one more could be bound to it.
    pub(super) fn open(&self, at: usize) -> bool {
        self.bar(at, false, false).is_none()
    }

    pub(super) fn overloaded(&self, at: usize) -> bool {
        let group = self.group(at);
        group.overload > 0.0 && group.load.used >= group.overload
    }

    pub(super) fn any_overloaded(&self) -> bool {
        (0..self.groups.len()).any(|at| self.overloaded(at))
    }

    /// From 0, nothing to do, to 1, full: half by Ingresses, half by load.
    fn burden(&self, at: usize) -> f64 {
        let group = self.group(at);
        let count = f64::from(self.count[at]);
        let share =
            group.capacity.map_or_else(|| count / (count + HALF_FULL), |most| count / f64::from(most.max(1)));
        (share.min(1.0) + group.load.used.clamp(0.0, 1.0)) / 2.0
    }

    fn better(&self, a: usize, b: usize) -> Ordering {
        let by_burden = self.burden(a).total_cmp(&self.burden(b));
        by_burden.then(self.count[a].cmp(&self.count[b])).then_with(|| self.name(a).cmp(self.name(b)))
    }

    /// The best groups that have room, at most so many.
    pub(super) fn best(&self, ask: &Ask, asked: &[usize], kept: &[usize], most: usize) -> Vec<usize> {
        let (by_name, by_claim) = (matches!(ask, Ask::Names(_)), matches!(ask, Ask::Claim(_)));
        let mut open: Vec<usize> = asked
            .iter()
            .copied()
            .filter(|at| !kept.contains(at) && self.bar(*at, by_name, by_claim).is_none())
            .collect();
        if most == 1 {
            return open.into_iter().min_by(|a, b| self.better(*a, *b)).into_iter().collect();
        }
        open.sort_by(|a, b| self.better(*a, *b));
        open.truncate(most);
        open
    }

    /// Where an Ingress can go whose group is overloaded: to one with clearly more room.
    pub(super) fn relief(&self, asked: &[usize], own: &[usize]) -> Option<usize> {
        let roomy = |at: &usize| {
            let group = self.group(*at);
            !own.contains(at) && self.open(*at) && group.load.used < group.overload * RELIEF
        };
        asked.iter().copied().filter(roomy).min_by(|a, b| self.better(*a, *b))
    }

    /// How full a group is, in words.
    pub(super) fn loaded(&self, at: usize) -> String {
        let group = self.group(at);
        let of = group.capacity.map(|most| format!(" of {most}")).unwrap_or_default();
        let load = match group.load.of {
            "" => String::new(),
            of => format!(" and uses {:.0} % of its {of}", group.load.used * 100.0),
        };
        let plural = if self.count[at] == 1 && group.capacity.is_none() { "" } else { "es" };
        format!("{} has {}{of} ingress{plural}{load}", group.name, self.count[at])
    }

    /// Why it was bound to what was found.
    pub(super) fn why(&self, ask: &Ask, asked: &[usize], found: &[usize], before: &[usize]) -> Reason {
        let names = |all: &[usize]| self.names(all).join(", ");
        match ask {
            Ask::Claim(group) => Reason::new("Claimed", format!("{group} was made for its claim")),
            Ask::Names(_) => Reason::new("Named", format!("it asks for {} by name", names(found))),
            Ask::Nothing | Ask::Wrong(_) | Ask::Selector { .. } => {
                let others: Vec<usize> =
                    asked.iter().copied().filter(|at| !found.contains(at) && !before.contains(at)).collect();
                let mut told: Vec<String> = found.iter().take(TOLD_MAX).map(|at| self.loaded(*at)).collect();
                told.extend(others.iter().take(TOLD_MAX).map(|at| self.loaded_or_barred(*at)));
                let more = if others.len() > TOLD_MAX { "; …" } else { "" };
                let (meant, all) = (asked.len(), self.groups.len());
                let which = selector_words(ask);
                let sentence = format!(
                    "{meant} of {all} groups {which}; {} is best: {}{more}",
                    names(found),
                    told.join("; ")
                );
                Reason::new("Scheduled", sentence)
            }
        }
    }

    fn loaded_or_barred(&self, at: usize) -> String {
        match self.bar(at, false, false) {
            None => self.loaded(at),
            Some(bar) => self.barred(at, bar),
        }
    }

    fn barred(&self, at: usize, bar: Bar) -> String {
        let name = self.name(at);
        match bar {
            Bar::Claimed => format!("{name} belongs to a claim"),
            Bar::Silent => format!("no edge of {name} is ready"),
            Bar::Full => {
                let most = self.group(at).capacity.unwrap_or_default();
                format!("{name} is full ({} of {most} ingresses)", self.count[at])
            }
            Bar::Overloaded => {
                let load = self.group(at).load;
                format!("{name} is overloaded ({:.0} % of its {})", load.used * 100.0, load.of)
            }
        }
    }

    /// Why it is bound to nothing.
    pub(super) fn nowhere(&self, ask: &Ask, asked: &[usize]) -> Reason {
        let missing = |names: &[String]| {
            let gone: Vec<&str> =
                names.iter().filter(|name| self.find(name).is_none()).map(String::as_str).collect();
            gone.join(", ")
        };
        match ask {
            Ask::Nothing => Reason::new("NotAsked", "it asks for no group"),
            Ask::Wrong(why) => Reason::new("Invalid", why.clone()),
            Ask::Claim(group) => {
                Reason::new("ClaimPending", format!("the group {group} of its claim is not there yet"))
            }
            Ask::Names(names) if asked.is_empty() => {
                Reason::new("GroupNotFound", format!("there is no IngressReplicaSet {}", missing(names)))
            }
            Ask::Selector { .. } if self.groups.is_empty() => {
                Reason::new("NoGroups", "there is no IngressReplicaSet")
            }
            Ask::Selector { .. } if asked.is_empty() => {
                let sentence = format!(
                    "none of {} groups {}",
                    self.groups.len(),
                    selector_words(ask).replacen("match", "matches", 1)
                );
                Reason::new("NoGroupMatches", sentence)
            }
            Ask::Names(_) | Ask::Selector { .. } => self.no_room(ask, asked),
        }
    }

    fn no_room(&self, ask: &Ask, asked: &[usize]) -> Reason {
        let by_name = matches!(ask, Ask::Names(_));
        let bars: Vec<(usize, Bar)> =
            asked.iter().filter_map(|at| Some((*at, self.bar(*at, by_name, false)?))).collect();
        let code = match bars.iter().map(|(_, bar)| *bar).max() {
            Some(Bar::Overloaded) => "GroupsOverloaded",
            Some(Bar::Full) => "GroupsFull",
            Some(Bar::Silent) => "NoReadyEdges",
            Some(Bar::Claimed) | None => "GroupsClaimed",
        };
        let told: Vec<String> = bars.iter().take(TOLD_MAX).map(|(at, bar)| self.barred(*at, *bar)).collect();
        let more = if bars.len() > TOLD_MAX { "; …" } else { "" };
        Reason::new(code, format!("{}{more}", told.join("; ")))
    }

    /// Why it is bound to fewer than it asks for.
    pub(super) fn partly(&self, ask: &Ask, asked: &[usize], kept: &[usize], most: usize) -> Reason {
        let rest: Vec<usize> = asked.iter().copied().filter(|at| !kept.contains(at)).collect();
        let why = if rest.is_empty() {
            "there are no others".to_owned()
        } else {
            self.no_room(ask, &rest).message.into_owned()
        };
        Reason::new("Partly", format!("bound to {} of {most} groups: {why}", kept.len()))
    }
}

fn selector_words(ask: &Ask) -> String {
    match ask {
        Ask::Selector { text, .. } if !text.trim().is_empty() => format!("match {text}"),
        Ask::Selector { .. } | Ask::Nothing | Ask::Wrong(_) | Ask::Claim(_) | Ask::Names(_) => {
            "match".to_owned()
        }
    }
}
