//! How our keys lie in etcd: everything under one root, objects apart from what we need for ourselves, some sealed.

use bytes::Bytes;

use crate::Seals;

/// The names under the root.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    root: String,
    objects: String,
    /// Which values are encrypted there.
    pub(super) seals: Seals,
}

impl Keys {
    /// Names under a root, which ends in `/`.
    pub(super) fn new(root: &str, seals: Seals) -> Self {
        let root = format!("{}/", root.trim_end_matches('/'));
        Self { objects: format!("{root}o/"), root, seals }
    }

    /// A key of the store in etcd.
    pub(super) fn object(&self, key: &str) -> Bytes {
        [self.objects.as_bytes(), key.as_bytes()].concat().into()
    }

    /// Put with every write: its revision is that of the last write by anybody.
    pub(super) fn tick(&self) -> Bytes {
        format!("{}tick", self.root).into()
    }

    /// Says who compacted last.
    pub(super) fn compaction(&self) -> Bytes {
        format!("{}compaction", self.root).into()
    }

    /// The range of everything of ours.
    pub(super) fn all(&self) -> (Bytes, Bytes) {
        range(&self.root)
    }

    /// The range of the store's keys.
    pub(super) fn objects(&self) -> (Bytes, Bytes) {
        range(&self.objects)
    }

    /// The store's key of one in etcd; none for those that we need for ourselves and for those that are not text.
    pub(super) fn strip<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(key.strip_prefix(self.objects.as_bytes())?).ok()
    }
}

/// All keys with a prefix that ends in `/`: up to the same with the next character, `0`.
fn range(prefix: &str) -> (Bytes, Bytes) {
    let end = format!("{}0", prefix.trim_end_matches('/'));
    (prefix.to_owned().into(), end.into())
}

#[cfg(test)]
mod tests {
    use super::Keys;

    #[test]
    fn keys_lie_under_the_root() {
        for root in ["/landfall", "/landfall/"] {
            let keys = Keys::new(root, crate::Seals::default());
            assert_eq!(keys.object("a/b"), "/landfall/o/a/b");
            assert_eq!(keys.all(), ("/landfall/".into(), "/landfall0".into()));
            assert_eq!(keys.objects(), ("/landfall/o/".into(), "/landfall/o0".into()));
            assert_eq!(keys.strip(b"/landfall/o/a/b"), Some("a/b"));
            assert_eq!(keys.strip(&keys.tick()), None);
            assert_eq!(keys.strip(&keys.compaction()), None);
            assert_eq!(keys.strip(b"/landfall/o/\xff"), None);
        }
    }
}
