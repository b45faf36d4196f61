//! Resource quantities such as `100m`, `1.5Gi`, `2e3`: read, compared and written as Kubernetes does.
//!
//! A value is a whole number times a power of ten; Kubernetes keeps nothing finer than a billionth. Numbers of more
//! than 36 digits are kept to 36, where Kubernetes would keep them all.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// Why a text is no quantity; the texts are Kubernetes'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number with a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number cannot be read.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The suffix is not known.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// How a quantity is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// `12M`.
    Decimal,
    /// `12Mi`.
    Binary,
    /// `12e6`.
    Exponent,
}

/// A resource quantity. Equality and order are by value: `1` equals `1000m`.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    mantissa: i128,
    /// Power of ten.
    exponent: i32,
    format: Format,
}

/// Digits kept of one number.
const DIGITS_MAX: usize = 36;
/// Kubernetes keeps nothing finer than 10^-9.
const NANO: i32 = -9;
/// Digits of a number that Kubernetes handles without big integers; such numbers keep their spelling.
const FAST_DIGITS: usize = 18;

const DECIMAL: &[(&str, i32)] = &[
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: &[(&str, u32)] = &[("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

impl Quantity {
    /// Zero.
    pub const ZERO: Self = Self { mantissa: 0, exponent: 0, format: Format::Decimal };

    /// Reads a quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        read(text).map(|(quantity, _)| quantity)
    }

    /// The text as Kubernetes would write it back; borrowed when it is written so already.
    pub fn canonical(text: &str) -> Result<Cow<'_, str>, QuantityError> {
        let (quantity, keeps) = read(text)?;
        if keeps {
            return Ok(Cow::Borrowed(text));
        }
        let made = quantity.to_string();
        Ok(if made == text { Cow::Borrowed(text) } else { Cow::Owned(made) })
    }

    /// -1, 0 or 1.
    pub const fn sign(&self) -> i32 {
        self.mantissa.signum() as i32
    }
    /// Whether it is zero.
    pub const fn is_zero(&self) -> bool {
        self.mantissa == 0
    }
    /// The value in whole units, rounded away from zero; at the limits of 64 bits, the limit.
    pub fn value(&self) -> i64 {
        self.scaled(0)
    }
    /// The value in thousandths, rounded away from zero; at the limits of 64 bits, the limit.
    pub fn milli_value(&self) -> i64 {
        self.scaled(-3)
    }

    fn scaled(&self, scale: i32) -> i64 {
        let whole = rescale(self.mantissa, self.exponent.saturating_sub(scale)).0;
        i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
    }

    /// The sum, written in the first's format unless that is zero.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let exponent = self.exponent.min(other.exponent).max(NANO);
        let part = |q: &Self| rescale(q.mantissa, q.exponent.saturating_sub(exponent)).0;
        let format = if self.is_zero() { other.format } else { self.format };
        Self { mantissa: part(self).saturating_add(part(other)), exponent, format }
    }

    /// The negative.
    #[must_use]
    pub const fn negated(&self) -> Self {
        Self { mantissa: self.mantissa.saturating_neg(), ..*self }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        let (whole, exact) = rescale(self.mantissa, self.exponent);
        if self.format == Format::Binary && exact && whole.unsigned_abs() >= 1024 {
            let (amount, times) = without_factor(whole, 1024);
            let suffix = BINARY.iter().find(|(_, bits)| *bits == times * 10).map_or("", |(text, _)| text);
            return write!(f, "{amount}{suffix}");
        }
        let (mut amount, times) = without_factor(self.mantissa, 10);
        let mut exponent = self.exponent.saturating_add(i32::try_from(times).unwrap_or(0));
        for _ in 0..exponent.rem_euclid(3) {
            (amount, exponent) = (amount.saturating_mul(10), exponent - 1);
        }
        match self.format {
            Format::Exponent if exponent == 0 => write!(f, "{amount}"),
            Format::Exponent => write!(f, "{amount}e{exponent}"),
            // Kubernetes writes no suffix at all past E.
            _ => {
                let suffix =
                    DECIMAL.iter().find(|(_, power)| *power == exponent).map_or("", |(text, _)| text);
                write!(f, "{amount}{suffix}")
            }
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
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
        let by_sign = self.sign().cmp(&other.sign());
        if by_sign != Ordering::Equal || self.is_zero() {
            return by_sign;
        }
        let ((a, at), (b, bt)) = (without_factor(self.mantissa, 10), without_factor(other.mantissa, 10));
        let a_exponent = i64::from(self.exponent) + i64::from(at);
        let b_exponent = i64::from(other.exponent) + i64::from(bt);
        let a_top = i64::from(a.unsigned_abs().ilog10()) + a_exponent;
        let b_top = i64::from(b.unsigned_abs().ilog10()) + b_exponent;
        let magnitude = a_top.cmp(&b_top).then_with(|| {
            // Equal in length, so the shift of the shorter one stays within the digits of the longer.
            let shift = u32::try_from((a_exponent - b_exponent).unsigned_abs()).unwrap_or(u32::MAX);
            let power = 10u128.saturating_pow(shift);
            let (a, b) = (a.unsigned_abs(), b.unsigned_abs());
            if a_exponent >= b_exponent {
                a.saturating_mul(power).cmp(&b)
            } else {
                a.cmp(&b.saturating_mul(power))
            }
        });
        if self.sign() < 0 { magnitude.reverse() } else { magnitude }
    }
}

/// A text taken apart: sign, digits before and after the point, suffix.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
    /// No digit at all, not even a zero.
    bare: bool,
    /// No plus sign, no leading zero, no point.
    tidy: bool,
}

