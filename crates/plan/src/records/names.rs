//! Host names: which are ours, which service one means, and how much of the federation it asks about.
//!
//! | name | means |
//! |---|---|
//! | `svc.ns.federation.domain` | the service, wherever it is best (seed 002) |
//! | `svc.ns.federation.svc.domain` | the same (Federation v1) |
//! | `svc.ns.federation.svc.region.domain` | its shards in a region; where none is well, the name above |
//! | `svc.ns.federation.svc.zone.region.domain` | its shards in a zone; where none is well, the name above |
//! | `svc.ns.svc.clusterset.local` | the service (Multi-Cluster Services API) |
//! | `cluster.NAME` | its shard in one member, NAME being any of the above |
//! | `pod.cluster.NAME` | one pod of a headless service |
//! | `_port._protocol.NAME` | SRV records |
//! | `edge.edges.domain` | an edge: the zone's name servers |

use super::places::{Places, is_label};

/// Labels of a host name in lower case, the leftmost first, without the root.
pub type Labels<'a> = [&'a [u8]];

const CLUSTER_SET: [&[u8]; 2] = [b"clusterset", b"local"];
const SVC: &[u8] = b"svc";
/// The label above edges' names.
pub const EDGES: &str = "edges";

/// The names that are ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The federation's name, in lower case; empty when it cannot be a label.
    pub federation: String,
    /// The labels of its domain, in lower case; none when there is no domain.
    pub domain: Vec<String>,
}

/// One of the two zones that follow from a federation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// The federation's domain.
    Domain,
    /// `clusterset.local`.
    ClusterSet,
}

/// How much of the federation a name asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of it.
    All,
    /// A region.
    Region(u16),
    /// A zone.
    Zone(u16),
}

/// What a name means. Positions count labels from the left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// The zone's own name.
    Apex,
    /// Nothing by itself, but there may be names below it.
    Empty,
    /// A namespace, if it has services: nothing by itself.
    Namespace {
        /// Where its label is.
        at: usize,
    },
    /// A service, if there is one, or something below it.
    Service {
        /// Where the service's label is; the namespace's is the next.
        at: usize,
        /// How much of the federation is meant.
        scope: Scope,
    },
    /// An edge, if there is one.
    Edge {
        /// Where its label is.
        at: usize,
    },
    /// No form of ours; it may still be a host of its own.
    Nothing,
}

/// Where a name belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Located {
    /// In none of the two zones.
    Foreign,
    /// In a zone of ours.
    In {
        /// The zone.
        zone: Zone,
        /// Where its own name begins.
        zone_at: usize,
        /// What the name means there.
        node: Node,
    },
}

impl Names {
    /// The names of a federation.
    pub fn new(federation: &str, domain: Option<&str>) -> Self {
        let lower = |text: &str| text.to_ascii_lowercase();
        let domain = domain.unwrap_or_default().trim_matches('.');
        let fits = !domain.is_empty() && domain.len() < 200 && domain.split('.').all(is_label);
        let domain = if fits { domain.split('.').map(lower).collect() } else { Vec::new() };
        let federation = if is_label(federation) { lower(federation) } else { String::new() };
        Self { federation, domain }
    }

    /// The labels of a zone's own name.
    pub fn zone(&self, zone: Zone) -> Vec<&str> {
        match zone {
            Zone::Domain => self.domain.iter().map(String::as_str).collect(),
            Zone::ClusterSet => vec!["clusterset", "local"],
        }
    }

