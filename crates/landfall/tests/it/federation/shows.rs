//! What operators see of what edges carry, and what users' objects cannot make edges do.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use super::carries::{HOST, PATIENCE, carried};
use super::{becomes, playground};
use crate::support::{Playground, text};

impl Playground {
    /// What an edge's admin port says.
    pub(super) fn admin_says(&self, cluster: &str, path: &str) -> String {
        let addresses = self.addresses();
        let edges = addresses["edges"].as_array().unwrap();
        let edge = edges.iter().find(|edge| edge["cluster"] == cluster).unwrap();
        let at = edge["admin"].as_str().unwrap().trim_start_matches("http://");
        whole(at, "admin", path).1
    }
}

/// The head and the body of an answer.
fn whole(at: &str, host: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let said = text(&bytes);
    let (head, body) = said.split_once("\r\n\r\n").unwrap_or((&said, ""));
    (head.to_owned(), body.to_owned())
}

/// The number of a metric with these labels.
pub(super) fn metric(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let of = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'))
            && labels.iter().all(|label| line.contains(label))
    };
    let numbers = metrics.lines().filter(of).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    numbers.sum()
}

/// Which clusters are told to take a request, in their order.
fn told(playground: &Playground, more: &[&str]) -> (String, Vec<String>) {
    let url = format!("http://{HOST}/cart");
    let said = playground.landfall(&[&["explain", "http", &url], more].concat());
    assert!(said.status.success(), "{more:?}: {}", text(&said.stderr));
    let said = text(&said.stdout);
    let words = said.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let clusters = words.filter(|word| super::MEMBERS.contains(word)).map(str::to_owned).collect();
    (said, clusters)
}

#[test]
fn metrics_and_explanations_tell_what_clients_see() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = carried("shows: metrics and explanations", base.path()) else { return };
    for _ in 0..10 {
        assert_eq!(playground.asked("us-east", HOST), "us-east");
    }
    let metrics = playground.admin_says("us-east", "/metrics");
    let route = ["route=\"default/ingress.web\"", "service=\"default/web\"", "cluster=\"us-east\""];
    let answered =
        metric(&metrics, "landfall_proxy_requests_total", &[&route[..], &["code=\"2xx\""]].concat());
    assert!(answered >= 10.0, "{metrics}");
    let count = metric(&metrics, "landfall_proxy_request_duration_seconds_count", &route);
    assert!(count >= answered, "{metrics}");
    assert!(metric(&metrics, "landfall_proxy_request_duration_seconds_sum", &route) > 0.0, "{metrics}");
    // Nobody was left out.
    assert!(metrics.contains("# TYPE landfall_proxy_ejections_total counter\n"), "{metrics}");
    for name in ["shed_total", "refused_total", "connections_refused_total"] {
        assert!(metrics.contains(&format!("\nlandfall_proxy_{name} ")), "{name}: {metrics}");
    }
    for name in ["retries_total", "overflow_total", "broken_total"] {
        assert!(metrics.contains(&format!("\nlandfall_proxy_{name}{{")), "{name}: {metrics}");
    }

    // The order in which clients of each cluster would be answered; and what would be without the first.
    let (said, clusters) = told(&playground, &["--from", "us-east"]);
    assert_eq!(clusters, ["us-east", "eu-west", "asia-east"], "{said}");
    assert!(said.contains("route Ingress default/web") && said.contains("service default/web"), "{said}");
    let (said, clusters) = told(&playground, &["--from", "us-east", "--without", "us-east"]);
    assert!(said.contains("without us-east\n  eu-west  100 %  takes over at once"), "{said}");
    assert_eq!(clusters, ["us-east", "eu-west", "asia-east", "eu-west"], "{said}");
    // By a client's address: that of the cluster's own edge is inside.
    let addresses = playground.addresses();
    let sites = addresses["edges"].as_array().unwrap();
    let site = sites.iter().find(|site| site["cluster"] == "asia-east").unwrap();
    let client = site["http"].as_str().unwrap().split(':').next().unwrap().to_owned();
    let (said, clusters) = told(&playground, &["--from", &format!("{client}/32")]);
    assert_eq!(clusters.first().map(String::as_str), Some("asia-east"), "{said}");
    let nobody = playground.landfall(&["explain", "http", HOST, "--from", "us-east", "--without", "mars"]);
    assert!(!nobody.status.success() && text(&nobody.stderr).contains("there is no cluster \"mars\""));

    // It dies, and does as it was told.
    playground.fault(&["kill", "us-east"]);
    becomes("the next nearest is told first", &Some("eu-west".to_owned()), || {
        told(&playground, &["--from", "us-east"]).1.first().cloned()
    });
}

