//! The one address that a MultiClusterIngress shows: it stays for as long as an edge is reached there.

use landfall_api::landfall::Address;

/// The address that was shown before, if it is still one of these; else the first.
pub fn lasting_address(before: Option<&str>, now: &[Address]) -> Option<String> {
    let mut all = now.iter().filter_map(|one| one.ip.as_deref().or(one.hostname.as_deref()));
    let kept = before.filter(|before| all.clone().any(|one| one == *before));
    kept.or_else(|| all.next()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stays_while_it_leads_to_an_edge() {
        let ip = |ip: &str| Address { ip: Some(ip.to_owned()), hostname: None };
        let name = |name: &str| Address { ip: None, hostname: Some(name.to_owned()) };
        for (before, now, want) in [
            (None, vec![], None),
            (None, vec![ip("192.0.2.1"), ip("192.0.2.2")], Some("192.0.2.1")),
            (Some("192.0.2.2"), vec![ip("192.0.2.1"), ip("192.0.2.2")], Some("192.0.2.2")),
            (Some("edge.example"), vec![ip("192.0.2.1"), name("edge.example")], Some("edge.example")),
            (Some("192.0.2.9"), vec![ip("192.0.2.1")], Some("192.0.2.1")),
            (Some("192.0.2.9"), vec![], None),
        ] {
            assert_eq!(lasting_address(before, &now).as_deref(), want, "{before:?} {now:?}");
        }
    }
}
