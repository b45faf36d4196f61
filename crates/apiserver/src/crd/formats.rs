//! The string formats that schemas may name, as Kubernetes 1.36 checks them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

/// Checks one text.
type Test = fn(&str) -> bool;

/// Every checked format by its name without dashes; others are ignored.
const FORMATS: &[(&str, Test)] = &[
    ("bsonobjectid", |s| s.len() == 24 && s.bytes().all(|b| b.is_ascii_hexdigit())),
    ("uri", is_request_uri),
    ("email", is_email),
    ("hostname", is_hostname),
    ("ipv4", is_ipv4),
    ("ipv6", |s| s.contains(':') && s.parse::<Ipv6Addr>().is_ok()),
    ("cidr", is_cidr),
    ("mac", is_mac),
    ("uuid", |s| PATTERNS.uuid.is_match(s)),
    ("uuid3", |s| PATTERNS.uuid3.is_match(s)),
    ("uuid4", |s| PATTERNS.uuid4.is_match(s)),
    ("uuid5", |s| PATTERNS.uuid5.is_match(s)),
    ("isbn", |s| is_isbn10(s) || is_isbn13(s)),
    ("isbn10", is_isbn10),
    ("isbn13", is_isbn13),
    ("creditcard", is_credit_card),
    ("ssn", |s| s.len() == 11 && PATTERNS.ssn.is_match(s)),
    ("hexcolor", |s| PATTERNS.hexcolor.is_match(s)),
    ("rgbcolor", |s| PATTERNS.rgbcolor.is_match(s)),
    ("byte", |s| PATTERNS.base64.is_match(s)),
    ("password", |_| true),
    ("date", is_date),
    ("duration", is_duration),
    ("datetime", is_date_time),
    ("k8sshortname", |s| s.len() <= 63 && PATTERNS.short_name.is_match(s)),
    ("k8slongname", |s| s.len() <= 253 && PATTERNS.long_name.is_match(s)),
];

/// The format that counts for a value of this type: unknown ones count as none.
pub fn effective<'a>(ty: &str, format: &'a str) -> &'a str {
    let known = match ty {
        "" | "string" => find(format).is_some(),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    if known { format } else { "" }
}

/// Whether a text has the format. Unknown formats accept everything.
pub fn matches(format: &str, text: &str) -> bool {
    find(format).is_none_or(|test| test(text))
}

fn find(format: &str) -> Option<Test> {
    let plain = format.replace('-', "");
    FORMATS.iter().find(|(name, _)| *name == plain).map(|(_, test)| *test)
}

