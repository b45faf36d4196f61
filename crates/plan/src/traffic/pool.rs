//! Who may take traffic: the fence, and how well each member is able to.

use std::collections::BTreeMap;

use landfall_api::landfall::{ClusterSelection, PlanCanary, TrafficPolicySpec};
use landfall_api::selector::Selector;

use super::Candidate;
use crate::placement::NAME_LABEL;
use crate::reason::Reason;

/// How well a member can take traffic; lower is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tier {
    /// It is up.
    Healthy,
    /// It is up, but nothing new shall go there.
    Cordoned,
    /// It is down, by the majority's word.
    Down,
    /// Nothing there is ready.
    Empty,
}

/// What a member is fit for.
pub(super) enum Fitness {
    /// It can take traffic, more or less well; why less.
    Fit(Tier, Option<Reason>),
    /// It must not, or cannot.
    Unfit(Reason),
}

/// Some members, ready to be asked about.
#[derive(Debug)]
pub(crate) struct Matcher<'a> {
    names: &'a [String],
    selector: Option<Selector>,
    wrong: bool,
}

impl<'a> Matcher<'a> {
    /// Reads a selection. One that cannot be read selects nothing.
    pub(crate) fn new(selection: &'a ClusterSelection) -> Self {
        let value = selection.selector.as_ref().and_then(|selector| serde_json::to_value(selector).ok());
        let parsed = value.as_ref().map(|value| Selector::from_object(Some(value))).transpose();
        let wrong = parsed.is_err();
        Self { names: &selection.names, selector: parsed.unwrap_or_default(), wrong }
    }

    /// Whether a member is among them: named, if there are names, and with labels that match, if there is a selector.
    pub(crate) fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let label = |key: &str| match (labels.get(key), key) {
            (Some(value), _) => Some(value.as_str()),
            (None, NAME_LABEL) => Some(name),
            (None, _) => None,
        };
        let named = self.names.is_empty() || self.names.iter().any(|one| one == name);
        !self.wrong && named && self.selector.as_ref().is_none_or(|selector| selector.matches_with(label))
    }
}

/// Judges one member.
pub(super) fn judge(candidate: &Candidate<'_>, fence: Option<&Matcher<'_>>) -> Fitness {
    if fence.is_some_and(|fence| !fence.matches(candidate.name, candidate.labels)) {
        return Fitness::Unfit(Reason::new("OutsideFence", "traffic must not leave the fence"));
    }
    if !candidate.inside && !candidate.outside {
        return Fitness::Unfit(Reason::new("NoAddress", "it has no address yet"));
    }
    if candidate.endpoints == 0 {
        return Fitness::Fit(Tier::Empty, Some(Reason::new("NoEndpoints", "none of its endpoints is ready")));
    }
    if !candidate.up {
        return Fitness::Fit(Tier::Down, Some(Reason::new("Down", "the majority says that it is down")));
    }
    match (candidate.draining, candidate.cordoned) {
        (true, _) => {
            Fitness::Fit(Tier::Cordoned, Some(Reason::new("Draining", "its traffic moves to other clusters")))
        }
        (_, true) => Fitness::Fit(Tier::Cordoned, Some(Reason::new("Cordoned", "nothing new goes there"))),
        (false, false) => Fitness::Fit(Tier::Healthy, None),
    }
}

/// The names inside the fence, as plans carry it; empty when there is none. A fence that nobody is in has one name that no
/// member can have: an empty list would let everybody in.
pub fn fence<'a>(
    policy: &TrafficPolicySpec,
    members: impl Iterator<Item = (&'a str, &'a BTreeMap<String, String>)>,
) -> Vec<String> {
    let Some(selection) = &policy.fence else { return Vec::new() };
    let matcher = Matcher::new(selection);
    let inside = members.filter(|(name, labels)| matcher.matches(name, labels));
    let mut names: Vec<String> = inside.map(|(name, _)| name.to_owned()).collect();
    names.sort_unstable();
    if names.is_empty() {
        names.push("-".to_owned());
    }
    names
}

/// The members that requests with a canary's headers go to; none where no header decides it.
pub fn canary<'a>(
    policy: &TrafficPolicySpec,
    members: impl Iterator<Item = (&'a str, &'a BTreeMap<String, String>)>,
) -> Option<PlanCanary> {
    let canary = policy.canary.as_ref().filter(|canary| !canary.headers.is_empty())?;
    let matcher = Matcher::new(&canary.clusters);
    let chosen = members.filter(|(name, labels)| matcher.matches(name, labels));
    let mut clusters: Vec<String> = chosen.map(|(name, _)| name.to_owned()).collect();
    clusters.sort_unstable();
    Some(PlanCanary { clusters, headers: canary.headers.clone() })
}
