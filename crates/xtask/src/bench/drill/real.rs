//! The drill on real clusters: a rig, a hub on the host, and edges that are pods.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use landfall_rig::{Config, Rig, Say};
use serde_json::Value;

use super::{Beside, Loss, Place, who};
use crate::shell::{output, say};

/// Where clients come in; the closest to it; the next.
const MEMBERS: [&str; 3] = ["us-east", "eu-west", "asia-east"];
/// So far is the third from the first, each way.
const APART: Duration = Duration::from_millis(30);
const HOST: &str = "www.my-domain.com";
const IMAGE: &str = "landfall.dev/edge:drill";
const LOSSES: &[Loss] = &[
    Loss { name: "loses its power, and falls silent", fault: &["kill"] },
    Loss { name: "is cut off, and falls silent", fault: &["cut"] },
];
/// Where an edge writes down its requests; and where its machine has that.
const LOG: &str = "/data/access.log";
const LOGS: &str = "cat /var/lib/kubelet/pods/*/volumes/kubernetes.io~empty-dir/data/access.log";
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// Three real clusters. The hub ends before them.
pub(super) struct Real {
    hub: Hub,
    rig: Rig,
    entrance: SocketAddr,
    /// The machine behind it.
    node: IpAddr,
    balancers: [SocketAddr; 3],
}

struct Hub {
    process: Child,
    landfall: PathBuf,
    directory: PathBuf,
    kubectl: PathBuf,
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Hub {
    fn start(rig: &Rig, landfall: &Path, directory: &Path) -> Result<Self> {
        let host = rig.plan().host();
        let port = TcpListener::bind((host, 0))?.local_addr()?.port();
        let mut command = Command::new(landfall);
        command.args(["hub", "--listen", &format!("{host}:{port}"), "--advertise", &host.to_string()]);
        command.args(["--federation", "my-federation", "--domain", "my-domain.com"]);
        command.arg("--data-dir").arg(directory.join("hub"));
        let log = std::fs::File::create(directory.join("hub.log"))?;
        let process = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let kubectl = rig.kubectl(MEMBERS[0]).get_program().into();
        let hub = Self { process, landfall: landfall.to_owned(), directory: directory.to_owned(), kubectl };
        until("the hub", || hub.kubectl("get --raw /readyz"))?;
        Ok(hub)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.join("hub/admin.kubeconfig")
    }

    fn kubectl(&self, line: &str) -> Result<String> {
        let mut command = Command::new(&self.kubectl);
        output(command.arg("--kubeconfig").arg(self.kubeconfig()).args(line.split_whitespace()))
    }

    fn landfall(&self, line: &str) -> Result<String> {
        let mut command = Command::new(&self.landfall);
        // What follows these is the edge's.
        let (own, edges) = line.split_once(" -- ").map_or((line, None), |(own, edges)| (own, Some(edges)));
        // Where members are spoken of, the usual option means theirs.
        let flag = if own.contains("--kubeconfig") { "--hub-kubeconfig" } else { "--kubeconfig" };
        command.args(own.split_whitespace()).arg(flag).arg(self.kubeconfig());
        if let Some(edges) = edges {
            command.arg("--").args(edges.split_whitespace());
        }
        output(command.env_remove("KUBECONFIG"))
    }
}

impl Real {
    pub(super) fn start(landfall: &Path, directory: &Path) -> Result<Self> {
        let told: Say = Arc::new(|line| say(&format!("    {line}")));
        let config = Config { clusters: 3, nodes: 1, say: told, ..Config::new("drill", landfall.to_owned()) };
        let rig = Rig::up(&config)?;
        let hub = Hub::start(&rig, landfall, directory)?;
        install(&rig, &hub)?;
        let objects = directory.join("objects.yaml");
        std::fs::write(&objects, OBJECTS)?;
        hub.kubectl(&format!("create -f {}", objects.display()))?;
        until("pods everywhere", || divided(&rig))?;
        hub.landfall(&format!("cordon {}", MEMBERS[0]))?;
        let entrance = address(&rig, MEMBERS[0], "landfall-edge-public -n landfall-system")?;
        let at = |name: &str| address(&rig, name, "nginx");
        let [last, near, next] = MEMBERS;
        let balancers = [at(near)?, at(next)?, at(last)?];
        rig.delay(last, next, APART, 0)?;
        let mut nodes = rig.plan().clusters.iter().flat_map(|cluster| &cluster.nodes);
        let node = nodes.find(|node| node.name == first_node(last)).context("a node")?.address.into();
        Ok(Self { hub, rig, entrance, node, balancers })
    }
}

/// Each cluster has its part of the pods.
fn divided(rig: &Rig) -> Result<()> {
    for name in MEMBERS {
        let mut command = rig.kubectl(name);
        let ready =
            output(command.args(["get", "replicaset", "nginx", "-o", "jsonpath={.status.readyReplicas}"]))?;
        if ready != "2" {
            bail!("{ready} pods are ready in {name}");
        }
    }
    Ok(())
}

/// Clusters join, and get edges.
fn install(rig: &Rig, hub: &Hub) -> Result<()> {
    let image = hub.directory.join("edge.tar");
    output(Command::new(&hub.landfall).args(["edge", "image", "--tag", IMAGE, "-o"]).arg(&image))?;
    let members = rig.kubeconfig().display().to_string();
    for name in MEMBERS {
        let file = image.display().to_string();
        let import = ["--namespace=k8s.io", "images", "import", "--snapshotter=overlayfs", &file];
        let done = rig.exec(&first_node(name), "ctr", &import)?;
        if !done.status.success() {
            bail!("ctr in {name}: {}", String::from_utf8_lossy(&done.stderr));
        }
        hub.landfall(&format!("join {name} --kubeconfig {members} --context {name}"))?;
        // Those where clients come in write down whom they asked in vain.
        let log = if name == MEMBERS[0] {
            format!("-- --access-log retried --access-log-file {LOG}")
        } else {
            String::new()
        };
        hub.landfall(&format!(
            "edge install --kubeconfig {members} --context {name} --service-type LoadBalancer --image {IMAGE} {log}"
        ))?;
    }
    Ok(())
}

fn first_node(cluster: &str) -> String {
    format!("{cluster}-1")
}

/// Where the load balancer of a Service in a cluster carries HTTP.
fn address(rig: &Rig, cluster: &str, service: &str) -> Result<SocketAddr> {
    until(&format!("the load balancer of {service} in {cluster}"), || {
        let mut command = rig.kubectl(cluster);
        command.args(["get", "service", "-o", "json"]).args(service.split_whitespace());
        let service: Value = serde_json::from_str(&output(&mut command)?)?;
        let ip = service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().context("none yet")?;
        Ok(SocketAddr::new(ip.parse()?, 80))
    })
}

fn until<T>(what: &str, mut look: impl FnMut() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(error) if began.elapsed() > PATIENCE => return Err(error.context(what.to_owned())),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

impl Place for Real {
    fn name(&self) -> &'static str {
        "real clusters"
    }

    fn losses(&self) -> &'static [Loss] {
        LOSSES
    }

