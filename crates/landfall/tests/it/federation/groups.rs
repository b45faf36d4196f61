//! Groups of edges: addresses, what is bound to them and why, and claims. The groups' edges are processes of their own.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{becomes, playground_with};
use crate::support::{Playground, Process, landfall, text};

pub(super) const RANGE: &str = "{apiVersion: landfall.dev/v1alpha1, kind: IngressVIPRange, metadata: {name: office}, \
    spec: {cidrs: [192.0.2.0/28], exclude: [192.0.2.1]}}";

pub(super) const WEB: &str = "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}";

fn group(name: &str, zone: &str, capacity: u32) -> String {
    format!(
        "{{apiVersion: landfall.dev/v1alpha1, kind: IngressReplicaSet, metadata: {{name: {name}, labels: {{zone: {zone}}}}}, \
         spec: {{clusters: {{names: [eu-west]}}, capacity: {{ingresses: {capacity}, requestsPerSecond: 1000}}}}}}"
    )
}

pub(super) fn ingress(name: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": name, "labels": {"team": "x"}, "annotations": annotations},
        "spec": {"rules": [{"host": format!("{name}.example.com"), "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}},
        ]}}]},
    })
}

fn asking(name: &str, selector: &str) -> Value {
    ingress(name, &json!({"landfall.dev/ingress-selector": selector}))
}

pub(super) fn give_all(playground: &Playground, objects: &[Value]) {
    playground.give(&json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string());
}

