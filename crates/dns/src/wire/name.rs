//! A name as it stands in a question: its bytes in lower case, and where each label begins.

/// The longest name, with its root.
pub(crate) const NAME_MAX: usize = 255;
/// The longest label.
const LABEL_MAX: u8 = 63;
/// So many labels from the right are looked at. Names of ours have fewer, and no name has more than 127.
pub(crate) const LABELS_MAX: usize = 32;

/// A name in lower case.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    bytes: [u8; NAME_MAX + 1],
    /// Its length with the root.
    length: u8,
    starts: [u8; 128],
    labels: u8,
}

impl Name {
    /// A place to read a name into: the root.
    pub(crate) fn root() -> Self {
        Self { bytes: [0; NAME_MAX + 1], length: 1, starts: [0; 128], labels: 0 }
    }

    /// Reads a name that stands at the beginning of some bytes, in place of what it was. Pointers are not taken: nothing before a
    /// question can be pointed to. None if it is no name; then it is the root.
    pub(crate) fn read_into(&mut self, bytes: &[u8]) -> Option<()> {
        (self.length, self.labels, self.bytes[0]) = (1, 0, 0);
        let (mut at, mut labels) = (0, 0);
        loop {
            let length = *bytes.get(at)?;
            let next = at + 1 + usize::from(length);
            if length > LABEL_MAX || next > NAME_MAX - usize::from(length != 0) {
                return None;
            }
            if length == 0 {
                // Lengths of labels are smaller than any letter, so that all can be lowered at once.
                let whole = self.bytes.get_mut(..next)?;
                whole.copy_from_slice(bytes.get(..next)?);
                whole.make_ascii_lowercase();
                self.length = u8::try_from(next).ok()?;
                self.labels = labels;
                return Some(());
            }
            self.starts[usize::from(labels)] = u8::try_from(at).ok()?;
            labels += 1;
            at = next;
        }
    }

    /// A name that stands at the beginning of some bytes.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut name = Self::root();
        name.read_into(bytes)?;
        Some(name)
    }

    /// A name from its text.
    #[cfg(test)]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::read(&to_wire(text)?)
    }

    /// Its bytes with the root.
    pub(crate) fn wire(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// How many labels it has, without the root.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.labels)
    }

    /// Where a label begins; past the last one, where the root stands.
    pub(crate) fn start(&self, label: usize) -> usize {
        match self.starts.get(label) {
            Some(start) if label < self.len() => usize::from(*start),
            _ => usize::from(self.length).saturating_sub(1),
        }
    }

    /// A label without its length.
    pub(crate) fn label(&self, label: usize) -> &[u8] {
        self.bytes.get(self.start(label) + 1..self.start(label + 1)).unwrap_or_default()
    }

    /// Some labels as they stand, with their lengths and without a root.
    pub(crate) fn between(&self, from: usize, to: usize) -> &[u8] {
        self.bytes.get(self.start(from)..self.start(to)).unwrap_or_default()
    }

    /// The name from a label on, with the root.
    pub(crate) fn from(&self, label: usize) -> &[u8] {
        self.bytes.get(self.start(label)..usize::from(self.length)).unwrap_or_default()
    }

    /// Its last labels, at most [`LABELS_MAX`], and how many stand before them.
    pub(crate) fn tail<'a>(&'a self, room: &'a mut [&'a [u8]; LABELS_MAX]) -> (&'a [&'a [u8]], usize) {
        let skipped = self.len().saturating_sub(LABELS_MAX);
        let count = self.len() - skipped;
        for (at, label) in room[..count].iter_mut().enumerate() {
            *label = self.label(skipped + at);
        }
        (&room[..count], skipped)
    }
}

/// A host name as it stands in packets, in lower case and with its root. None if it is too long or has an empty label.
pub(crate) fn to_wire(text: &str) -> Option<Vec<u8>> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let mut wire = Vec::with_capacity(text.len() + 2);
    for label in text.split('.').filter(|_| !text.is_empty()) {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=LABEL_MAX).contains(length))?;
        wire.push(length);
        wire.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
    }
    wire.push(0);
    (wire.len() <= NAME_MAX).then_some(wire)
}

/// The number of bytes that a name takes in a packet, wherever it points to; the name itself is not looked at.
pub(crate) fn skip(bytes: &[u8], mut at: usize) -> Option<usize> {
    let began = at;
    loop {
        let length = *bytes.get(at)?;
        at += match length {
            0 => return (at + 1 - began <= NAME_MAX).then_some(at + 1),
            0xC0.. => return bytes.get(at + 1).map(|_| at + 2),
            length if length > LABEL_MAX => return None,
            length => 1 + usize::from(length),
        };
        if at - began > NAME_MAX {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_lower_case() {
        let name = Name::read(b"\x03WwW\x07eXample\x00rest").unwrap();
        assert_eq!(name.wire(), b"\x03www\x07example\x00");
        assert_eq!((name.len(), name.label(1), name.from(1)), (2, &b"example"[..], &b"\x07example\x00"[..]));
        assert_eq!(name.between(0, 1), b"\x03www");
        assert_eq!((name.start(0), name.start(1), name.start(2), name.start(9)), (0, 4, 12, 12));
        assert_eq!(Name::read(b"\x00").unwrap().len(), 0);
        assert_eq!(to_wire("").unwrap(), b"\x00");
        assert_eq!(to_wire("A.b.").unwrap(), b"\x01a\x01b\x00");
        assert_eq!(to_wire("a..b"), None);
    }

    #[test]
    fn what_is_no_name() {
        let long = [&[63_u8; 64][..]; 3].concat();
        let longest = [&long[..], &[61; 62], &[0]].concat();
        assert_eq!(longest.len(), 255);
        assert!(Name::read(&longest).is_some());
        for bytes in [
            &b""[..],
            b"\x03ww",
            b"\x03www",
            b"\xc0\x0c",
            b"\x40aaaa",
            &[&long[..], &[62; 63], &[0]].concat(),
            &[&long[..], &[63; 64], &[0]].concat(),
        ] {
            assert!(Name::read(bytes).is_none(), "{bytes:?}");
        }
        let many = [&[1, b'a'].repeat(127)[..], &[0]].concat();
        assert_eq!(Name::read(&many).unwrap().len(), 127);
        let mut room = [&[][..]; LABELS_MAX];
        let name = Name::read(&many).unwrap();
        let (tail, skipped) = name.tail(&mut room);
        assert_eq!((tail.len(), skipped), (32, 95));
        assert!(Name::read(&[&[1, b'a'].repeat(128)[..], &[0]].concat()).is_none());
    }

    #[test]
    fn names_are_skipped_without_following_them() {
        for (bytes, at, want) in [
            (&b"\x00"[..], 0, Some(1)),
            (b"\x01a\x00x", 0, Some(3)),
            (b"\x01a\xc0\x00x", 0, Some(4)),
            (b"\x01a\xc0", 0, None),
            (b"\x80", 0, None),
            (b"\x02a", 0, None),
            (b"", 0, None),
        ] {
            assert_eq!(skip(bytes, at), want, "{bytes:?}");
        }
    }
}
