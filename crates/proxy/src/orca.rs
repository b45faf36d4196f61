//! How busy an endpoint says that it is: ORCA load reports, in the headers of its answers.
//!
//! `endpoint-load-metrics: TEXT cpu_utilization=0.3, mem_utilization=0.8`, the same as `JSON {"cpu_utilization": 0.3}`, or
//! `endpoint-load-metrics-bin` with an encoded `xds.data.orca.v3.OrcaLoadReport`. What the application says of itself counts before
//! what it says of its processor. What cannot be read is as if it were not there.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::{HeaderMap, HeaderName};
use prost::Message as _;

/// In words.
pub(crate) const TEXT: &str = "endpoint-load-metrics";
/// Encoded.
pub(crate) const BINARY: &str = "endpoint-load-metrics-bin";

const TEXT_NAME: HeaderName = HeaderName::from_static(TEXT);
const BINARY_NAME: HeaderName = HeaderName::from_static(BINARY);

/// No more than so many bytes are read.
const LENGTH_MAX: usize = 4096;
/// Nobody is busier than this many times its capacity.
const USED_MAX: f64 = 10.0;

/// The fields of a report that count.
#[derive(Clone, PartialEq, prost::Message)]
struct Report {
    #[prost(double, tag = "1")]
    cpu_utilization: f64,
    #[prost(double, tag = "9")]
    application_utilization: f64,
}

/// How busy the sender of these headers is, as a part of its capacity.
pub(crate) fn used(headers: &HeaderMap) -> Option<f64> {
    let text = headers.get(TEXT_NAME).and_then(|value| used_in(TEXT, value.as_bytes()));
    text.or_else(|| headers.get(BINARY_NAME).and_then(|value| used_in(BINARY, value.as_bytes())))
}

/// Takes the headers away: they are not for clients.
pub(crate) fn strip(headers: &mut HeaderMap) {
    headers.remove(TEXT_NAME);
    headers.remove(BINARY_NAME);
}

/// The same of one header, by its name in lower case.
pub(crate) fn used_in(name: &str, value: &[u8]) -> Option<f64> {
    let value = std::str::from_utf8(value).ok().filter(|value| value.len() <= LENGTH_MAX)?.trim();
    let report = if name == BINARY { binary(value)? } else { worded(value)? };
    let sound = |used: f64| Some(used).filter(|used| *used > 0.0).map(|used| used.min(USED_MAX));
    sound(report.application_utilization).or_else(|| sound(report.cpu_utilization))
}

fn worded(value: &str) -> Option<Report> {
    let (form, rest) = value.split_once(' ').unwrap_or((value, ""));
    match form {
        "JSON" => json(rest),
        "BIN" => binary(rest.trim()),
        "TEXT" => text(rest),
        // Without a word it is what it looks like.
        _ if value.starts_with('{') => json(value),
        _ => text(value),
    }
}

fn text(pairs: &str) -> Option<Report> {
    let mut report = Report::default();
    for pair in pairs.split(',') {
        let (name, value) = pair.split_once('=')?;
        report.set(name.trim(), || value.trim().parse().ok());
    }
    Some(report)
}

fn json(object: &str) -> Option<Report> {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(object).ok()?;
    let mut report = Report::default();
    for (name, value) in &object {
        report.set(name, || value.as_f64());
    }
    Some(report)
}

fn binary(encoded: &str) -> Option<Report> {
    let bytes = STANDARD.decode(encoded).or_else(|_| STANDARD_NO_PAD.decode(encoded)).ok()?;
    Report::decode(bytes.as_slice()).ok()
}

impl Report {
    fn set(&mut self, name: &str, value: impl FnOnce() -> Option<f64>) {
        match name {
            "cpu_utilization" | "cpuUtilization" => self.cpu_utilization = value().unwrap_or(0.0),
            "application_utilization" | "applicationUtilization" => {
                self.application_utilization = value().unwrap_or(0.0);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_in_every_form_and_nonsense_in_none() {
        // field 1: 0.5, field 2 (memory): 0.9, field 9: 0.25
        let mut bytes = Report { cpu_utilization: 0.5, application_utilization: 0.25 }.encode_to_vec();
        bytes.extend([0x11, 0xcd, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xec, 0x3f]);
        let encoded = STANDARD.encode(&bytes);
        let both = format!("BIN {encoded}");
        for (name, value, want) in [
            (TEXT, "TEXT cpu_utilization=0.3, mem_utilization=0.8, named_metrics.x=1", Some(0.3)),
            (TEXT, "cpu_utilization=0.3", Some(0.3)),
            (TEXT, "TEXT application_utilization=0.7,cpu_utilization=0.3", Some(0.7)),
            (TEXT, "JSON {\"cpu_utilization\": 0.3, \"named_metrics\": {\"x\": 1}}", Some(0.3)),
            (TEXT, "{\"cpuUtilization\": 2}", Some(2.0)),
            (TEXT, "JSON {\"cpu_utilization\": 1e300}", Some(10.0)),
            (TEXT, both.as_str(), Some(0.25)),
            (BINARY, encoded.as_str(), Some(0.25)),
            (BINARY, encoded.trim_end_matches('='), Some(0.25)),
            (TEXT, "TEXT mem_utilization=0.8", None),
            (TEXT, "TEXT cpu_utilization=NaN", None),
            (TEXT, "TEXT cpu_utilization=-1", None),
            (TEXT, "TEXT cpu_utilization", None),
            (TEXT, "JSON [1]", None),
            (TEXT, "JSON {\"cpu_utilization\": \"much\"}", None),
            (TEXT, "", None),
            (BINARY, "!!", None),
            (BINARY, "////", None),
        ] {
            assert_eq!(used_in(name, value.as_bytes()), want, "{value}");
        }
        assert_eq!(used_in(TEXT, &[0xff]), None);
    }
}
