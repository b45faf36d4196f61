//! The peer: two nodes with nginx and keepalived, as anybody configures them by hand: VRRPv2, an advert a second, one that is master and
//! one that is backup, and a script that asks nginx every two seconds.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use landfall_rig::client::Client;
use landfall_rig::front::VIP;
use landfall_rig::{Link, Node};

use super::loss::{Contender, Loss};
use super::until;
use crate::shell::output;

/// The pair, and a node for the client; gone when dropped.
pub(super) struct Pair {
    directory: PathBuf,
    link: Link,
    nodes: Vec<Programs>,
}

/// What runs on a node.
struct Programs {
    nginx: Child,
    keepalived: Child,
}

impl Pair {
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let mut pair = Self { directory: directory.to_owned(), link: Link::start(3)?, nodes: Vec::new() };
        for at in 0..2 {
            let programs = Programs { nginx: pair.nginx(at)?, keepalived: pair.keepalived(at)? };
            pair.nodes.push(programs);
        }
        Ok(pair)
    }

    fn nginx(&self, at: usize) -> Result<Child> {
        let (here, file) = (self.directory.display(), self.directory.join(format!("nginx-{at}.conf")));
        // One process, so that one signal kills it.
        let text = format!(
            "daemon off;\nmaster_process off;\npid {here}/nginx-{at}.pid;\nevents {{}}\n\
             http {{\n  access_log off;\n  server {{ listen 80; location / {{ return 200 hello; }} }}\n}}\n"
        );
        std::fs::write(&file, text)?;
        let mut command = self.node(at)?.command("nginx");
        command.args(["-e", "stderr", "-c"]).arg(file);
        self.spawn(command, &format!("nginx-{at}"))
    }

    fn keepalived(&self, at: usize) -> Result<Child> {
        let file = self.directory.join(format!("keepalived-{at}.conf"));
        let (state, priority) = if at == 0 { ("MASTER", 101) } else { ("BACKUP", 100) };
        let text = format!(
            "global_defs {{\n    script_user root\n    enable_script_security\n}}\n\
             vrrp_script chk_nginx {{\n    script \"/usr/bin/curl -sf -o /dev/null http://127.0.0.1/\"\n    interval 2\n}}\n\
             vrrp_instance VI_1 {{\n    state {state}\n    interface eth0\n    virtual_router_id 51\n    priority {priority}\n    \
             advert_int 1\n    authentication {{\n        auth_type PASS\n        auth_pass 1111\n    }}\n    \
             virtual_ipaddress {{\n        {VIP}\n    }}\n    track_script {{\n        chk_nginx\n    }}\n}}\n"
        );
        std::fs::write(&file, text)?;
        let mut command = self.node(at)?.command("keepalived");
        command.args(["--dont-fork", "--log-console", "--vrrp"]);
        let pids = self.pids(at);
        let files = [("--use-file", &file), ("--pid", &pids[0]), ("--vrrp_pid", &pids[1])];
        command.args(files.map(|(name, file)| format!("{name}={}", file.display())));
        self.spawn(command, &format!("keepalived-{at}"))
    }

    /// Where keepalived says which processes it is.
    fn pids(&self, at: usize) -> [PathBuf; 2] {
        ["first", "vrrp"].map(|name| self.directory.join(format!("{name}-{at}.pid")))
    }

    fn spawn(&self, mut command: Command, name: &str) -> Result<Child> {
        let log = File::create(self.directory.join(format!("{name}.log")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().with_context(|| format!("cannot start {name}"))
    }

    fn programs(&mut self, at: usize) -> Result<&mut Programs> {
        self.nodes.get_mut(at).context("a node of the pair")
    }

    /// Kills all of keepalived at once: nobody of it is left to let go of the address. One that has only just begun has not said yet
    /// which processes it is; what it has started ends with its first.
    fn kill_keepalived(&mut self, at: usize) -> Result<()> {
        let files = self.pids(at);
        let first = self.programs(at)?.keepalived.id().to_string();
        let holds = files.last().and_then(|file| std::fs::read_to_string(file).ok());
        let holds = holds.map(|pid| pid.trim().to_owned());
        output(Command::new("kill").arg("-KILL").arg(first).args(holds))?;
        self.programs(at)?.keepalived.wait()?;
        for file in files {
            // Otherwise it takes what the numbers mean later for itself. It may not be there.
            let _ = std::fs::remove_file(file);
        }
        Ok(())
    }

    fn kill_nginx(&mut self, at: usize) -> Result<()> {
        let nginx = &mut self.programs(at)?.nginx;
        nginx.kill()?;
        nginx.wait()?;
        Ok(())
    }

    fn start_nginx(&mut self, at: usize) -> Result<()> {
        self.programs(at)?.nginx = self.nginx(at)?;
        Ok(())
    }

    fn start_keepalived(&mut self, at: usize) -> Result<()> {
        self.programs(at)?.keepalived = self.keepalived(at)?;
        Ok(())
    }
}

impl Contender for Pair {
    fn link(&self) -> &Link {
        &self.link
    }

    fn node(&self, at: usize) -> Result<&Node> {
        self.link.nodes().get(at).context("a node of the pair")
    }

    fn has(&self, loss: Loss) -> bool {
        loss != Loss::Keeper
    }

    fn take(&mut self, loss: Loss, at: usize) -> Result<()> {
        match loss {
            Loss::Proxy => self.kill_nginx(at),
            Loss::Keepalived => self.kill_keepalived(at),
            Loss::Keeper => Ok(()),
            Loss::Link => Ok(self.link.plug(self.node(at)?, false)?),
            Loss::Node => {
                self.link.isolate(self.node(at)?, true)?;
                self.kill_keepalived(at)?;
                self.kill_nginx(at)
            }
        }
    }

    fn mend(&mut self, loss: Loss, at: usize) -> Result<()> {
        match loss {
            Loss::Proxy => self.start_nginx(at),
            Loss::Keepalived => self.start_keepalived(at),
            Loss::Keeper => Ok(()),
            Loss::Link => Ok(self.link.plug(self.node(at)?, true)?),
            Loss::Node => {
                let node = self.node(at)?;
                output(node.command("ip").args(["addr", "del", &format!("{VIP}/32"), "dev", "eth0"]))?;
                self.link.isolate(node, false)?;
                self.start_nginx(at)?;
                self.start_keepalived(at)
            }
        }
    }

    /// The master takes the address back as soon as it is well.
    fn settled(&self) -> Result<usize> {
        until("the master alone holds the address", || {
            let held = |at: usize| Ok::<bool, anyhow::Error>(self.node(at)?.has(IpAddr::V4(VIP))?);
            Ok(held(0)? && !held(1)?)
        })?;
        Ok(0)
    }

    fn leaves(&self) -> bool {
        false
    }

    fn client(&self) -> Result<Client> {
        let node = self.link.nodes().last().context("a node for the client")?;
        Ok(Client::start(SocketAddr::from((VIP, 80)), |asking| node.thread(asking))?)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for at in 0..self.nodes.len() {
            // They may be gone already; there is nobody to tell.
            let _ = self.kill_keepalived(at);
            let _ = self.kill_nginx(at);
        }
    }
}
