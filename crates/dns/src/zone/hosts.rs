//! Names that services answer to besides their own: the hosts of Ingresses, wildcards among them.
//!
//! A host outside the federation's domain is a zone of its own, as it must be delegated to us to be asked here. Names that
//! stand between a host and its zone exist too, though nothing stands under them.

use super::table::Table;
use crate::wire::name::{NAME_MAX, Name, to_wire};

/// A name that is a host, a zone, or stands above one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    /// Services that claim it, by `svc.ns`, sorted: the first has it.
    pub(crate) claims: Vec<Box<[u8]>>,
    /// How many hosts make it a zone.
    pub(crate) zone: u32,
    /// How many hosts stand below it, in its zone.
    pub(crate) below: u32,
}

/// All hosts, by their names as they stand in packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts(Table<Host>);

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// A service has it, by `svc.ns`. `zone`: the label at which its zone begins, if it is one of these.
    Service { key: &'a [u8], zone: Option<usize> },
    /// There are names below it.
    Empty { zone: Option<usize> },
    /// It does not exist, but its zone is one of these.
    Missing { zone: usize },
    /// Nothing is known.
    Foreign,
}

impl Hosts {
    /// Adds or removes one service's claim to a host. `domain`: the federation's, as it stands in packets.
    pub(crate) fn claim(&mut self, host: &str, service: &[u8], domain: Option<&[u8]>, add: bool) {
        let Some(name) = to_wire(host).and_then(|wire| Name::read(&wire)) else { return };
        if name.len() == 0 {
            return;
        }
        self.edit(name.wire(), |node| {
            let at = node.claims.binary_search_by(|known| (**known).cmp(service));
            match (at, add) {
                (Err(at), true) => node.claims.insert(at, service.into()),
                (Ok(at), false) => drop(node.claims.remove(at)),
                _ => {}
            }
        });
        let count = |number: &mut u32| *number = if add { *number + 1 } else { number.saturating_sub(1) };
        let inside = domain.filter(|domain| name.wire().ends_with(domain));
        let zone = match inside {
            // The domain is a zone already; it has one more byte, the root.
            Some(domain) => (0..=name.len()).find(|at| name.from(*at).len() == domain.len()),
            None => Some(usize::from(name.label(0) == b"*")),
        };
        let Some(zone) = zone else { return };
        if inside.is_none() {
            self.edit(name.from(zone), |node| count(&mut node.zone));
        }
        for above in 1..zone.max(1) {
            self.edit(name.from(above), |node| count(&mut node.below));
        }
    }

    fn edit(&mut self, name: &[u8], with: impl FnOnce(&mut Host)) {
        let mut node = self.0.get(name).cloned().unwrap_or_default();
        with(&mut node);
        let keep = (node != Host::default()).then_some(node);
        self.0.change([(name.into(), keep)]);
    }

    /// What is known of a name; `top` is the label at which the federation's own zone begins, if it is in one.
    pub(crate) fn find(&self, name: &Name, top: Option<usize>) -> Found<'_> {
        if self.0.len() == 0 {
            return Found::Foreign;
        }
        let zone = |from: usize| {
            (from..name.len()).find(|at| self.0.get(name.from(*at)).is_some_and(|node| node.zone > 0))
        };
        if let Some(node) = self.0.get(name.wire()) {
            match node.claims.first() {
                Some(key) => return Found::Service { key, zone: zone(0) },
                None if node.below > 0 || node.zone > 0 => return Found::Empty { zone: zone(0) },
                None => {}
            }
        }
        for above in 1..name.len().min(top.unwrap_or(usize::MAX).saturating_add(1)) {
            if let Some(key) = self.wildcard(name.from(above)) {
                return Found::Service { key, zone: zone(above) };
            }
            // What exists hides wildcards further up.
            if self.0.get(name.from(above)).is_some() {
                break;
            }
        }
        zone(1).map_or(Found::Foreign, |zone| Found::Missing { zone })
    }

    /// All hosts, as text.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter(|(_, node)| !node.claims.is_empty()).filter_map(|(name, _)| {
            let name = Name::read(name)?;
            let labels: Vec<_> = (0..name.len()).map(|at| String::from_utf8_lossy(name.label(at))).collect();
            Some(labels.join("."))
        })
    }

    fn wildcard(&self, above: &[u8]) -> Option<&[u8]> {
        let mut room = [0_u8; NAME_MAX + 2];
        room[..2].copy_from_slice(b"\x01*");
        let name = room.get_mut(..above.len() + 2)?;
        name[2..].copy_from_slice(above);
        self.0.get(name)?.claims.first().map(|key| &**key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_zones_and_what_stands_between() {
        let domain = to_wire("example.com").unwrap();
        let mut hosts = Hosts::default();
        let claims = [
            ("shop.example.net", "b"),
            ("shop.example.net", "a"),
            ("*.apps.example.net", "w"),
            ("x.y.example.com", "c"),
            ("deep.shop.example.net", "d"),
        ];
        for (host, service) in claims {
            hosts.claim(host, service.as_bytes(), Some(&domain), true);
        }
        let check = |hosts: &Hosts, name: &str, top, want: &str| {
            let said = match hosts.find(&Name::parse(name).unwrap(), top) {
                Found::Service { key, zone } => format!("{} {zone:?}", String::from_utf8_lossy(key)),
                Found::Empty { zone } => format!("empty {zone:?}"),
                Found::Missing { zone } => format!("missing {zone}"),
                Found::Foreign => "foreign".to_owned(),
            };
            assert_eq!(said, want, "{name}");
        };
        check(&hosts, "shop.example.net", None, "a Some(0)");
        check(&hosts, "one.apps.example.net", None, "w Some(1)");
        check(&hosts, "two.one.apps.example.net", None, "w Some(2)");
        check(&hosts, "apps.example.net", None, "empty Some(0)");
        check(&hosts, "deep.shop.example.net", None, "d Some(0)");
        check(&hosts, "no.shop.example.net", None, "missing 1");
        check(&hosts, "example.net", None, "foreign");
        check(&hosts, "x.y.example.com", Some(2), "c None");
        check(&hosts, "y.example.com", Some(1), "empty None");
        check(&hosts, "z.example.com", Some(1), "foreign");
        hosts.claim("shop.example.net", b"a", Some(&domain), false);
        check(&hosts, "shop.example.net", None, "b Some(0)");
        for (host, service) in claims {
            hosts.claim(host, service.as_bytes(), Some(&domain), false);
        }
        assert!(hosts.0.len() <= 1, "nothing is left over but what was removed twice");
    }
}
