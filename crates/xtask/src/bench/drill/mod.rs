//! The drill: the cluster that answers is lost under load, and comes back; behind us, nginx and haproxy.
//!
//! Three clusters of a playground, or real ones of a rig. Clients come in at the first, whose own pods are not to be asked; the second answers,
//! and is lost: it dies, or falls silent. Ours is the edge of the first cluster. nginx and haproxy are configured as one would by hand, with the
//! three clusters' load balancers and the checks they have. When the lost one was out of rotation is told by their access logs. Each has the machine to itself while it is measured; all face the same.

mod asked;
mod overflow;
mod peers;
mod real;
mod simulated;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use landfall_sim::clients::{Answer, Asking, Clients, tally};
use serde_json::{Value, json};

use self::overflow::Overflow;
use self::peers::PEERS;
use crate::setup;
use crate::shell::say;

/// A request that took longer was noticed.
const NOTICED: Duration = Duration::from_millis(250);
const SECOND: Duration = Duration::from_secs(1);
/// Who is put between clients and clusters.
const SERVERS: [&str; 3] = ["landfall", "nginx", "haproxy"];
/// How long a client waits.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub(super) struct Settings {
    /// Shorter phases.
    #[arg(long)]
    quick: bool,
    /// On real clusters, not simulated ones. Needs root.
    #[arg(long)]
    rig: bool,
    /// Requests a second.
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    rate: u32,
    /// The binary to measure; a release build is made when none is given.
    #[arg(long, value_name = "FILE")]
    landfall: Option<PathBuf>,
    /// Also write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only behind these: landfall, nginx, haproxy.
    #[arg(long = "server", value_name = "NAME", value_parser = SERVERS)]
    servers: Vec<String>,
    /// Also tell what became of the requests of every second.
    #[arg(long)]
    seconds: bool,
}

/// Where a drill takes place.
trait Place {
    /// What it is, in words.
    fn name(&self) -> &'static str;
    /// What can happen to a cluster.
    fn losses(&self) -> &'static [Loss];
    /// Where our edge carries requests, and for which host.
    fn ours(&self) -> (SocketAddr, &str);
    /// The load balancers of the three clusters, the one that answers first.
    fn balancers(&self) -> &[SocketAddr; 3];
    /// The names of the cluster that answers, and of the next.
    fn clusters(&self) -> [&str; 2];
    /// Where proxies stand that are to be measured against our edge.
    fn beside(&self) -> Beside;
    /// A program there, to be started.
    fn command(&self, program: &str) -> Result<Command>;
    /// The cluster that answers is lost.
    fn lose(&self, loss: &Loss) -> Result<()>;
    /// It is back, and everything that is of ours is whole.
    fn heal(&self) -> Result<()>;
    /// What our edges have written down of requests; none where they do not.
    fn log(&self) -> Result<Option<String>> {
        Ok(None)
    }
    /// The cluster where clients come in, which does not answer while others are lost.
    fn entrance(&self) -> &str;
    /// The federated Service that is asked.
    fn service(&self) -> &str;
    /// Gives the Service a policy, and lets the cluster where clients come in answer, too.
    fn limit(&self, policy: &str) -> Result<()>;
    /// Waits until clients at this address are answered by the cluster that should.
    fn settled(&self, address: SocketAddr, host: &str) -> Result<()>;
}

/// A place beside our edge.
#[derive(Clone, Copy)]
struct Beside {
    /// Where a proxy that stands there listens.
    listens: IpAddr,
    /// Where it speaks from, if that has to be said.
    speaks: Option<IpAddr>,
}

/// How a cluster is lost.
struct Loss {
    /// In words.
    name: &'static str,
    /// What the place is told.
    fault: &'static [&'static str],
}

/// How long each part of a drill takes.
#[derive(Clone, Copy)]
struct Phases {
    before: Duration,
    lost: Duration,
    back: Duration,
}

/// What happened when, from the beginning.
struct When {
    /// The beginning, since the epoch.
    began: Duration,
    /// The cluster was lost.
    lost: Duration,
    /// It began to be healed.
    healing: Duration,
    /// It was.
    healed: Duration,
}

/// What a drill showed.
struct Outcome {
    loss: &'static str,
    server: &'static str,
    requests: usize,
    failed: usize,
    noticed: usize,
    longest: Duration,
    /// From the loss until the last request came that was sent to the lost cluster; none where nobody wrote that down.
    out: Option<Duration>,
    /// From the loss until a second began in which no request failed or was slow; none when that never came.
    quiet: Option<Duration>,
    /// From when it was healed until it answered again.
    back: Option<Duration>,
}

