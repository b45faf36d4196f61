//! `Block`: consecutive addresses of one family, and the first of them that is free.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use landfall_api::addresses::{network, parse_cidr};
use landfall_api::landfall::IpFamily;

/// Addresses from a first to a last one, both of the same family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    first: u128,
    last: u128,
    v4: bool,
    /// The first and the last one mean the link itself, and are nobody's.
    edges: (bool, bool),
}

impl Block {
    /// Reads `192.0.2.0/28`, `2001:db8::/64`, or one address.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<IpAddr>() {
            let at = number(address);
            return Some(Self { first: at, last: at, v4: address.is_ipv4(), edges: (false, false) });
        }
        let (address, length) = parse_cidr(text)?;
        let v4 = address.is_ipv4();
        let bits: u32 = if v4 { 32 } else { 128 };
        let host_bits = bits.checked_sub(length.into())?;
        let first = number(network(address, length));
        let span = 1_u128.checked_shl(host_bits).map_or(u128::MAX, |size| size.saturating_sub(1));
        // The first one is the network, or stands for its routers; the last of IPv4 is everybody.
        let edges = (host_bits >= 2, v4 && host_bits >= 2);
        Some(Self { first, last: first.saturating_add(span), v4, edges })
    }

    /// Its family.
    pub fn family(&self) -> IpFamily {
        if self.v4 { IpFamily::IPv4 } else { IpFamily::IPv6 }
    }

    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.v4 && (self.first..=self.last).contains(&number(address))
    }

    /// Whether an address is in it and may be somebody's.
    pub fn usable(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.v4 && (self.low()..=self.high()).contains(&number(address))
    }

    /// Whether two have addresses in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.v4 == other.v4 && self.first <= other.last && other.first <= self.last
    }

    /// How many may be somebody's, as far as that can be counted.
    pub fn count(&self, excluded: &[Self]) -> i64 {
        let mut holes: Vec<(u128, u128)> = excluded
            .iter()
            .filter(|hole| self.overlaps(hole))
            .map(|hole| (hole.first.max(self.low()), hole.last.min(self.high())))
            .filter(|(first, last)| first <= last)
            .collect();
        holes.sort_unstable();
        let (mut count, mut at) = (0_u128, self.low());
        for (first, last) in holes {
            count = count.saturating_add(first.saturating_sub(at));
            at = at.max(last.saturating_add(1));
        }
        let rest = self.high().saturating_add(1).saturating_sub(at);
        i64::try_from(count.saturating_add(rest)).unwrap_or(i64::MAX)
    }

    /// The first address that is neither excluded nor taken.
    pub(super) fn first_free(&self, excluded: &[Self], taken: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let mut at = self.low();
        while at <= self.high() {
            let hole =
                excluded.iter().find(|hole| hole.v4 == self.v4 && (hole.first..=hole.last).contains(&at));
            let address = self.address(at);
            at = match hole {
                Some(hole) => hole.last.checked_add(1)?,
                None if taken(address) => at.checked_add(1)?,
                None => return Some(address),
            };
        }
        None
    }

    fn low(&self) -> u128 {
        self.first.saturating_add(self.edges.0.into())
    }

    fn high(&self) -> u128 {
        self.last.saturating_sub(self.edges.1.into())
    }

    fn address(&self, at: u128) -> IpAddr {
        match u32::try_from(at) {
            Ok(at) if self.v4 => Ipv4Addr::from(at).into(),
            Ok(_) | Err(_) => Ipv6Addr::from(at).into(),
        }
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}
