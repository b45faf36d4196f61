//! Where a chunked body ends, and what it carries: to a client of HTTP/1.1 it is passed on as it came, so that all that must be known of it is that it
//! is sound, and its end; a stream of HTTP/2 gets its bytes without what frames them.

/// Where in a chunked body one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// In a chunk's size, so many digits of it.
    Size(u8),
    /// In the blanks that may follow a size.
    Blank,
    /// In what may follow a size.
    Extension,
    /// Before the line feed that ends a size.
    SizeEnd,
    /// In a chunk's bytes.
    Data,
    /// Before the return, and the line feed, that end a chunk.
    DataReturn,
    DataEnd,
    /// At the beginning of a trailer, or of the last line.
    Line,
    /// In a trailer's name.
    TrailerName,
    /// In a trailer's value.
    Trailer,
    /// Before the line feed that ends a trailer.
    TrailerEnd,
    /// Before the line feed that ends everything.
    LastEnd,
    /// Behind it.
    Over,
}

/// Follows a chunked body.
#[derive(Debug)]
pub(super) struct Chunks {
    at: At,
    left: u64,
    /// Bytes that are neither sizes nor data: there is a limit.
    extra: usize,
    trailers: usize,
}

/// Bytes of extensions and trailers.
const EXTRA_MAX: usize = 16 << 10;
/// Trailers.
pub(super) const TRAILERS_MAX: usize = 96;

/// Who wants to know what a body carries.
pub(super) trait Payload {
    /// Some of its bytes.
    fn data(&mut self, bytes: &[u8]);
    /// A byte of its trailers, or of the empty line that ends them.
    fn trailer(&mut self, byte: u8);
}

/// Nobody.
impl Payload for () {
    fn data(&mut self, _: &[u8]) {}

    fn trailer(&mut self, _: u8) {}
}

/// A body that is no chunked body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unsound;

impl Chunks {
    pub(super) fn new() -> Self {
        Self { at: At::Size(0), left: 0, extra: 0, trailers: 0 }
    }

    /// Whether the end was seen.
    pub(super) fn is_over(&self) -> bool {
        self.at == At::Over
    }

    /// Follows some bytes, and tells what they carry; gives how many of them belong to the body.
    pub(super) fn follow(&mut self, bytes: &[u8], payload: &mut impl Payload) -> Result<usize, Unsound> {
        let mut seen = 0;
        while let Some(rest) = bytes.get(seen..).filter(|rest| !rest.is_empty()) {
            if self.at == At::Over {
                break;
            }
            if self.at == At::Data {
                let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                self.left -= u64::try_from(take).unwrap_or(0);
                payload.data(rest.get(..take).unwrap_or_default());
                seen += take;
                if self.left == 0 {
                    self.at = At::DataReturn;
                }
                continue;
            }
            if self.is_behind() {
                payload.trailer(rest[0]);
            }
            self.at = self.step(rest[0])?;
            seen += 1;
        }
        Ok(seen)
    }

    /// Whether it is behind the last chunk.
    fn is_behind(&self) -> bool {
        matches!(self.at, At::Line | At::TrailerName | At::Trailer | At::TrailerEnd | At::LastEnd)
    }

