//! What edges make of each other: one that tells of failures is there, and nothing goes round in circles.

use landfall_api::landfall::{Outlier, TrafficPlanSpec};

use crate::link::Pair;
use crate::support::backend::{Backend, read_head, script};
use crate::support::raw::ask;
use crate::support::{Rig, plan, port_of};

/// An edge that tells of its endpoints' failures was taken for one that cannot be reached, which is left out however few others there are.
#[tokio::test]
async fn an_edge_is_not_lost_by_its_endpoints_failures() {
    let closes = script(|mut stream| async move { drop(read_head(&mut stream).await) }).await;
    let outlier = Some(Outlier { max_ejected_percent: Some(0), ..Outlier::default() });
    let nobody_out = TrafficPlanSpec { outlier, ..plan(&[("lyon", 1.0, &[])]) };
    let pair = Pair::new(port_of("web"), &[closes]).told(nobody_out);
    for _ in 0..12 {
        let answer = pair.post("x").await;
        assert_eq!((answer.status, answer.body.as_str()), (502, "the connection ended before an answer"));
    }
    assert!(!pair.counted().contains("landfall_proxy_ejections_total{"), "{}", pair.counted());
    pair.stop().await;
}

/// Other clusters may be reached by their load balancers, which know nothing of hops: an edge sees by what is told of those before it.
#[tokio::test]
async fn a_request_that_goes_in_a_circle_is_ended() {
    let backend = Backend::new("one").await;
    let rig = Rig::with(&[backend.address]);
    for (edges, status) in [(1, 200), (3, 200), (4, 508), (9, 508)] {
        let via = vec!["1.1 landfall"; edges].join(", ");
        for lines in [via.clone(), via.replace(", ", "\r\nvia: ")] {
            let request = format!("GET / HTTP/1.1\r\nhost: a\r\nvia: {lines}\r\n\r\n");
            assert_eq!(ask(rig.address(), &request).await.unwrap().status, status, "{request}");
        }
    }
    assert_eq!(backend.requests(), 4);
    rig.stop().await;
}
