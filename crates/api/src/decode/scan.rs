//! What is wrong with a text that is not JSON, in the words of Go's scanner. Used only once parsing has failed.

use super::DEPTH_MAX;

const END: &str = "unexpected end of JSON input";

/// What is expected next.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Value,
    FirstItem,
    FirstKey,
    Key,
    Colon,
    Done,
}

/// The first error Go would see; nothing when it would see none.
pub(super) fn first_error(text: &[u8]) -> Option<String> {
    let mut scan = Scan { text, at: 0 };
    let mut open = Vec::new();
    let mut state = State::Value;
    loop {
        while matches!(scan.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            scan.at += 1;
        }
        let Some(byte) = scan.peek() else {
            return (state != State::Done || !open.is_empty()).then(|| END.into());
        };
        scan.at += 1;
        let next = match (state, byte) {
            (State::FirstKey, b'}') | (State::FirstItem, b']') => close(&mut open),
            (State::FirstKey | State::Key, b'"') => scan.string().map(|()| State::Colon),
            (State::FirstKey | State::Key, _) => {
                Err(invalid(byte, "looking for beginning of object key string"))
            }
            (State::Colon, b':') => Ok(State::Value),
            (State::Colon, _) => Err(invalid(byte, "after object key")),
            (State::Value | State::FirstItem, b'{' | b'[') if open.len() >= DEPTH_MAX => {
                Err(invalid(byte, "exceeded max depth"))
            }
            (State::Value | State::FirstItem, b'{' | b'[') => {
                open.push(byte);
                Ok(if byte == b'{' { State::FirstKey } else { State::FirstItem })
            }
            (State::Value | State::FirstItem, _) => scan.scalar(byte).map(|()| State::Done),
            (State::Done, _) => after_value(&mut open, byte),
        };
        match next {
            Ok(next) => state = next,
            Err(error) => return Some(error),
        }
    }
}

fn close(open: &mut Vec<u8>) -> Result<State, String> {
    open.pop();
    Ok(State::Done)
}

fn after_value(open: &mut Vec<u8>, byte: u8) -> Result<State, String> {
    match (open.last(), byte) {
        (Some(b'{'), b',') => Ok(State::Key),
        (Some(b'['), b',') => Ok(State::Value),
        (Some(b'{'), b'}') | (Some(b'['), b']') => close(open),
        (Some(b'{'), _) => Err(invalid(byte, "after object key:value pair")),
        (Some(_), _) => Err(invalid(byte, "after array element")),
        (None, _) => Err(invalid(byte, "after top-level value")),
    }
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self) -> Result<u8, String> {
        let byte = self.peek().ok_or(END)?;
        self.at += 1;
        Ok(byte)
    }

    fn scalar(&mut self, first: u8) -> Result<(), String> {
        match first {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(first),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            _ => Err(invalid(first, "looking for beginning of value")),
        }
    }

    fn string(&mut self) -> Result<(), String> {
        loop {
            match self.take()? {
                b'"' => return Ok(()),
                b'\\' => match self.take()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let byte = self.take()?;
                            if !byte.is_ascii_hexdigit() {
                                return Err(invalid(byte, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    byte => return Err(invalid(byte, "in string escape code")),
                },
                byte if byte < 0x20 => return Err(invalid(byte, "in string literal")),
                _ => {}
            }
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        for want in word.bytes().skip(1) {
            let byte = self.take()?;
            if byte != want {
                return Err(invalid(byte, &format!("in literal {word} (expecting '{}')", char::from(want))));
            }
        }
        Ok(())
    }

    fn number(&mut self, first: u8) -> Result<(), String> {
        let first = if first == b'-' { self.digit("in numeric literal")? } else { first };
        if first != b'0' {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digit(&mut self, context: &str) -> Result<u8, String> {
        let byte = self.take()?;
        if byte.is_ascii_digit() { Ok(byte) } else { Err(invalid(byte, context)) }
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }
}

/// `invalid character 'x' …`; Go shows a byte as the character of that number.
fn invalid(byte: u8, context: &str) -> String {
    let shown = match byte {
        b'\'' => r"'\''".into(),
        b'"' => "'\"'".into(),
        b'\\' => r"'\\'".into(),
        0x07 => r"'\a'".into(),
        0x08 => r"'\b'".into(),
        b'\t' => r"'\t'".into(),
        b'\n' => r"'\n'".into(),
        0x0b => r"'\v'".into(),
        0x0c => r"'\f'".into(),
        b'\r' => r"'\r'".into(),
        0x00..0x20 | 0x7f => format!(r"'\x{byte:02x}'"),
        0x80..=0xa0 | 0xad => format!(r"'\u{byte:04x}'"),
        _ => format!("'{}'", char::from(byte)),
    };
    format!("invalid character {shown} {context}")
}
