//! The figures, side by side with their ratios.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// What was measured of one server.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    name: String,
    pub(crate) ready_ms: f64,
    pub(crate) gets_per_s: f64,
    pub(crate) creates_per_s: f64,
    pub(crate) lists_per_s: f64,
    pub(crate) resident_mb: f64,
    pub(crate) watch_least: usize,
    pub(crate) watch_written: usize,
    pub(crate) watch_writes_per_s: f64,
}

impl Row {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ready_ms: 0.0,
            gets_per_s: 0.0,
            creates_per_s: 0.0,
            lists_per_s: 0.0,
            resident_mb: 0.0,
            watch_least: 0,
            watch_written: 0,
            watch_writes_per_s: 0.0,
        }
    }

    fn title(&self) -> &'static str {
        match self.name.as_str() {
            "kubernetes" => "kube-apiserver + etcd",
            "etcd" => "landfall hub + etcd",
            _ => "landfall hub, embedded",
        }
    }
}

/// One line of the table: what it is, how to read it, and whether more is better.
type Line = (&'static str, fn(&Row) -> f64, bool);

const LINES: &[Line] = &[
    ("GET, one object, per second", |r| r.gets_per_s, true),
    ("create, durable, per second", |r| r.creates_per_s, true),
    ("LIST of 500, per second", |r| r.lists_per_s, true),
    ("resident memory, MB", |r| r.resident_mb, false),
    ("start to ready, ms", |r| r.ready_ms, false),
];

/// A Markdown table; ratios are to the first row, above 1 is better.
pub(crate) fn render(rows: &[Row]) -> String {
    let mut text = String::from("| |");
    // Writing to a String cannot fail.
    for row in rows {
        let _ = write!(text, " {} |", row.title());
    }
    let _ = write!(text, "\n|---|{}\n", "--:|".repeat(rows.len()));
    for (name, read, more_is_better) in LINES {
        let _ = write!(text, "| {name} |");
        for row in rows {
            let ratio = rows.first().map_or(1.0, |first| ratio(read(first), read(row), *more_is_better));
            let _ = write!(text, " {} ({ratio:.1}x) |", figure(read(row)));
        }
        text.push('\n');
    }
    text.push_str("| watchers: events each saw at least, of those written |");
    for row in rows {
        let _ = write!(
            text,
            " {} of {} at {:.0}/s |",
            row.watch_least, row.watch_written, row.watch_writes_per_s
        );
    }
    text.push('\n');
    text
}

fn ratio(first: f64, this: f64, more_is_better: bool) -> f64 {
    if more_is_better { this / first } else { first / this }
}

fn figure(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

pub(crate) fn to_json(rows: &[Row]) -> Value {
    rows.iter()
        .map(|row| {
            let mut object = json!({"server": row.title(), "watch_least": row.watch_least, "watch_written": row.watch_written});
            for (name, read, _) in LINES {
                object[*name] = json!(read(row));
            }
            object
        })
        .collect()
}
