//! What the API server counts, by the names that Kubernetes' dashboards know.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use landfall_runtime::metrics::{Counter, Gauge, Histogram, Registry, label};
use parking_lot::RwLock;

/// All counters of one API server.
pub struct Telemetry {
    /// Where they are registered.
    pub registry: Arc<Registry>,
    /// Requests being served, watches excluded.
    pub inflight: Arc<Gauge>,
    /// Open watches and other long requests.
    pub longrunning: Arc<Gauge>,
    /// Open connections.
    pub connections: Arc<Gauge>,
    requests: RwLock<Rows>,
}

/// By resource, then by verb and code, so that a look-up needs no allocation.
type Rows = HashMap<Box<str>, HashMap<(&'static str, u16), Arc<Pair>>>;

struct Pair {
    count: Arc<Counter>,
    took: Arc<Histogram>,
}

/// More resources than this are not told apart: the rest share one row.
const RESOURCES_MAX: usize = 1024;

impl Telemetry {
    /// Registers everything.
    pub fn new(registry: Arc<Registry>) -> Self {
        let inflight = registry.gauge(
            "apiserver_current_inflight_requests",
            "Requests being served now, long-running ones excluded.",
            "",
        );
        let longrunning = registry.gauge("apiserver_longrunning_requests", "Open watches.", "verb=\"WATCH\"");
        let connections = registry.gauge("apiserver_open_connections", "Open client connections.", "");
        Self { registry, inflight, longrunning, connections, requests: RwLock::default() }
    }

    /// Counts one request.
    pub fn request(&self, verb: &'static str, resource: &str, code: u16, took: Duration) {
        let pair = self.row(verb, resource, code);
        pair.count.inc();
        pair.took.observe(took);
    }

    fn row(&self, verb: &'static str, resource: &str, code: u16) -> Arc<Pair> {
        let key = (verb, code);
        if let Some(pair) = self.requests.read().get(resource).and_then(|rows| rows.get(&key)) {
            return pair.clone();
        }
        let mut rows = self.requests.write();
        let resource =
            if rows.len() >= RESOURCES_MAX && !rows.contains_key(resource) { "" } else { resource };
        rows.entry(resource.into())
            .or_default()
            .entry(key)
            .or_insert_with(|| {
                let labels = format!("verb=\"{verb}\",{},code=\"{code}\"", label("resource", resource));
                let count = self.registry.counter(
                    "apiserver_request_total",
                    "Requests by verb, resource and response code.",
                    &labels,
                );
                let took = self.registry.histogram(
                    "apiserver_request_duration_seconds",
                    "Time to answer, by verb, resource and response code.",
                    &labels,
                );
                Arc::new(Pair { count, took })
            })
            .clone()
    }
}
