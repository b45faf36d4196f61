//! One run of dnsperf, and what it cost the server.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::contender::Contender;
use crate::shell::output;

/// What a run says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// CPU time of the server's process for each answered question.
    pub(super) cpu_us: f64,
    /// Answers a second.
    pub(super) per_second: f64,
    /// Questions without an answer.
    pub(super) lost: u64,
    /// Mean latency.
    pub(super) latency_us: f64,
}

impl Figures {
    /// As JSON.
    pub(super) fn json(&self) -> Value {
        let Self { cpu_us, per_second, lost, latency_us } = self;
        json!({"cpuMicrosPerQuery": cpu_us, "perSecond": per_second, "lost": lost, "latencyMicros": latency_us})
    }

    /// The run in the middle by CPU; lost ones are never hidden.
    pub(super) fn middle(mut all: Vec<Self>) -> Self {
        all.sort_by(|a, b| a.cpu_us.total_cmp(&b.cpu_us));
        let lost = all.iter().map(|figures| figures.lost).sum();
        let middle = all.get(all.len() / 2).copied();
        let none = Self { cpu_us: 0.0, per_second: 0.0, lost: 0, latency_us: 0.0 };
        Self { lost, ..middle.unwrap_or(none) }
    }
}

/// Loads a server for some seconds.
pub(super) fn run(
    contender: &Contender,
    questions: &Path,
    rate: Option<u32>,
    seconds: u32,
) -> Result<Figures> {
    let mut dnsperf = Command::new("dnsperf");
    dnsperf.args(["-s", "127.0.0.1", "-p", &contender.port.to_string(), "-d"]).arg(questions);
    dnsperf.args(["-l", &seconds.to_string(), "-T", "1", "-c", "16", "-q", "512", "-t", "2", "-W"]);
    if let Some(rate) = rate {
        dnsperf.args(["-Q", &rate.to_string()]);
    }
    let before = contender.cpu_us()?;
    let said = output(&mut dnsperf)?;
    let after = contender.cpu_us()?;
    let figure = |name: &str| -> Result<f64> {
        let line = said.lines().find(|line| line.trim_start().starts_with(name));
        let text = line.and_then(|line| line.split_once(':')).map(|(_, rest)| rest);
        let number = text.and_then(|rest| rest.split_whitespace().next());
        number
            .and_then(|number| number.parse().ok())
            .with_context(|| format!("dnsperf says no {name:?}: {said}"))
    };
    let completed = figure("Queries completed")?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    let lost = figure("Queries lost")? as u64;
    Ok(Figures {
        cpu_us: (after - before) / completed.max(1.0),
        per_second: figure("Queries per second")?,
        lost,
        latency_us: figure("Average Latency (s)")? * 1e6,
    })
}
