//! A rig: several clusters and the backbone between them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::api::Api;
use crate::balancer::Balancer;
use crate::cluster::{Cluster, Shared};
use crate::faults::Faults;
use crate::machine::write;
use crate::pki::{Authority, Identity};
use crate::plan::{BLOCKS, ClusterPlan, Plan, Subnet, free_block, plan};
use crate::program::{find, output};
use crate::world::World;
use crate::{Error, assets, image, render};

/// Programs that a rig runs, and the Debian packages they come from.
const PROGRAMS: &[(&str, &str)] = &[
    ("etcd", "etcd-server"),
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("nft", "nftables"),
    ("iptables", "iptables"),
    ("conntrack", "conntrack"),
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("setsid", "util-linux"),
    ("flock", "util-linux"),
    ("ldd", "libc-bin"),
    ("curl", "curl"),
];
/// A file that shows that the CNI plugins are there, and their Debian package.
const CNI: (&str, &str) = ("/usr/lib/cni/bridge", "containernetworking-plugins");

/// How often a block of addresses is looked for while other rigs start.
const TRIES_MAX: u32 = 20;

/// Says what is being done.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// What a rig shall be.
#[derive(Clone)]
pub struct Config {
    /// Its name; rigs of different names can stand beside each other.
    pub name: String,
    /// How many clusters.
    pub clusters: usize,
    /// How many nodes each of them has.
    pub nodes: usize,
    /// The `landfall` binary, from which the images of the echo server and of Landfall are made.
    pub landfall: PathBuf,
    /// Asked to stop while it starts.
    pub stop: Stop,
    /// Hears of progress.
    pub say: Say,
}

impl Config {
    /// A rig of the usual size, which says nothing.
    pub fn new(name: &str, landfall: PathBuf) -> Self {
        let say: Say = Arc::new(|_: &str| {});
        Self { name: name.to_owned(), clusters: 3, nodes: 2, landfall, stop: Stop::default(), say }
    }
}

/// Asks a rig that is being started to stop.
#[derive(Clone, Default)]
pub struct Stop(Arc<OnceLock<String>>);

/// A running rig. Dropping it leaves no process, mount, namespace or file behind; neither does a crash.
pub struct Rig {
    // In the order in which they are dropped.
    balancers: Vec<Balancer>,
    pub(crate) faults: Mutex<Faults>,
    clusters: Vec<Mutex<Cluster>>,
    apis: Vec<Api>,
    pub(crate) shared: Shared,
}

/// One cluster of a rig.
pub struct Member<'a> {
    rig: &'a Rig,
    at: usize,
}

/// Whether this machine can run a rig: the user, and the programs. Kubernetes itself is looked for by [`Rig::up`].
///
/// # Errors
/// What is missing, and how to get it.
pub fn check_machine() -> Result<(), Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    let missing = missing_programs();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: BTreeSet<&str> = missing.iter().map(|(_, package)| *package).collect();
    let programs: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
    let packages = packages.into_iter().collect::<Vec<_>>().join(" ");
    Err(Error::Missing { programs: programs.join(", "), packages })
}

/// The programs that a rig runs and that are not here, with the Debian packages they come from.
pub fn missing_programs() -> Vec<(&'static str, &'static str)> {
    let missing = PROGRAMS.iter().filter(|(program, _)| find(program).is_none()).copied();
    missing.chain(Some(CNI).filter(|(file, _)| !Path::new(file).exists())).collect()
}

/// Removes what a rig of this name left behind, if its owner and its keeper were both killed.
///
/// # Errors
/// When one is running, or it cannot be removed.
pub fn sweep(name: &str) -> Result<(), Error> {
    // A keeper sweeps before it begins and after it ends.
    World::start(&plan(name, *BLOCKS.start(), 1, 1)?, &directory(name)).map(drop)
}

/// Where a rig of this name keeps its files while it runs.
pub fn directory(name: &str) -> PathBuf {
    assets::cache().join("rig").join(name)
}

