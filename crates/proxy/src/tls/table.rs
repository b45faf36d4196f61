//! What routes say about TLS, by host: certificates, ways to speak, and what is not ended here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use landfall_api::landfall::{RoutePlanSpec, RouteService};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;

use super::keys::{Shelf, Shown};
use super::names::{Names, plain};
use super::speaking::{Clients, Manner, Oldest};
use crate::carried::Carried;
use crate::world::World;

/// Certificates by host.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    by_host: Names<Arc<CertifiedKey>>,
    fallback: Option<Arc<CertifiedKey>>,
}

/// Where TLS goes that is not ended here.
#[derive(Clone, Debug, PartialEq)]
pub struct Passthrough {
    /// The service.
    pub service: RouteService,
    /// Connections to its endpoints begin with a PROXY protocol header.
    pub send_proxy_protocol: bool,
}

/// What a world says about TLS.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) certificates: Certificates,
    /// How hosts are spoken to: every host that a route names is there.
    pub(crate) manners: Names<Manner>,
    /// Hosts that no route names.
    pub(crate) others: Manner,
    pub(crate) passthrough: Names<Arc<Passthrough>>,
    /// Some wildcard is treated in another way than names are that nobody has said anything about: so it matters whether a
    /// name below it has routes, even where these say nothing about TLS.
    pub(crate) names_matter: bool,
    /// Clients of some host must show a certificate.
    pub(crate) guards_some: bool,
}

/// What has been read so far.
pub(crate) struct Shelves {
    pub(crate) shown: Shelf<Shown>,
    pub(crate) authorities: Shelf<RootCertStore>,
}

impl Certificates {
    /// The certificate for a name.
    pub(crate) fn get(&self, name: Option<&str>) -> Option<&Arc<CertifiedKey>> {
        name.and_then(|name| self.by_host.get(name)).or(self.fallback.as_ref())
    }
}

impl Said {
    /// What is not ended here. A name that a route has itself is ended here, whatever wildcards say.
    pub(crate) fn passthrough(&self, name: &str) -> Option<&Arc<Passthrough>> {
        if self.passthrough.is_empty() {
            return None;
        }
        let ended = || self.manners.get_exact(name).is_some();
        self.passthrough.get_exact(name).or_else(|| self.passthrough.get_wild(name).filter(|_| !ended()))
    }

    /// How a name is spoken to.
    pub(crate) fn manner(&self, name: Option<&str>) -> &Manner {
        name.and_then(|name| self.manners.get(name)).unwrap_or(&self.others)
    }
}

/// Reads a world. Of two routes that want the same host the older has it; the strictest version that one of them asks for
/// counts for all, and so does the first authority. A name that has a certificate and no routes is led where others are that
/// nobody names: who shows a certificate for it opens nothing.
pub(crate) fn read(
    carried: Carried<'_>,
    shelves: &mut Shelves,
    fallback: Option<&Arc<CertifiedKey>>,
    provider: &CryptoProvider,
) -> Said {
    let world = carried.world;
    let mut said = Said::default();
    let (mut secrets, mut authorities) = (BTreeSet::new(), BTreeSet::new());
    let (mut routed, mut certified) = (BTreeSet::new(), BTreeSet::new());
    for plan in carried.by_age() {
        let mut hosts: BTreeSet<String> = plan.hosts.iter().map(|host| plain(&host.host).into()).collect();
        if plan.default_action.is_some() {
            hosts.insert(String::new());
        }
        routed.extend(hosts.iter().cloned());
        for route in &plan.certificates {
            secrets.insert(route.secret.as_str());
            let kept = shelves.shown.take(&route.secret, &world.certificates, provider);
            let Some(good) = &kept.good else { continue };
            let named = if route.hosts.is_empty() { &good.names } else { &route.hosts };
            for host in named {
                show(&mut said.certificates, host, &good.key);
            }
            if named.is_empty() {
                show(&mut said.certificates, "", &good.key);
            }
            hosts.extend(named.iter().map(|host| plain(host).into()));
            certified.extend(named.iter().map(|host| plain(host).into_owned()));
        }
        let authority = plan.options.client_authority.as_deref();
        authorities.extend(authority);
        let manner = Manner {
            oldest: Oldest::of(plan.options.min_tls_version.as_deref()),
            clients: authority.map_or(Clients::Anybody, |secret| {
                let kept = shelves.authorities.take(secret, &world.certificates, provider);
                kept.good.clone().map_or(Clients::Nobody, |good| Clients::Known(good, secret.into()))
            }),
        };
        for host in &hosts {
            let known =
                if host.is_empty() { &mut said.others } else { said.manners.entry(host, Manner::default) };
            known.join(&manner);
        }
        for route in &plan.passthrough {
            let new = Passthrough {
                service: route.service.clone(),
                send_proxy_protocol: plan.options.send_proxy_protocol,
            };
            said.passthrough.entry(&route.host, || Arc::new(new));
        }
    }
    // Wildcards come first.
    for name in certified.difference(&routed).filter(|name| !name.is_empty()) {
        let above = said.manners.get_wild(name).filter(|_| !name.starts_with("*.")).unwrap_or(&said.others);
        let above = above.clone();
        said.manners.entry(name, Manner::default).join(&above);
    }
    shelves.shown.retain(|secret| secrets.contains(secret));
    shelves.authorities.retain(|secret| authorities.contains(secret));
    let all = || said.manners.values().chain([&said.others]);
    said.guards_some = all().any(|manner| !matches!(manner.clients, Clients::Anybody));
    let common = Manner::default();
    said.names_matter = said.others != common
        || said.manners.wildcards().any(|manner| *manner != common)
        || said.passthrough.wildcards().next().is_some();
    if said.certificates.fallback.is_none() {
        said.certificates.fallback = fallback.cloned();
    }
    said
}

