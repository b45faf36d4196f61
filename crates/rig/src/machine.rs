//! A machine: namespaces with a name, an address and a disk of their own, in which daemons run.
//!
//! Nodes and control planes are machines. Killing one is as pulling its plug: every process in it is gone at once, with
//! its mounts and links; the disk (its directory) stays, and it can be started again.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, Spec};
use crate::plan::ClusterPlan;
use crate::program::feed;
use crate::world::World;
use crate::{Error, cgroup, render};

/// How long namespaces may take to come up. They take milliseconds; a busy machine takes longer.
const START: Duration = Duration::from_secs(20);

/// What a machine is, whether it runs or not.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Its host name.
    pub(crate) name: String,
    /// Its link's name in the backbone.
    pub(crate) link: String,
    /// Its address.
    pub(crate) address: std::net::Ipv4Addr,
    /// Its disk: `lib` becomes /var/lib, `log` becomes /var/log.
    pub(crate) disk: PathBuf,
    /// Where its daemons' logs go.
    pub(crate) logs: PathBuf,
    /// The cgroup of its containers; that of its daemons is beside it.
    pub(crate) cgroup: String,
}

/// A running machine; dies when dropped.
pub(crate) struct Machine {
    pub(crate) shape: Shape,
    /// Its first process, as the host numbers it.
    pub(crate) first: u32,
    outer: Child,
    daemons: Vec<Daemon>,
}

impl Machine {
    /// Makes the namespaces and plugs the machine into its cluster's bridge. No daemon runs yet.
    pub(crate) fn start(world: &World, cluster: &ClusterPlan, shape: Shape) -> Result<Self, Error> {
        prepare_disk(&shape)?;
        cgroup::make_machine(&world.cgroups, &shape.cgroup)?;
        let mut command = Command::new("nsenter");
        command.args(enter(world.first, &["pid", "mnt"]));
        command.args([
            "unshare",
            "--pid",
            "--mount",
            "--net",
            "--uts",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]);
        command.args(["sh", "-c", FIRST, "sh", &shape.name]).arg(&shape.disk);
        let log = log_file(&shape.logs, "machine")?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let outer = command.spawn().map_err(Error::io(format!("start machine {}", shape.name)))?;
        let mut machine = Self { shape, first: 0, outer, daemons: Vec::new() };
        machine.first = machine.await_first()?;
        machine.plug(world, cluster)?;
        Ok(machine)
    }

    /// Starts a daemon in it, which is started again when it ends by itself.
    pub(crate) fn run(&mut self, spec: &Spec) -> Result<(), Error> {
        let (log, group) = (self.shape.logs.join(format!("{}.log", spec.name)), &self.shape.cgroup);
        let daemon = Daemon::start(spec, self.prefix(), cgroup::daemons(group), log)?;
        self.daemons.push(daemon);
        Ok(())
    }

    /// Ends a daemon for good. False when none of this name runs.
    pub(crate) fn stop(&mut self, daemon: &str) -> bool {
        let before = self.daemons.len();
        self.daemons.retain(|running| running.name != daemon);
        self.daemons.len() < before
    }

    /// Whether a daemon of this name is kept running.
    pub(crate) fn runs(&self, daemon: &str) -> bool {
        self.daemons.iter().any(|running| running.name == daemon)
    }

    /// From now on its daemons may end: the machine is being killed.
    pub(crate) fn release(&self) {
        self.daemons.iter().for_each(Daemon::release);
    }

    /// A program in the machine.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(self.prefix()).arg(program);
        command
    }

    /// The processes outside of it that lead into it.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.daemons.iter().map(Daemon::process).chain([self.first]).collect()
    }

    fn prefix(&self) -> Vec<String> {
        enter(self.first, &["pid", "mnt", "net", "uts"])
    }

    /// Waits until the first process has made its mounts, and finds its number.
    fn await_first(&mut self) -> Result<u32, Error> {
        let began = Instant::now();
        let ready = self.shape.disk.join("lib/.up");
        while began.elapsed() < START {
            if ready.exists() {
                let first = only_child(self.outer.id()).and_then(only_child);
                if let Some(first) = first {
                    return Ok(first);
                }
            }
            if let Ok(Some(status)) = self.outer.try_wait() {
                let detail = std::fs::read_to_string(self.shape.logs.join("machine.log")).unwrap_or_default();
                let command = format!("machine {}", self.shape.name);
                return Err(Error::Program { command, status: status.to_string(), said: detail });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let what = format!("machine {} has no namespaces", self.shape.name);
        Err(Error::NotReady { what, waited_s: START.as_secs(), detail: String::new() })
    }

    fn plug(&self, world: &World, cluster: &ClusterPlan) -> Result<(), Error> {
        let (link, first) = (&self.shape.link, self.first);
        // A machine that was killed takes its link with it, but only once the kernel has come round to it.
        let _ = world.backbone("ip").args(["link", "delete", link]).stderr(Stdio::null()).status();
        let lines = format!(
            "link add {link} type veth peer name eth0 netns {first}\nlink set {link} master c{} up\n",
            cluster.number
        );
        feed(world.backbone("ip").args(["-batch", "-"]), &lines)?;
        let inside = render::machine_links(cluster, self.shape.address);
        feed(self.command("ip").args(["-batch", "-"]), &inside).map(drop)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.release();
        if self.first != 0 {
            kill(self.first);
        }
        let _ = self.outer.kill();
        let _ = self.outer.wait();
        cgroup::remove_machine(&self.shape.cgroup);
    }
}

/// Sends SIGKILL. That the process is gone already is as good.
pub(crate) fn kill(process: u32) {
    let id = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(id) = id {
        let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
    }
}

/// Arguments for nsenter. Not `ip netns exec`: that hides /sys/fs/cgroup from the kubelet.
fn enter(process: u32, kinds: &[&str]) -> Vec<String> {
    let option = |kind: &&str| match *kind {
        "mnt" => format!("--mount=/proc/{process}/ns/mnt"),
        kind => format!("--{kind}=/proc/{process}/ns/{kind}"),
    };
    kinds.iter().map(option).chain(["--".to_owned()]).collect()
}

fn only_child(process: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// What the first process of a machine does: its own /run, /var/lib and /var/log, then wait for orphans.
///
/// The kubelet sets these kernel settings, which are the whole machine's. It is shown files that have its values
/// already, so that it leaves the real ones alone.
const FIRST: &str = r#"set -e
hostname "$1"
for pair in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file="$2/sysctl/$(echo "${pair%=*}" | tr / _)"
    echo "${pair#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${pair%=*}"
done
echo 1 >/proc/sys/net/ipv4/ip_forward
mount --bind "$2/log" /var/log
mount --bind "$2/lib" /var/lib
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/netns
: >/var/lib/.up
sleep infinity & wait
"#;

fn prepare_disk(shape: &Shape) -> Result<(), Error> {
    for directory in ["lib", "log", "sysctl"] {
        make_directory(&shape.disk.join(directory))?;
    }
    // A mark from before a crash would be taken for this start's.
    let _ = std::fs::remove_file(shape.disk.join("lib/.up"));
    make_directory(&shape.logs)
}

pub(crate) fn make_directory(path: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(path).map_err(Error::io(format!("make {}", path.display())))
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    if let Some(parent) = path.parent() {
        make_directory(parent)?;
    }
    std::fs::write(path, text).map_err(Error::io(format!("write {}", path.display())))
}

pub(crate) fn log_file(directory: &Path, name: &str) -> Result<std::fs::File, Error> {
    let path = directory.join(format!("{name}.log"));
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    file.map_err(Error::io(format!("write {}", path.display())))
}
