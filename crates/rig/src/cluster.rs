//! One cluster: its control plane and its nodes, started, killed and started again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::Api;
use crate::components::{self, Binaries, PKI};
use crate::image;
use crate::machine::{Machine, Shape, write};
use crate::pki::{self, Authority, Identity};
use crate::plan::{ClusterPlan, NodePlan, Plan};
use crate::program::{feed, find, output, tail};
use crate::rig::Stop;
use crate::world::World;
use crate::{Error, manifests, render};

/// How long any one part may take to be ready. They take seconds; a busy machine takes longer.
const READY: Duration = Duration::from_secs(180);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(100);

/// What all clusters of a rig share.
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    pub(crate) directory: PathBuf,
    pub(crate) world: Arc<World>,
    pub(crate) binaries: Binaries,
    pub(crate) stop: Stop,
}

impl Shared {
    /// The archive with the images of a cluster.
    pub(crate) fn images(&self, cluster: &str) -> PathBuf {
        self.directory.join(format!("images-{cluster}.tar"))
    }
}

/// A cluster and those of its machines that run.
pub(crate) struct Cluster {
    pub(crate) plan: ClusterPlan,
    pub(crate) api: Api,
    authority: Authority,
    control: Option<Machine>,
    nodes: Vec<Option<Machine>>,
}

impl Cluster {
    /// Makes a cluster whose machines are all off.
    pub(crate) fn new(
        shared: &Shared,
        plan: ClusterPlan,
        authority: Authority,
        api: Api,
    ) -> Result<Self, Error> {
        let nodes = plan.nodes.iter().map(|_| None).collect();
        let cluster = Self { plan, api, authority, control: None, nodes };
        cluster.write_control(&cluster.control_shape(shared).disk)?;
        for (at, node) in cluster.plan.nodes.iter().enumerate() {
            cluster.write_node(shared, node, &cluster.node_shape(shared, at).disk)?;
        }
        Ok(cluster)
    }

    /// Starts whatever does not run, and waits until the cluster is whole. Does nothing if it is.
    pub(crate) fn start(&mut self, shared: &Shared) -> Result<(), Error> {
        self.start_control(shared)?;
        let off: Vec<usize> = (0..self.nodes.len()).filter(|at| self.nodes[*at].is_none()).collect();
        for at in &off {
            self.boot_node(shared, *at)?;
        }
        self.await_api(shared)?;
        for (path, object) in manifests::dns() {
            self.api.apply(path, &object)?;
        }
        let renewed: Vec<(usize, Value)> = off.iter().map(|at| (*at, self.renewed(*at))).collect();
        for at in off {
            self.join_node(shared, at)?;
        }
        for (at, before) in renewed {
            self.await_node(shared, at, &before)?;
        }
        self.await_dns(shared)
    }

    /// Pulls the plug of everything.
    pub(crate) fn kill(&mut self) {
        self.control = None;
        self.nodes.iter_mut().for_each(|node| *node = None);
    }

    /// Pulls the plug of a node. False when the cluster has none of this name.
    pub(crate) fn kill_node(&mut self, name: &str) -> bool {
        let at = self.plan.nodes.iter().position(|node| node.name == name);
        at.and_then(|at| self.nodes.get_mut(at)).map(|node| *node = None).is_some()
    }

    /// Ends the API server; the rest of the control plane goes on trying.
    pub(crate) fn kill_api(&mut self) {
        if let Some(control) = &mut self.control {
            control.stop("kube-apiserver");
        }
    }

