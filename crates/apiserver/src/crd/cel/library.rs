//! Times, quantities, addresses, URLs and formatted texts in CEL.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use landfall_api::names;

use super::eval::{Budget, Result, error};
use super::functions::shown;
use super::value::Val;
use crate::crd::check::go_float;
use crate::crd::formats;

const SECOND: i64 = 1_000_000_000;

/// Accessors of a point in time, in UTC or in the zone named.
pub fn time<'a>(name: &str, at: i128, args: &[Val<'a>]) -> Option<Result<'a>> {
    let zone = match args {
        [] => jiff::tz::TimeZone::UTC,
        [Val::Text(zone)] => match jiff::tz::TimeZone::get(zone) {
            Ok(zone) => zone,
            Err(_) => return Some(error(format!("unknown time zone {zone}"))),
        },
        _ => return None,
    };
    let Ok(instant) = jiff::Timestamp::from_nanosecond(at) else { return Some(error("timestamp overflow")) };
    let t = instant.to_zoned(zone);
    let value = match name {
        "getFullYear" => i64::from(t.year()),
        "getMonth" => i64::from(t.month()) - 1,
        "getDate" => i64::from(t.day()),
        "getDayOfMonth" => i64::from(t.day()) - 1,
        "getDayOfWeek" => i64::from(t.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => i64::from(t.day_of_year()) - 1,
        "getHours" => i64::from(t.hour()),
        "getMinutes" => i64::from(t.minute()),
        "getSeconds" => i64::from(t.second()),
        "getMilliseconds" => i64::from(t.millisecond()),
        _ => return None,
    };
    Some(Ok(Val::Int(value)))
}

/// Accessors of a span of time.
pub fn span<'a>(name: &str, span: i64, args: &[Val<'a>]) -> Option<Result<'a>> {
    if !args.is_empty() {
        return None;
    }
    let value = match name {
        "getHours" => span / (3600 * SECOND),
        "getMinutes" => span / (60 * SECOND),
        "getSeconds" => span / SECOND,
        "getMilliseconds" => span / 1_000_000 % 1000,
        _ => return None,
    };
    Some(Ok(Val::Int(value)))
}

/// Sums and differences of times.
pub fn arithmetic<'a>(name: &str, a: &Val<'a>, b: &Val<'a>) -> Result<'a> {
    let made = match (name, a, b) {
        ("_+_", Val::Duration(a), Val::Duration(b)) => a.checked_add(*b).map(Val::Duration),
        ("_-_", Val::Duration(a), Val::Duration(b)) => a.checked_sub(*b).map(Val::Duration),
        ("_+_", Val::Timestamp(t), Val::Duration(d)) | ("_+_", Val::Duration(d), Val::Timestamp(t)) => {
            t.checked_add(i128::from(*d)).map(Val::Timestamp)
        }
        ("_-_", Val::Timestamp(t), Val::Duration(d)) => t.checked_sub(i128::from(*d)).map(Val::Timestamp),
        ("_-_", Val::Timestamp(a), Val::Timestamp(b)) => {
            a.checked_sub(*b).and_then(|d| i64::try_from(d).ok()).map(Val::Duration)
        }
        _ => return error("no such overload"),
    };
    made.map_or_else(|| error("duration overflow"), Ok)
}

/// Functions on quantities, addresses and URLs.
pub fn call<'a>(name: &str, args: &[Val<'a>]) -> Option<Result<'a>> {
    let plain = quantity(name, args).or_else(|| address(name, args));
    plain.or_else(|| url(name, args)).or_else(|| named_format(name, args))
}

/// Says what is wrong with a text.
type Judge = fn(&str) -> Vec<String>;