pub(super) fn run(settings: &Settings) -> Result<()> {
    setup::install(PEERS)?;
    let landfall = settings.landfall.clone().map_or_else(super::landfall, Ok)?;
    let directory = std::env::temp_dir().join(format!("landfall-bench-drill-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let result = drill(settings, &landfall, &directory);
    // Nothing more can be done about files that do not go.
    let _ = std::fs::remove_dir_all(&directory);
    let (place, outcomes, overflow) = result?;
    show(place, settings.rate, &outcomes);
    overflow.show();
    if let Some(file) = &settings.json {
        let all: Vec<Value> = outcomes.iter().map(Outcome::json).collect();
        let all = json!({"rate": settings.rate, "drills": all, "overflow": overflow.json()});
        std::fs::write(file, serde_json::to_vec_pretty(&all)?)?;
    }
    Ok(())
}

type Drilled = (&'static str, Vec<Outcome>, Overflow);

fn drill(settings: &Settings, landfall: &Path, directory: &Path) -> Result<Drilled> {
    let place: Box<dyn Place> = if settings.rig {
        Box::new(real::Real::start(landfall, directory)?)
    } else {
        Box::new(simulated::Simulated::start(landfall, directory)?)
    };
    let s = Duration::from_secs;
    let phases = if settings.quick {
        Phases { before: s(12), lost: s(8), back: s(20) }
    } else {
        Phases { before: s(12), lost: s(20), back: s(40) }
    };
    let mut outcomes = Vec::new();
    for loss in place.losses() {
        let asked =
            |server: &&str| settings.servers.is_empty() || settings.servers.iter().any(|name| name == server);
        for server in SERVERS.into_iter().filter(asked) {
            say(&format!("==> {}: {server}", loss.name));
            let (peer, address, host) = if server == "landfall" {
                let (address, host) = place.ours();
                (None, address, host.to_owned())
            } else {
                let peer = peers::start(server, directory, &*place)?;
                let address = peer.address;
                (Some(peer), address, "localhost".to_owned())
            };
            place.settled(address, &host)?;
            let asking = Asking {
                addresses: vec![address],
                host,
                path: "/".into(),
                per_second: settings.rate,
                patience: PATIENCE,
            };
            let (when, answers) = once(&*place, loss, asking, phases)?;
            if settings.seconds {
                seconds(&answers);
            }
            let log = match &peer {
                Some(peer) => Some(std::fs::read_to_string(&peer.log)?),
                None => place.log()?,
            };
            let near = place.clusters()[0];
            let asked = log.map(|log| asked::of(server, &log, near, place.balancers()[0]));
            outcomes.push(Outcome {
                loss: loss.name,
                server,
                ..outcome(&answers, asked.as_deref(), near, &when)
            });
            drop(peer);
        }
    }
    say("==> overflow");
    let overflow = overflow::run(&*place)?;
    Ok((place.name(), outcomes, overflow))
}

/// The cluster that answers at an address.
fn who(address: SocketAddr, host: &str) -> Result<String> {
    let asking = Asking {
        addresses: vec![address],
        host: host.to_owned(),
        path: "/".into(),
        per_second: 1,
        patience: Duration::from_secs(5),
    };
    let answers = Clients::begin(asking)?.end();
    let first = answers.into_iter().next().context("nobody asked")?;
    first.by.map_err(anyhow::Error::msg)
}

fn once(
    place: &dyn Place,
    loss: &'static Loss,
    asking: Asking,
    phases: Phases,
) -> Result<(When, Vec<Answer>)> {
    let began = Duration::try_from(Timestamp::now().as_duration())?;
    let clients = Clients::begin(asking).context("no clients")?;
    std::thread::sleep(phases.before);
    let lost = clients.elapsed();
    place.lose(loss)?;
    std::thread::sleep(phases.lost);
    // A cluster that boots takes time of everybody's processors: that is not what its loss costs.
    let healing = clients.elapsed();
    place.heal()?;
    let healed = clients.elapsed();
    std::thread::sleep(phases.back);
    Ok((When { began, lost, healing, healed }, clients.end()))
}

/// Prints who answered the requests that were due in each second, what went wrong, and how long the slowest took.
fn seconds(answers: &[Answer]) {
    for of in answers.chunk_by(|one, next| one.due.as_secs() == next.due.as_secs()) {
        let slowest = of.iter().map(|answer| answer.took).max().unwrap_or_default();
        let all = tally(of).into_iter().map(|(by, count)| match by {
            Ok(cluster) => format!("{count} by {cluster}"),
            Err(error) => format!("{count} failed ({error})"),
        });
        let all: Vec<String> = all.collect();
        let second = of.first().map_or(0, |answer| answer.due.as_secs());
        say(&format!("    {second:>3} s: {}; slowest {:.2} s", all.join(", "), slowest.as_secs_f64()));
    }
}

fn outcome(answers: &[Answer], asked: Option<&[Duration]>, near: &str, when: &When) -> Outcome {
    let When { began, lost, healing, healed } = *when;
    let bad = |answer: &&Answer| answer.by.is_err() || answer.took > NOTICED;
    // A second begins with the loss, or after a request that was not answered well; and ends before the cluster is healed.
    let after = || answers.iter().filter(|answer| answer.due + answer.took >= lost);
    let mut begins = lost;
    for answer in after().filter(|answer| answer.due >= lost).filter(bad) {
        if answer.due >= begins + SECOND {
            break;
        }
        begins = answer.due;
    }
    let quiet = (begins + SECOND <= healing).then(|| begins - lost);
    // It was asked by whoever it answered, and by those of whom the server tells.
    let out = asked.map(|asked| {
        let answered = answers.iter().filter(|answer| answer.by.as_deref() == Ok(near));
        let all = asked.iter().copied().chain(answered.map(|answer| began + answer.due));
        let last = all.filter(|came| (began + lost..began + healing).contains(came)).max();
        last.unwrap_or_default().saturating_sub(began + lost)
    });
    let again = answers.iter().find(|answer| answer.due >= healed && answer.by.as_deref() == Ok(near));
    Outcome {
        loss: "",
        server: "",
        requests: answers.len(),
        failed: answers.iter().filter(|answer| answer.by.is_err()).count(),
        noticed: after().filter(bad).count(),
        longest: after().map(|answer| answer.took).max().unwrap_or_default(),
        out,
        quiet,
        back: again.map(|answer| answer.due.saturating_sub(healed)),
    }
}

impl Outcome {
    fn json(&self) -> Value {
        let s = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        json!({"loss": self.loss, "server": self.server, "requests": self.requests, "failed": self.failed, "noticed": self.noticed,
            "longestS": self.longest.as_secs_f64(), "outOfRotationS": s(self.out), "quietS": s(self.quiet), "backS": s(self.back)})
    }
}

fn show(place: &str, rate: u32, outcomes: &[Outcome]) {
    let s = |time: Option<Duration>, never: &str| {
        time.map_or_else(|| never.to_owned(), |time| format!("{:.2}", time.as_secs_f64()))
    };
    say("");
    say(&format!(
        "| {place}, {rate} requests/s: the cluster that answers | server | requests | failed | over 250 ms | longest, s | out of rotation after, s | all fast again after, s | back after, s |"
    ));
    say("|---|---|--:|--:|--:|--:|--:|--:|--:|");
    for one in outcomes {
        let (out, quiet, back) = (s(one.out, "not told"), s(one.quiet, "never"), s(one.back, "not yet"));
        let Outcome { loss, server, requests, failed, noticed, longest, .. } = one;
        say(&format!(
            "| {loss} | {server} | {requests} | {failed} | {noticed} | {:.2} | {out} | {quiet} | {back} |",
            longest.as_secs_f64()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_noticed() {
        let ms = Duration::from_millis;
        let answer = |due: u64, took: u64, by: Result<&str, &str>| Answer {
            due: ms(due),
            took: ms(took),
            by: by.map(str::to_owned).map_err(str::to_owned),
        };
        let answers = [
            answer(0, 400, Ok("near")),
            answer(900, 1_300, Ok("next")),
            answer(1_100, 1, Err("reset")),
            answer(1_700, 1, Ok("next")),
            answer(2_100, 300, Ok("next")),
            answer(5_000, 1, Ok("next")),
            answer(5_200, 1, Ok("near")),
        ];
        let when = When { began: ms(70_000), lost: ms(1_000), healing: ms(4_000), healed: ms(5_000) };
        // When requests came that were sent to the lost cluster: before, after, and when it was healed.
        let asked = [ms(70_900), ms(71_100), ms(71_400), ms(74_100)];
        let seen = outcome(&answers, Some(&asked), "near", &when);
        assert_eq!((seen.requests, seen.failed, seen.noticed), (7, 1, 3));
        assert_eq!((seen.longest, seen.quiet, seen.back), (ms(1_300), Some(ms(100)), Some(ms(200))));
        assert_eq!(seen.out, Some(ms(400)));
        assert_eq!(outcome(&answers, None, "near", &when).out, None, "nobody wrote it down");
        assert_eq!(outcome(&answers, Some(&[]), "near", &when).out, Some(ms(0)), "none was sent there");
        let when = When { healing: ms(2_000), ..when };
        assert_eq!(outcome(&answers, None, "near", &when).quiet, None, "healed within the second");
    }
}
