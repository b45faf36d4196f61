//! What is measured: a playground of three clusters, one service, and an edge in each.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::dns;
use crate::{kubernetes, shell};

/// The service's name.
pub(in crate::bench) const NAME: &str = "web.default.federation.example.com";
/// Its port.
pub(in crate::bench) const PORT: u16 = 8080;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// An edge and the service in its cluster.
#[derive(Clone, Debug)]
pub(in crate::bench) struct Place {
    /// The cluster.
    pub(in crate::bench) cluster: String,
    /// Where its edge answers names.
    pub(in crate::bench) edge: SocketAddr,
    /// Where its edge carries requests.
    pub(in crate::bench) http: SocketAddr,
    /// Where its clients reach the service.
    pub(in crate::bench) balancer: Ipv4Addr,
}

/// A running playground.
pub(in crate::bench) struct World {
    process: Child,
    landfall: PathBuf,
    directory: PathBuf,
    /// Its clusters; the hub stands beside the first.
    pub(in crate::bench) places: Vec<Place>,
}

impl World {
    /// Starts a playground with a service that all edges answer with all addresses.
    pub(in crate::bench) fn start(landfall: &Path, directory: &Path) -> Result<Self> {
        let mut command = Command::new(landfall);
        command.arg("playground").arg("--keep").arg(directory.join("world")).env("TMPDIR", directory);
        let log = std::fs::File::create(directory.join("playground.log"))?;
        let process = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let mut world = Self {
            process,
            landfall: landfall.to_owned(),
            directory: directory.to_owned(),
            places: Vec::new(),
        };
        world.until("the playground", || std::fs::read(directory.join("world/playground.json")).is_ok())?;
        world.until("the hub", || world.say(&["get", "clusters"]).is_ok())?;
        world.apply("web.yaml", WEB)?;
        world.places = world.find()?;
        world.whole()?;
        Ok(world)
    }

    /// Waits until every edge answers with every cluster.
    pub(in crate::bench) fn whole(&self) -> Result<()> {
        for place in &self.places {
            self.until(&format!("all addresses at {}", place.cluster), || {
                dns::ask(place.edge, NAME).ok().flatten().is_some_and(|answer| {
                    answer.addresses.len() == self.places.len()
                        && answer.addresses.first() == Some(&place.balancer)
                })
            })?;
        }
        // Votes settle, and what was just up may be down again.
        std::thread::sleep(Duration::from_secs(7));
        Ok(())
    }

    /// Breaks or mends something.
    pub(in crate::bench) fn fault(&self, arguments: &[&str]) -> Result<()> {
        self.say(&[&["playground", "fault"], arguments].concat()).map(drop)
    }

    /// Waits until edges answer as they should; gives when each of them did.
    pub(in crate::bench) fn answers(
        &self,
        edges: &[SocketAddr],
        good: impl Fn(&dns::Answer) -> bool,
    ) -> Result<Vec<Instant>> {
        let mut when: Vec<Option<Instant>> = vec![None; edges.len()];
        let began = Instant::now();
        while when.iter().any(Option::is_none) {
            for (edge, when) in edges.iter().zip(&mut when).filter(|(_, when)| when.is_none()) {
                if dns::ask(*edge, NAME)?.is_some_and(|answer| good(&answer)) {
                    *when = Some(Instant::now());
                }
            }
            if began.elapsed() > PATIENCE {
                bail!("edges do not answer as they should");
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(when.into_iter().flatten().collect())
    }

    /// Applies a policy that gives the service's name another TTL.
    pub(in crate::bench) fn set_ttl(&self, ttl_s: u32) -> Result<()> {
        self.apply("policy.yaml", &POLICY.replace("TTL", &ttl_s.to_string()))
    }

    /// Gives objects to the federation.
    pub(in crate::bench) fn apply(&self, name: &str, objects: &str) -> Result<()> {
        let file = self.directory.join(name);
        std::fs::write(&file, objects)?;
        self.say(&["apply", "-f", &file.display().to_string()]).map(drop)
    }

    /// A watch of the service's plan, as close to the hub as any watcher.
    pub(in crate::bench) fn watch(&self) -> Result<Watch> {
        let path = "/apis/landfall.dev/v1alpha1/namespaces/default/trafficplans?watch=true";
        let mut command = Command::new(kubernetes::binaries()?.join("kubectl"));
        command.arg("--kubeconfig").arg(self.directory.join("world/kubeconfig"));
        command.args(["--context", "federation", "get", "--raw", path]);
        let mut process = command.stdout(Stdio::piped()).spawn().context("kubectl cannot be started")?;
        let lines = BufReader::new(process.stdout.take().context("kubectl has no output")?);
        Ok(Watch { process, lines })
    }

    fn find(&self) -> Result<Vec<Place>> {
        let text = std::fs::read(self.directory.join("world/playground.json"))?;
        let addresses: Value = serde_json::from_slice(&text)?;
        let edges = addresses["edges"].as_array().cloned().unwrap_or_default();
        let mut places = Vec::new();
        for edge in edges {
            let cluster = edge["cluster"].as_str().unwrap_or_default().to_owned();
            let at = edge["dns"].as_str().and_then(|text| text.parse().ok()).context("no edge")?;
            let http =
                edge["http"].as_str().and_then(|text| text.parse().ok()).context("it carries nothing")?;
            let mut balancer = None;
            self.until(&format!("the load balancer of {cluster}"), || {
                let service = self.say(&["get", "service", "web", "-o", "json", "--context", &cluster]);
                let service: Value =
                    service.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
                let ip = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
                balancer = ip.as_str().and_then(|ip| ip.parse().ok());
                balancer.is_some()
            })?;
            places.push(Place { cluster, edge: at, http, balancer: balancer.context("no load balancer")? });
        }
        Ok(places)
    }

    /// Runs a command of ours that succeeds, and gives what it printed.
    pub(in crate::bench) fn say(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.landfall);
        shell::output(command.args(arguments).env("TMPDIR", &self.directory).env_remove("KUBECONFIG"))
    }

    /// Waits until something is so.
    pub(in crate::bench) fn until(&self, what: &str, mut good: impl FnMut() -> bool) -> Result<()> {
        let began = Instant::now();
        while !good() {
            if began.elapsed() > PATIENCE {
                let mut log = String::new();
                let _ = std::fs::File::open(self.directory.join("playground.log"))?.read_to_string(&mut log);
                bail!("{what}: not after {} s\n{log}", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A watch; every event is a line.
pub(in crate::bench) struct Watch {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Watch {
    /// When a plan with this TTL was heard of.
    pub(in crate::bench) fn until_ttl(&mut self, ttl_s: u32) -> Result<Instant> {
        let wanted = format!("\"dnsTtlSeconds\":{ttl_s}");
        let mut line = String::new();
        while self.lines.read_line(&mut line)? > 0 {
            if line.contains(&wanted) {
                return Ok(Instant::now());
            }
            line.clear();
        }
        bail!("the watch of plans ended")
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: echo, ports: [{containerPort: 8080}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{port: 8080}]
";

const POLICY: &str = "
apiVersion: landfall.dev/v1alpha1
kind: TrafficPolicy
metadata: {name: web}
spec:
  targetRefs: [{kind: Service, name: web}]
  dns: {ttlSeconds: TTL}
";
