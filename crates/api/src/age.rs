//! Ages for people: `5m3s`, `47h`, `2d1h`; two or three significant figures, as kubectl shows them.

/// A span of time in words. A span a little in the future counts as now, because clocks differ.
pub fn human(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..-1 => "<invalid>".into(),
        -1 => "0s".into(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => pair(days / 365, 'y', days % 365, 'd'),
        252_288_000.. => format!("{}y", days / 365),
    }
}

/// The time since an RFC 3339 timestamp; `<unknown>` when there is none.
pub fn since(timestamp: Option<&str>, now_s: i64) -> String {
    seconds(timestamp).map_or_else(|| "<unknown>".into(), |then| human(now_s.saturating_sub(then)))
}

/// An RFC 3339 timestamp in seconds since 1970, if it is one.
pub fn seconds(timestamp: Option<&str>) -> Option<i64> {
    timestamp?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

fn pair(large: i64, large_unit: char, small: i64, small_unit: char) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_worded_as_kubectl_does() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 3600;
        const DAY: i64 = 86_400;
        for (seconds, words) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (303, "5m3s"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (7 * HOUR + 59 * MINUTE, "7h59m"),
            (8 * HOUR, "8h"),
            (47 * HOUR + 59 * MINUTE, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY, "8d"),
            (729 * DAY, "729d"),
            (730 * DAY, "2y"),
            (731 * DAY, "2y1d"),
            (8 * 365 * DAY, "8y"),
            (10 * 365 * DAY + 20 * DAY, "10y"),
        ] {
            assert_eq!(human(seconds), words, "{seconds}");
        }
    }

    #[test]
    fn times_that_are_not_there_are_unknown() {
        assert_eq!(since(None, 10), "<unknown>");
        assert_eq!(since(Some("yesterday"), 10), "<unknown>");
        assert_eq!(since(Some("1970-01-01T00:00:00Z"), 10), "10s");
        assert_eq!(since(Some("1970-01-01T00:00:00.999999Z"), 10), "10s");
    }
}
