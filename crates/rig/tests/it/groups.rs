//! A group of edges on real nodes: its pods stand on different ones by the real scheduler, and its address survives whatever is lost.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use landfall_rig::client::{Client, HOST};
use landfall_rig::ear::Ear;
use serde_json::Value;

use crate::federated::{Federation, HUB, becomes};
use crate::names::IMAGE;
use crate::support::{config, eventually, run, turn};

const CLUSTER: &str = "us-east";
const NODES: [&str; 2] = ["us-east-1", "us-east-2"];
/// The bridge of its nodes, and where edges tell about themselves.
const BRIDGE: &str = "c1";
const ADMIN_PORT: u16 = 9440;
/// Answers that show that somebody is asked.
const SOME: usize = 50;

const GROUP: &str = "
apiVersion: landfall.dev/v1alpha1
kind: IngressVIPRange
metadata: {name: link}
spec: {cidrs: [RANGE]}
---
apiVersion: landfall.dev/v1alpha1
kind: IngressReplicaSet
metadata: {name: front}
spec: {replicas: 2, clusters: {names: [us-east]}}
";
/// On the node that is never lost: what is looked at is the address, not where its requests go.
const WEB: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {kubernetes.io/hostname: NODE}
      containers: [{name: web, image: 'landfall.dev/echo:dev', ports: [{containerPort: 8080}]}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: web
  annotations: {landfall.dev/ingress-replicaset: front}
spec:
  rules:
  - host: HOST
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
";

/// What is lost of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Edge,
    Keepalived,
    Keeper,
    Link,
    Node,
}

#[test]
fn a_group_keeps_its_address_whatever_its_holder_loses() {
    let Some(_turn) = turn("a_group_keeps_its_address_whatever_its_holder_loses") else { return };
    let group = Group::start();
    let (first, other) = group.begin();
    // In turns, so that the one on whose node the requests are answered loses neither its link nor its node.
    for (holder, next, lost) in [
        (first, other, Lost::Edge),
        (other, first, Lost::Keepalived),
        (first, other, Lost::Keeper),
        (other, first, Lost::Link),
        (first, other, Lost::Keepalived),
        (other, first, Lost::Node),
    ] {
        group.lose(holder, next, lost);
    }
    group.is_told(first);
}

/// A member with edges, and a group of them.
struct Group {
    federation: Federation,
    vip: Ipv4Addr,
}

impl Group {
    fn start() -> Self {
        let federation = Federation::of(&config("it-groups", 1, NODES.len()), 1);
        for node in NODES {
            federation.import(node, IMAGE);
        }
        federation.landfall(&format!("join {CLUSTER} --kubeconfig MEMBERS --context {CLUSTER}"));
        federation.landfall(&format!(
            "edge install --kubeconfig MEMBERS --context {CLUSTER} --replicas 1 --no-dns --image {IMAGE}"
        ));
        // Addresses of the nodes' own link that nobody has.
        let [a, b, c, _] = federation.rig.plan().clusters[0].subnet.base.octets();
        federation.create(HUB, &GROUP.replace("RANGE", &format!("{a}.{b}.{c}.200/29")));
        let vip = eventually("an address is given", || {
            let status = federation.object(HUB, "ingressreplicaset front")["status"].clone();
            status["vip"].as_str().and_then(|vip| vip.parse().ok()).ok_or(status)
        });
        Self { federation, vip }
    }

    /// Its pods stand on different nodes, one of them holds the address, and requests are answered. That one's node, and the other.
    fn begin(&self) -> (&'static str, &'static str) {
        becomes("its pods stand on different nodes", &NODES.map(str::to_owned).to_vec(), || {
            let mut nodes: Vec<String> = self.pods().into_iter().map(|(_, node)| node).collect();
            nodes.sort();
            nodes
        });
        becomes("one holds the address", &1, || self.holders().len());
        let holder = self.holders()[0];
        self.settled(holder);
        let web = WEB.replace("NODE", holder).replace("HOST", HOST);
        self.federation.create(HUB, &web);
        becomes("the Ingress has the address", &Value::from(self.vip.to_string()), || {
            self.federation.object(HUB, "ingress web")["status"]["loadBalancer"]["ingress"][0]["ip"].clone()
        });
        let other = if holder == NODES[0] { NODES[1] } else { NODES[0] };
        (holder, other)
    }

    /// Takes something away from the holder, under a client's eyes and with all ears; then gives it back, but a node.
    fn lose(&self, holder: &'static str, next: &'static str, lost: Lost) {
        becomes("the holder", &vec![holder], || self.holders());
        let ear = Ear::start(self.federation.rig.command("backbone", "tcpdump").unwrap(), BRIDGE).unwrap();
        let client =
            Client::start(SocketAddr::from((self.vip, 80)), |asking| Ok(std::thread::spawn(asking))).unwrap();
        becomes("the client is answered", &true, || client.answers() > SOME);
        let since = Instant::now();
        self.take(holder, lost);
        let answered = client.answers();
        becomes(&format!("{lost:?} lost, another holds it"), &vec![next], || self.holders());
        becomes("the client is answered again", &true, || client.answers() > answered + SOME);
        let (speakers, mut claimants) = (ear.speakers(), ear.claimants(IpAddr::V4(self.vip)));
        let (outage, _) = client.outage(since);
        println!("{lost:?} lost: not answered for {} ms", outage.as_millis());
        assert_eq!(speakers, [self.address(holder), self.address(next)], "{lost:?}: two spoke at once");
        let last = claimants.pop();
        assert_eq!(last, Some(self.hardware(next)), "{lost:?}: the new holder says that it has the address");
        assert!(!claimants.contains(&self.hardware(next)), "{lost:?}: two answered for it: {claimants:?}");
        if lost == Lost::Link {
            self.plug(holder, "up");
        }
        if lost != Lost::Node {
            self.settled(next);
        }
    }

