//! Objects as bytes. An object is encoded once, when it is written; reads copy those bytes.
//!
//! Stored bytes are JSON whose first keys are always `apiVersion`, `kind`, `metadata`, and whose metadata has no
//! resourceVersion: that is the store's revision, known only after the commit. A read splices it in:
//!
//! ```text
//!   {"apiVersion":"v1","kind":"Service","metadata":{ ^ "name":"x",…},"spec":{…}}
//!                                                    └ "resourceVersion":"42",
//! ```
//!
//! Since everything before the splice follows from the kind, another served version of the same shape, or an item of
//! a list (which carries no apiVersion and kind), needs only another head.

use bytes::Bytes;
use landfall_api::Kind;
use landfall_store::Entry;
use serde_json::{Map, Value};

const METADATA: &[u8] = b"\"metadata\":{";

/// The `apiVersion` of a group and version.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The bytes to store for an object of this kind, in the kind's storage version.
pub fn stored(kind: &Kind, object: &Value) -> Bytes {
    let mut out = Vec::with_capacity(1024);
    write_head(&mut out, &kind.stored_as.0, &kind.storage_version, &kind.kind);
    let empty = Map::new();
    let metadata = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    write_members(&mut out, metadata, |key| key != "resourceVersion");
    out.push(b'}');
    if let Some(map) = object.as_object() {
        let mut rest = Vec::new();
        write_members(&mut rest, map, |key| !matches!(key, "apiVersion" | "kind" | "metadata"));
        if !rest.is_empty() {
            out.push(b',');
            out.extend_from_slice(&rest);
        }
    }
    out.push(b'}');
    // It is kept for as long as the object is, so without the room to grow, which allocators do not take back in place.
    Bytes::copy_from_slice(&out)
}

/// The object in an entry, with its resourceVersion, in the version it was stored in.
pub fn decode(entry: &Entry) -> Result<Value, serde_json::Error> {
    let mut object: Value = serde_json::from_slice(&entry.value)?;
    let metadata = landfall_api::meta::metadata_mut(&mut object);
    metadata.insert("resourceVersion".into(), Value::String(entry.revision.to_string()));
    Ok(object)
}

/// How the beginning of an object is written.
#[derive(Clone, Copy)]
pub enum Head<'a> {
    /// As it was stored.
    Stored,
    /// With this kind's own group and version.
    Of(&'a Kind),
    /// Without apiVersion and kind, as items of built-in lists are.
    Bare,
}

/// Whether an entry was stored with the group and version that this kind has. Objects stored before a definition
/// changed its storage version were not.
pub fn is_stored_as(entry: &Entry, kind: &Kind) -> bool {
    let rest = entry.value.strip_prefix(b"{\"apiVersion\":\"");
    let rest = match (rest, kind.group.is_empty()) {
        (Some(rest), true) => Some(rest),
        (Some(rest), false) => rest.strip_prefix(kind.group.as_bytes()).and_then(|r| r.strip_prefix(b"/")),
        (None, _) => None,
    };
    let rest = rest.and_then(|r| r.strip_prefix(kind.version.as_bytes()));
    let rest = rest
        .and_then(|r| r.strip_prefix(b"\",\"kind\":\""))
        .and_then(|r| r.strip_prefix(kind.kind.as_bytes()));
    rest.is_some_and(|r| r.starts_with(b"\","))
}

/// Appends the object of an entry.
pub fn write_object(out: &mut Vec<u8>, entry: &Entry, head: Head<'_>) {
    let at = splice_at(&entry.value);
    match head {
        Head::Stored => out.extend_from_slice(&entry.value[..at]),
        Head::Of(kind) => write_head(out, &kind.group, &kind.version, &kind.kind),
        Head::Bare => {
            out.push(b'{');
            out.extend_from_slice(METADATA);
        }
    }
    out.extend_from_slice(b"\"resourceVersion\":\"");
    write_number(out, entry.revision);
    out.push(b'"');
    if entry.value.get(at) != Some(&b'}') {
        out.push(b',');
    }
    out.extend_from_slice(&entry.value[at..]);
}

/// The object of an entry as one buffer.
pub fn object(entry: &Entry, head: Head<'_>) -> Bytes {
    let mut out = Vec::with_capacity(entry.value.len() + 64);
    write_object(&mut out, entry, head);
    Bytes::from(out)
}

/// Appends a decimal number without allocating.
pub fn write_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).expect("a remainder by ten is one digit");
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a JSON string.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing to memory cannot fail");
}

fn write_head(out: &mut Vec<u8>, group: &str, version: &str, kind: &str) {
    out.extend_from_slice(b"{\"apiVersion\":\"");
    if !group.is_empty() {
        out.extend_from_slice(group.as_bytes());
        out.push(b'/');
    }
    for part in [version, "\",\"kind\":\"", kind, "\","] {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(METADATA);
}

fn write_members(out: &mut Vec<u8>, map: &Map<String, Value>, keep: impl Fn(&str) -> bool) {
    let mut first = true;
    for (key, value) in map.iter().filter(|(key, _)| keep(key)) {
        if !first {
            out.push(b',');
        }
        first = false;
        write_string(out, key);
        out.push(b':');
        serde_json::to_writer(&mut *out, value).expect("writing to memory cannot fail");
    }
}

/// Where metadata's members begin. Bytes of another shape (written by something else into a shared etcd) give their
/// end, so that nothing is cut apart.
fn splice_at(value: &[u8]) -> usize {
    value.windows(METADATA.len()).position(|w| w == METADATA).map_or(value.len(), |at| at + METADATA.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(value: Bytes, revision: u64) -> Entry {
        Entry { key: "core/x/y".into(), value, created: 1, revision, memo: landfall_store::Memo::default() }
    }

    fn kind() -> Kind {
        landfall_api::kinds::federation().into_iter().find(|k| k.kind == "Deployment").unwrap()
    }

    #[test]
    fn an_object_is_spliced_not_reencoded() {
        let object = json!({
            "spec": {"replicas": 1}, "apiVersion": "ignored", "kind": "ignored",
            "metadata": {"name": "a", "resourceVersion": "7", "labels": {"metadata": "{}"}}
        });
        let entry = entry(stored(&kind(), &object), 42);
        let kind = kind();
        let text = |head| String::from_utf8(super::object(&entry, head).to_vec()).unwrap();
        let rest = r#""resourceVersion":"42","labels":{"metadata":"{}"},"name":"a"},"spec":{"replicas":1}}"#;
        let full = format!(r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{{rest}"#);
        assert_eq!(text(Head::Stored), full);
        assert_eq!(text(Head::Of(&kind)), full);
        assert_eq!(text(Head::Bare), format!(r#"{{"metadata":{{{rest}"#));
        let decoded = decode(&entry).unwrap();
        assert_eq!(decoded, serde_json::from_str::<Value>(&full).unwrap());
    }

    #[test]
    fn a_head_of_another_version_is_seen_and_replaced() {
        let (old, mut new) = (kind(), kind());
        (new.version, new.storage_version) = ("v2".into(), "v2".into());
        let entry = entry(stored(&old, &json!({"metadata": {"name": "a"}})), 3);
        assert!(is_stored_as(&entry, &old));
        assert!(!is_stored_as(&entry, &new));
        let text = super::object(&entry, Head::Of(&new));
        assert!(text.starts_with(
            br#"{"apiVersion":"apps/v2","kind":"Deployment","metadata":{"resourceVersion":"3""#
        ));
    }

    #[test]
    fn numbers() {
        for number in [0, 9, 10, 12_345, u64::MAX] {
            let mut out = Vec::new();
            write_number(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }
}
