//! The wire: a bounded reader of questions and a bounded writer of replies, both without allocation.
//!
//! [`name`] holds names as they stand in packets, [`query`] reads what was asked, [`edns`] its options, [`reply`] writes.

pub(crate) mod edns;
pub(crate) mod name;
pub(crate) mod query;
pub(crate) mod reply;

/// Record types that we know by number.
pub(crate) mod kind {
    pub(crate) const A: u16 = 1;
    pub(crate) const NS: u16 = 2;
    pub(crate) const CNAME: u16 = 5;
    pub(crate) const SOA: u16 = 6;
    pub(crate) const HINFO: u16 = 13;
    pub(crate) const AAAA: u16 = 28;
    pub(crate) const SRV: u16 = 33;
    pub(crate) const OPT: u16 = 41;
    pub(crate) const TSIG: u16 = 250;
    pub(crate) const IXFR: u16 = 251;
    pub(crate) const AXFR: u16 = 252;
    pub(crate) const MAILB: u16 = 253;
    pub(crate) const MAILA: u16 = 254;
    pub(crate) const ANY: u16 = 255;
}

/// Classes.
pub(crate) mod class {
    pub(crate) const IN: u16 = 1;
    pub(crate) const ANY: u16 = 255;
}

/// Response codes; those above 15 need EDNS.
pub(crate) mod code {
    pub(crate) const NO_ERROR: u16 = 0;
    pub(crate) const FORM_ERR: u16 = 1;
    pub(crate) const NX_DOMAIN: u16 = 3;
    pub(crate) const NOT_IMP: u16 = 4;
    pub(crate) const REFUSED: u16 = 5;
    pub(crate) const NOT_AUTH: u16 = 9;
    pub(crate) const BAD_VERS: u16 = 16;
}

/// The length of a message's header.
pub(crate) const HEADER: usize = 12;

/// Two bytes as a number, if they are there.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*two))
}
