//! The table in words, for whoever asks an edge what it does: what is compiled and live, not what was wished for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::target::{Place, Reach, Service, Vitals};
use super::{Action, Host, Route, Table, Target, ToHttps};

impl Table {
    /// The routes by host and path in order, and the services that they lead to, with the clusters in order and their endpoints.
    pub(crate) fn view(&self, now_ms: u64) -> Value {
        let exact = self.exact.iter().map(|(name, host)| (name.to_string(), host));
        let wildcard = self.wildcard.iter().map(|(domain, host)| (format!("*.{domain}"), host));
        let any = self.any.iter().map(|host| ("*".to_owned(), host));
        let mut hosts: Vec<(String, &Arc<Host>)> = exact.chain(wildcard).chain(any).collect();
        hosts.sort_by(|one, two| one.0.cmp(&two.0));
        let hosts = hosts.into_iter().map(|(name, host)| json!({"host": name, "paths": host.view()}));
        let mut services: Vec<&Arc<Target>> = self.targets.values().collect();
        services.extend(self.routes().filter_map(|route| match &route.action {
            Action::Bucket(bucket) => Some(&bucket.target),
            _ => None,
        }));
        services.sort_by_key(|target| (target.name.clone(), target.service.port, target.id));
        services.dedup_by_key(|target| target.id);
        json!({
            "hosts": hosts.collect::<Vec<_>>(),
            "default": self.default.as_deref().map(Route::view),
            "services": services.into_iter().map(|target| target.view(now_ms)).collect::<Vec<_>>(),
        })
    }

    fn routes(&self) -> impl Iterator<Item = &Route> {
        let hosts = self.exact.values().chain(self.wildcard.values()).chain(&self.any);
        let routes = hosts.flat_map(|host| host.exact.values().chain(host.prefix.values()));
        routes.chain(&self.default).map(|route| &**route)
    }
}

impl Host {
    /// Its paths in the order in which they are tried.
    fn view(&self) -> Vec<Value> {
        let sorted = |paths: &std::collections::HashMap<Box<str>, Arc<Route>>| {
            let mut paths: Vec<_> = paths.iter().map(|(path, route)| (path.clone(), route.clone())).collect();
            paths.sort_by(|(one, _), (two, _)| two.len().cmp(&one.len()).then_with(|| one.cmp(two)));
            paths
        };
        let told = |path: &str, how: &str, route: &Route| {
            let mut told = route.view();
            told["path"] = json!(if path.is_empty() { "/" } else { path });
            told["match"] = json!(how);
            told
        };
        let exact = sorted(&self.exact).into_iter().map(|(path, route)| told(&path, "Exact", &route));
        exact
            .chain(sorted(&self.prefix).into_iter().map(|(path, route)| told(&path, "Prefix", &route)))
            .collect()
    }
}

impl Route {
    fn view(&self) -> Value {
        let mut told = json!({"plan": &*self.plan.name, "to": self.action.view()});
        match &self.to_https {
            ToHttps::Nobody => {}
            ToHttps::Everybody => told["toHttps"] = json!(true),
            ToHttps::Hosts(hosts) => told["toHttps"] = hosts.iter().map(|host| json!(host)).collect(),
        }
        told
    }
}

impl Action {
    fn view(&self) -> Value {
        match self {
            Self::Service(target) => json!({"service": &*target.name, "port": target.service.port}),
            Self::Bucket(bucket) => {
                json!({"bucket": &*bucket.target.name, "port": bucket.target.service.port})
            }
            Self::Redirect(redirect) => json!({"redirect": redirect}),
            Self::Fixed(fixed) => json!({"status": fixed.status.as_u16()}),
            Self::Unavailable(why) => json!({"status": 503, "why": why.trim_end()}),
        }
    }
}

impl Target {
    fn view(&self, now_ms: u64) -> Value {
        let now = self.service();
        let clusters = now.places.iter().enumerate().map(|(at, place)| place.view(&now, at, now_ms));
        json!({
            "service": &*self.name,
            "port": self.service.port,
            "protocol": self.service.protocol,
            "version": self.version(),
            "clusters": clusters.collect::<Vec<_>>(),
        })
    }
}

impl Place {
    fn view(&self, service: &Service, at: usize, now_ms: u64) -> Value {
        let choice = service.chooser.choices().get(at);
        let endpoints: Vec<Value> =
            self.ways.iter().map(|(reach, vitals)| vitals.view(reach, now_ms)).collect();
        let in_flight: u32 = self.ways.iter().map(|(_, vitals)| vitals.in_flight()).sum();
        json!({
            "cluster": &*self.choice.cluster,
            "own": self.choice.own,
            "fraction": choice.map(|choice| choice.fraction),
            "reason": choice.map(|choice| choice.reason.as_str()),
            "inFlight": in_flight,
            "endpoints": endpoints,
        })
    }
}

impl Vitals {
    fn view(&self, reach: &Reach, now_ms: u64) -> Value {
        let mut told = match reach {
            Reach::Direct(address) => json!({"address": address.to_string()}),
            Reach::Peer { edge, address } => json!({"edge": &**edge, "address": &**address}),
        };
        told["inFlight"] = json!(self.in_flight());
        told["failures"] = json!(self.failures.load(Ordering::Relaxed));
        let out_ms = self.out_until_ms.load(Ordering::Relaxed).saturating_sub(now_ms);
        if out_ms > 0 {
            told["outForMs"] = json!(out_ms);
        }
        let warmth = self.warmth_percent(now_ms);
        if warmth < 100 {
            told["sharePercent"] = json!(warmth);
        }
        told
    }
}