// === impl Rig ===

impl Rig {
    /// Starts a rig and waits until every cluster is whole.
    ///
    /// # Errors
    /// Says what is missing or did not start; nothing is left running then.
    pub fn up(config: &Config) -> Result<Self, Error> {
        check_machine()?;
        // Before anything is made: a name or a size that cannot be.
        let draft = plan(&config.name, *BLOCKS.start(), config.clusters, config.nodes)?;
        let binaries = assets::binaries(&assets::all(), &|line| (config.say)(line))?;
        let directory = directory(&config.name);
        let world = Arc::new(World::start(&draft, &directory)?);
        let plan = connect(&world, config)?;
        let shared = Shared { plan, directory, world, binaries, stop: config.stop.clone() };
        let identities = identities(&shared.plan)?;
        let kubeconfig = render::kubeconfig(identities.iter().zip(&shared.plan.clusters).map(
            |((authority, admin), cluster)| {
                (cluster.name.as_str(), cluster.url(), authority.certificate(), admin)
            },
        ));
        write(&shared.directory.join("kubeconfig"), &kubeconfig)?;
        let mut clusters = Vec::new();
        for ((authority, admin), plan) in identities.into_iter().zip(shared.plan.clusters.clone()) {
            let api = Api::new(plan.url(), &authority.certificate(), &admin)?;
            clusters.push(Mutex::new(Cluster::new(&shared, plan, authority, api)?));
        }
        let apis = clusters.iter().map(|cluster| lock(cluster).api.clone()).collect();
        let mut rig = Self { balancers: Vec::new(), faults: Mutex::default(), clusters, apis, shared };
        rig.make_images(config)?;
        rig.start_clusters(&config.say)?;
        rig.start_balancers();
        Ok(rig)
    }

    /// The file with one context per cluster, named as the cluster is.
    pub fn kubeconfig(&self) -> PathBuf {
        self.shared.directory.join("kubeconfig")
    }

    /// Where everything of the rig lies while it runs; logs in `logs/<cluster>/<machine>/<daemon>.log`.
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// Every name and address.
    pub fn plan(&self) -> &Plan {
        &self.shared.plan
    }

    /// A cluster by its number, from 0.
    ///
    /// # Panics
    /// When there are not that many.
    pub fn cluster(&self, at: usize) -> Member<'_> {
        assert!(at < self.clusters.len(), "the rig has {} clusters", self.clusters.len());
        Member { rig: self, at }
    }

    /// kubectl for a cluster, ready to be given arguments.
    pub fn kubectl(&self, cluster: &str) -> Command {
        let program = self.shared.binaries.get("kubectl").cloned().unwrap_or_else(|| "kubectl".into());
        let mut command = Command::new(program);
        command.arg("--kubeconfig").arg(self.kubeconfig()).arg("--context").arg(cluster);
        command
    }

    /// A cluster by its name, locked.
    pub(crate) fn named(&self, name: &str) -> Result<MutexGuard<'_, Cluster>, Error> {
        let at = self.shared.plan.clusters.iter().position(|cluster| cluster.name == name);
        let cluster = at.and_then(|at| self.clusters.get(at));
        cluster.map(lock).ok_or_else(|| self.shared.plan.unknown(name))
    }

    /// Starts, in every cluster at once, whatever does not run.
    pub(crate) fn start_clusters(&self, say: &Say) -> Result<(), Error> {
        let began = Instant::now();
        let start = |cluster: &Mutex<Cluster>| {
            let mut cluster = lock(cluster);
            if cluster.whole() {
                return Ok(());
            }
            cluster.start(&self.shared)?;
            say(&format!("{} is ready after {:.1} s", cluster.plan.name, began.elapsed().as_secs_f64()));
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                self.clusters.iter().map(|cluster| scope.spawn(move || start(cluster))).collect();
            // All are waited for; the first error is the one to show.
            let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            let results: Vec<Result<(), Error>> = joined
                .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect();
            results.into_iter().collect()
        })
    }

    fn start_balancers(&mut self) {
        let pairs = self.shared.plan.clusters.iter().zip(&self.apis);
        self.balancers = pairs
            .map(|(plan, api)| Balancer::start(plan.clone(), api.clone(), self.shared.world.clone()))
            .collect();
    }

    fn make_images(&self, config: &Config) -> Result<(), Error> {
        let stripped = self.shared.directory.join("landfall");
        // Symbols are most of a debug build, and six nodes unpack it; without strip it takes a little longer.
        let strip = Command::new("strip").arg("-o").arg(&stripped).arg(&config.landfall).output();
        let small = strip.is_ok_and(|output| output.status.success());
        let landfall = if small { stripped } else { config.landfall.clone() };
        let coredns = self.shared.binaries.get("coredns").cloned().unwrap_or_default();
        let layers =
            image::layers(&self.shared.directory.join("layers"), &image::Programs { landfall, coredns })?;
        for cluster in &self.shared.plan.clusters {
            image::archive(&self.shared.images(&cluster.name), &layers, &cluster.name)?;
        }
        Ok(())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // First who speaks to the clusters: without the rig's routes their packets would leave by the host's own.
        self.balancers.iter().for_each(Balancer::release);
        self.balancers.clear();
        // Daemons that end now were meant to; all processes are then killed at once.
        for cluster in &self.clusters {
            lock(cluster).machines().for_each(crate::machine::Machine::release);
        }
        crate::machine::kill(self.shared.world.first);
    }
}

