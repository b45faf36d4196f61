//! `Usage`: what this edge uses of its machine: processor, memory, bytes, connections; and how much there is.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use landfall_api::landfall::Load;
use landfall_runtime::clock;
use parking_lot::Mutex;

/// The kernel counts processor time in hundredths of a second, for everybody who asks.
const TICKS_PER_S: f64 = 100.0;
/// The size of a page.
const PAGE: u64 = 4096;

/// What was counted when it was last asked for.
#[derive(Clone, Copy)]
struct Counted {
    at: Instant,
    ticks: u64,
    bytes: u64,
}

/// Counts between two reports.
pub(crate) struct Usage {
    before: Mutex<Counted>,
}

impl Usage {
    /// Counts from now on.
    pub(crate) fn new() -> Self {
        Self { before: Mutex::new(count()) }
    }

    /// What is used now; rates are since the last call.
    pub(crate) fn load(&self, connections: usize) -> Load {
        let now = count();
        let before = std::mem::replace(&mut *self.before.lock(), now);
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64().max(0.001);
        #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let cores = rate(now.ticks, before.ticks) / TICKS_PER_S;
        Load {
            cpu: Some(Quantity(format!("{:.0}m", cores * 1000.0))),
            memory: resident().map(|bytes| Quantity(bytes.to_string())),
            bandwidth: Some(Quantity(format!("{:.0}", rate(now.bytes, before.bytes)))),
            connections: i64::try_from(connections).ok(),
            ..Load::default()
        }
    }

    /// How much there is.
    pub(crate) fn capacity() -> BTreeMap<String, Quantity> {
        let cores = std::thread::available_parallelism().map(std::num::NonZero::get).ok();
        let cpu = cores.map(|cores| ("cpu".to_owned(), Quantity(cores.to_string())));
        let memory = memory().map(|bytes| ("memory".to_owned(), Quantity(bytes.to_string())));
        cpu.into_iter().chain(memory).collect()
    }
}

fn count() -> Counted {
    let ticks = fs::read_to_string("/proc/self/stat").ok().and_then(|text| ticks(&text)).unwrap_or(0);
    let bytes = fs::read_to_string("/proc/net/dev").map(|text| bytes(&text)).unwrap_or(0);
    Counted { at: clock::instant(), ticks, bytes }
}

/// The time that a process has used, as the kernel tells it.
fn ticks(stat: &str) -> Option<u64> {
    // The name stands in brackets and may hold anything.
    let rest = stat.rsplit_once(')')?.1;
    let mut numbers = rest.split_whitespace().skip(11).map(str::parse::<u64>);
    let (user, system) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    user.checked_add(system)
}

/// The bytes that went over all links but the loopback.
fn bytes(devices: &str) -> u64 {
    let lines = devices.lines().filter_map(|line| line.split_once(':'));
    let links = lines.filter(|(name, _)| name.trim() != "lo");
    let sum = |(_, numbers): (&str, &str)| {
        let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|one| one.parse().ok()).collect();
        let at = |place: usize| numbers.get(place).copied().unwrap_or(0);
        at(0).saturating_add(at(8))
    };
    links.map(sum).fold(0, u64::saturating_add)
}

fn resident() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    text.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(PAGE)
}

/// The memory that this process may use: what its container may, else what the machine has.
fn memory() -> Option<u64> {
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|text| text.trim().parse().ok());
    limit.or_else(|| {
        let text = fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 5 1000 10";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("7"), None);
        let devices = "Inter-| Receive\n face |bytes\n    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n  eth0: 100 1 0 0 0 0 0 0 40 1 0 0 0 0 0 0\n";
        assert_eq!(bytes(devices), 140);
        let load = Usage::new().load(3);
        assert!(load.memory.is_some() && load.connections == Some(3));
        assert!(Usage::capacity().contains_key("memory"));
    }
}
