//! What a member's own Events warn of is told at the federation, once, and not a flood of it.

use super::{becomes, playground};

fn event(at: usize, reason: &str, kind: &str, name: &str) -> String {
    let version = if kind == "Deployment" { "apps/v1" } else { "v1" };
    format!(
        "---\napiVersion: v1\nkind: Event\nmetadata: {{name: made-{at}, namespace: default}}\ntype: Warning\nreason: {reason}\n\
         message: it says so\n\
         involvedObject: {{apiVersion: {version}, kind: {kind}, namespace: default, name: {name}}}\n"
    )
}

#[test]
fn a_members_warnings_are_told_though_all_replicas_are_ready() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("warnings", base.path()) else { return };
    playground.kubectl_ok("create deployment web --image=echo --replicas=3");
    playground.kubectl_ok("expose deployment web --port=8080 --type=LoadBalancer");
    becomes("spread", &vec![1, 1, 1], || playground.numbers("deployment web", "/status/readyReplicas"));
    becomes("exposed", &"True Propagated".to_owned(), || playground.propagated("service web"));
    let pod =
        playground.kubectl_ok("--context eu-west get pods -l app=web -o jsonpath={.items[0].metadata.name}");
    playground.kubectl_ok("--context eu-west create deployment strange --image=echo");

    let mut given: Vec<String> =
        (0..30).map(|at| event(at, "SyncLoadBalancerFailed", "Service", "web")).collect();
    given.push(event(30, "Unhealthy", "Pod", pod.trim()));
    given.push(event(31, "Strange", "Deployment", "strange"));
    // More than are told of one object.
    given.extend((32..40).map(|at| event(at, &format!("Reason{at}"), "Deployment", "web")));
    let file = base.path().join("events.yaml");
    std::fs::write(&file, given.concat()).unwrap();
    playground.kubectl_ok(&format!("--context eu-west create -f {}", file.display()));

    let told = |what: &str| {
        let all = playground.kubectl_ok("get events --field-selector reason=WarningInCluster");
        all.lines().filter(|line| line.contains(what)).count()
    };
    let pods_own = format!("eu-west: Unhealthy: Pod {}: it says so", pod.trim());
    becomes("all of it is told", &(1, 1, 4), || {
        (
            told("eu-west: SyncLoadBalancerFailed: Service web: it says so"),
            told(&pods_own),
            told("eu-west: Reason"),
        )
    });
    assert_eq!(told("Strange"), 0, "it is not ours");
}
