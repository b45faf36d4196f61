//! IP addresses and CIDR blocks: what Kubernetes accepts in fields, and its sentences when it does not.

use std::net::{IpAddr, Ipv4Addr};

use crate::field::{ErrorList, Path};

/// Reads an address the lenient way: leading zeros in IPv4 are allowed.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| parse_v4_with_zeros(text).map(IpAddr::V4))
}

/// Reads a block the lenient way: the address as written, and the length of its prefix.
pub fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address = parse_ip(address)?;
    let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    let length: u8 = length.trim_start_matches('0').parse().ok().or_else(|| {
        // All zeros: trimmed away above.
        length.bytes().all(|b| b == b'0').then_some(0)
    })?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (digits && length <= most).then_some((address, length))
}

/// The first address of a block.
pub fn network(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length.into())).unwrap_or(0);
            Ipv4Addr::from(u32::from(a) & mask).into()
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length.into())).unwrap_or(0);
            std::net::Ipv6Addr::from(u128::from(a) & mask).into()
        }
    }
}

/// An address in a field of long standing: strict about zeros and mapped addresses, not about the spelling.
/// Returns whether it is right.
pub fn validate_ip(text: &str, path: &Path<'_>, errors: &mut ErrorList) -> bool {
    let before = errors.len();
    match parse_ip(text) {
        None => {
            errors.invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
        }
        Some(_) if text.parse::<IpAddr>().is_err() => {
            errors.invalid(path, text, "must not have leading 0s");
        }
        Some(IpAddr::V6(a)) if a.to_ipv4_mapped().is_some() => {
            errors.invalid(path, text, "must not be an IPv4-mapped IPv6 address");
        }
        Some(_) => {}
    }
    errors.len() == before
}

/// An address in a newer field: also in its canonical spelling. Returns whether it is right.
pub fn validate_ip_canonical(text: &str, path: &Path<'_>, errors: &mut ErrorList) -> bool {
    if !validate_ip(text, path, errors) {
        return false;
    }
    let canonical = parse_ip(text).map(|ip| ip.to_string()).unwrap_or_default();
    if canonical != text {
        errors.invalid(path, text, format!("must be in canonical form ({canonical:?})"));
        return false;
    }
    true
}

/// A block in a field of long standing.
pub fn validate_cidr(text: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let Some((address, length)) = parse_cidr(text) else {
        let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        return errors.invalid(path, text, detail);
    };
    let (written, digits) = text.split_once('/').unwrap_or_default();
    let zeros = written.parse::<IpAddr>().is_err() || (digits.len() > 1 && digits.starts_with('0'));
    if zeros {
        errors.invalid(path, text, "must not have leading 0s in IP or prefix length");
    } else if matches!(address, IpAddr::V6(a) if a.to_ipv4_mapped().is_some()) {
        errors.invalid(path, text, "must not have an IPv4-mapped IPv6 address");
    } else if network(address, length) != address {
        errors.invalid(path, text, "must not have bits set beyond the prefix length");
    }
}

/// A warning about an address that is right but not written as it should be.
pub fn ip_warning(text: &str, path: &Path<'_>) -> Option<String> {
    let address = parse_ip(text)?;
    let mapped = matches!(address, IpAddr::V6(a) if a.to_ipv4_mapped().is_some());
    let canonical = address.to_canonical().to_string();
    if mapped || text.parse::<IpAddr>().is_err() {
        return Some(format!("{path}: non-standard IP address {text:?} is invalid: use {canonical:?}"));
    }
    (canonical != text).then(|| {
        format!("{path}: IPv6 address {text:?} should be in RFC 5952 canonical format ({canonical:?})")
    })
}

/// A warning about a block that is right but not written as it should be.
pub fn cidr_warning(text: &str, path: &Path<'_>) -> Option<String> {
    let (address, length) = parse_cidr(text)?;
    let canonical = format!("{address}/{length}");
    (address.is_ipv6() && canonical != text).then(|| {
        format!("{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({canonical:?})")
    })
}

