//! Cookies (RFC 7873) in the form that all servers of a zone can share (RFC 9018): proof that a client gets what we send.

use std::net::IpAddr;

use siphasher::sip::SipHasher24;

use crate::wire::edns::Cookie;

/// A cookie is taken until it is so old.
const AGE_MAX_S: u32 = 3600;
/// Clocks may differ by so much.
const AHEAD_MAX_S: u32 = 300;

/// Secrets: the first makes cookies, all of them check.
#[derive(Clone, Debug)]
pub(crate) struct Jar(Vec<SipHasher24>);

impl Jar {
    /// A jar with these secrets.
    pub(crate) fn new(secrets: &[[u8; 16]]) -> Self {
        Self(secrets.iter().map(SipHasher24::new_with_key).collect())
    }

    /// The cookie for a client, with its own before it. None without a secret.
    pub(crate) fn bake(&self, cookie: Cookie, client: IpAddr, now_s: u32) -> Option<[u8; 24]> {
        self.0.first().map(|secret| whole(secret, cookie.client, client, now_s))
    }

    /// Whether a client has returned a cookie of ours.
    pub(crate) fn knows(&self, cookie: Cookie, client: IpAddr, now_s: u32) -> bool {
        let Some(server) = cookie.server else { return false };
        let [1, 0, 0, 0, time @ ..] = server else { return false };
        let time_s = u32::from_be_bytes([time[0], time[1], time[2], time[3]]);
        // Serial arithmetic: the clock's 32 bits run over in 2106.
        let age = now_s.wrapping_sub(time_s);
        let fresh = age <= AGE_MAX_S || age.wrapping_neg() <= AHEAD_MAX_S;
        fresh && self.0.iter().any(|secret| whole(secret, cookie.client, client, time_s)[8..] == server)
    }
}

fn whole(secret: &SipHasher24, cookie: [u8; 8], client: IpAddr, time_s: u32) -> [u8; 24] {
    let mut input = [0; 32];
    input[..8].copy_from_slice(&cookie);
    input[8] = 1;
    input[12..16].copy_from_slice(&time_s.to_be_bytes());
    let length = match client {
        IpAddr::V4(ip) => {
            input[16..20].copy_from_slice(&ip.octets());
            20
        }
        IpAddr::V6(ip) => {
            input[16..32].copy_from_slice(&ip.octets());
            32
        }
    };
    let hash = secret.hash(&input[..length]);
    let mut out = [0; 24];
    out[..16].copy_from_slice(&input[..16]);
    out[16..].copy_from_slice(&hash.to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex<const N: usize>(text: &str) -> [u8; N] {
        let mut bytes = [0; N];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
        }
        bytes
    }

    /// The first vector of RFC 9018, appendix A.
    #[test]
    fn the_published_vector() {
        let jar = Jar::new(&[hex("e5e973e5a6b2a43f48e7dc849e37bfcf")]);
        let asked = Cookie { client: hex("2464c4abcf10c957"), server: None };
        let client: IpAddr = "198.51.100.100".parse().unwrap();
        let now = 1_559_731_985;
        let baked = jar.bake(asked, client, now).unwrap();
        assert_eq!(baked, hex("2464c4abcf10c957010000005cf79f111f8130c3eee29480"));
        let back = Cookie { server: Some(hex("010000005cf79f111f8130c3eee29480")), ..asked };
        let other: IpAddr = "198.51.100.101".parse().unwrap();
        for (client, now, want) in [
            (client, now, true),
            (client, now + 3600, true),
            (client, now + 3601, false),
            (client, now - 300, true),
            (client, now - 301, false),
            (other, now, false),
        ] {
            assert_eq!(jar.knows(back, client, now), want, "{client} {now}");
        }
        let next = Jar::new(&[[1; 16], hex("e5e973e5a6b2a43f48e7dc849e37bfcf")]);
        assert!(next.knows(back, client, now), "the secret before the present one is still good");
        assert!(!Jar::new(&[[1; 16]]).knows(back, client, now));
        assert!(!jar.knows(asked, client, now));
    }
}
