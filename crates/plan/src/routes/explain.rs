//! One request in words: its route, the clusters in order, why, and what would happen if one died.

use std::fmt::{self, Display};

use landfall_api::landfall::{RouteAction, RouteMatch, RoutePath, RoutePlanSpec, TrafficPlanSpec};

use crate::choose::Chooser;

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Over TLS.
    pub secure: bool,
    /// The host, in lower case, without a port.
    pub host: &'a str,
    /// The path.
    pub path: &'a str,
}

/// Where a client stands.
#[derive(Clone, Copy, Debug)]
pub struct Stand<'a> {
    /// In words.
    pub said: &'a str,
    /// The member whose edge it asks; empty where nobody knows.
    pub member: &'a str,
    /// Its region.
    pub region: Option<&'a str>,
}

/// The route of a request.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// The namespace of its source.
    pub namespace: &'a str,
    /// Its plan.
    pub plan: &'a RoutePlanSpec,
    /// The host and the path that match; none where nothing does, and the default is taken.
    pub at: Option<(&'a str, &'a RoutePath)>,
    /// What becomes of the request.
    pub action: &'a RouteAction,
    /// Clients must show a certificate: it wants one, or others want one of all who come for that host.
    pub guarded: bool,
}

/// Finds the route of a request as edges do: the host itself, else a wildcard one label above, else every host; of its paths
/// an exact one, else the longest prefix; else the default.
pub fn find<'a>(plans: &'a [(String, RoutePlanSpec)], request: &Request<'_>) -> Option<Found<'a>> {
    let wildcard = request.host.split_once('.').map(|(_, domain)| format!("*.{domain}"));
    let hosts = [Some(request.host), wildcard.as_deref(), Some("")];
    let having = |wanted: &str| {
        let all = plans
            .iter()
            .flat_map(|(namespace, plan)| plan.hosts.iter().map(move |host| (namespace, plan, host)));
        let all = all.filter(|(.., host)| host.host.eq_ignore_ascii_case(wanted));
        all.flat_map(|(namespace, plan, host)| {
            host.paths.iter().map(move |path| (namespace, plan, host, path))
        })
        .collect::<Vec<_>>()
    };
    let paths = hosts.into_iter().flatten().map(having).find(|paths| !paths.is_empty()).unwrap_or_default();
    let matching = paths.into_iter().filter(|(.., path)| matches(path, request.path));
    let best = matching.max_by_key(|(.., path)| (path.compare == RouteMatch::Exact, path.path.len()));
    if let Some((namespace, plan, host, path)) = best {
        let guarded = is_guarded(plans, plan, request.host);
        return Some(Found { namespace, plan, at: Some((&host.host, path)), action: &path.action, guarded });
    }
    let (namespace, plan) = plans.iter().find(|(_, plan)| plan.default_action.is_some())?;
    let guarded = is_guarded(plans, plan, request.host);
    Some(Found { namespace, plan, at: None, action: plan.default_action.as_deref()?, guarded })
}

/// Whether a plan asks clients for certificates, or any that speaks for its host: by its name, else by its wildcard, else for all others.
fn is_guarded(plans: &[(String, RoutePlanSpec)], own: &RoutePlanSpec, host: &str) -> bool {
    let names = |plan: &RoutePlanSpec, wanted: &str| {
        let certified = plan.certificates.iter().flat_map(|one| &one.hosts);
        plan.hosts
            .iter()
            .map(|host| &host.host)
            .chain(certified)
            .any(|name| name.eq_ignore_ascii_case(wanted))
    };
    let asks = |plan: &RoutePlanSpec| plan.options.client_authority.is_some();
    let wildcard = host.split_once('.').map(|(_, domain)| format!("*.{domain}"));
    let known = [Some(host), wildcard.as_deref()].into_iter().flatten();
    let known = known.into_iter().find(|name| plans.iter().any(|(_, plan)| names(plan, name)));
    let speaks = |plan: &RoutePlanSpec| match known {
        Some(name) => names(plan, name),
        None => plan.default_action.is_some() || names(plan, ""),
    };
    asks(own) || plans.iter().any(|(_, plan)| asks(plan) && speaks(plan))
}

/// Whether a path matches, by whole elements.
fn matches(route: &RoutePath, path: &str) -> bool {
    match route.compare {
        RouteMatch::Exact => route.path == path,
        RouteMatch::Prefix => {
            let prefix = route.path.trim_end_matches('/');
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
    }
}

/// A request in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// What is said of it, line by line.
    pub lines: Vec<String>,
}

