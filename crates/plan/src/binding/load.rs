//! How much of what a group can carry is used: what its edges report, against its capacity.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use landfall_api::landfall::{EdgeStatus, IngressReplicaSetSpec, Load};
use landfall_api::quantity::Quantity;

/// How much is used of what is used most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// 1.0 when all of it is.
    pub used: f64,
    /// Of what; empty when nothing is known.
    pub of: &'static str,
}

/// Adds up what edges report, and finds what is used most. Requests, connections and bytes count where the group says how many it
/// can carry; processor and memory against the edges' limits, or what edges say that they have.
pub fn measure(spec: &IngressReplicaSetSpec, edges: &[&EdgeStatus]) -> (Load, Measured) {
    let loads = || edges.iter().filter_map(|edge| edge.load.as_ref());
    let sum = |of: fn(&Load) -> Option<f64>| {
        loads()
            .filter_map(of)
            .filter(|value| value.is_finite())
            .fold(None, |sum: Option<f64>, one| Some(sum.unwrap_or(0.0) + one))
    };
    let [cpu, memory, bandwidth] = [
        sum(|load| amount(load.cpu.as_ref())),
        sum(|load| amount(load.memory.as_ref())),
        sum(|load| amount(load.bandwidth.as_ref())),
    ];
    let connections = loads()
        .filter_map(|load| load.connections)
        .fold(None, |sum: Option<i64>, one| Some(sum.unwrap_or(0).saturating_add(one)));
    let requests = sum(|load| load.requests_per_second);
    let total = Load {
        cpu: cpu.map(|cores| Text(format!("{:.0}m", cores * 1000.0))),
        memory: memory.map(|bytes| Text(format!("{bytes:.0}"))),
        bandwidth: bandwidth.map(|bytes| Text(format!("{bytes:.0}"))),
        connections,
        requests_per_second: requests,
        concurrency: sum(|load| load.concurrency),
        errors_per_second: sum(|load| load.errors_per_second),
        ..Load::default()
    };
    let capacity = spec.capacity.clone().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
    let whole = |value: Option<i64>| value.map(|value| value as f64);
    let all = [
        (requests, whole(capacity.requests_per_second), "requests"),
        (whole(connections), whole(capacity.connections), "connections"),
        (bandwidth, amount(capacity.bandwidth.as_ref()), "bandwidth"),
        (cpu, room(spec, edges, "cpu"), "processor"),
        (memory, room(spec, edges, "memory"), "memory"),
    ];
    let shares = all.into_iter().filter_map(|(used, most, of)| {
        let (used, most) = (used?, most.filter(|most| *most > 0.0)?);
        Some(Measured { used: used / most, of })
    });
    (total, shares.max_by(|a, b| a.used.total_cmp(&b.used)).unwrap_or_default())
}

/// How much of a resource all edges together have.
fn room(spec: &IngressReplicaSetSpec, edges: &[&EdgeStatus], resource: &str) -> Option<f64> {
    let limits = spec.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let limit = limits.and_then(|limits| amount(limits.get(resource)));
    let of = |edge: &&EdgeStatus| {
        // Only those that tell how much they use count.
        edge.load.as_ref()?;
        limit.or_else(|| amount(edge.capacity.get(resource)))
    };
    edges.iter().filter_map(of).fold(None, |sum: Option<f64>, one| Some(sum.unwrap_or(0.0) + one))
}

/// A quantity as a number.
fn amount(text: Option<&Text>) -> Option<f64> {
    let quantity = Quantity::parse(&text?.0)?;
    let milli = quantity.milli();
    #[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
    let (milli, whole) = (milli as f64 / 1000.0, quantity.whole() as f64);
    // Thousandths of very large ones do not fit.
    Some(if whole > 1e12 { whole } else { milli })
}
