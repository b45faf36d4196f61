//! Compiles the world into a table, by what has changed since the last time: a change costs what it touches, not what there is.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use landfall_api::landfall::{RouteAction, RouteHost, RouteMatch, RoutePlanSpec, RouteService};
use landfall_plan::routes::{Origin, origin};

use super::bucket::{Site, site};
use super::target::Sources;
use super::{Action, Bucket, Fixed, Host, Plan, Route, Table, Target, ToHttps, covers, path};
use crate::guard::Guard;
use crate::world::{Key, World};

/// Makes tables of worlds.
pub(crate) struct Compiler {
    edge: String,
    cluster: String,
    group: Option<String>,
    guard: Guard,
    world: World,
    table: Table,
    /// Who has paths at a host, the oldest first.
    by_host: HashMap<Arc<str>, Vec<Seniority>>,
    /// Who has a default action, the oldest first.
    defaults: BTreeSet<Seniority>,
    plans: HashMap<Key, Arc<Plan>>,
    /// The targets of a service: one for each port and protocol that is named.
    by_service: HashMap<Key, Vec<Arc<RouteService>>>,
    /// Places outside the federation.
    outside: HashMap<Site, Arc<Target>>,
    last_id: u64,
}

/// What decides between two that want the same: the time of creation, then the name.
type Seniority = (i128, Key);

/// What a new world changed.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// There is a new table: routes were added, changed or taken away, or what other edges named is no more.
    pub(crate) table: bool,
    /// Plans of routes that are no more, by their number.
    pub(crate) gone: Vec<u64>,
    /// Places outside the federation that no route named before.
    pub(crate) outside: Vec<Arc<Target>>,
}

impl Compiler {
    pub(crate) fn new(config: &crate::Config) -> Self {
        Self {
            edge: config.edge.clone(),
            cluster: config.cluster.clone(),
            group: config.group.clone(),
            guard: Guard::new(config),
            world: World::default(),
            table: Table::default(),
            by_host: HashMap::new(),
            defaults: BTreeSet::new(),
            plans: HashMap::new(),
            by_service: HashMap::new(),
            outside: HashMap::new(),
            last_id: 0,
        }
    }

    /// The table as it is now.
    pub(crate) fn table(&self) -> Table {
        self.table.clone()
    }

    /// Follows a world; targets are followed in place.
    pub(crate) fn follow(&mut self, world: &World, now_ms: u64) -> Changed {
        let before = std::mem::replace(&mut self.world, world.clone());
        let mut changed = Changed::default();
        let mut services = self.changed_services(&before);
        let routes: Vec<_> = differences(&before.routes, &world.routes);
        let mut hosts: HashSet<Arc<str>> = HashSet::new();
        for (key, old, new) in &routes {
            changed.table = true;
            if let Some(old) = old {
                self.forget(key, old, &mut hosts);
            }
            // What is counted of a plan goes on when it changes.
            let id = self.plans.remove(key).map(|plan| plan.id);
            if let Some(new) = new {
                changed.outside.extend(self.look_outside(new));
                self.learn(key, new, id, (&mut hosts, &mut services));
            }
            changed.gone.extend(id.filter(|_| !self.plans.contains_key(key)));
        }
        for host in hosts {
            self.compile_host(&host);
        }
        if changed.table {
            self.compile_default();
        }
        changed.table |= self.forget_peers(&services);
        if changed.table {
            self.sweep();
        }
        self.follow_targets(&services, now_ms);
        changed
    }

