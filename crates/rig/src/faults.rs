//! What can be broken in a rig, and healed. All of it is real: processes die, packets are dropped or held back.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::delay::Delay;
use crate::machine::Machine;
use crate::rig::{Rig, Say, lock};
use crate::{Error, render};

/// What is broken on the backbone right now. Pairs are in alphabetical order.
#[derive(Default)]
pub(crate) struct Faults {
    cuts: BTreeSet<(String, String)>,
    delays: BTreeMap<(String, String), Delay>,
}

impl Rig {
    /// Cuts two clusters off from each other, or a cluster from the `host`.
    ///
    /// # Errors
    /// When there is no such place.
    pub fn cut(&self, a: &str, b: &str) -> Result<(), Error> {
        let pair = self.pair(a, b)?;
        let mut faults = lock(&self.faults);
        faults.cuts.insert(pair);
        self.apply_cuts(&faults.cuts)
    }

    /// Holds every packet between two places back for so long, in each direction, and loses some of them.
    ///
    /// # Errors
    /// When there is no such place.
    pub fn delay(&self, a: &str, b: &str, time: Duration, loss_percent: u8) -> Result<(), Error> {
        let pair = self.pair(a, b)?;
        let places = (self.shared.plan.place(a)?, self.shared.plan.place(b)?);
        let mut faults = lock(&self.faults);
        // The old one first: the packets that it holds are let go.
        faults.delays.remove(&pair);
        let number = free_number(faults.delays.values().map(Delay::number));
        let delay = Delay::start(&self.shared.world, number, &places, time, loss_percent)?;
        faults.delays.insert(pair, delay);
        Ok(())
    }

    /// Pulls the plug of a node.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn kill_node(&self, name: &str) -> Result<(), Error> {
        let plan = &self.shared.plan;
        let owner = plan.clusters.iter().find(|cluster| cluster.nodes.iter().any(|node| node.name == name));
        let owner = owner.ok_or_else(|| plan.unknown(name))?;
        self.named(&owner.name)?.kill_node(name);
        Ok(())
    }

    /// Pulls the plug of a whole cluster.
    ///
    /// # Errors
    /// When there is no such cluster.
    pub fn kill_cluster(&self, name: &str) -> Result<(), Error> {
        self.named(name)?.kill();
        Ok(())
    }

    /// Ends the API server of a cluster, whose pods go on.
    ///
    /// # Errors
    /// When there is no such cluster.
    pub fn kill_api(&self, name: &str) -> Result<(), Error> {
        self.named(name)?.kill_api();
        Ok(())
    }

    /// Undoes every fault and waits until all clusters are whole.
    ///
    /// # Errors
    /// When something does not start again.
    pub fn heal(&self) -> Result<(), Error> {
        lock(&self.faults).delays.clear();
        self.revive()
    }

    /// Undoes every fault but delays, which may be how far clusters are from each other, and waits until all are whole.
    ///
    /// # Errors
    /// When something does not start again.
    pub fn revive(&self) -> Result<(), Error> {
        let quiet: Say = std::sync::Arc::new(|_: &str| {});
        {
            let mut faults = lock(&self.faults);
            faults.cuts.clear();
            self.apply_cuts(&faults.cuts)?;
        }
        self.start_clusters(&quiet)
    }

    /// Runs a program on a machine (`us-east-1`, `us-east-control`) or in the `backbone`.
    ///
    /// # Errors
    /// When there is no such machine, or it is off. That the program fails is in the output.
    pub fn exec(&self, place: &str, program: &str, arguments: &[&str]) -> Result<Output, Error> {
        run(self.command(place, program)?, program, arguments, place)
    }

    /// A program on a machine or in the `backbone`, to be started.
    ///
    /// # Errors
    /// When there is no such machine, or it is off.
    pub fn command(&self, place: &str, program: &str) -> Result<Command, Error> {
        if place == "backbone" {
            return Ok(self.shared.world.backbone(program));
        }
        self.with_machine(place, |machine| machine.command(program))
    }

    /// The first process of a machine, or of the backbone.
    pub(crate) fn first_process(&self, place: &str) -> Result<u32, Error> {
        if place == "backbone" {
            return Ok(self.shared.world.first);
        }
        self.with_machine(place, |machine| machine.first)
    }

    /// How many processes the rig has, and how much memory they take, in MB. Shared pages count in parts.
    pub fn size(&self) -> (usize, u64) {
        let mut total = (0, 0);
        let mut queue = vec![self.shared.world.first];
        queue.extend(self.daemon_processes());
        let mut seen = BTreeSet::new();
        while let Some(process) = queue.pop() {
            if seen.insert(process) {
                queue.extend(children(process));
                total.0 += 1;
                total.1 += proportional_kb(process);
            }
        }
        (total.0, total.1 / 1024)
    }

    /// What is off or broken, in words; empty when nothing is.
    pub fn broken(&self) -> Vec<String> {
        let faults = lock(&self.faults);
        let mut broken: Vec<String> =
            faults.cuts.iter().map(|(a, b)| format!("{a} and {b} are cut")).collect();
        broken.extend(faults.delays.iter().map(|((a, b), delay)| format!("{a} and {b}: {delay}")));
        for plan in &self.shared.plan.clusters {
            if let Ok(cluster) = self.named(&plan.name) {
                broken.extend(cluster.off());
            }
        }
        broken
    }

    fn with_machine<T>(&self, name: &str, work: impl FnOnce(&Machine) -> T) -> Result<T, Error> {
        for cluster in &self.shared.plan.clusters {
            let cluster = self.named(&cluster.name)?;
            if let Some(machine) = cluster.machines().find(|machine| machine.shape.name == name) {
                return Ok(work(machine));
            }
        }
        Err(self.shared.plan.unknown(name))
    }

    /// The processes that lead into the machines: their children are the daemons.
    fn daemon_processes(&self) -> Vec<u32> {
        let mut all = Vec::new();
        for plan in &self.shared.plan.clusters {
            if let Ok(cluster) = self.named(&plan.name) {
                all.extend(cluster.machines().flat_map(Machine::processes));
            }
        }
        all
    }

    fn pair(&self, a: &str, b: &str) -> Result<(String, String), Error> {
        self.shared.plan.place(a)?;
        self.shared.plan.place(b)?;
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        Ok((low.to_owned(), high.to_owned()))
    }

    fn apply_cuts(&self, cuts: &BTreeSet<(String, String)>) -> Result<(), Error> {
        let place = |name: &str| self.shared.plan.place(name);
        let pairs =
            cuts.iter().map(|(a, b)| Ok((place(a)?, place(b)?))).collect::<Result<Vec<_>, Error>>()?;
        self.shared.world.rules(&render::backbone_rules(&pairs))
    }
}

fn run(mut command: Command, program: &str, arguments: &[&str], place: &str) -> Result<Output, Error> {
    command.args(arguments).stdin(Stdio::null());
    command.output().map_err(Error::io(format!("run {program} in {place}")))
}

fn free_number(taken: impl Iterator<Item = u16>) -> u16 {
    let taken: BTreeSet<u16> = taken.collect();
    (1..u16::MAX).find(|number| !taken.contains(number)).unwrap_or(u16::MAX)
}

fn children(process: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|text| text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn proportional_kb(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