    /// The zones there are.
    pub fn zones(&self) -> &'static [Zone] {
        if self.domain.is_empty() { &[Zone::ClusterSet] } else { &[Zone::Domain, Zone::ClusterSet] }
    }

    /// The zone that edges have their names in.
    pub fn edges_zone(&self) -> Zone {
        self.zones().first().copied().unwrap_or(Zone::ClusterSet)
    }

    /// The name that a federated service's status shows.
    pub fn service(&self, namespace: &str, service: &str) -> Option<String> {
        let fit = is_label(&self.federation) && !self.domain.is_empty();
        fit.then(|| format!("{service}.{namespace}.{}.{}", self.federation, self.domain.join(".")))
    }

    /// All names of a service, with what each asks about.
    pub fn of_service(&self, places: &Places, namespace: &str, service: &str) -> Vec<(String, Scope)> {
        let mut all = Vec::new();
        if let Some(name) = self.service(namespace, service) {
            let domain = self.domain.join(".");
            let stem = format!("{service}.{namespace}.{}.svc", self.federation);
            all.push((name, Scope::All));
            all.push((format!("{stem}.{domain}"), Scope::All));
            for (region, number) in places.regions.iter().zip(0..) {
                all.push((format!("{stem}.{region}.{domain}"), Scope::Region(number)));
            }
            for (zone, number) in places.zones.iter().zip(0..) {
                let region = places.regions.get(usize::from(zone.region)).map_or("", String::as_str);
                all.push((format!("{stem}.{}.{region}.{domain}", zone.name), Scope::Zone(number)));
            }
        }
        all.push((format!("{service}.{namespace}.svc.clusterset.local"), Scope::All));
        all
    }

    /// What a name means.
    pub fn locate(&self, places: &Places, labels: &Labels<'_>) -> Located {
        if let Some(inner) = labels.strip_suffix(&CLUSTER_SET) {
            let node = self.in_cluster_set(inner);
            return Located::In { zone: Zone::ClusterSet, zone_at: inner.len(), node };
        }
        match labels.len().checked_sub(self.domain.len()) {
            Some(at) if !self.domain.is_empty() && same(&self.domain, &labels[at..]) => {
                let node = self.in_domain(places, &labels[..at]);
                Located::In { zone: Zone::Domain, zone_at: at, node }
            }
            _ => Located::Foreign,
        }
    }

    fn in_cluster_set(&self, inner: &Labels<'_>) -> Node {
        match inner {
            [] => Node::Apex,
            [rest @ .., top] if *top == SVC => below_stem(rest, Scope::All),
            [rest @ .., top] if self.domain.is_empty() && *top == EDGES.as_bytes() => below_edges(rest),
            _ => Node::Nothing,
        }
    }

    /// Read from the right: what stands next to the domain decides the form.
    fn in_domain(&self, places: &Places, inner: &Labels<'_>) -> Node {
        let federation = self.federation.as_bytes();
        match inner {
            [] => return Node::Apex,
            // A federation may be called `svc`: the longer form is tried first.
            [rest @ .., fed, svc] if *svc == SVC && *fed == federation => {
                return below_stem(rest, Scope::All);
            }
            [rest @ .., fed] if *fed == federation => return below_stem(rest, Scope::All),
            [svc] if *svc == SVC => return Node::Empty,
            [rest @ .., top] if *top == EDGES.as_bytes() => return below_edges(rest),
            _ => {}
        }
        let Some((top, rest)) = inner.split_last() else { return Node::Nothing };
        let Some(region) = places.region(top) else { return Node::Nothing };
        match rest {
            [] => Node::Empty,
            [svc] if *svc == SVC => Node::Empty,
            [rest @ .., fed, svc] if *svc == SVC && *fed == federation => {
                below_stem(rest, Scope::Region(region))
            }
            [rest @ .., zone] => match (places.zone(zone, region), rest) {
                (Some(_), []) => Node::Empty,
                (Some(_), [svc]) if *svc == SVC => Node::Empty,
                (Some(zone), [rest @ .., fed, svc]) if *svc == SVC && *fed == federation => {
                    below_stem(rest, Scope::Zone(zone))
                }
                _ => Node::Nothing,
            },
        }
    }
}

/// What stands left of all that every service's name has in common.
fn below_stem(rest: &Labels<'_>, scope: Scope) -> Node {
    match rest.len() {
        0 => Node::Empty,
        1 => Node::Namespace { at: 0 },
        n => Node::Service { at: n - 2, scope },
    }
}

fn below_edges(rest: &Labels<'_>) -> Node {
    match rest.len() {
        0 => Node::Empty,
        1 => Node::Edge { at: 0 },
        _ => Node::Nothing,
    }
}

fn same(domain: &[String], labels: &Labels<'_>) -> bool {
    domain.len() == labels.len() && domain.iter().zip(labels).all(|(ours, asked)| ours.as_bytes() == *asked)
}

