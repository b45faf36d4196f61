//! A proxy with a small world, endpoints that tell what they got, and clients that speak bytes.

pub(crate) mod backend;
pub(crate) mod certs;
pub(crate) mod frames;
pub(crate) mod h2;
pub(crate) mod raw;
pub(crate) mod relay;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall_api::landfall::{
    Address, PlanChoice, PlanCluster, PlanVantage, RouteAction, RouteHost, RouteMatch, RoutePath,
    RoutePlanSpec, RouteService, TrafficPlanSpec, Verdict,
};
use landfall_proxy::{Config, Proxy, World};
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;

/// The member that the proxy stands in.
pub(crate) const OWN: &str = "paris";

/// A running proxy.
pub(crate) struct Rig {
    pub(crate) proxy: Proxy,
    pub(crate) registry: Registry,
    pub(crate) world: World,
    tasks: Tasks,
}

impl Rig {
    /// One that lets nobody wait who might come after it was told to stop.
    pub(crate) fn new(config: Config) -> Self {
        Self::start(Config { handover: Duration::ZERO, ..config })
    }

    fn start(config: Config) -> Self {
        let (registry, tasks) = (Registry::default(), Tasks::default());
        let config = Config {
            edge: "paris-1".to_owned(),
            cluster: OWN.to_owned(),
            http: vec![([127, 0, 0, 1], 0).into()],
            ..config
        };
        let proxy = Proxy::start(config, &registry, &tasks).unwrap();
        Self { proxy, registry, world: World::default(), tasks }
    }

    /// With two threads, and a route from every host to the service `web` at these endpoints.
    pub(crate) fn with(endpoints: &[SocketAddr]) -> Self {
        Self::with_config(endpoints, Config::default())
    }

    pub(crate) fn with_config(endpoints: &[SocketAddr], config: Config) -> Self {
        Self::new(Config { threads: 2, drain: Duration::from_secs(5), ..config }).leading_to(endpoints)
    }

    /// The same, with another that takes over from it.
    pub(crate) fn handing_over(endpoints: &[SocketAddr]) -> Self {
        Self::handing_over_with(Config { threads: 2, ..Config::default() }).leading_to(endpoints)
    }

    pub(crate) fn handing_over_with(config: Config) -> Self {
        Self::start(config)
    }

    fn leading_to(self, endpoints: &[SocketAddr]) -> Self {
        let mut rig = self;
        rig.route("web", "", "/", RouteMatch::Prefix, "web");
        rig.serve("web", endpoints, |_| {});
        rig.follow();
        rig
    }

    pub(crate) fn follow(&self) {
        self.proxy.follow(&self.world);
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.proxy.addresses()[0]
    }

    /// A plan with one route to a service of the same namespace.
    pub(crate) fn route(&mut self, plan: &str, host: &str, path: &str, compare: RouteMatch, service: &str) {
        let action = RouteAction { service: Some(port_of(service)), ..RouteAction::default() };
        self.act(plan, host, path, compare, action);
    }

    /// A plan with one route.
    pub(crate) fn act(
        &mut self,
        plan: &str,
        host: &str,
        path: &str,
        compare: RouteMatch,
        action: RouteAction,
    ) {
        let path = RoutePath { path: path.to_owned(), compare, action };
        let hosts = vec![RouteHost { host: host.to_owned(), paths: vec![path] }];
        let spec = RoutePlanSpec { hosts, ..RoutePlanSpec::default() };
        self.world.routes.insert(key(plan), Arc::new(spec));
    }

    /// A service of the own member at these endpoints.
    pub(crate) fn serve(
        &mut self,
        service: &str,
        endpoints: &[SocketAddr],
        change: impl Fn(&mut TrafficPlanSpec),
    ) {
        let mut plan = plan(&[(OWN, 1.0, &[])]);
        change(&mut plan);
        self.world.plans.insert(key(service), Arc::new(plan));
        let ports = BTreeMap::from([("web".to_owned(), endpoints.to_vec())]);
        self.world.endpoints.insert(key(service), Arc::new(ports));
    }

    pub(crate) async fn stop(self) {
        self.tasks.join().await;
    }
}

pub(crate) fn key(name: &str) -> (String, String) {
    ("shop".to_owned(), name.to_owned())
}

pub(crate) fn port_of(service: &str) -> RouteService {
    RouteService {
        namespace: "shop".to_owned(),
        name: service.to_owned(),
        port: 80,
        port_name: "web".to_owned(),
        ..RouteService::default()
    }
}

/// A plan of clusters, their fractions and their load balancers' addresses.
pub(crate) fn plan(clusters: &[(&str, f64, &[&str])]) -> TrafficPlanSpec {
    let address = |ip: &&str| Address { ip: Some((*ip).to_owned()), hostname: None };
    let cluster = |(name, _, ips): &(&str, f64, &[&str])| PlanCluster {
        name: (*name).to_owned(),
        verdict: Verdict { up: true, ..Verdict::default() },
        addresses: ips.iter().map(address).collect(),
        ..PlanCluster::default()
    };
    let choice = |(name, fraction, _): &(&str, f64, &[&str])| PlanChoice {
        cluster: (*name).to_owned(),
        fraction: *fraction,
        reason: String::new(),
    };
    TrafficPlanSpec {
        clusters: clusters.iter().map(cluster).collect(),
        vantages: vec![PlanVantage {
            choices: clusters.iter().map(choice).collect(),
            ..PlanVantage::default()
        }],
        ..TrafficPlanSpec::default()
    }
}