/// The quantity, and whether Kubernetes would keep this spelling of it.
fn read(text: &str) -> Result<(Quantity, bool), QuantityError> {
    match text {
        "" => return Err(QuantityError::Format),
        "0" => return Ok((Quantity::ZERO, true)),
        _ => {}
    }
    let parts = split(text)?;
    if let Some((_, bits)) = BINARY.iter().find(|(suffix, _)| *suffix == parts.suffix) {
        return binary(&parts, *bits);
    }
    let (power, format) = power_of(parts.suffix).ok_or(QuantityError::Suffix)?;
    decimal(&parts, power, format)
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let number = unsigned.trim_start_matches('0');
    let (whole, rest) = leading(number, |c| c.is_ascii_digit());
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => leading(rest, |c| c.is_ascii_digit()),
        None => ("", rest),
    };
    let (_, tail) = leading(suffix, |c| "eEinumkKMGTP".contains(c));
    let tail = tail.strip_prefix(['+', '-']).unwrap_or(tail);
    if !tail.bytes().all(|b| b.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    let bare = unsigned.len() == number.len() && whole.is_empty() && fraction.is_empty();
    let tidy = unsigned.len() == number.len() && !text.contains(['+', '.']);
    Ok(Parts { negative: text.starts_with('-'), whole, fraction, suffix, bare, tidy })
}

fn leading(text: &str, accept: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !accept(c)).unwrap_or(text.len());
    text.split_at(end)
}

fn power_of(suffix: &str) -> Option<(i32, Format)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(text, _)| *text == suffix) {
        return Some((*power, Format::Decimal));
    }
    let digits = suffix.strip_prefix(['e', 'E'])?;
    let power: i64 = digits.parse().ok()?;
    // Far past any use; bounded so that sums of exponents cannot overflow.
    let power = power.clamp(-1_000_000, 1_000_000);
    Some((i32::try_from(power).ok()?, Format::Exponent))
}

fn decimal(parts: &Parts<'_>, power: i32, format: Format) -> Result<(Quantity, bool), QuantityError> {
    let (mantissa, exponent) = digits(parts, power);
    let quantity = Quantity { mantissa, exponent, format };
    let length = parts.whole.len().max(1) + parts.fraction.len();
    if length <= FAST_DIGITS && exponent >= NANO {
        let last = if parts.fraction.len() >= 3 { parts.fraction } else { "" };
        let zeros =
            if last.is_empty() { ends_in_zeros(parts.whole, parts.fraction) } else { last.ends_with("000") };
        return Ok((quantity, exponent % 3 == 0 && !zeros && !parts.whole.is_empty()));
    }
    if parts.bare { Err(QuantityError::Numeric) } else { Ok((round_up(quantity), false)) }
}

/// Whether the digits of both together end in three zeros, when the second has fewer than three.
fn ends_in_zeros(whole: &str, fraction: &str) -> bool {
    let need = 3 - fraction.len().min(3);
    let tail = whole.len().checked_sub(need).and_then(|from| whole.get(from..));
    fraction.bytes().all(|b| b == b'0') && tail.is_some_and(|tail| tail.bytes().all(|b| b == b'0'))
}