    /// The machines that run.
    pub(crate) fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.control.iter().chain(self.nodes.iter().flatten())
    }

    /// Whether everything runs.
    pub(crate) fn whole(&self) -> bool {
        self.off().is_empty()
    }

    /// What does not run, in words.
    pub(crate) fn off(&self) -> Vec<String> {
        let api = self.control.as_ref().is_some_and(|control| control.runs("kube-apiserver"));
        let mut off = Vec::new();
        if self.control.is_none() {
            off.push(format!("{} is off", self.plan.control_name()));
        } else if !api {
            off.push(format!("the API server of {} is off", self.plan.name));
        }
        let nodes = self.plan.nodes.iter().zip(&self.nodes).filter(|(_, machine)| machine.is_none());
        off.extend(nodes.map(|(node, _)| format!("{} is off", node.name)));
        off
    }

    fn control_shape(&self, shared: &Shared) -> Shape {
        shape(shared, &self.plan, &self.plan.control_name(), "control", self.plan.control, 0)
    }

    fn node_shape(&self, shared: &Shared, at: usize) -> Shape {
        let node = &self.plan.nodes[at];
        shape(shared, &self.plan, &node.name, &node.name, node.address, at + 1)
    }

    fn start_control(&mut self, shared: &Shared) -> Result<(), Error> {
        let shape = self.control_shape(shared);
        if self.control.is_none() {
            let mut control = Machine::start(&shared.world, &self.plan, shape)?;
            control.run(&components::etcd(&program("etcd")))?;
            control.run(&components::controller_manager(&shared.binaries))?;
            control.run(&components::scheduler(&shared.binaries))?;
            self.control = Some(control);
        }
        if let Some(control) = self.control.as_mut().filter(|control| !control.runs("kube-apiserver")) {
            control.run(&components::api_server(&self.plan, &shared.binaries))?;
        }
        Ok(())
    }

    /// The part of a node that needs no API: the machine, containerd, the images.
    fn boot_node(&mut self, shared: &Shared, at: usize) -> Result<(), Error> {
        let mut node = Machine::start(&shared.world, &self.plan, self.node_shape(shared, at))?;
        feed(node.command("nft").args(["-f", "-"]), &render::node_rules(&self.plan))?;
        node.run(&components::containerd(&program("containerd")))?;
        let socket = format!("/proc/{}/root/run/containerd/containerd.sock", node.first);
        let logs = node.shape.logs.clone();
        wait(shared, "containerd does not listen", &logs, "containerd", || {
            Path::new(&socket).exists().then_some(())
        })?;
        if !node.shape.disk.join("lib/.imported").exists() {
            let mut import = node.command("ctr");
            import
                .args(["--namespace=k8s.io", "images", "import", "--snapshotter=overlayfs"])
                .arg(shared.images(&self.plan.name));
            output(&mut import)?;
            write(&node.shape.disk.join("lib/.imported"), image::PAUSE)?;
        }
        self.nodes[at] = Some(node);
        Ok(())
    }

    fn join_node(&mut self, shared: &Shared, at: usize) -> Result<(), Error> {
        let plan = self.plan.nodes[at].clone();
        let Some(node) = &mut self.nodes[at] else { return Ok(()) };
        node.run(&components::kubelet(&self.plan, &plan, &shared.binaries))?;
        node.run(&components::proxy(&plan, &shared.binaries))
    }

    fn await_api(&self, shared: &Shared) -> Result<(), Error> {
        let logs = self.control_shape(shared).logs;
        let what = format!("the API server of {} is not ready", self.plan.name);
        wait(shared, &what, &logs, "kube-apiserver", || self.api.ready().ok())
    }

    /// When a node last renewed its lease; null if it never did.
    fn renewed(&self, at: usize) -> Value {
        let name = &self.plan.nodes[at].name;
        let lease =
            self.api.get(&format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"));
        lease.map(|lease| lease["spec"]["renewTime"].clone()).unwrap_or_default()
    }

    /// Waits until a node is Ready and has renewed its lease: its record may be from before it was killed.
    fn await_node(&self, shared: &Shared, at: usize, before: &Value) -> Result<(), Error> {
        let name = &self.plan.nodes[at].name;
        let logs = self.node_shape(shared, at).logs;
        let path = format!("/api/v1/nodes/{name}");
        wait(shared, &format!("node {name} is not Ready"), &logs, "kubelet", || {
            let object = self.api.get(&path).ok()?;
            let conditions = object["status"]["conditions"].as_array()?;
            let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
            (ready && self.renewed(at) != *before).then_some(())
        })?;
        // CNI has it from its own configuration; this is for those who read it off the node.
        let pods = self.plan.nodes[at].pods.to_string();
        self.api.merge(&path, &json!({"spec": {"podCIDR": pods, "podCIDRs": [pods]}})).map(drop)
    }

    fn await_dns(&self, shared: &Shared) -> Result<(), Error> {
        let what = format!("the DNS of {} is not ready", self.plan.name);
        let logs = self.node_shape(shared, 0).logs;
        wait(shared, &what, &logs, "kubelet", || {
            let object = self.api.get("/apis/apps/v1/namespaces/kube-system/deployments/coredns").ok()?;
            (object["status"]["readyReplicas"].as_u64()? > 0).then_some(())
        })
    }

    fn write_control(&self, disk: &Path) -> Result<(), Error> {
        let inside = |file: &str| disk.join("lib").join(PKI.trim_start_matches("/var/lib/")).join(file);
        let put = |file: &str, text: &str| write(&inside(file), text);
        put("ca.crt", &self.authority.certificate())?;
        put("ca.key", &self.authority.key())?;
        let (private, public) = pki::token_keys()?;
        put("tokens.key", &private)?;
        put("tokens.pub", &public)?;
        let pairs = [
            ("api", self.authority.api_server(&self.plan)?),
            ("front-proxy", self.authority.client("front-proxy-client", "landfall-rig")?),
            ("kubelet-client", self.authority.client("kube-apiserver-kubelet-client", "system:masters")?),
        ];
        for (name, identity) in pairs {
            put(&format!("{name}.crt"), &identity.certificate)?;
            put(&format!("{name}.key"), &identity.key)?;
        }
        for (file, user) in
            [("controller-manager", "system:kube-controller-manager"), ("scheduler", "system:kube-scheduler")]
        {
            let identity = self.authority.client(user, user)?;
            put(&format!("{file}.kubeconfig"), &self.kubeconfig(&identity))?;
        }
        Ok(())
    }

    fn write_node(&self, shared: &Shared, node: &NodePlan, disk: &Path) -> Result<(), Error> {
        let put = |file: &str, text: &str| write(&disk.join("lib").join(file), text);
        let kubelet = self.authority.client(&format!("system:node:{}", node.name), "system:nodes")?;
        let proxy = self.authority.client("system:kube-proxy", "system:node-proxier")?;
        put("kubelet/ca.crt", &self.authority.certificate())?;
        put("kubelet/kubeconfig", &self.kubeconfig(&kubelet))?;
        put("kubelet/config.json", &render::kubelet(&shared.plan, node))?;
        put("kubelet/resolv.conf", "")?;
        put("kube-proxy/kubeconfig", &self.kubeconfig(&proxy))?;
        put("containerd-config.toml", &render::containerd())?;
        put("cni-config/10-rig.conflist", &render::cni(node))
    }

    fn kubeconfig(&self, identity: &Identity) -> String {
        let entry = (self.plan.name.as_str(), self.plan.url(), self.authority.certificate(), identity);
        render::kubeconfig(std::iter::once(entry))
    }
}