/// Explains what becomes of a request. `plan` is that of the service that its route leads to.
pub fn explain(
    request: &Request<'_>,
    found: Option<&Found<'_>>,
    plan: Option<&TrafficPlanSpec>,
    stand: &Stand<'_>,
    without: Option<&str>,
) -> Explanation {
    let scheme = if request.secure { "https" } else { "http" };
    let mut said = Explanation::default();
    said.add(0, format!("{scheme}://{}{} from {}", request.host, request.path, stand.said));
    let Some(found) = found else {
        said.add(1, "no route matches: edges answer 404");
        return said;
    };
    let source = &found.plan.source_ref;
    let place = match found.at {
        Some((host, path)) => {
            let how = if path.compare == RouteMatch::Exact { "the path" } else { "paths below" };
            format!("{how} {}{}", if host.is_empty() { "*" } else { host }, path.path)
        }
        None => "whatever nothing else matches".to_owned(),
    };
    said.add(0, format!("route {} {}/{}: {place}", source.kind, found.namespace, source.name));
    let certificate = found.plan.certificates.iter().find(|one| covers(&one.hosts, request.host));
    if request.secure {
        let shown = certificate.map_or("none of its own: the edge's", |certificate| &certificate.secret);
        said.add(0, format!("certificate {shown}"));
    } else if found.plan.options.redirect_to_https && certificate.is_some() {
        said.add(1, format!("redirected to https://{}{}", request.host, request.path));
        return said;
    }
    if found.guarded {
        if !request.secure {
            said.add(1, "answered with 403: clients must show a certificate, over HTTPS");
            return said;
        }
        said.add(0, "clients must show a certificate");
    }
    said.action(found.action);
    if let Some(service) = &found.action.service {
        match plan {
            Some(plan) => said.clusters(plan, stand, without),
            None => {
                said.add(1, format!("nothing is planned for {}/{} yet: 503", service.namespace, service.name))
            }
        }
    }
    said
}

fn covers(hosts: &[String], host: &str) -> bool {
    let wildcard = host.split_once('.').map(|(_, domain)| format!("*.{domain}"));
    hosts.is_empty() || hosts.iter().any(|one| one == host || Some(one) == wildcard.as_ref())
}

impl Explanation {
    fn add(&mut self, depth: usize, line: impl Display) {
        self.lines.push(format!("{}{line}", "  ".repeat(depth)));
    }

    fn action(&mut self, action: &RouteAction) {
        if let Some(service) = &action.service {
            let (namespace, name) = (&service.namespace, &service.name);
            self.add(0, format!("service {namespace}/{name}, port {}, {:?}", service.port, service.protocol));
        }
        if let Some(bucket) = &action.bucket {
            self.add(1, format!("goes to {}", bucket.url));
        }
        if let Some(redirect) = &action.redirect {
            let status = redirect.status_code.unwrap_or(302);
            let part = |name: &str, value: &Option<String>| {
                value.as_ref().map(|value| format!(", {name} {value}")).unwrap_or_default()
            };
            let (scheme, host) = (part("scheme", &redirect.scheme), part("host", &redirect.host));
            self.add(1, format!("redirected with {status}{scheme}{host}{}", part("path", &redirect.path)));
        }
        if let Some(fixed) = &action.fixed_response {
            self.add(1, format!("answered with {}", fixed.status_code));
        }
        if let Some(why) = &action.unavailable {
            self.add(1, format!("answered with 503: {why}"));
        }
    }

    fn clusters(&mut self, plan: &TrafficPlanSpec, stand: &Stand<'_>, without: Option<&str>) {
        let chooser = Chooser::new(plan, stand.member, stand.region);
        let width = plan.clusters.iter().map(|cluster| cluster.name.len()).max().unwrap_or(0);
        if chooser.choices().is_empty() {
            self.add(1, "no cluster can take it: edges answer 503");
        }
        for choice in chooser.choices() {
            let share = if choice.fraction > 0.0 {
                format!("{:>3.0} %", choice.fraction * 100.0)
            } else {
                "  -  ".to_owned()
            };
            let load = plan.clusters.get(choice.place).and_then(|cluster| {
                Some(format!(
                    "; carries {:.0} of {:.0} requests per second",
                    cluster.load?, cluster.capacity?
                ))
            });
            let reason = if choice.reason.is_empty() { "the plan's order" } else { &choice.reason };
            self.add(1, format!("{:width$}  {share}  {reason}{}", choice.cluster, load.unwrap_or_default()));
        }
        for cluster in &plan.clusters {
            if let Some(why) = cluster
                .left_out
                .as_ref()
                .filter(|_| chooser.choices().iter().all(|choice| choice.cluster != cluster.name))
            {
                self.add(1, format!("not {}: {why}", cluster.name));
            }
        }
        if !plan.fence.is_empty() {
            self.add(1, format!("never outside the fence: {}", plan.fence.join(", ")));
        }
        if let Some(without) = without {
            self.add(0, format!("without {without}"));
            self.left(&chooser, without);
        }
    }

    /// What would happen without a cluster, before the hub plans anew: failed requests go where the edges retry them.
    fn left(&mut self, chooser: &Chooser, without: &str) {
        if chooser.choices().iter().all(|choice| choice.cluster != without) {
            self.add(1, "nothing changes: it takes none of these requests");
            return;
        }
        let shares = chooser.shares(|choice| choice.cluster != without);
        let taking = chooser.choices().iter().zip(&shares).filter(|(_, share)| **share > 0.0);
        for (choice, share) in taking {
            let more = if *share > choice.fraction + 1e-9 { "takes over at once" } else { "as before" };
            self.add(1, format!("{}  {:.0} %  {more}", choice.cluster, share * 100.0));
        }
        if shares.iter().all(|share| *share <= 0.0) {
            self.add(1, "no cluster is left: edges answer 503");
        }
    }
}

