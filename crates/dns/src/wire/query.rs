//! What was asked: header, question, and what the additional section says about it.
//!
//! Every byte string is either a question, or something to be refused with a code, or nothing to be answered at all.

use super::edns::Edns;
use super::name::{Name, skip};
use super::{HEADER, code, kind, u16_at};

/// At most so many additional records are looked at: a question has an OPT and a TSIG.
const ADDITIONAL_MAX: u16 = 4;

/// A question.
#[derive(Clone, Debug)]
pub(crate) struct Query<'a> {
    /// The name.
    pub(crate) name: &'a Name,
    /// The record type.
    pub(crate) kind: u16,
    /// The class.
    pub(crate) class: u16,
    /// Where the question ends in the packet.
    pub(crate) end: usize,
    /// Its extensions, if it has any.
    pub(crate) edns: Option<Edns>,
    /// Where its signature begins, if it is signed.
    pub(crate) signature: Option<usize>,
}

/// What came.
#[derive(Clone, Debug)]
pub(crate) enum Read<'a> {
    /// No answer: too short to be a message, or itself a response.
    Silence,
    /// To be refused with this code; with so many bytes of question, 0 if it could not be read.
    Bad {
        /// The code.
        code: u16,
        /// Where the question ends; the header's length when there is none.
        end: usize,
        /// Whether the answer must have extensions too.
        edns: bool,
    },
    /// A question.
    Query(Query<'a>),
}

/// The operation of a message, from its flags.
fn opcode(flags: u16) -> u16 {
    flags >> 11 & 0xF
}

/// Reads a packet; its question's name is put into `name`.
pub(crate) fn read<'a>(packet: &[u8], name: &'a mut Name) -> Read<'a> {
    let Some(flags) = u16_at(packet, 2).filter(|_| packet.len() >= HEADER) else { return Read::Silence };
    if flags & 0x8000 != 0 {
        return Read::Silence;
    }
    let bad = |code, end| Read::Bad { code, end, edns: false };
    if opcode(flags) != 0 {
        return bad(code::NOT_IMP, HEADER);
    }
    let count = |at| u16_at(packet, at).unwrap_or(0);
    if count(4) != 1 {
        return bad(code::FORM_ERR, HEADER);
    }
    let Some(end) = question(packet, name) else { return bad(code::FORM_ERR, HEADER) };
    let (Some(kind), Some(class)) = (u16_at(packet, end - 4), u16_at(packet, end - 2)) else {
        return bad(code::FORM_ERR, HEADER);
    };
    // An IXFR carries the secondary's SOA.
    let authority = if kind == kind::IXFR { 1 } else { 0 };
    if count(6) != 0 || count(8) > authority || count(10) > ADDITIONAL_MAX {
        return bad(code::FORM_ERR, end);
    }
    let mut query = Query { name, kind, class, end, edns: None, signature: None };
    match additional(packet, end, count(8), count(10), &mut query) {
        Ok(()) => Read::Query(query),
        Err(code) => Read::Bad { code, end, edns: query.edns.is_some() || code == code::BAD_VERS },
    }
}

/// Reads the question's name; gives where the question ends.
fn question(packet: &[u8], name: &mut Name) -> Option<usize> {
    name.read_into(packet.get(HEADER..)?)?;
    let end = HEADER + name.wire().len() + 4;
    (packet.len() >= end).then_some(end)
}

/// Reads what follows the question, up to the packet's end.
fn additional(
    packet: &[u8],
    mut at: usize,
    authority: u16,
    additional: u16,
    query: &mut Query<'_>,
) -> Result<(), u16> {
    let total = authority + additional;
    for number in 0..total {
        let began = at;
        let fixed = skip(packet, at).ok_or(code::FORM_ERR)?;
        let kind = u16_at(packet, fixed).ok_or(code::FORM_ERR)?;
        let length = usize::from(u16_at(packet, fixed + 8).ok_or(code::FORM_ERR)?);
        let data = packet.get(fixed + 10..fixed + 10 + length).ok_or(code::FORM_ERR)?;
        at = fixed + 10 + length;
        match kind {
            kind::OPT if query.edns.is_some() || fixed != began + 1 => return Err(code::FORM_ERR),
            kind::OPT => {
                let (edns, result) = Edns::read(packet, fixed, data);
                query.edns = Some(edns);
                result?;
            }
            // It signs all that stands before it.
            kind::TSIG if number + 1 != total => return Err(code::FORM_ERR),
            kind::TSIG => query.signature = Some(began),
            _ => {}
        }
    }
    if at == packet.len() { Ok(()) } else { Err(code::FORM_ERR) }
}
