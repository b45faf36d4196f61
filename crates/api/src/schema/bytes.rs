//! Base64 texts as Go reads them: line breaks are skipped, everything else must be exact.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The text as Go would write it back, or nothing when it is so already; the error is Go's sentence.
pub(super) fn canonical(text: &str) -> Result<Option<String>, String> {
    if well_formed(text) {
        return Ok(None);
    }
    let clean: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let lenient = base64::engine::GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    let engine = base64::engine::GeneralPurpose::new(&base64::alphabet::STANDARD, lenient);
    match engine.decode(&clean) {
        Ok(bytes) => Ok(Some(STANDARD.encode(bytes)).filter(|made| made != text)),
        Err(_) => Err(format!("illegal base64 data at input byte {}", offset(text.as_bytes()))),
    }
}

/// Whole groups of letters with padding only at the end, and no stray bits: nothing to change.
fn well_formed(text: &str) -> bool {
    let body = text.strip_suffix("==").unwrap_or_else(|| text.strip_suffix('=').unwrap_or(text));
    let padding = text.len() - body.len();
    let stray = match (padding, body.bytes().last()) {
        (0, _) => false,
        (1, Some(last)) => value(last).is_none_or(|v| v & 3 != 0),
        (_, Some(last)) => value(last).is_none_or(|v| v & 15 != 0),
        (_, None) => true,
    };
    text.len().is_multiple_of(4) && !stray && body.bytes().all(|b| value(b).is_some())
}

const fn value(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// Where Go's decoder stops at bad input.
fn offset(text: &[u8]) -> usize {
    let letters = || text.iter().enumerate().filter(|(_, b)| !matches!(b, b'\r' | b'\n'));
    let mut group = 0usize;
    let mut walk = letters().peekable();
    while let Some((at, byte)) = walk.next() {
        if value(*byte).is_some() {
            group = (group + 1) % 4;
            continue;
        }
        if *byte != b'=' || group < 2 {
            return at;
        }
        if group == 2 {
            match walk.next() {
                None => return text.len(),
                Some((_, b'=')) => {}
                Some(_) => return at,
            }
        }
        return walk.next().map_or(text.len(), |(at, _)| at);
    }
    text.len() - group
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for (text, want) in [
            ("", Ok(None)),
            ("YQ==", Ok(None)),
            ("YWE=", Ok(None)),
            ("YWFh", Ok(None)),
            ("YWFh\nYWFh", Ok(Some("YWFhYWFh"))),
            ("YR==", Ok(Some("YQ=="))),
            ("!!", Err(0)),
            ("YQ", Err(0)),
            ("YWFhYQ", Err(4)),
            ("YQ=", Err(3)),
            ("YQ=a", Err(2)),
            ("YQ==YQ==", Err(4)),
            ("YWF-", Err(3)),
            ("====", Err(0)),
        ] {
            let want = want
                .map(|w| w.map(str::to_owned))
                .map_err(|at| format!("illegal base64 data at input byte {at}"));
            assert_eq!(canonical(text), want, "{text:?}");
        }
    }
}
