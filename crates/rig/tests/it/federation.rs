//! A federation of real clusters: they join a hub, and what is given to the hub is in all of them, whatever happens there.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::federated::{Federation, HUB, MEMBERS, becomes, manifest};
use crate::support::{curl, eventually, try_kubectl, turn};
use crate::{kinds, losses};

const SERVICE: &str = "service my-service -n my-namespace";
const RC: &str = "rc my-service -n my-namespace";
const INGRESS: &str = "ingress my-ingress -n my-namespace";
/// How long what was healed is watched for writes that nobody asked for.
const STILL: Duration = Duration::from_secs(10);

const INGRESS_YAML: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: my-ingress, namespace: my-namespace}
spec:
  defaultBackend: {service: {name: my-service, port: {number: 2379}}}
";

/// One rig and one hub for all of it: to start them takes longer than any part.
#[test]
fn real_clusters_are_one_federation() {
    let Some(_turn) = turn("real_clusters_are_one_federation") else { return };
    let mut federation = Federation::with_hubs("it-federation", 2);
    clusters_join(&federation);
    one_object_is_everywhere(&federation);
    what_is_done_by_hand_is_healed(&federation);
    kinds::all_kinds_are_everywhere(&federation);
    kinds::a_quota_moves_a_share_and_gives_it_back(&federation);
    losses::the_leader_dies_during_a_rollout(&mut federation);
    losses::replicas_move_from_a_lost_cluster_and_back(&federation);
    losses::a_dead_cluster_is_forgotten_and_joins_again(&federation);
    a_dead_api_does_not_hold_up_a_deletion(&federation);
    a_cluster_leaves(&federation);
    becomes("the namespace is gone everywhere", &[false; 2], || {
        let all = |name| federation.kubectl(name, "get namespaces -o name");
        ["us-east", "eu-west"].map(|name| all(name).contains("my-namespace"))
    });
}

fn clusters_join(federation: &Federation) {
    for name in MEMBERS {
        let said = federation.landfall(&format!(
            "join {name} --kubeconfig MEMBERS --context {name} --grant widgets.example.com"
        ));
        assert!(
            said.contains("Kubernetes v1.36.") && said.ends_with(&format!("{name} is ready.\n")),
            "{said}"
        );
    }
    let table = federation.kubectl(HUB, "get clusters");
    for name in MEMBERS {
        let line = table.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{table}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words.contains(&"True"), "{table}");
        let status = &federation.object(HUB, &format!("cluster {name}"))["status"];
        assert_eq!((&status["region"], &status["zones"]), (&json!(name), &json!([format!("{name}-a")])));
    }
}

