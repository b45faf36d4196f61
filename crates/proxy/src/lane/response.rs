//! The head of an endpoint's answer, as the client gets it, and how its body ends.

use httparse::{EMPTY_HEADER, Header, Response, Status};
use smallvec::SmallVec;

use super::asker::Heads;
use crate::orca;

/// Headers of an answer.
const HEADERS_MAX: usize = 96;

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// After so many bytes.
    Length(u64),
    /// By its last chunk.
    Chunked,
    /// With the connection.
    Close,
}

/// What was read.
#[derive(Debug, PartialEq)]
pub(super) enum Seen {
    /// A part of a head.
    Part,
    /// No answer that we can pass on.
    Bad,
    /// A head.
    Whole(Head),
}

/// The head of an answer.
#[derive(Debug, PartialEq)]
pub(super) struct Head {
    /// Its bytes.
    pub(super) length: usize,
    pub(super) status: u16,
    pub(super) ends: Ends,
    /// The endpoint keeps the connection open.
    pub(super) keeps: bool,
    /// It tells when it was made.
    pub(super) dated: bool,
    /// How busy the endpoint says it is.
    pub(super) used: Option<f64>,
}

impl Head {
    /// Whether the answer is still to come.
    pub(super) fn is_interim(&self) -> bool {
        self.status < 200
    }
}

/// What the headers tell of the message itself.
#[derive(Default)]
struct Told<'b> {
    length: Option<u64>,
    chunked: bool,
    closes: bool,
    keeps: bool,
    /// Headers that are for one hop, as `Connection` says.
    named: SmallVec<[&'b [u8]; 2]>,
}

/// Reads a head, and writes the client's as far as it is the endpoint's to tell: where the route says for how long only HTTPS is spoken
/// (`hsts`), that is not.
pub(super) fn look(bytes: &[u8], is_head: bool, hsts: bool, out: &mut impl Heads) -> Seen {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut response = Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Seen::Part,
        Err(_) => return Seen::Bad,
    };
    let (Some(status), Some(version)) = (response.code, response.version) else { return Seen::Bad };
    let Some(told) = told(response.headers) else { return Seen::Bad };
    // HTTP/1.0 has no chunks: whoever says so is misunderstood by somebody.
    if status < 100 || status == 101 || told.chunked && version == 0 {
        return Seen::Bad;
    }
    let bodiless = is_head || status < 200 || status == 204 || status == 304;
    let ends = match (told.length, told.chunked) {
        _ if bodiless => Ends::Length(0),
        (_, true) => Ends::Chunked,
        (Some(length), false) => Ends::Length(length),
        (None, false) => Ends::Close,
    };
    // Whoever sends two lengths is not believed a second time.
    let both = told.chunked && told.length.is_some();
    let keeps = !told.closes && !both && ends != Ends::Close && (version == 1 || told.keeps);
    let written = out.begin(status, response.reason.unwrap_or_default());
    let Some((dated, used)) = written.and_then(|()| write_headers(out, response.headers, &told, hsts)) else {
        return Seen::Bad;
    };
    if ends == Ends::Chunked || ends == Ends::Close {
        out.chunked();
    }
    Seen::Whole(Head { length, status, ends, keeps, dated, used })
}

/// None when the headers contradict each other.
fn told<'b>(headers: &[Header<'b>]) -> Option<Told<'b>> {
    let mut told = Told::default();
    for header in headers {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let length = length(header.value)?;
            if told.length.is_some_and(|known| known != length) {
                return None;
            }
            told.length = Some(length);
        } else if is("transfer-encoding") {
            if told.chunked || !header.value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return None;
            }
            told.chunked = true;
        } else if is("connection") {
            for token in header.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                told.closes |= token.eq_ignore_ascii_case(b"close");
                told.keeps |= token.eq_ignore_ascii_case(b"keep-alive");
                told.named.push(token);
            }
        }
    }
    Some(told)
}

