//! What differs between any two runs, on whatever server: times, ages, uids, revisions, ports, secrets.

use regex::Regex;

/// Patterns and what stands for what they match. In this order.
const PATTERNS: &[(&str, &str)] = &[
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| [+-]\d{4} UTC)?", "TIME"),
    (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000", "TIME"),
    (r#"(resourceVersion\\*"?: ?)\\*"\d+\\*""#, "${1}RV"),
    (r"(current: |resource version to be \d+, was )\d+$", "${1}RV"),
    (r"(Resource Version:\s+)\d+", "${1}RV"),
    (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "TOKEN"),
    (r"127\.0\.0\.1:\d+", "HOST:PORT"),
    (r"/tmp/[\w./-]+", "FILE"),
    // A client's own log lines begin with day, time and process.
    (r"^! ([EWI])\d{4} [\d:.]+ +\d+ ", "! ${1} "),
    // Ages in tables and descriptions: a word of its own, never at the beginning of a line.
    (r"(  |\(|over )(\d+[smhd]){1,2}( ago)?(\s|\)|$)", "${1}AGE${4}"),
    (r"<(unknown|invalid)>( ago)?", "AGE"),
    // How wide a column is depends on the ages in it.
    (r"(\S)  +", "${1}  "),
    (r"\s+$", ""),
];

/// Makes two runs comparable.
pub(super) struct Normaliser(Vec<(Regex, &'static str)>);

impl Normaliser {
    pub(super) fn new() -> Self {
        Self(PATTERNS.iter().map(|(pattern, with)| (Regex::new(pattern).unwrap(), *with)).collect())
    }

    /// The lines of a text, with what varies replaced.
    pub(super) fn lines(&self, text: &str) -> Vec<String> {
        let replace = |line: &str| {
            let start = line.to_owned();
            self.0.iter().fold(start, |line, (pattern, with)| pattern.replace_all(&line, *with).into_owned())
        };
        // client-go sometimes complains that it was told to stop watching, or that its own time was up when it began to.
        let own = ["context canceled", r#""Failed to watch" err="context deadline exceeded""#];
        let said = text.lines().filter(|line| !own.iter().any(|words| line.contains(words)));
        sort_managers(said.map(replace).collect())
    }
}

/// Entries of `managedFields` in YAML stand in the order of their times, and so in either order when two writes fall
/// into one second or not: sorts them.
fn sort_managers(lines: Vec<String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::with_capacity(lines.len());
    let mut lines = lines.into_iter().peekable();
    while let Some(line) = lines.next() {
        let is_list = line.trim_start() == "managedFields:";
        let indent = line.len() - line.trim_start().len();
        out.push(line);
        let mut entries: Vec<Vec<String>> = Vec::new();
        let inside = |line: &String| {
            let begins = line.get(indent..).is_some_and(|rest| rest.starts_with("- "));
            begins || line.get(..indent + 2).is_some_and(|start| start.trim().is_empty())
        };
        while let Some(line) = lines.next_if(|line| is_list && inside(line)) {
            match entries.last_mut() {
                Some(entry) if !line[indent..].starts_with("- ") => entry.push(line),
                _ => entries.push(vec![line]),
            }
        }
        entries.sort();
        out.extend(entries.into_iter().flatten());
    }
    out
}

#[test]
fn what_varies_is_replaced() {
    let check = |line: &str, expected: &str| assert_eq!(Normaliser::new().lines(line), [expected], "{line}");
    check("default   Active   4m12s", "default  Active  AGE");
    check("NAME    AGE   LABELS", "NAME  AGE  LABELS");
    check("web   <none>   3s    app=x", "web  <none>  AGE  app=x");
    check(r#"  resourceVersion: "12""#, "  resourceVersion: RV");
    check("  creationTimestamp: \"2026-11-15T21:25:44Z\"", "  creationTimestamp: \"TIME\"");
    check("    replicas: 3", "    replicas: 3");
}

#[test]
fn managers_have_no_order() {
    let text = |first, second| {
        format!("  managedFields:\n  - manager: {first}\n    x: 1\n  - manager: {second}\n  name: n")
    };
    let lines = |text: String| Normaliser::new().lines(&text);
    assert_eq!(lines(text("a", "b")).len(), 5);
    assert_ne!(lines(text("a", "b")), lines(text("b", "a")), "what an entry says stays with it");
    assert_eq!(lines(text("a", "b"))[4], "  name: n");
}
