//! Meters in Prometheus' text form, made when somebody asks.

use std::fmt::Write as _;

use landfall_runtime::metrics::label;

use super::{BOUNDS_US, Meters, Sum, Whose};

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// A counter: its name, what it tells, and its number.
type Row = (&'static str, &'static str, fn(&Sum) -> u64);

const COUNTERS: [Row; 3] = [
    ("landfall_proxy_retries_total", "Requests that were tried again.", |sum| sum.retries),
    ("landfall_proxy_overflow_total", "Requests that nearer clusters had no room for.", |sum| sum.overflow),
    ("landfall_proxy_broken_total", "Answers that broke off.", |sum| sum.broke_off),
];

impl Meters {
    /// All meters as text.
    pub(crate) fn render(&self, out: &mut String) {
        self.render_ejections(out);
        let sums: Vec<(String, Sum)> = self.sums().iter().map(|(whose, sum)| (labels(whose), *sum)).collect();
        if sums.is_empty() {
            return;
        }
        // Writing to a String cannot fail.
        head(out, "landfall_proxy_requests_total", "Requests by route, service and cluster.", "counter");
        for (labels, sum) in &sums {
            for (class, number) in CLASSES.iter().zip(sum.ended).filter(|(_, number)| *number > 0) {
                let _ = writeln!(out, "landfall_proxy_requests_total{{{labels},code=\"{class}\"}} {number}");
            }
        }
        for (name, help, number) in COUNTERS {
            head(out, name, help, "counter");
            for (labels, sum) in &sums {
                let _ = writeln!(out, "{name}{{{labels}}} {}", number(sum));
            }
        }
        let name = "landfall_proxy_request_duration_seconds";
        head(out, name, "How long requests took, to the end of their answers.", "histogram");
        for (labels, sum) in &sums {
            histogram(out, name, labels, sum);
        }
    }

    fn render_ejections(&self, out: &mut String) {
        let name = "landfall_proxy_ejections_total";
        head(out, name, "Endpoints left out because they fail, or are far slower than others.", "counter");
        for ((service, cluster), number) in &*self.ejected.lock() {
            let (service, cluster) = (label("service", service), label("cluster", cluster));
            let _ = writeln!(out, "{name}{{{service},{cluster}}} {number}");
        }
    }
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn labels(whose: &Whose) -> String {
    let route = label("route", &whose.route);
    format!("{route},{},{}", label("service", &whose.service), label("cluster", &whose.cluster))
}

#[expect(clippy::cast_precision_loss, reason = "a sum of durations needs no more than 52 bits")]
fn histogram(out: &mut String, name: &str, labels: &str, sum: &Sum) {
    let mut below = 0;
    for (number, bound) in sum.took.iter().zip(BOUNDS_US) {
        below += number;
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{}\"}} {below}", bound as f64 / 1e6);
    }
    let count = sum.ended();
    let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
    let _ = writeln!(out, "{name}_sum{{{labels}}} {}", sum.took_us as f64 / 1e6);
    let _ = writeln!(out, "{name}_count{{{labels}}} {count}");
}
