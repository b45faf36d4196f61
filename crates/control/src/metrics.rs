//! What the reconcilers count, in Prometheus' names.

use std::sync::Arc;

use landfall_runtime::metrics::{Counter, Gauge, Histogram, Registry};

/// Counters of one hub.
#[derive(Clone)]
pub struct Metrics {
    /// Writes sent to members.
    pub writes: Arc<Counter>,
    /// Writes and looks that failed.
    pub failures: Arc<Counter>,
    /// Looks at federated objects.
    pub looks: Arc<Counter>,
    /// How long one look took.
    pub look_s: Arc<Histogram>,
    /// Objects that wait to be looked at.
    pub queue: Arc<Gauge>,
    /// Members that are ready.
    pub ready: Arc<Gauge>,
    /// How long one look at a service's traffic took.
    pub traffic_s: Arc<Histogram>,
    /// Plans written for the edges.
    pub plans: Arc<Counter>,
    /// Verdicts that changed.
    pub verdicts: Arc<Counter>,
    /// Edges that have spoken lately.
    pub edges: Arc<Gauge>,
}

impl Metrics {
    /// Registers them.
    pub fn new(registry: &Registry) -> Self {
        Self {
            writes: registry.counter("landfall_shard_writes_total", "Writes sent to members.", ""),
            failures: registry.counter(
                "landfall_shard_failures_total",
                "Requests to members that failed or were refused.",
                "",
            ),
            looks: registry.counter("landfall_reconcile_total", "Looks at federated objects.", ""),
            look_s: registry.histogram(
                "landfall_reconcile_duration_seconds",
                "How long one look at a federated object took.",
                "",
            ),
            queue: registry.gauge(
                "landfall_workqueue_depth",
                "Federated objects that wait to be looked at.",
                "",
            ),
            ready: registry.gauge("landfall_clusters_ready", "Members whose API is ready.", ""),
            traffic_s: registry.histogram(
                "landfall_traffic_plan_duration_seconds",
                "How long one look at the traffic of a service took.",
                "",
            ),
            plans: registry.counter("landfall_traffic_plans_written_total", "Traffic plans written.", ""),
            verdicts: registry.counter(
                "landfall_verdict_changes_total",
                "Verdicts on services in members that changed.",
                "",
            ),
            edges: registry.gauge("landfall_edges_alive", "Edges that have spoken lately.", ""),
        }
    }
}
