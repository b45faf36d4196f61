//! Delay and loss between two places, in user space: the kernel here has no netem.
//!
//! A rule on the backbone hands the packets between the two to a queue. A thread of ours takes them, holds each for its
//! time, and lets it go on, or not.

use std::collections::VecDeque;
use std::fmt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nfq::{Message, Queue, Verdict};

use crate::Error;
use crate::plan::Subnet;
use crate::program::output;
use crate::world::World;

/// How exactly a packet's time is kept.
const TICK: Duration = Duration::from_millis(1);
/// How many packets may wait. More go on at once.
const WAITING_MAX: u32 = 20_000;

/// A delay that is in force; ends when dropped, and the packets that it holds go on.
pub(crate) struct Delay {
    number: u16,
    time: Duration,
    loss_percent: u8,
    rules: Vec<Vec<String>>,
    world: Arc<World>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Delay {
    /// Starts one between two places.
    pub(crate) fn start(
        world: &Arc<World>,
        number: u16,
        places: &(Vec<Subnet>, Vec<Subnet>),
        time: Duration,
        loss_percent: u8,
    ) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, opened) = std::sync::mpsc::sync_channel(1);
        let (namespace, stopped) = (world.namespace()?, stop.clone());
        let thread = std::thread::spawn(move || {
            let queue = open(&namespace, number);
            let failed = queue.as_ref().err().map(std::string::ToString::to_string);
            // Nobody waits any more only if the starter is gone.
            let _ = ready.send(failed);
            if let Ok(queue) = queue {
                hold(queue, number, &stopped, time, loss_percent);
            }
        });
        let failed = opened.recv().unwrap_or_else(|_| Some("its thread is gone".into()));
        if let Some(said) = failed {
            return Err(Error::Api { what: "cannot open a packet queue (nfnetlink_queue)".into(), said });
        }
        let mut delay = Self {
            number,
            time,
            loss_percent,
            rules: Vec::new(),
            world: world.clone(),
            stop,
            thread: Some(thread),
        };
        for rule in rules(number, places) {
            output(delay.iptables("-A").args(&rule))?;
            delay.rules.push(rule);
        }
        Ok(delay)
    }

    /// The number of its queue.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    fn iptables(&self, verb: &str) -> Command {
        let mut command = self.world.backbone("iptables");
        command.args(["-w", "-t", "mangle", verb]);
        command
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        for rule in &self.rules {
            // Fails only if the backbone is gone.
            let _ = output(self.iptables("-D").args(rule));
        }
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms each way, {} % lost", self.time.as_millis(), self.loss_percent)
    }
}

/// The rules that hand packets over, in both directions. iptables, because the kernel's nftables has no queue here.
fn rules(number: u16, (a, b): &(Vec<Subnet>, Vec<Subnet>)) -> Vec<Vec<String>> {
    let mut rules = Vec::new();
    for (from, to) in [(a, b), (b, a)] {
        for source in from {
            for destination in to {
                let text = format!(
                    "FORWARD -s {source} -d {destination} -j NFQUEUE --queue-num {number} --queue-bypass"
                );
                rules.push(text.split(' ').map(str::to_owned).collect());
            }
        }
    }
    rules
}

fn open(namespace: &std::fs::File, number: u16) -> std::io::Result<Queue> {
    use std::os::fd::AsFd as _;
    let network = rustix::thread::LinkNameSpaceType::Network;
    rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(network))?;
    let mut queue = Queue::open()?;
    queue.bind(number)?;
    queue.set_queue_max_len(number, WAITING_MAX)?;
    // What is in packets is nobody's business here, and to carry it around costs the host more than anything else.
    queue.set_copy_range(number, 0)?;
    queue.set_recv_gso(number, true)?;
    // On a busy host this thread may come too late for its socket: a packet that is early harms nobody, one that is lost takes its
    // sender a long time to find out.
    queue.set_fail_open(number, true)?;
    queue.set_nonblocking(true);
    Ok(queue)
}

fn hold(mut queue: Queue, number: u16, stop: &AtomicBool, time: Duration, loss_percent: u8) {
    let mut held: VecDeque<(Instant, Message)> = VecDeque::new();
    let mut seen: u64 = 0;
    loop {
        let stopping = stop.load(Ordering::Relaxed);
        while let Ok(mut message) = queue.recv() {
            seen += 1;
            message.set_verdict(if lost(seen, loss_percent) { Verdict::Drop } else { Verdict::Accept });
            held.push_back((Instant::now() + time, message));
        }
        let now = Instant::now();
        while held.front().is_some_and(|(due, _)| *due <= now || stopping) {
            if let Some((_, message)) = held.pop_front() {
                // A verdict that the kernel does not want is about a packet that it has given up.
                let _ = queue.verdict(message);
            }
        }
        if stopping {
            // Programs that were started meanwhile have a copy of its socket: that it is closed here is not enough.
            let _ = queue.unbind(number);
            return;
        }
        std::thread::sleep(TICK);
    }
}

/// Whether the nth packet is lost: the share that was asked for, spread without a pattern, and the same in every run.
fn lost(number: u64, percent: u8) -> bool {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 29;
    mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 32;
    mixed % 100 < u64::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_as_many_packets_are_lost_as_asked_for() {
        for percent in [0u8, 1, 20, 100] {
            let gone = (0..100_000).filter(|number| lost(*number, percent)).count();
            let want = usize::from(percent) * 1000;
            assert!(gone.abs_diff(want) <= want / 10, "{percent} %: {gone}");
        }
    }

    #[test]
    fn both_directions_and_load_balancers_are_delayed() {
        let plan = crate::plan::plan("t", 200, 2, 1).unwrap();
        let rules = rules(7, &(plan.place("us-east").unwrap(), plan.place("eu-west").unwrap()));
        let rules: Vec<String> = rules.iter().map(|words| words.join(" ")).collect();
        assert_eq!(rules.len(), 8);
        assert!(rules.iter().any(|rule| rule.contains("-s 10.200.102.0/24 -d 10.200.1.0/24")), "{rules:?}");
    }
}
