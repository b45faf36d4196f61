//! Stable hashes: the same on every machine and in every version, unlike the standard library's.

use serde_json::Value;

/// FNV-1, 32 bits, as Federation v1 broke ties with (not FNV-1a).
pub(crate) fn fnv1_32(parts: &[&str]) -> u32 {
    let bytes = parts.iter().flat_map(|part| part.bytes());
    bytes.fold(0x811c_9dc5, |hash: u32, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte))
}

/// A hash of a JSON value that does not depend on the order of its keys.
pub fn value(value: &Value) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    feed(value, &mut hash);
    hash.0
}

/// A hash of texts, one after the other. Similar texts have hashes that differ in all bits.
pub(crate) fn texts(parts: &[&str]) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    parts.iter().for_each(|part| hash.text(b's', part));
    mix(hash.0)
}

/// A hash of bytes, stirred well.
pub fn bytes(bytes: &[u8]) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    hash.bytes(bytes);
    mix(hash.0)
}

/// Stirs a number so that every bit of it sways every bit of the result (the finaliser of SplitMix64).
pub fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// FNV-1a, 64 bits.
struct Fnv(u64);

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// A text with its length before it, so that neighbours cannot run into each other.
    fn text(&mut self, tag: u8, text: &str) {
        self.bytes(&[tag]);
        self.bytes(&(text.len() as u64).to_le_bytes());
        self.bytes(text.as_bytes());
    }
}

fn feed(value: &Value, hash: &mut Fnv) {
    match value {
        Value::Null => hash.bytes(b"n"),
        Value::Bool(is) => hash.bytes(if *is { b"t" } else { b"f" }),
        Value::Number(number) => hash.text(b'#', &number.to_string()),
        Value::String(text) => hash.text(b's', text),
        Value::Array(list) => {
            hash.bytes(b"[");
            list.iter().for_each(|item| feed(item, hash));
            hash.bytes(b"]");
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            hash.bytes(b"{");
            for (key, value) in entries {
                hash.text(b'k', key);
                feed(value, hash);
            }
            hash.bytes(b"}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_1_and_not_1a() {
        // The published value of FNV-1 for "foobar"; FNV-1a gives 0xbf9cf968.
        assert_eq!(fnv1_32(&["foo", "bar"]), 0x31f0_b262);
    }

    #[test]
    fn the_hash_sees_values_and_not_the_order_of_keys() {
        let of = |text: &str| value(&serde_json::from_str(text).unwrap());
        assert_eq!(of(r#"{"a":1,"b":[true,null]}"#), of(r#"{"b":[true,null],"a":1}"#));
        for other in [r#"{"a":1,"b":[null,true]}"#, r#"{"a":"1","b":[true,null]}"#, r#"{"a":1}"#] {
            assert_ne!(of(r#"{"a":1,"b":[true,null]}"#), of(other), "{other}");
        }
    }
}
