//! Tables: which route is taken, and that a change of one thing changes that thing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use landfall_api::landfall::{FixedResponseAction, PlanPort, RoutePath, TrafficPlanSpec};
use landfall_plan::routes::explain::{Request, find};

use super::*;

fn fixed(body: &str) -> RouteAction {
    let fixed = FixedResponseAction { status_code: 200, body: Some(body.to_owned()), content_type: None };
    RouteAction { fixed_response: Some(Box::new(fixed)), ..RouteAction::default() }
}

/// A plan of (host, path, exact, answer), created at some second.
fn plan(created: i64, paths: &[(&str, &str, bool, &str)]) -> Arc<RoutePlanSpec> {
    let host = |(host, path, exact, answer): &(&str, &str, bool, &str)| RouteHost {
        host: (*host).to_owned(),
        paths: vec![RoutePath {
            path: (*path).to_owned(),
            compare: if *exact { RouteMatch::Exact } else { RouteMatch::Prefix },
            action: fixed(answer),
        }],
    };
    let created = k8s_openapi::jiff::Timestamp::from_second(created).unwrap();
    Arc::new(RoutePlanSpec {
        source_created: Some(Time(created)),
        hosts: paths.iter().map(host).collect(),
        ..RoutePlanSpec::default()
    })
}

fn key(name: &str) -> Key {
    ("shop".to_owned(), name.to_owned())
}

fn compiler() -> Compiler {
    Compiler::new(&crate::Config { cluster: "paris".to_owned(), ..crate::Config::default() })
}

/// What a request is answered with; nothing when no route matches.
fn answer(compiler: &Compiler, host: &str, path: &str) -> String {
    match compiler.table.find(host, path).map(|route| &route.action) {
        Some(Action::Fixed(fixed)) => String::from_utf8(fixed.body.to_vec()).unwrap(),
        Some(other) => format!("{other:?}"),
        None => String::new(),
    }
}

/// The same as it is explained to users.
fn explained(plans: &[(String, RoutePlanSpec)], host: &str, path: &str) -> String {
    let found = find(plans, &Request { secure: false, host, path });
    let fixed = found.and_then(|found| found.action.fixed_response.clone());
    fixed.and_then(|fixed| fixed.body).unwrap_or_default()
}

#[test]
fn the_most_particular_route_is_taken_and_told() {
    let mut compiler = compiler();
    let mut world = World::default();
    let paths = [
        ("a.example.com", "/", false, "root"),
        ("a.example.com", "/foo", false, "foo"),
        ("a.example.com", "/foo/bar/", false, "foobar"),
        ("a.example.com", "/foo", true, "exactly foo"),
        ("*.Example.com", "/", false, "wildcard"),
        ("b.example.com", "/only", false, "only"),
        ("", "/any", false, "any"),
    ];
    world.routes.insert(key("one"), plan(1, &paths));
    compiler.follow(&world, 0);
    let plans = [("shop".to_owned(), (*plan(1, &paths)).clone())];
    for (host, path, want) in [
        ("a.example.com", "/", "root"),
        ("a.example.com", "/x", "root"),
        ("a.example.com", "/foo", "exactly foo"),
        ("a.example.com", "/foo/", "foo"),
        ("a.example.com", "/foobar", "root"),
        ("a.example.com", "/foo/x", "foo"),
        ("a.example.com", "/foo/bar", "foobar"),
        ("a.example.com", "/foo/bar/x", "foobar"),
        ("a.example.com", "/foo/barx", "foo"),
        ("z.example.com", "/x", "wildcard"),
        ("y.z.example.com", "/x", ""),
        ("example.com", "/x", ""),
        ("b.example.com", "/only/x", "only"),
        ("b.example.com", "/x", ""),
        ("elsewhere", "/any/x", "any"),
        ("elsewhere", "/x", ""),
    ] {
        assert_eq!(answer(&compiler, host, path), want, "{host}{path}");
        assert_eq!(explained(&plans, host, path), want, "{host}{path}");
    }
}