struct Patterns {
    uuid: Regex,
    uuid3: Regex,
    uuid4: Regex,
    uuid5: Regex,
    ssn: Regex,
    hexcolor: Regex,
    rgbcolor: Regex,
    base64: Regex,
    short_name: Regex,
    long_name: Regex,
    hostname: Regex,
    credit_card: Regex,
    time: Regex,
    duration: Regex,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let regex = |pattern: &str| Regex::new(pattern).expect("a pattern of ours compiles");
    let byte = r"(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])";
    Patterns {
        uuid: regex(r"(?i-u)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
        uuid3: regex(r"(?i-u)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
        uuid4: regex(r"(?i-u)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"),
        uuid5: regex(r"(?i-u)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"),
        ssn: regex(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"),
        hexcolor: regex("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
        rgbcolor: regex(&format!(r"^rgb\(\s*{byte}\s*,\s*{byte}\s*,\s*{byte}\s*\)$")),
        base64: regex("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"),
        short_name: regex("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
        long_name: regex(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
        hostname: regex(
            r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
        ),
        credit_card: regex(
            "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$",
        ),
        time: regex(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"),
        duration: regex(r"([0-9]+)\s*([A-Za-zµ]+)"),
    }
});

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && PATTERNS.hostname.is_match(text) && text.split('.').all(|label| label.len() <= 63)
}

/// Leading zeros are allowed here, as in Kubernetes' sloppy parser.
fn is_ipv4(text: &str) -> bool {
    if text.contains(':') {
        return text.contains('.') && text.parse::<Ipv6Addr>().is_ok();
    }
    sloppy_ipv4(text).is_some()
}

fn sloppy_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let digits = part.trim_start_matches('0');
        *octet = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    }
    parts.next().is_none().then_some(Ipv4Addr::from(octets))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let bits_max = if sloppy_ipv4(address).is_some() {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    bits.bytes().all(|b| b.is_ascii_digit()) && bits.parse::<u32>().is_ok_and(|bits| bits <= bits_max)
}

fn is_mac(text: &str) -> bool {
    let (separator, group) = match (text.as_bytes().get(2), text.as_bytes().get(4)) {
        (Some(b':'), _) => (':', 2),
        (Some(b'-'), _) => ('-', 2),
        (_, Some(b'.')) => ('.', 4),
        _ => return false,
    };
    let groups: Vec<&str> = text.split(separator).collect();
    let bytes = groups.len() * group / 2;
    matches!(bytes, 6 | 8 | 20)
        && groups.iter().all(|g| g.len() == group && g.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn digits_of(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect()
}

fn is_isbn10(text: &str) -> bool {
    let plain = digits_of(text);
    if plain.len() != 10 {
        return false;
    }
    let mut sum = 0;
    for (at, byte) in plain.bytes().enumerate() {
        let digit = match byte {
            b'0'..=b'9' => usize::from(byte - b'0'),
            b'X' if at == 9 => 10,
            _ => return false,
        };
        sum += (at + 1) * digit;
    }
    sum % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let plain = digits_of(text);
    if plain.len() != 13 || !plain.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let sum: u32 =
        plain.bytes().zip([1u32, 3].into_iter().cycle()).map(|(b, w)| u32::from(b - b'0') * w).sum();
    sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !PATTERNS.credit_card.is_match(&digits) {
        return false;
    }
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(at, b)| {
            let digit = u32::from(b - b'0');
            let doubled = if at % 2 == 1 { digit * 2 } else { digit };
            if doubled > 9 { doubled - 9 } else { doubled }
        })
        .sum();
    sum.is_multiple_of(10)
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.is_ascii() && jiff::civil::Date::strptime("%Y-%m-%d", text).is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some(found) = PATTERNS.time.captures(time) else { return false };
    is_date(date) && &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59"
}

/// The units of the lenient dialect; the last spelling of each is a prefix.
const UNITS: &[&[&str]] = &[
    &["ns", "nano"],
    &["us", "µs", "micro"],
    &["ms", "milli"],
    &["s", "sec"],
    &["m", "min"],
    &["h", "hr", "hour"],
    &["d", "day"],
    &["w", "wk", "week"],
];

fn is_duration(text: &str) -> bool {
    if super::cel::go_duration(text).is_some() {
        return true;
    }
    let mut known = false;
    for found in PATTERNS.duration.captures_iter(text) {
        if found[1].parse::<i64>().is_err() {
            return false;
        }
        let unit = found[2].to_lowercase();
        known |= UNITS.iter().any(|spellings| {
            spellings.contains(&unit.as_str()) || spellings.last().is_some_and(|last| unit.starts_with(last))
        });
    }
    known
}

/// An absolute URI, or a path that begins with a slash, as an HTTP request line may hold it.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    if text.starts_with('/') || text == "*" {
        return percent_ok(text);
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let letters = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    // Without a slash after the scheme it is opaque, which a request may hold too.
    letters && !rest.is_empty() && percent_ok(rest) && host_ok(rest)
}

fn host_ok(rest: &str) -> bool {
    let Some(authority) = rest.strip_prefix("//") else { return true };
    let authority = authority.split(['/', '?', '#']).next().unwrap_or("");
    let host = authority.rsplit('@').next().unwrap_or("");
    let (name, port) = match (host.strip_prefix('['), host.rsplit_once(':')) {
        (Some(v6), _) => match v6.split_once(']') {
            Some((_, port)) => ("", port.strip_prefix(':').unwrap_or(port)),
            None => return false,
        },
        (None, Some((name, port))) => (name, port),
        (None, None) => (host, ""),
    };
    port.bytes().all(|b| b.is_ascii_digit())
        && !name.contains([' ', '<', '>', '"', '\\', '^', '`', '{', '|', '}'])
}

fn percent_ok(text: &str) -> bool {
    let bytes = text.as_bytes();
    let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let path_end = text.find('?').unwrap_or(text.len());
    bytes.iter().enumerate().take(path_end).all(|(at, b)| *b != b'%' || (hex(at + 1) && hex(at + 2)))
}

/// An address as mail headers hold it: `a@b`, `Name <a@b>`, `"quoted"@b`.
fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let address = match text.strip_suffix('>') {
        Some(head) => match head.rsplit_once('<') {
            Some((_, address)) => address,
            None => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |s: &str| {
        !s.is_empty()
            && s.chars()
                .all(|c| !c.is_ascii() || c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c))
    };
    let quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.starts_with('[') && domain.ends_with(']');
    (quoted || local.split('.').all(atom)) && (literal || domain.split('.').all(atom))
}
