//! Two lists of lines, shown as what was taken away and what was added.

use std::fmt::Write as _;

/// How many equal lines to show around a difference.
const CONTEXT: usize = 2;

/// The difference of two texts: `-` only in `theirs`, `+` only in `ours`.
pub(super) fn lines(theirs: &[String], ours: &[String]) -> String {
    let common = longest_common(theirs, ours);
    let mut marked: Vec<(char, &str)> = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < theirs.len() || j < ours.len() {
        if i < theirs.len() && j < ours.len() && theirs[i] == ours[j] {
            marked.push((' ', &theirs[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == ours.len() || (i < theirs.len() && common[i + 1][j] >= common[i][j + 1]) {
            marked.push(('-', &theirs[i]));
            i += 1;
        } else {
            marked.push(('+', &ours[j]));
            j += 1;
        }
    }
    let mut text = String::new();
    for (at, (mark, line)) in marked.iter().enumerate() {
        let around = at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(marked.len());
        if marked[around].iter().any(|(mark, _)| *mark != ' ') {
            let _ = writeln!(text, "  {mark} {line}");
        }
    }
    text
}

/// `table[i][j]`: how many lines `a[i..]` and `b[j..]` have in common.
fn longest_common(a: &[String], b: &[String]) -> Vec<Vec<usize>> {
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            let equal = a[i] == b[j];
            table[i][j] = if equal { table[i + 1][j + 1] + 1 } else { table[i + 1][j].max(table[i][j + 1]) };
        }
    }
    table
}
