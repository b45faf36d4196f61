//! Schedules: cron's five fields, or `@every` so long.

use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

use crate::controllers::read::Millis;

/// When something is due.
pub(super) enum Schedule {
    /// At times of day.
    Fields(Fields),
    /// So long after the last time, in whole seconds.
    Every(Millis),
}

/// Cron's five fields as sets of bits.
pub(super) struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether days of the month, and of the week, are named: then either is enough.
    any_day: bool,
    any_weekday: bool,
    zone: TimeZone,
}

/// Why a schedule cannot be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// There is no such time zone.
    Zone,
    /// The schedule is none, and why.
    Schedule(String),
}

/// Names that stand for five fields.
const NAMED: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
/// Units of durations, in milliseconds. Longer names first where one begins with another.
const UNITS: [(&str, f64); 7] =
    [("ns", 1e-6), ("us", 1e-3), ("µs", 1e-3), ("ms", 1.0), ("s", 1e3), ("m", 60e3), ("h", 3_600e3)];
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// How many days ahead or back a due time is looked for: February 29 is at most eight years away.
const DAYS_MAX: u32 = 8 * 366;

impl Schedule {
    /// Reads a schedule. An empty zone is UTC.
    pub(super) fn parse(text: &str, zone: &str) -> Result<Self, Unreadable> {
        let zone = match zone {
            "" => TimeZone::UTC,
            zone => TimeZone::get(zone).map_err(|_| Unreadable::Zone)?,
        };
        let text = text.trim();
        if let Some(duration) = text.strip_prefix("@every ") {
            let wrong = || Unreadable::Schedule(format!("failed to parse duration {text}"));
            return Ok(Self::Every(duration_ms(duration).ok_or_else(wrong)?.max(1000) / 1000 * 1000));
        }
        let named = NAMED.iter().find(|(name, _)| *name == text);
        if text.starts_with('@') && named.is_none() {
            return Err(Unreadable::Schedule(format!("unrecognized descriptor: {text}")));
        }
        let fields: Vec<&str> = named.map_or(text, |(_, fields)| fields).split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            let (count, fields) = (fields.len(), fields.join(" "));
            let why = format!("expected exactly 5 fields, found {count}: [{fields}]");
            return Err(Unreadable::Schedule(why));
        };
        let bits = |field: &str, least, most, names: &[&str], first| {
            let wrong = || Unreadable::Schedule(format!("failed to parse {field}"));
            set(field, least, most, names, first).ok_or_else(wrong)
        };
        let mut weekdays = bits(weekday, 0, 7, &WEEKDAYS, 0)?;
        // Sunday is 0 and 7.
        weekdays |= (weekdays >> 7) & 1;
        Ok(Self::Fields(Fields {
            minutes: bits(minute, 0, 59, &[], 0)?,
            hours: bits(hour, 0, 23, &[], 0)?,
            days: bits(day, 1, 31, &[], 0)?,
            months: bits(month, 1, 12, &MONTHS, 1)?,
            weekdays,
            any_day: day.starts_with(['*', '?']),
            any_weekday: weekday.starts_with(['*', '?']),
            zone,
        }))
    }

    /// The first due time after `after`.
    pub(super) fn next(&self, after: Millis) -> Option<Millis> {
        match self {
            Self::Fields(fields) => fields.next(after),
            Self::Every(every) => after.div_euclid(1000).checked_mul(1000)?.checked_add(*every),
        }
    }

    /// The last due time after `after` and until `now`. Found from `now` backwards: it does not matter how many there
    /// are between.
    pub(super) fn last(&self, after: Millis, now: Millis) -> Option<Millis> {
        let first = self.next(after).filter(|first| *first <= now)?;
        match self {
            Self::Fields(fields) => fields.last(now).filter(|last| *last > after),
            Self::Every(every) => Some(now.saturating_sub(now.saturating_sub(first) % every)),
        }
    }

    /// About how many times are due after `after` and until `now`, if the first two are as far apart as all others.
    pub(super) fn count(&self, after: Millis, now: Millis) -> i64 {
        let Some(first) = self.next(after).filter(|first| *first <= now) else { return 0 };
        let apart = self.next(first).map_or(i64::MAX, |second| second.saturating_sub(first));
        now.saturating_sub(first) / apart.max(1) + 1
    }
}

