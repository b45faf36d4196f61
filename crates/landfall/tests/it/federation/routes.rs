//! What edges carry: routes of Ingresses, certificates, and seed 003's MultiClusterIngress and -Service. The edges are made by
//! hand.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::{becomes, manifest, playground_with};
use crate::support::Playground;

const SHOP: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: front}
spec:
  rules:
  - host: shop.example.com
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}
      - {path: /api, pathType: Prefix, backend: {service: {name: api, port: {number: 80}}}}
"#;

/// Another Ingress, which has one path of a host.
fn ingress(name: &str, more: &str) -> String {
    format!(
        "{{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {{name: {name}}}, spec: {{{more} rules: [{{host: shop.example.com, \
         http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}}}]}}}}"
    )
}

fn edge(playground: &Playground, name: &str, cluster: &str, address: &str) {
    playground.give(&format!(
        "{{apiVersion: landfall.dev/v1alpha1, kind: Edge, metadata: {{name: {name}}}, spec: {{cluster: {cluster}, carries: true, addresses: [{{ip: {address}}}]}}}}"
    ));
}

/// Routes as words, one a line: host, path, and where it goes.
fn routes(playground: &Playground, plan: &str) -> Vec<String> {
    let plan = playground.object("federation", &format!("routeplan {plan}"));
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut lines = Vec::new();
    for host in list(&plan["spec"]["hosts"]) {
        for path in list(&host["paths"]) {
            let action = &path["action"];
            let to = match &action["service"] {
                Value::Null => action["unavailable"].as_str().unwrap_or("?").to_owned(),
                service => format!("{}:{}", service["name"].as_str().unwrap_or("?"), service["port"]),
            };
            lines.push(format!(
                "{}{} {to}",
                host["host"].as_str().unwrap_or(""),
                path["path"].as_str().unwrap_or("")
            ));
        }
    }
    for certificate in list(&plan["spec"]["certificates"]) {
        lines.push(format!("tls {}", certificate["secret"].as_str().unwrap_or("?")));
    }
    lines.sort();
    lines
}

/// The conditions of an object that do not hold, with their reasons.
fn troubles(playground: &Playground, what: &str) -> String {
    let object = playground.object("federation", what);
    let conditions =
        object.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let wrong = conditions.iter().filter(|condition| condition["status"] == "False");
    let text = |condition: &Value, key: &str| condition[key].as_str().unwrap_or("?").to_owned();
    wrong
        .map(|one| format!("{} {}: {}", text(one, "type"), text(one, "reason"), text(one, "message")))
        .collect::<Vec<_>>()
        .join("; ")
}

fn addresses(playground: &Playground, ingress: &str) -> Vec<String> {
    let object = playground.object("federation", &format!("ingress {ingress}"));
    let list =
        object.pointer("/status/loadBalancer/ingress").and_then(Value::as_array).cloned().unwrap_or_default();
    list.iter().filter_map(|one| one["ip"].as_str().map(str::to_owned)).collect()
}

/// Says in a member, as a controller there would, where an Ingress is reached.
fn give_address(playground: &Playground, ingress: &str) {
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}}});
    playground.kubectl_ok(&format!("--context eu-west wait --for=create ingress/{ingress} --timeout=60s"));
    playground.kubectl_ok(&format!(
        "--context eu-west patch ingress {ingress} --subresource=status --type=merge -p {status}"
    ));
}

fn warned(playground: &Playground, name: &str) -> Vec<String> {
    let events = playground
        .object("federation", &format!("events --field-selector involvedObject.name={name},type=Warning"));
    let items = events["items"].as_array().cloned().unwrap_or_default();
    items.iter().filter_map(|event| event["reason"].as_str().map(str::to_owned)).collect()
}

