//! Objects kept small: shards of one kind look alike, so each is kept as what differs from a pattern.

use std::sync::{Arc, OnceLock};

use lz4_flex::block;

/// A pattern is no longer than this: more of it is hardly ever alike, and all of it is read for every object.
const PATTERN_MAX: usize = 8 << 10;

/// What the objects of one kind look like, taken from one of them.
#[derive(Clone, Debug, Default)]
pub struct Pattern(OnceLock<Arc<[u8]>>);

/// Bytes that were packed.
#[derive(Debug, Default)]
pub struct Packed {
    bytes: Box<[u8]>,
    /// How long they were.
    length: usize,
    pattern: Option<Arc<[u8]>>,
}

impl Pattern {
    /// From now on objects are compared with this one, unless there is a pattern.
    pub fn offer(&self, bytes: &[u8]) {
        self.0.get_or_init(|| bytes.get(..PATTERN_MAX).unwrap_or(bytes).into());
    }

    /// Packs some bytes.
    pub fn pack(&self, bytes: &[u8]) -> Packed {
        let pattern = self.0.get().cloned();
        let packed = block::compress_with_dict(bytes, pattern.as_deref().unwrap_or_default());
        Packed { bytes: packed.into(), length: bytes.len(), pattern }
    }
}

impl Packed {
    /// The bytes as they were.
    pub fn unpack(&self) -> Vec<u8> {
        let pattern = self.pattern.as_deref().unwrap_or_default();
        // What was packed here can be unpacked here.
        block::decompress_with_dict(&self.bytes, self.length, pattern).unwrap_or_default()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl PartialEq for Packed {
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length && (self.bytes == other.bytes || self.unpack() == other.unpack())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(name: &str, address: u32) -> Vec<u8> {
        let object = serde_json::json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}, "uid": format!("u{address}")},
            "spec": {"ports": [{"port": 80, "protocol": "TCP"}], "clusterIP": format!("10.0.0.{address}")},
        });
        object.to_string().into_bytes()
    }

    #[test]
    fn what_looks_like_the_pattern_takes_little_room_and_comes_back_whole() {
        let pattern = Pattern::default();
        let early = pattern.pack(&shard("web", 1));
        pattern.offer(&shard("web", 1));
        // There is one already.
        pattern.offer(b"something else");
        for address in 2..20 {
            let bytes = shard("web", address);
            let packed = pattern.pack(&bytes);
            assert_eq!(packed.unpack(), bytes);
            assert!(packed.bytes.len() * 4 < bytes.len(), "{} of {}", packed.bytes.len(), bytes.len());
            assert!(packed != early && !packed.is_empty());
        }
        assert_eq!(early.unpack(), shard("web", 1));
        assert!(early == pattern.pack(&shard("web", 1)), "however it was packed");
        assert!(pattern.pack(b"").is_empty());
    }

    #[test]
    fn whatever_the_bytes_are_they_come_back() {
        let pattern = Pattern::default();
        let long: Vec<u8> =
            (0..100_000_u32).flat_map(|n| (n.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
        for bytes in [&long[..], &long[..PATTERN_MAX + 1], b"{}", b"a", &[0; 70_000]] {
            assert_eq!(pattern.pack(bytes).unpack(), bytes);
            pattern.offer(bytes);
            assert_eq!(pattern.pack(bytes).unpack(), bytes);
        }
    }
}