fn length(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Writes what is not for one hop; tells whether there is a date, and how busy the endpoint says it is.
fn write_headers(
    out: &mut impl Heads,
    headers: &[Header<'_>],
    told: &Told<'_>,
    hsts: bool,
) -> Option<(bool, Option<f64>)> {
    let (mut dated, mut lengths, mut used) = (false, 0, None);
    for header in headers {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        let hop = match header.name.len() {
            7 => is("upgrade"),
            10 => is("connection") || is("keep-alive"),
            14 if is("content-length") => {
                lengths += 1;
                lengths > 1 || told.chunked
            }
            16 => is("proxy-connection"),
            17 => is("transfer-encoding"),
            21 if is(orca::TEXT) => {
                used = used.or_else(|| orca::used_in(orca::TEXT, header.value));
                true
            }
            25 if is(orca::BINARY) => {
                used = used.or_else(|| orca::used_in(orca::BINARY, header.value));
                true
            }
            25 => hsts && is("strict-transport-security"),
            _ => false,
        };
        let named = || told.named.iter().any(|name| name.eq_ignore_ascii_case(header.name.as_bytes()));
        // What frames the message is not for `Connection` to name.
        if !hop && (told.named.is_empty() || is("content-length") || !named()) {
            out.header(header.name, header.value)?;
            dated |= header.name.len() == 4 && is("date");
        }
    }
    Some((dated, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &str, is_head: bool, want: Option<(Ends, bool, &str)>) {
        let mut out = Vec::new();
        let got = match look(bytes.as_bytes(), is_head, false, &mut out) {
            Seen::Whole(head) => Some((head.ends, head.keeps, String::from_utf8(out).unwrap())),
            Seen::Bad => None,
            Seen::Part => panic!("{bytes:?} is not whole"),
        };
        let want = want.map(|(ends, keeps, out)| (ends, keeps, out.to_owned()));
        assert_eq!(got, want, "{bytes:?}");
    }

    #[test]
    fn a_head_is_copied_without_what_is_for_one_hop() {
        check(
            "HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nConnection: x-a, keep-alive\r\nX-A: 1\r\nX-B: 2\r\nKeep-Alive: 5\r\n\r\n",
            false,
            Some((Ends::Length(5), true, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-B: 2\r\n")),
        );
        check(
            "HTTP/1.1 404 Not here\r\nTransfer-Encoding: Chunked\r\n\r\n",
            false,
            Some((Ends::Chunked, true, "HTTP/1.1 404 Not here\r\ntransfer-encoding: chunked\r\n")),
        );
        let close = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n";
        check("HTTP/1.1 200 OK\r\n\r\n", false, Some((Ends::Close, false, close)));
        check("HTTP/1.0 204 -\r\n\r\n", false, Some((Ends::Length(0), false, "HTTP/1.1 204 -\r\n")));
        let long = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n";
        check(long, true, Some((Ends::Length(0), true, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n")));
    }

    #[test]
    fn what_is_not_passed_on_tells_nothing() {
        let look = |head: &str, hsts| {
            let mut out = Vec::new();
            let Seen::Whole(head) = look(head.as_bytes(), false, hsts, &mut out) else { panic!("{head}") };
            (head.dated, String::from_utf8(out).unwrap())
        };
        let named = "HTTP/1.1 204 -\r\nconnection: date\r\ndate: today\r\n\r\n";
        assert_eq!(look(named, false), (false, "HTTP/1.1 204 -\r\n".to_owned()));
        let dated = "HTTP/1.1 204 -\r\nDate: today\r\n\r\n";
        assert_eq!(look(dated, false), (true, "HTTP/1.1 204 -\r\nDate: today\r\n".to_owned()));
        let hsts = "HTTP/1.1 204 -\r\nStrict-Transport-Security: max-age=0\r\n\r\n";
        assert_eq!(look(hsts, true).1, "HTTP/1.1 204 -\r\n");
        assert_eq!(look(hsts, false).1, "HTTP/1.1 204 -\r\nStrict-Transport-Security: max-age=0\r\n");
    }

    #[test]
    fn two_lengths_are_one_or_none() {
        check(
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
            false,
            Some((Ends::Chunked, false, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n")),
        );
        let same = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\n";
        check(same, false, Some((Ends::Length(5), true, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n")));
        for bad in [
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx : y\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n\r\n",
        ] {
            check(bad, false, None);
        }
    }
}