/// What edges carry is told to the hub again and again, and to everybody who watches: not more than once a second, and not much.
#[test]
fn what_an_edge_carries_is_told_once_a_second_at_the_most() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = carried("shows: load reports", base.path()) else { return };
    let clients = playground.crowd("us-east", HOST, 50);
    let edges = playground.object("federation", "edges");
    let edges = edges["items"].as_array().unwrap();
    let of = |edge: &Value| edge["metadata"]["name"].as_str().unwrap().to_owned();
    let edge = edges.iter().find(|edge| edge["spec"]["cluster"] == "us-east").map(of).unwrap();
    let told = || playground.object("federation", &format!("edge {edge}"))["status"]["services"].clone();
    becomes("what it carries is told", &true, || {
        told()[0]["load"]["requestsPerSecond"].as_f64() > Some(40.0)
    });
    let one = &told()[0];
    assert_eq!((&one["service"], &one["cluster"]), (&"default/web".into(), &"us-east".into()), "{one}");
    for number in ["requestsPerSecond", "concurrency", "latencyMs", "errorsPerSecond"] {
        assert!(one["load"][number].is_number(), "{number}: {one}");
    }

    let watch =
        "-o jsonpath={.status.heartbeatTime}{\"|\"}{.status.services}{\"\\n\"} --watch --request-timeout=10s";
    let watched = text(&playground.kubectl(&format!("get edge {edge} {watch}")).stdout);
    let mut reports: Vec<(k8s_openapi::jiff::Timestamp, &str)> = watched
        .lines()
        .filter_map(|line| line.split_once('|'))
        .map(|(at, told)| (at.parse().unwrap(), told))
        .collect();
    reports.dedup_by_key(|(_, told)| *told);
    let (first, last) = (reports.first().unwrap().0, reports.last().unwrap().0);
    let seconds = last.duration_since(first).as_secs_f64();
    let more = f64::from(u32::try_from(reports.len()).unwrap() - 1);
    assert!(more >= 4.0 && more * 0.9 <= seconds, "{more} in {seconds} s: {watched}");
    assert!(reports.iter().all(|(_, told)| told.len() < 1000), "{watched}");
    drop(clients.end());
}

/// A federation's users may not be its administrators: what they write leads edges nowhere that is not theirs.
#[test]
fn nobody_is_led_to_the_hub_or_to_an_edges_own_port() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("shows: forbidden backends", base.path()) else { return };
    let addresses = playground.addresses();
    let admin = |cluster: &str| {
        let edges = addresses["edges"].as_array().unwrap();
        let edge = edges.iter().find(|edge| edge["cluster"] == cluster).unwrap();
        edge["admin"].as_str().unwrap().to_owned()
    };
    let own = admin("us-east");
    let (host, port) = own.trim_start_matches("http://").split_once(':').unwrap();
    // As a bucket, and as an endpoint of a Service in the edge's own cluster.
    playground.give(&format!(
        "{{apiVersion: landfall.dev/v1alpha1, kind: MultiClusterIngress, metadata: {{name: sly}}, spec: {{template: {{spec: {{rules: [\
           {{host: bucket.example.com, http: {{paths: [{{backend: {{bucket: {{url: \"{own}\"}}}}}}]}}}},\
           {{host: metadata.example.com, http: {{paths: [{{backend: {{bucket: {{url: \"http://169.254.169.254/\"}}}}}}]}}}}]}}}}}}}}\n\
         ---\n\
         {{apiVersion: v1, kind: Service, metadata: {{name: sly}}, spec: {{ports: [{{port: 80, targetPort: {port}}}]}}}}\n\
         ---\n\
         {{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {{name: sly}}, spec: {{rules: [{{host: endpoint.example.com,\
           http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: sly, port: {{number: 80}}}}}}}}]}}}}]}}}}\n"
    ));
    playground.kubectl_ok("--context us-east wait --for=create service/sly --timeout=60s");
    let slice = playground.dir().join("slice.yaml");
    let endpoints = format!(
        "---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: sly-1, labels: {{kubernetes.io/service-name: sly}}}},\
           addressType: IPv4, ports: [{{name: \"\", port: {port}, protocol: TCP}}], endpoints: [{{addresses: [{host}], conditions: {{ready: true}}}}]}}\n"
    );
    std::fs::write(&slice, endpoints).unwrap();
    playground.kubectl_ok(&format!("--context us-east apply -f {}", slice.display()));
    let at = playground.carries_at("us-east");
    for host in ["bucket.example.com", "metadata.example.com", "endpoint.example.com"] {
        becomes(&format!("there is a route to {host}"), &true, || {
            !whole(&at, host, "/metrics").0.starts_with("HTTP/1.1 404 ")
        });
        for _ in 0..3 {
            let (head, body) = whole(&at, host, "/metrics");
            assert!(head.starts_with("HTTP/1.1 50"), "{host}: {head}");
            assert!(!body.contains("landfall_proxy"), "{host}: {body}");
        }
    }
    assert!(playground.admin_says("us-east", "/metrics").contains("landfall_proxy"), "others may ask it");
}
