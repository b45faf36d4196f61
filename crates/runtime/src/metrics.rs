//! Counters, gauges and histograms in Prometheus' text form; values are atomics, written without a lock.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::RwLock;

/// A number that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that rises and falls.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Adds `n`, which may be negative; gives the new value.
    pub fn add(&self, n: i64) -> i64 {
        self.0.fetch_add(n, Ordering::Relaxed) + n
    }
    /// Sets it.
    pub fn set(&self, n: i64) {
        self.0.store(n, Ordering::Relaxed);
    }
    /// The value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds in seconds, the same for every duration we measure.
const BOUNDS_S: [f64; 12] = [0.000_5, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// How long things took.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_S.len()],
    count: AtomicU64,
    sum_us: AtomicU64,
}

impl Histogram {
    /// Records one duration.
    pub fn observe(&self, took: std::time::Duration) {
        let seconds = took.as_secs_f64();
        if let Some(at) = BOUNDS_S.iter().position(|bound| seconds <= *bound) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

#[derive(Clone, Debug)]
enum Value {
    Counter(Arc<Counter>),
    Gauge(Arc<Gauge>),
    Histogram(Arc<Histogram>),
}

#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    rows: Vec<(String, Value)>,
}

/// One label as metrics carry it: `name="value"`, the value escaped.
pub fn label(name: &str, value: &str) -> String {
    let mut out = String::with_capacity(name.len() + value.len() + 3);
    out.push_str(name);
    out.push_str("=\"");
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Writes metrics in the text form: for what comes and goes, and is counted elsewhere.
pub type Source = Box<dyn Fn(&mut String) + Send + Sync>;

/// Every metric of a process. Register once, keep the returned handle, write to it freely.
#[derive(Default)]
pub struct Registry(RwLock<Vec<Family>>, RwLock<Vec<Source>>);

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Registry").field(&self.0).finish_non_exhaustive()
    }
}

impl Registry {
    /// A counter with the given labels, such as `verb="GET",code="200"`; values from outside go through [`label`].
    pub fn counter(&self, name: &'static str, help: &'static str, labels: &str) -> Arc<Counter> {
        match self.register(name, help, labels, || Value::Counter(Arc::default())) {
            Value::Counter(counter) => counter,
            // Another type has this name: it counts, but is not shown.
            Value::Gauge(_) | Value::Histogram(_) => Arc::default(),
        }
    }
    /// A gauge with the given labels.
    pub fn gauge(&self, name: &'static str, help: &'static str, labels: &str) -> Arc<Gauge> {
        match self.register(name, help, labels, || Value::Gauge(Arc::default())) {
            Value::Gauge(gauge) => gauge,
            Value::Counter(_) | Value::Histogram(_) => Arc::default(),
        }
    }
    /// A histogram of durations with the given labels.
    pub fn histogram(&self, name: &'static str, help: &'static str, labels: &str) -> Arc<Histogram> {
        match self.register(name, help, labels, || Value::Histogram(Arc::default())) {
            Value::Histogram(histogram) => histogram,
            Value::Counter(_) | Value::Gauge(_) => Arc::default(),
        }
    }

    /// What has this name and these labels; a new one when nothing has. Whoever leads a second time goes on counting.
    fn register(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &str,
        new: impl Fn() -> Value,
    ) -> Value {
        let mut families = self.0.write();
        let at = families.iter().position(|family| family.name == name);
        let at = at.unwrap_or_else(|| {
            families.push(Family { name, help, rows: Vec::new() });
            families.len() - 1
        });
        let rows = &mut families[at].rows;
        if let Some((_, value)) = rows.iter().find(|(known, _)| known == labels) {
            return value.clone();
        }
        let value = new();
        rows.push((labels.to_owned(), value.clone()));
        value
    }

    /// Adds families that `source` writes whenever metrics are asked for; their names must be nobody else's.
    pub fn source(&self, source: Source) {
        self.1.write().push(source);
    }

    /// All metrics in the text exposition format, sorted by name; then those of sources.
    pub fn render(&self) -> String {
        let families = self.0.read();
        let mut order: Vec<&Family> = families.iter().collect();
        order.sort_by_key(|family| family.name);
        let mut out = String::new();
        for family in order {
            family.render(&mut out);
        }
        for source in &*self.1.read() {
            source(&mut out);
        }
        out
    }
}

impl Family {
    fn render(&self, out: &mut String) {
        let kind = match self.rows.first() {
            Some((_, Value::Counter(_))) => "counter",
            Some((_, Value::Gauge(_))) => "gauge",
            _ => "histogram",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "# HELP {} {}\n# TYPE {} {kind}", self.name, self.help, self.name);
        for (labels, value) in &self.rows {
            let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
            let _ = match value {
                Value::Counter(counter) => writeln!(out, "{}{braces} {}", self.name, counter.get()),
                Value::Gauge(gauge) => writeln!(out, "{}{braces} {}", self.name, gauge.get()),
                Value::Histogram(histogram) => {
                    histogram.render(self.name, labels, out);
                    Ok(())
                }
            };
        }
    }
}

impl Histogram {
    fn render(&self, name: &str, labels: &str, out: &mut String) {
        let comma = if labels.is_empty() { "" } else { "," };
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let mut total = 0;
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS_S) {
            total += bucket.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}");
        }
        let count = self.count.load(Ordering::Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "a sum of durations needs no more than 52 bits")]
        let sum = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "{name}_sum{braces} {sum}\n{name}_count{braces} {count}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_sorted_and_rows_carry_labels() {
        let registry = Registry::default();
        registry.gauge("b_now", "B.", "").set(-2);
        registry.counter("a_total", "A.", "code=\"200\"").add(3);
        registry.counter("a_total", "A.", "code=\"500\"");
        let want = "# HELP a_total A.\n# TYPE a_total counter\na_total{code=\"200\"} 3\na_total{code=\"500\"} 0\n\
                    # HELP b_now B.\n# TYPE b_now gauge\nb_now -2\n";
        assert_eq!(registry.render(), want);
    }

    #[test]
    fn label_values_cannot_break_out() {
        for (value, want) in [("a", r#"x="a""#), ("\"} 1\n\\", r#"x="\"} 1\n\\""#)] {
            assert_eq!(label("x", value), want);
        }
    }

    #[test]
    fn histogram_buckets_are_cumulative() {
        let registry = Registry::default();
        let histogram = registry.histogram("took_seconds", "T.", "verb=\"GET\"");
        histogram.observe(std::time::Duration::from_millis(2));
        histogram.observe(std::time::Duration::from_secs(60));
        let text = registry.render();
        assert!(text.contains("took_seconds_bucket{verb=\"GET\",le=\"0.001\"} 0\n"), "{text}");
        assert!(text.contains("took_seconds_bucket{verb=\"GET\",le=\"0.005\"} 1\n"), "{text}");
        assert!(text.contains("took_seconds_bucket{verb=\"GET\",le=\"+Inf\"} 2\n"), "{text}");
        assert!(text.contains("took_seconds_count{verb=\"GET\"} 2\n"), "{text}");
    }
}