/// An edge of a group in eu-west.
fn edge(playground: &Playground, name: &str, group: &str) -> Process {
    let said = playground.landfall(&["edge", "token", "--cluster", "eu-west"]);
    let said = text(&said.stdout);
    let words = said.split_once("landfall edge ").unwrap_or_else(|| panic!("{said}")).1;
    let mut command = landfall(playground.temporary());
    command.arg("edge").args(words.split_whitespace().filter(|word| *word != "\\"));
    command.args(["--name", name, "--group", group, "--http-listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(playground.dir().join(name));
    let mut process = Process::start(name, &mut command, playground.dir());
    process.wait_for("ready", |process| process.output().contains("is ready").then_some(()));
    becomes("an edge that is ready", &true, || {
        let conditions =
            playground.object("federation", &format!("edge {name}"))["status"]["conditions"].clone();
        conditions
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
    });
    process
}

fn note(object: &Value, name: &str) -> String {
    object["metadata"]["annotations"][name].as_str().unwrap_or("").to_owned()
}

/// How many Ingresses are bound to each group, as they say it themselves; those that wait count under the empty name.
fn bound(playground: &Playground) -> BTreeMap<String, usize> {
    let all = playground.object("federation", "ingresses");
    let mut count = BTreeMap::new();
    for ingress in all["items"].as_array().into_iter().flatten() {
        *count.entry(note(ingress, "landfall.dev/bound-to")).or_default() += 1;
    }
    count
}

fn counts(all: &[(&str, usize)]) -> BTreeMap<String, usize> {
    all.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

pub(super) fn condition(object: &Value, kind: &str) -> String {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let own = all.iter().find(|one| one["type"] == kind);
    own.map(|own| {
        format!("{} {}", own["status"].as_str().unwrap_or(""), own["reason"].as_str().unwrap_or(""))
    })
    .unwrap_or_default()
}

pub(super) fn vip(playground: &Playground, what: &str) -> String {
    playground.object("federation", what)["status"]["vip"].as_str().unwrap_or("").to_owned()
}

/// `kubectl describe` tells of the first Ingress, in its annotations and Events.
#[track_caller]
fn describes(playground: &Playground, words: &[&str]) {
    let missing = || {
        let told = playground.kubectl_ok("describe ingress early");
        words.iter().filter(|word| !told.contains(**word)).map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    becomes("what describe does not tell", &Vec::new(), missing);
}

#[test]
fn ingresses_are_bound_to_groups_by_selector_number_and_load() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground_with("groups of edges", base.path(), &["--no-edges"]) else { return };
    let world = [RANGE, &group("blue", "eu", 8), &group("green", "eu", 8), &group("red", "us", 4), WEB];
    playground.give(&world.join("\n---\n"));
    for (name, address) in [("blue", "192.0.2.2"), ("green", "192.0.2.3"), ("red", "192.0.2.4")] {
        becomes(name, &address.to_owned(), || vip(&playground, &format!("ingressreplicaset {name}")));
    }
    becomes("what the range gave", &json!([3, 13]), || {
        let status = playground.object("federation", "ingressviprange office")["status"].clone();
        json!([status["allocated"], status["total"]])
    });
    // Before a group has an edge nobody is sent there, and it says why.
    give_all(&playground, &[asking("early", "zone=us")]);
    becomes("why it waits", &"not bound (NoReadyEdges): no edge of red is ready".to_owned(), || {
        note(&playground.object("federation", "ingress early"), "landfall.dev/binding")
    });
    assert!(
        playground.object("federation", "routeplan ingress.early").is_null(),
        "nobody carries it by accident"
    );
    let _edges = [edge(&playground, "blue-1", "blue"), edge(&playground, "red-1", "red")];
    let mut green = edge(&playground, "green-1", "green");
    becomes("room appears", &counts(&[("red", 1)]), || bound(&playground));

    // By selector and number: sixteen for eu, then three for us, which has room for four.
    let eu: Vec<Value> = (0..14).map(|at| asking(&format!("eu-{at:02}"), "zone=eu")).collect();
    give_all(&playground, &eu);
    becomes("spread by number", &counts(&[("blue", 7), ("green", 7), ("red", 1)]), || bound(&playground));
    let us: Vec<Value> = (0..5).map(|at| asking(&format!("us-{at:02}"), "zone=us")).collect();
    give_all(&playground, &us);
    becomes("red is full", &counts(&[("", 2), ("blue", 7), ("green", 7), ("red", 4)]), || bound(&playground));

    // The status has the group's address, and edges are told who carries it.
    becomes("the address", &json!([{"ip": "192.0.2.4"}]), || {
        playground.object("federation", "ingress early")["status"]["loadBalancer"]["ingress"].clone()
    });
    assert_eq!(playground.object("federation", "routeplan ingress.early")["spec"]["groups"], json!(["red"]));
    let plan = playground.object("federation", "groupplan red");
    assert_eq!(plan["spec"]["members"][0]["vips"], json!(["192.0.2.4"]));
    assert_eq!(plan["spec"]["members"][0]["edges"][0]["name"], "red-1");
    describes(&playground, &["landfall.dev/bound-to: red", "1 of 3 groups match zone=us", "Bound"]);

    // By load: blue says that it is nearly busy, so the next one goes to green although it has as many.
    let load = json!({"status": {"load": {"requestsPerSecond": 800}}});
    playground.kubectl_ok(&format!("patch edge blue-1 --subresource=status --type=merge -p {load}"));
    becomes("the load is seen", &Some(800.0), || {
        playground.object("federation", "ingressreplicaset blue")["status"]["load"]["requestsPerSecond"]
            .as_f64()
    });
    give_all(&playground, &[asking("eu-14", "zone=eu")]);
    becomes("load decides", &"green".to_owned(), || {
        note(&playground.object("federation", "ingress eu-14"), "landfall.dev/bound-to")
    });

    comes_and_goes(&playground, &mut green);
}

/// Groups come, go, and fall silent, and what was bound to them moves.
fn comes_and_goes(playground: &Playground, green: &mut Process) {
    // Add a group: who waits is bound. Lose one: who was there is bound elsewhere.
    playground.give(&group("pink", "us", 20));
    let _pink = edge(playground, "pink-1", "pink");
    becomes("more room", &counts(&[("blue", 7), ("green", 8), ("pink", 2), ("red", 4)]), || {
        bound(playground)
    });
    playground.kubectl_ok("delete ingressreplicaset red");
    becomes("a group is gone", &counts(&[("blue", 7), ("green", 8), ("pink", 6)]), || bound(playground));
    describes(playground, &["Rebound", "the group red is gone"]);
    becomes("its plan goes", &true, || !playground.kubectl("get groupplan red").status.success());

    // All edges of a group fall silent: those who can go elsewhere do.
    playground.kubectl_ok(
        "patch ingressreplicaset blue --type=merge -p {\"spec\":{\"capacity\":{\"ingresses\":20}}}",
    );
    playground.kubectl_ok(
        "patch edge blue-1 --subresource=status --type=merge -p {\"status\":{\"load\":{\"requestsPerSecond\":1}}}",
    );
    green.terminate();
    becomes("a group is silent", &counts(&[("blue", 15), ("pink", 6)]), || bound(playground));
}

#[test]
fn a_claim_makes_a_group_and_disposes_of_it() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground_with("claims", base.path(), &["--no-edges"]) else { return };
    playground.give(&[RANGE, WEB].join("\n---\n"));
    for (policy, expected) in [("Retain", "192.0.2.2"), ("Recycle", "192.0.2.3"), ("Delete", "192.0.2.3")] {
        // What was recycled serves the next claim, which deletes it.
        let claim = json!({
            "apiVersion": "landfall.dev/v1alpha1", "kind": "IngressClaim", "metadata": {"name": "mine"},
            "spec": {
                "ingresses": [{"name": "shop"}], "reclaimPolicy": policy,
                "ingressReplicaSetSpec": {"clusters": {"names": ["eu-west"]}, "replicas": 2},
            },
        });
        give_all(&playground, &[claim, ingress("shop", &json!({}))]);
        becomes(policy, &json!(["Bound", expected, ["shop"]]), || {
            let status = playground.object("federation", "ingressclaim mine")["status"].clone();
            json!([status["phase"], status["vip"], status["ingresses"]])
        });
        let name =
            playground.object("federation", "ingressclaim mine")["status"]["ingressReplicaSetName"].clone();
        let name = name.as_str().unwrap().to_owned();
        becomes("bound directly", &name, || {
            note(&playground.object("federation", "ingress shop"), "landfall.dev/bound-to")
        });
        becomes("the address", &json!([{"ip": expected}]), || {
            playground.object("federation", "ingress shop")["status"]["loadBalancer"]["ingress"].clone()
        });
        playground.kubectl_ok("delete ingress shop");
        becomes("the last ingress is gone", &json!("Released"), || {
            playground.object("federation", "ingressclaim mine")["status"]["phase"].clone()
        });
        let group = format!("ingressreplicaset {name}");
        let released =
            || playground.object("federation", &group)["metadata"]["labels"]["landfall.dev/released"].clone();
        match policy {
            "Retain" => becomes("retained", &json!("Retained"), released),
            "Recycle" => becomes("recycled", &json!("Recycled"), released),
            _ => becomes("deleted", &false, || playground.kubectl(&format!("get {group}")).status.success()),
        }
        playground.kubectl_ok("delete ingressclaim mine --timeout=60s");
    }
    let left = playground.object("federation", "ingressreplicasets");
    assert_eq!(left["items"].as_array().map(Vec::len), Some(1), "only what was retained: {left}");

    // An ingress that another claim has.
    let claim = |name: &str| {
        json!({
            "apiVersion": "landfall.dev/v1alpha1", "kind": "IngressClaim", "metadata": {"name": name},
            "spec": {"ingressSelector": {"matchLabels": {"team": "x"}}, "ingressReplicaSetSpec": {}},
        })
    };
    give_all(&playground, &[claim("first"), ingress("shop", &json!({}))]);
    becomes("served", &json!(["shop"]), || {
        playground.object("federation", "ingressclaim first")["status"]["ingresses"].clone()
    });
    give_all(&playground, &[claim("second")]);
    becomes("whose it is", &"False ClaimedElsewhere".to_owned(), || {
        condition(&playground.object("federation", "ingressclaim second"), "IngressesBound")
    });
}

#[test]
fn the_hub_runs_groups_where_edges_were_installed() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground_with("groups as pods", base.path(), &["--no-edges"]) else { return };
    let installed =
        json!({"image": "landfall.dev/landfall:dev", "hubUrl": "https://hub.example.com:6443"}).to_string();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "edge-pods", "namespace": "landfall-system"},
        "data": {"eu-west": installed},
    });
    give_all(&playground, &[map]);
    let both = "{apiVersion: landfall.dev/v1alpha1, kind: IngressReplicaSet, metadata: {name: blue}, spec: {replicas: 2, \
        nodeSelector: {edge: \"yes\"}, clusters: {names: [eu-west, us-east]}}}";
    playground.give(&[RANGE, both].join("\n---\n"));
    let what = "statefulset blue-eu-west -n landfall-groups";
    becomes("the pods", &json!([2, true, "yes"]), || {
        let set = playground.object("eu-west", what);
        let pod = &set["spec"]["template"]["spec"];
        json!([set["spec"]["replicas"], pod["hostNetwork"], pod["nodeSelector"]["edge"]])
    });
    becomes("their token", &true, || {
        playground.object("eu-west", "secret blue-eu-west -n landfall-groups")["data"]["token"].is_string()
    });
    let others = playground.kubectl("--context us-east -n landfall-groups get statefulsets -o name");
    assert_eq!(text(&others.stdout), "", "nobody installed edges in us-east");
    playground.kubectl_ok("patch ingressreplicaset blue --type=merge -p {\"spec\":{\"replicas\":3}}");
    becomes("more pods", &json!(3), || playground.object("eu-west", what)["spec"]["replicas"].clone());
    // What is left of pods that are gone for good is forgotten; it would be waited for.
    let edge = |place: u32| {
        json!({
            "apiVersion": "landfall.dev/v1alpha1", "kind": "Edge", "metadata": {"name": format!("blue-eu-west-{place}")},
            "spec": {"cluster": "eu-west", "ingressReplicaSet": "blue"},
        })
    };
    let edges = || playground.kubectl_ok("get edges -o name");
    give_all(&playground, &[edge(2), edge(3)]);
    becomes("three pods have three edges", &"edge.landfall.dev/blue-eu-west-2\n".to_owned(), edges);
    playground.kubectl_ok("delete ingressreplicaset blue");
    becomes("nothing is left", &String::new(), edges);
    becomes("they go with the group", &true, || playground.object("eu-west", what).is_null());
}

