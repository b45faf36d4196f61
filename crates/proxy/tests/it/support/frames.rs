//! HTTP/2 by hand: frames and header blocks, for clients that do not play fair.

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `GET / http a`, in HPACK.
pub(crate) const HEAD: &[u8] = &[0x82, 0x84, 0x86, 0x41, 0x01, b'a'];
/// The same with POST.
pub(crate) const POST: &[u8] = &[0x83, 0x84, 0x86, 0x41, 0x01, b'a'];

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

/// Why a connection ends.
pub(crate) const ENHANCE_YOUR_CALM: u8 = 11;

/// Flags.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// A frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A frame's kind, stream and payload.
pub(crate) type Frame<'a> = (u8, u32, &'a [u8]);

/// The first of some frames, and how many bytes it has; none where it is not whole.
pub(crate) fn first(bytes: &[u8]) -> Option<(Frame<'_>, usize)> {
    let (head, rest) = bytes.split_at_checked(9)?;
    let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Some(((head[3], stream, rest.get(..length)?), 9 + length))
}

/// What a client says first, so that frames can follow.
pub(crate) fn hello() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// A string of a header block, as it is.
fn string(text: &[u8]) -> Vec<u8> {
    let mut bytes = match text.len() {
        short @ 0..127 => vec![u8::try_from(short).unwrap()],
        long => {
            let (mut bytes, mut rest) = (vec![127], long - 127);
            while rest >= 128 {
                bytes.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            bytes.push(u8::try_from(rest).unwrap());
            bytes
        }
    };
    bytes.extend_from_slice(text);
    bytes
}

/// A header without an index: its name and its value as they are.
pub(crate) fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    [vec![0], string(name), string(value)].concat()
}

/// A header that is remembered: as the first of them, it is `REMEMBERED` from then on.
pub(crate) fn remember(name: &[u8], value: &[u8]) -> Vec<u8> {
    [vec![0x40], string(name), string(value)].concat()
}

/// The last header that was remembered.
pub(crate) const REMEMBERED: u8 = 0x80 | 62;