/// The certificate is shown to a host, unless another is already. No host, and `*`, are all the others.
fn show(certificates: &mut Certificates, host: &str, key: &Arc<CertifiedKey>) {
    if matches!(host, "" | "*") {
        certificates.fallback.get_or_insert_with(|| key.clone());
    } else {
        certificates.by_host.entry(host, || key.clone());
    }
}

/// Whether two worlds say the same about TLS, as far as can be told without reading everything. Most changes of routes are
/// about paths, or come with a certificate that others have too.
pub(crate) fn same(before: &World, now: &World, names_matter: bool) -> bool {
    use imbl::ordmap::DiffItem;
    let silent = |plan: &RoutePlanSpec| !names_matter && says_nothing(plan);
    let routes = before.routes.diff(&now.routes).all(|item| match item {
        DiffItem::Update { old, new } => {
            Arc::ptr_eq(old.1, new.1) || unchanged(old.1, new.1) || silent(old.1) && silent(new.1)
        }
        DiffItem::Add(_, plan) | DiffItem::Remove(_, plan) => silent(plan),
    });
    routes
        && before.certificates.diff(&now.certificates).all(|item| match item {
            DiffItem::Update { old, new } => Arc::ptr_eq(old.1, new.1),
            DiffItem::Add(..) | DiffItem::Remove(..) => false,
        })
}

/// Whether a plan says nothing about TLS.
fn says_nothing(plan: &RoutePlanSpec) -> bool {
    let options = &plan.options;
    plan.certificates.is_empty()
        && plan.passthrough.is_empty()
        && options.min_tls_version.is_none()
        && options.client_authority.is_none()
}

/// Whether two plans say the same about TLS.
fn unchanged(one: &RoutePlanSpec, two: &RoutePlanSpec) -> bool {
    let hosts = |plan: &RoutePlanSpec| plan.hosts.iter().map(|host| host.host.clone()).collect::<Vec<_>>();
    one.source_created == two.source_created
        && one.certificates == two.certificates
        && one.passthrough == two.passthrough
        && one.options == two.options
        && one.groups == two.groups
        && one.default_action.is_some() == two.default_action.is_some()
        && hosts(one) == hosts(two)
}

/// What is wrong with a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The Secret.
    pub secret: String,
    /// What is wrong.
    pub reason: String,
    /// Whether an older one goes on being used.
    pub kept: bool,
}

/// What is wrong with the Secrets that routes name.
pub(crate) fn problems(shelves: &Shelves, now_s: i64) -> Vec<Problem> {
    let mut all = BTreeMap::new();
    for (secret, kept) in shelves.shown.iter() {
        let over = kept.good.as_ref().is_some_and(|good| good.until_s < now_s);
        let expired = over.then(|| "the certificate in tls.crt has expired".to_owned());
        if let Some(reason) = kept.wrong.clone().or(expired) {
            all.insert(secret, (reason, kept.good.is_some()));
        }
    }
    for (secret, kept) in shelves.authorities.iter() {
        if let Some(reason) = kept.wrong.clone() {
            all.insert(secret, (reason, kept.good.is_some()));
        }
    }
    all.into_iter()
        .map(|(secret, (reason, kept))| Problem { secret: secret.to_owned(), reason, kept })
        .collect()
}