#[cfg(test)]
mod tests {
    use landfall_api::landfall::PlanMember;

    use super::*;

    fn places() -> Places {
        let member = |name: &str, region: &str, zone: &str| PlanMember {
            name: name.into(),
            region: Some(region.into()),
            zones: vec![zone.into()],
            ..PlanMember::default()
        };
        Places::new(&[member("foo", "foo-region", "foo-zone"), member("bar", "bar-region", "bar-zone")], None)
    }

    fn node(names: &Names, name: &str) -> Located {
        let labels: Vec<&[u8]> = name.split('.').filter(|l| !l.is_empty()).map(str::as_bytes).collect();
        names.locate(&places(), &labels)
    }

    #[test]
    fn forms_are_understood_from_the_right() {
        let names = Names::new("fed", Some("Example.COM."));
        let service = |at, scope| Node::Service { at, scope };
        let (bar, bar_zone) = (Scope::Region(0), Scope::Zone(0));
        for (name, want) in [
            ("example.com", Node::Apex),
            ("fed.example.com", Node::Empty),
            ("ns.fed.example.com", Node::Namespace { at: 0 }),
            ("web.ns.fed.example.com", service(0, Scope::All)),
            ("_http._tcp.web.ns.fed.example.com", service(2, Scope::All)),
            ("svc.example.com", Node::Empty),
            ("fed.svc.example.com", Node::Empty),
            ("web.ns.fed.svc.example.com", service(0, Scope::All)),
            ("bar-region.example.com", Node::Empty),
            ("svc.bar-region.example.com", Node::Empty),
            ("fed.svc.bar-region.example.com", Node::Empty),
            ("ns.fed.svc.bar-region.example.com", Node::Namespace { at: 0 }),
            ("web.ns.fed.svc.bar-region.example.com", service(0, bar)),
            ("bar-zone.bar-region.example.com", Node::Empty),
            ("svc.bar-zone.bar-region.example.com", Node::Empty),
            ("x.web.ns.fed.svc.bar-zone.bar-region.example.com", service(1, bar_zone)),
            ("web.ns.fed.svc.foo-zone.bar-region.example.com", Node::Nothing),
            ("web.ns.other.svc.bar-region.example.com", Node::Nothing),
            ("shop.example.com", Node::Nothing),
            ("edges.example.com", Node::Empty),
            ("e-1.edges.example.com", Node::Edge { at: 0 }),
            ("clusterset.local", Node::Apex),
            ("svc.clusterset.local", Node::Empty),
            ("ns.svc.clusterset.local", Node::Namespace { at: 0 }),
            ("web.ns.svc.clusterset.local", service(0, Scope::All)),
            ("pod.clusterset.local", Node::Nothing),
        ] {
            let Located::In { node, .. } = self::node(&names, name) else { panic!("{name} is foreign") };
            assert_eq!(node, want, "{name}");
        }
        for name in ["", "com", "example.org", "xexample.com", "local"] {
            assert_eq!(node(&names, name), Located::Foreign, "{name}");
        }
    }

    #[test]
    fn a_federation_may_be_called_svc() {
        let names = Names::new("svc", Some("example.com"));
        for (name, at) in [("web.ns.svc.example.com", 0), ("web.ns.svc.svc.example.com", 0)] {
            let Located::In { node, .. } = node(&names, name) else { panic!("{name} is foreign") };
            assert_eq!(node, Node::Service { at, scope: Scope::All }, "{name}");
        }
    }

    #[test]
    fn every_name_of_a_service_is_located_there() {
        let names = Names::new("fed", Some("example.com"));
        let all = names.of_service(&places(), "ns", "web");
        assert_eq!(all.len(), 7);
        for (name, scope) in all {
            let Located::In { node, .. } = node(&names, &name) else { panic!("{name} is foreign") };
            assert_eq!(node, Node::Service { at: 0, scope }, "{name}");
        }
        let without = Names::new("fed", None);
        assert_eq!(without.of_service(&places(), "ns", "web").len(), 1);
        assert_eq!(without.service("ns", "web"), None);
        assert_eq!(node(&without, "web.ns.fed"), Located::Foreign);
    }
}
