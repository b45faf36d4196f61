//! Ports: Services of type LoadBalancer are carried as TCP and UDP by every edge, whatever speaks there.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::time::Duration;

use super::carries::ask;
use super::{becomes, playground};
use crate::support::{Playground, Process, free_port, landfall, text};

/// How long a datagram may be on its way before it counts as lost.
const LOST: Duration = Duration::from_millis(500);
/// Connections, one after the other, that show that all of them are carried.
const SOME: usize = 50;

/// A Service with a port for streams, whose pods tell where they are, and one for datagrams, which come back.
fn give(playground: &Playground, stream: u16, datagrams: u16) {
    playground.give(&format!(
        "
{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: game}}, spec: {{replicas: 6, selector: {{matchLabels: {{app: game}}}},
  template: {{metadata: {{labels: {{app: game}}}}, spec: {{containers: [{{name: game, image: echo, ports: [
    {{containerPort: 8080}}, {{containerPort: 9001, protocol: UDP}}]}}]}}}}}}}}
---
{{apiVersion: v1, kind: Service, metadata: {{name: game}}, spec: {{type: LoadBalancer, selector: {{app: game}}, ports: [
  {{name: play, port: {stream}, targetPort: 8080}}, {{name: talk, port: {datagrams}, protocol: UDP, targetPort: 9001}}]}}}}
"
    ));
}

/// What comes back of a datagram.
fn said(at: &str, word: &str) -> String {
    let say = || -> std::io::Result<String> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(LOST))?;
        socket.send_to(word.as_bytes(), at)?;
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer)?;
        Ok(text(&buffer[..length]))
    };
    say().unwrap_or_else(|error| error.to_string())
}

#[test]
fn a_service_is_reached_by_tcp_and_udp_at_an_edge_and_outlives_a_cluster() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("ports: streams and datagrams", base.path()) else { return };
    let (stream, datagrams) = (9000, 9001);
    give(&playground, stream, datagrams);
    let edge = playground.carries_at("us-east");
    let host = edge.rsplit_once(':').unwrap().0;
    let (stream, datagrams) = (format!("{host}:{stream}"), format!("{host}:{datagrams}"));
    let by = || ask(&stream, "game").unwrap_or_else(|wrong| wrong);
    becomes("the own cluster answers", &"us-east".to_owned(), by);
    becomes("a datagram comes back", &"hello".to_owned(), || said(&datagrams, "hello"));

    // Through another edge.
    assert!(playground.landfall(&["cordon", "us-east"]).status.success());
    becomes("the next nearest answers", &"eu-west".to_owned(), by);
    becomes("a datagram comes back", &"from afar".to_owned(), || said(&datagrams, "from afar"));
    // It dies: new connections and datagrams go to the next.
    playground.fault(&["kill", "eu-west"]);
    becomes("the one after it answers", &"asia-east".to_owned(), by);
    becomes("a datagram comes back", &"still".to_owned(), || said(&datagrams, "still"));
    for _ in 0..SOME {
        assert_eq!(by(), "asia-east");
    }
    playground.fault(&["heal"]);
    becomes("the next nearest answers again", &"eu-west".to_owned(), by);

    // Nobody listens where the Service was.
    playground.kubectl_ok("delete service game");
    becomes("the port is shut", &true, || by().contains("refused"));
}

#[test]
fn an_edge_opens_ports_at_the_service_that_leads_to_it() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("ports: an edge behind a Service", base.path()) else { return };
    let member = playground.kubectl_ok("config view --raw --minify --flatten --context eu-west");
    let kubeconfig = base.path().join("eu-west.kubeconfig");
    std::fs::write(&kubeconfig, member).unwrap();
    playground.kubectl_ok("--context eu-west create service loadbalancer front --tcp=80:80");
    let token = playground.landfall(&["edge", "token", "--cluster", "eu-west"]);
    let token = text(&token.stdout);
    let words = token.split_once("landfall edge ").unwrap().1.split_whitespace().filter(|word| *word != "\\");

    let mut command = landfall(playground.temporary());
    command
        .args(["edge", "--name", "eu-west-front"])
        .args(words)
        .arg("--data-dir")
        .arg(base.path().join("edge"));
    command.args(["--http-listen", "127.0.0.1:0", "--ports-on", "127.0.0.1", "--service", "front"]);
    command.arg("--kubeconfig").arg(kubeconfig);
    let mut edge = Process::start("edge", &mut command, base.path());
    edge.wait_for("ready", |edge| edge.output().contains("is ready").then_some(()));
    let doors = || {
        let service = playground.object("eu-west", "service front");
        let ports = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
        ports.iter().map(|port| format!("{}/{}", port["port"], port["protocol"].as_str().unwrap())).collect()
    };
    let set = |all: &[String]| all.iter().cloned().collect::<BTreeSet<String>>();
    let (stream, datagrams) = (free_port(), free_port());
    give(&playground, stream, datagrams);
    let own = "80/TCP".to_owned();
    let opened = [own.clone(), format!("{stream}/TCP"), format!("{datagrams}/UDP")];
    becomes("the ports are open at its Service", &set(&opened), doors);
    let at = format!("127.0.0.1:{stream}");
    becomes("and at the edge", &"eu-west".to_owned(), || ask(&at, "game").unwrap_or_else(|wrong| wrong));

    // Others write the Service, too.
    playground.kubectl_ok("--context eu-west annotate service front note=mine");
    let patch =
        format!("{{\"spec\":{{\"ports\":[{{\"name\":\"play\",\"port\":{stream},\"targetPort\":8080}}]}}}}");
    playground.kubectl_ok(&format!("patch service game --type=merge -p {patch}"));
    becomes("one is shut", &set(&opened[..2]), doors);
    playground.kubectl_ok("delete service game");
    becomes("what was there before stays", &set(&[own]), doors);
    assert_eq!(playground.object("eu-west", "service front")["metadata"]["annotations"]["note"], "mine");
}

#[test]
fn what_edges_that_are_pods_are_told_is_looked_at_first() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("ports: edges as pods", base.path()) else { return };
    let manifests = |further: &[&str]| {
        let typed = [
            &[
                "edge",
                "manifests",
                "us-east",
                "--service-type",
                "LoadBalancer",
                "--files-from",
                "files",
                "--",
            ],
            further,
        ];
        playground.landfall(&typed.concat())
    };
    let refused = manifests(&["--acces-log", "all"]);
    assert!(!refused.status.success());
    let why = text(&refused.stderr);
    assert!(why.contains("edges would not take these options") && why.contains("--acces-log"), "{why}");
    // A member takes what is printed.
    let made = manifests(&["--access-log", "all", "--transfer-key-file", "/etc/landfall/transfer.keys"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let file = base.path().join("edges.yaml");
    std::fs::write(&file, &made.stdout).unwrap();
    playground.kubectl_ok(&format!("--context us-east apply --server-side -f {}", file.display()));
    let set = playground.object("us-east", "statefulset landfall-edge -n landfall-system");
    let pod = &set["spec"]["template"]["spec"];
    let told = pod["containers"][0]["args"].as_array().unwrap();
    assert!(
        told.ends_with(&[
            "--access-log".into(),
            "all".into(),
            "--transfer-key-file".into(),
            "/etc/landfall/transfer.keys".into()
        ]),
        "{told:?}"
    );
    assert_eq!(pod["volumes"][1]["secret"]["secretName"], "files");
    assert_eq!(pod["securityContext"]["sysctls"][0]["name"], "net.ipv4.ip_unprivileged_port_start");
}
