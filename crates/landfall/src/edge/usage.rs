//! `Usage`: what this edge uses of its machine: processor, memory, bytes, connections; and how much there is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use landfall_api::landfall::Load;
use landfall_runtime::clock;
use landfall_runtime::memory::{self, Memory};
use parking_lot::Mutex;

/// The kernel counts processor time in hundredths of a second, for everybody who asks.
const TICKS_PER_S: f64 = 100.0;

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
            memory: memory::resident().map(|bytes| Quantity(bytes.to_string())),
            bandwidth: Some(Quantity(format!("{:.0}", rate(now.bytes, before.bytes)))),
            connections: i64::try_from(connections).ok(),
            ..Load::default()
        }
    }

    /// How much there is.
    pub(crate) fn capacity() -> BTreeMap<String, Quantity> {
        let cores = std::thread::available_parallelism().map(std::num::NonZero::get).ok();
        let cpu = cores.map(|cores| ("cpu".to_owned(), Quantity(cores.to_string())));
        let memory = Memory::find().map(|all| ("memory".to_owned(), Quantity(all.limit.to_string())));
        cpu.into_iter().chain(memory).collect()
    }
}

fn count() -> Counted {
    let ticks = fs::read_to_string("/proc/self/stat").ok().and_then(|text| ticks(&text)).unwrap_or(0);
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let outward = outward(&read("/proc/net/route"), &read("/proc/net/ipv6_route"));
    let bytes = bytes(&read("/proc/net/dev"), &outward);
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

/// The links with a way to everybody, as the kernel lists ways of IPv4 and of IPv6.
fn outward(routes: &str, routes_v6: &str) -> BTreeSet<String> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let four = routes.lines().map(words).filter_map(|words| match &words[..] {
        [link, to, .., mask, _, _, _] if to == "00000000" && mask == "00000000" => Some(link.clone()),
        _ => None,
    });
    let six = routes_v6.lines().map(words).filter_map(|words| match &words[..] {
        [to, bits, .., link] if bits == "00" && to.bytes().all(|digit| digit == b'0') => Some(link.clone()),
        _ => None,
    });
    four.chain(six).filter(|link| link != "lo").collect()
}

/// The bytes that went over the links with a way to everybody; where there is none, over all but the loopback. An edge with its node's
/// network sees the node's bridges and the plugs of its pods, too, over which the same bytes go again.
fn bytes(devices: &str, outward: &BTreeSet<String>) -> u64 {
    let lines = devices.lines().filter_map(|line| line.split_once(':'));
    let counts = |name: &str| if outward.is_empty() { name != "lo" } else { outward.contains(name) };
    let links = lines.filter(|(name, _)| counts(name.trim()));
    let sum = |(_, numbers): (&str, &str)| {
        let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|one| one.parse().ok()).collect();
        let at = |place: usize| numbers.get(place).copied().unwrap_or(0);
        at(0).saturating_add(at(8))
    };
    links.map(sum).fold(0, u64::saturating_add)
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
        assert_eq!(bytes(devices, &BTreeSet::new()), 140);
        let load = Usage::new().load(3);
        assert!(load.memory.is_some() && load.connections == Some(3));
        assert!(Usage::capacity().contains_key("memory"));
    }
    /// An edge with its node's network told of every byte three times: on the uplink, on the bridge of pods, and on a pod's plug.
    #[test]
    fn bytes_are_counted_once_where_the_node_has_many_links() {
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
            eth0\t00000000\t0101C80A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            cni0\t0001F40A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let none = "0".repeat(32);
        let routes_v6 = format!(
            "{none} 00 {none} 00 {none} 00000400 00000000 00000000 00000003 eth1\n\
             {none} 00 {none} 00 {none} ffffffff 00000001 00000000 00200200 lo\n\
             fe80{} 40 {none} 00 {none} 00000100 00000001 00000000 00000001 cni0\n",
            "0".repeat(28)
        );
        let outward = outward(routes, &routes_v6);
        assert_eq!(outward.iter().map(String::as_str).collect::<Vec<_>>(), ["eth0", "eth1"]);
        let link = |name: &str| format!("{name}: 100 1 0 0 0 0 0 0 40 1 0 0 0 0 0 0\n");
        let devices: String = ["lo", "eth0", "eth1", "cni0", "veth1"].map(link).concat();
        assert_eq!(bytes(&devices, &outward), 280);
    }
}