#[test]
fn an_ingress_becomes_routes_and_shows_where_the_edges_are() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground_with("routes of ingresses", base.path(), &["--no-edges"]) else {
        return;
    };
    playground.give(SHOP);
    let missing = "shop.example.com/api there is no Service default/api".to_owned();
    let web = "shop.example.com/ web:80".to_owned();
    becomes("routes", &vec![web.clone(), missing], || routes(&playground, "ingress.front"));
    let refs =
        "ResolvedRefs BackendNotFound: shop.example.com/api: there is no Service default/api".to_owned();
    becomes("what is missing", &refs, || troubles(&playground, "routeplan ingress.front"));
    becomes("an Event", &vec!["BackendNotFound".to_owned()], || warned(&playground, "front"));
    // It comes, and everything is well.
    playground.kubectl_ok("create service clusterip api --tcp=80");
    becomes("routes", &vec![web.clone(), "shop.example.com/api api:80".to_owned()], || {
        routes(&playground, "ingress.front")
    });
    becomes("nothing is missing", &String::new(), || troubles(&playground, "routeplan ingress.front"));

    // Without edges that can be reached, members tell where it is; then the edges do, whether they speak or not.
    give_address(&playground, "front");
    becomes("the member's address", &vec!["198.51.100.1".to_owned()], || addresses(&playground, "front"));
    edge(&playground, "one", "eu-west", "192.0.2.1");
    becomes("the edge's address", &vec!["192.0.2.1".to_owned()], || addresses(&playground, "front"));
    edge(&playground, "two", "us-east", "192.0.2.2");
    let both = vec!["192.0.2.1".to_owned(), "192.0.2.2".to_owned()];
    becomes("both edges' addresses", &both, || addresses(&playground, "front"));

    // A younger one wants the same path: the older keeps it, until it goes.
    playground.give(&ingress("rival", ""));
    let conflict =
        "Accepted Conflict: the path shop.example.com/ belongs to Ingress default/front, which is older";
    becomes("a conflict", &conflict.to_owned(), || troubles(&playground, "routeplan ingress.rival"));
    becomes("an Event", &vec!["Conflict".to_owned()], || warned(&playground, "rival"));
    assert!(routes(&playground, "ingress.rival").is_empty());
    playground.kubectl_ok("delete ingress front");
    becomes("the path", &vec![web.clone()], || routes(&playground, "ingress.rival"));
    becomes("no conflict", &String::new(), || troubles(&playground, "routeplan ingress.rival"));
    becomes("no plan of what is gone", &Value::Null, || {
        playground.object("federation", "routeplan ingress.front")
    });

    // Somebody else's class is somebody else's business.
    playground.give(&ingress("rival", "ingressClassName: nginx,"));
    becomes("no plan", &Value::Null, || playground.object("federation", "routeplan ingress.rival"));
    give_address(&playground, "rival");
    becomes("the member's address", &vec!["198.51.100.1".to_owned()], || addresses(&playground, "rival"));
    playground.give("{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: nginx}, spec: {controller: landfall.dev/edge}}");
    becomes("a plan again", &vec![web], || routes(&playground, "ingress.rival"));
}

fn pair(host: &str) -> (String, String) {
    let pair = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
    (BASE64.encode(pair.cert.pem()), BASE64.encode(pair.signing_key.serialize_pem()))
}

/// One that ends with the beginning of a year.
fn pair_until(host: &str, year: i32) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![host.to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let made = params.self_signed(&key).unwrap();
    (BASE64.encode(made.pem()), BASE64.encode(key.serialize_pem()))
}

fn give_secret(playground: &Playground, certificate: &str, key: &str) {
    playground.give(&format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{name: shop-tls}}, type: kubernetes.io/tls, data: {{tls.crt: {certificate}, tls.key: {key}}}}}"
    ));
}

