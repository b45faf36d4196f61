//! Quantities such as `100m`, `1.5Gi` or `1e3`: reading, comparing, and Kubernetes' canonical way of writing them.

use std::cmp::Ordering;

use serde_json::Value;

/// A quantity, exact to a billionth. Smaller parts are rounded up, as Kubernetes does.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// Powers of ten by suffix: `m`, `k`, `M`.
    Decimal,
    /// Powers of two by suffix: `Ki`, `Mi`.
    Binary,
    /// `1e3`.
    Exponent,
}

const NANO: i128 = 1_000_000_000;
/// The largest whole number a quantity holds; more is cut to it.
const WHOLE_MAX: i128 = i64::MAX as i128;
const DECIMAL: [(&str, u32); 9] =
    [("n", 0), ("u", 3), ("m", 6), ("", 9), ("k", 12), ("M", 15), ("G", 18), ("T", 21), ("P", 24)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

impl Quantity {
    /// Reads a quantity; none when it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, text.get(1..)?),
            b'+' => (false, text.get(1..)?),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let (scale, format) = scale(suffix)?;
        let nanos = amount(whole, fraction, scale)?.min(WHOLE_MAX * NANO);
        Some(Self { nanos: if negative { -nanos } else { nanos }, format })
    }

    /// Reads a quantity from JSON: a text, or a number.
    pub fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    /// Below zero, zero, or above.
    pub const fn signum(self) -> i32 {
        self.nanos.signum() as i32
    }

    /// Whether it has no fraction.
    pub const fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }

    /// Rounded up to a whole number.
    pub fn whole(self) -> i64 {
        let whole = self.nanos.div_euclid(NANO) + i128::from(self.nanos.rem_euclid(NANO) != 0);
        i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
    }

    /// In thousandths, rounded up.
    pub fn milli(self) -> i64 {
        let step = NANO / 1000;
        let milli = self.nanos.div_euclid(step) + i128::from(self.nanos.rem_euclid(step) != 0);
        i64::try_from(milli).unwrap_or(if milli < 0 { i64::MIN } else { i64::MAX })
    }

    /// Rounded up to thousandths, as stored resource lists are.
    #[must_use]
    pub fn rounded_to_milli(self) -> Self {
        let step = NANO / 1000;
        let up = self.nanos.div_euclid(step) + i128::from(self.nanos.rem_euclid(step) != 0);
        Self { nanos: up * step, ..self }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// The canonical form: the largest suffix that leaves no fraction.
impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos / NANO;
        // Kubernetes writes binary quantities below 1024, or with a fraction, in the decimal way.
        if self.format == Format::Binary && self.is_whole() && whole.abs() >= 1024 {
            let fits = |(_, power): &&(&str, u32)| whole % (1_i128 << *power) == 0;
            return match BINARY.iter().rev().find(fits) {
                Some((suffix, power)) => write!(f, "{}{suffix}", whole >> power),
                None => write!(f, "{whole}"),
            };
        }
        let (mut number, mut power) = (self.nanos, 0);
        while number % 1000 == 0 && power < 27 {
            number /= 1000;
            power += 3;
        }
        if self.format == Format::Exponent {
            return match power {
                9 => write!(f, "{number}"),
                _ => write!(f, "{number}e{}", i64::from(power) - 9),
            };
        }
        let suffix = DECIMAL.iter().find(|(_, p)| *p == power).map_or("E", |(suffix, _)| suffix);
        write!(f, "{number}{suffix}")
    }
}

/// By how much a suffix multiplies.
#[derive(Clone, Copy)]
enum Scale {
    Ten(i32),
    Two(u32),
}

fn scale(suffix: &str) -> Option<(Scale, Format)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Some((Scale::Ten(i32::try_from(*power).ok()? - 9), Format::Decimal));
    }
    if suffix == "E" {
        return Some((Scale::Ten(18), Format::Decimal));
    }
    if let Some((_, power)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return Some((Scale::Two(*power), Format::Binary));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((Scale::Ten(exponent.parse().ok()?), Format::Exponent))
}

/// `whole.fraction` times the scale, in nanos, rounded up; too large is cut to the maximum.
fn amount(whole: &str, fraction: &str, scale: Scale) -> Option<i128> {
    let mut digits: i128 = 0;
    let mut decimals: i32 = 0;
    let mut lost = false;
    for (at, digit) in whole.bytes().chain(fraction.bytes()).enumerate() {
        let digit = i128::from(digit - b'0');
        let in_fraction = at >= whole.len();
        if digits > WHOLE_MAX {
            // Digits beyond what a quantity holds: large numbers are cut below, small parts rounded up.
            lost |= digit != 0;
            decimals -= i32::from(!in_fraction);
        } else {
            digits = digits * 10 + digit;
            decimals += i32::from(in_fraction);
        }
    }
    if digits == 0 {
        return Some(0);
    }
    let power = match scale {
        Scale::Ten(power) => power.checked_add(9)?.checked_sub(decimals)?,
        Scale::Two(power) => {
            digits = digits.saturating_mul(1_i128 << power);
            9 - decimals
        }
    };
    let exact = if power >= 0 {
        10_i128.checked_pow(power.unsigned_abs()).map_or(i128::MAX, |by| digits.saturating_mul(by))
    } else {
        match 10_i128.checked_pow(power.unsigned_abs()) {
            Some(by) => digits / by + i128::from(digits % by != 0 || lost),
            None => 1,
        }
    };
    Some(exact)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_forms() {
        for (text, expected) in [
            ("0", "0"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1Gi", "1Gi"),
            ("1024", "1024"),
            ("1000", "1k"),
            ("1024Ki", "1Mi"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("1E", "1E"),
            ("-100m", "-100m"),
            ("+1", "1"),
            ("100000000000000000000", "9223372036854775807"),
            ("0.1n", "1n"),
            (".5", "500m"),
            ("5.", "5"),
        ] {
            let found = Quantity::parse(text).map(|q| q.to_string());
            assert_eq!(found.as_deref(), Some(expected), "{text}");
        }
        for text in ["", "a", "1x", "1.2.3", "--1", "1 Gi", "1e", "Gi", "1ki", "e3", "1e3.5"] {
            assert!(Quantity::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn comparing() {
        let q = |text| Quantity::parse(text).unwrap();
        assert_eq!(q("1"), q("1000m"));
        assert!(q("1Gi") > q("1G") && q("-1") < q("0"));
        assert_eq!((q("1.2").whole(), q("-1.2").whole(), q("0.0001").milli()), (2, -1, 1));
        assert_eq!(q("0.0001").rounded_to_milli(), q("1m"));
        assert!(q("2").is_whole() && !q("100m").is_whole());
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[-+0-9.eEinumkMGTP]{0,40}") {
            if let Some(quantity) = Quantity::parse(&text) {
                assert_eq!(Quantity::parse(&quantity.to_string()), Some(quantity), "{text}");
            }
        }
    }
}
