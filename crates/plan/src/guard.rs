//! Addresses that no user may make anybody speak to: a machine's own matters, and its provider's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is link-local, a provider's metadata, or none at all. Loopback is not told of here: a playground lives
/// on it.
pub fn is_private_matter(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => v4(ip),
        IpAddr::V6(ip) => v6(ip),
    }
}

fn v4(ip: Ipv4Addr) -> bool {
    // 100.100.100.200 and 192.0.0.192 are the metadata of two providers.
    ip.is_link_local()
        || ip.is_unspecified()
        || ip.is_broadcast()
        || ip.is_multicast()
        || [[100, 100, 100, 200], [192, 0, 0, 192]].contains(&ip.octets())
}

fn v6(ip: Ipv6Addr) -> bool {
    // fd00:ec2::254 is the metadata of a provider; 64:ff9b::/96 and 2002::/16 lead to IPv4 addresses.
    let embedded = match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            let [a, b] = high.to_be_bytes();
            let [c, d] = low.to_be_bytes();
            v4(Ipv4Addr::new(a, b, c, d))
        }
        _ => false,
    };
    embedded
        || ip.is_unicast_link_local()
        || ip.is_unspecified()
        || ip.is_multicast()
        || ip.segments() == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_nobodys_backend_however_it_is_spelled() {
        for (ip, want) in [
            ("169.254.169.254", true),
            ("::ffff:169.254.169.254", true),
            ("64:ff9b::a9fe:a9fe", true),
            ("2002:a9fe:a9fe::1", true),
            ("fe80::1", true),
            ("fd00:ec2::254", true),
            ("0.0.0.0", true),
            ("::", true),
            ("224.0.0.1", true),
            ("10.0.0.1", false),
            ("127.0.0.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_private_matter(ip.parse().unwrap()), want, "{ip}");
        }
    }
}