// === impl Member ===

impl Member<'_> {
    /// Its name, which is its context's too.
    pub fn name(&self) -> &str {
        &self.plan().name
    }

    /// Its names and addresses.
    pub fn plan(&self) -> &ClusterPlan {
        &self.rig.shared.plan.clusters[self.at]
    }

    /// Its API server, as its administrator.
    pub fn api(&self) -> &Api {
        &self.rig.apis[self.at]
    }

    /// The kubeconfig that has its context.
    pub fn kubeconfig(&self) -> PathBuf {
        self.rig.kubeconfig()
    }

    /// kubectl for it.
    pub fn kubectl(&self) -> Command {
        self.rig.kubectl(self.name())
    }
}

// === impl Stop ===

impl Stop {
    /// Asks. The first who does is remembered.
    pub fn ask(&self, by: &str) {
        self.0.get_or_init(|| by.to_owned());
    }

    /// Who asked, if somebody did.
    pub fn asked(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// Locks, also after a panic elsewhere: what is inside is processes, which are right at any moment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An authority and an administrator for each cluster.
fn identities(plan: &Plan) -> Result<Vec<(Authority, Identity)>, Error> {
    let make = |cluster: &ClusterPlan| {
        let authority = Authority::new(&cluster.name)?;
        let admin = authority.client("admin", "system:masters")?;
        Ok((authority, admin))
    };
    plan.clusters.iter().map(make).collect()
}

/// Makes the backbone in the first block of addresses that is free.
fn connect(world: &World, config: &Config) -> Result<Plan, Error> {
    let mut tries = 0..TRIES_MAX;
    loop {
        let plan = plan(&config.name, free_block(&used()?)?, config.clusters, config.nodes)?;
        match world.connect(&plan) {
            Ok(()) => return Ok(plan),
            // Another rig was a moment faster; by now its addresses can be seen.
            Err(Error::Program { said, .. }) if said.contains("File exists") && tries.next().is_some() => {
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(error) => return Err(error),
        }
    }
}

/// The subnets that this machine has addresses in or routes to.
fn used() -> Result<Vec<Subnet>, Error> {
    let addresses = output(Command::new("ip").args(["-4", "-o", "addr", "show"]))?;
    let routes = output(Command::new("ip").args(["-4", "route", "show", "table", "all"]))?;
    Ok(addresses.split_whitespace().chain(routes.split_whitespace()).filter_map(Subnet::parse).collect())
}
