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
pub(super) struct Normaliser {
    patterns: Vec<(Regex, &'static str)>,
    repair: Regex,
}

/// kube-apiserver looks for Services whose address nobody allocated, and now and then says so of one whose allocation
/// it has not seen yet. These are the lines in which such an Event shows.
const REPAIR: &str = r#"^event "\S+\.[0-9a-f]{16}" deleted|ipallocator-repair-controller"#;

impl Normaliser {
    pub(super) fn new() -> Self {
        let patterns = PATTERNS.iter().map(|(pattern, with)| (Regex::new(pattern).unwrap(), *with)).collect();
        Self { patterns, repair: Regex::new(REPAIR).unwrap() }
    }

    /// The lines of a text, with what varies replaced.
    pub(super) fn lines(&self, text: &str) -> Vec<String> {
        let replace = |line: &str| {
            let start = line.to_owned();
            self.patterns
                .iter()
                .fold(start, |line, (pattern, with)| pattern.replace_all(&line, *with).into_owned())
        };
        // client-go sometimes complains that it was told to stop watching, or that its own time was up when it began to.
        let own = ["context canceled", r#""Failed to watch" err="context deadline exceeded""#];
        let said = text.lines().filter(|line| !own.iter().any(|words| line.contains(words)));
        let said = said.filter(|line| !self.repair.is_match(line));
        sort_managers(without_empty_events(said.map(replace).collect()))
    }
}

/// A description's table of Events with no row left is as if there had been none.
fn without_empty_events(mut lines: Vec<String>) -> Vec<String> {
    let mut at = 0;
    while let Some(found) = lines[at..].iter().position(|line| line == "Events:") {
        at += found + 1;
        let is_head = |line: &&String| line.starts_with("  Type") || line.starts_with("  ----");
        let heads = lines[at..].iter().take(2).filter(is_head);
        let has_rows = lines.get(at + 2).is_some_and(|line| line.starts_with("  "));
        if heads.count() == 2 && !has_rows {
            lines.splice(at - 1..at + 2, ["Events:  <none>".to_owned()]);
        }
    }
    lines
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
fn what_repairs_say_is_left_out() {
    let lines = |text: &str| Normaliser::new().lines(text);
    assert!(lines(r#"event "web.18e917503533b0c1" deleted from work namespace"#).is_empty());
    assert_eq!(lines(r#"event "web.1" deleted from work namespace"#).len(), 1);
    let row =
        |from: &str| format!("  Warning  Why  1s  {from}  Cluster IP [IPv4]: 10.0.0.9 is not allocated");
    let table =
        |rows: &[String]| format!("Events:\n  Type  Reason  Age\n  ----  ------  ---\n{}\n", rows.join("\n"));
    assert_eq!(lines(&table(&[row("ipallocator-repair-controller")])), ["Events:  <none>"]);
    assert_eq!(lines(&table(&[row("ipallocator-repair-controller"), row("hub")])).len(), 4);
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
