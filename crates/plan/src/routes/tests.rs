//! Tests of routes.

use std::collections::BTreeMap;

use landfall_api::landfall::{RouteAction, RouteMatch};
use serde_json::json;

use super::*;

fn service(name: &str, ports: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {"type": "ClusterIP", "ports": ports}})
}

/// The Services of the namespace `shop`.
fn backing(name: &str) -> Option<Backing> {
    let object = match name {
        "web" => service("web", &json!([{"name": "http", "port": 80}, {"name": "admin", "port": 81}])),
        "api" => service("api", &json!([{"port": 8080, "appProtocol": "kubernetes.io/h2c"}])),
        "secure" => service("secure", &json!([{"port": 443, "appProtocol": "HTTPS"}])),
        "out" => {
            json!({"metadata": {"name": "out"}, "spec": {"type": "ExternalName", "externalName": "x.example"}})
        }
        _ => return None,
    };
    Some(Backing::of_service(&object))
}

fn around() -> Surroundings<'static> {
    Surroundings {
        backing: &backing,
        secret: &|wanted| (wanted.name == "bad").then(|| "the Secret shop/bad is bad".to_owned()),
        misfit: &|secret, host| {
            (secret == "good" && host.starts_with("other")).then(|| format!("shop/good is not for {host}"))
        },
        kind: "Service",
    }
}

