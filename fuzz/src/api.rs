//! Decoders of `landfall-api`: none may panic, and what they take in must survive what comes next.
//!
//! Used by the fuzz targets, and by a test of `landfall-api` that runs the corpora.

use landfall_api::decode::{Decoded, Strict, expect_object, parse_json, parse_yaml};
use landfall_api::schema::quantity::Quantity;
use landfall_api::schema::time::{self, Precision};
use landfall_api::schema::{complete, normalize, of_kind};
use landfall_api::wire;
use serde_json::Value;

/// A body in JSON; what is taken in is the same again after it was written out.
pub fn json(body: &[u8]) {
    if let Ok(decoded) = parse_json(body) {
        let again = parse_json(decoded.value.to_string().as_bytes()).expect("our own JSON");
        assert_eq!(again.value, decoded.value);
        object(&decoded);
    }
}

/// A body in YAML.
pub fn yaml(body: &[u8]) {
    if let Ok(decoded) = parse_yaml(body) {
        object(&decoded);
    }
}

/// A body in protobuf.
pub fn protobuf(body: &[u8]) {
    let value = wire::parse(body, "v1", "Pod");
    object(&Decoded { value: value.unwrap_or_default(), duplicates: Vec::new() });
}

/// A quantity; its canonical form has the same value.
pub fn quantity(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    if let Ok(canonical) = Quantity::canonical(text) {
        let [once, twice] = [text, &*canonical].map(Quantity::parse);
        // Past E there is no suffix to write, and Kubernetes writes none.
        if once.is_ok_and(|quantity| quantity.value() < i64::MAX && quantity.value() > i64::MIN) {
            assert_eq!(once, twice);
        }
    }
}

/// A time; its canonical form is canonical.
pub fn time(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    for precision in [Precision::Seconds, Precision::Micros] {
        if let Ok(Some(made)) = time::canonical(text, precision) {
            assert_eq!(time::canonical(&made, precision), Ok(None));
        }
    }
}

/// What a server does with an object: normalising it twice is normalising it once.
fn object(decoded: &Decoded) {
    if expect_object(&decoded.value).is_err() {
        return;
    }
    let text = |field: &str| decoded.value.get(field).and_then(Value::as_str).unwrap_or("");
    let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or_else(|| ("", text("apiVersion")));
    let Some(of) = of_kind(group, version, text("kind")).or_else(|| of_kind("", "v1", "Pod")) else { return };
    let mut object = decoded.value.clone();
    let report = normalize(of.get(), &mut object);
    let _ = Strict::new(&decoded.duplicates, &report).error();
    if report.error.is_none() {
        let once = object.clone();
        assert!(normalize(of.get(), &mut object).is_clean());
        assert_eq!(object, once);
        complete(of.get(), &mut object);
    }
}
