//! The world of a rig: a process namespace that everything lives in, and the backbone network, which is its network
//! namespace. A small keeper process ends it when the owner stops, exits or dies; see `keeper.sh`.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::plan::Plan;
use crate::program::{feed, output};
use crate::{Error, render};

const KEEPER: &str = include_str!("keeper.sh");

/// A running world; ends when dropped.
pub(crate) struct World {
    keeper: Child,
    /// Open while the world shall live.
    hold: Option<ChildStdin>,
    /// Its first process: the world's namespaces are this process's.
    pub(crate) first: u32,
}

impl World {
    /// Starts one. Removes what a rig of that name left behind if its keeper was killed too.
    pub(crate) fn start(plan: &Plan, directory: &Path) -> Result<Self, Error> {
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", KEEPER, "landfall-rig-keeper"]).arg(directory).arg(plan.cgroup());
        // Not the owner's standard error: whoever reads that to its end would wait for the keeper as well.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut keeper = command.spawn().map_err(Error::io("start the keeper of the rig (setsid)"))?;
        let (hold, said) = (keeper.stdin.take(), keeper.stdout.take());
        let mut line = String::new();
        if let Some(said) = said {
            BufReader::new(said).read_line(&mut line).map_err(Error::io("hear from the keeper"))?;
        }
        let mut world = Self { keeper, hold, first: 0 };
        if line.trim() == "busy" {
            return Err(Error::Running { name: plan.name.clone(), directory: directory.to_owned() });
        }
        world.first = line.trim().parse().map_err(|_| Error::Api {
            what: format!("cannot make namespaces and a directory at {}", directory.display()),
            said: "is it read-only, or is this a container without CAP_SYS_ADMIN? LANDFALL_CACHE names another place".into(),
        })?;
        Ok(world)
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
        let route = format!("{} via {}", plan.subnet(), plan.backbone());
        output(Command::new("ip").args(["route", "add"]).args(route.split(' '))).map(drop)
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
        // An error here means that the keeper is gone, and the world with it.
        let _ = self.keeper.wait();
    }
}

/// Routes between clusters; bridged packets inside one cluster are none of the filter's business.
const BACKBONE_SETTINGS: &str = "cd /proc/sys/net && echo 1 >ipv4/ip_forward \
    && echo 0 >ipv4/conf/all/rp_filter && echo 0 >ipv4/conf/default/rp_filter && echo 0 >ipv4/conf/all/send_redirects \
    && for i in ipv4/conf/*/rp_filter ipv4/conf/*/send_redirects; do echo 0 >$i; done \
    && for i in bridge/bridge-nf-call-*; do [ ! -e $i ] || echo 0 >$i; done";
