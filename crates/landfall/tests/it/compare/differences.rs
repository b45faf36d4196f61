//! What may differ between a hub and Kubernetes, and why: `differences.txt`, which says how to read it.
//! `docs/differences.md` is made from it too.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::script::Step;

/// A difference that we mean.
pub(super) struct Difference {
    /// What a user sees.
    pub(super) what: &'static str,
    /// Why it is so.
    why: &'static str,
    /// The steps that show it: a pattern for their command.
    steps: Regex,
    /// What to change before comparing.
    edits: Vec<Edit>,
}

struct Edit {
    /// Whose output it is for: the hub's, Kubernetes'.
    sides: [bool; 2],
    pattern: Regex,
    with: String,
}

/// All of them.
pub(super) static DIFFERENCES: LazyLock<Vec<Difference>> =
    LazyLock::new(|| include_str!("differences.txt").split("\n## ").skip(1).map(Difference::parse).collect());

impl Difference {
    fn parse(section: &'static str) -> Self {
        let (what, rest) = section.split_once('\n').unwrap();
        let mut lines: Vec<String> = Vec::new();
        let mut why = "";
        for line in rest.lines().filter(|line| !line.is_empty()) {
            match (line.strip_prefix("why "), lines.last_mut()) {
                (Some(text), _) => why = text,
                (None, Some(last)) if line.starts_with(' ') => last.push_str(line),
                (None, _) => lines.push(line.to_owned()),
            }
        }
        let steps = lines.remove(0);
        let steps = Regex::new(steps.strip_prefix("steps ").unwrap()).unwrap();
        Self { what, why, steps, edits: lines.iter().map(|line| Edit::parse(line)).collect() }
    }
}

impl Edit {
    fn parse(line: &str) -> Self {
        let (side, rest) = line.split_once(' ').unwrap();
        let sides = match side {
            "ours" => [true, false],
            "theirs" => [false, true],
            "both" => [true, true],
            other => panic!("whose is {other:?}?"),
        };
        let (pattern, with) = rest.split_once(" => ").unwrap_or((rest, ""));
        let pattern = Regex::new(&format!("(?m){pattern}")).unwrap();
        Self { sides, pattern, with: with.replace("\\n", "\n") }
    }
}

/// Steps that an older kubectl ends otherwise, by a part of their command, and why.
pub(super) const NEWER: &[(&str, &str)] = &[
    ("--name=second --min=2 --max=5 --cpu=80%", "older ones call the flag --cpu-percent"),
    ("get hpa second", "which therefore is not there"),
    ("--as-user-extra", "a flag of 1.34"),
];

/// Edits both sides (`[ours, theirs]`) of a step by the differences that are meant; notes which were seen.
pub(super) fn apply(step: &Step, sides: &mut [Vec<String>; 2], used: &mut BTreeSet<&'static str>) {
    for difference in DIFFERENCES.iter().filter(|difference| difference.steps.is_match(&step.command)) {
        for edit in &difference.edits {
            for (lines, _) in sides.iter_mut().zip(edit.sides).filter(|(_, meant)| *meant) {
                let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
                if edit.pattern.is_match(&text) {
                    used.insert(difference.what);
                    let edited = edit.pattern.replace_all(&text, &*edit.with);
                    *lines = edited.lines().map(str::to_owned).collect();
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
         kube-apiserver 1.36, and compares output, errors and exit codes step by step. This table is all that may differ;\n\
         the test fails on anything else, and this page is made from the test's own table.\n\n\
         | difference | why |\n|---|---|\n",
    );
    for difference in DIFFERENCES.iter() {
        text.push_str(&format!("| {} | {} |\n", difference.what, difference.why));
    }
    text
}