#[test]
fn what_makes_no_sense_is_refused_and_who_may_is_known() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) =
        playground_with("groups: mistakes", base.path(), &["--no-edges", "--clusters", "1"])
    else {
        return;
    };
    playground.give(RANGE);
    let refused = |object: Value, expected: &str| {
        let file = playground.dir().join("refused.json");
        std::fs::write(&file, object.to_string()).unwrap();
        let output = playground.kubectl(&format!("create -f {}", file.display()));
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{said} has no {expected}");
    };
    let ours = |kind: &str, spec: Value| json!({"apiVersion": "landfall.dev/v1alpha1", "kind": kind, "metadata": {"name": "x", "namespace": "default"}, "spec": spec});
    let range = |spec: Value| json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "IngressVIPRange", "metadata": {"name": "x"}, "spec": spec});
    let group = |spec: Value| json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "IngressReplicaSet", "metadata": {"name": "x"}, "spec": spec});
    refused(range(json!({"cidrs": ["192.0.2.8/30"]})), "overlaps with the IngressVIPRange office");
    refused(range(json!({"cidrs": ["192.0.2.0"]})), "must be a valid CIDR value");
    refused(group(json!({"capacity": {"ingresses": 0}})), "greater than or equal to 1");
    refused(group(json!({"vip": "nowhere"})), "must be a valid IP address");
    refused(ours("IngressClaim", json!({"ingressReplicaSetSpec": {}})), "name ingresses, or select them");
    refused(asking("x", "zone in ("), "metadata.annotations[landfall.dev/ingress-selector]: Invalid value");
    // An address outside every range is no mistake of form, and may be right when a range is added.
    let created =
        group(json!({"vip": "203.0.113.1", "clusters": {"names": ["eu-west", "us-east", "asia-east"]}}));
    give_all(&playground, &[created]);
    becomes("why it has no address", &"False VIPOutsideRanges".to_owned(), || {
        condition(&playground.object("federation", "ingressreplicaset x"), "VIPAllocated")
    });
    give_all(
        &playground,
        &[json!({
            "apiVersion": "landfall.dev/v1alpha1", "kind": "IngressVIPRange", "metadata": {"name": "more"},
            "spec": {"cidrs": ["203.0.113.0/29"]},
        })],
    );
    becomes("the range is there", &"203.0.113.1".to_owned(), || vip(&playground, "ingressreplicaset x"));

    // Who may what, by the ready-made roles.
    for role in ["landfall-admin", "landfall-ingress-admin", "landfall-ingress-user"] {
        playground
            .kubectl_ok(&format!("create clusterrolebinding {role} --clusterrole={role} --user={role}"));
    }
    for (user, verb, what, expected) in [
        ("landfall-ingress-user", "create", "ingressclaims", true),
        ("landfall-ingress-user", "create", "ingresses.networking.k8s.io", true),
        ("landfall-ingress-user", "list", "ingressreplicasets", true),
        ("landfall-ingress-user", "create", "ingressreplicasets", false),
        ("landfall-ingress-user", "delete", "ingressvipranges", false),
        ("landfall-ingress-admin", "create", "ingressreplicasets", true),
        ("landfall-ingress-admin", "create", "ingressvipranges", true),
        ("landfall-ingress-admin", "create", "clusters.landfall.dev", false),
        ("landfall-ingress-admin", "get", "secrets", false),
        ("landfall-admin", "create", "clusters.landfall.dev", true),
        ("landfall-admin", "update", "groupplans", false),
    ] {
        becomes(&format!("{user} {verb} {what}"), &expected, || {
            playground.kubectl(&format!("auth can-i {verb} {what} --as {user}")).status.success()
        });
    }
    let output = playground.kubectl("--as landfall-ingress-user delete ingressreplicaset x");
    assert!(text(&output.stderr).contains("forbidden"), "{}", text(&output.stderr));
    claims_ask_for_no_more(&playground);
}

/// A claim asks for no more than its writer may: where pods run is for those who may make groups.
fn claims_ask_for_no_more(playground: &Playground) {
    let file = playground.dir().join("claim.json");
    let apply = |user: &str, spec: Value| {
        let claim = json!({
            "apiVersion": "landfall.dev/v1alpha1", "kind": "IngressClaim",
            "metadata": {"name": "x", "namespace": "default"},
            "spec": {"ingresses": [{"name": "shop"}], "ingressReplicaSetSpec": spec},
        });
        std::fs::write(&file, claim.to_string()).unwrap();
        let output = playground.kubectl(&format!("--as {user} apply -f {}", file.display()));
        if output.status.success() { String::new() } else { text(&output.stderr) }
    };
    let plain = json!({"replicas": 2, "clusters": {"names": ["us-east"]}});
    let mut more = plain.clone();
    more["tolerations"] = json!([{"operator": "Exists"}]);
    let said = apply("landfall-ingress-user", more.clone());
    assert!(said.contains("tolerations") && said.contains("create ingressreplicasets"), "{said}");
    assert_eq!(apply("landfall-ingress-admin", more), "");
    playground.kubectl_ok("delete ingressclaim x");
    assert_eq!(apply("landfall-ingress-user", plain), "");
}