fn ingress(annotations: &Value, spec: &Value) -> Routes {
    let object = json!({
        "metadata": {"name": "front", "namespace": "shop", "annotations": annotations, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec,
    });
    of_ingress(&object, &around())
}

fn to(action: &RouteAction) -> String {
    match (&action.service, &action.unavailable) {
        (Some(service), _) => format!("{}:{}/{:?}", service.name, service.port, service.protocol),
        (None, Some(why)) => format!("503 {why}"),
        (None, None) => format!(
            "{}{}{}",
            action.bucket.as_ref().map_or("", |bucket| &bucket.url),
            action.redirect.as_ref().map_or(String::new(), |to| format!("-> {:?}", to.scheme)),
            action.fixed_response.as_ref().map_or(String::new(), |fixed| fixed.status_code.to_string())
        ),
    }
}

/// Routes in words, one a line.
fn shown(routes: &Routes) -> Vec<String> {
    let mut lines = Vec::new();
    for host in &routes.spec.hosts {
        for path in &host.paths {
            let exact = if path.compare == RouteMatch::Exact { "=" } else { "" };
            lines.push(format!("{}{exact}{} {}", host.host, path.path, to(&path.action)));
        }
    }
    lines.extend(routes.spec.default_action.iter().map(|action| format!("default {}", to(action))));
    lines.extend(
        routes.spec.certificates.iter().map(|one| format!("tls {} {}", one.hosts.join(","), one.secret)),
    );
    lines.extend(routes.spec.passthrough.iter().map(|one| format!("pass {} {}", one.host, one.service.name)));
    lines.extend(
        routes.spec.ports.iter().map(|one| format!("{}/{} {}", one.port, one.protocol, one.service.name)),
    );
    lines.extend(routes.troubles.iter().map(|one| format!("! {}", one.reason)));
    lines
}

fn path(path: &str, kind: &str, service: &str, port: impl Into<Value>) -> Value {
    json!({"path": path, "pathType": kind, "backend": {"service": {"name": service, "port": port.into()}}})
}

#[test]
fn hosts_and_paths_become_routes() {
    let number = |number: i32| json!({ "number": number });
    let rule = |host: &str, paths: Value| json!({"host": host, "http": {"paths": paths}});
    let cases = [
        (
            json!({"rules": [
                rule("Shop.example.com", json!([
                    path("/", "Prefix", "web", number(80)), path("/api", "Exact", "api", number(8080)),
                    path("/old/*", "ImplementationSpecific", "web", json!({"name": "admin"})),
                    path("/", "Prefix", "api", number(8080)),
                ])),
                rule("*.example.com", json!([{"pathType": "ImplementationSpecific",
                    "backend": {"service": {"name": "secure", "port": {"number": 443}}}}])),
            ]}),
            vec![
                "shop.example.com/ web:80/Http",
                "shop.example.com=/api api:8080/H2c",
                "shop.example.com/old/ web:81/Http",
                "*.example.com/ secure:443/Https",
            ],
        ),
        (
            json!({"defaultBackend": {"service": {"name": "web", "port": {"name": "http"}}}}),
            vec!["default web:80/Http"],
        ),
        (
            json!({
                "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}},
                "rules": [rule("a.example.com", json!([path("/api", "Prefix", "api", number(8080))])), {"host": "b.example.com"}],
            }),
            vec![
                "a.example.com/api api:8080/H2c",
                "a.example.com/ web:80/Http",
                "b.example.com/ web:80/Http",
                "default web:80/Http",
            ],
        ),
        (
            json!({"rules": [{"http": {"paths": [
                path("/a", "Prefix", "gone", number(80)), path("/b", "Prefix", "web", number(90)),
                path("/c", "Prefix", "out", number(80)), path("/e", "Prefix", "web", json!({"name": "x"})),
                {"path": "/d", "pathType": "Prefix", "backend": {"resource": {"kind": "Bucket", "name": "b"}}},
            ]}}]}),
            vec![
                "/a 503 there is no Service shop/gone",
                "/b 503 the Service shop/web has no port 90",
                "/c 503 the Service out is of type ExternalName",
                "/e 503 the Service shop/web has no port x",
                "/d 503 the backend Bucket b is not carried",
                "! BackendNotFound: /a: there is no Service shop/gone",
                "! BackendNotFound: /b: the Service shop/web has no port 90",
                "! UnsupportedBackend: /c: the Service out is of type ExternalName",
                "! BackendNotFound: /e: the Service shop/web has no port x",
                "! UnsupportedBackend: /d: the backend Bucket b is not carried",
            ],
        ),
        (
            json!({"tls": [{"hosts": ["a.example.com"], "secretName": "good"}, {"hosts": ["B.example.com"], "secretName": "bad"}, {"hosts": ["c"]}]}),
            vec![
                "tls a.example.com shop.good",
                "tls b.example.com shop.bad",
                "! InvalidCertificate: the Secret shop/bad is bad",
            ],
        ),
        (
            json!({"tls": [{"hosts": ["a.example.com", "Other.example.com"], "secretName": "good"}]}),
            vec![
                "tls a.example.com,other.example.com shop.good",
                "! InvalidCertificate: shop/good is not for other.example.com",
            ],
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(shown(&ingress(&json!({}), &spec)), expected, "{spec}");
    }
}

#[test]
fn annotations_say_how_hosts_are_spoken_to() {
    let tls = json!({"tls": [{"hosts": ["a"], "secretName": "good"}],
        "rules": [{"host": "a", "http": {"paths": [path("/", "Prefix", "web", json!({"number": 80}))]}}]});
    let of = |annotations: Value| {
        let routes = ingress(&annotations, &tls);
        let options = &routes.spec.options;
        let mut said = vec![format!("{}", options.redirect_to_https)];
        said.extend(options.hsts_seconds.map(|seconds| format!("hsts {seconds}")));
        said.extend(options.min_tls_version.clone());
        said.extend(options.client_authority.clone());
        said.extend(options.send_proxy_protocol.then(|| "proxy".to_owned()));
        said.extend(shown(&routes).into_iter().filter(|line| !line.starts_with("tls")));
        said.join(", ")
    };
    let web = "a/ web:80/Http";
    for (annotations, expected) in [
        (json!({}), format!("true, {web}")),
        (json!({"landfall.dev/redirect-to-https": "false"}), format!("false, {web}")),
        (json!({"nginx.ingress.kubernetes.io/ssl-redirect": "false"}), format!("false, {web}")),
        (
            json!({"nginx.ingress.kubernetes.io/ssl-redirect": "false", "landfall.dev/redirect-to-https": "true"}),
            format!("true, {web}"),
        ),
        (
            json!({"landfall.dev/hsts-seconds": "60", "landfall.dev/min-tls-version": "TLSv1.3"}),
            format!("true, hsts 60, 1.3, {web}"),
        ),
        (
            json!({"landfall.dev/client-ca-secret": "ca", "landfall.dev/proxy-protocol": "true"}),
            format!("true, shop.ca, proxy, {web}"),
        ),
        (json!({"landfall.dev/backend-protocol": "grpc"}), "true, a/ web:80/H2c".to_owned()),
        (
            json!({"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}),
            "true, a/ web:80/Https".to_owned(),
        ),
        (
            json!({"nginx.ingress.kubernetes.io/whitelist-source-range": "10.0.0.0/8"}),
            format!(
                "true, {web}, ! UnsupportedAnnotation: the annotation nginx.ingress.kubernetes.io/whitelist-source-range is not heeded"
            ),
        ),
        (
            json!({"landfall.dev/hsts-seconds": "-1"}),
            format!(
                "true, {web}, ! InvalidAnnotation: the annotation landfall.dev/hsts-seconds must be a number of seconds"
            ),
        ),
        (
            json!({"landfall.dev/redirect-to-https": "yes"}),
            format!(
                "true, {web}, ! InvalidAnnotation: the annotation landfall.dev/redirect-to-https must be true or false"
            ),
        ),
        (
            json!({"landfall.dev/tls-passthrough": "true"}),
            "true, a/ -> Some(\"https\"), pass a web".to_owned(),
        ),
    ] {
        assert_eq!(of(annotations.clone()), expected, "{annotations}");
    }
    let forced = ingress(&json!({"nginx.ingress.kubernetes.io/force-ssl-redirect": "true"}), &json!({}));
    assert!(forced.spec.options.redirect_to_https);
}

#[test]
fn an_ingress_is_ours_by_its_class() {
    let class = |name: &str, controller: &str, default: bool| {
        json!({
            "metadata": {"name": name, "annotations": {"ingressclass.kubernetes.io/is-default-class": default.to_string()}},
            "spec": {"controller": controller},
        })
    };
    let none = vec![];
    let ours = vec![class("edge", CONTROLLER, false), class("nginx", "k8s.io/ingress-nginx", true)];
    let default = vec![class("edge", CONTROLLER, true)];
    let taken = vec![class("landfall", "example.com/other", false)];
    for (classes, named, expected) in [
        (&none, None, true),
        (&none, Some("nginx"), false),
        (&none, Some("landfall"), true),
        (&ours, None, false),
        (&ours, Some("edge"), true),
        (&ours, Some("nginx"), false),
        (&ours, Some("other"), false),
        (&default, None, true),
        (&default, Some("nginx"), false),
        (&taken, Some("landfall"), false),
    ] {
        let classes = Classes::new(classes.iter());
        let field = json!({"spec": {"ingressClassName": named}});
        let annotation = json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": named}}});
        assert_eq!(
            (classes.carry(&field), classes.carry(&annotation)),
            (expected, expected),
            "{classes:?} {named:?}"
        );
    }
}

#[test]
fn a_load_balancers_ports_are_carried() {
    let object = |class: Value| {
        json!({"metadata": {"name": "db", "namespace": "shop"}, "spec": {
            "type": "LoadBalancer", "loadBalancerClass": class,
            "ports": [{"port": 5432}, {"port": 53, "protocol": "UDP"}, {"port": 9, "protocol": "SCTP"}],
        }})
    };
    assert!(carried_service(&object(Value::Null)) && carried_service(&object(json!(CONTROLLER))));
    assert!(
        !carried_service(&object(json!("example.com/lb")))
            && !carried_service(&json!({"spec": {"type": "ClusterIP"}}))
    );
    let expected = ["5432/TCP db", "53/UDP db", "! UnsupportedProtocol: port 9: SCTP is not carried"];
    assert_eq!(shown(&balancer(&object(Value::Null), &|_| Vec::new())), expected);
    let told = |flag: &str| {
        let mut object = object(Value::Null);
        object["metadata"]["annotations"] = json!({"landfall.dev/proxy-protocol": flag});
        let routes = balancer(&object, &|_| Vec::new());
        (routes.spec.options.send_proxy_protocol, shown(&routes).len() > expected.len())
    };
    assert_eq!((told("true"), told("false"), told("v2")), ((true, false), (false, false), (false, true)));
    let mut closed = object(Value::Null);
    closed["spec"]["loadBalancerSourceRanges"] = json!([" 10.0.0.0/8", "2001:db8::/32"]);
    let ranges = balancer(&closed, &|_| Vec::new()).spec.options.source_ranges;
    assert_eq!(ranges, ["10.0.0.0/8", "2001:db8::/32"]);
    let reserving =
        |port: &str| if port == "5432/TCP" { vec!["east-1".into(), "west-1".into()] } else { Vec::new() };
    let taken = "! PortTaken: port 5432/TCP: edges that need it themselves do not carry it: east-1, west-1";
    assert!(shown(&balancer(&object(Value::Null), &reserving)).contains(&taken.to_owned()));
}

/// What goes, and what comes, where a routes' claim is another's.
fn lost_of(routes: &Routes, what: &What) -> String {
    let mut settled = routes.clone();
    settle(&mut settled, |claim| (claim.what == *what).then(|| "Ingress shop/older".to_owned()));
    let (mine, left) = (shown(routes), shown(&settled));
    let gone: Vec<&String> = mine.iter().filter(|line| !left.contains(line)).collect();
    let new: Vec<&String> = left.iter().filter(|line| !mine.contains(line)).collect();
    format!("-{gone:?} +{new:?}")
}

/// The routes of two hosts, with a default backend and a certificate.
fn two_hosts(annotations: &Value) -> Routes {
    let rule = |host: &str, of: &str| json!({"host": host, "http": {"paths": [path(of, "Prefix", "web", json!({"number": 80}))]}});
    ingress(
        annotations,
        &json!({
            "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}},
            "rules": [rule("a", "/x"), rule("b", "/")],
            "tls": [{"hosts": ["a", "b"], "secretName": "good"}],
        }),
    )
}

#[test]
fn of_two_that_want_the_same_the_older_has_it() {
    let routes = two_hosts(&json!({}));
    let at = |host: &str, path: &str| What::Path { host: host.into(), path: path.into(), exact: false };
    for (what, expected) in [
        (
            at("a", "/x"),
            r#"-["a/x web:80/Http"] +["! Conflict: the path a/x belongs to Ingress shop/older, which is older"]"#,
        ),
        (at("a", "/"), r#"-["a/ web:80/Http"] +[]"#),
        (
            at("b", "/"),
            r#"-["b/ web:80/Http"] +["! Conflict: the path b/ belongs to Ingress shop/older, which is older"]"#,
        ),
        (at("c", "/"), "-[] +[]"),
        (What::Default, r#"-["default web:80/Http"] +[]"#),
        (
            What::Certificate("a".into()),
            r#"-["tls a,b shop.good"] +["tls b shop.good", "! Conflict: the certificate of a belongs to Ingress shop/older, which is older"]"#,
        ),
        (
            What::Tls("b".into()),
            r#"-["tls a,b shop.good"] +["tls a shop.good", "! Conflict: TLS of b belongs to Ingress shop/older, which is older"]"#,
        ),
    ] {
        assert_eq!(lost_of(&routes, &what), expected, "{what:?}");
    }
    let claim = claims(&routes).into_iter().find(|claim| claim.what == at("b", "/")).unwrap();
    let standing = |created: Value, name: &str, implied: bool| {
        let mut spec = routes.spec.clone();
        spec.source_created = serde_json::from_value(created).ok();
        spec.source_ref.name = name.into();
        Standing::new(&Claim { implied, ..claim.clone() }, &spec, "shop")
    };
    let old = standing(json!("2026-01-01T00:00:00Z"), "z", false);
    assert!(old < standing(json!("2026-01-02T00:00:00Z"), "a", false), "the older");
    assert!(old < standing(Value::Null, "a", false), "whose age is unknown is the youngest");
    assert!(old > standing(json!("2026-01-01T00:00:00Z"), "a", false), "then by name");
    assert!(old < standing(json!("2025-01-01T00:00:00Z"), "a", true), "who means it");
}

#[test]
fn tls_of_a_host_goes_one_way() {
    let (routes, passed) =
        (two_hosts(&json!({})), two_hosts(&json!({"landfall.dev/tls-passthrough": "true"})));
    assert_eq!(
        lost_of(&passed, &What::Tls("a".into())),
        r#"-["a/ -> Some(\"https\")", "pass a web"] +["! Conflict: TLS of a belongs to Ingress shop/older, which is older"]"#
    );
    let port = What::Port(5432, "TCP".into());
    let database =
        json!({"metadata": {"name": "db", "namespace": "shop"}, "spec": {"ports": [{"port": 5432}]}});
    assert_eq!(
        lost_of(&balancer(&database, &|_| Vec::new()), &port),
        r#"-["5432/TCP db"] +["! Conflict: the port 5432/TCP belongs to Ingress shop/older, which is older"]"#
    );
    // TLS of one host is ended for all who want that, and passed on to nobody else then; and the other way around.
    let tls = |routes: &Routes| {
        let all = claims(routes).into_iter();
        let of_a = all.filter(|claim| claim.what == What::Tls("a".into()));
        of_a.map(|claim| claim.purpose).collect::<Vec<_>>().join(",")
    };
    assert_eq!((tls(&routes).as_str(), tls(&passed).as_str()), ("ended", ""));
}

#[test]
fn a_multi_cluster_service_stands_for_a_service_in_the_members_it_selects() {
    let label = |region: &str| BTreeMap::from([("region".to_owned(), region.to_owned())]);
    let members = [("tokyo", label("asia")), ("ohio", label("us")), ("oregon", label("us"))];
    let port = json!([{"name": "web", "protocol": "TCP", "port": 80, "targetPort": 80, "nodePort": 30080}]);
    let us = json!([{"selector": {"matchLabels": {"region": "us"}}}]);
    let app = json!({"app": "shopping"});
    for (spec, expected) in [
        (json!({"template": {"selector": app, "ports": port, "clusters": us}}), "ohio oregon"),
        (json!({"template": {"selector": app}, "ports": port, "clusters": us}), "ohio oregon"),
        (
            json!({"template": {"spec": {"selector": app, "ports": port}}, "clusters": [{"link": "us-east2/ohio"}, {"name": "tokyo"}]}),
            "ohio tokyo",
        ),
        (json!({"template": {"selector": app, "ports": port}}), "ohio oregon tokyo"),
        (json!({"template": {"selector": app, "ports": port}, "clusters": [{"name": "gone"}]}), ""),
        (
            json!({"template": {"selector": app, "ports": port}, "clusters": [{"selector": {"matchExpressions": [{"key": "region", "operator": "Is"}]}}]}),
            "",
        ),
    ] {
        let object = json!({"metadata": {"name": "my-mc-service", "namespace": "shop"}, "spec": spec});
        let derived = derive(&object, "landfall.dev", members.iter().map(|(name, labels)| (*name, labels)));
        assert_eq!(derived.clusters.join(" "), expected, "{spec}");
        assert_eq!(derived.problem.is_some(), spec.to_string().contains("\"Is\""), "{spec}");
        assert_eq!(derived.service["spec"]["selector"], app, "{spec}");
        let ports = json!([{"name": "web", "protocol": "TCP", "port": 80, "targetPort": 80}]);
        assert_eq!(derived.service["spec"]["ports"], ports, "{spec}");
        let selection = crate::placement::Selection::of(&derived.service).unwrap();
        let placed: Vec<&str> = members
            .iter()
            .filter(|(name, labels)| selection.matches(name, labels))
            .map(|(name, _)| *name)
            .collect();
        let mut placed = placed;
        placed.sort_unstable();
        assert_eq!(placed.join(" "), expected, "{spec}");
        let backing = Backing::of_multi_cluster(&object, "landfall.dev");
        assert_eq!(json!(backing.name), derived.service["metadata"]["name"]);
        assert!(
            backing.name.starts_with("mci-my-mc-service-svc-") && backing.name.len() <= 63,
            "{}",
            backing.name
        );
    }
    assert!(derived_name("landfall.dev", &"a.".repeat(120)).len() <= 63);
    assert_ne!(derived_name("landfall.dev", "a"), derived_name("networking.gke.io", "a"));
}

#[test]
fn a_multi_cluster_ingress_speaks_both_spellings() {
    let old = json!({"backend": {"serviceName": "web", "servicePort": 80}, "rules": [
        {"host": "foo.bar.com", "http": {"paths": [{"backend": {"serviceName": "web", "servicePort": "http"}}]}},
    ]});
    let new = json!({"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}, "rules": [
        {"host": "foo.bar.com", "http": {"paths": [{"backend": {"service": {"name": "web", "port": {"name": "http"}}}}]}},
    ]});
    let of = |spec: &Value| {
        let object = json!({"metadata": {"name": "my-mci", "namespace": "shop"}, "spec": {"template": {"spec": spec}}});
        shown(&of_multi_cluster(&object, "landfall.dev", &around()))
    };
    for spec in [&old, &new] {
        assert_eq!(of(spec), ["foo.bar.com/ web:80/Http", "default web:80/Http"], "{spec}");
    }
    let more = json!({"rules": [{"http": {"paths": [
        {"path": "/b", "backend": {"bucket": {"url": "https://bucket.example.com"}}},
        {"path": "/r", "backend": {"redirect": {"scheme": "https"}}},
        {"path": "/f", "backend": {"fixedResponse": {"statusCode": 410}}},
    ]}}]});
    assert_eq!(of(&more), ["/b https://bucket.example.com", "/r -> Some(\"https\")", "/f 410"]);
}

#[test]
fn names_do_not_get_in_each_others_way() {
    let of = |kind: &str, group: &str| plan_name(kind, group, "web");
    let all =
        [of("Ingress", "networking.k8s.io"), of("Service", ""), of("MultiClusterIngress", "landfall.dev")];
    assert_eq!(all.join(" "), "ingress.web service.web mci.web");
    assert_eq!(of("MultiClusterIngress", "networking.gke.io"), "gke-mci.web");
    let long = "x".repeat(253);
    assert!(copy_name("shop", &long).len() <= 253 && copy_name("a", &long) != copy_name("b", &long));
}

#[test]
fn conditions_tell_troubles_and_since_when() {
    let time = |text: &str| serde_json::from_value::<Time>(json!(text)).unwrap();
    let troubles = [Trouble::reference("BackendNotFound", "one"), Trouble::reference("X", "two")];
    let first = conditions(&troubles, &[], Some(3), &time("2026-01-01T00:00:00Z"));
    let said: Vec<String> = first
        .iter()
        .map(|one| format!("{}={} {} {}", one.type_, one.status, one.reason, one.message))
        .collect();
    assert_eq!(
        said,
        ["Accepted=True Accepted the edges carry it", "ResolvedRefs=False BackendNotFound one; two"]
    );
    let later = conditions(&[], &first, Some(4), &time("2026-01-02T00:00:00Z"));
    let since: Vec<String> = later.iter().map(|one| one.last_transition_time.0.to_string()).collect();
    assert_eq!(since, ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]);
}