    fn step(&mut self, byte: u8) -> Result<At, Unsound> {
        Ok(match (self.at, byte) {
            (At::Size(digits), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < 16 => {
                let digit = char::from(byte).to_digit(16).ok_or(Unsound)?;
                self.left = self.left << 4 | u64::from(digit);
                At::Size(digits + 1)
            }
            (At::Size(1..), b'\r') => At::SizeEnd,
            (At::Size(1..) | At::Blank, b' ' | b'\t') => self.extra(At::Blank)?,
            (At::Size(1..) | At::Blank, b';') => At::Extension,
            (At::Blank | At::Extension, b'\r') => At::SizeEnd,
            (At::Extension, b'\n') => return Err(Unsound),
            (At::Extension, _) => self.extra(At::Extension)?,
            (At::SizeEnd, b'\n') if self.left == 0 => At::Line,
            (At::SizeEnd, b'\n') => At::Data,
            (At::DataReturn, b'\r') => At::DataEnd,
            (At::DataEnd, b'\n') => At::Size(0),
            (At::Line, b'\r') => At::LastEnd,
            (At::Line | At::TrailerName, byte) if is_token(byte) => self.extra(At::TrailerName)?,
            (At::TrailerName, b':') => At::Trailer,
            (At::Trailer, b'\r') => At::TrailerEnd,
            (At::Trailer, b'\t' | b' '..=b'~' | 0x80..) => self.extra(At::Trailer)?,
            (At::TrailerEnd, b'\n') => self.trailer()?,
            (At::LastEnd, b'\n') => At::Over,
            _ => return Err(Unsound),
        })
    }

    fn trailer(&mut self) -> Result<At, Unsound> {
        self.trailers += 1;
        if self.trailers > TRAILERS_MAX { Err(Unsound) } else { Ok(At::Line) }
    }

    fn extra(&mut self, at: At) -> Result<At, Unsound> {
        self.extra += 1;
        if self.extra > EXTRA_MAX { Err(Unsound) } else { Ok(at) }
    }
}

/// Whether a byte may stand in a name (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many bytes belong to the body, and whether it ended; read whole and byte by byte.
    fn check(bytes: &[u8], want: &Result<(usize, bool), Unsound>) {
        let mut whole = Chunks::new();
        let got = whole.follow(bytes, &mut ()).map(|seen| (seen, whole.is_over()));
        assert_eq!(&got, want, "{}", String::from_utf8_lossy(bytes));
        let mut slow = Chunks::new();
        let steps: Result<Vec<usize>, Unsound> = bytes
            .chunks(1)
            .map(|byte| slow.follow(byte, &mut ()))
            .take_while(|seen| *seen != Ok(0))
            .collect();
        assert_eq!(
            &steps.map(|steps| (steps.len(), slow.is_over())),
            want,
            "{}",
            String::from_utf8_lossy(bytes)
        );
    }

    #[test]
    fn the_end_of_a_body_is_found_wherever_it_is_cut() {
        check(b"0\r\n\r\n", &Ok((5, true)));
        check(b"5\r\nhello\r\n0\r\n\r\nHTTP/1.1", &Ok((15, true)));
        check(b"5;a=b\r\nhello\r\n00\r\nx: y\r\n\r\n", &Ok((26, true)));
        check(b"5 \t;a=b\r\nhello\r\n0 \r\nx:\r\n\r\n", &Ok((26, true)));
        check(b"A\r\n0123456789\r\n", &Ok((15, false)));
        check(b"1\r\n\r\r\n0\r\n\r\n", &Ok((11, true)));
    }

    #[test]
    fn what_is_no_chunk_is_not_taken_for_one() {
        for bytes in [
            &b"\r\n"[..],
            b"x\r\n",
            b"-1\r\n",
            b"5\nhello\n",
            b"5\r\nhello!\r\n",
            b"5\r\nhello\n0\r\n\r\n",
            b"11111111111111111\r\n",
            b"0\r\nx: y\n\r\n",
            b"0\r\n\rx",
            b"1;\n",
            b"1 x\r\n",
            b"0\r\nx\r\n\r\n",
            b"0\r\n x: y\r\n\r\n",
            b"0\r\n: y\r\n\r\n",
            b"0\r\nx : y\r\n\r\n",
            b"0\r\nx: y\0\r\n\r\n",
        ] {
            check(bytes, &Err(Unsound));
        }
        check(&[b"1;".to_vec(), vec![b'x'; EXTRA_MAX + 1]].concat(), &Err(Unsound));
        check(&[b"0\r\n".to_vec(), b"x: y\r\n".repeat(TRAILERS_MAX + 1)].concat(), &Err(Unsound));
    }
}
