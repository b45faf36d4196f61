//! Troubles as conditions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::{About, Trouble};

/// Whether everything that the object asks for is carried.
pub const ACCEPTED: &str = "Accepted";
/// Whether everything that it names is there.
pub const RESOLVED: &str = "ResolvedRefs";

/// So many troubles are told in one condition.
const TOLD_MAX: usize = 8;

/// The conditions that troubles amount to; `before` says since when they are so.
pub fn conditions(
    troubles: &[Trouble],
    before: &[Condition],
    generation: Option<i64>,
    now: &Time,
) -> Vec<Condition> {
    let kinds = [
        (ACCEPTED, About::Object, "Accepted", "the edges carry it"),
        (RESOLVED, About::References, "ResolvedRefs", "everything that it names is there"),
    ];
    let one = |(kind, about, fine, sentence): (&str, About, &str, &str)| {
        let mine: Vec<&Trouble> = troubles.iter().filter(|trouble| trouble.about == about).collect();
        let status = if mine.is_empty() { "True" } else { "False" };
        let mut told: Vec<&str> = mine.iter().take(TOLD_MAX).map(|one| &*one.reason.message).collect();
        if mine.len() > TOLD_MAX {
            told.push("…");
        }
        let known = before.iter().find(|known| known.type_ == kind && known.status == status);
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: mine.first().map_or(fine, |first| first.reason.code).to_owned(),
            message: if told.is_empty() { sentence.to_owned() } else { told.join("; ") },
            last_transition_time: known
                .map_or_else(|| now.clone(), |known| known.last_transition_time.clone()),
            observed_generation: generation,
        }
    };
    kinds.into_iter().map(one).collect()
}
