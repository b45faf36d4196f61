//! Times as Kubernetes reads and writes them: RFC 3339, in UTC, in seconds or microseconds.
//!
//! What is refused is refused in the words of Go's `time.Parse`, which clients see.

use jiff::civil::{Date, DateTime, Time};
use jiff::{SignedDuration, Timestamp, tz::Offset};

/// How a time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// `2006-01-02T15:04:05Z`; fractions are read and lost.
    Seconds,
    /// `2006-01-02T15:04:05.000000Z`; six digits exactly.
    Micros,
}

const ELEMENTS: &[(&str, &str)] = &[
    ("", "2006"),
    ("-", "01"),
    ("-", "02"),
    ("T", "15"),
    (":", "04"),
    (":", "05"),
    ("", ".000000"),
    ("", "Z07:00"),
];

/// A time in canonical form, or nothing when the text is so already; the error is Go's sentence.
pub fn canonical(text: &str, precision: Precision) -> Result<Option<String>, String> {
    if precision == Precision::Seconds && plain(text) {
        return Ok(None);
    }
    let timestamp = parse(text, precision)?;
    let made = write(timestamp, precision);
    Ok((made != text).then_some(made))
}

/// A time in seconds or microseconds.
pub fn write(timestamp: Timestamp, precision: Precision) -> String {
    match precision {
        Precision::Seconds => timestamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Precision::Micros => timestamp.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
    }
}

/// Reads a time; the error is Go's sentence.
pub fn parse(text: &str, precision: Precision) -> Result<Timestamp, String> {
    Parser { text, rest: text, precision }.run()
}

/// The commonest form, checked without taking it apart; the day must be one that every month has.
fn plain(text: &str) -> bool {
    let b = text.as_bytes();
    let digits = |at: usize, max: u8| match (b.get(at), b.get(at + 1)) {
        (Some(x @ b'0'..=b'9'), Some(y @ b'0'..=b'9')) => (x - b'0') * 10 + (y - b'0') <= max,
        _ => false,
    };
    b.len() == 20
        && digits(0, 99)
        && digits(2, 99)
        && !text.starts_with("0001-")
        && b.get(5..7) != Some(b"00")
        && b.get(8..10) != Some(b"00")
        && [(5, 12), (8, 28), (11, 23), (14, 59), (17, 59)].iter().all(|(at, max)| digits(*at, *max))
        && [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'Z')]
            .iter()
            .all(|(at, want)| b.get(*at) == Some(want))
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    precision: Precision,
}

impl<'a> Parser<'a> {
    fn run(mut self) -> Result<Timestamp, String> {
        let mut numbers = [0i32; 6];
        for (number, (prefix, element)) in numbers.iter_mut().zip(ELEMENTS) {
            self.rest = self.rest.strip_prefix(prefix).ok_or_else(|| self.bad(self.rest, prefix))?;
            *number = self.number(element)?;
        }
        let [year, month, day, hour, minute, second] = numbers;
        for (bad, what) in [
            (!(1..=12).contains(&month), "month"),
            (hour > 23, "hour"),
            (minute > 59, "minute"),
            (second > 59, "second"),
        ] {
            if bad {
                return Err(self.out_of_range(what));
            }
        }
        let nanos = self.fraction()?;
        let offset_s = self.offset()?;
        if !self.rest.is_empty() {
            return Err(format!("parsing time {:?}: extra text: {:?}", self.text, self.rest));
        }
        let small = |n: i32| i8::try_from(n).unwrap_or(-1);
        let date = Date::new(i16::try_from(year).unwrap_or(0), small(month), small(day));
        let date = date.map_err(|_| self.out_of_range("day"))?;
        let time = Time::new(small(hour), small(minute), small(second), nanos);
        let time = time.map_err(|_| self.out_of_range("second"))?;
        let outside = |_| "year outside of range [0,9999]".to_owned();
        let utc = Offset::UTC.to_timestamp(DateTime::from_parts(date, time)).map_err(outside)?;
        utc.checked_sub(SignedDuration::from_secs(i64::from(offset_s))).map_err(outside)
    }

    /// One number; the hour may have one digit, everything else has as many as its layout.
    fn number(&mut self, element: &str) -> Result<i32, String> {
        let digits = self.rest.bytes().take(element.len()).take_while(u8::is_ascii_digit).count();
        if digits < element.len() && !(element == "15" && digits == 1) {
            return Err(self.bad(self.rest, element));
        }
        let (number, rest) = self.rest.split_at_checked(digits).unwrap_or(("", self.rest));
        self.rest = rest;
        number.parse().map_err(|_| self.bad(number, element))
    }