impl Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::landfall::RouteOptions;
    use serde_json::json;

    use super::*;

    fn plans() -> Vec<(String, RoutePlanSpec)> {
        let service = |name: &str| json!({"service": {"namespace": "shop", "name": name, "port": 80, "protocol": "HTTP"}});
        let path = |path: &str, compare: &str, to: &str| json!({"path": path, "match": compare, "action": service(to)});
        let spec = json!({
            "sourceRef": {"kind": "Ingress", "name": "front"},
            "hosts": [
                {"host": "a.example.com", "paths": [path("/", "Prefix", "web"), path("/api", "Prefix", "api"), path("/api", "Exact", "exact")]},
                {"host": "*.example.com", "paths": [path("/x/", "Prefix", "wild")]},
            ],
            "defaultAction": service("rest"),
            "certificates": [{"hosts": ["a.example.com"], "secret": "shop.tls"}],
            "options": {"redirectToHttps": true},
        });
        vec![("shop".to_owned(), serde_json::from_value(spec).expect("routes"))]
    }

    #[test]
    fn routes_are_found_as_edges_find_them() {
        let plans = plans();
        for (host, path, expected) in [
            ("a.example.com", "/", "web"),
            ("a.example.com", "/apis", "web"),
            ("a.example.com", "/api/x", "api"),
            ("a.example.com", "/api", "exact"),
            ("b.example.com", "/x", "wild"),
            ("b.example.com", "/y", "rest"),
            ("a.b.example.com", "/x", "rest"),
        ] {
            let found = find(&plans, &Request { secure: true, host, path }).expect("a route");
            assert_eq!(found.action.service.as_ref().expect("a service").name, expected, "{host}{path}");
        }
        assert!(find(&[], &Request { secure: true, host: "a", path: "/" }).is_none());
    }

    #[test]
    fn a_request_is_told_with_its_clusters_and_what_is_left() {
        let plans = plans();
        let plan: TrafficPlanSpec = serde_json::from_value(json!({
            "targetRef": {"kind": "Service", "name": "web"},
            "clusters": [{"name": "east", "verdict": {"up": true}}, {"name": "west", "verdict": {"up": true}},
                {"name": "south", "verdict": {"up": false}, "leftOut": "Down: the majority says that it is down"}],
            "vantages": [{"cluster": "east", "choices": [
                {"cluster": "east", "fraction": 0.75, "reason": "Local: the clients are in this cluster"},
                {"cluster": "west", "fraction": 0.25, "reason": "Overflow: nearer ones have no room; 80 ms"},
            ]}],
            "fence": ["east", "west"],
        }))
        .expect("a plan");
        let stand = Stand { said: "inside east", member: "east", region: None };
        let said = |secure: bool, without: Option<&str>| {
            let request = Request { secure, host: "a.example.com", path: "/cart" };
            explain(&request, find(&plans, &request).as_ref(), Some(&plan), &stand, without).to_string()
        };
        let expected = "https://a.example.com/cart from inside east
route Ingress shop/front: paths below a.example.com/
certificate shop.tls
service shop/web, port 80, Http
  east    75 %  Local: the clients are in this cluster
  west    25 %  Overflow: nearer ones have no room; 80 ms
  not south: Down: the majority says that it is down
  never outside the fence: east, west
without east
  west  100 %  takes over at once
";
        assert_eq!(said(true, Some("east")), expected);
        assert!(
            said(true, Some("south"))
                .ends_with("without south\n  nothing changes: it takes none of these requests\n")
        );
        assert!(said(false, None).ends_with("redirected to https://a.example.com/cart\n"));
        let mut guarded = plans.clone();
        (guarded[0].1.options.client_authority, guarded[0].1.options.redirect_to_https) =
            (Some("ca".into()), false);
        let asked = |secure: bool| {
            let request = Request { secure, host: "a.example.com", path: "/cart" };
            explain(&request, find(&guarded, &request).as_ref(), Some(&plan), &stand, None).to_string()
        };
        assert!(
            asked(true).contains("certificate shop.tls\nclients must show a certificate\nservice shop/web")
        );
        assert!(asked(false).ends_with("answered with 403: clients must show a certificate, over HTTPS\n"));
        // Another route of the host wants it of all who come there.
        let open = RoutePlanSpec { options: RouteOptions::default(), ..guarded[0].1.clone() };
        guarded[0].1.hosts[0].paths.truncate(1);
        guarded[0].1.hosts[0].paths[0].path = "/admin".to_owned();
        guarded.insert(0, ("shop".to_owned(), open));
        guarded[1].1.default_action = None;
        for (host, expected) in [("a.example.com", true), ("b.example.com", true), ("c.example.org", false)] {
            let found = find(&guarded, &Request { secure: true, host, path: "/cart" }).expect("a route");
            assert_eq!(found.guarded, expected, "{host}");
        }
    }
}
