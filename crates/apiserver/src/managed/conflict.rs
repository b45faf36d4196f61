//! Conflicts of server-side apply: fields that others own and that the configuration would change.

use landfall_api::status::{Cause, Reason, Status};

use super::element::Element;
use super::entries::Owner;
use super::set::Set;

/// One owner and the fields of its that would change.
#[derive(Clone, Debug)]
pub(super) struct Conflict {
    /// Who owns them.
    pub owner: Owner,
    /// The fields.
    pub set: Set,
}

impl Conflict {
    fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.set.each(&mut |path: &[&Element]| paths.push(path.iter().map(ToString::to_string).collect()));
        paths
    }
}

/// The refusal: 409 with one cause per field.
pub(super) fn status(mut conflicts: Vec<Conflict>) -> Status {
    conflicts.sort_by(|a, b| a.owner.order(&b.owner));
    let found: Vec<(String, Vec<String>)> =
        conflicts.iter().map(|conflict| (conflict.owner.describe(), conflict.paths())).collect();
    let message = match found.as_slice() {
        [(owner, paths)] if paths.len() == 1 => {
            format!("Apply failed with 1 conflict: conflict with {owner}: {}", paths.concat())
        }
        many => {
            let count: usize = many.iter().map(|(_, paths)| paths.len()).sum();
            let mut lines = Vec::new();
            for (owner, paths) in many {
                lines.push(format!("conflicts with {owner}:"));
                lines.extend(paths.iter().map(|path| format!("- {path}")));
            }
            format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
        }
    };
    let mut status = Status::new(Reason::Conflict, message);
    for (owner, paths) in found {
        status.causes.extend(paths.into_iter().map(|field| Cause {
            reason: "FieldManagerConflict".into(),
            message: format!("conflict with {owner}"),
            field,
        }));
    }
    status
}
