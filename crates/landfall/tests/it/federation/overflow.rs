//! Overflow and canaries, as clients see them: the nearest cluster keeps what it can carry, the next takes the rest.

use landfall_sim::clients::Clients;

use super::carries::{HOST, carried, content};
use super::shows::metric;
use super::{MEMBERS, becomes, playground};
use crate::support::Playground;

/// What one endpoint can carry, in requests a second.
const CAPACITY: u32 = 100;
/// Three times what the nearest cluster can carry, which has one endpoint.
const OFFERED: u32 = 3 * CAPACITY;
/// So many requests are counted at a time.
const COUNTED: usize = 900;

/// One endpoint where clients come in, and enough of them next to it.
const UNEVEN: &str = r#"
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, annotations: {federation.kubernetes.io/deployment-preferences:
  '{"clusters": {"us-east": {"minReplicas": 1, "maxReplicas": 1}, "eu-west": {"minReplicas": 4, "maxReplicas": 4},
    "asia-east": {"minReplicas": 1, "maxReplicas": 1}}}'}},
  spec: {replicas: 6, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [
    {name: web, image: echo, ports: [{containerPort: 8080}], env: [{name: ECHO_CAPACITY, value: "100"}]}]}}}}
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 8080}]}}
"#;

/// Gives the service its policy, and no other.
fn policy(playground: &Playground, spec: &str) {
    playground.give(&format!(
        "{{apiVersion: landfall.dev/v1alpha1, kind: TrafficPolicy, metadata: {{name: web}}, spec: {{{spec}}}}}"
    ));
}

/// Who answers the next requests, in percent, in the order of the members.
fn percents(clients: &Clients) -> [usize; 3] {
    let since = clients.elapsed();
    let answered = || MEMBERS.map(|name| clients.answered_since(name, since));
    becomes("requests are answered", &true, || answered().iter().sum::<usize>() > COUNTED);
    let answered = answered();
    let all = answered.iter().sum::<usize>();
    answered.map(|count| count * 100 / all)
}

/// Waits until the nearest keeps about a third, which is what it can carry, and the next has the rest.
#[track_caller]
fn divided(clients: &Clients, what: &str) {
    becomes(what, &true, || {
        let [asia, eu, us] = percents(clients);
        println!("{what}: us-east {us} %, eu-west {eu} %, asia-east {asia} %");
        (24..=42).contains(&us) && eu >= 50 && asia <= 8
    });
}

#[test]
fn what_the_nearest_has_no_room_for_goes_to_the_next() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = playground("overflow", base.path()) else { return };
    playground.give(UNEVEN);
    playground.kubectl_ok(&format!("create ingress web --rule={HOST}/*=web:8080"));
    let ready = || playground.numbers("deployment web", "/status/readyReplicas");
    becomes("one endpoint near, four next to it", &vec![1, 4, 1], ready);
    becomes("the nearest answers", &"us-east".to_owned(), || playground.asked("us-east", HOST));

    // By requests a second.
    policy(&playground, &format!("capacity: {{requestsPerSecond: {CAPACITY}}}"));
    let clients = playground.crowd("us-east", HOST, OFFERED);
    divided(&clients, "300 requests/s where 100 can be carried");
    let metrics = playground.admin_says("us-east", "/metrics");
    let overflow = |cluster: &str| {
        metric(&metrics, "landfall_proxy_overflow_total", &[&format!("cluster=\"{cluster}\"")])
    };
    assert!(overflow("eu-west") > 100.0 && overflow("us-east") == 0.0, "{metrics}");
    // By how busy the endpoints say they are: at 100 of these a second they are full.
    policy(&playground, "capacity: {utilizationPercent: 100}");
    divided(&clients, "300 requests/s at an endpoint that says it is full at 100");
    // Without a limit the nearest has room for everybody.
    policy(&playground, "");
    becomes("the nearest takes it all", &true, || percents(&clients)[2] == 100);
    content(clients);
}

#[test]
fn a_tenth_is_for_the_cluster_that_is_tried_out() {
    let base = tempfile::tempdir().unwrap();
    let Some(playground) = carried("overflow: canary", base.path()) else { return };
    policy(&playground, "canary: {percent: 10, clusters: {names: [asia-east]}}");
    let clients = playground.crowd("us-east", HOST, 200);
    // Of nine hundred requests between 60 and 120, but for one time in a thousand; then the next nine hundred count.
    becomes("a tenth", &true, || {
        let [asia, eu, us] = percents(&clients);
        println!("a tenth for asia-east: asia-east {asia} %, us-east {us} %");
        (6..=14).contains(&asia) && eu == 0
    });
    content(clients);
}
