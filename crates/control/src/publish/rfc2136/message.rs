//! What is said to the server: updates with what must be true for them, and transfers, taken apart.

use hickory_proto::ProtoError;
use hickory_proto::op::update_message::{self, UpdateMessage as _};
use hickory_proto::op::{Message, OpCode, Query};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SRV, TXT};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use landfall_plan::publish::{Change, Found, Held, Set, Sets, Step, TYPES, Type};
use landfall_plan::records::sets::{Data, Service};

use super::super::publisher::Fault;

/// The label of the name beside a name where its owner's mark stands. Beside it, because a CNAME stands alone.
const BESIDE: &str = "_landfall";
/// How long marks may be kept: only we ask for them.
const MARK_TTL_S: u32 = 300;
/// The most records of one zone that are read.
const RECORDS_MAX: usize = 2_000_000;

/// A name on the wire.
pub(in super::super) fn name(text: &str) -> Result<Name, ProtoError> {
    let labels = text.trim_end_matches('.').split('.').map(str::as_bytes);
    let mut name = Name::from_labels(labels)?;
    name.set_fqdn(true);
    Ok(name)
}

/// A request for the whole zone.
pub(super) fn transfer(zone: &Name) -> Message {
    update_message::zone_transfer(zone.clone(), None)
}

/// One update that makes all the changes, if all of their names are as they say.
pub(super) fn update(zone: &Name, mark: &str, changes: &[Change]) -> Result<Message, ProtoError> {
    let mut message = Message::query();
    message.metadata.op_code = OpCode::Update;
    message.metadata.recursion_desired = false;
    message.add_zone(Query::query(zone.clone(), RecordType::SOA));
    for change in changes {
        let (name, beside) = (name(&change.name)?, name(&format!("{BESIDE}.{}", change.name))?);
        let marked = RData::TXT(TXT::new(vec![mark.to_owned()]));
        match change.step {
            Step::Create => {
                message.add_pre_requisite(bare(&name, RecordType::ANY, DNSClass::NONE));
                message.add_pre_requisite(bare(&beside, RecordType::ANY, DNSClass::NONE));
                message.add_update(Record::from_rdata(beside, MARK_TTL_S, marked));
            }
            Step::Replace | Step::Remove => {
                message.add_pre_requisite(Record::from_rdata(beside.clone(), 0, marked));
                as_before(&mut message, &name, &change.before)?;
                if change.step == Step::Remove {
                    message.add_update(bare(&beside, RecordType::TXT, DNSClass::ANY));
                }
            }
        }
        for ty in TYPES {
            let (before, after) = (change.before.get(&ty), change.after.get(&ty));
            if before.is_some() && before != after {
                message.add_update(bare(&name, record_type(ty), DNSClass::ANY));
            }
        }
        for (ty, set) in &change.after {
            if change.before.get(ty) != Some(set) {
                message.add_updates(records(&name, set.ttl_s, &set.data)?);
            }
        }
    }
    Ok(message)
}

/// The name has these records, of the types that are ours, and no others.
fn as_before(message: &mut Message, name: &Name, before: &Sets) -> Result<(), ProtoError> {
    for ty in TYPES {
        match before.get(&ty) {
            // Times do not count in what must be true, and have to be zero.
            Some(set) => message.add_pre_requisites(records(name, 0, &set.data)?),
            None => message.add_pre_requisite(bare(name, record_type(ty), DNSClass::NONE)),
        }
    }
    Ok(())
}

/// A record without data: all of a type, or none.
fn bare(name: &Name, ty: RecordType, class: DNSClass) -> Record {
    let mut record = Record::update0(name.clone(), 0, ty);
    record.dns_class = class;
    record
}

fn record_type(ty: Type) -> RecordType {
    match ty {
        Type::A => RecordType::A,
        Type::Aaaa => RecordType::AAAA,
        Type::Cname => RecordType::CNAME,
        Type::Srv => RecordType::SRV,
    }
}