#[test]
fn of_two_that_want_the_same_the_older_has_it_until_it_goes() {
    let mut compiler = compiler();
    let mut world = World::default();
    world.routes.insert(key("a-younger"), plan(2, &[("h", "/", false, "younger"), ("h", "/y", false, "y")]));
    world.routes.insert(key("z-older"), plan(1, &[("h", "/", false, "older")]));
    compiler.follow(&world, 0);
    assert_eq!((answer(&compiler, "h", "/"), answer(&compiler, "h", "/y")), ("older".into(), "y".into()));
    world.routes.remove(&key("z-older"));
    assert!(compiler.follow(&world, 0).gone.len() == 1);
    assert_eq!(answer(&compiler, "h", "/"), "younger");
    world.routes.remove(&key("a-younger"));
    compiler.follow(&world, 0);
    assert_eq!(answer(&compiler, "h", "/"), "");
    assert!(compiler.by_host.is_empty() && compiler.plans.is_empty() && compiler.table.exact.is_empty());
}

#[test]
fn a_default_takes_what_no_route_matches() {
    let mut compiler = compiler();
    let mut world = World::default();
    let with_default = |created, answer: &str| {
        let mut spec = (*plan(created, &[("h", "/a", false, "a")])).clone();
        spec.default_action = Some(Box::new(fixed(answer)));
        Arc::new(spec)
    };
    world.routes.insert(key("one"), with_default(2, "younger"));
    world.routes.insert(key("two"), with_default(1, "older"));
    compiler.follow(&world, 0);
    assert_eq!(answer(&compiler, "h", "/b"), "older");
    assert_eq!(answer(&compiler, "nobody", "/"), "older");
    assert_eq!(answer(&compiler, "h", "/a/b"), "a");
}

#[test]
fn groups_are_carried_by_their_edges_only() {
    let mut world = World::default();
    let mut grouped = (*plan(1, &[("h", "/", false, "grouped")])).clone();
    grouped.groups = vec!["blue".to_owned()];
    world.routes.insert(key("one"), Arc::new(grouped));
    for (group, want) in [(None, ""), (Some("red"), ""), (Some("blue"), "grouped")] {
        let config = crate::Config { group: group.map(str::to_owned), ..crate::Config::default() };
        let mut compiler = Compiler::new(&config);
        compiler.follow(&world, 0);
        assert_eq!(answer(&compiler, "h", "/"), want, "{group:?}");
    }
}

fn to_service(name: &str) -> Arc<RoutePlanSpec> {
    let service =
        RouteService { namespace: "shop".to_owned(), name: name.to_owned(), port: 80, ..Default::default() };
    let action = RouteAction { service: Some(service), ..RouteAction::default() };
    let path = RoutePath { path: "/".to_owned(), compare: RouteMatch::Prefix, action };
    let hosts = vec![RouteHost { host: format!("{name}.test"), paths: vec![path] }];
    Arc::new(RoutePlanSpec { hosts, ..RoutePlanSpec::default() })
}

#[test]
fn a_new_plan_reaches_its_service_and_no_other_and_leaves_the_table_alone() {
    let mut compiler = compiler();
    let mut world = World::default();
    world.routes.insert(key("one"), to_service("one"));
    world.routes.insert(key("two"), to_service("two"));
    assert!(compiler.follow(&world, 0).table);
    let version = |compiler: &Compiler, name: &str| {
        compiler.table.targets.values().find(|target| target.service.name == name).unwrap().version()
    };
    let before = (version(&compiler, "one"), version(&compiler, "two"));
    world.plans.insert(key("one"), Arc::new(TrafficPlanSpec::default()));
    assert!(!compiler.follow(&world, 0).table);
    assert_eq!((version(&compiler, "one"), version(&compiler, "two")), (before.0 + 1, before.1));
    assert!(!compiler.follow(&world, 0).table);
    assert_eq!(version(&compiler, "one"), before.0 + 1, "nothing has changed");
    world.routes.remove(&key("one"));
    compiler.follow(&world, 0);
    assert_eq!(compiler.table.targets.len(), 1, "nobody names it any more");
}

fn port(service: &str) -> RouteService {
    RouteService { namespace: "shop".to_owned(), name: service.to_owned(), port: 80, ..Default::default() }
}

