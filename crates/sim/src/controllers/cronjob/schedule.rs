//! Schedules in cron's five fields.

use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

use crate::controllers::read::Millis;

/// When something is due.
pub(super) struct Schedule {
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

/// Names that stand for five fields.
const NAMED: [(&str, &str); 8] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
    ("@every 1m", "* * * * *"),
];
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// How many days ahead a due time is looked for: February 29 is at most eight years away.
const DAYS_MAX: u32 = 8 * 366;

impl Schedule {
    /// Reads a schedule; none when it is not one. An empty zone is UTC.
    pub(super) fn parse(text: &str, zone: &str) -> Option<Self> {
        let text = NAMED.iter().find(|(name, _)| *name == text.trim()).map_or(text, |(_, fields)| fields);
        let zone = if zone.is_empty() { TimeZone::UTC } else { TimeZone::get(zone).ok()? };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else { return None };
        let mut weekdays = set(weekday, 0, 7, &WEEKDAYS, 0)?;
        // Sunday is 0 and 7.
        weekdays |= (weekdays >> 7) & 1;
        Some(Self {
            minutes: set(minute, 0, 59, &[], 0)?,
            hours: set(hour, 0, 23, &[], 0)?,
            days: set(day, 1, 31, &[], 0)?,
            months: set(month, 1, 12, &MONTHS, 1)?,
            weekdays,
            any_day: day.starts_with(['*', '?']),
            any_weekday: weekday.starts_with(['*', '?']),
            zone,
        })
    }

    /// The first due time after `after`.
    pub(super) fn next(&self, after: Millis) -> Option<Millis> {
        let start = Timestamp::from_millisecond(after).ok()?.to_zoned(self.zone.clone());
        let start = start.checked_add(1.minute()).ok()?;
        let start = start.with().second(0).subsec_nanosecond(0).build().ok()?;
        let mut day = start.start_of_day().ok()?;
        for _ in 0..DAYS_MAX {
            if self.has_day(&day) {
                let found = self.within(&day, &start);
                if found.is_some() {
                    return found;
                }
            }
            day = day.checked_add(1.day()).ok()?.start_of_day().ok()?;
        }
        None
    }

    fn within(&self, day: &Zoned, start: &Zoned) -> Option<Millis> {
        let bits = |set: u64, end: i8| (0..end).filter(move |n| set >> n & 1 == 1);
        for hour in bits(self.hours, 24) {
            for minute in bits(self.minutes, 60) {
                let at = day.with().hour(hour).minute(minute).second(0).build().ok()?;
                if at >= *start {
                    return Some(at.timestamp().as_millisecond());
                }
            }
        }
        None
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schedule: &str, zone: &str, after: &str, expected: &str) {
        let after = after.parse::<Timestamp>().unwrap().as_millisecond();
        let next = Schedule::parse(schedule, zone).and_then(|schedule| schedule.next(after));
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
    }
}