/// The first design's Service, ReplicationController and Ingress; the last was there before in one cluster, another than is meant.
fn one_object_is_everywhere(federation: &Federation) {
    federation.kubectl("asia-east", "create namespace my-namespace");
    federation.create("asia-east", &INGRESS_YAML.replace("2379", "2380"));
    federation.kubectl(HUB, "create namespace my-namespace");
    for name in ["my-service.yaml", "my-service-rc.yaml"] {
        federation.create(HUB, &manifest(name));
    }
    federation.create(HUB, INGRESS_YAML);
    becomes("two in each", &vec![2, 2, 2], || federation.numbers(RC, "/status/readyReplicas"));
    let running = |name: &&str| {
        let pods = "get pods -n my-namespace -l run=my-service --field-selector=status.phase=Running -o name";
        federation.kubectl(name, pods).lines().count()
    };
    assert_eq!(MEMBERS.iter().map(running).collect::<Vec<_>>(), [2, 2, 2], "real pods");
    becomes("six in all", &json!([6, 6, 6]), || {
        let rc = federation.object(HUB, RC);
        json!([rc["spec"]["replicas"], rc["status"]["replicas"], rc["status"]["readyReplicas"]])
    });

    let mut addresses = BTreeSet::new();
    for name in MEMBERS {
        let address = eventually("a load balancer", || {
            let shard = federation.object(name, SERVICE);
            let ports = shard["spec"]["ports"].as_array().cloned().unwrap_or_default();
            let numbered = ports.len() == 2 && ports.iter().all(|port| port["nodePort"].is_u64());
            let address = shard["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().map(str::to_owned);
            let numbered = numbered && shard["spec"]["clusterIP"].is_string();
            address.filter(|_| numbered).ok_or(shard)
        });
        let answer = eventually("an answer", || curl(&format!("http://{address}:2379/")));
        assert!(answer.contains(name), "{name}: {answer}");
        addresses.insert(address);
    }
    assert_eq!(addresses.len(), 3);
    becomes("the members' addresses", &addresses, || {
        let ingress = federation.object(HUB, SERVICE)["status"]["loadBalancer"]["ingress"].clone();
        let entries = ingress.as_array().cloned().unwrap_or_default();
        entries.iter().filter_map(|entry| entry["ip"].as_str().map(str::to_owned)).collect()
    });
    assert_eq!(federation.object(HUB, SERVICE)["spec"].get("clusterIP"), None, "the hub gives no address");
    becomes(
        "adopted where it was",
        &vec!["Created", "Created", "Adopted"].into_iter().map(Into::into).collect(),
        || {
            let origin = |name: &&str| {
                let object = federation.object(name, INGRESS);
                object["metadata"]["annotations"]["landfall.dev/origin"].clone()
            };
            MEMBERS.iter().map(origin).collect::<Vec<Value>>()
        },
    );
    let ports = federation.numbers(INGRESS, "/spec/defaultBackend/service/port/number");
    assert_eq!(ports, [2379; 3], "what was there conforms");
    for what in [SERVICE, RC] {
        becomes(what, &"True Propagated".to_owned(), || federation.propagated(what));
    }
    // An Ingress has no conditions.
    becomes(INGRESS, &3, || {
        let object = federation.object(HUB, INGRESS);
        let told =
            object["metadata"]["annotations"]["landfall.dev/clusters"].as_str().unwrap_or("").to_owned();
        told.lines().filter(|line| line.contains(": Propagated")).count()
    });
}

fn what_is_done_by_hand_is_healed(federation: &Federation) {
    let before = federation.object("eu-west", RC)["metadata"]["uid"].clone();
    federation.kubectl("us-east", "scale rc my-service -n my-namespace --replicas=4");
    federation.kubectl("eu-west", &format!("delete {RC}"));
    federation.kubectl("asia-east", &format!("delete {SERVICE}"));
    becomes("made again", &true, || {
        let uid = federation.object("eu-west", RC)["metadata"]["uid"].clone();
        uid.is_string() && uid != before && federation.object("asia-east", SERVICE) != Value::Null
    });
    let settled = || {
        let ready = federation.numbers(RC, "/status/readyReplicas");
        let all = federation.numbers(RC, "/status/replicas");
        let asked = federation.numbers(RC, "/spec/replicas");
        let balanced = MEMBERS
            .iter()
            .filter(|name| federation.object(name, SERVICE)["status"]["loadBalancer"]["ingress"].is_array())
            .count();
        (ready, all, asked, balanced, federation.propagated(RC), federation.propagated(SERVICE))
    };
    let two = || vec![2, 2, 2];
    let well = || "True Propagated".to_owned();
    becomes("healed", &(two(), two(), two(), 3, well(), well()), settled);

    // What is as it should be is not written to again, neither there nor at the hub.
    let versions = || {
        let version = |place: &str, what: &str| {
            let object = federation.object(place, what);
            format!("{place} {what} {}", object["metadata"]["resourceVersion"])
        };
        let places = MEMBERS.into_iter().chain([HUB]);
        places.flat_map(|place| [SERVICE, RC, INGRESS].map(|what| version(place, what))).collect::<Vec<_>>()
    };
    // The last words about what was healed may still be on their way.
    let began = Instant::now();
    let (mut last, mut since) = (versions(), Instant::now());
    while since.elapsed() < STILL {
        std::thread::sleep(Duration::from_millis(500));
        let now = versions();
        if now != last {
            assert!(began.elapsed() < 3 * STILL, "written again and again: {last:?}, then {now:?}");
            (last, since) = (now, Instant::now());
        }
    }
}

fn a_dead_api_does_not_hold_up_a_deletion(federation: &Federation) {
    federation.rig.kill_api("eu-west").unwrap();
    federation.kubectl(HUB, &format!("delete {SERVICE} --timeout=60s"));
    federation.kubectl(HUB, &format!("delete {RC} --timeout=60s"));
    federation.kubectl(HUB, "delete namespace my-namespace --timeout=60s");
    let there = || -> Vec<bool> {
        let objects = [SERVICE, RC, INGRESS, "namespace my-namespace"];
        let place = |name: &'static str| objects.map(|what| federation.object(name, what) != Value::Null);
        ["us-east", "asia-east"].into_iter().flat_map(place).collect()
    };
    let gone = [false; 4];
    // What was there before stays, and what it is in.
    let kept = [false, false, true, true];
    becomes("gone where somebody hears it", &[gone, kept].concat(), there);
    let left = federation.object("asia-east", INGRESS);
    assert_eq!(left["metadata"]["labels"]["landfall.dev/federation"], Value::Null, "let go: {left}");
    federation.rig.heal().unwrap();
    becomes("deleted where nobody heard it", &[true; 4], || {
        [SERVICE, RC, INGRESS, "namespace my-namespace"].map(|what| {
            let found = federation.try_kubectl("eu-west", &format!("get {what} -o json"));
            // Real controllers, which have just come back too, take half a minute to empty a namespace.
            found.map_or_else(|said| said.contains("NotFound"), |object| object.contains("deletionTimestamp"))
        })
    });
}

fn a_cluster_leaves(federation: &Federation) {
    federation.kubectl(HUB, "create configmap settings --from-literal=color=green");
    let there = || MEMBERS.map(|name| federation.object(name, "configmap settings") != Value::Null);
    becomes("everywhere", &[true; 3], there);
    let account = "get serviceaccount landfall-hub -n landfall-system";
    federation.kubectl("asia-east", account);
    let said = federation.landfall("unjoin asia-east --kubeconfig MEMBERS --context asia-east");
    assert!(said.ends_with("the hub's account in the member removed\n"), "{said}");
    assert_eq!(there(), [true, true, false]);
    for what in [account, "get clusterrole landfall-hub", "get clusterrolebinding landfall-hub"] {
        let refused = try_kubectl(&federation.rig, "asia-east", what).unwrap_err();
        assert!(refused.contains("NotFound"), "{refused}");
    }
    assert_eq!(federation.kubectl(HUB, "get clusters -o name").lines().count(), 2);
}
