//! The PROXY protocol: who the client is, told by whoever stands before us, and told on to endpoints.
//!
//! Headers (versions 1 and 2) are read from those who are trusted to send them, and from them alone; such a sender must send
//! one. Nobody guesses: what others send is passed on as it is. Outgoing headers are of version 2.
//!
//! The format is read and written by `ppp`.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use landfall_api::addresses::{network, parse_cidr, parse_ip};
use ppp::{PartialResult as _, v1, v2};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::sni::Prefixed;

/// The longest header that is read; longer ones carry things that we do not know.
const HEADER_MAX: usize = 4096;
/// The longest header of version 1, as it is specified.
const V1_MAX: usize = 107;
/// How headers begin.
const V1_START: &[u8] = b"PROXY ";

/// Prefixes of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes(Vec<(IpAddr, u8)>);

/// Between whom a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The client.
    pub client: SocketAddr,
    /// Whom it meant to reach.
    pub server: SocketAddr,
}

/// Why a connection is not carried.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It took too long to say who the client is.
    #[error("no whole PROXY protocol header came in time")]
    Slow,
    /// What came is no header.
    #[error("what came is no PROXY protocol header")]
    Garbled,
    /// The connection broke.
    #[error("the connection broke in a PROXY protocol header")]
    Broken(#[source] io::Error),
}

// === impl Prefixes ===

impl Prefixes {
    /// From texts such as `10.0.0.0/8` or `192.0.2.7`; the first that is none is given back.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let one = |text: &'a str| {
            let alone = || parse_ip(text).map(|ip| (ip, if ip.is_ipv4() { 32 } else { 128 }));
            let parsed = parse_cidr(text).or_else(alone).ok_or_else(|| text.to_owned())?;
            Ok((network(parsed.0, parsed.1), parsed.1))
        };
        texts.into_iter().map(one).collect::<Result<_, _>>().map(Self)
    }

    /// Whether an address is in one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|(first, length)| {
            first.is_ipv4() == address.is_ipv4() && network(address, *length) == *first
        })
    }
}

// === In ===

/// Reads the header with which a connection must begin. Without ends, the sender speaks for itself.
pub async fn accept<IO>(mut io: IO, timeout: Duration) -> Result<(Prefixed<IO>, Option<Ends>), Error>
where
    IO: AsyncRead + Unpin,
{
    let mut bytes = Vec::with_capacity(256);
    let reading = async {
        loop {
            if io.read_buf(&mut bytes).await.map_err(Error::Broken)? == 0 {
                return Err(Error::Broken(io::ErrorKind::UnexpectedEof.into()));
            }
            if let Some(read) = parse(&bytes)? {
                return Ok(read);
            }
        }
    };
    let (length, ends) = tokio::time::timeout(timeout, reading).await.map_err(|_| Error::Slow)??;
    bytes.drain(..length.min(bytes.len()));
    Ok((Prefixed::new(bytes, io), ends))
}

/// The length of the header and what it says; none when more must be read first.
fn parse(bytes: &[u8]) -> Result<Option<(usize, Option<Ends>)>, Error> {
    let begins = |with: &[u8]| bytes.iter().zip(with).all(|(one, two)| one == two);
    if begins(V1_START) {
        return parse_v1(bytes);
    }
    if !begins(v2::PROTOCOL_PREFIX) {
        return Err(Error::Garbled);
    }
    match v2::Header::try_from(bytes) {
        Ok(header) => Ok(Some((header.len(), ends_v2(&header)))),
        Err(error) if error.is_incomplete() && bytes.len() < HEADER_MAX => Ok(None),
        Err(_) => Err(Error::Garbled),
    }
}

/// A header of version 1 is a line: half of one tells nothing.
fn parse_v1(bytes: &[u8]) -> Result<Option<(usize, Option<Ends>)>, Error> {
    let line = bytes.get(..V1_MAX.min(bytes.len())).unwrap_or_default();
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() < V1_MAX { Ok(None) } else { Err(Error::Garbled) };
    };
    let header = v1::Header::try_from(line.get(..=end).unwrap_or_default()).map_err(|_| Error::Garbled)?;
    Ok(Some((end + 1, ends_v1(&header))))
}

fn ends_v1(header: &v1::Header<'_>) -> Option<Ends> {
    match header.addresses {
        v1::Addresses::Unknown => None,
        v1::Addresses::Tcp4(ip) => Some(Ends {
            client: (ip.source_address, ip.source_port).into(),
            server: (ip.destination_address, ip.destination_port).into(),
        }),
        v1::Addresses::Tcp6(ip) => Some(Ends {
            client: (ip.source_address, ip.source_port).into(),
            server: (ip.destination_address, ip.destination_port).into(),
        }),
    }
}

fn ends_v2(header: &v2::Header<'_>) -> Option<Ends> {
    if header.command == v2::Command::Local {
        return None;
    }
    match header.addresses {
        v2::Addresses::Unspecified | v2::Addresses::Unix(_) => None,
        v2::Addresses::IPv4(ip) => Some(Ends {
            client: (ip.source_address, ip.source_port).into(),
            server: (ip.destination_address, ip.destination_port).into(),
        }),
        v2::Addresses::IPv6(ip) => Some(Ends {
            client: (ip.source_address, ip.source_port).into(),
            server: (ip.destination_address, ip.destination_port).into(),
        }),
    }
}