    fn fraction(&mut self) -> Result<i32, String> {
        let point = self.rest.starts_with(['.', ',']);
        let digits = self.rest.bytes().skip(1).take_while(u8::is_ascii_digit).count();
        let taken = match self.precision {
            Precision::Micros if point && digits >= 6 => 6,
            Precision::Micros => return Err(self.bad(self.rest, ".000000")),
            Precision::Seconds if point && digits > 0 => digits,
            Precision::Seconds => return Ok(0),
        };
        let (fraction, rest) = self.rest.split_at_checked(taken + 1).unwrap_or(("", self.rest));
        self.rest = rest;
        let nine = fraction.bytes().skip(1).chain(std::iter::repeat(b'0')).take(9);
        Ok(nine.fold(0, |sum, digit| sum * 10 + i32::from(digit - b'0')))
    }

    fn offset(&mut self) -> Result<i32, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let bad = || self.bad(self.rest, "Z07:00");
        let (zone, rest) = self.rest.split_at_checked(6).ok_or_else(bad)?;
        let &[sign, h1, h2, b':', m1, m2] = zone.as_bytes() else { return Err(bad()) };
        if ![h1, h2, m1, m2].iter().all(u8::is_ascii_digit) {
            return Err(bad());
        }
        let two = |a: u8, b: u8| i32::from(a - b'0') * 10 + i32::from(b - b'0');
        let (hours, minutes) = (two(h1, h2), two(m1, m2));
        let sign = match sign {
            b'+' => 1,
            b'-' => -1,
            _ => return Err(bad()),
        };
        if hours > 24 {
            return Err(self.out_of_range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(self.out_of_range("time zone offset minute"));
        }
        self.rest = rest;
        Ok(sign * (hours * 3600 + minutes * 60))
    }

    fn bad(&self, rest: &str, element: &str) -> String {
        let layout = match self.precision {
            Precision::Seconds => "2006-01-02T15:04:05Z07:00",
            Precision::Micros => "2006-01-02T15:04:05.000000Z07:00",
        };
        format!("parsing time {:?} as {layout:?}: cannot parse {rest:?} as {element:?}", self.text)
    }

    fn out_of_range(&self, what: &str) -> String {
        format!("parsing time {:?}: {what} out of range", self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(precision: Precision, text: &str) -> String {
        match canonical(text, precision) {
            Ok(made) => made.unwrap_or_else(|| text.to_owned()),
            Err(error) => error,
        }
    }

    #[test]
    fn seconds() {
        for (text, want) in [
            ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
            ("2020-01-01T00:00:00+02:00", "2019-12-31T22:00:00Z"),
            ("2020-02-29T23:59:59.999Z", "2020-02-29T23:59:59Z"),
            ("2020-01-01T5:00:00Z", "2020-01-01T05:00:00Z"),
            ("xx", r#"parsing time "xx" as "2006-01-02T15:04:05Z07:00": cannot parse "xx" as "2006""#),
            ("", r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#),
            (
                "2020-01-01",
                r#"parsing time "2020-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#,
            ),
            ("2020-13-01T00:00:00Z", r#"parsing time "2020-13-01T00:00:00Z": month out of range"#),
            ("2021-02-29T00:00:00Z", r#"parsing time "2021-02-29T00:00:00Z": day out of range"#),
            ("2020-01-01T24:00:00Z", r#"parsing time "2020-01-01T24:00:00Z": hour out of range"#),
            ("2020-01-01T00:00:00Zx", r#"parsing time "2020-01-01T00:00:00Zx": extra text: "x""#),
            (
                "2020-01-01T00:00:00é",
                r#"parsing time "2020-01-01T00:00:00é" as "2006-01-02T15:04:05Z07:00": cannot parse "é" as "Z07:00""#,
            ),
        ] {
            assert_eq!(check(Precision::Seconds, text), want);
        }
    }

    /// The refusals are those of a real server.
    #[test]
    fn micros() {
        for (text, want) in [
            ("2020-01-01T00:00:00.123456+01:00", "2019-12-31T23:00:00.123456Z"),
            (
                "2020-01-01T00:00:00Z",
                r#"parsing time "2020-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#,
            ),
            (
                "2020-01-01T00:00:00.1234567+01:00",
                r#"parsing time "2020-01-01T00:00:00.1234567+01:00" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "7+01:00" as "Z07:00""#,
            ),
        ] {
            assert_eq!(check(Precision::Micros, text), want);
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,40}", near in "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}[.,0-9]{0,9}(Z|[+-][0-9]{2}:[0-9]{2})") {
            for text in [text, near] {
                let _ = canonical(&text, Precision::Seconds);
                let _ = canonical(&text, Precision::Micros);
            }
        }

        #[test]
        fn plain_agrees_with_the_parser(text in "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]Z") {
            if plain(&text) {
                let parsed = parse(&text, Precision::Seconds).map(|t| write(t, Precision::Seconds));
                prop_assert_eq!(parsed, Ok(text));
            }
        }
    }
}
