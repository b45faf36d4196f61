//! Deleting: with shards or without, with clusters that are dead, and clusters that leave.

use serde_json::Value;

use super::{MEMBERS, becomes, playground};

#[test]
fn a_dead_cluster_never_blocks_a_deletion_and_is_told_when_it_is_back() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("deletes", base.path()) else { return };
    playground.kubectl_ok("create namespace shop");
    playground.kubectl_ok("create configmap a -n shop --from-literal=x=1");
    playground.kubectl_ok("create configmap kept -n shop --from-literal=x=1");
    let there = |what: &str| -> Vec<bool> {
        MEMBERS.iter().map(|member| playground.object(member, what) != Value::Null).collect()
    };
    becomes("everywhere", &vec![true; 3], || there("configmap a -n shop"));
    becomes("everywhere", &vec![true; 3], || there("configmap kept -n shop"));

    playground.kubectl_ok("delete configmap kept -n shop --cascade=orphan --timeout=60s");
    for member in MEMBERS {
        let kept = playground.object(member, "configmap kept -n shop");
        assert_eq!(kept["data"]["x"], "1", "{member}: {kept}");
        assert_eq!(kept["metadata"]["labels"], Value::Null, "{member}: {kept}");
    }

    playground.fault(&["api-down", "eu-west"]);
    becomes("offline", &"True".to_owned(), || {
        playground
            .kubectl_ok("get cluster eu-west -o jsonpath={.status.conditions[?(@.type==\"Offline\")].status}")
    });
    playground.kubectl_ok("delete configmap a -n shop --timeout=30s");
    let owed = playground.kubectl_ok("get configmap owed-eu-west -n landfall-system -o jsonpath={.data}");
    assert!(owed.contains("ConfigMap_shop_a"), "{owed}");
    playground.fault(&["heal", "eu-west"]);
    becomes("gone everywhere", &vec![false; 3], || there("configmap a -n shop"));
    becomes("paid", &Value::Null, || {
        playground.object("federation", "configmap owed-eu-west -n landfall-system")
    });

    // Something in the namespace is not ours: the namespace stays there, and goes elsewhere.
    for member in ["asia-east", "eu-west"] {
        playground.kubectl_ok(&format!("--context {member} delete configmap kept -n shop"));
    }
    playground.kubectl_ok("delete namespace shop --timeout=60s");
    becomes("a namespace with a stranger in it stays", &vec![false, false, true], || there("namespace shop"));
    assert_eq!(playground.object("us-east", "configmap kept -n shop")["data"]["x"], "1");
}

#[test]
fn a_cluster_leaves_is_forgotten_and_joins_again() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("leaving", base.path()) else { return };
    playground.kubectl_ok("create configmap settings --from-literal=x=1");
    let there = || -> Vec<bool> {
        MEMBERS.iter().map(|member| playground.object(member, "configmap settings") != Value::Null).collect()
    };
    becomes("everywhere", &vec![true; 3], there);
    let cluster = |name: &str| {
        let mut cluster = playground.object("federation", &format!("cluster {name}"));
        for field in
            ["uid", "resourceVersion", "creationTimestamp", "finalizers", "generation", "managedFields"]
        {
            cluster["metadata"].as_object_mut().unwrap().remove(field);
        }
        cluster.as_object_mut().unwrap().remove("status");
        cluster.to_string()
    };
    let (east, west) = (cluster("us-east"), cluster("eu-west"));
    playground.kubectl_ok("delete cluster us-east --timeout=60s");
    assert_eq!(there(), [true, true, false], "what we made goes with the cluster");

    playground.fault(&["kill", "eu-west"]);
    becomes("offline", &"True".to_owned(), || {
        playground
            .kubectl_ok("get cluster eu-west -o jsonpath={.status.conditions[?(@.type==\"Offline\")].status}")
    });
    playground.kubectl_ok("annotate cluster eu-west landfall.dev/forget=true");
    playground.kubectl_ok("delete cluster eu-west --timeout=60s");
    playground.kubectl_ok("delete configmap settings --timeout=60s");
    playground.kubectl_ok("create configmap settings --from-literal=x=2");

    playground.fault(&["heal", "eu-west"]);
    playground.give(&east);
    playground.give(&west);
    becomes("the same everywhere again", &vec![serde_json::json!("2"); 3], || {
        MEMBERS
            .iter()
            .map(|member| playground.object(member, "configmap settings")["data"]["x"].clone())
            .collect()
    });
}

/// A namespace that is owed to a cluster is looked into before it goes, as it would have been at once.
#[test]
fn a_debt_spares_strangers_too() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("debts", base.path()) else { return };
    playground.kubectl_ok("create namespace shop");
    playground.kubectl_ok("create configmap ours -n shop --from-literal=x=1");
    let there = |what: &str| -> Vec<bool> {
        MEMBERS.iter().map(|member| playground.object(member, what) != Value::Null).collect()
    };
    becomes("everywhere", &vec![true; 3], || there("configmap ours -n shop"));
    playground.kubectl_ok("--context eu-west create configmap theirs -n shop --from-literal=x=1");
    // Users still reach its API; the hub does not.
    playground.fault(&["cut", "eu-west", "hub"]);
    becomes("offline", &"True".to_owned(), || {
        playground
            .kubectl_ok("get cluster eu-west -o jsonpath={.status.conditions[?(@.type==\"Offline\")].status}")
    });
    playground.kubectl_ok("delete namespace shop --timeout=60s");
    becomes("gone where it can be", &vec![false, true, false], || there("namespace shop"));
    playground.fault(&["heal", "eu-west"]);
    becomes("what is ours goes", &vec![false; 3], || there("configmap ours -n shop"));
    becomes("paid", &Value::Null, || {
        playground.object("federation", "configmap owed-eu-west -n landfall-system")
    });
    assert_eq!(there("configmap theirs -n shop"), [false, true, false]);
}
