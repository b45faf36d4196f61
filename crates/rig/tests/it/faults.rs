//! Every fault: what kubectl and clients see before, during and after.

use std::time::{Duration, Instant};

use crate::support::{
    curl, curl_at, echo_service, eventually, kubectl, ready_nodes, shared, try_kubectl, within,
};

fn nodes(cluster: &str, numbers: &[u8]) -> Vec<String> {
    numbers.iter().map(|number| format!("{cluster}-{number}")).collect()
}

#[test]
fn cut_clusters_do_not_hear_each_other_until_healed() {
    let Some(rig) = shared("cut_clusters_do_not_hear_each_other_until_healed") else { return };
    let url = format!("http://{}/", echo_service(&rig, "eu-west"));
    curl_at(&rig, "us-east-1", &url).expect("before");
    rig.cut("us-east", "eu-west").unwrap();
    curl_at(&rig, "us-east-1", &url).expect_err("cut");
    curl(&url).expect("the host still hears it");
    assert_eq!(ready_nodes(&rig, "eu-west").unwrap(), nodes("eu-west", &[1, 2]), "nothing is wrong inside");

    rig.cut("host", "eu-west").unwrap();
    curl(&url).expect_err("now the host is cut off too");
    let said = try_kubectl(&rig, "eu-west", "get nodes --request-timeout=2s").unwrap_err();
    assert!(!said.is_empty());
    assert_eq!(rig.broken(), ["eu-west and host are cut", "eu-west and us-east are cut"]);

    rig.heal().unwrap();
    assert_eq!(rig.broken(), Vec::<String>::new());
    eventually("after", || curl_at(&rig, "us-east-1", &url));
    assert_eq!(ready_nodes(&rig, "eu-west").unwrap(), nodes("eu-west", &[1, 2]));
}

#[test]
fn a_delay_is_felt_both_ways_and_goes_away() {
    let Some(rig) = shared("a_delay_is_felt_both_ways_and_goes_away") else { return };
    let url = format!("http://{}/", echo_service(&rig, "eu-west"));
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
    rig.heal().unwrap();
    let quick = (0..5).map(|_| time()).min().unwrap();
    assert!(quick < Duration::from_millis(600), "{quick:?}");
}

#[test]
fn a_lost_node_is_noticed_its_pods_move_and_it_comes_back() {
    let Some(rig) = shared("a_lost_node_is_noticed_its_pods_move_and_it_comes_back") else { return };
    let url = format!("http://{}/", echo_service(&rig, "us-east"));
    assert_eq!(ready_nodes(&rig, "us-east").unwrap(), nodes("us-east", &[1, 2]));
    rig.kill_node("us-east-2").unwrap();
    assert_eq!(rig.broken(), ["us-east-2 is off"]);
    rig.exec("us-east-2", "true", &[]).expect_err("nothing runs on it");
    eventually("NotReady", || {
        let ready = ready_nodes(&rig, "us-east")?;
        if ready == nodes("us-east", &[1]) { Ok(()) } else { Err(format!("{ready:?}")) }
    });
    let endpoints = "get endpointslices -l kubernetes.io/service-name=echo -o \
                     jsonpath={range.items[*].endpoints[?(@.conditions.ready==true)]}{.nodeName},{end}";
    eventually("its pods are no longer ready", || {
        let text = kubectl(&rig, "us-east", endpoints);
        if text.contains("us-east-1") && !text.contains("us-east-2") { Ok(()) } else { Err(text) }
    });
    eventually("the service answers from the other node", || {
        (0..10).map(|_| curl(&url)).collect::<Result<Vec<_>, _>>()
    });
    rig.heal().unwrap();
    assert_eq!(ready_nodes(&rig, "us-east").unwrap(), nodes("us-east", &[1, 2]));
    kubectl(&rig, "us-east", "rollout status deployment/echo --timeout=120s");
    eventually("after", || curl(&url));
}

#[test]
fn without_its_api_a_cluster_goes_on_serving() {
    let Some(rig) = shared("without_its_api_a_cluster_goes_on_serving") else { return };
    let url = format!("http://{}/", echo_service(&rig, "us-east"));
    rig.kill_api("us-east").unwrap();
    let said = try_kubectl(&rig, "us-east", "get nodes").unwrap_err();
    assert!(said.contains("refused"), "{said}");
    curl(&url).expect("pods and load balancers do not need it");
    ready_nodes(&rig, "eu-west").expect("other clusters do not mind");
    rig.heal().unwrap();
    assert_eq!(ready_nodes(&rig, "us-east").unwrap(), nodes("us-east", &[1, 2]));
}

#[test]
fn a_lost_cluster_comes_back_with_what_it_had() {
    let Some(rig) = shared("a_lost_cluster_comes_back_with_what_it_had") else { return };
    let url = format!("http://{}/", echo_service(&rig, "us-east"));
    kubectl(&rig, "us-east", "create configmap memory --from-literal=word=kept");
    rig.kill_cluster("us-east").unwrap();
    curl(&url).expect_err("nobody there");
    try_kubectl(&rig, "us-east", "get nodes --request-timeout=2s").expect_err("nobody there");
    let other = rig.plan().clusters[0].control;
    curl_at(&rig, "eu-west-1", &format!("https://{other}:6443/")).expect_err("nor from another cluster");
    ready_nodes(&rig, "eu-west").expect("other clusters do not mind");
    rig.heal().unwrap();
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