    fn take(&self, node: &str, lost: Lost) {
        match lost {
            Lost::Edge => self.kill(node, "--group=front"),
            Lost::Keepalived => self.kill(node, "--vrrp_pid"),
            Lost::Keeper => self.kill(node, "edge keeper"),
            Lost::Link => self.plug(node, "down"),
            Lost::Node => self.federation.rig.kill_node(node).unwrap(),
        }
    }

    /// Kills the processes of a node with a certain argument, as `kill -9` does.
    fn kill(&self, node: &str, argument: &str) {
        let found = self.federation.exec(node, "pgrep", &["-f", "--", argument]);
        let pids: Vec<&str> = found.split_whitespace().collect();
        self.federation.exec(node, "kill", &[&["-KILL"], &pids[..]].concat());
    }

    /// Pulls the plug of a node's link, or puts it in again.
    fn plug(&self, node: &str, state: &str) {
        let nodes = &self.federation.rig.plan().clusters[0].nodes;
        let at = nodes.iter().position(|one| one.name == node).unwrap();
        // The control plane has the first link.
        self.federation.exec("backbone", "ip", &["link", "set", &format!("{BRIDGE}m{}", at + 1), state]);
    }

    /// Waits until both take part again, and say so.
    fn settled(&self, holder: &str) {
        let state = |node: &str| if node == holder { "Holding" } else { "Standby" };
        let expected = NODES.map(|node| (node.to_owned(), state(node).to_owned())).to_vec();
        becomes("one holds it, the other stands by", &expected, || {
            let edges = self.federation.object(HUB, "edges");
            let edges = edges["items"].as_array().cloned().unwrap_or_default();
            let own = edges.iter().filter(|edge| edge["spec"]["ingressReplicaSet"] == "front");
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            let mut states: Vec<(String, String)> = own
                .map(|edge| (text(&edge["spec"]["node"]), text(&edge["status"]["vips"][0]["state"])))
                .collect();
            states.sort();
            states
        });
    }

    /// Who holds it and how often it moved is told: in the group's status, in Events, and by the edge itself.
    fn is_told(&self, node: &str) {
        let pod = self.pods().into_iter().find(|(_, on)| on == node).map(|(pod, _)| pod).unwrap();
        becomes("the holder is told", &(Value::from(pod), Value::from(node)), || {
            let vip = self.federation.object(HUB, "ingressreplicaset front")["status"]["vips"][0].clone();
            (vip["holder"]["edge"].clone(), vip["holder"]["node"].clone())
        });
        let vip = self.federation.object(HUB, "ingressreplicaset front")["status"]["vips"][0].clone();
        assert!(vip["transitions"].as_i64() >= Some(6) && vip["holder"]["since"].is_string(), "{vip}");
        let events = self.federation.kubectl(HUB, "get events -A --field-selector=reason=VIPMoved");
        assert!(events.contains(&format!("{} is held by", self.vip)), "{events}");
        let url = format!("http://{}:{ADMIN_PORT}/metrics", self.address(node));
        let metrics = run(std::process::Command::new("curl").args(["-sS", "--fail", &url])).unwrap();
        assert!(metrics.contains("\nlandfall_edge_vip_holding 1\n"), "{metrics}");
        assert!(metrics.contains("\nlandfall_edge_vip_transitions_total "), "{metrics}");
    }

    /// The nodes whose interfaces have the address; those that are off have nothing.
    fn holders(&self) -> Vec<&'static str> {
        let vip = self.vip.to_string();
        let has = |node: &&str| {
            let shown = self.federation.rig.exec(node, "ip", &["-o", "addr", "show", "to", &vip]);
            shown.is_ok_and(|shown| !shown.stdout.is_empty())
        };
        NODES.into_iter().filter(has).collect()
    }

    /// The group's pods, and the nodes they were put on.
    fn pods(&self) -> Vec<(String, String)> {
        let pods = self.federation.object(CLUSTER, "pods -n landfall-groups");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        pods.iter().map(|pod| (text(&pod["metadata"]["name"]), text(&pod["spec"]["nodeName"]))).collect()
    }

    fn address(&self, node: &str) -> String {
        let nodes = &self.federation.rig.plan().clusters[0].nodes;
        nodes.iter().find(|one| one.name == node).map(|one| one.address.to_string()).unwrap()
    }

    /// The hardware address of a node, as its neighbours know it.
    fn hardware(&self, node: &str) -> String {
        let shown = self.federation.exec("backbone", "ip", &["-o", "neigh", "show", &self.address(node)]);
        let mut words = shown.split_whitespace().skip_while(|word| *word != "lladdr");
        words.nth(1).unwrap_or_default().to_owned()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for what in [
                "get pods -n landfall-groups -o wide",
                "describe pods -n landfall-groups",
                "logs -n landfall-groups -l app=landfall-group --all-containers --prefix --tail=60",
            ] {
                let said = self.federation.try_kubectl(CLUSTER, &format!("{what} --request-timeout=5s"));
                println!("--- {what}\n{}", said.unwrap_or_else(|said| said));
            }
            let all = "get edges,ingressreplicasets,groupplans,routeplans,events -A -o yaml";
            println!("{}", self.federation.try_kubectl(HUB, all).unwrap_or_default());
        }
    }
}