fn records(name: &Name, ttl_s: u32, data: &Data) -> Result<Vec<Record>, ProtoError> {
    let data: Vec<RData> = match data {
        Data::A(all) => all.iter().map(|ip| RData::A(A(*ip))).collect(),
        Data::Aaaa(all) => all.iter().map(|ip| RData::AAAA(AAAA(*ip))).collect(),
        Data::Cname(to) => vec![RData::CNAME(CNAME(self::name(to)?))],
        Data::Srv(all) => {
            let row = |s: &Service| {
                Ok::<_, ProtoError>(RData::SRV(SRV::new(
                    s.priority,
                    s.weight,
                    s.port,
                    self::name(&s.target)?,
                )))
            };
            all.iter().map(row).collect::<Result<_, _>>()?
        }
    };
    Ok(data.into_iter().map(|data| Record::from_rdata(name.clone(), ttl_s, data)).collect())
}

/// A zone, as it comes in.
pub(super) struct Reading<'a> {
    zone: &'a Name,
    found: Found,
    records: usize,
    begun: bool,
}

impl<'a> Reading<'a> {
    /// Nothing has come yet.
    pub(super) fn new(zone: &'a Name) -> Self {
        Self { zone, found: Found::new(), records: 0, begun: false }
    }

    /// Takes one message; whether it was the last: a transfer begins and ends with the zone's SOA record.
    pub(super) fn take(&mut self, answer: Message) -> Result<bool, Fault> {
        if answer.answers.is_empty() {
            return Err(Fault::Failed("the server sent an empty part of the zone".into()));
        }
        for record in answer.answers {
            let soa = record.record_type() == RecordType::SOA && record.name == *self.zone;
            match (self.begun, soa) {
                (false, false) => {
                    return Err(Fault::Failed("the zone does not begin with its SOA record".into()));
                }
                (true, true) => return Ok(true),
                (false, true) => self.begun = true,
                (true, false) => self.keep(record),
            }
            self.records += 1;
            if self.records > RECORDS_MAX {
                return Err(Fault::Failed(format!("the zone has more than {RECORDS_MAX} records")));
            }
        }
        Ok(false)
    }

    /// What the zone has.
    pub(super) fn found(self) -> Found {
        self.found
    }

    fn keep(&mut self, record: Record) {
        let name = text(&record.name);
        if let Some(of) = name.strip_prefix(BESIDE).and_then(|rest| rest.strip_prefix('.')) {
            if let RData::TXT(txt) = &record.data {
                let said: Vec<u8> = txt.txt_data.concat();
                let said = String::from_utf8_lossy(&said).into_owned();
                let owner = &mut self.found.entry(of.to_owned()).or_default().owner;
                // Two marks are nobody's.
                *owner = Some(match owner.take() {
                    None => said,
                    Some(other) => format!("{other} {said}"),
                });
            }
            return;
        }
        // A server that signs its zone adds these to every name.
        if matches!(record.record_type(), RecordType::RRSIG | RecordType::NSEC | RecordType::NSEC3) {
            return;
        }
        put(self.found.entry(name).or_default(), record);
    }
}

fn put(held: &mut Held, record: Record) {
    let (ty, empty) = match &record.data {
        RData::A(_) => (Type::A, Data::A(Vec::new())),
        RData::AAAA(_) => (Type::Aaaa, Data::Aaaa(Vec::new())),
        RData::CNAME(to) => (Type::Cname, Data::Cname(text(&to.0))),
        RData::SRV(_) => (Type::Srv, Data::Srv(Vec::new())),
        _ => {
            held.others = true;
            return;
        }
    };
    let set = held.sets.entry(ty).or_insert(Set { ttl_s: record.ttl, data: empty });
    match (&mut set.data, record.data) {
        (Data::A(all), RData::A(ip)) => all.push(ip.0),
        (Data::Aaaa(all), RData::AAAA(ip)) => all.push(ip.0),
        (Data::Srv(all), RData::SRV(srv)) => all.push(Service {
            priority: srv.priority,
            weight: srv.weight,
            port: srv.port,
            target: text(&srv.target),
        }),
        _ => {}
    }
}

fn text(name: &Name) -> String {
    let mut text = name.to_lowercase().to_ascii();
    if text.len() > 1 && text.ends_with('.') {
        text.pop();
    }
    text
}