// === Out ===

/// The header that tells an endpoint who the client is, and whom it meant to reach.
pub fn header(ends: Ends) -> Vec<u8> {
    let (client, server) = (plain(ends.client), plain(ends.server));
    let both = if client.is_ipv4() == server.is_ipv4() {
        (client, server)
    } else {
        (mapped(client), mapped(server))
    };
    let version = v2::Version::Two | v2::Command::Proxy;
    let built = v2::Builder::with_addresses(version, v2::Protocol::Stream, both).build();
    built.expect("two addresses fit into a header")
}

fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The same address as one of version 6.
fn mapped(address: SocketAddr) -> SocketAddr {
    let ip: Ipv6Addr = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    SocketAddrV6::new(ip, address.port(), 0, 0).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(client: &str, server: &str) -> Ends {
        Ends { client: client.parse().unwrap(), server: server.parse().unwrap() }
    }

    /// Sends bytes one by one; gives what was read, and what came after it.
    async fn read(bytes: &[u8]) -> Result<(Option<Ends>, String), String> {
        let (mut far, near) = tokio::io::duplex(1);
        let sending = async {
            use tokio::io::AsyncWriteExt as _;
            let _ = far.write_all(bytes).await;
            drop(far);
        };
        let reading = async {
            let (mut rest, ends) = accept(near, Duration::from_secs(9)).await.map_err(|e| e.to_string())?;
            let mut text = String::new();
            rest.read_to_string(&mut text).await.unwrap();
            Ok((ends, text))
        };
        tokio::join!(sending, reading).1
    }

    #[tokio::test]
    async fn headers_of_both_versions() {
        let (four, six) =
            (ends("192.0.2.1:40000", "192.0.2.2:443"), ends("[2001:db8::1]:4", "[2001:db8::2]:443"));
        for ends in [four, six] {
            let mut bytes = header(ends);
            bytes.extend(b"GET /");
            assert_eq!(read(&bytes).await, Ok((Some(ends), "GET /".into())));
        }
        let v1 = b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 443\r\nGET /";
        assert_eq!(read(v1).await, Ok((Some(four), "GET /".into())));
        assert_eq!(read(b"PROXY UNKNOWN\r\nGET /").await, Ok((None, "GET /".into())));
        let local = v2::Builder::new(v2::Version::Two | v2::Command::Local, 0).build().unwrap();
        assert_eq!(read(&local).await, Ok((None, String::new())));
    }

    #[tokio::test]
    async fn what_is_no_header_is_refused() {
        let mut long = v2::PROTOCOL_PREFIX.to_vec();
        long.extend([0x21, 0x11, 0xff, 0xff]);
        long.extend([0; HEADER_MAX]);
        let endless = [V1_START, &[b'x'; 200]].concat();
        let cut = header(ends("192.0.2.1:4", "192.0.2.2:443"));
        for (bytes, want) in [
            (&b"GET / HTTP/1.1\r\n"[..], "is no PROXY"),
            (b"PROXY TCP4 nonsense\r\n", "is no PROXY"),
            (&long, "is no PROXY"),
            (&endless, "is no PROXY"),
            (b"\x16\x03\x01", "is no PROXY"),
            (cut.get(..20).unwrap(), "broke"),
            (b"", "broke"),
        ] {
            let got = read(bytes).await.unwrap_err();
            assert!(got.contains(want), "{got:?}, not {want:?} of {bytes:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_strange(version in 0..3_usize, bytes: Vec<u8>) {
            let start: &[u8] = [&b""[..], V1_START, v2::PROTOCOL_PREFIX][version];
            let bytes = [start, &bytes].concat();
            if let Ok(Some((length, _))) = parse(&bytes) {
                proptest::prop_assert!(length <= bytes.len());
            }
        }
    }

    #[test]
    fn two_families_are_told_as_one() {
        let bytes = header(ends("192.0.2.1:4", "[2001:db8::2]:443"));
        let parsed = v2::Header::try_from(bytes.as_slice()).unwrap();
        assert_eq!(ends_v2(&parsed), Some(ends("[::ffff:192.0.2.1]:4", "[2001:db8::2]:443")));
        let bytes = header(ends("[::ffff:192.0.2.1]:4", "192.0.2.2:443"));
        let parsed = v2::Header::try_from(bytes.as_slice()).unwrap();
        assert_eq!(ends_v2(&parsed), Some(ends("192.0.2.1:4", "192.0.2.2:443")));
        assert_eq!(parsed.protocol, v2::Protocol::Stream);
    }

    #[test]
    fn who_is_trusted() {
        let trusted = Prefixes::parse(["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"]).unwrap();
        for (address, want) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("11.0.0.1", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("2001:db8:1::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(trusted.contains(address.parse().unwrap()), want, "{address}");
        }
        assert_eq!(Prefixes::parse(["10.0.0.0/8", "x/9"]).unwrap_err(), "x/9");
        assert!(!Prefixes::default().contains("10.1.2.3".parse().unwrap()));
    }
}