/// The judges by the names of their formats.
const FORMATS: [(&str, Judge); 13] = [
    ("dns1123Label", names::dns1123_label),
    ("dns1123Subdomain", names::dns1123_subdomain),
    ("dns1035Label", names::dns1035_label),
    ("qualifiedName", names::qualified_name),
    ("dns1123LabelPrefix", |text| names::name_is_label(text, true)),
    ("dns1123SubdomainPrefix", |text| names::name_is_subdomain(text, true)),
    ("dns1035LabelPrefix", |text| names::name_is_dns1035(text, true)),
    ("labelValue", names::label_value),
    ("uri", |text| unless(formats::matches("uri", text), "invalid URI")),
    ("uuid", |text| unless(formats::matches("uuid", text), "does not match the UUID format")),
    ("byte", |text| unless(formats::matches("byte", text), "invalid base64")),
    ("date", |text| unless(formats::matches("date", text), "invalid date")),
    ("datetime", |text| unless(formats::matches("datetime", text), "invalid datetime")),
];

fn unless(fine: bool, sentence: &str) -> Vec<String> {
    if fine { Vec::new() } else { vec![sentence.to_owned()] }
}

fn named_format<'a>(name: &str, args: &[Val<'a>]) -> Option<Result<'a>> {
    let known = |name: &str| FORMATS.iter().find(|(known, _)| *known == name);
    Some(match (name, args) {
        ("format.named", [Val::Text(name)]) => {
            Ok(Val::Optional(known(name).map(|_| Arc::new(Val::Format(name.clone())))))
        }
        ("validate", [Val::Format(name), Val::Text(text)]) => {
            let wrong: Vec<Val<'a>> = known(name)?.1(text).iter().map(|why| Val::text(why)).collect();
            Ok(Val::Optional((!wrong.is_empty()).then(|| Arc::new(Val::list(wrong)))))
        }
        (name, []) => Ok(Val::Format(known(name.strip_prefix("format.")?)?.0.into())),
        _ => return None,
    })
}

fn quantity<'a>(name: &str, args: &[Val<'a>]) -> Option<Result<'a>> {
    Some(match (name, args) {
        ("isQuantity", [Val::Text(text)]) => Ok(Val::Bool(nano(text).is_some())),
        ("quantity", [Val::Text(text)]) => nano(text).map_or_else(
            || error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
            |n| Ok(Val::Quantity(n)),
        ),
        ("sign", [Val::Quantity(n)]) => Ok(Val::Int(i64::try_from(n.signum()).unwrap_or(0))),
        ("isInteger", [Val::Quantity(n)]) => Ok(Val::Bool(n % 1_000_000_000 == 0)),
        ("asInteger", [Val::Quantity(n)]) => match i64::try_from(n / 1_000_000_000) {
            Ok(value) if n % 1_000_000_000 == 0 => Ok(Val::Int(value)),
            _ => error("cannot convert value to integer"),
        },
        ("asApproximateFloat", [Val::Quantity(n)]) => Ok(Val::Double(*n as f64 / 1e9)),
        ("isLessThan", [Val::Quantity(a), Val::Quantity(b)]) => Ok(Val::Bool(a < b)),
        ("isGreaterThan", [Val::Quantity(a), Val::Quantity(b)]) => Ok(Val::Bool(a > b)),
        ("compareTo", [Val::Quantity(a), Val::Quantity(b)]) => Ok(Val::Int(a.cmp(b) as i64)),
        ("add", [Val::Quantity(a), b]) => sum(*a, b, 1),
        ("sub", [Val::Quantity(a), b]) => sum(*a, b, -1),
        _ => return None,
    })
}

fn sum<'a>(a: i128, b: &Val<'a>, sign: i128) -> Result<'a> {
    let b = match b {
        Val::Quantity(b) => Some(*b),
        Val::Int(b) => i128::from(*b).checked_mul(1_000_000_000),
        _ => None,
    };
    let made = b.and_then(|b| b.checked_mul(sign)).and_then(|b| a.checked_add(b));
    made.map_or_else(|| error("no such overload"), |n| Ok(Val::Quantity(n)))
}