    /// Services whose plan or endpoints are new; all of them when the federation is.
    fn changed_services(&self, before: &World) -> HashSet<Key> {
        let same = match (&before.federation, &self.world.federation) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new) || old == new,
            (None, None) => true,
            _ => false,
        };
        if !same {
            return self.by_service.keys().cloned().collect();
        }
        let plans = differences(&before.plans, &self.world.plans).into_iter().map(|(key, ..)| key);
        let endpoints =
            differences(&before.endpoints, &self.world.endpoints).into_iter().map(|(key, ..)| key);
        plans.chain(endpoints).collect()
    }

    /// Whether this edge carries a plan's routes.
    fn carries(&self, plan: &RoutePlanSpec) -> bool {
        match &self.group {
            Some(group) => plan.groups.contains(group),
            None => plan.groups.is_empty(),
        }
    }

    fn forget(&mut self, key: &Key, old: &RoutePlanSpec, hosts: &mut HashSet<Arc<str>>) {
        let who = seniority(key, old);
        self.defaults.remove(&who);
        for host in &old.hosts {
            let name = host_name(host);
            if let Some(claims) = self.by_host.get_mut(&name)
                && let Ok(at) = claims.binary_search(&who)
            {
                claims.remove(at);
            }
            hosts.insert(name);
        }
    }

    fn learn(
        &mut self,
        key: &Key,
        new: &RoutePlanSpec,
        id: Option<u64>,
        (hosts, services): (&mut HashSet<Arc<str>>, &mut HashSet<Key>),
    ) {
        if !self.carries(new) {
            return;
        }
        for service in named(new) {
            services.extend(self.add(service));
        }
        self.last_id += 1;
        self.plans.insert(key.clone(), Arc::new(plan(id.unwrap_or(self.last_id), key, new)));
        let who = seniority(key, new);
        if new.default_action.is_some() {
            self.defaults.insert(who.clone());
        }
        for host in &new.hosts {
            let name = host_name(host);
            let claims = self.by_host.entry(name.clone()).or_default();
            if let Err(at) = claims.binary_search(&who) {
                // Most hosts have one claim.
                claims.reserve_exact(usize::from(claims.is_empty()));
                claims.insert(at, who.clone());
            }
            hosts.insert(name);
        }
    }

    /// Has a target for a service's port; whose it is, if there was none.
    fn add(&mut self, service: &RouteService) -> Option<Key> {
        if self.table.targets.contains_key(service) {
            return None;
        }
        self.last_id += 1;
        let service = Arc::new(service.clone());
        let target = Arc::new(Target::new(self.last_id, service.clone()));
        self.table.targets.insert(service.clone(), target);
        let of = (service.namespace.clone(), service.name.clone());
        self.by_service.entry(of.clone()).or_default().push(service);
        Some(of)
    }

    /// Whether there is a target for a service's port.
    pub(crate) fn knows(&self, service: &RouteService) -> bool {
        self.table.targets.contains_key(service)
    }

    /// The target that another edge names, made where it is the first to. None for what is no port of a service in the federation: nobody
    /// can have more targets made than there are ports.
    pub(crate) fn named_by_peer(&mut self, service: &RouteService, now_ms: u64) -> Option<Arc<Target>> {
        if !self.has_port(service) {
            return self.table.targets.get(service).cloned();
        }
        if let Some(of) = self.add(service) {
            self.follow_targets(&HashSet::from([of]), now_ms);
        }
        self.table.target_of_peer(service).cloned()
    }

    /// Whether the federation has a service with that port.
    fn has_port(&self, service: &RouteService) -> bool {
        let of = (service.namespace.clone(), service.name.clone());
        let ports = self.world.plans.get(&of).map(|plan| plan.ports.as_slice()).unwrap_or_default();
        ports.iter().any(|port| port.port == service.port && port.name == service.port_name)
    }

    /// Forgets what other edges named of these services and is no more; whether there was any.
    fn forget_peers(&self, services: &HashSet<Key>) -> bool {
        let ports = services.iter().filter_map(|of| self.by_service.get(of)).flatten();
        let targets = ports.filter_map(|service| self.table.target(service));
        let gone = targets.filter(|target| target.is_named_by_peers() && !self.has_port(&target.service));
        gone.inspect(|target| target.name_by_peers(false)).count() > 0
    }

    /// Targets for places outside the federation that a plan is the first to name.
    fn look_outside(&mut self, new: &RoutePlanSpec) -> Vec<Arc<Target>> {
        let named = if self.carries(new) { buckets(new) } else { Vec::new() };
        let mut first = Vec::new();
        for origin in named {
            let last_id = &mut self.last_id;
            self.outside.entry(site(&origin)).or_insert_with(|| {
                *last_id += 1;
                let target = Arc::new(Target::outside(*last_id, &origin));
                first.push(target.clone());
                target
            });
        }
        first
    }

    /// What is wrong with places outside the federation.
    pub(crate) fn outside_problems(&self) -> Vec<(String, String)> {
        let told =
            self.outside.values().filter_map(|target| Some((target.service.name.clone(), target.problem()?)));
        told.collect()
    }

    /// Makes a host's paths again: the oldest has what several want.
    fn compile_host(&mut self, name: &Arc<str>) {
        let mut host = Host::default();
        let claims = self.by_host.get(name).into_iter().flatten();
        for (_, key) in claims {
            let (Some(spec), Some(plan)) = (self.world.routes.get(key), self.plans.get(key)) else {
                continue;
            };
            let to_https = to_https(spec, Some(name));
            for entry in spec.hosts.iter().filter(|entry| host_name(entry) == *name) {
                for wanted in &entry.paths {
                    let Some(action) = self.action(&wanted.action) else { continue };
                    let route = Arc::new(Route { plan: plan.clone(), action, to_https: to_https.clone() });
                    match wanted.compare {
                        RouteMatch::Exact => host.exact.entry(wanted.path.as_str().into()).or_insert(route),
                        RouteMatch::Prefix => {
                            host.prefix.entry(path::known_by(&wanted.path).into()).or_insert(route)
                        }
                    };
                }
            }
        }
        let host = (!host.exact.is_empty() || !host.prefix.is_empty()).then(|| Arc::new(host));
        let (map, place) = match name.strip_prefix("*.") {
            Some(domain) => (&mut self.table.wildcard, domain.into()),
            None if name.is_empty() => {
                self.table.any = host;
                return;
            }
            None => (&mut self.table.exact, name.clone()),
        };
        match host {
            Some(host) => map.insert(place, host),
            None => map.remove(&*place),
        };
        if self.by_host.get(name).is_some_and(Vec::is_empty) {
            self.by_host.remove(name);
        }
    }

    fn compile_default(&mut self) {
        let route = self.defaults.iter().find_map(|(_, key)| {
            let (spec, plan) = (self.world.routes.get(key)?, self.plans.get(key)?);
            let action = self.action(spec.default_action.as_deref()?)?;
            Some(Arc::new(Route { plan: plan.clone(), action, to_https: to_https(spec, None) }))
        });
        self.table.default = route;
    }

    fn action(&self, action: &RouteAction) -> Option<Action> {
        if let Some(why) = &action.unavailable {
            return Some(Action::Unavailable(why.as_str().into()));
        }
        if let Some(service) = &action.service {
            return self.table.targets.get(service).cloned().map(Action::Service);
        }
        if let Some(bucket) = &action.bucket {
            let made = origin(bucket).ok().and_then(|origin| {
                let target = self.outside.get(&site(&origin))?.clone();
                Bucket::new(&origin, target).map(|bucket| Action::Bucket(Box::new(bucket)))
            });
            return Some(
                made.unwrap_or_else(|| Action::Unavailable("the bucket cannot be reached\n".into())),
            );
        }
        if let Some(redirect) = &action.redirect {
            return Some(Action::Redirect(redirect.clone()));
        }
        action.fixed_response.as_ref().map(|fixed| {
            let status = u16::try_from(fixed.status_code).ok().filter(|code| *code >= 200);
            let status = status.and_then(|code| StatusCode::from_u16(code).ok());
            let plain = HeaderValue::from_static("text/plain; charset=utf-8");
            let content_type = fixed.content_type.as_deref().and_then(|one| HeaderValue::from_str(one).ok());
            Action::Fixed(Box::new(Fixed {
                status: status.unwrap_or(StatusCode::OK),
                content_type: content_type.unwrap_or(plain),
                body: Bytes::from(fixed.body.clone().unwrap_or_default()),
            }))
        })
    }

    /// Forgets targets that nobody names any more.
    fn sweep(&mut self) {
        self.outside.retain(|_, target| Arc::strong_count(target) > 1);
        let unused = self
            .table
            .targets
            .iter()
            .filter(|(_, target)| Arc::strong_count(target) == 1 && !target.is_named_by_peers());
        let unused: Vec<Arc<RouteService>> = unused.map(|(service, _)| service.clone()).collect();
        // Ports that are carried as they are name targets too, and hold none.
        let named: HashSet<&RouteService> = if unused.is_empty() {
            HashSet::new()
        } else {
            let routes = self.world.routes.values().filter(|spec| self.carries(spec));
            routes.flat_map(|spec| named(spec)).collect()
        };
        for service in unused.iter().filter(|service| !named.contains(&***service)) {
            self.table.targets.remove(&**service);
            let of = (service.namespace.clone(), service.name.clone());
            if let Some(ports) = self.by_service.get_mut(&of) {
                ports.retain(|port| port != service);
                if ports.is_empty() {
                    self.by_service.remove(&of);
                }
            }
        }
    }

    fn follow_targets(&self, services: &HashSet<Key>, now_ms: u64) {
        for key in services {
            let ports = self.by_service.get(key).map(Vec::as_slice).unwrap_or_default();
            for target in ports.iter().filter_map(|port| self.table.targets.get(port)) {
                target.follow(&Sources {
                    cluster: &self.cluster,
                    edge: &self.edge,
                    plan: self.world.plans.get(key).map(|plan| &**plan),
                    endpoints: self.world.endpoints.get(key).map(|endpoints| &**endpoints),
                    federation: self.world.federation.as_deref(),
                    guard: &self.guard,
                    now_ms,
                });
            }
        }
    }
}

