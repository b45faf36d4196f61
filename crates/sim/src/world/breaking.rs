//! Breaks and mends a running world: finds whom a fault names, changes their gates, and says what was done.

use futures::future::join_all;

use super::config::HUB;
use super::fault::{BadFault, Fault};
use super::{Site, World};
use crate::gate::{Faults, Gate, Origin};

/// Whom a fault can name.
#[derive(Clone, Copy)]
enum Party<'a> {
    /// The hub: only what lies between it and clusters can be broken here.
    Hub,
    /// A cluster.
    Site(&'a Site),
}

impl World {
    /// Breaks or mends something; says what was done. A fault that cannot be changes nothing.
    pub async fn break_or_mend(&self, fault: &Fault) -> Result<String, BadFault> {
        let _one_at_a_time = self.breaking.lock().await;
        let parties = self.named(fault)?;
        let sites: Vec<&Site> = parties.iter().filter_map(|party| party.site()).collect();
        let pods = fault.pods()?;
        match fault {
            Fault::Kill { .. } => each(&sites, |faults, _| faults.dead = true),
            Fault::ApiDown { .. } => each(&sites, |faults, _| faults.api_down = true),
            Fault::LbDown { .. } => each(&sites, |faults, site| {
                faults.addresses_lost = site.block().load_balancers().iter().collect();
            }),
            Fault::NodeDown { cluster, node } => {
                self.node(cluster, node)?;
                each(&sites, |faults, _| {
                    faults.nodes_lost.insert(node.clone());
                });
            }
            Fault::Cut { .. } => self.cut(&parties)?,
            Fault::Slow { .. } | Fault::Overload { .. } | Fault::Crash { .. } => {
                each(&sites, |faults, _| faults.pods.splice(0..0, pods.clone()).for_each(drop));
            }
            Fault::Heal { .. } => self.heal(&parties),
        }
        let followed = join_all(self.sites.iter().map(Site::follow_gate)).await;
        followed.into_iter().collect::<Result<(), BadFault>>()?;
        Ok(said(fault, &parties))
    }

    fn find(&self, name: &str) -> Result<&Site, BadFault> {
        let found = self.sites.iter().find(|site| site.config.name == name);
        found.ok_or_else(|| BadFault::Cluster { name: name.into(), known: self.known() })
    }

    fn known(&self) -> String {
        self.sites.iter().map(|site| site.config.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Whom a fault names; all clusters for a heal without names.
    fn named(&self, fault: &Fault) -> Result<Vec<Party<'_>>, BadFault> {
        let hub_too = matches!(fault, Fault::Cut { .. } | Fault::Heal { .. });
        let party = |name: &String| match name.as_str() {
            HUB if hub_too => Ok(Party::Hub),
            name => self.find(name).map(Party::Site),
        };
        match (fault.clusters(), fault) {
            ([], Fault::Heal { .. }) => Ok(self.sites.iter().map(Party::Site).collect()),
            ([], _) => Err(BadFault::Nothing(self.known())),
            (names, _) => names.iter().map(party).collect(),
        }
    }

    fn node(&self, cluster: &str, node: &str) -> Result<(), BadFault> {
        let names: Vec<&str> = self.find(cluster)?.member.nodes().iter().map(|n| n.name.as_str()).collect();
        if names.contains(&node) {
            return Ok(());
        }
        Err(BadFault::Node { cluster: cluster.into(), name: node.into(), known: names.join(", ") })
    }

    /// The first and each of the others; everybody else when it is named alone.
    fn cut(&self, named: &[Party<'_>]) -> Result<(), BadFault> {
        let Some((first, others)) = named.split_first() else { return Ok(()) };
        if others.iter().any(|other| other.origin() == first.origin()) {
            return Err(BadFault::Itself(first.name().into()));
        }
        let everybody: Vec<Party<'_>> =
            std::iter::once(Party::Hub).chain(self.sites.iter().map(Party::Site)).collect();
        let others = if others.is_empty() { &everybody[..] } else { others };
        for other in others.iter().filter(|other| other.origin() != first.origin()) {
            for (here, there) in [(first, other), (other, first)] {
                if let Some(gate) = here.gate() {
                    gate.change(|faults| {
                        faults.cut.insert(there.origin());
                    });
                }
            }
        }
        Ok(())
    }

    fn heal(&self, parties: &[Party<'_>]) {
        for party in parties {
            if let Some(gate) = party.gate() {
                gate.heal();
            }
            // A cut has two sides.
            for other in &self.sites {
                other.gate.change(|faults| {
                    faults.cut.remove(&party.origin());
                });
            }
        }
    }
}

impl<'a> Party<'a> {
    const fn site(self) -> Option<&'a Site> {
        match self {
            Self::Hub => None,
            Self::Site(site) => Some(site),
        }
    }

    fn name(self) -> &'a str {
        self.site().map_or(HUB, |site| &site.config.name)
    }

    fn gate(self) -> Option<&'a Gate> {
        self.site().map(Site::gate)
    }

    fn origin(self) -> Origin {
        self.site().map_or(Origin::Hub, |site| Origin::Member(site.block()))
    }
}

fn each(sites: &[&Site], change: impl Fn(&mut Faults, &Site)) {
    for site in sites {
        site.gate.change(|faults| change(faults, site));
    }
}

/// What was done, for people.
fn said(fault: &Fault, parties: &[Party<'_>]) -> String {
    let names: Vec<&str> = parties.iter().map(|party| party.name()).collect();
    let (first, others) = names.split_first().map_or(("", &[][..]), |(first, others)| (*first, others));
    let (names, others) = (names.join(", "), others.join(", "));
    match fault {
        Fault::Kill { .. } => format!("{names}: dead"),
        Fault::Cut { .. } if first == HUB && others.is_empty() => "hub: cut off from all clusters".into(),
        Fault::Cut { .. } if others.is_empty() => {
            format!("{first}: cut off from all others and from the hub")
        }
        Fault::Cut { .. } => format!("{first}: cut off from {others}"),
        Fault::ApiDown { .. } => format!("{names}: the API is down; pods go on"),
        Fault::NodeDown { node, .. } => format!("{names}: node {node} is lost"),
        Fault::LbDown { .. } => format!("{names}: load-balancer addresses do not answer"),
        Fault::Slow { delay_ms, .. } => format!("{names}: pods answer {delay_ms} ms later"),
        Fault::Overload { requests_max, .. } => {
            format!("{names}: pods answer 503 to more than {requests_max} requests at once")
        }
        Fault::Crash { .. } => format!("{names}: containers crash"),
        Fault::Heal { .. } => format!("{names}: healed"),
    }
}
