//! Signed questions (TSIG, RFC 8945): verified, answered as any other, and the answer signed. A slow path: it allocates.

use hickory_proto::op::Message;
use hickory_proto::rr::TSigner;
use hickory_proto::rr::rdata::tsig::{
    TSIG, TsigAlgorithm, TsigError, make_tsig_record, signed_bitmessage_to_buf,
};
use hickory_proto::serialize::binary::BinEncodable as _;

use crate::answer::{Client, Done, respond_to};
use crate::config::{Key, StartError};
use crate::state::Shared;
use crate::wire::name::Name;
use crate::wire::query::{Query, Read, read};
use crate::wire::{code, u16_at};
use crate::zone::Snapshot;

/// How far clocks may differ.
const FUDGE_S: u16 = 300;
/// Room for a signature in a UDP reply.
const SIGNATURE_MAX: usize = 384;

/// Signs what is sent back, message after message.
pub(crate) struct Signing {
    key: TSigner,
    previous: Vec<u8>,
    first: bool,
    id: u16,
}

/// Why a signature is not taken.
#[derive(Debug)]
pub(crate) enum Unsigned {
    /// Not even that can be answered.
    Silence,
    /// To be answered with NOTAUTH and this record.
    NotAuth(Vec<u8>),
}

/// Keys as they are used.
pub(crate) fn keys(keys: &[Key]) -> Result<Vec<TSigner>, StartError> {
    let key = |key: &Key| {
        let name =
            hickory_proto::rr::Name::from_ascii(&key.name).map_err(|_| StartError::Key(key.name.clone()))?;
        TSigner::new(key.secret.clone(), TsigAlgorithm::HmacSha256, name, FUDGE_S)
            .map_err(|_| StartError::Key(key.name.clone()))
    };
    keys.iter().map(key).collect()
}

/// Answers a signed question; gives the reply's length.
pub(crate) fn answer(
    shared: &Shared,
    snapshot: &Snapshot,
    client: Client,
    packet: &[u8],
    out: &mut [u8],
) -> Option<usize> {
    let mut name = Name::root();
    let Read::Query(query) = read(packet, &mut name) else { return None };
    let whole = match verify(shared, &query, packet, u64::from(client.now_s)) {
        Ok((mut signing, plain)) => {
            let room = out.len().checked_sub(SIGNATURE_MAX)?;
            let done = respond_to(snapshot, &shared.manner, client, &plain, &query, out.get_mut(..room)?);
            let Done::Reply { length, sort, .. } = done else { return None };
            shared.metrics.count_one(sort);
            signing.sign(out.get(..length)?.to_vec(), u64::from(client.now_s))?
        }
        Err(Unsigned::NotAuth(reply)) => reply,
        Err(Unsigned::Silence) => return None,
    };
    out.get_mut(..whole.len())?.copy_from_slice(&whole);
    Some(whole.len())
}

/// Verifies a signed question; gives what signs the answer, and the question without its signature.
pub(crate) fn verify(
    shared: &Shared,
    query: &Query<'_>,
    packet: &[u8],
    now_s: u64,
) -> Result<(Signing, Vec<u8>), Unsigned> {
    let end = query.signature.ok_or(Unsigned::Silence)?;
    let message = Message::from_vec(packet).map_err(|_| Unsigned::Silence)?;
    let record = message.signature.as_ref().ok_or(Unsigned::Silence)?;
    let signature = &record.data;
    let id = u16_at(packet, 0).unwrap_or(0);
    let refuse = |error, key: Option<&TSigner>| {
        refuse(packet, query, (record.name.clone(), signature), error, key, now_s)
    };
    let key = shared.keys.iter().find(|key| *key.signer_name() == record.name);
    let key = key.filter(|key| *key.algorithm() == signature.algorithm);
    let Some(key) = key else { return Err(refuse(TsigError::BadKey, None)) };
    let (bytes, _) = signed_bitmessage_to_buf(packet, None, true).map_err(|_| Unsigned::Silence)?;
    if key.verify(&bytes, &signature.mac).is_err() {
        return Err(refuse(TsigError::BadSig, None));
    }
    if now_s.abs_diff(signature.time) > u64::from(signature.fudge.min(FUDGE_S)) {
        return Err(refuse(TsigError::BadTime, Some(key)));
    }
    let mut plain = packet.get(..end).ok_or(Unsigned::Silence)?.to_vec();
    add_to_additional(&mut plain, -1);
    Ok((Signing { key: key.clone(), previous: signature.mac.clone(), first: true, id }, plain))
}

/// NOTAUTH, with the reason in a signature that signs nothing, or, when only the clocks differ, in one that does.
fn refuse(
    packet: &[u8],
    query: &Query<'_>,
    (name, signature): (hickory_proto::rr::Name, &TSIG),
    error: TsigError,
    key: Option<&TSigner>,
    now_s: u64,
) -> Unsigned {
    let Some(head) = packet.get(..query.end) else { return Unsigned::Silence };
    let mut reply = head.to_vec();
    reply[2] = reply[2] & 0x79 | 0x80;
    reply[3] = u8::try_from(code::NOT_AUTH).unwrap_or(9);
    reply[6..12].fill(0);
    // The client's own time is said back, and ours beside it where that is the matter.
    let other = if error == TsigError::BadTime { now_s.to_be_bytes()[2..].to_vec() } else { Vec::new() };
    let algorithm = signature.algorithm.clone();
    let stub = TSIG::new(algorithm, signature.time, FUDGE_S, Vec::new(), signature.oid, Some(error), other);
    let mac = key.and_then(|key| {
        let bytes = key.encode_response_tbs(&signature.mac, &reply, &stub).ok()?;
        key.sign(&bytes).ok()
    });
    let record = make_tsig_record(name, stub.set_mac(mac.unwrap_or_default()));
    match record.to_bytes() {
        Ok(bytes) => {
            reply.extend(bytes);
            add_to_additional(&mut reply, 1);
            Unsigned::NotAuth(reply)
        }
        Err(_) => Unsigned::Silence,
    }
}

impl Signing {
    /// Signs one message; the next one's signature covers this one's.
    pub(crate) fn sign(&mut self, mut message: Vec<u8>, now_s: u64) -> Option<Vec<u8>> {
        let algorithm = self.key.algorithm().clone();
        let stub = TSIG::new(algorithm, now_s, FUDGE_S, Vec::new(), self.id, None, Vec::new());
        let bytes = if self.first {
            self.key.encode_response_tbs(&self.previous, &message, &stub).ok()?
        } else {
            let length = u16::try_from(self.previous.len()).ok()?;
            let mut bytes = length.to_be_bytes().to_vec();
            bytes.extend(&self.previous);
            bytes.extend(&message);
            bytes.extend(&now_s.to_be_bytes()[2..]);
            bytes.extend(FUDGE_S.to_be_bytes());
            bytes
        };
        let mac = self.key.sign(&bytes).ok()?;
        self.first = false;
        self.previous.clone_from(&mac);
        let record = make_tsig_record(self.key.signer_name().clone(), stub.set_mac(mac));
        message.extend(record.to_bytes().ok()?);
        add_to_additional(&mut message, 1);
        Some(message)
    }
}

/// Counts an additional record in or out.
fn add_to_additional(message: &mut [u8], change: i16) {
    let count = u16_at(message, 10).unwrap_or(0).wrapping_add_signed(change);
    if let Some(place) = message.get_mut(10..12) {
        place.copy_from_slice(&count.to_be_bytes());
    }
}