/// A quantity in units of 10⁻⁹, rounded up as Kubernetes does.
fn nano(text: &str) -> Option<i128> {
    const SUFFIXES: [(&str, i32, i32); 16] = [
        ("Ki", 2, 10),
        ("Mi", 2, 20),
        ("Gi", 2, 30),
        ("Ti", 2, 40),
        ("Pi", 2, 50),
        ("Ei", 2, 60),
        ("n", 10, -9),
        ("u", 10, -6),
        ("m", 10, -3),
        ("", 10, 0),
        ("k", 10, 3),
        ("M", 10, 6),
        ("G", 10, 9),
        ("T", 10, 12),
        ("P", 10, 15),
        ("E", 10, 18),
    ];
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + part.len() == 0 || whole.len() + part.len() > 25 || part.contains('.') {
        return None;
    }
    let digits: i128 = format!("{whole}{part}").parse().ok()?;
    let places = i32::try_from(part.len()).ok()?;
    let exponent = suffix.strip_prefix(['e', 'E']).filter(|e| !e.is_empty()).map(str::parse::<i32>);
    let (base, power) = match (SUFFIXES.iter().find(|(s, ..)| *s == suffix), exponent) {
        (Some((_, base, power)), _) => (*base, *power),
        (None, Some(Ok(power))) if power.abs() <= 28 => (10, power),
        _ => return None,
    };
    let mut value = digits;
    let mut ten = 9 - places;
    if base == 2 {
        value = value.checked_mul(1_i128.checked_shl(u32::try_from(power).ok()?)?)?;
    } else {
        ten += power;
    }
    let scale = 10_i128.checked_pow(ten.unsigned_abs().min(38))?;
    let value = if ten >= 0 {
        value.checked_mul(scale)?
    } else {
        value.div_euclid(scale) + i128::from(value % scale != 0)
    };
    value.checked_mul(sign)
}

fn address<'a>(name: &str, args: &[Val<'a>]) -> Option<Result<'a>> {
    Some(match (name, args) {
        ("isIP", [Val::Text(text)]) => Ok(Val::Bool(ip(text).is_some())),
        ("ip", [Val::Text(text)]) => ip(text).map_or_else(
            || error(format!("IP Address {text:?} parse error during conversion from string")),
            |ip| Ok(Val::Ip(ip)),
        ),
        ("ip.isCanonical", [Val::Text(text)]) => {
            Ok(Val::Bool(ip(text).is_some_and(|ip| ip.to_string() == **text)))
        }
        ("isCIDR", [Val::Text(text)]) => Ok(Val::Bool(cidr(text).is_some())),
        ("cidr", [Val::Text(text)]) => cidr(text).map_or_else(
            || error("network address parse error during conversion from string"),
            |(ip, bits)| Ok(Val::Cidr(ip, bits)),
        ),
        ("family", [Val::Ip(ip)]) => Ok(Val::Int(if ip.is_ipv4() { 4 } else { 6 })),
        ("isUnspecified", [Val::Ip(ip)]) => Ok(Val::Bool(ip.is_unspecified())),
        ("isLoopback", [Val::Ip(ip)]) => Ok(Val::Bool(ip.is_loopback())),
        ("isLinkLocalMulticast", [Val::Ip(ip)]) => Ok(Val::Bool(match ip {
            IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
            IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
        })),
        ("isLinkLocalUnicast", [Val::Ip(ip)]) => Ok(Val::Bool(link_local(ip))),
        ("isGlobalUnicast", [Val::Ip(ip)]) => {
            let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
            let other =
                ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || link_local(ip) || broadcast;
            Ok(Val::Bool(!other))
        }
        ("ip", [Val::Cidr(ip, _)]) => Ok(Val::Ip(*ip)),
        ("prefixLength", [Val::Cidr(_, bits)]) => Ok(Val::Int(i64::from(*bits))),
        ("masked", [Val::Cidr(ip, bits)]) => Ok(Val::Cidr(masked(*ip, *bits), *bits)),
        ("containsIP", [Val::Cidr(net, bits), other]) => {
            let other = match other {
                Val::Ip(ip) => Some(*ip),
                Val::Text(text) => ip(text),
                _ => None,
            };
            other.map_or_else(|| error("no such overload"), |ip| Ok(Val::Bool(contains(*net, *bits, ip))))
        }
        ("containsCIDR", [Val::Cidr(net, bits), other]) => {
            let other = match other {
                Val::Cidr(ip, bits) => Some((*ip, *bits)),
                Val::Text(text) => cidr(text),
                _ => None,
            };
            other.map_or_else(
                || error("no such overload"),
                |(ip, inner)| Ok(Val::Bool(inner >= *bits && contains(*net, *bits, ip))),
            )
        }
        _ => return None,
    })
}

