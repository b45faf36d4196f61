//! Addresses of groups: who holds them, that clients are answered there, and that nobody else has them before they are let go.

use std::process::Command;

use serde_json::{Value, json};

use super::groups::{RANGE, WEB, condition, give_all, ingress, vip};
use super::{becomes, playground, playground_with};
use crate::support::{Playground, find, skip, text};

/// A group of two edges in eu-west.
fn group(name: &str, address: Option<&str>) -> Value {
    json!({
        "apiVersion": "landfall.dev/v1alpha1", "kind": "IngressReplicaSet", "metadata": {"name": name},
        "spec": {"replicas": 2, "clusters": {"names": ["eu-west"]}, "vip": address},
    })
}

fn claim(policy: &str) -> Value {
    json!({
        "apiVersion": "landfall.dev/v1alpha1", "kind": "IngressClaim", "metadata": {"name": "mine"},
        "spec": {
            "ingresses": [{"name": "shop"}], "reclaimPolicy": policy,
            "ingressReplicaSetSpec": {"clusters": {"names": ["eu-west"]}, "replicas": 2},
        },
    })
}

/// What curl is answered at an address: the code, or what is wrong.
fn curl(address: &str, host: &str) -> String {
    let url = format!("http://{address}:8080/");
    let said = Command::new("curl")
        .args([
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--max-time",
            "10",
            "-H",
            &format!("Host: {host}"),
            &url,
        ])
        .output()
        .unwrap();
    match said.status.code() {
        Some(0) => text(&said.stdout),
        Some(7) => "refused".into(),
        code => format!("curl: {code:?}"),
    }
}

/// A playground with edges, and a service that answers.
fn served(suite: &str, base: &std::path::Path) -> Option<Playground> {
    if find("curl").is_none() {
        skip(suite, "curl not found");
        return None;
    }
    let playground = playground(suite, base)?;
    playground.kubectl_ok("create deployment web --image=echo --replicas=6");
    playground.kubectl_ok("expose deployment web --port=80 --target-port=8080");
    Some(playground)
}

#[test]
fn clients_are_answered_at_the_address_of_a_claim_until_it_is_disposed_of() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = served("claims: answered", base.path()) else { return };
    let mut recycled = String::new();
    for policy in ["Retain", "Recycle", "Delete"] {
        give_all(&playground, &[claim(policy), ingress("shop", &json!({}))]);
        becomes(policy, &json!("Bound"), || {
            playground.object("federation", "ingressclaim mine")["status"]["phase"].clone()
        });
        let address = vip(&playground, "ingressclaim mine");
        becomes("it is answered", &"200".to_owned(), || curl(&address, "shop.example.com"));
        let name =
            playground.object("federation", "ingressclaim mine")["status"]["ingressReplicaSetName"].clone();
        let group = format!("ingressreplicaset {}", name.as_str().unwrap());
        becomes("it is held", &"True Held".to_owned(), || {
            condition(&playground.object("federation", &group), "VIPHeld")
        });
        if policy == "Delete" {
            assert_eq!(address, recycled, "what was recycled serves the next claim");
        }
        playground.kubectl_ok("delete ingress shop");
        becomes("the last ingress is gone", &json!("Released"), || {
            playground.object("federation", "ingressclaim mine")["status"]["phase"].clone()
        });
        // The group stays, and its edges have nothing to carry; or nobody is there any more.
        let after = if policy == "Delete" { "refused" } else { "404" };
        becomes("nobody answers for it", &after.to_owned(), || curl(&address, "shop.example.com"));
        let there = playground.kubectl(&format!("get {group}")).status.success();
        becomes("the group", &(policy != "Delete"), || {
            playground.kubectl(&format!("get {group}")).status.success()
        });
        assert!(there || policy == "Delete");
        recycled = address;
        playground.kubectl_ok("delete ingressclaim mine --timeout=60s");
    }
    becomes("edges of what is deleted are forgotten", &2, || {
        let edges = playground.object("federation", "edges");
        let of_group = |edge: &&Value| edge["spec"]["ingressReplicaSet"].is_string();
        edges["items"].as_array().map_or(0, |all| all.iter().filter(of_group).count())
    });
}