fn binary(parts: &Parts<'_>, bits: u32) -> Result<(Quantity, bool), QuantityError> {
    let (mantissa, exponent) = digits(parts, 0);
    let shifted = mantissa.saturating_mul(1i128 << bits);
    let quantity = Quantity { mantissa: shifted, exponent, format: Format::Binary };
    // As many digits as Kubernetes' fast path takes: 15 less those of the suffix.
    let room = 14usize.checked_sub(parts.whole.len().max(1) + (bits as usize) * 3 / 10);
    if parts.fraction.is_empty() && room.is_some() {
        // Kubernetes keeps the spelling of odd enough numbers; of the others, this one is what it would write anyway.
        return Ok((quantity, mantissa & 7 != 0 || (parts.tidy && mantissa % 1024 != 0)));
    }
    if parts.bare {
        return Err(QuantityError::Numeric);
    }
    let mut quantity = round_up(quantity);
    let max = Quantity { mantissa: i128::from(i64::MAX), exponent: 0, format: Format::Binary };
    if quantity > max {
        quantity = max;
    } else if quantity.negated() > max {
        quantity = max.negated();
    }
    let (_, exact) = rescale(quantity.mantissa, quantity.exponent);
    if !exact && rescale(quantity.mantissa, quantity.exponent).0.unsigned_abs() <= 1 {
        quantity.format = Format::Decimal;
    }
    Ok((quantity, false))
}

/// The digits as one number, and its power of ten; digits past the limit only move the power.
fn digits(parts: &Parts<'_>, power: i32) -> (i128, i32) {
    let (mut mantissa, mut exponent, mut taken) = (0i128, power, 0usize);
    let whole = parts.whole.bytes().map(|b| (b, false));
    for (digit, fraction) in whole.chain(parts.fraction.bytes().map(|b| (b, true))) {
        if taken < DIGITS_MAX {
            mantissa = mantissa * 10 + i128::from(digit.wrapping_sub(b'0'));
            taken += usize::from(mantissa != 0);
            exponent = exponent.saturating_sub(i32::from(fraction));
        } else {
            exponent = exponent.saturating_add(i32::from(!fraction));
        }
    }
    (if parts.negative { -mantissa } else { mantissa }, exponent)
}

/// What is finer than a billionth is rounded away from zero.
fn round_up(quantity: Quantity) -> Quantity {
    if quantity.exponent >= NANO {
        return quantity;
    }
    let (mantissa, _) = rescale(quantity.mantissa, quantity.exponent.saturating_sub(NANO));
    Quantity { mantissa, exponent: NANO, ..quantity }
}

/// `mantissa * 10^power`, rounded away from zero, and whether that was exact; at the limits, the limit.
fn rescale(mantissa: i128, power: i32) -> (i128, bool) {
    let factor = 10i128.checked_pow(power.unsigned_abs());
    match (factor, power >= 0) {
        (Some(factor), true) => (mantissa.saturating_mul(factor), true),
        (None, true) => (if mantissa == 0 { 0 } else { i128::MAX * mantissa.signum() }, mantissa == 0),
        (Some(factor), false) if mantissa % factor == 0 => (mantissa / factor, true),
        (Some(factor), false) => (mantissa / factor + mantissa.signum(), false),
        (None, false) => (mantissa.signum(), mantissa == 0),
    }
}