/// Which addresses an endpoint may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointAddresses {
    /// Whether 127.0.0.0/8 and ::1 are allowed, as simulated members need it.
    pub allow_loopback: bool,
}

impl EndpointAddresses {
    /// Only addresses that another machine could reach, as Kubernetes has it.
    pub const REACHABLE: Self = Self { allow_loopback: false };

    /// An address that traffic can be sent to.
    pub fn validate(self, text: &str, path: &Path<'_>, errors: &mut ErrorList) {
        let Some(ip) = parse_ip(text) else {
            return errors.invalid(path, text, "must be a valid IP address");
        };
        let ip = ip.to_canonical();
        if ip.is_unspecified() {
            errors.invalid(path, text, format!("may not be unspecified ({text})"));
        }
        if ip.is_loopback() && !self.allow_loopback {
            errors.invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
        }
        if link_local(ip) {
            errors.invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
        }
        if link_local_multicast(ip) {
            let detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
            errors.invalid(path, text, detail);
        }
    }
}

fn link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.is_unicast_link_local(),
    }
}

fn link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(a) => matches!(a.octets(), [224, 0, 0, _]),
        IpAddr::V6(a) => matches!(a.octets(), [0xff, second, ..] if second & 0x0f == 0x02),
    }
}

fn parse_v4_with_zeros(text: &str) -> Option<Ipv4Addr> {
    let mut parts = text.split('.');
    let mut octets = [0_u8; 4];
    for octet in &mut octets {
        let part = parts.next().filter(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))?;
        let trimmed = part.trim_start_matches('0');
        *octet = if trimmed.is_empty() { 0 } else { trimmed.parse().ok()? };
    }
    parts.next().is_none().then(|| octets.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: impl Fn(&str, &Path<'_>, &mut ErrorList), rows: &[(&str, &str)]) {
        for (text, expected) in rows {
            let mut errors = ErrorList::new();
            rule(text, &Path::new("x"), &mut errors);
            let details: Vec<&str> = errors.iter().map(|e| e.detail.as_str()).collect();
            assert_eq!(details.join("; "), *expected, "{text}");
        }
    }

    #[test]
    fn addresses() {
        let ip = |text: &str, path: &Path<'_>, errors: &mut ErrorList| {
            validate_ip_canonical(text, path, errors);
        };
        check(
            ip,
            &[
                ("10.0.0.1", ""),
                ("2001:db8::1", ""),
                ("010.0.0.1", "must not have leading 0s"),
                ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
                ("2001:DB8::1", "must be in canonical form (\"2001:db8::1\")"),
                ("1.2.3", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
                ("", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
                ("256.0.0.1", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
            ],
        );
        let endpoint = |text: &str, path: &Path<'_>, errors: &mut ErrorList| {
            EndpointAddresses::REACHABLE.validate(text, path, errors);
        };
        check(
            endpoint,
            &[
                ("10.0.0.1", ""),
                ("127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
                ("169.254.1.1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
                ("224.0.0.1", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
                ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
                ("fe80::1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
            ],
        );
        check(|t, p, e| EndpointAddresses { allow_loopback: true }.validate(t, p, e), &[("127.0.0.1", "")]);
    }

    #[test]
    fn blocks() {
        check(
            validate_cidr,
            &[
                ("10.0.0.0/8", ""),
                ("0.0.0.0/0", ""),
                ("2001:db8::/32", ""),
                ("10.0.0.1/8", "must not have bits set beyond the prefix length"),
                ("10.0.0.0/08", "must not have leading 0s in IP or prefix length"),
                ("010.0.0.0/8", "must not have leading 0s in IP or prefix length"),
                ("::ffff:10.0.0.0/104", "must not have an IPv4-mapped IPv6 address"),
                ("10.0.0.0", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
                ("10.0.0.0/33", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
                ("10.0.0.0/", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
            ],
        );
    }
}
