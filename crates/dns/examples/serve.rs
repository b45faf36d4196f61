//! A server with many services in three members, for `cargo xtask bench dns`.
//!
//! `serve ADDRESS SERVICES PREFIXES`: answers `svc-N.bench.fed.example.com` until its standard input ends.

use std::io::Read as _;
use std::net::Ipv4Addr;

use landfall_api::landfall::{
    Address, PlanChoice, PlanCluster, PlanFederation, PlanMember, PlanPrefix, PlanVantage, TrafficPlanSpec,
    Verdict,
};
use landfall_dns::{Config, start};
use landfall_plan::records::Resolved;
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;

const MEMBERS: [&str; 3] = ["dc1", "dc2", "dc3"];

#[expect(clippy::print_stdout, reason = "whoever started it waits for a line")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, services, prefixes] = &arguments[..] else {
        return Err("serve ADDRESS SERVICES PREFIXES".into());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let tasks = Tasks::default();
    let config = Config {
        listen: vec![address.parse()?],
        threads: 1,
        cluster: Some("dc1".to_owned()),
        inside: vec!["10.0.0.0/8".to_owned()],
        ..Config::default()
    };
    let server = runtime.block_on(async { start(&config, &tasks, &Registry::default()) })?;
    server.publish(&federation(prefixes.parse()?), [], Resolved::new());
    let plan = plan();
    let names: Vec<String> = (0..services.parse::<usize>()?).map(|n| format!("svc-{n}")).collect();
    server.change(names.iter().map(|name| ("bench", name.as_str(), Some(&plan))));
    println!("ready with {} services", server.services());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    runtime.block_on(tasks.join());
    Ok(())
}

/// Three members, and so many prefixes of clients spread over them.
fn federation(prefixes: u32) -> PlanFederation {
    let member = |name: &str| PlanMember { name: name.to_owned(), ..PlanMember::default() };
    let prefix = |n: u32| PlanPrefix {
        cidr: format!("{}/20", Ipv4Addr::from(0x0B00_0000 + (n << 12))),
        cluster: MEMBERS.get(n as usize % 3).map(|name| (*name).to_owned()),
        ..PlanPrefix::default()
    };
    PlanFederation {
        name: "fed".to_owned(),
        domain: Some("example.com".to_owned()),
        members: MEMBERS.iter().map(|name| member(name)).collect(),
        prefixes: (0..prefixes).map(prefix).collect(),
        ..PlanFederation::default()
    }
}

/// A service that is well in all three; every vantage has its own order.
fn plan() -> TrafficPlanSpec {
    let cluster = |(name, n): (&&str, u8)| PlanCluster {
        name: (*name).to_owned(),
        addresses: vec![Address { ip: Some(format!("127.0.0.{n}")), hostname: None }],
        verdict: Verdict { up: true, ..Verdict::default() },
        endpoints: 1,
        ..PlanCluster::default()
    };
    let vantage = |first: usize| PlanVantage {
        cluster: Some(MEMBERS[first].to_owned()),
        choices: (0..3)
            .map(|step| PlanChoice {
                cluster: MEMBERS[(first + step) % 3].to_owned(),
                fraction: if step == 0 { 1.0 } else { 0.0 },
                ..PlanChoice::default()
            })
            .collect(),
        ..PlanVantage::default()
    };
    TrafficPlanSpec {
        clusters: MEMBERS.iter().zip(1..).map(cluster).collect(),
        vantages: (0..3).map(vantage).collect(),
        ..TrafficPlanSpec::default()
    }
}
