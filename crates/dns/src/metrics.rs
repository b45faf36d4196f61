//! Counters: threads count for themselves and hand over what they have once per batch.

use std::sync::Arc;

use landfall_runtime::metrics::{Counter, Gauge, Registry, label};

use crate::answer::Sort;
use crate::limit::Pass;

/// How each sort of reply is called.
const SORTS: [(Sort, &str); 9] = [
    (Sort::Answer, "answer"),
    (Sort::NoData, "nodata"),
    (Sort::NxDomain, "nxdomain"),
    (Sort::Refused, "refused"),
    (Sort::FormErr, "formerr"),
    (Sort::NotImp, "notimp"),
    (Sort::BadVers, "badvers"),
    (Sort::ServFail, "servfail"),
    (Sort::Truncated, "truncated"),
];

/// The server's counters.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) queries_udp: Arc<Counter>,
    pub(crate) queries_tcp: Arc<Counter>,
    replies: [Arc<Counter>; SORTS.len()],
    dropped: Arc<Counter>,
    limited: Arc<Counter>,
    unsent: Arc<Counter>,
    pub(crate) tcp: Arc<Counter>,
    pub(crate) tcp_refused: Arc<Counter>,
    pub(crate) transfers: Arc<Counter>,
    pub(crate) notified: Arc<Counter>,
    pub(crate) unheard: Arc<Counter>,
    pub(crate) services: Arc<Gauge>,
    pub(crate) serial: Arc<Gauge>,
}

impl Metrics {
    /// Registers them.
    pub(crate) fn new(registry: &Registry) -> Self {
        let queries = |transport| {
            let help = "Questions that came.";
            registry.counter("landfall_dns_queries_total", help, &label("transport", transport))
        };
        let counter = |name, help| registry.counter(name, help, "");
        let notify = |outcome| {
            let help = "Zones that secondaries were told have changed.";
            registry.counter("landfall_dns_notifies_total", help, &label("outcome", outcome))
        };
        Self {
            queries_udp: queries("udp"),
            queries_tcp: queries("tcp"),
            replies: SORTS.map(|(_, name)| {
                registry.counter(
                    "landfall_dns_replies_total",
                    "Replies by what they say.",
                    &label("sort", name),
                )
            }),
            dropped: counter("landfall_dns_dropped_total", "Packets that were not answered."),
            limited: counter("landfall_dns_limited_total", "Replies held back by the rate limit."),
            unsent: counter("landfall_dns_unsent_total", "Replies that could not be sent."),
            tcp: counter("landfall_dns_tcp_connections_total", "TCP connections that were taken."),
            tcp_refused: counter("landfall_dns_tcp_refused_total", "TCP connections over the limit."),
            transfers: counter("landfall_dns_transfers_total", "Zones that were transferred."),
            notified: notify("heard"),
            unheard: notify("unheard"),
            services: registry.gauge("landfall_dns_services", "Services that have names.", ""),
            serial: registry.gauge("landfall_dns_serial", "The zones' serial number.", ""),
        }
    }

    /// Counts one reply.
    pub(crate) fn count_one(&self, sort: Sort) {
        if let Some(counter) = self.replies.get(sort as usize) {
            counter.inc();
        }
    }
}

/// What one thread has counted since it last handed over.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) queries: u64,
    replies: [u64; SORTS.len()],
    pub(crate) dropped: u64,
    limited: u64,
    pub(crate) unsent: u64,
}

impl Tally {
    /// Counts a reply.
    pub(crate) fn count(&mut self, sort: Sort, pass: Pass) {
        if let Some(count) = self.replies.get_mut(sort as usize) {
            *count += 1;
        }
        self.limited += u64::from(pass != Pass::Send);
    }

    /// Hands over.
    pub(crate) fn flush(&mut self, metrics: &Metrics) {
        let add = |counter: &Counter, count: &mut u64| {
            if *count > 0 {
                counter.add(std::mem::take(count));
            }
        };
        add(&metrics.queries_udp, &mut self.queries);
        add(&metrics.dropped, &mut self.dropped);
        add(&metrics.limited, &mut self.limited);
        add(&metrics.unsent, &mut self.unsent);
        for (counter, count) in metrics.replies.iter().zip(&mut self.replies) {
            add(counter, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sort_has_its_own_counter() {
        for (at, (sort, _)) in SORTS.iter().enumerate() {
            assert_eq!(*sort as usize, at);
        }
        let registry = Registry::default();
        let metrics = Metrics::new(&registry);
        let mut tally = Tally { queries: 2, ..Tally::default() };
        tally.count(Sort::NxDomain, Pass::Drop);
        tally.flush(&metrics);
        tally.flush(&metrics);
        let text = registry.render();
        for line in [
            "landfall_dns_queries_total{transport=\"udp\"} 2",
            "landfall_dns_replies_total{sort=\"nxdomain\"} 1",
            "landfall_dns_limited_total 1",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
