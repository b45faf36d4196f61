//! Every fault: what kubectl and clients see before, during and after.

use std::time::{Duration, Instant};

use landfall_rig::Rig;

use crate::support::{curl, curl_at, eventually, kubectl, shared, try_kubectl, web, within};

/// What kubectl shows of two nodes that are well.
const WELL: &str = "1 Ready, 2 Ready";

/// What kubectl shows of a cluster's nodes, or how it is told that it cannot.
fn shown(rig: &Rig, cluster: &str) -> String {
    match try_kubectl(rig, cluster, "get nodes --no-headers --request-timeout=3s") {
        Ok(text) => {
            let words = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
            let lines: Vec<String> = text.lines().map(words).collect();
            lines.join(", ").replace(&format!("{cluster}-"), "")
        }
        // In one of several wordings, by where kubectl was when it noticed.
        Err(said) if said.contains("refused") => "refused".into(),
        Err(said) if ["imeout", "deadline exceeded"].iter().any(|word| said.contains(word)) => {
            "no answer".into()
        }
        Err(said) => said,
    }
}

/// Waits until kubectl shows this.
fn shows(rig: &Rig, cluster: &str, want: &str) {
    eventually(want, || {
        let seen = shown(rig, cluster);
        if seen == want { Ok(()) } else { Err(seen) }
    });
}

/// Which pods of `web` kubectl calls ready, and on which node they are.
fn ready_on(rig: &Rig, cluster: &str) -> Vec<String> {
    let path = "jsonpath={range.items[*].endpoints[?(@.conditions.ready==true)]}{.nodeName},{end}";
    let select = "endpointslices -l kubernetes.io/service-name=web";
    let text = kubectl(rig, cluster, &format!("get {select} -o {path}"));
    let mut nodes: Vec<String> = text.split_terminator(',').map(str::to_owned).collect();
    nodes.sort();
    nodes
}

#[test]
fn cut_clusters_do_not_hear_each_other_until_healed() {
    let Some(rig) = shared("cut_clusters_do_not_hear_each_other_until_healed") else { return };
    let url = web(&rig, "eu-west");
    curl_at(&rig, "us-east-1", &url).expect("before");
    shows(&rig, "eu-west", WELL);
    rig.cut("us-east", "eu-west").unwrap();
    curl_at(&rig, "us-east-1", &url).expect_err("cut");
    curl(&url).expect("the host still hears it");
    // Nothing is wrong inside.
    shows(&rig, "us-east", WELL);
    shows(&rig, "eu-west", WELL);

    rig.cut("host", "eu-west").unwrap();
    curl(&url).expect_err("now the host is cut off too");
    shows(&rig, "us-east", WELL);
    assert_eq!(shown(&rig, "eu-west"), "no answer");
    assert_eq!(rig.broken(), ["eu-west and host are cut", "eu-west and us-east are cut"]);

    rig.heal().unwrap();
    assert_eq!(rig.broken(), Vec::<String>::new());
    eventually("after", || curl_at(&rig, "us-east-1", &url));
    shows(&rig, "eu-west", WELL);
}

#[test]
fn a_delay_is_felt_both_ways_and_goes_away() {
    let Some(rig) = shared("a_delay_is_felt_both_ways_and_goes_away") else { return };
    let url = web(&rig, "eu-west");
    let time = || {
        let began = Instant::now();
        curl_at(&rig, "us-east-1", &url).unwrap();
        began.elapsed()
    };
    // A connection and a request: two round trips.
    rig.delay("us-east", "eu-west", Duration::from_millis(150), 0).unwrap();
    let slow = time();
    assert!(slow >= Duration::from_millis(600), "{slow:?}");
    curl(&url).expect("the host is not slowed");
    rig.delay("us-east", "eu-west", Duration::ZERO, 100).unwrap();
    curl_at(&rig, "us-east-1", &url).expect_err("everything is lost");
    assert_eq!(rig.broken().len(), 1, "{:?}", rig.broken());
    rig.heal().unwrap();
    let quick = (0..5).map(|_| time()).min().unwrap();
    assert!(quick < Duration::from_millis(600), "{quick:?}");
    shows(&rig, "eu-west", WELL);
}

