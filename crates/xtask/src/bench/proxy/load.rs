//! One run of a load generator, and what it cost the proxy.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::contender::{Contender, FAR};
use crate::shell::output;

/// Whose figures are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    /// HTTP/1.1.
    Wrk,
    /// HTTP/2.
    H2load,
}

/// One way of loading.
pub(super) struct Load {
    pub(super) name: &'static str,
    /// Which of a contender's ports: plain, TLS.
    pub(super) port: usize,
    pub(super) tool: Tool,
    pub(super) connections: u32,
    /// The host that is asked for.
    pub(super) host: &'static str,
}

/// A host whose service is beside the proxy.
pub(super) const NEAR: &str = "svc-1.example.com";

/// Requests a second where they come at their own pace: a fraction of what any of the servers carries, so that what is seen is how long they
/// take, and not how long the machine's queues are.
pub(super) const PACE: u32 = 5_000;

/// All of them.
pub(super) const LOADS: &[Load] = &[
    Load { name: "HTTP/1.1", port: 0, tool: Tool::Wrk, connections: 64, host: NEAR },
    Load { name: "HTTP/1.1 over TLS", port: 1, tool: Tool::Wrk, connections: 64, host: NEAR },
    Load { name: "HTTP/1.1 through two clusters", port: 0, tool: Tool::Wrk, connections: 64, host: FAR },
    Load { name: "HTTP/2 over TLS", port: 1, tool: Tool::H2load, connections: 16, host: NEAR },
    Load { name: "HTTP/2 through two clusters", port: 1, tool: Tool::H2load, connections: 16, host: FAR },
];

/// What a run says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// CPU time of the proxy's process for each answered request.
    pub(super) cpu_us: f64,
    /// Answers a second.
    pub(super) per_second: f64,
    /// Of a hundred requests, the slowest but one took no longer.
    pub(super) p99: Latency,
    /// The same where requests come at their own pace.
    pub(super) paced_p99: Latency,
    /// Requests that were not answered well.
    pub(super) failed: u64,
}

/// How long something took, and what part of the machine's time its host gave to others meanwhile: nothing is fast without a processor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latency {
    pub(super) ms: f64,
    pub(super) stolen: f64,
}

/// Rounds in which this much more was stolen than in the quietest still count.
const STOLEN_MORE: f64 = 0.01;

impl Latency {
    /// The middle of the quietest rounds.
    fn quietest(all: &[Self]) -> Self {
        let least = all.iter().map(|one| one.stolen).fold(f64::INFINITY, f64::min);
        let mut quiet: Vec<Self> =
            all.iter().filter(|one| one.stolen <= least + STOLEN_MORE).copied().collect();
        quiet.sort_by(|one, two| one.ms.total_cmp(&two.ms));
        quiet.get(quiet.len() / 2).copied().unwrap_or_default()
    }
}

impl Figures {
    /// As JSON.
    pub(super) fn json(&self) -> Value {
        let Self { cpu_us, per_second, p99, paced_p99, failed } = self;
        json!({
            "cpuMicrosPerRequest": cpu_us, "perSecond": per_second, "p99Millis": p99.ms, "p99Stolen": p99.stolen,
            "pacedP99Millis": paced_p99.ms, "pacedP99Stolen": paced_p99.stolen, "failed": failed
        })
    }

    /// Each figure as it is in the middle of the runs, latencies of the quietest of them; failures are never hidden.
    pub(super) fn middle(all: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| {
            let mut all: Vec<f64> = all.iter().map(figure).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or_default()
        };
        Self {
            cpu_us: of(|run| run.cpu_us),
            per_second: of(|run| run.per_second),
            p99: Latency::quietest(&all.iter().map(|run| run.p99).collect::<Vec<_>>()),
            paced_p99: Latency::quietest(&all.iter().map(|run| run.paced_p99).collect::<Vec<_>>()),
            failed: all.iter().map(|figures| figures.failed).sum(),
        }
    }
}

/// Loads a proxy for some seconds as much as it can take, and for as long at an easy pace.
pub(super) fn run(contender: &Contender, load: &Load, seconds: u32) -> Result<Figures> {
    let (before, stolen) = (contender.cpu_us()?, Stolen::new()?);
    let mut figures = match load.tool {
        Tool::Wrk => wrk(contender, load, seconds)?,
        Tool::H2load => h2load(contender, load, seconds, None)?,
    };
    let after = contender.cpu_us()?;
    let count = (figures.per_second * f64::from(seconds)).max(1.0);
    figures.cpu_us = (after - before) / count;
    figures.p99.stolen = stolen.part()?;
    let paced = at_pace(contender, load, seconds)?;
    (figures.paced_p99, figures.failed) = (paced.p99, figures.failed + paced.failed);
    Ok(figures)
}

/// Loads a proxy for some seconds at an easy pace.
pub(super) fn at_pace(contender: &Contender, load: &Load, seconds: u32) -> Result<Figures> {
    let stolen = Stolen::new()?;
    let mut figures = h2load(contender, load, seconds, Some(PACE))?;
    figures.p99.stolen = stolen.part()?;
    Ok(figures)
}

/// What the machine's host gives to others from now on.
struct Stolen([u64; 2]);

impl Stolen {
    fn new() -> Result<Self> {
        Self::read(&std::fs::read_to_string("/proc/stat")?).context("an odd /proc/stat").map(Self)
    }

    /// Which part of the machine's time it was.
    fn part(&self) -> Result<f64> {
        let [stolen, all] = Self::new()?.0;
        let count = |now: u64, then: u64| u32::try_from(now.saturating_sub(then)).map_or(0.0, f64::from);
        Ok(count(stolen, self.0[0]) / count(all, self.0[1]).max(1.0))
    }

