//! Protobuf's wire format: keys, varints, lengths. Errors are worded as Kubernetes' generated code words them.

/// One field as it stands on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Raw<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

impl Raw<'_> {
    const fn wire_type(self) -> u8 {
        match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Fixed32(_) => 5,
        }
    }
}

pub(super) const TRUNCATED: &str = "unexpected EOF";

/// Groups inside each other, which nothing of Kubernetes writes.
const GROUPS_MAX: usize = 100;

/// Reads fields one after another.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next field's number and value; nothing at the end. Groups are skipped.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Raw<'a>)>, String> {
        let mut groups = 0usize;
        while !self.0.is_empty() {
            let key = self.varint()?;
            let number = u32::try_from(key >> 3).unwrap_or(0);
            if number == 0 || number > (1 << 29) - 1 {
                return Err(format!("proto: illegal tag {} (wire type {})", key >> 3, key & 7));
            }
            let raw = match key & 7 {
                0 => Raw::Varint(self.varint()?),
                1 => Raw::Fixed64(u64::from_le_bytes(self.array()?)),
                2 => {
                    let length = self.varint()?;
                    let length = usize::try_from(length).map_err(|_| TRUNCATED.to_owned())?;
                    Raw::Bytes(self.take(length)?)
                }
                3 if groups < GROUPS_MAX => {
                    groups += 1;
                    continue;
                }
                4 if groups > 0 => {
                    groups -= 1;
                    continue;
                }
                5 => Raw::Fixed32(u32::from_le_bytes(self.array()?)),
                other => return Err(format!("proto: illegal wireType {other}")),
            };
            if groups == 0 {
                return Ok(Some((number, raw)));
            }
        }
        if groups == 0 { Ok(None) } else { Err(TRUNCATED.into()) }
    }

    /// Numbers packed one after another.
    pub(super) fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("proto: integer overflow".into())
    }

    pub(super) fn fixed64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (head, rest) = self.0.split_at_checked(length).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (head, rest) = self.0.split_first_chunk().ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(*head)
    }
}

/// The bytes of a field that must have a length.
pub(super) fn bytes<'a>(raw: Raw<'a>, field: &str) -> Result<&'a [u8], String> {
    match raw {
        Raw::Bytes(bytes) => Ok(bytes),
        other => Err(wrong(other, field)),
    }
}

/// The text of a field; bytes that are not UTF-8 become replacement characters, as when Go writes them as JSON.
pub(super) fn text(raw: Raw<'_>, field: &str) -> Result<String, String> {
    bytes(raw, field).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// The number of a field that must be a varint.
pub(super) fn number(raw: Raw<'_>, field: &str) -> Result<u64, String> {
    match raw {
        Raw::Varint(number) => Ok(number),
        other => Err(wrong(other, field)),
    }
}

/// The refusal of a wire type. Kubernetes shows its Go field's name, which is the JSON name in capitals, mostly.
pub(super) fn wrong(raw: Raw<'_>, field: &str) -> String {
    let mut letters = field.chars();
    let name = match field {
        "metadata" => "ObjectMeta".to_owned(),
        _ => letters
            .next()
            .map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), letters.as_str())),
    };
    format!("proto: wrong wireType = {} for field {name}", raw.wire_type())
}
