//! What differs between any two runs, on whatever server: times, ages, uids, revisions, ports, secrets.

use regex::Regex;

/// Patterns and what stands for what they match. In this order.
const PATTERNS: &[(&str, &str)] = &[
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| [+-]\d{4} UTC)?", "TIME"),
    (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000", "TIME"),
    (r#"(resourceVersion"?: ?)"\d+""#, "${1}RV"),
    (r"(Resource Version:\s+)\d+", "${1}RV"),
    (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "TOKEN"),
    (r"127\.0\.0\.1:\d+", "HOST:PORT"),
    (r"/tmp/[\w./-]+", "FILE"),
    // Ages in tables and descriptions: a word of its own, never at the beginning of a line.
    (r"([ (])(\d+[smhd]){1,2}( ago)?(\s|\)|$)", "${1}AGE${4}"),
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
        text.lines().map(replace).collect()
    }
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