impl Fields {
    fn next(&self, after: Millis) -> Option<Millis> {
        let start = Timestamp::from_millisecond(after).ok()?.to_zoned(self.zone.clone());
        let start = start.checked_add(1.minute()).ok()?;
        let start = start.with().second(0).subsec_nanosecond(0).build().ok()?;
        let mut day = start.start_of_day().ok()?;
        for _ in 0..DAYS_MAX {
            let found = self.of_day(&day).into_iter().flatten().find(|at| *at >= start);
            if let Some(found) = found {
                return Some(found.timestamp().as_millisecond());
            }
            day = day.checked_add(1.day()).ok()?.start_of_day().ok()?;
        }
        None
    }

    fn last(&self, now: Millis) -> Option<Millis> {
        let end = Timestamp::from_millisecond(now).ok()?.to_zoned(self.zone.clone());
        let mut day = end.start_of_day().ok()?;
        for _ in 0..DAYS_MAX {
            let found = self.of_day(&day).into_iter().flatten().rev().find(|at| *at <= end);
            if let Some(found) = found {
                return Some(found.timestamp().as_millisecond());
            }
            day = day.checked_sub(1.day()).ok()?.start_of_day().ok()?;
        }
        None
    }

    /// The due times of a day in order, if it has any.
    fn of_day<'a>(&'a self, day: &'a Zoned) -> Option<impl DoubleEndedIterator<Item = Zoned> + 'a> {
        let has = |set: u64, n: i8| set >> n & 1 == 1;
        let minutes = (0..24 * 60_i16).filter_map(move |n| {
            let (hour, minute) = (i8::try_from(n / 60).ok()?, i8::try_from(n % 60).ok()?);
            let due = has(self.hours, hour) && has(self.minutes, minute);
            if due { day.with().hour(hour).minute(minute).second(0).build().ok() } else { None }
        });
        self.has_day(day).then_some(minutes)
    }

    fn has_day(&self, day: &Zoned) -> bool {
        let weekday = match day.weekday() {
            Weekday::Sunday => 0,
            other => other.to_monday_one_offset(),
        };
        let month = self.months >> day.month() & 1 == 1;
        let (by_day, by_weekday) = (self.days >> day.day() & 1 == 1, self.weekdays >> weekday & 1 == 1);
        let either =
            if self.any_day || self.any_weekday { by_day && by_weekday } else { by_day || by_weekday };
        month && either
    }
}

/// A field as a set of bits.
fn set(field: &str, least: u64, most: u64, names: &[&str], first: u64) -> Option<u64> {
    let mut bits = 0_u64;
    for part in field.split(',') {
        let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let number = |text: &str| -> Option<u64> {
            let lower = text.to_ascii_lowercase();
            match names.iter().position(|name| *name == lower) {
                Some(at) => Some(first + u64::try_from(at).ok()?),
                None => text.parse().ok(),
            }
        };
        let (from, to) = match (range, range.split_once('-')) {
            ("*" | "?", _) => (least, if most == 7 { 6 } else { most }),
            (_, Some((from, to))) => (number(from)?, number(to)?),
            (one, None) => (number(one)?, if step.is_some() { most } else { number(one)? }),
        };
        let step: u64 = step.map_or(Some(1), |step| step.parse().ok())?;
        if from < least || to > most || from > to || step == 0 {
            return None;
        }
        let mut at = from;
        while at <= to {
            bits |= 1 << at;
            at = at.saturating_add(step);
        }
    }
    Some(bits)
}

