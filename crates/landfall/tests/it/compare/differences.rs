//! What may differ between a hub and Kubernetes, and why. `docs/differences.md` is made from this table.

use std::collections::BTreeSet;

use regex::Regex;

use super::script::Step;

/// Whose output an edit is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The hub's.
    Ours,
    /// Kubernetes'.
    Theirs,
}

/// A difference that we mean.
pub(super) struct Difference {
    /// What a user sees.
    pub(super) what: &'static str,
    /// Why it is so.
    why: &'static str,
    /// The steps that show it: a pattern for their command.
    steps: &'static str,
    /// What to change before comparing: whose lines, a pattern, and what stands for it; none drops the line.
    edits: &'static [(Side, &'static str, Option<&'static str>)],
}

/// All of them.
pub(super) const DIFFERENCES: &[Difference] = &[];

/// Steps that an older kubectl cannot do, by a part of their command, and why.
pub(super) const NEWER: &[(&str, &str)] = &[];

/// Edits both sides (`[ours, theirs]`) of a step by the differences that are meant; notes which were seen.
pub(super) fn apply(step: &Step, sides: &mut [Vec<String>; 2], used: &mut BTreeSet<&'static str>) {
    for difference in DIFFERENCES {
        if !Regex::new(difference.steps).unwrap().is_match(&step.command) {
            continue;
        }
        for (side, pattern, with) in difference.edits {
            let pattern = Regex::new(pattern).unwrap();
            let lines = &mut sides[usize::from(*side == Side::Theirs)];
            if !lines.iter().any(|line| pattern.is_match(line)) {
                continue;
            }
            used.insert(difference.what);
            match with {
                None => lines.retain(|line| !pattern.is_match(line)),
                Some(with) => {
                    lines.iter_mut().for_each(|line| *line = pattern.replace_all(line, *with).into_owned());
                }
            }
        }
    }
}

/// The page for users.
pub(super) fn page() -> String {
    let mut text = String::from(
        "# How a hub differs from Kubernetes\n\n\
         `crates/landfall/tests/it/kubectl` is a script of kubectl commands. A test runs it on a hub and on a real\n\
         kube-apiserver, and compares output, errors and exit codes step by step. This table is all that may differ; the\n\
         test fails on anything else, and this page is made from the test's own table.\n\n\
         | difference | why |\n|---|---|\n",
    );
    for difference in DIFFERENCES {
        text.push_str(&format!("| {} | {} |\n", difference.what, difference.why));
    }
    text
}