/// An edge that is cut off from the hub goes on with the last plan that it has. When its group was deleted meanwhile, another group
/// got the address at once, and two nodes held it.
#[test]
fn an_address_is_given_to_nobody_before_edges_have_let_go() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = served("groups: letting go", base.path()) else { return };
    give_all(
        &playground,
        &[group("blue", None), ingress("shop", &json!({"landfall.dev/ingress-replicaset": "blue"}))],
    );
    becomes("blue holds it", &"True Held".to_owned(), || {
        condition(&playground.object("federation", "ingressreplicaset blue"), "VIPHeld")
    });
    let address = vip(&playground, "ingressreplicaset blue");
    becomes("it is answered", &"200".to_owned(), || curl(&address, "shop.example.com"));
    playground.fault(&["cut", "eu-west", "hub"]);
    playground.kubectl_ok("delete ingressreplicaset blue --wait=false");
    give_all(&playground, &[group("green", Some(&address))]);
    let told = || condition(&playground.object("federation", "ingressreplicaset green"), "VIPAllocated");
    becomes("why green has no address", &"False VIPConflict".to_owned(), told);
    let blue = playground.object("federation", "ingressreplicaset blue");
    assert_eq!(blue["status"]["releasing"][0]["address"], address, "{blue}");
    assert_eq!(curl(&address, "shop.example.com"), "200", "whoever holds it carries on");
    assert_eq!(told(), "False VIPConflict");
    playground.fault(&["heal"]);
    becomes("blue goes", &false, || playground.kubectl("get ingressreplicaset blue").status.success());
    becomes("green has it", &address, || vip(&playground, "ingressreplicaset green"));
    becomes("green holds it", &"True Held".to_owned(), || {
        condition(&playground.object("federation", "ingressreplicaset green"), "VIPHeld")
    });
}