/// The key, what was there, what is there.
type Difference<V> = (Key, Option<Arc<V>>, Option<Arc<V>>);

/// What differs between two maps.
fn differences<V>(before: &OrdMap<Key, Arc<V>>, now: &OrdMap<Key, Arc<V>>) -> Vec<Difference<V>>
where
    Arc<V>: PartialEq,
{
    let differs = before.diff(now).filter_map(|item| match item {
        DiffItem::Add(key, new) => Some((key.clone(), None, Some(new.clone()))),
        DiffItem::Update { old: (_, old), new: (key, new) } => {
            (!Arc::ptr_eq(old, new)).then(|| (key.clone(), Some(old.clone()), Some(new.clone())))
        }
        DiffItem::Remove(key, old) => Some((key.clone(), Some(old.clone()), None)),
    });
    differs.collect()
}

/// The services that a plan's routes, ports and passthroughs name.
fn named(spec: &RoutePlanSpec) -> impl Iterator<Item = &RouteService> {
    let paths = spec.hosts.iter().flat_map(|host| &host.paths).map(|path| &path.action);
    let http = paths.chain(spec.default_action.as_deref()).filter_map(|action| action.service.as_ref());
    let carried =
        spec.passthrough.iter().map(|one| &one.service).chain(spec.ports.iter().map(|one| &one.service));
    http.chain(carried)
}

