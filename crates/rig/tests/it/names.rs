//! Names on real clusters: edges are pods of every member, pods ask them through their own CoreDNS, and answers go on whatever is lost.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::carries;
use crate::classes::Classes;
use crate::divided;
use crate::federated::{Federation, HUB, MEMBERS, becomes, manifest};
use crate::secure;
use crate::streams;
use crate::support::{eventually, run, try_kubectl, turn};

/// The first design's name.
pub(crate) const NAME: &str = "my-service.my-namespace.my-federation.my-domain.com";
const SERVICE: &str = "service my-service -n my-namespace";
/// The image of edges, which every node gets.
pub(crate) const IMAGE: &str = "landfall.dev/edge:test";
/// How long answers are watched that must not change: longer than an edge may be silent.
const STILL: Duration = Duration::from_secs(9);
/// Clients of these subnets stand near these clusters.
const REGIONS: [(&str, &str); 3] =
    [("192.0.2.0/24", "us-east"), ("198.51.100.0/24", "eu-west"), ("203.0.113.0/24", "asia-east")];
const REGIONS_YAML: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: regions, namespace: landfall-system}
data: {offices: \"192.0.2.0/24: us-east\\n198.51.100.0/24: eu-west\\n203.0.113.0/24: asia-east\\n\"}
";

/// One rig and one hub for all of it: to start them takes longer than any part.
#[test]
fn pods_and_others_ask_edges_for_names() {
    let Some(_turn) = turn("pods_and_others_ask_edges_for_names") else { return };
    let mut names = Names::start();
    edges_are_pods(&names);
    the_nearest_is_first(&names);
    one_edge_alone_changes_nothing(&names);
    a_cluster_alone_serves_its_own(&names);
    without_the_hub_answers_go_on(&mut names);
    carries::ports_of_services(&names);
    carries::the_walkthrough(&names);
    streams::go_through_two_clusters(&names);
    secure::clients_come_over_tls(&names);
    let (drill, classes) = (carries::Drill::begin(&names), Classes::begin(&names));
    a_dead_cluster_is_left_out(&names, carries::NEAR, &classes);
    drill.end(&names);
    classes.back(&names);
    divided::by_label(&names);
    divided::by_canary(&names);
    divided::by_room(&names);
    edges_leave(&names);
}

fn edges_are_pods(names: &Names) {
    becomes("edges are alive", &6, || names.alive().len());
    // At most five edges vote on a target: who sits on which is not ours to say, but there are some of every cluster.
    becomes("edges of every cluster vote on every cluster", &9, || names.votes().len());
    becomes("all know how far the others are", &6, || {
        let trips = |edge: &Value| edge["status"]["roundTrips"].as_array().map_or(0, Vec::len);
        names.edges().iter().filter(|edge| trips(edge) == 2).count()
    });
    // What they may do in their member is little.
    for (what, expected) in [
        ("list endpointslices.discovery.k8s.io --all-namespaces", "yes"),
        ("patch secrets/landfall-edge-kept -n landfall-system", "yes"),
        ("get secrets/landfall-edge -n landfall-system", "no"),
        ("list secrets -n landfall-system", "no"),
        ("get pods --all-namespaces", "no"),
    ] {
        let account = "--as=system:serviceaccount:landfall-system:landfall-edge";
        let said = try_kubectl(&names.federation.rig, "us-east", &format!("auth can-i {what} {account}"));
        let said = said.unwrap_or_else(|_| "no".into());
        assert_eq!(said.trim(), expected, "{what}");
    }
    becomes("keys are kept", &2, || {
        let secret = names.federation.object("us-east", "secret landfall-edge-kept -n landfall-system");
        secret["data"]
            .as_object()
            .map_or(0, |data| data.keys().filter(|key| key.ends_with(".edge.key")).count())
    });
}

/// The first design's answers, from outside and from inside.
fn the_nearest_is_first(names: &Names) {
    // Until then they are found down, and answers are kept for a short time.
    becomes("pods are ready", &vec![2, 2, 2], || {
        names.federation.numbers("rc my-service -n my-namespace", "/status/readyReplicas")
    });
    becomes("all are up", &3, || names.verdicts().iter().filter(|(_, up)| *up).count());
    let balancers = MEMBERS.map(|name| names.balancer(name));
    let mut all = balancers.to_vec();
    all.sort();
    for name in MEMBERS {
        becomes(&format!("all addresses at {name}, kept for three minutes"), &(all.clone(), true), || {
            let mut seen = names.outside(name, &[]);
            seen.sort();
            let shown = names.dig(name, &["+noall", "+answer", NAME]);
            let kept = shown.lines().all(|line| line.split_whitespace().nth(1) == Some("180"));
            (seen, kept && !shown.is_empty())
        });

        // From a pod, by its own resolver: the address inside first, then the others'.
        let own = names.federation.object(name, SERVICE)["spec"]["clusterIP"].as_str().unwrap().to_owned();
        becomes(&format!("pods of {name}"), &(3, Some(own)), || {
            let seen = names.inside(name);
            (seen.len(), seen.first().cloned())
        });
        let rest = names.inside(name).split_off(1);
        assert!(rest.iter().all(|address| balancers.contains(address)), "{rest:?}");
        let shown = names.in_pod(name, &format!("curl -sS --max-time 5 http://{NAME}:2379/")).unwrap();
        assert!(shown.contains(name), "{shown}");
        let usual = names.in_pod(name, "dig +short kubernetes.default.svc.cluster.local").unwrap();
        assert_eq!(usual.trim(), "10.96.0.1", "the cluster's own names are answered as before");
    }
    names.federation.create(HUB, REGIONS_YAML);
    for ((subnet, near), at) in REGIONS.into_iter().zip(["eu-west", "asia-east", "us-east"]) {
        let option = format!("+subnet={subnet}");
        becomes(&format!("{subnet} at {at}"), &Some(names.balancer(near)), || {
            names.outside(at, &[&option]).first().cloned()
        });
    }
}

/// A pod that hears nobody outside of its node, and that nobody hears.
fn one_edge_alone_changes_nothing(names: &Names) {
    let pod = names.federation.object("us-east", "pod landfall-edge-0 -n landfall-system");
    let address = pod["status"]["podIP"].as_str().unwrap().to_owned();
    let rules = format!(
        "add table ip alone; add chain ip alone forward {{ type filter hook forward priority -200; }}; \
         add rule ip alone forward ip saddr {address} drop; add rule ip alone forward ip daddr {address} drop"
    );
    let before = names.verdicts();
    names.federation.exec("us-east-1", "nft", &[&rules]);
    becomes("its silence is heard", &5, || names.alive().len());
    let began = Instant::now();
    while began.elapsed() < STILL {
        for name in ["eu-west", "asia-east"] {
            assert_eq!(names.outside(name, &[]).len(), 3, "{name}");
        }
        assert_eq!(names.verdicts(), before);
        std::thread::sleep(Duration::from_millis(300));
    }
    let own = names.federation.object("us-east", SERVICE)["spec"]["clusterIP"].as_str().unwrap().to_owned();
    // The cluster's DNS asks one of the edges, and goes on asking it for a while: it may be the one that hears nobody.
    becomes("its own clients are served", &Some(own), || names.inside("us-east").first().cloned());
    names.federation.exec("us-east-1", "nft", &["delete table ip alone"]);
    becomes("heard again", &6, || names.alive().len());
}

fn a_cluster_alone_serves_its_own(names: &Names) {
    let (lost, own) = (names.balancer("us-east"), names.inside("us-east").first().cloned());
    for other in ["eu-west", "asia-east", "host"] {
        names.federation.rig.cut("us-east", other).unwrap();
    }
    for name in ["eu-west", "asia-east"] {
        becomes(&format!("left out by {name}"), &(2, false), || {
            let seen = names.outside(name, &[]);
            (seen.len(), seen.contains(&lost))
        });
    }
    // Nobody comes in from the host any more: its own control plane asks its own pod.
    let alone = || {
        names
            .within("us-east", &format!("dig +short +tries=2 +time=2 {NAME}"))
            .lines()
            .next()
            .map(str::to_owned)
    };
    becomes("its own pods are served", &own, alone);
    let answer = names.within("us-east", &format!("curl -sS --max-time 5 http://{NAME}:2379/"));
    assert!(answer.contains("us-east"), "{answer}");
    names.federation.rig.heal().unwrap();
    for name in MEMBERS {
        becomes(&format!("whole again at {name}"), &3, || names.outside(name, &[]).len());
    }
}

fn without_the_hub_answers_go_on(names: &mut Names) {
    let edge = "eu-west-landfall-edge-0";
    let uid =
        |names: &Names| names.federation.object(HUB, &format!("edge {edge}"))["metadata"]["uid"].clone();
    let first = uid(names);
    // The two others are as far as each other: which of them is nearer changes with what was measured last.
    let settled = |mut seen: Vec<String>| {
        seen.get_mut(1..).unwrap_or_default().sort();
        seen
    };
    let expected = MEMBERS.map(|name| settled(names.inside(name)));
    // They are kept now and then, and those of now say that everybody is up.
    becomes("the plans of now are kept", &true, || {
        let secret = names.federation.object("eu-west", "secret landfall-edge-kept -n landfall-system");
        let packed = secret["data"]["plans.json.gz"].as_str().unwrap_or_default().to_owned();
        let plans = run(Command::new("sh").args(["-c", "printf %s \"$0\" | base64 -d | gunzip", &packed]));
        plans.is_ok_and(|plans| plans.contains("us-east") && !plans.contains("\"up\":false"))
    });
    names.federation.stop_hub();
    // A pod that comes back without the hub has its key, its certificate and the last plans from its Secret.
    let pod = "pod landfall-edge-0 -n landfall-system";
    let before = names.federation.object("eu-west", pod)["metadata"]["uid"].clone();
    names.federation.kubectl("eu-west", &format!("delete {pod} --grace-period=1"));
    let again = eventually("the pod comes back", || {
        let now = names.federation.object("eu-west", pod);
        let conditions = now["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
        if ready && now["metadata"]["uid"] != before { Ok(now) } else { Err(now["status"].clone()) }
    });
    let address = format!("@{}", again["status"]["podIP"].as_str().unwrap());
    let said = names.federation.exec("eu-west-1", "dig", &["+short", &address, "-p", "5354", NAME]);
    assert_eq!(settled(addresses(&said)), expected[1], "the pod that came back answers as before");
    for (name, expected) in MEMBERS.iter().zip(&expected) {
        assert_eq!(&settled(names.inside(name)), expected, "{name}");
    }
    names.federation.start_hub();
    becomes("the same edge, without a token", &(6, first), || (names.alive().len(), uid(names)));
}

fn a_dead_cluster_is_left_out(names: &Names, dead: &str, classes: &Classes) {
    let lost = names.balancer(dead);
    names.federation.rig.kill_cluster(dead).unwrap();
    let killed = Instant::now();
    for name in MEMBERS.into_iter().filter(|name| *name != dead) {
        // Of the two that are left, one is cordoned.
        becomes(&format!("gone from {name}"), &(1, false), || {
            let seen = names.outside(name, &[]);
            (seen.len(), seen.contains(&lost))
        });
        println!("{name} left the dead cluster out after {:.1} s", killed.elapsed().as_secs_f64());
    }
    classes.lost(names, killed);
}

fn edges_leave(names: &Names) {
    let corefile = |name: &str| {
        let map = names.federation.object(name, "configmap coredns -n kube-system");
        map["data"]["Corefile"].as_str().unwrap().to_owned()
    };
    let with = corefile("us-east");
    assert!(with.contains("my-domain.com:53 clusterset.local:53 {"), "{with}");
    let said = names.federation.landfall("edge uninstall --kubeconfig MEMBERS --context us-east");
    assert!(said.contains("edge.landfall.dev/us-east-landfall-edge-0 revoked"), "{said}");
    let without = corefile("us-east");
    assert!(with.starts_with(&without) && !without.contains("landfall"), "{without}");
    let all = "get statefulsets,services,secrets,roles,rolebindings -n landfall-system -l app=landfall-edge -o name";
    assert_eq!(names.federation.kubectl("us-east", all), "");
    assert_eq!(names.edges().iter().filter(|edge| edge["spec"]["cluster"] == "us-east").count(), 0);
}

/// A federation whose members have edges.
pub(crate) struct Names {
    pub(crate) federation: Federation,
}

impl Names {
    fn start() -> Self {
        let names = Self { federation: Federation::start("it-names") };
        for name in MEMBERS {
            names.federation.import(&format!("{name}-1"), IMAGE);
            names.federation.landfall(&format!("join {name} --kubeconfig MEMBERS --context {name}"));
            let said = names.federation.landfall(&format!(
                "edge install --kubeconfig MEMBERS --context {name} --service-type LoadBalancer --image {IMAGE}"
            ));
            assert!(said.contains("my-domain.com and clusterset.local are answered by the edges"), "{said}");
            names.federation.kubectl(name, "run client --image=landfall.dev/tools:1");
        }
        names.federation.kubectl(HUB, "create namespace my-namespace");
        for name in ["my-service.yaml", "my-service-rc.yaml"] {
            names.federation.create(HUB, &manifest(name));
        }
        for name in MEMBERS {
            names.federation.kubectl(name, "wait --for=condition=Ready pod/client --timeout=60s");
        }
        names
    }

    fn edges(&self) -> Vec<Value> {
        let list = self.federation.object(HUB, "edges");
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Which cluster's edges have voted on which target.
    fn votes(&self) -> BTreeSet<(String, String)> {
        let mut found = BTreeSet::new();
        for edge in self.edges() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            for vote in edge["status"]["votes"].as_array().into_iter().flatten() {
                found.insert((text(&edge["spec"]["cluster"]), text(&vote["target"])));
            }
        }
        found
    }

    /// The edges that the hub hears.
    pub(crate) fn alive(&self) -> Vec<String> {
        let plan = self.federation.object(HUB, "trafficplan federation -n landfall-system");
        let edges = plan["spec"]["federation"]["edges"].as_array().cloned().unwrap_or_default();
        let alive = edges.iter().filter(|edge| edge["alive"] == true);
        alive.filter_map(|edge| edge["name"].as_str().map(str::to_owned)).collect()
    }

    /// Which members are up, by the majority's word.
    fn verdicts(&self) -> Vec<(String, bool)> {
        let plan = self.federation.object(HUB, "trafficplan my-service -n my-namespace");
        let clusters = plan["spec"]["clusters"].as_array().cloned().unwrap_or_default();
        let verdict =
            |one: &Value| (one["name"].as_str().unwrap_or_default().to_owned(), one["verdict"]["up"] == true);
        clusters.iter().map(verdict).collect()
    }

    /// The load balancer of the service in a cluster.
    pub(crate) fn balancer(&self, cluster: &str) -> String {
        let plan = self.federation.object(HUB, "trafficplan my-service -n my-namespace");
        let clusters = plan["spec"]["clusters"].as_array().cloned().unwrap_or_default();
        let found = clusters.iter().find(|one| one["name"] == cluster);
        found.and_then(|one| one["addresses"][0]["ip"].as_str()).unwrap_or_default().to_owned()
    }

    /// The load balancer of a cluster's edges.
    pub(crate) fn entrance(&self, cluster: &str) -> Option<String> {
        let edges = self.edges();
        let mut own = edges.iter().filter(|edge| edge["spec"]["cluster"] == cluster);
        own.find_map(|edge| edge["spec"]["addresses"][0]["ip"].as_str().map(str::to_owned))
    }

    /// What dig on the host says, asking the edges of a cluster at their load balancer.
    fn dig(&self, cluster: &str, arguments: &[&str]) -> String {
        let Some(address) = self.entrance(cluster) else { return String::new() };
        let mut command = Command::new("dig");
        command.args(["+tries=2", "+time=1", &format!("@{address}")]).args(arguments);
        run(&mut command).unwrap_or_default()
    }

    /// The addresses of the name for a client outside.
    pub(crate) fn outside(&self, cluster: &str, options: &[&str]) -> Vec<String> {
        addresses(&self.dig(cluster, &[&["+short", NAME], options].concat()))
    }

    /// The addresses of the name for a pod, by its own resolver.
    fn inside(&self, cluster: &str) -> Vec<String> {
        addresses(&self.in_pod(cluster, &format!("dig +short +tries=2 +time=2 {NAME}")).unwrap_or_default())
    }

    /// Runs a program in the client's pod.
    pub(crate) fn in_pod(&self, cluster: &str, line: &str) -> Result<String, String> {
        try_kubectl(&self.federation.rig, cluster, &format!("exec client -- {line}"))
    }

    /// The same, from the cluster's own control plane.
    fn within(&self, cluster: &str, line: &str) -> String {
        let command = self.federation.rig.kubectl(cluster);
        let program = command.get_program().to_str().unwrap().to_owned();
        let line = format!("exec client -- {line}");
        let arguments =
            command.get_args().map(|argument| argument.to_str().unwrap()).chain(line.split_whitespace());
        let output =
            self.federation.rig.exec(&format!("{cluster}-control"), &program, &arguments.collect::<Vec<_>>());
        String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
    }
}

/// What `dig +short` prints, less its complaints.
fn addresses(said: &str) -> Vec<String> {
    said.lines().filter(|line| !line.starts_with(';')).map(str::to_owned).collect()
}

impl Drop for Names {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in MEMBERS {
                let log =
                    "logs -n landfall-system -l app=landfall-edge --prefix --tail=40 --request-timeout=5s";
                let said = self.federation.try_kubectl(name, log).unwrap_or_else(|said| said);
                println!("--- edges of {name}\n{said}");
            }
            println!(
                "{}",
                self.federation.try_kubectl(HUB, "get edges,trafficplans -A -o yaml").unwrap_or_default()
            );
        }
    }
}
