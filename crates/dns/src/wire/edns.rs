//! Extensions of a question (RFC 6891): size, and of its options those that we answer to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{code, u16_at};

/// Option numbers.
pub(crate) mod option {
    pub(crate) const NSID: u16 = 3;
    pub(crate) const CLIENT_SUBNET: u16 = 8;
    pub(crate) const COOKIE: u16 = 10;
}

/// At most so many options are looked at.
const OPTIONS_MAX: usize = 32;

/// Extensions of a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edns {
    /// The largest packet that the client takes.
    pub(crate) size: u16,
    /// Whether it wants DNSSEC records: said back as it was said.
    pub(crate) dnssec: bool,
    /// Whether it wants to know who we are.
    pub(crate) nsid: bool,
    /// For whom it asks.
    pub(crate) subnet: Option<Subnet>,
    /// Its cookie, and perhaps ours.
    pub(crate) cookie: Option<Cookie>,
}

/// Whom a resolver asks for (RFC 7871).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subnet {
    /// The first address.
    pub(crate) address: IpAddr,
    /// How many bits of it count.
    pub(crate) source: u8,
}

/// A client's cookie, and the server cookie it returned (RFC 7873).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cookie {
    /// The client's.
    pub(crate) client: [u8; 8],
    /// Ours; only those of our length can be ours.
    pub(crate) server: Option<[u8; 16]>,
}

impl Edns {
    /// Reads an OPT record, whose fixed part begins at `fixed`.
    pub(crate) fn read(packet: &[u8], fixed: usize, data: &[u8]) -> (Self, Result<(), u16>) {
        let size = u16_at(packet, fixed + 2).unwrap_or(0);
        let version = packet.get(fixed + 5).copied().unwrap_or(0);
        let dnssec = packet.get(fixed + 6).is_some_and(|flags| flags & 0x80 != 0);
        let mut edns = Self { size, dnssec, ..Self::default() };
        let result = if version == 0 { edns.options(data) } else { Err(code::BAD_VERS) };
        (edns, result)
    }

    fn options(&mut self, mut data: &[u8]) -> Result<(), u16> {
        for _ in 0..OPTIONS_MAX {
            if data.is_empty() {
                return Ok(());
            }
            let number = u16_at(data, 0).ok_or(code::FORM_ERR)?;
            let length = usize::from(u16_at(data, 2).ok_or(code::FORM_ERR)?);
            let value = data.get(4..4 + length).ok_or(code::FORM_ERR)?;
            data = &data[4 + length..];
            match number {
                option::NSID => self.nsid = true,
                option::CLIENT_SUBNET if self.subnet.is_none() => self.subnet = Some(subnet(value)?),
                option::COOKIE if self.cookie.is_none() => self.cookie = Some(cookie(value)?),
                _ => {}
            }
        }
        if data.is_empty() { Ok(()) } else { Err(code::FORM_ERR) }
    }
}

/// As many bytes as the length says, no bit set beyond it, and no scope in a question.
fn subnet(value: &[u8]) -> Result<Subnet, u16> {
    let [family_high, family, source, scope, bytes @ ..] = value else { return Err(code::FORM_ERR) };
    let most = match (family_high, family) {
        (0, 1) => 32,
        (0, 2) => 128,
        _ => return Err(code::FORM_ERR),
    };
    if *source > most || *scope != 0 || bytes.len() != usize::from(*source).div_ceil(8) {
        return Err(code::FORM_ERR);
    }
    let mut whole = [0_u8; 16];
    whole[..bytes.len()].copy_from_slice(bytes);
    let address = match whole {
        [a, b, c, d, ..] if most == 32 => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        all => IpAddr::V6(Ipv6Addr::from(all)),
    };
    if landfall_api::addresses::network(address, *source) != address {
        return Err(code::FORM_ERR);
    }
    Ok(Subnet { address, source: *source })
}

fn cookie(value: &[u8]) -> Result<Cookie, u16> {
    let (client, server) = value.split_first_chunk().ok_or(code::FORM_ERR)?;
    if !server.is_empty() && !(8..=32).contains(&server.len()) {
        return Err(code::FORM_ERR);
    }
    Ok(Cookie { client: *client, server: server.try_into().ok() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_are_exact() {
        for (value, want) in [
            (&[0, 1, 24, 0, 192, 0, 2][..], Ok("192.0.2.0/24")),
            (&[0, 1, 0, 0], Ok("0.0.0.0/0")),
            (&[0, 2, 32, 0, 0x20, 1, 0x0d, 0xb8], Ok("2001:db8::/32")),
            (&[0, 1, 20, 0, 192, 0, 0x20], Ok("192.0.32.0/20")),
            (&[0, 1, 20, 0, 192, 0, 0x21], Err(1)),
            (&[0, 1, 24, 0, 192, 0], Err(1)),
            (&[0, 1, 24, 0, 192, 0, 2, 0], Err(1)),
            (&[0, 1, 33, 0, 192, 0, 2, 0, 0], Err(1)),
            (&[0, 1, 24, 24, 192, 0, 2], Err(1)),
            (&[0, 3, 0, 0], Err(1)),
            (&[0, 1, 24], Err(1)),
        ] {
            let got = subnet(value).map(|subnet| format!("{}/{}", subnet.address, subnet.source));
            assert_eq!(got, want.map(ToOwned::to_owned), "{value:?}");
        }
    }

    #[test]
    fn cookies_have_known_lengths() {
        for (length, want) in [
            (0, None),
            (7, None),
            (8, Some(false)),
            (9, None),
            (15, None),
            (16, Some(false)),
            (24, Some(true)),
            (40, Some(false)),
            (41, None),
        ] {
            let got = cookie(&vec![7; length]).ok().map(|cookie| cookie.server.is_some());
            assert_eq!(got, want, "{length}");
        }
    }
}