    /// What was stolen, and all, of all processors since the start.
    fn read(stat: &str) -> Option<[u64; 2]> {
        let times = stat.lines().next()?.split_whitespace().skip(1).take(8);
        let times: Vec<u64> = times.map(str::parse).collect::<Result<_, _>>().ok()?;
        Some([*times.get(7)?, times.iter().sum()])
    }
}

fn wrk(contender: &Contender, load: &Load, seconds: u32) -> Result<Figures> {
    let mut wrk = Command::new("wrk");
    wrk.args(["-t", "1", "-c", &load.connections.to_string(), "-d", &format!("{seconds}s"), "--latency"]);
    wrk.args(["-H", &format!("Host: {}", load.host), &contender.url(load.port, "127.0.0.1")]);
    let said = output(&mut wrk)?;
    let word = |line: &str, at: usize| {
        let line = said.lines().find(|one| one.trim_start().starts_with(line));
        line.and_then(|line| line.split_whitespace().nth(at)).map(str::to_owned)
    };
    let per_second = word("Requests/sec:", 1).and_then(|text| text.parse().ok());
    let p99 = word("99%", 1).and_then(|text| millis(&text));
    let bad = word("Non-2xx", 4).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let errors = said.lines().find(|line| line.contains("Socket errors"));
    let errors: u64 =
        errors.map_or(0, |line| line.split([' ', ',']).filter_map(|word| word.parse::<u64>().ok()).sum());
    Ok(Figures {
        cpu_us: 0.0,
        per_second: per_second.with_context(|| format!("wrk says no rate: {said}"))?,
        p99: Latency { ms: p99.with_context(|| format!("wrk says no latency: {said}"))?, stolen: 0.0 },
        paced_p99: Latency::default(),
        failed: bad + errors,
    })
}

fn h2load(contender: &Contender, load: &Load, seconds: u32, pace: Option<u32>) -> Result<Figures> {
    let mut h2load = Command::new("h2load");
    let log = std::env::temp_dir().join(format!("landfall-h2load-{}", std::process::id()));
    let _ = std::fs::remove_file(&log);
    let streams = if load.tool == Tool::H2load { "10" } else { "1" };
    h2load.args(["-t", "1", "-c", &load.connections.to_string(), "-m", streams, "-D", &seconds.to_string()]);
    h2load.args((load.tool == Tool::Wrk).then_some("--h1"));
    if let Some(pace) = pace {
        h2load.arg(format!("--rps={}", f64::from(pace) / f64::from(load.connections)));
    }
    h2load.arg("--log-file").arg(&log);
    // The name that is asked for is in the URL; where it is, is told apart.
    h2load.args(["--connect-to", &format!("127.0.0.1:{}", contender.ports[load.port])]);
    h2load.arg(contender.url(load.port, load.host));
    let said = output(&mut h2load)?;
    let rate = said
        .lines()
        .find(|line| line.starts_with("finished in"))
        .and_then(|line| line.split(", ").nth(1)?.split_whitespace().next()?.parse().ok());
    let requests = said.lines().find(|line| line.starts_with("requests:")).unwrap_or_default();
    let number = |what: &str| {
        let part = requests.split(", ").find(|part| part.ends_with(what))?;
        part.split_whitespace().next()?.parse::<u64>().ok()
    };
    let ms = percentile(&std::fs::read_to_string(&log).unwrap_or_default());
    let _ = std::fs::remove_file(&log);
    Ok(Figures {
        cpu_us: 0.0,
        per_second: rate.with_context(|| format!("h2load says no rate: {said}"))?,
        p99: Latency { ms, stolen: 0.0 },
        paced_p99: Latency::default(),
        failed: number("failed").unwrap_or(0) + number("errored").unwrap_or(0),
    })
}

/// The 99th percentile of h2load's log: a line for each request, its third word the microseconds.
fn percentile(log: &str) -> f64 {
    let mut all: Vec<u32> = log.lines().filter_map(|line| line.split('\t').nth(2)?.parse().ok()).collect();
    all.sort_unstable();
    all.get(all.len() * 99 / 100).map_or(0.0, |us| f64::from(*us) / 1e3)
}

/// `1.50ms`, `980.00us`, `1.02s`.
fn millis(text: &str) -> Option<f64> {
    let units = [("us", 1e-3), ("ms", 1.0), ("s", 1e3)];
    let (unit, factor) = units.into_iter().find(|(unit, _)| text.ends_with(unit))?;
    Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_unit() {
        for (text, want) in
            [("1.50ms", Some(1.5)), ("980.00us", Some(0.98)), ("1.02s", Some(1020.0)), ("x", None)]
        {
            assert_eq!(millis(text), want, "{text}");
        }
        assert!((percentile("1\t200\t1000\n2\t200\t3000\n") - 3.0).abs() < 1e-9);
    }

    #[test]
    fn latencies_are_those_of_the_quietest_rounds() {
        assert_eq!(Stolen::read("cpu  1 2 3 4 5 6 7 8 9 9\ncpu0 1\n"), Some([8, 36]));
        assert_eq!(Stolen::read("cpu 1 2"), None);
        let of = |pairs: &[(f64, f64)]| {
            pairs.iter().map(|&(ms, stolen)| Latency { ms, stolen }).collect::<Vec<_>>()
        };
        for (all, want) in [
            (of(&[(5.0, 0.3), (2.0, 0.01), (9.0, 0.2), (3.0, 0.005), (4.0, 0.0)]), 3.0),
            (of(&[(1.0, 0.0), (2.0, 0.0), (9.0, 0.0)]), 2.0),
            (of(&[(1.0, 0.5), (7.0, 0.1)]), 7.0),
        ] {
            assert!((Latency::quietest(&all).ms - want).abs() < 1e-9, "{all:?}");
        }
    }
}
