//! What a hundred thousand names weigh, and that one change among them changes one.

use landfall_dns::Responder;
use landfall_plan::records::Resolved;
use landfall_runtime::metrics::Registry;

use crate::lab::{ask, config, federation, plan, question, say};

const NAMES: usize = 100_000;
const MEGABYTES_MAX: f64 = 300.0;

#[test]
fn a_hundred_thousand_services() {
    let before = resident_mb();
    let responder = Responder::new(&config(), &Registry::default()).unwrap();
    responder.publish(&federation(), [], Resolved::new());
    let mut plan = plan();
    let names: Vec<String> = (0..NAMES).map(|n| format!("service-{n}")).collect();
    for some in names.chunks(1000) {
        responder.change(some.iter().map(|name| ("my-namespace", name.as_str(), Some(&plan))));
    }
    let weight = resident_mb() - before;
    assert_eq!(responder.services(), NAMES);
    assert!(weight < MEGABYTES_MAX, "{weight:.0} MB");
    plan.clusters[0].verdict.up = false;
    responder.change([("my-namespace", "service-77777", Some(&plan))]);
    let name = |n: usize| question(&format!("service-{n}.my-namespace.my-federation.my-domain.com"), 1);
    let said = |n| say(&ask(&responder, "198.51.100.1", &name(n)).unwrap());
    assert!(!said(77_777).contains("104.197.117.10") && said(77_778).contains("104.197.117.10"));
}

fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}