/// A duration as Go writes it, `1h30m`, in milliseconds.
fn duration_ms(text: &str) -> Option<Millis> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut total = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() && rest != "0" {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let (unit, factor) = UNITS.iter().find(|(unit, _)| after.starts_with(unit))?;
        total += number.parse::<f64>().ok()? * factor;
        rest = after.strip_prefix(unit)?;
    }
    // Go's durations are nanoseconds in 64 bits.
    let fits = total.is_finite() && total <= 9.2e12;
    #[expect(clippy::cast_possible_truncation, reason = "it was looked at just above")]
    fits.then_some((sign * total) as Millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schedule: &str, zone: &str, after: &str, expected: &str) {
        let after = after.parse::<Timestamp>().unwrap().as_millisecond();
        let next = Schedule::parse(schedule, zone).ok().and_then(|schedule| schedule.next(after));
        let next = next.map(|at| Timestamp::from_millisecond(at).unwrap().to_string());
        assert_eq!(next.as_deref().unwrap_or("never"), expected, "{schedule}");
    }

    #[test]
    fn schedules_are_due_as_cron_says() {
        let now = "2026-02-27T10:02:30Z";
        check("*/5 * * * *", "", now, "2026-02-27T10:05:00Z");
        check("0 9 * * mon-fri", "", now, "2026-03-02T09:00:00Z");
        check("30 10 29 feb *", "", now, "2028-02-29T10:30:00Z");
        check("0 0 1 * sun", "", now, "2026-03-01T00:00:00Z");
        check("@hourly", "", now, "2026-02-27T11:00:00Z");
        check("0 12 * * 7", "America/New_York", now, "2026-03-01T17:00:00Z");
        check("2 10 * * *", "", now, "2026-02-28T10:02:00Z");
        check("61 * * * *", "", now, "never");
        check("* * *", "", now, "never");
        check("59 23 31 2 *", "", now, "never");
        check("*/18446744073709551615 * * * *", "", now, "2026-02-27T11:00:00Z");
        check("0 0 */18446744073709551615 * *", "", now, "2026-03-01T00:00:00Z");
        check("@every 1h30m", "", now, "2026-02-27T11:32:30Z");
        check("@every 1.5s", "", now, "2026-02-27T10:02:31Z");
        check("@every 5ms", "", now, "2026-02-27T10:02:31Z");
        check("@every", "", now, "never");
        check("@every 5", "", now, "never");
        check("@every 9223372036854775807h", "", now, "never");
        check("@never", "", now, "never");
    }

    /// The last time was found by going through all of them, which took seconds for a CronJob that slept for a week.
    #[test]
    fn the_last_time_is_found_however_many_were_missed() {
        for (schedule, after, now, expected, count) in [
            ("* * * * *", "1970-01-01T00:00:00Z", "2026-02-27T10:02:30Z", "2026-02-27T10:02:00Z", 29_536_442),
            ("*/5 * * * *", "2026-02-27T09:00:00Z", "2026-02-27T10:02:30Z", "2026-02-27T10:00:00Z", 12),
            ("* 9 * * *", "2026-02-26T08:00:00Z", "2026-02-27T15:00:00Z", "2026-02-27T09:59:00Z", 1801),
            ("0 0 29 2 *", "2020-01-01T00:00:00Z", "2026-02-27T15:00:00Z", "2024-02-29T00:00:00Z", 2),
            ("@every 10s", "2026-02-27T10:00:03Z", "2026-02-27T10:02:30Z", "2026-02-27T10:02:23Z", 14),
            ("*/5 * * * *", "2026-02-27T10:00:00Z", "2026-02-27T10:02:30Z", "none", 0),
            ("@every 10s", "2026-02-27T10:02:23Z", "2026-02-27T10:02:30Z", "none", 0),
        ] {
            let [after, now] = [after, now].map(|at| at.parse::<Timestamp>().unwrap().as_millisecond());
            let read = Schedule::parse(schedule, "").unwrap();
            let last = read.last(after, now);
            let last = last.map(|at| Timestamp::from_millisecond(at).unwrap().to_string());
            assert_eq!(last.as_deref().unwrap_or("none"), expected, "{schedule}");
            assert_eq!(read.count(after, now), count, "{schedule}");
        }
    }
}
