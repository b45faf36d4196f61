//! A group is lost: all its edges are killed, or hang, and a client asks at the other group's address until it is answered there.
//!
//! The groups' edges are processes of their own, in a cluster of a playground whose own edges look on. Each listens at its group's
//! address itself: nothing here is about who holds it.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::bench::failover::world::World;
use crate::shell::{output, say};

/// The groups; one edge of each.
const GROUPS: [&str; 2] = ["blue", "green"];
/// The port of their edges.
const PORT: u16 = 8080;
/// What the client asks for.
const HOST: &str = "lost.example.com";
/// How long an answer may take before the client asks again, and the time between two questions.
const ANSWER: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(5);
/// How long the client asks.
const PATIENCE: Duration = Duration::from_secs(60);
/// So many edges must have seen an address before it is lost.
const WITNESSES: usize = 2;

/// How long it took, in milliseconds.
#[derive(Default)]
pub(super) struct Times {
    /// Its edges were killed.
    pub(super) killed: Vec<f64>,
    /// Its edges hung.
    pub(super) hung: Vec<f64>,
}

pub(super) fn measure(landfall: &Path, directory: &Path, quick: bool) -> Result<Times> {
    let (kills, hangs) = if quick { (4, 1) } else { (20, 4) };
    let world = World::start(landfall, directory)?;
    let cluster = &world.places.get(1).context("three clusters")?.cluster;
    let mut groups = Vec::new();
    for name in GROUPS {
        world.apply(&format!("{name}.yaml"), &GROUP.replace("NAME", name).replace("CLUSTER", cluster))?;
        groups.push(Group::start(&world, landfall, directory, cluster, name)?);
    }
    world.apply("ingress.yaml", &INGRESS.replace("HOST", HOST))?;
    let mut times = Times::default();
    for round in 0..kills {
        let took = lose(&world, &mut groups, Group::kill, Group::run)?;
        say(&format!("    killed, {} of {kills}: answered elsewhere after {took:.0} ms", round + 1));
        times.killed.push(took);
    }
    for round in 0..hangs {
        let took = lose(&world, &mut groups, |group| group.signal("-STOP"), |group| group.signal("-CONT"))?;
        say(&format!("    hung, {} of {hangs}: answered elsewhere after {took:.0} ms", round + 1));
        times.hung.push(took);
    }
    Ok(times)
}

/// Loses the group that the Ingress is bound to, once; how long the client was not answered at the other one, in milliseconds.
fn lose(
    world: &World,
    groups: &mut [Group],
    take: impl Fn(&mut Group) -> Result<()>,
    mend: impl Fn(&mut Group) -> Result<()>,
) -> Result<f64> {
    for group in groups.iter() {
        world
            .until(&format!("{} is ready, and seen", group.name), || group.is_seen(world).unwrap_or(false))?;
    }
    let mut bound = None;
    world.until("the Ingress is answered", || {
        bound = groups.iter().position(|group| ask(group.at).is_ok());
        bound.is_some()
    })?;
    let bound = bound.context("it is bound")?;
    let other = groups.get(1_usize.saturating_sub(bound)).context("two groups")?.at;
    let lost = groups.get_mut(bound).context("two groups")?;
    let began = Instant::now();
    take(lost)?;
    while ask(other).is_err() {
        if began.elapsed() > PATIENCE {
            bail!("the Ingress of {} is answered nowhere after {} s", lost.name, PATIENCE.as_secs());
        }
        std::thread::sleep(PAUSE);
    }
    let took = began.elapsed().as_secs_f64() * 1e3;
    mend(lost)?;
    Ok(took)
}

/// A group, and its edge.
struct Group {
    name: &'static str,
    at: SocketAddr,
    landfall: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    edge: Option<Child>,
}

impl Group {
    fn start(
        world: &World,
        landfall: &Path,
        directory: &Path,
        cluster: &str,
        name: &'static str,
    ) -> Result<Self> {
        let mut vip = None;
        world.until(&format!("an address for {name}"), || {
            let group = get(world, &["ingressreplicaset", name]).unwrap_or_default();
            vip = group["status"]["vip"].as_str().and_then(|vip| vip.parse::<IpAddr>().ok());
            vip.is_some()
        })?;
        let at = SocketAddr::from((vip.context("an address")?, PORT));
        let said = world.say(&["edge", "token", "--cluster", cluster])?;
        let door = said.split_once("landfall edge ").context("no command for an edge")?.1;
        let mut arguments: Vec<String> =
            door.split_whitespace().filter(|word| *word != "\\").map(str::to_owned).collect();
        let (listen, data) = (at.to_string(), directory.join(format!("edge-{name}")).display().to_string());
        let own = ["--name", name, "--group", name, "--http-listen", &listen, "--data-dir", &data];
        arguments.extend(own.map(str::to_owned));
        let log = directory.join(format!("edge-{name}.log"));
        let mut group = Self { name, at, landfall: landfall.to_owned(), arguments, log, edge: None };
        group.run()?;
        Ok(group)
    }

    fn run(&mut self) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.landfall);
        command.arg("edge").args(&self.arguments).stdin(Stdio::null());
        self.edge = Some(command.stdout(log.try_clone()?).stderr(log).spawn()?);
        Ok(())
    }

    fn kill(&mut self) -> Result<()> {
        if let Some(mut edge) = self.edge.take() {
            edge.kill()?;
            edge.wait()?;
        }
        Ok(())
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.edge.as_ref().map(|edge| edge.id().to_string());
        output(Command::new("kill").arg(signal).args(pid)).map(drop)
    }

    /// Whether it is ready, and others see that somebody answers at its address.
    fn is_seen(&self, world: &World) -> Result<bool> {
        let group = get(world, &["ingressreplicaset", self.name])?;
        let mark = format!("/group/{}", self.name);
        let sees = |edge: &&Value| {
            let votes = edge["status"]["votes"].as_array().into_iter().flatten();
            let on = |vote: &&Value| vote["target"].as_str().is_some_and(|target| target.ends_with(&mark));
            votes.into_iter().filter(on).any(|vote| vote["up"] == true)
        };
        let edges = get(world, &["edges"])?;
        let witnesses = edges["items"].as_array().into_iter().flatten().filter(sees).count();
        Ok(group["status"]["readyReplicas"] == 1 && witnesses >= WITNESSES)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It may be gone already; there is nobody to tell.
        let _ = self.kill();
    }
}

fn get(world: &World, what: &[&str]) -> Result<Value> {
    let said = world.say(&[&["get"], what, &["-o", "json"]].concat())?;
    Ok(serde_json::from_str(&said)?)
}

/// One request; an error unless it is answered by the service.
fn ask(at: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&at, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    anyhow::ensure!(answer.starts_with(b"HTTP/1.1 200"), "not answered");
    Ok(())
}

const GROUP: &str = "
apiVersion: landfall.dev/v1alpha1
kind: IngressReplicaSet
metadata:
  name: NAME
  labels: {purpose: bench}
spec:
  # The bench runs its edges.
  replicas: 0
  clusters: {names: [CLUSTER]}
";

const INGRESS: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: lost
  annotations: {landfall.dev/ingress-selector: purpose=bench}
spec:
  rules:
  - host: HOST
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 8080}}}}
";
