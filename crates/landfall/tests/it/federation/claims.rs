//! Claims while the hub dies again and again, and addresses that run out: nothing leaks, and whoever waits is served in the end.

use serde_json::{Value, json};

use super::groups::{RANGE, WEB, condition, give_all, ingress, vip};
use super::{becomes, playground_with};
use crate::support::Playground;

fn claim() -> Value {
    json!({
        "apiVersion": "landfall.dev/v1alpha1", "kind": "IngressClaim", "metadata": {"name": "mine"},
        "spec": {
            "ingresses": [{"name": "shop"}], "reclaimPolicy": "Delete",
            "ingressReplicaSetSpec": {"clusters": {"names": ["eu-west"]}},
        },
    })
}

/// The claim's phase, how many groups there are, and how many addresses are given out.
fn told(playground: &Playground) -> String {
    let phase = playground.object("federation", "ingressclaim mine")["status"]["phase"].clone();
    let groups =
        playground.object("federation", "ingressreplicasets")["items"].as_array().map_or(0, Vec::len);
    let given = playground.object("federation", "ingressviprange office")["status"]["allocated"].clone();
    format!("{} {groups} {given}", phase.as_str().unwrap_or("none"))
}

/// Waits until something is there to be interrupted in the middle of it.
fn reaches(playground: &Playground, stage: &str) {
    let claim = || playground.object("federation", "ingressclaim mine");
    let reached = || match stage {
        "has a finalizer" => claim()["metadata"]["finalizers"][0].is_string(),
        "has a group" => !told(playground).contains(" 0 "),
        "is bound" => claim()["status"]["phase"] == "Bound",
        _ => true,
    };
    becomes(stage, &true, reached);
}

#[test]
fn a_hub_that_is_killed_half_way_leaves_nothing_behind() {
    let base = tempfile::tempdir().unwrap();
    let arguments = ["--no-edges"];
    let Some(mut playground) = playground_with("claims: the hub is killed", base.path(), &arguments) else {
        return;
    };
    playground.give(&[RANGE, WEB].join("\n---\n"));
    let killed = |playground: Playground| {
        // Nobody is asked to stop: what is dropped is killed.
        drop(playground);
        Playground::start(base.path(), &arguments)
    };
    for stage in ["was given", "has a finalizer", "has a group", "is bound"] {
        give_all(&playground, &[claim(), ingress("shop", &json!({}))]);
        reaches(&playground, stage);
        playground = killed(playground);
        becomes(stage, &"Bound 1 1".to_owned(), || told(&playground));
        playground.kubectl_ok("delete ingress shop");
        playground = killed(playground);
        becomes("released", &"Released 0 0".to_owned(), || told(&playground));
        playground.kubectl_ok("delete ingressclaim mine --wait=false");
        playground = killed(playground);
        becomes("gone", &"none 0 0".to_owned(), || told(&playground));
    }
}

#[test]
fn who_finds_no_address_says_so_and_has_one_when_another_goes() {
    let base = tempfile::tempdir().unwrap();
    let arguments = ["--no-edges", "--clusters", "1"];
    let Some(playground) = playground_with("groups: no address is left", base.path(), &arguments) else {
        return;
    };
    let only = json!({
        "apiVersion": "landfall.dev/v1alpha1", "kind": "IngressVIPRange", "metadata": {"name": "only"},
        "spec": {"cidrs": ["198.51.100.7/32"]},
    });
    let group = |name: &str| json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "IngressReplicaSet", "metadata": {"name": name}, "spec": {}});
    give_all(&playground, &[only, group("first")]);
    becomes("the only one", &"198.51.100.7".to_owned(), || vip(&playground, "ingressreplicaset first"));
    give_all(&playground, &[group("second")]);
    let told = |kind: &str, what: &str| condition(&playground.object("federation", what), kind);
    becomes("why it has none", &"False VIPsExhausted".to_owned(), || {
        told("VIPAllocated", "ingressreplicaset second")
    });
    becomes("the range says so", &"False Exhausted".to_owned(), || told("Available", "ingressviprange only"));
    let events = playground.kubectl_ok("describe ingressreplicaset second");
    assert!(events.contains("no address is left for"), "{events}");
    playground.kubectl_ok("delete ingressreplicaset first --timeout=60s");
    becomes("it is free", &"198.51.100.7".to_owned(), || vip(&playground, "ingressreplicaset second"));
}