fn link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn ip(text: &str) -> Option<IpAddr> {
    let ip: IpAddr = text.parse().ok()?;
    let mapped = matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some());
    (!mapped).then_some(ip)
}

fn cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address = ip(address)?;
    let plain = bits == "0" || (!bits.starts_with('0') && bits.bytes().all(|b| b.is_ascii_digit()));
    let bits: u8 = bits.parse().ok().filter(|_| plain)?;
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
}

fn masked(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(ip) & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(ip) & mask))
        }
    }
}

fn contains(net: IpAddr, bits: u8, ip: IpAddr) -> bool {
    net.is_ipv4() == ip.is_ipv4() && masked(net, bits) == masked(ip, bits)
}

fn url<'a>(name: &str, args: &[Val<'a>]) -> Option<Result<'a>> {
    let parts = |text: &str| {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, after) = if text.contains("://") { rest.split_at(end) } else { ("", rest) };
        let host = authority.rsplit('@').next().unwrap_or("").to_owned();
        let path = after.split(['?', '#']).next().unwrap_or("").to_owned();
        (scheme.to_owned(), host, path)
    };
    let port_at = |host: &str| host.rfind(':').filter(|at| !host[*at..].contains(']'));
    Some(match (name, args) {
        ("isURL", [Val::Text(text)]) => Ok(Val::Bool(formats::matches("uri", text))),
        ("url", [Val::Text(text)]) if formats::matches("uri", text) => Ok(Val::Url(text.clone())),
        ("url", [Val::Text(_)]) => error("URL parse error during conversion from string"),
        ("getScheme", [Val::Url(text)]) => Ok(Val::text(&parts(text).0)),
        ("getHost", [Val::Url(text)]) => Ok(Val::text(&parts(text).1)),
        ("getHostname", [Val::Url(text)]) => {
            let host = parts(text).1;
            let name = port_at(&host).map_or(host.as_str(), |at| &host[..at]);
            Ok(Val::text(name.trim_matches(['[', ']'])))
        }
        ("getPort", [Val::Url(text)]) => {
            let host = parts(text).1;
            Ok(Val::text(port_at(&host).map_or("", |at| &host[at + 1..])))
        }
        ("getEscapedPath", [Val::Url(text)]) => Ok(Val::text(&parts(text).2)),
        _ => return None,
    })
}

/// `'%s is %d'.format([a, b])`.
pub fn format<'a>(text: &str, values: &[Val<'a>], budget: &Budget) -> Result<'a> {
    let (mut out, mut values, mut chars) = (String::new(), values.iter(), text.chars());
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut spec = String::new();
        let verb = loop {
            match chars.next() {
                Some(c @ ('.' | '0'..='9')) => spec.push(c),
                Some(verb) => break verb,
                None => return error("unexpected end of format string"),
            }
        };
        if verb == '%' {
            out.push('%');
            continue;
        }
        let Some(value) = values.next() else { return error("index out of range") };
        budget.spend(1 + value.size().unwrap_or(0) / 10)?;
        let digits: usize = spec.strip_prefix('.').and_then(|d| d.parse().ok()).unwrap_or(6).min(100);
        match (verb, value) {
            ('s', value) => out.push_str(&shown(value)),
            ('d', Val::Int(_) | Val::Uint(_) | Val::Double(_)) => out.push_str(&shown(value)),
            ('f', Val::Double(d)) => out.push_str(&format!("{d:.digits$}")),
            ('f', Val::Int(i)) => out.push_str(&format!("{:.digits$}", *i as f64)),
            ('e', Val::Double(d)) => out.push_str(&go_float(*d)),
            ('x', Val::Int(i)) => out.push_str(&format!("{i:x}")),
            ('X', Val::Int(i)) => out.push_str(&format!("{i:X}")),
            ('o', Val::Int(i)) => out.push_str(&format!("{i:o}")),
            ('b', Val::Int(i)) => out.push_str(&format!("{i:b}")),
            _ => return error(format!("unrecognized formatting clause \"{verb}\"")),
        }
    }
    Ok(Val::text(&out))
}
