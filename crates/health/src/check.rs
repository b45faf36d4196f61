//! `Check`: how a target is probed, with everything filled in.

use std::time::Duration;

use landfall_api::landfall::{HealthCheck, ProbeProtocol};

/// What a probe speaks.
pub type Protocol = ProbeProtocol;

/// How often a target is probed when nobody says.
const INTERVAL_MS: i32 = 1_000;
/// How long a probe may take when nobody says.
const TIMEOUT_MS: i32 = 800;
/// No probe is made more often, and none may take less or more.
const INTERVAL_MS_MIN: i32 = 100;
const TIMEOUT_MS_MIN: i32 = 10;
const TIMEOUT_MS_MAX: i32 = 60_000;
const INTERVAL_MS_MAX: i32 = 3_600_000;
/// So many failures in a row are down, and so many successes up.
const DOWN_THRESHOLD: i32 = 3;
const UP_THRESHOLD: i32 = 2;
/// What is well when nobody says: what kubelets take for well.
const STATUSES: (u16, u16) = (200, 399);

/// How a target is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is spoken.
    pub protocol: Protocol,
    /// The path, for HTTP.
    pub path: String,
    /// The host, for HTTP and TLS; the address when empty.
    pub host: String,
    /// Ranges of status codes that are well.
    pub statuses: Vec<(u16, u16)>,
    /// What the body must contain; anything when empty.
    pub body: String,
    /// The service name, for gRPC.
    pub grpc_service: String,
    /// Time between probes.
    pub interval: Duration,
    /// How long one may take.
    pub timeout: Duration,
    /// So many in a row fail: down.
    pub down_threshold: u32,
    /// So many in a row succeed: up.
    pub up_threshold: u32,
}

impl Default for Check {
    fn default() -> Self {
        Self::new(&HealthCheck::default())
    }
}

impl Check {
    /// A check as a policy says it. What is out of bounds is brought into them: a check that cannot be followed to the letter
    /// must not leave a target without probes.
    pub fn new(given: &HealthCheck) -> Self {
        let ms = |given: Option<i32>, usual: i32, min: i32, max: i32| {
            let ms = given.unwrap_or(usual).clamp(min, max);
            Duration::from_millis(u64::from(ms.unsigned_abs()))
        };
        let count = |given: Option<i32>, usual: i32| given.unwrap_or(usual).clamp(1, 100).unsigned_abs();
        let mut statuses: Vec<_> = given.expected_statuses.iter().filter_map(|text| statuses(text)).collect();
        if statuses.is_empty() {
            statuses.push(STATUSES);
        }
        let path = given.path.clone().unwrap_or_default();
        Self {
            protocol: given.protocol,
            path: if path.starts_with('/') { path } else { format!("/{path}") },
            host: given.host.clone().unwrap_or_default(),
            statuses,
            body: given.expected_body.clone().unwrap_or_default(),
            grpc_service: given.grpc_service.clone().unwrap_or_default(),
            interval: ms(given.interval_ms, INTERVAL_MS, INTERVAL_MS_MIN, INTERVAL_MS_MAX),
            timeout: ms(given.timeout_ms, TIMEOUT_MS, TIMEOUT_MS_MIN, TIMEOUT_MS_MAX),
            down_threshold: count(given.down_threshold, DOWN_THRESHOLD),
            up_threshold: count(given.up_threshold, UP_THRESHOLD),
        }
    }

    /// Whether a status code is well.
    pub fn expects(&self, status: u16) -> bool {
        self.statuses.iter().any(|(low, high)| (*low..=*high).contains(&status))
    }
}

/// `200`, or `200-299`.
fn statuses(text: &str) -> Option<(u16, u16)> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
    (low <= high).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_usual() {
        let check = Check::default();
        assert_eq!((check.interval, check.timeout), (Duration::from_secs(1), Duration::from_millis(800)));
        assert_eq!((check.down_threshold, check.up_threshold), (3, 2));
        assert_eq!(check.path, "/");
        assert!(check.expects(200) && check.expects(302) && !check.expects(404));
    }

    #[test]
    fn what_is_said_counts_within_bounds() {
        let given = HealthCheck {
            path: Some("live".into()),
            expected_statuses: vec!["204".into(), "500-503".into(), "x".into(), "9-1".into()],
            interval_ms: Some(-5),
            timeout_ms: Some(i32::MAX),
            down_threshold: Some(0),
            ..HealthCheck::default()
        };
        let check = Check::new(&given);
        assert_eq!(check.path, "/live");
        assert!(check.expects(204) && check.expects(502) && !check.expects(200));
        assert_eq!((check.interval, check.timeout), (Duration::from_millis(100), Duration::from_secs(60)));
        assert_eq!(check.down_threshold, 1);
    }
}