/// The places outside the federation that a plan's routes name.
fn buckets(spec: &RoutePlanSpec) -> Vec<Origin> {
    let paths = spec.hosts.iter().flat_map(|host| &host.paths).map(|path| &path.action);
    let named = paths.chain(spec.default_action.as_deref()).filter_map(|action| action.bucket.as_ref());
    named.filter_map(|bucket| origin(bucket).ok()).collect()
}

fn seniority(key: &Key, spec: &RoutePlanSpec) -> Seniority {
    let created = spec.source_created.as_ref().map_or(i128::MAX, |time| time.0.as_nanosecond());
    (created, key.clone())
}

fn host_name(host: &RouteHost) -> Arc<str> {
    host.host.to_ascii_lowercase().into()
}

fn plan(id: u64, key: &Key, spec: &RoutePlanSpec) -> Plan {
    let hsts = spec.options.hsts_seconds.filter(|seconds| *seconds >= 0);
    let hsts = hsts.and_then(|seconds| HeaderValue::from_str(&format!("max-age={seconds}")).ok());
    Plan {
        id,
        name: format!("{}/{}", key.0, key.1).into(),
        hsts,
        proxy_header: spec.options.send_proxy_protocol,
        clients: spec.options.client_authority.as_deref().map(Into::into),
    }
}

/// Whose plain HTTP is sent to HTTPS, of the requests that a host's routes take, or the default action: where one name stands for
/// many hosts, those that the plan has a certificate for. It is as with other controllers of Ingresses: what decides is whether
/// the client could come in by HTTPS.
fn to_https(spec: &RoutePlanSpec, host: Option<&str>) -> ToHttps {
    if !spec.options.redirect_to_https {
        return ToHttps::Nobody;
    }
    // A certificate that names no host is for all of them.
    if spec.certificates.iter().any(|one| one.hosts.is_empty()) {
        return ToHttps::Everybody;
    }
    let names = spec.certificates.iter().flat_map(|one| &one.hosts).map(|name| name.to_ascii_lowercase());
    let names: BTreeSet<String> = names.collect();
    let many = host.is_none_or(|host| host.is_empty() || host.starts_with("*."));
    match host {
        Some(host) if names.iter().any(|name| covers(name, host)) => ToHttps::Everybody,
        _ if many && !names.is_empty() => ToHttps::Hosts(names.into_iter().map(Into::into).collect()),
        _ => ToHttps::Nobody,
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
