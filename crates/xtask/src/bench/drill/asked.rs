//! Who was asked, by what the servers themselves write down of requests: which came while the lost cluster was still in rotation.
//!
//! Clients see that a request took long, not why: on a machine that is full, one that was never sent to the lost cluster waits behind those that
//! were. So every server of a drill writes down which requests it asked of more than one, and of whom.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

/// A line of nginx: when it ended, how long it took, and whom it was sent to, one after the other.
pub(super) const NGINX_LINE: &str = "$msec $request_time $upstream_addr";
/// A line of haproxy: when it ended and how long it took, in milliseconds; who was asked last, and how often again.
pub(super) const HAPROXY_LINE: &str = "%[date(0,ms)] %Ta %s %rc";
/// What haproxy calls the server that is lost.
const NEAR: &str = "near";

/// When the requests came, since the epoch, that a server sent to the lost cluster.
pub(super) fn of(server: &str, log: &str, near: &str, at: SocketAddr) -> Vec<Duration> {
    let came = |line: &str| match server {
        "nginx" => nginx(line, at),
        "haproxy" => haproxy(line),
        _ => ours(line, near),
    };
    log.lines().filter_map(came).collect()
}

fn ours(line: &str, near: &str) -> Option<Duration> {
    let line: Value = serde_json::from_str(line).ok()?;
    let ended: Timestamp = line["time"].as_str()?.parse().ok()?;
    let ended = Duration::try_from(ended.as_duration()).ok()?;
    let tried = line["tried"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sent = line["cluster"] == near || tried.iter().any(|cluster| cluster == near);
    sent.then_some(ended.saturating_sub(ms(line["tookMs"].as_f64()?)))
}

fn nginx(line: &str, near: SocketAddr) -> Option<Duration> {
    let mut words = line.splitn(3, ' ');
    let (ended, took) = (words.next()?.parse::<f64>().ok()?, words.next()?.parse::<f64>().ok()?);
    let mut asked = words.next()?.split([',', ' ', ':']).map(str::trim);
    let near = near.ip().to_string();
    asked.any(|address| address == near).then(|| ms((ended - took) * 1e3))
}

fn haproxy(line: &str) -> Option<Duration> {
    let mut words = line.split(' ');
    let (ended, took) = (words.next()?.parse::<f64>().ok()?, words.next()?.parse::<f64>().ok()?);
    let (last, again) = (words.next()?, words.next()?);
    (last == NEAR || again != "0").then(|| ms(ended - took))
}

fn ms(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_asked_first_is_found_in_every_log() {
        let ours = r#"{"time":"1970-01-01T00:00:10.500Z","tookMs":500.0,"cluster":"eu-west","retries":0}
            {"time":"1970-01-01T00:00:11.500Z","tookMs":500.0,"cluster":"asia-east","tried":["eu-west"]}
            {"time":"1970-01-01T00:00:12.500Z","tookMs":1.0,"cluster":"asia-east","tried":["asia-east"]}
            what is no line is passed over"#;
        let nginx =
            "10.500 0.500 10.0.0.1:80\n11.500 0.500 10.0.0.1:80, 10.0.0.2:80\n12.500 0.001 10.0.0.2:80\nno\n";
        let haproxy = "10500 500 near 0\n11500 500 next +1\n12500 1 next 0\nno\n";
        let s = Duration::from_secs;
        for (server, log) in [("landfall", ours), ("nginx", nginx), ("haproxy", haproxy)] {
            let all = of(server, log, "eu-west", "10.0.0.1:80".parse().unwrap());
            assert_eq!(all, [s(10), s(11)], "{server}");
        }
    }
}
