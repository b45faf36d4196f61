//! Traces: requests that somebody follows on their way through many servers.
//!
//! ```text
//!   traceparent (W3C) ─► context ─► Started ─► the endpoint gets ours as its parent
//!                                      └─ at the end ─► queue ─► export (OTLP over HTTP) ─► a collector
//! ```
//!
//! Where nobody collects, a client's trace context is passed on as it came. Where somebody does, requests whose trace is
//! recorded get a span of ours, and one of so many that belong to no trace begins one. No request waits for its span: where
//! the collector cannot keep up, spans are left out and counted.

mod context;
mod export;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use landfall_runtime::clock;
use landfall_runtime::metrics::{Counter, Registry};
use landfall_runtime::tasks::Tasks;
use tokio::sync::mpsc;

use crate::config::{Config, StartError};
use crate::core::Core;
use crate::tls::backend::Backend;
use context::Context;

/// The header that carries a trace from server to server.
pub(crate) const PARENT: &str = "traceparent";
const PARENT_NAME: HeaderName = HeaderName::from_static(PARENT);
const STATE_NAME: HeaderName = HeaderName::from_static("tracestate");

/// Spans that wait for the collector.
const WAITING_MAX: usize = 4096;

/// Follows requests for a collector.
pub(crate) struct Tracer {
    spans: mpsc::Sender<Span>,
    dropped: Arc<Counter>,
    /// One of so many requests that belong to no trace begins one; none when 0.
    one_of: u32,
}

/// A request that is followed.
pub(crate) struct Started {
    context: Context,
    /// The span above ours, if the trace began elsewhere.
    parent: Option<u64>,
    began: Duration,
}

/// What is told of a request that was followed.
pub(crate) struct Span {
    started: Started,
    ended: Duration,
    pub(crate) told: Told,
}

/// What is told of it beside its times.
pub(crate) struct Told {
    pub(crate) method: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) client: String,
    pub(crate) status: u16,
    pub(crate) route: Arc<str>,
    pub(crate) service: Arc<str>,
    pub(crate) cluster: Arc<str>,
    pub(crate) why: &'static str,
    pub(crate) retries: u32,
    pub(crate) fault: Option<String>,
}

impl Tracer {
    /// None where nobody collects.
    pub(crate) fn new(
        config: &Config,
        backend: &Backend,
        registry: &Registry,
        tasks: &Tasks,
    ) -> Result<Option<Self>, StartError> {
        let Some(collector) = &config.collector else { return Ok(None) };
        let (spans, waiting) = mpsc::channel(WAITING_MAX);
        let dropped = registry.counter(
            "landfall_proxy_spans_dropped_total",
            "Spans that the collector of traces did not get.",
            "",
        );
        let to = export::Collector::new(&collector.url, config, backend.clone(), dropped.clone())
            .map_err(StartError::Collector)?;
        tasks.spawn_until_stop(export::run(to, waiting));
        Ok(Some(Self { spans, dropped, one_of: collector.one_of }))
    }

    /// Whether the next request that belongs to no trace begins one.
    pub(crate) fn takes_next(&self, core: &Core) -> bool {
        self.one_of > 0 && core.luck().is_multiple_of(u64::from(self.one_of))
    }

    /// Begins to follow a request, if its trace is recorded or it is one of those that begin one, unless that was decided before; its headers then
    /// name us as the parent.
    pub(crate) fn begin(&self, core: &Core, headers: &mut HeaderMap, decided: bool) -> Option<Started> {
        let mut parents = headers.get_all(PARENT_NAME).iter();
        let only = parents.next().filter(|_| parents.next().is_none());
        let above = only.and_then(|parent| Context::read(parent.as_bytes()));
        let (trace, parent) = match above {
            Some(above) if !above.recorded => return None,
            Some(above) => (above.trace, Some(above.span)),
            None if core.trace_next.take() || !decided && self.takes_next(core) => {
                // What belongs to a trace that cannot be read belongs to none.
                headers.remove(STATE_NAME);
                (u128::from(core.luck()) << 64 | u128::from(core.luck() | 1), None)
            }
            None => return None,
        };
        let context = Context { trace, span: core.luck() | 1, recorded: true };
        if let Ok(value) = HeaderValue::from_str(&context.to_string()) {
            headers.insert(PARENT_NAME, value);
        }
        Some(Started { context, parent, began: clock::since_epoch() })
    }

    /// A request that was followed is over.
    pub(crate) fn end(&self, started: Started, told: Told) {
        let span = Span { started, ended: clock::since_epoch(), told };
        if self.spans.try_send(span).is_err() {
            self.dropped.inc();
        }
    }
}

impl Started {
    /// The trace's number, as everybody writes it.
    pub(crate) fn trace(&self) -> String {
        format!("{:032x}", self.context.trace)
    }
}
