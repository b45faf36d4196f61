//! The header `traceparent`, as W3C Trace Context has it: a version, a trace, the span above, and whether it is recorded.

use std::fmt;

/// Where a request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Context {
    pub(super) trace: u128,
    pub(super) span: u64,
    pub(super) recorded: bool,
}

impl Context {
    /// Reads a header; none when it is not one.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let mut parts = text.split('-');
        let mut next = |length: usize| parts.next().filter(|part| part.len() == length && is_hex(part));
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        // Versions to come may have more parts, this one has not.
        if version == "ff" || version == "00" && parts.next().is_some() {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace, span, recorded: flags & 1 == 1 })
    }
}

/// Digits and lower case letters: others are not allowed.
fn is_hex(part: &str) -> bool {
    part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.recorded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_read_as_it_is_written_and_nothing_else_is() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let read = Context::read(good.as_bytes()).unwrap();
        assert_eq!((read.to_string().as_str(), read.recorded), (good, true));
        let quiet = Context::read(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00").unwrap();
        assert!(!quiet.recorded);
        let later = b"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03-more";
        assert!(Context::read(later).is_some_and(|later| later.recorded));
        for bad in [
            "",
            "00-1-2-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(Context::read(bad.as_bytes()), None, "{bad}");
        }
    }
}