#[test]
fn certificates_are_checked_and_the_last_good_one_stays() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground_with("certificates", base.path(), &["--no-edges"]) else { return };
    playground.kubectl_ok("create service clusterip web --tcp=80");
    playground.give(&ingress("secure", "tls: [{hosts: [shop.example.com], secretName: shop-tls}],"));
    let missing = "ResolvedRefs InvalidCertificate: there is no Secret default/shop-tls".to_owned();
    becomes("no Secret", &missing, || troubles(&playground, "routeplan ingress.secure"));
    let copy = || {
        playground.object("federation", "secret default.shop-tls -n landfall-certificates")["data"].clone()
    };
    let (first, first_key) = pair("shop.example.com");
    give_secret(&playground, &first, &first_key);
    let good = json!({"tls.crt": first, "tls.key": first_key});
    becomes("a copy", &good, copy);
    becomes("nothing is missing", &false, || {
        troubles(&playground, "routeplan ingress.secure").contains("Certificate")
    });
    let copies = playground.kubectl_ok("--context eu-west get namespaces -o name");
    assert!(!copies.contains("landfall-certificates"), "copies stay at the federation: {copies}");

    // A key that does not fit: it is told, and the copy stays.
    let (second, second_key) = pair("shop.example.com");
    give_secret(&playground, &second, &first_key);
    becomes("a wrong key", &true, || {
        troubles(&playground, "routeplan ingress.secure").contains("do not go together")
    });
    becomes("an Event", &true, || warned(&playground, "secure").contains(&"InvalidCertificate".to_owned()));
    assert_eq!(copy(), good);
    // The right one replaces it.
    give_secret(&playground, &second, &second_key);
    becomes("a new copy", &json!({"tls.crt": second, "tls.key": second_key}), copy);
    // One that has expired leaves the copy as it is.
    let (old, old_key) = pair_until("shop.example.com", 2020);
    give_secret(&playground, &old, &old_key);
    becomes("an expired one", &true, || {
        troubles(&playground, "routeplan ingress.secure").contains("its certificate has expired")
    });
    assert_eq!(copy(), json!({"tls.crt": second, "tls.key": second_key}));
    // One for another host is what was asked for, and it is told.
    let (other, other_key) = pair("other.example.com");
    give_secret(&playground, &other, &other_key);
    becomes("a copy of it", &json!({"tls.crt": other, "tls.key": other_key}), copy);
    becomes("one for another host", &true, || {
        troubles(&playground, "routeplan ingress.secure").contains("is not for shop.example.com")
    });
    give_secret(&playground, &second, &second_key);
    becomes("the right one again", &json!({"tls.crt": second, "tls.key": second_key}), copy);
    // It stays when the Secret goes, and goes when nobody names it.
    playground.kubectl_ok("delete secret shop-tls");
    becomes("no Secret", &true, || {
        troubles(&playground, "routeplan ingress.secure").contains("there is no Secret")
    });
    assert_eq!(copy(), json!({"tls.crt": second, "tls.key": second_key}));
    playground.kubectl_ok("delete ingress secure");
    becomes("no copy", &Value::Null, copy);
}

#[test]
fn a_multi_cluster_service_is_where_its_labels_say() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground_with("multi-cluster services", base.path(), &["--no-edges"]) else {
        return;
    };
    edge(&playground, "one", "eu-west", "192.0.2.1");
    playground.kubectl_ok("label cluster us-east region=us --overwrite");
    playground.kubectl_ok(&format!("apply -f {}", manifest("multi-cluster.yaml")));
    let list = |what: &str, path: &str| {
        let object = playground.object("federation", what);
        let list = object.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default();
        list.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect::<Vec<_>>().join(" ")
    };
    let service = || list("mcs my-mc-service", "/status/clusters");
    becomes("the members with the label", &"us-east".to_owned(), service);
    let derived =
        playground.kubectl_ok("get services -l landfall.dev/multi-cluster-service=my-mc-service -o name");
    let derived = derived.trim().trim_start_matches("service/").to_owned();
    assert!(derived.starts_with("mci-my-mc-service-svc-"), "{derived}");
    let ports = || playground.numbers(&format!("service {derived}"), "/spec/ports/0/targetPort");
    becomes("shards there only", &vec![-1, -1, 80], ports);
    becomes("routes", &vec![format!("foo.bar.com/ {derived}:80")], || routes(&playground, "mci.my-mci"));
    becomes("the members", &"us-east".to_owned(), || list("mci my-mci", "/status/clusters"));
    let vip = || playground.object("federation", "mci my-mci")["status"]["VIP"].clone();
    becomes("its address", &json!("192.0.2.1"), vip);
    assert_eq!(troubles(&playground, "mci my-mci"), "");

    // One comes in by its label, and goes.
    playground.kubectl_ok("label cluster asia-east region=us --overwrite");
    becomes("both", &vec![80, -1, 80], ports);
    becomes("both", &"asia-east us-east".to_owned(), service);
    playground.kubectl_ok("label cluster us-east region-");
    becomes("the other", &vec![80, -1, -1], ports);
    becomes("the other", &"asia-east".to_owned(), || list("mci my-mci", "/status/clusters"));

    // The other spelling, with members by their links.
    playground.kubectl_ok(&format!("apply -f {}", manifest("multi-cluster-gke.yaml")));
    let gke = || list("multiclusterservices.networking.gke.io zone-mcs", "/status/clusters");
    becomes("the members with links", &"eu-west us-east".to_owned(), gke);
    becomes("routes", &1, || routes(&playground, "gke-mci.zone-ingress").len());
    // Everything goes with it.
    playground.kubectl_ok("delete mcs my-mc-service");
    becomes("no shard", &vec![-1, -1, -1], ports);
    let missing = "ResolvedRefs BackendNotFound: the default backend: there is no MultiClusterService default/my-mc-service";
    becomes("what is missing", &true, || troubles(&playground, "mci my-mci").starts_with(missing));
}
