//! Why a cluster stands where it stands among the choices of a vantage. Nothing here depends on what is measured from moment
//! to moment: a plan whose fractions stay the same stays the same.

use landfall_api::landfall::PlanVantage;

use super::pool::Tier;
use super::{Table, Vantage};
use crate::reason::Reason;

/// Reasons that depend on load, and stay as long as the fractions do.
const LOADED: &[&str] = &["Overflow:", "Full:", "Nearest:", "Local:", "Spread:"];

/// One vantage, while its choices are put into words.
pub(super) struct Scene<'a> {
    pub table: &'a Table<'a>,
    pub at: usize,
    pub vantage: &'a Vantage,
    pub tier: Tier,
    pub full: bool,
    pub names: &'a [&'a str],
}

/// A choice's reason in words. Where fractions stayed as they were, so does what only load has changed.
pub(super) fn settled(now: &Reason, previous: Option<&PlanVantage>, name: &str) -> String {
    let before = previous.and_then(|old| old.choices.iter().find(|choice| choice.cluster == name));
    let code = |text: &str| LOADED.iter().find(|code| text.starts_with(**code));
    let now = now.to_string();
    match before.filter(|choice| choice.fraction > 0.0) {
        Some(old)
            if code(&old.reason).is_some() && code(&now).is_some() && code(&old.reason) != code(&now) =>
        {
            old.reason.clone()
        }
        _ => now,
    }
}

impl Scene<'_> {
    /// Why a cluster has its place and its fraction.
    pub(super) fn reason(&self, place: usize, pick: u32, fraction: f64) -> Reason {
        match self.tier {
            Tier::Healthy => {}
            Tier::Cordoned => {
                return Reason::new("LastResort", "nothing new should go there, but nothing else is healthy");
            }
            Tier::Down | Tier::Empty => {
                return Reason::new("FailOpen", "everything is down; answered as if it were up");
            }
        }
        let name = self.names.get(place).copied().unwrap_or("");
        let far = self.table.atlas.distance_to(self.at, name);
        let policy = self.table.question.policy;
        if fraction <= 0.0 {
            return Reason::new("Standby", far.to_string());
        }
        let flag = |flags: &[bool]| flags.get(pick as usize).copied().unwrap_or(false);
        if let Some(canary) = policy.canary.as_ref().filter(|_| flag(&self.table.canary)) {
            return Reason::new("Canary", format!("{} % of the traffic", canary.percent));
        }
        if let Some(weight) =
            self.table.weights.get(pick as usize).copied().flatten().filter(|weight| *weight > 0.0)
        {
            return Reason::new("Weighted", format!("weight {weight}"));
        }
        let nearness_counts = !self.table.atlas.ignored() && policy.weights.is_empty();
        match self.vantage {
            _ if self.full => Reason::new("Full", "everything is full; spread by capacity"),
            Vantage::Nowhere => Reason::new("Spread", "by room; nobody knows where these clients stand"),
            Vantage::Member(_) | Vantage::Region(_) if !nearness_counts => {
                Reason::new("Spread", "by capacity")
            }
            Vantage::Member(_) | Vantage::Region(_) => self.by_nearness(place, name, &far.to_string()),
        }
    }

    fn by_nearness(&self, place: usize, name: &str, far: &str) -> Reason {
        let locality = self.table.question.policy.locality.as_ref();
        let preferred = locality.is_some_and(|locality| locality.prefer.iter().any(|one| one == name));
        // A canary stands beside the others, not before them.
        let before = self.names.iter().take(place).filter(|other| !self.is_canary(other)).count();
        match (before, preferred) {
            (0, true) => Reason::new("Preferred", "by the policy"),
            (0, false) if matches!(self.vantage, Vantage::Member(own) if own == name) => {
                Reason::new("Local", "the clients are in this cluster")
            }
            (0, false) => Reason::new("Nearest", far.to_owned()),
            (_, _) => Reason::new("Overflow", format!("nearer ones have no room; {far}")),
        }
    }

    fn is_canary(&self, name: &str) -> bool {
        let at = self.table.question.candidates.iter().position(|one| one.name == name);
        at.and_then(|at| self.table.canary.get(at)).copied().unwrap_or(false)
    }
}
