//! A reply while it is written: header, question, records, extensions; never longer than it may be.

use super::edns::option;
use super::{HEADER, code, kind};

/// The most that extensions take: OPT itself, a cookie, a subnet, and a name of 64 bytes.
pub(crate) const EXTENSIONS_MAX: usize = 11 + 28 + 24 + 68;
/// Points to the question's name.
pub(crate) const QUESTION: u16 = 0xC000 | HEADER as u16;

/// Extensions of a reply.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extensions<'a> {
    /// The largest packet we take.
    pub(crate) size: u16,
    /// Said back as it was said.
    pub(crate) dnssec: bool,
    /// Who we are.
    pub(crate) nsid: Option<&'a [u8]>,
    /// The client's cookie and ours.
    pub(crate) cookie: Option<[u8; 24]>,
    /// For whom the answer is: family, source, scope and address as they stand in the option.
    pub(crate) subnet: Option<(u8, u8, u8, [u8; 16])>,
}

/// A reply while it is written.
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    out: &'a mut [u8],
    at: usize,
    /// Records may go so far.
    limit: usize,
    question_end: usize,
    counts: [u16; 3],
    code: u16,
    truncated: bool,
    authoritative: bool,
}

/// A section of a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Section {
    Answer,
    Authority,
    Additional,
}

impl<'a> Reply<'a> {
    /// A reply to a packet whose question ends at `end`, of at most `limit` bytes. None if not even that has room.
    pub(crate) fn new(out: &'a mut [u8], packet: &[u8], end: usize, limit: usize) -> Option<Self> {
        let limit = limit.min(out.len());
        let head = packet.get(..end).filter(|head| head.len() >= HEADER && head.len() <= limit)?;
        out.get_mut(..end)?.copy_from_slice(head);
        let counts = [0; 3];
        let (code, truncated, authoritative) = (code::NO_ERROR, false, false);
        Some(Self { out, at: end, limit, question_end: end, counts, code, truncated, authoritative })
    }

    /// Keeps room for extensions.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.limit = self.limit.saturating_sub(bytes).max(self.question_end);
    }

    /// Gives that room back.
    fn release(&mut self, bytes: usize) {
        self.limit = (self.limit + bytes).min(self.out.len());
    }

    /// Sets the response code.
    pub(crate) fn code(&mut self, code: u16) {
        self.code = code;
    }

    /// Says that we speak for the zone.
    pub(crate) fn authoritative(&mut self) {
        self.authoritative = true;
    }

    /// Where the next byte goes.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Whether something did not fit.
    pub(crate) fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// How many records a section has.
    pub(crate) fn count(&self, section: Section) -> u16 {
        self.counts[section as usize]
    }

    /// Writes some bytes, if they fit.
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at.checked_add(bytes.len()).filter(|end| *end <= self.limit)?;
        self.out.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }

    /// Writes a whole record, compiled with an owner of two bytes, under another owner.
    #[inline]
    pub(crate) fn record(&mut self, section: Section, owner: u16, record: &[u8]) -> Option<()> {
        let at = self.at;
        self.put(record)?;
        self.out.get_mut(at..at + 2)?.copy_from_slice(&owner.to_be_bytes());
        self.count_up(section);
        Some(())
    }

    /// Begins a record; its data follow by [`Reply::put`], and [`Reply::end`] closes it. Gives where its data begin.
    pub(crate) fn begin(&mut self, owner: u16, kind: u16, ttl_s: u32) -> Option<usize> {
        let mut fixed = [0; 12];
        fixed[..2].copy_from_slice(&owner.to_be_bytes());
        fixed[2..4].copy_from_slice(&kind.to_be_bytes());
        fixed[5] = 1;
        fixed[6..10].copy_from_slice(&ttl_s.to_be_bytes());
        self.put(&fixed)?;
        Some(self.at)
    }

    /// Closes the record whose data began there.
    pub(crate) fn end(&mut self, section: Section, data: usize) {
        let length = u16::try_from(self.at.saturating_sub(data)).unwrap_or(0);
        if let Some(place) = data.checked_sub(2).and_then(|at| self.out.get_mut(at..data)) {
            place.copy_from_slice(&length.to_be_bytes());
        }
        self.count_up(section);
    }

    /// Forgets all that was written since the reply was that long, and had so many records in that section.
    pub(crate) fn rewind(&mut self, at: usize, section: Section, count: u16) {
        self.at = at.clamp(self.question_end, self.at);
        self.counts[section as usize] = count;
    }

    /// It does not fit: the client is to come back by TCP.
    pub(crate) fn truncate(&mut self) {
        self.at = self.question_end;
        self.counts = [0; 3];
        self.truncated = true;
    }

    fn count_up(&mut self, section: Section) {
        let count = &mut self.counts[section as usize];
        *count = count.saturating_add(1);
    }

    /// Adds the extensions for which room was reserved.
    pub(crate) fn extend(&mut self, with: &Extensions<'_>) {
        self.release(EXTENSIONS_MAX);
        let mut fixed = [0; 11];
        fixed[1..3].copy_from_slice(&kind::OPT.to_be_bytes());
        fixed[3..5].copy_from_slice(&with.size.to_be_bytes());
        fixed[5] = u8::try_from(self.code >> 4).unwrap_or(0);
        fixed[7] = if with.dnssec { 0x80 } else { 0 };
        let data = self.at + fixed.len();
        if self.put(&fixed).is_none() {
            return;
        }
        // What does not fit is left out: a client lives without any option.
        let _ = self.options(with);
        self.end(Section::Additional, data);
    }

    fn options(&mut self, with: &Extensions<'_>) -> Option<()> {
        if let Some(cookie) = &with.cookie {
            self.option(option::COOKIE, &[cookie])?;
        }
        if let Some((family, source, scope, address)) = with.subnet {
            let bytes = address.get(..usize::from(source).div_ceil(8))?;
            self.option(option::CLIENT_SUBNET, &[&[0, family, source, scope], bytes])?;
        }
        if let Some(nsid) = with.nsid {
            self.option(option::NSID, &[nsid])?;
        }
        Some(())
    }

    fn option(&mut self, number: u16, parts: &[&[u8]]) -> Option<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if self.limit.saturating_sub(self.at) < length + 4 {
            return None;
        }
        self.put(&number.to_be_bytes())?;
        self.put(&u16::try_from(length).ok()?.to_be_bytes())?;
        parts.iter().try_for_each(|part| self.put(part))
    }

    /// Writes the header; gives the reply's length.
    pub(crate) fn finish(self) -> usize {
        let Self { out, at, counts, .. } = self;
        let questions = u16::from(self.question_end > HEADER);
        let Some(header) = out.first_chunk_mut::<HEADER>() else { return 0 };
        // Of the question's flags, the operation and the wish for recursion are said back.
        header[2] = header[2] & 0x79 | 0x80;
        header[2] |= if self.authoritative { 0x04 } else { 0 } | if self.truncated { 0x02 } else { 0 };
        header[3] = u8::try_from(self.code & 0xF).unwrap_or(0);
        for (place, count) in [questions, counts[0], counts[1], counts[2]].iter().enumerate() {
            header[4 + place * 2..6 + place * 2].copy_from_slice(&count.to_be_bytes());
        }
        at
    }
}
