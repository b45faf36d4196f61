//! One loss: the holder of an address is broken under the eyes of a client and of an ear on the link, and mended again.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use landfall_rig::client::Client;
use landfall_rig::ear::Ear;
use landfall_rig::front::VIP;
use landfall_rig::{Link, Node};

use super::until;
use crate::shell::output;

/// So many answers in a row are enough to say that somebody answers.
const ANSWERS: usize = 50;
/// So often everybody on the link is asked who has the address.
const QUESTIONS: usize = 5;

/// What the holder of an address loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// What answers requests.
    Proxy,
    /// All of keepalived.
    Keepalived,
    /// What watches over keepalived.
    Keeper,
    /// Its link.
    Link,
    /// Its power.
    Node,
}

/// All of them.
pub(super) const LOSSES: [Loss; 5] = [Loss::Proxy, Loss::Keepalived, Loss::Keeper, Loss::Link, Loss::Node];

impl Loss {
    /// In words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Proxy => "the edge, kill -9 (by hand: nginx)",
            Self::Keepalived => "keepalived, kill -9",
            Self::Keeper => "the keeper, kill -9",
            Self::Link => "its link",
            Self::Node => "its node",
        }
    }
}

/// What came of it.
pub(super) struct Outcome {
    /// The longest time without an answer.
    pub(super) lost: Duration,
    /// How often somebody said that the address is its own after another one had said so.
    pub(super) doubles: usize,
}

/// Two nodes, one of which holds the address.
pub(super) trait Contender {
    /// Where they are; the last node is the client's.
    fn link(&self) -> &Link;

    /// A node of the two.
    fn node(&self, at: usize) -> Result<&Node>;

    /// Whether there is such a thing to lose.
    fn has(&self, loss: Loss) -> bool;

    /// Takes it from a node.
    fn take(&mut self, loss: Loss, at: usize) -> Result<()>;

    /// Gives it back.
    fn mend(&mut self, loss: Loss, at: usize) -> Result<()>;

    /// Waits until one node holds the address and the other one stands by; which one holds it.
    fn settled(&self) -> Result<usize>;

    /// Whether whoever comes back leaves the address where it is.
    fn leaves(&self) -> bool;

    /// A client that asks in a loop.
    fn client(&self) -> Result<Client>;
}

/// Loses something once.
pub(super) fn once(contender: &mut dyn Contender, loss: Loss) -> Result<Outcome> {
    let holder = contender.settled()?;
    let other = 1_usize.saturating_sub(holder);
    let client = contender.client()?;
    let ear = Ear::start(contender.link().command("tcpdump"), "br0")?;
    until("the holder is heard", || Ok(!ear.speakers().is_empty()))?;
    until("the client is answered", || Ok(client.answers() > ANSWERS))?;
    let since = Instant::now();
    contender.take(loss, holder)?;
    until("the other one has the address", || Ok(contender.node(other)?.has(IpAddr::V4(VIP))?))?;
    let answered = client.answers();
    until("the client is answered again", || Ok(client.answers() > answered + ANSWERS))?;
    let (lost, _) = client.outage(since);
    ask_everybody(contender)?;
    if contender.leaves() {
        contender.mend(loss, holder)?;
        contender.settled()?;
        ask_everybody(contender)?;
        return Ok(Outcome { lost, doubles: doubles(&ear) });
    }
    let doubles = doubles(&ear);
    contender.mend(loss, holder)?;
    Ok(Outcome { lost, doubles })
}

/// Lets the client ask the whole link who has the address: whoever has it and is not asked any more would be silent.
fn ask_everybody(contender: &dyn Contender) -> Result<()> {
    let client = contender.client()?;
    for question in 1..=QUESTIONS {
        if let Some(node) = contender.link().nodes().last() {
            output(forget(&mut node.command("ip")))?;
        }
        until("the client is answered", || Ok(client.answers() >= question * QUESTIONS))?;
    }
    Ok(())
}

fn forget(ip: &mut Command) -> &mut Command {
    ip.args(["neighbour", "flush", "dev", "eth0"])
}

/// How often somebody spoke up for the address again after another one had: who spoke first may be silent from then on, or two hold it.
fn doubles(ear: &Ear) -> usize {
    let again = |all: &[String]| all.len() - all.iter().collect::<BTreeSet<_>>().len();
    again(&ear.speakers()) + again(&ear.claimants(IpAddr::V4(VIP)))
}