    fn ours(&self) -> (SocketAddr, &str) {
        (self.entrance, HOST)
    }

    fn balancers(&self) -> &[SocketAddr; 3] {
        &self.balancers
    }

    fn clusters(&self) -> [&str; 2] {
        [MEMBERS[1], MEMBERS[2]]
    }

    fn entrance(&self) -> &'static str {
        MEMBERS[0]
    }

    fn service(&self) -> &'static str {
        "nginx"
    }

    fn limit(&self, policy: &str) -> Result<()> {
        self.hub.landfall(&format!("uncordon {}", MEMBERS[0]))?;
        let file = self.hub.directory.join("policy.yaml");
        std::fs::write(&file, policy)?;
        self.hub.kubectl(&format!("apply -f {}", file.display())).map(drop)
    }

    /// On the machine where our edge is a pod, so that they have the same ways to other clusters.
    fn beside(&self) -> Beside {
        Beside { listens: self.node, speaks: None }
    }

    fn command(&self, program: &str) -> Result<Command> {
        Ok(self.rig.command(&first_node(MEMBERS[0]), program)?)
    }

    fn lose(&self, loss: &Loss) -> Result<()> {
        if loss.fault == ["kill"] {
            return Ok(self.rig.kill_cluster(MEMBERS[1])?);
        }
        for other in [MEMBERS[0], MEMBERS[2], "host"] {
            self.rig.cut(MEMBERS[1], other)?;
        }
        Ok(())
    }

    fn heal(&self) -> Result<()> {
        Ok(self.rig.revive()?)
    }

    fn log(&self) -> Result<Option<String>> {
        let read = self.rig.exec(&first_node(MEMBERS[0]), "sh", &["-c", LOGS])?;
        if !read.status.success() {
            bail!("the edges' log: {}", String::from_utf8_lossy(&read.stderr));
        }
        Ok(Some(String::from_utf8_lossy(&read.stdout).into_owned()))
    }

    fn settled(&self, address: SocketAddr, host: &str) -> Result<()> {
        until(&format!("{} answers at {address}", MEMBERS[1]), || {
            let by = who(address, host)?;
            if by == MEMBERS[1] { Ok(()) } else { bail!("{by} answers") }
        })?;
        until("all edges are heard", || {
            let plan = self.hub.kubectl("get trafficplan federation -n landfall-system -o json")?;
            let plan: Value = serde_json::from_str(&plan)?;
            let edges = plan["spec"]["federation"]["edges"].as_array().cloned().unwrap_or_default();
            let alive = edges.iter().filter(|edge| edge["alive"] == true).count();
            if alive == 6 { Ok(()) } else { bail!("{alive} are") }
        })
    }
}

const OBJECTS: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: myingress}
spec:
  rules:
  - host: www.my-domain.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: nginx, port: {number: 80}}}}]}
---
apiVersion: v1
kind: Service
metadata: {name: nginx}
spec:
  type: LoadBalancer
  selector: {app: nginx}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: nginx}
spec:
  replicas: 6
  selector: {matchLabels: {app: nginx}}
  template:
    metadata: {labels: {app: nginx}}
    # No access log: to carry its lines to a file costs the machine more than to answer.
    spec: {containers: [{name: nginx, image: 'landfall.dev/echo:dev', ports: [{containerPort: 8080}],
      env: [{name: ECHO_QUIET, value: 'true'}], resources: {requests: {cpu: 100m}}}]}
";
