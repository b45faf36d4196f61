//! The world of a rig: a process namespace that everything lives in, and the backbone network, which is its network
//! namespace. A small keeper process ends it when the owner stops, exits or dies; see `keeper.sh`.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::machine::write;
use crate::plan::{PODS, Plan, SERVICES};
use crate::program::{feed, output};
use crate::{Error, cgroup, render};

/// How long a keeper may take to remove everything.
const SWEEPING: Duration = Duration::from_secs(15);
/// The name of the socket that a running rig takes orders at, in its directory.
pub(crate) const SOCKET: &str = "control.sock";
/// The name of the file with the number of the owner's process.
pub(crate) const OWNER: &str = "owner";

const KEEPER: &str = include_str!("keeper.sh");

/// A running world; ends when dropped.
pub(crate) struct World {
    keeper: Child,
    /// Open while the world shall live.
    hold: Option<ChildStdin>,
    /// Its first process: the world's namespaces are this process's.
    pub(crate) first: u32,
    directory: PathBuf,
    pub(crate) cgroups: String,
}

impl World {
    /// Starts one. Removes what a rig of that name left behind if its keeper was killed too.
    pub(crate) fn start(plan: &Plan, directory: &Path) -> Result<Self, Error> {
        let began = Instant::now();
        loop {
            let world = Self::try_start(plan, directory)?;
            // An owner that answers is alive; else its keeper is just sweeping.
            let answers = || UnixStream::connect(directory.join(SOCKET)).is_ok();
            match world {
                Some(world) => return Ok(world),
                None if answers() || began.elapsed() > SWEEPING => {
                    return Err(Error::Running { name: plan.name.clone(), directory: directory.to_owned() });
                }
                None => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// None when a rig of that name has a keeper already.
    fn try_start(plan: &Plan, directory: &Path) -> Result<Option<Self>, Error> {
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", KEEPER, "landfall-rig-keeper"]).arg(directory).arg(plan.cgroups());
        // Not the owner's standard error: whoever reads that to its end would wait for the keeper as well.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut keeper = command.spawn().map_err(Error::io("start the keeper of the rig (setsid)"))?;
        let (hold, said) = (keeper.stdin.take(), keeper.stdout.take());
        let mut line = String::new();
        if let Some(said) = said {
            BufReader::new(said).read_line(&mut line).map_err(Error::io("hear from the keeper"))?;
        }
        if line.trim() == "busy" {
            let _ = keeper.wait();
            return Ok(None);
        }
        let Ok(first) = line.trim().parse() else {
            let _ = keeper.wait();
            return Err(Error::NoWorld { directory: directory.to_owned() });
        };
        let world = Self { keeper, hold, first, directory: directory.to_owned(), cgroups: plan.cgroups() };
        write(&directory.join(OWNER), &std::process::id().to_string())?;
        Ok(Some(world))
    }

    /// Makes the backbone: a router between the host and one bridge per cluster.
    pub(crate) fn connect(&self, plan: &Plan) -> Result<(), Error> {
        let link = plan.link();
        let world = self.first;
        let host = format!(
            "link add {link} type veth peer name host netns {world}\naddr add {}/24 dev {link}\nlink set {link} up\n",
            plan.host()
        );
        feed(Command::new("ip").args(["-batch", "-"]), &host)?;
        let mut lines =
            format!("link set lo up\naddr add {}/24 dev host\nlink set host up\n", plan.backbone());
        for cluster in &plan.clusters {
            let bridge = format!("c{}", cluster.number);
            lines.push_str(&format!(
                "link add {bridge} type bridge\naddr add {}/{} dev {bridge}\nlink set {bridge} up\n",
                cluster.gateway, cluster.subnet.bits
            ));
        }
        feed(self.backbone("ip").args(["-batch", "-"]), &lines)?;
        output(self.backbone("sh").args(["-c", BACKBONE_SETTINGS]))?;
        self.rules(&render::backbone_rules(&[]))?;
        // Pods and cluster IPs are for the clusters alone; their packets end at the backbone, instead of leaving the host
        // by its default route. Several rigs and any real use of these addresses come first by metric.
        let (backbone, metric) = (plan.backbone(), 4000 + u32::from(plan.block));
        let dead =
            [PODS, SERVICES].map(|subnet| format!("route add {subnet} via {backbone} metric {metric}\n"));
        let lines = format!("route add {} via {backbone}\n{}", plan.subnet(), dead.concat());
        feed(Command::new("ip").args(["-batch", "-"]), &lines).map(drop)
    }

    /// Replaces the backbone's packet filter.
    pub(crate) fn rules(&self, rules: &str) -> Result<(), Error> {
        feed(self.backbone("nft").args(["-f", "-"]), rules).map(drop)
    }

    /// A program in the backbone's network namespace, otherwise on the host.
    pub(crate) fn backbone(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.first)).arg("--").arg(program);
        command
    }

    /// The backbone's network namespace, for threads of ours that work in it.
    pub(crate) fn namespace(&self) -> Result<File, Error> {
        let path = PathBuf::from(format!("/proc/{}/ns/net", self.first));
        File::open(&path).map_err(Error::io(format!("open {}", path.display())))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.hold.take());
        let swept = self.keeper.wait().is_ok_and(|status| status.success());
        if !swept {
            // Somebody killed the keeper: the world went with it, its files did not.
            let _ = std::fs::remove_dir_all(&self.directory);
            let _ = self.directory.parent().map(std::fs::remove_dir);
            cgroup::remove(&self.cgroups);
            cgroup::remove(&cgroup::all_daemons(&self.cgroups));
        }
    }
}

/// Routes between clusters; bridged packets inside one cluster are none of the filter's business.
const BACKBONE_SETTINGS: &str = "cd /proc/sys/net && echo 1 >ipv4/ip_forward \
    && echo 0 >ipv4/conf/all/rp_filter && echo 0 >ipv4/conf/default/rp_filter && echo 0 >ipv4/conf/all/send_redirects \
    && for i in ipv4/conf/*/rp_filter ipv4/conf/*/send_redirects; do echo 0 >$i; done \
    && for i in bridge/bridge-nf-call-*; do [ ! -e $i ] || echo 0 >$i; done";
