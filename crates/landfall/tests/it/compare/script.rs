//! The script: console lines in files, read when the test runs.
//!
//! `$ ` begins a step, `> ` continues it, `#` is a remark. A step is a line for `sh`, run in `../manifests`; `$T` is a
//! directory of the chapter's own per server.

use std::fmt;
use std::path::Path;

/// One line at the console.
pub(super) struct Step {
    /// File and line, for whoever looks for it.
    pub(super) place: String,
    /// What is typed.
    pub(super) command: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] $ {}", self.place, self.command)
    }
}

/// A file of the script. Chapters run side by side, the steps of one in order; so each keeps to namespaces of its own.
pub(super) struct Chapter {
    pub(super) name: String,
    pub(super) steps: Vec<Step>,
}

/// The chapters to run, and whether they are all there are.
pub(super) fn load() -> (Vec<Chapter>, bool) {
    #[expect(clippy::disallowed_methods, reason = "how a person asks for a part of the script")]
    let only = std::env::var("LANDFALL_COMPARE").unwrap_or_default();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/kubectl");
    let mut files: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| {
        path.extension().is_some_and(|e| e == "txt") && path.to_string_lossy().contains(&only)
    });
    files.sort();
    let chapters = files.iter().map(|path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let steps = parse(&name, &std::fs::read_to_string(path).unwrap());
        Chapter { name, steps }
    });
    (chapters.collect(), only.is_empty())
}

fn parse(name: &str, text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", number + 1);
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { place, command: command.to_owned() });
        } else if let Some(more) = line.strip_prefix("> ") {
            let step = steps.last_mut().unwrap_or_else(|| panic!("{place}: continues nothing"));
            step.command.push('\n');
            step.command.push_str(more);
        } else {
            assert!(line.is_empty() || line.starts_with('#'), "{place}: neither step nor remark: {line}");
        }
    }
    steps
}
