//! Where an edge listens. `:80` is every address, those of IPv6 too where the machine has any: what clients come to may be of either.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

/// What can be typed: `:8080`, `127.0.0.1:8080` or `[::1]:8080`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// Every address, at this port.
    Everywhere(u16),
    /// One address, or every one of its family.
    At(SocketAddr),
}

impl Entrance {
    /// The addresses to listen on, each for its own family; of IPv4 first.
    pub(crate) fn addresses(self) -> Vec<SocketAddr> {
        match self {
            Self::At(at) => vec![at],
            Self::Everywhere(port) => {
                let (four, six) =
                    ((Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into());
                if has_ipv6() { vec![four, six] } else { vec![four] }
            }
        }
    }

    /// The one address at which both families come in, where nobody says that it is for IPv6 alone.
    pub(crate) fn widest(self) -> Option<SocketAddr> {
        self.addresses().pop()
    }
}

impl FromStr for Entrance {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let everywhere = text.strip_prefix(':').and_then(|port| port.parse().ok()).map(Self::Everywhere);
        let found = everywhere.or_else(|| text.parse().ok().map(Self::At));
        found.ok_or("expected an address and a port, such as :8080, 127.0.0.1:8080 or [::1]:8080")
    }
}

fn has_ipv6() -> bool {
    UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_of_both_families_where_there_are_both() {
        let typed = |text: &str| {
            text.parse::<Entrance>().map(|entrance| {
                entrance.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            })
        };
        let both = if has_ipv6() { "0.0.0.0:80 [::]:80" } else { "0.0.0.0:80" };
        assert_eq!(typed(":80").as_deref(), Ok(both));
        for one in ["0.0.0.0:80", "[::]:80", "127.0.0.1:8080", "[2001:db8::1]:443"] {
            assert_eq!(typed(one).as_deref(), Ok(one));
        }
        for wrong in ["", ":", "80", "host:80", ":65536", "::1:80:"] {
            assert!(typed(wrong).is_err(), "{wrong}");
        }
    }
}