fn without_factor(mut value: i128, factor: i128) -> (i128, u32) {
    let mut times = 0;
    while value != 0 && value % factor == 0 {
        (value, times) = (value / factor, times + 1);
    }
    (value, times)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The right-hand sides are what `k8s.io/apimachinery` v0.36 gives.
    #[test]
    fn canonical_forms() {
        for (text, want) in CANONICAL {
            assert_eq!(Quantity::canonical(text).as_deref(), Ok(*want), "{text}");
        }
    }

    const CANONICAL: &[(&str, &str)] = &[
        ("0", "0"),
        ("1", "1"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1.5", "1500m"),
        ("100m", "100m"),
        ("1024Ki", "1Mi"),
        ("1Gi", "1Gi"),
        ("0.5Gi", "512Mi"),
        ("0.5Ki", "512"),
        ("1.5Gi", "1536Mi"),
        ("1000Ki", "1000Ki"),
        ("2048", "2048"),
        ("2048Ki", "2Mi"),
        ("1e3", "1e3"),
        ("1E3", "1E3"),
        ("12e6", "12e6"),
        ("1000k", "1M"),
        ("1000000k", "1G"),
        ("+5", "+5"),
        ("05", "05"),
        ("1.500", "1.500"),
        ("1.000", "1"),
        (".5", "500m"),
        ("5.", "5."),
        (".", "0"),
        ("-", "0"),
        ("-0.5", "-500m"),
        ("-1.5Gi", "-1536Mi"),
        ("0Gi", "0"),
        ("1Ei", "1Ei"),
        ("8Ei", "9223372036854775807"),
        ("9Ei", "9223372036854775807"),
        ("100Pi", "100Pi"),
        ("0.1n", "1n"),
        ("1n", "1n"),
        ("1.1n", "2n"),
        ("1000000E", "1"),
        ("1E", "1E"),
        ("12345678901234567890", "12345678901234567890"),
        ("1.0000000001", "1000000001n"),
        ("1e-3", "1e-3"),
        ("1e-10", "1e-9"),
        ("15e-1", "1500e-3"),
        ("3m", "3m"),
        ("3000m", "3"),
        ("100Ti", "100Ti"),
        ("1.1Ki", "1126400m"),
        ("0.001Ki", "1024m"),
        ("123456789.123456789", "123456789.123456789"),
        ("1000", "1k"),
        ("10000", "10k"),
        ("1500", "1500"),
        ("1e100", "10e99"),
        ("64Mi", "64Mi"),
        ("65536Ki", "64Mi"),
        ("250m", "250m"),
        ("0.25", "250m"),
        ("0.1", "100m"),
    ];

    #[test]
    fn errors() {
        for (text, want) in [
            ("", QuantityError::Format),
            ("abc", QuantityError::Format),
            ("1x", QuantityError::Format),
            ("1 Gi", QuantityError::Format),
            ("1mm", QuantityError::Suffix),
            ("1KiB", QuantityError::Format),
            ("1K", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("Pi", QuantityError::Numeric),
            ("1é", QuantityError::Format),
        ] {
            assert_eq!(Quantity::parse(text).map(|q| q.to_string()), Err(want), "{text}");
        }
    }

    #[test]
    fn order_is_by_value() {
        for (a, order, b) in [
            ("1", Ordering::Equal, "1000m"),
            ("1Gi", Ordering::Greater, "1G"),
            ("999m", Ordering::Less, "1"),
            ("-1", Ordering::Less, "1n"),
            ("-2", Ordering::Less, "-1"),
            ("1e100", Ordering::Greater, "1e99"),
            ("0", Ordering::Equal, "0Gi"),
            ("1e30", Ordering::Equal, "1000000000000E"),
        ] {
            let [left, right] = [a, b].map(|text| Quantity::parse(text).unwrap());
            assert_eq!(left.cmp(&right), order, "{a} {b}");
        }
    }

    #[test]
    fn values_round_away_from_zero() {
        for (text, value, milli) in [
            ("1500m", 2, 1500),
            ("-1500m", -2, -1500),
            ("1n", 1, 1),
            ("1Ki", 1024, 1_024_000),
            ("1e40", i64::MAX, i64::MAX),
        ] {
            let quantity = Quantity::parse(text).unwrap();
            assert_eq!((quantity.value(), quantity.milli_value()), (value, milli), "{text}");
        }
    }

    #[test]
    fn sums() {
        for (a, b, sum) in
            [("500m", "1", "1500m"), ("0", "1Gi", "1Gi"), ("1Gi", "1Gi", "2Gi"), ("1", "-1", "0")]
        {
            let [a, b] = [a, b].map(|text| Quantity::parse(text).unwrap());
            assert_eq!(a.plus(&b).to_string(), sum);
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "[+-]?[0-9.]{0,60}[eEinumkKMGTP]{0,3}[-+]?[0-9]{0,12}") {
            if let Ok(quantity) = Quantity::parse(&text) {
                let _ = (quantity.to_string(), quantity.value(), quantity.cmp(&Quantity::ZERO));
            }
        }

        #[test]
        fn canonical_is_stable(text in "[+-]?[0-9]{1,9}(\\.[0-9]{1,4})?(m|k|M|Gi|Ki|e3|)") {
            let once = Quantity::canonical(&text).unwrap().into_owned();
            prop_assert_eq!(Quantity::parse(&once).unwrap(), Quantity::parse(&text).unwrap());
        }
    }
}
