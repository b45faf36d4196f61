//! What style asks of every file, where no lint asks it.

use std::process::Command;

use anyhow::{Result, bail};

use crate::shell::{output, root};

/// The longest source file; tables and generated code live apart and are named here.
const LINES_MAX: usize = 600;

/// Files that are tables: rows, not logic.
const TABLES: &[&str] = &[];

/// Marks of unfinished work that must not be committed.
const UNFINISHED: &[&str] = &["todo!(", "unimplemented!(", "FIXME", "#[ignore"];

pub(crate) fn run() -> Result<()> {
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"]).current_dir(root());
    let mut wrong = Vec::new();
    for path in output(&mut list)?.lines() {
        let Ok(text) = std::fs::read_to_string(root().join(path)) else { continue };
        wrong.extend(check(path, &text).into_iter().map(|what| format!("{path}: {what}")));
    }
    if !wrong.is_empty() {
        bail!("style:\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

fn check(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if !text.starts_with("//!") && !text.starts_with("#![") {
        wrong.push("does not open with its purpose (`//!`)".to_owned());
    }
    let lines = text.lines().count();
    if lines > LINES_MAX && !TABLES.contains(&path) {
        wrong.push(format!("has {lines} lines (at most {LINES_MAX})"));
    }
    let this_file = path.ends_with("xtask/src/tidy.rs");
    for mark in UNFINISHED.iter().filter(|mark| !this_file && text.contains(**mark)) {
        wrong.push(format!("holds unfinished work: {mark}"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_purpose_or_end_are_named() {
        assert_eq!(check("a.rs", "//! Fine.\n"), Vec::<String>::new());
        assert_eq!(check("a.rs", "fn main() {}\n").len(), 1);
        assert_eq!(check("a.rs", &format!("//! Long.\n{}", "\n".repeat(LINES_MAX))).len(), 1);
        assert_eq!(check("a.rs", "//! Half.\nfn a() { todo!() }\n").len(), 1);
    }
}