fn shape(
    shared: &Shared,
    cluster: &ClusterPlan,
    name: &str,
    logs: &str,
    address: std::net::Ipv4Addr,
    at: usize,
) -> Shape {
    Shape {
        name: name.to_owned(),
        link: format!("c{}m{at}", cluster.number),
        address,
        disk: shared.directory.join("disks").join(name),
        logs: shared.directory.join("logs").join(&cluster.name).join(logs),
        cgroup: shared.plan.cgroup(name),
    }
}

fn program(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| PathBuf::from(name))
}

/// Waits for something; when it does not come, the error shows the end of the log that should say why.
fn wait<T>(
    shared: &Shared,
    what: &str,
    logs: &Path,
    component: &str,
    look: impl Fn() -> Option<T>,
) -> Result<T, Error> {
    let began = Instant::now();
    while began.elapsed() < READY {
        if let Some(by) = shared.stop.asked() {
            return Err(Error::Stopped { by: by.to_owned() });
        }
        if let Some(found) = look() {
            return Ok(found);
        }
        std::thread::sleep(LOOK);
    }
    let log = logs.join(format!("{component}.log"));
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let detail = format!("; the end of {}:\n{}", log.display(), tail(&text, 3000));
    Err(Error::NotReady { what: what.to_owned(), waited_s: READY.as_secs(), detail })
}