/// The certificates that an edge has, as its admin port tells.
fn certificates(playground: &Playground, edge: &str) -> Vec<String> {
    let object = playground.object("federation", &format!("edge {edge}"));
    let Some(ip) = object["spec"]["addresses"][0]["ip"].as_str() else { return Vec::new() };
    let said = Command::new("curl").args(["-s", &format!("http://{ip}:5303/routes")]).output().unwrap();
    let routes: Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
    let names = routes["certificates"].as_array().cloned().unwrap_or_default();
    names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// What the hub says to an edge that asks with its own certificate: the code, and the object.
fn asks(playground: &Playground, edge: &str, method: &str, path: &str, body: &str) -> (String, Value) {
    let (code, said) = says_hub(playground, edge, method, path, body);
    (code, serde_json::from_str(&said).unwrap_or_default())
}

/// The names of what an edge is shown that watches.
fn watched(playground: &Playground, edge: &str, path: &str) -> Vec<String> {
    let (code, said) = says_hub(playground, edge, "GET", path, "");
    assert_eq!(code, "200", "{said}");
    let event = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    said.lines().map(|line| event(line)["object"]["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// The code, and the body.
fn says_hub(playground: &Playground, edge: &str, method: &str, path: &str, body: &str) -> (String, String) {
    let (dir, hub) =
        (playground.dir().join("edges").join(edge), playground.addresses()["hub"]["url"].clone());
    let mut command = Command::new("curl");
    command.args(["-s", "-w", "\n%{http_code}", "-X", method]);
    for (option, file) in [("--cert", dir.join("edge.crt")), ("--key", dir.join("edge.key"))] {
        command.arg(option).arg(file);
    }
    command.arg("--cacert").arg(playground.dir().join("hub/pki/ca.crt"));
    command.args(["-H", "Content-Type: application/merge-patch+json"]);
    if !body.is_empty() {
        command.args(["-d", body]);
    }
    let said = command.arg(format!("{}{path}", hub.as_str().unwrap())).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let (body, code) = said.rsplit_once('\n').unwrap_or_else(|| panic!("{said}"));
    (code.to_owned(), body.to_owned())
}

/// An edge chose itself which certificates it asked for, and which group it belonged to: whoever had broken into one could have had
/// the keys of all.
fn an_edge_that_asks_for_more_is_shown_no_more(playground: &Playground) {
    let all = "/api/v1/namespaces/landfall-certificates/secrets";
    let names = |edge: &str, path: &str| {
        let (code, list) = asks(playground, edge, "GET", path, "");
        assert_eq!(code, "200", "{list}");
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (edge, own) in [("blue-eu-west-0", "sky"), ("green-eu-west-0", "grass"), ("eu-west", "sand")] {
        let own = format!("default.{own}");
        let others = [format!("{all}?labelSelector=group.landfall.dev/green"), format!("{all}?limit=1")];
        assert_eq!(names(edge, all), std::slice::from_ref(&own), "{edge}");
        for path in others {
            assert!(names(edge, &path).iter().all(|name| *name == own), "{edge} at {path}");
        }
        assert_eq!(asks(playground, edge, "GET", &format!("{all}/{own}"), "").0, "200");
    }
    // It lists and watches the routes of its group alone, whatever it asks for; the Services' own are everybody's who has no group.
    let routes = "/apis/landfall.dev/v1alpha1/routeplans";
    for (edge, own) in [("blue-eu-west-0", "sky"), ("green-eu-west-0", "grass"), ("eu-west", "sand")] {
        becomes(edge, &vec![own], || {
            let shown = names(edge, routes);
            let named = |ingress: &&str| shown.iter().any(|name| name.contains(*ingress));
            ["sky", "grass", "sand"].into_iter().filter(named).collect::<Vec<_>>()
        });
        let other = format!("{routes}?labelSelector=group.landfall.dev/green");
        assert!(names(edge, &other).iter().all(|name| name.contains(own)), "{edge} at {other}");
        let watched = watched(playground, edge, &format!("{routes}?watch=1&timeoutSeconds=1"));
        assert!(watched.iter().any(|name| name.contains(own)), "{watched:?}");
        let others = ["sky", "grass", "sand"].into_iter().filter(|one| *one != own);
        for other in others {
            assert!(!watched.iter().any(|name| name.contains(other)), "{edge} watches {watched:?}");
        }
    }
    let grass = names("green-eu-west-0", routes).into_iter().find(|name| name.contains("grass")).unwrap();
    let path = format!("/apis/landfall.dev/v1alpha1/namespaces/default/routeplans/{grass}");
    assert_eq!(asks(playground, "green-eu-west-0", "GET", &path, "").0, "200", "{path}");
    assert_eq!(asks(playground, "blue-eu-west-0", "GET", &path, "").0, "404", "{path}");
    assert_eq!(asks(playground, "blue-eu-west-0", "GET", &format!("{all}/default.grass"), "").0, "404");
    assert_eq!(asks(playground, "blue-eu-west-0", "GET", "/api/v1/secrets", "").0, "403");
    // Nor does it get them by saying that it belongs elsewhere.
    let edge = "/apis/landfall.dev/v1alpha1/edges/blue-eu-west-0";
    for group in [json!("green"), json!(null)] {
        let patch = json!({"spec": {"ingressReplicaSet": group}}).to_string();
        let (code, said) = asks(playground, "blue-eu-west-0", "PATCH", edge, &patch);
        assert_eq!(code, "403", "{said}");
    }
}

#[test]
fn an_edge_has_the_keys_of_what_its_group_carries_and_no_others() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = served("groups: certificates", base.path()) else { return };
    for (name, host) in
        [("sky", "sky.example.com"), ("grass", "grass.example.com"), ("sand", "sand.example.com")]
    {
        let pair = rcgen::generate_simple_self_signed(vec![host.to_owned()]).unwrap();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "kubernetes.io/tls",
            "stringData": {"tls.crt": pair.cert.pem(), "tls.key": pair.signing_key.serialize_pem()},
        });
        let asked = match name {
            "sky" => json!({"landfall.dev/ingress-replicaset": "blue"}),
            "grass" => json!({"landfall.dev/ingress-replicaset": "green"}),
            _ => json!({}),
        };
        let mut ingress = ingress(name, &asked);
        ingress["spec"]["tls"] = json!([{"hosts": [host], "secretName": name}]);
        give_all(&playground, &[secret, ingress]);
    }
    give_all(&playground, &[group("blue", None), group("green", None)]);
    for (edge, own) in [("blue-eu-west-0", "sky"), ("green-eu-west-0", "grass"), ("eu-west-edge", "sand")] {
        becomes(edge, &vec![format!("default.{own}")], || certificates(&playground, edge));
    }
    an_edge_that_asks_for_more_is_shown_no_more(&playground);
    // It is bound to another group: the key moves with it.
    playground.kubectl_ok("annotate ingress sky landfall.dev/ingress-replicaset=green --overwrite");
    let both = vec!["default.grass".to_owned(), "default.sky".to_owned()];
    becomes("green has it", &both, || certificates(&playground, "green-eu-west-1"));
    becomes("blue has it no more", &Vec::new(), || certificates(&playground, "blue-eu-west-1"));

    // Two groups may carry one Ingress: it is answered at both addresses.
    give_all(&playground, &[ingress("shop", &json!({"landfall.dev/ingress-replicaset": "blue,green"}))]);
    for group in ["blue", "green"] {
        let address = vip(&playground, &format!("ingressreplicaset {group}"));
        becomes(group, &"200".to_owned(), || curl(&address, "shop.example.com"));
        becomes("its status has the address", &true, || {
            let shop = playground.object("federation", "ingress shop");
            let all = shop["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
            all.iter().any(|one| one["ip"] == *address)
        });
    }
}

/// What an edge says of an address, as if there were one: faults that no machine can be asked for.
fn says(playground: &Playground, edge: &str, state: &str, since: u32, reason: &str) {
    let now = k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let vips = json!([{
        "address": "192.0.2.2", "state": state, "since": format!("2026-01-01T00:00:{since:02}.000000Z"), "reason": reason,
    }]);
    let status = json!({"status": {"heartbeatTime": now, "groupRevision": 1000, "vips": vips}});
    playground.kubectl_ok(&format!("patch edge {edge} --subresource=status --type=merge -p {status}"));
}

#[test]
fn who_holds_an_address_is_told_and_who_does_not() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground_with("groups: holders", base.path(), &["--no-edges"]) else { return };
    playground.give(&[RANGE, WEB].join("\n---\n"));
    let edge = |name: &str| {
        json!({
            "apiVersion": "landfall.dev/v1alpha1", "kind": "Edge", "metadata": {"name": name},
            "spec": {"cluster": "eu-west", "node": format!("node-{name}"), "ingressReplicaSet": "blue"},
        })
    };
    give_all(&playground, &[group("blue", None), edge("a"), edge("b")]);
    let seen = || {
        let group = playground.object("federation", "ingressreplicaset blue");
        let status = &group["status"];
        let holder = |field: &str| status["holder"][field].as_str().unwrap_or("").to_owned();
        let conditions = [condition(&group, "VIPHeld"), condition(&group, "SingleHolder")];
        (format!("{} {} {}", holder("edge"), holder("node"), status["transitions"]), conditions)
    };
    let expect =
        |told: &str, held: &str, single: &str| (told.to_owned(), [held.to_owned(), single.to_owned()]);
    becomes("one holds it", &expect("a node-a 0", "True Held", ""), || {
        says(&playground, "a", "Holding", 1, "");
        says(&playground, "b", "Standby", 1, "");
        seen()
    });
    // It is killed, the other takes it over: there are not two, though the first has not been missed yet.
    becomes("it moves", &expect("b node-b 1", "True Held", ""), || {
        says(&playground, "b", "Holding", 2, "");
        let seen = seen();
        assert_eq!(seen.1[1], "", "only one of them speaks");
        seen
    });
    // They do not see each other, and both go on.
    becomes("two hold it", &expect("b node-b 1", "True Held", "False SeveralHolders"), || {
        // In this order: were it silent for long before the other speaks, the other would have it.
        says(&playground, "b", "Holding", 2, "");
        says(&playground, "a", "Holding", 1, "");
        seen()
    });
    becomes("one lets go", &expect("b node-b 1", "True Held", ""), || {
        says(&playground, "a", "Standby", 3, "");
        says(&playground, "b", "Holding", 2, "");
        seen()
    });
    // It falls silent and comes back: nothing has moved.
    becomes("it is silent", &expect("b node-b 1", "False HolderSilent", ""), || {
        says(&playground, "a", "Standby", 3, "");
        seen()
    });
    becomes("it is back", &expect("b node-b 1", "True Held", ""), || {
        says(&playground, "b", "Holding", 2, "");
        seen()
    });
    becomes("nobody can", &expect("  1", "False NoHolder", ""), || {
        says(&playground, "a", "Fault", 4, "keepalived-is-not-installed");
        says(&playground, "b", "Fault", 4, "keepalived-is-not-installed");
        seen()
    });
    let told = playground.kubectl_ok("describe ingressreplicaset blue");
    for words in ["192.0.2.2 is held by b, a before", "SeveralHolders", "a: keepalived-is-not-installed"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert_eq!(told.matches("VIPMoved").count(), 2, "{told}");
}