#[test]
fn what_other_edges_name_is_known_for_as_long_as_the_federation_has_it() {
    let mut compiler = compiler();
    let mut world = World::default();
    // A route of another group names it: that is none of this edge's business.
    let mut other = (*to_service("web")).clone();
    other.groups = vec!["blue".to_owned()];
    world.routes.insert(key("other"), Arc::new(other));
    compiler.follow(&world, 0);
    assert!(compiler.table.targets.is_empty());
    assert!(compiler.named_by_peer(&port("web"), 0).is_none(), "there is no such service");
    let ports = vec![PlanPort { port: 80, ..PlanPort::default() }];
    let plan = Arc::new(TrafficPlanSpec { ports, ..TrafficPlanSpec::default() });
    world.plans.insert(key("web"), plan);
    assert!(!compiler.follow(&world, 0).table);
    let target = compiler.named_by_peer(&port("web"), 0).expect("it has that port");
    assert!(target.version() > 0, "it has followed its plan");
    assert!(compiler.named_by_peer(&RouteService { port: 81, ..port("web") }, 0).is_none());
    drop(target);
    // It stays when routes change, and goes with the service.
    world.routes.insert(key("one"), to_service("one"));
    compiler.follow(&world, 0);
    assert!(compiler.knows(&port("web")));
    world.plans.remove(&key("web"));
    assert!(compiler.follow(&world, 0).table);
    assert!(!compiler.knows(&port("web")));
}

/// What a route had led to first was forgotten with the route, though other edges went on asking for it; its limits and what was known of
/// its endpoints went with it.
#[test]
fn what_other_edges_name_outlives_the_route_to_it() {
    let (mut compiler, mut world) = (compiler(), World::default());
    let ports = vec![PlanPort { port: 80, ..PlanPort::default() }];
    world.plans.insert(key("web"), Arc::new(TrafficPlanSpec { ports, ..TrafficPlanSpec::default() }));
    world.routes.insert(key("web"), to_service("web"));
    compiler.follow(&world, 0);
    let id = compiler.table.target_of_peer(&port("web")).expect("a route leads there").id;
    world.routes.remove(&key("web"));
    compiler.follow(&world, 0);
    assert_eq!(compiler.named_by_peer(&port("web"), 0).map(|target| target.id), Some(id));
    world.plans.remove(&key("web"));
    compiler.follow(&world, 0);
    assert!(!compiler.knows(&port("web")));
}

/// What `docs/one-address.md` says of a policy that says nothing.
#[test]
fn without_a_policy_the_usual_holds() {
    let (mut compiler, mut world) = (compiler(), World::default());
    let ports = vec![PlanPort { port: 80, ..PlanPort::default() }];
    world.plans.insert(key("web"), Arc::new(TrafficPlanSpec { ports, ..TrafficPlanSpec::default() }));
    let service =
        RouteService { namespace: "shop".to_owned(), name: "web".to_owned(), port: 80, ..Default::default() };
    let action = RouteAction { service: Some(service.clone()), ..RouteAction::default() };
    let path = RoutePath { path: "/".to_owned(), compare: RouteMatch::Prefix, action };
    let hosts = vec![RouteHost { host: "h".to_owned(), paths: vec![path] }];
    world.routes.insert(key("one"), Arc::new(RoutePlanSpec { hosts, ..RoutePlanSpec::default() }));
    compiler.follow(&world, 0);
    let service = compiler.table.target(&service).unwrap().service();
    let (times, outlier) = (service.times, service.outlier);
    let seconds = |time: std::time::Duration| time.as_secs();
    assert_eq!((seconds(times.connect), seconds(times.first_byte), times.whole), (1, 60, None));
    assert_eq!((seconds(times.idle), seconds(times.upgraded_idle)), (300, 3600));
    assert_eq!((service.retries, service.retry_percent), (2, 20));
    assert_eq!((outlier.failures, seconds(outlier.out), outlier.percent, outlier.slower), (5, 30, 50, None));
    assert_eq!((service.concurrency, service.cluster_concurrency), (None, None));
}