#[test]
fn a_lost_node_is_noticed_its_pods_move_and_it_comes_back() {
    let Some(rig) = shared("a_lost_node_is_noticed_its_pods_move_and_it_comes_back") else { return };
    let url = web(&rig, "us-east");
    shows(&rig, "us-east", WELL);
    eventually("three pods, before", || {
        Some(ready_on(&rig, "us-east")).filter(|nodes| nodes.len() == 3).ok_or("not three")
    });
    rig.kill_node("us-east-2").unwrap();
    assert_eq!(rig.broken(), ["us-east-2 is off"]);
    rig.exec("us-east-2", "true", &[]).expect_err("nothing runs on it");
    shows(&rig, "us-east", "1 Ready, 2 NotReady");
    eventually("its pods are no longer ready", || {
        let nodes = ready_on(&rig, "us-east");
        if nodes.iter().all(|node| node == "us-east-1") { Ok(()) } else { Err(nodes) }
    });
    eventually("three pods on the other node", || {
        let nodes = ready_on(&rig, "us-east");
        if nodes == ["us-east-1"; 3] { Ok(()) } else { Err(nodes) }
    });
    eventually("the service answers from the other node", || {
        (0..10).map(|_| curl(&url)).collect::<Result<Vec<_>, _>>()
    });
    rig.heal().unwrap();
    shows(&rig, "us-east", WELL);
    kubectl(&rig, "us-east", "rollout status deployment/web --timeout=120s");
    eventually("after", || curl(&url));
}

#[test]
fn without_its_api_a_cluster_goes_on_serving() {
    let Some(rig) = shared("without_its_api_a_cluster_goes_on_serving") else { return };
    let url = web(&rig, "us-east");
    shows(&rig, "us-east", WELL);
    rig.kill_api("us-east").unwrap();
    assert_eq!(rig.broken(), ["the API server of us-east is off"]);
    assert_eq!(shown(&rig, "us-east"), "refused");
    shows(&rig, "eu-west", WELL);
    curl(&url).expect("pods and load balancers do not need it");
    rig.heal().unwrap();
    shows(&rig, "us-east", WELL);
}

#[test]
fn a_lost_cluster_comes_back_with_what_it_had() {
    let Some(rig) = shared("a_lost_cluster_comes_back_with_what_it_had") else { return };
    let url = web(&rig, "us-east");
    shows(&rig, "us-east", WELL);
    kubectl(&rig, "us-east", "create configmap memory --from-literal=word=kept");
    rig.kill_cluster("us-east").unwrap();
    curl(&url).expect_err("nobody there");
    let gone = shown(&rig, "us-east");
    assert!(!gone.contains("Ready"), "{gone}");
    let other = rig.plan().clusters[0].control;
    curl_at(&rig, "eu-west-1", &format!("https://{other}:6443/")).expect_err("nor from another cluster");
    shows(&rig, "eu-west", WELL);
    rig.heal().unwrap();
    shows(&rig, "us-east", WELL);
    assert_eq!(kubectl(&rig, "us-east", "get configmap memory -o jsonpath={.data.word}"), "kept");
    kubectl(&rig, "us-east", "delete configmap memory");
    within(Duration::from_secs(90), "its pods run again", || curl(&url));
}

#[test]
fn a_name_that_nothing_has_is_refused_with_those_there_are() {
    let Some(rig) = shared("a_name_that_nothing_has_is_refused_with_those_there_are") else { return };
    for error in [
        rig.cut("us-east", "mars").unwrap_err(),
        rig.kill_node("us-east").unwrap_err(),
        rig.kill_cluster("us-east-1").unwrap_err(),
        rig.kill_api("").unwrap_err(),
        rig.delay("mars", "us-east", Duration::ZERO, 0).unwrap_err(),
        rig.exec("mars", "true", &[]).unwrap_err(),
    ] {
        assert!(error.to_string().contains("us-east-control"), "{error}");
    }
    assert_eq!(rig.broken(), Vec::<String>::new());
}
