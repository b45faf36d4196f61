//! Zone transfers (AXFR) to secondaries that have a key: every name is asked as a client would ask it, so that a secondary says
//! what we say. A slow path: it allocates, and it is written piece by piece.
//!
//! A secondary cannot tell where its clients stand: it has the records as they are seen from its own address.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::Record;
use landfall_plan::records::names::{EDGES, Located, Node, Zone};
use landfall_runtime::clock;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::answer::{Client, Done, respond_to};
use crate::signed::{self, Signing, Unsigned};
use crate::state::Shared;
use crate::wire::name::{LABELS_MAX, Name, to_wire};
use crate::wire::query::{Query, Read, read};
use crate::wire::{class, kind};
use crate::zone::Snapshot;
use crate::zone::service::Service;

/// So many records go into one message.
const RECORDS_MAX: usize = 100;
/// So many records of a name and type go to secondaries, the nearest first: BIND refuses zones that have more.
const SET_MAX: usize = 100;
/// How long a secondary may take for one message.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether a packet asks for a zone.
pub(crate) fn is_transfer(packet: &[u8]) -> bool {
    matches!(read(packet, &mut Name::root()), Read::Query(query) if matches!(query.kind, kind::AXFR | kind::IXFR))
}

/// Sends a zone, or why not. None when the connection is of no more use.
pub(crate) async fn run(
    shared: &Shared,
    client: IpAddr,
    packet: &[u8],
    stream: &mut TcpStream,
) -> Option<()> {
    let mut name = Name::root();
    let Read::Query(query) = read(packet, &mut name) else { return None };
    let now_s = u64::try_from(clock::epoch_s()).unwrap_or(0);
    let mut signing = match signed::verify(shared, &query, packet, now_s) {
        Ok((signing, _)) => signing,
        Err(Unsigned::NotAuth(reply)) => return write(stream, &reply).await,
        Err(Unsigned::Silence) => {
            let refused = message(packet, true, ResponseCode::Refused, Vec::new());
            return write(stream, &refused?).await;
        }
    };
    let snapshot = shared.snapshot.load_full();
    let Some(zone) = zone(&snapshot, &query) else {
        let not_ours = message(packet, true, ResponseCode::NotAuth, Vec::new())?;
        return write(stream, &signing.sign(not_ours, now_s)?).await;
    };
    send(shared, &snapshot, client, packet, &mut signing, zone, stream).await
}

async fn send(
    shared: &Shared,
    snapshot: &Snapshot,
    client: IpAddr,
    packet: &[u8],
    signing: &mut Signing,
    zone: Zone,
    stream: &mut TcpStream,
) -> Option<()> {
    let apex = snapshot.stage.scene.names.zone(zone).join(".");
    let ask = |name: &str, kind: u16| ask(shared, snapshot, client, name, kind);
    let soa = ask(&apex, kind::SOA);
    let mut waiting = soa.clone();
    waiting.extend(ask(&apex, kind::NS));
    for (edge, _) in snapshot.apex.edges.iter().filter(|_| zone == snapshot.stage.scene.names.edges_zone()) {
        let name = format!("{}.{EDGES}.{apex}", String::from_utf8_lossy(edge));
        [kind::A, kind::AAAA].iter().for_each(|kind| waiting.extend(ask(&name, *kind)));
    }
    let hosts: Vec<String> =
        snapshot.hosts.names().filter(|name| name.ends_with(&format!(".{apex}"))).collect();
    for host in hosts {
        [kind::A, kind::AAAA].iter().for_each(|kind| waiting.extend(ask(&host, *kind)));
    }
    let mut first = true;
    for (key, service) in snapshot.services.iter() {
        for (name, kind) in names(snapshot, zone, key, service) {
            waiting.extend(ask(&name, kind));
        }
        while waiting.len() > RECORDS_MAX {
            let rest = waiting.split_off(RECORDS_MAX);
            deliver(packet, &mut first, std::mem::replace(&mut waiting, rest), signing, stream).await?;
        }
    }
    waiting.extend(soa);
    deliver(packet, &mut first, waiting, signing, stream).await?;
    shared.metrics.transfers.inc();
    Some(())
}

async fn deliver(
    packet: &[u8],
    first: &mut bool,
    records: Vec<Record>,
    signing: &mut Signing,
    stream: &mut TcpStream,
) -> Option<()> {
    let now_s = u64::try_from(clock::epoch_s()).unwrap_or(0);
    let message = message(packet, std::mem::take(first), ResponseCode::NoError, records)?;
    write(stream, &signing.sign(message, now_s)?).await
}

async fn write(stream: &mut TcpStream, message: &[u8]) -> Option<()> {
    let length = u16::try_from(message.len()).ok()?;
    let whole = [&length.to_be_bytes()[..], message].concat();
    timeout(PATIENCE, stream.write_all(&whole)).await.ok()?.ok()
}

/// One message of a transfer; only the first says the question back.
fn message(packet: &[u8], first: bool, code: ResponseCode, records: Vec<Record>) -> Option<Vec<u8>> {
    let asked = Message::from_vec(packet).ok()?;
    let mut message = Message::response(asked.id, OpCode::Query);
    message.metadata.authoritative = code == ResponseCode::NoError;
    message.metadata.response_code = code;
    message.queries = if first { asked.queries } else { Vec::new() };
    message.answers = records;
    message.to_vec().ok()
}

/// The zone that is asked for, if it is one of the federation's own.
fn zone(snapshot: &Snapshot, query: &Query<'_>) -> Option<Zone> {
    let mut room = [&[][..]; LABELS_MAX];
    let (labels, _) = query.name.tail(&mut room);
    match snapshot.stage.scene.names.locate(&snapshot.stage.scene.places, labels) {
        Located::In { zone, node: Node::Apex, .. } => Some(zone),
        _ => None,
    }
}

/// Names of a service in a zone, with the types to ask for.
fn names(snapshot: &Snapshot, zone: Zone, key: &[u8], service: &Service) -> Vec<(String, u16)> {
    let Some(key) = Name::read(&[key, &[0]].concat()) else { return Vec::new() };
    let text = |label: &[u8]| String::from_utf8_lossy(label).into_owned();
    let scene = &snapshot.stage.scene;
    let all = scene.names.of_service(&scene.places, &text(key.label(1)), &text(key.label(0)));
    let apex = scene.names.zone(zone).join(".");
    let mut names = Vec::new();
    for (name, scope) in all.into_iter().filter(|(name, _)| name.ends_with(&format!(".{apex}"))) {
        let mut both = |name: String| names.extend([(name.clone(), kind::A), (name, kind::AAAA)]);
        if service.serves(&snapshot.stage, scope, false) {
            for target in service.targets.iter().filter(|target| target.is_for(false)) {
                let label = text(target.label(&snapshot.stage).get(1..).unwrap_or_default());
                for pod in target.pods() {
                    both(format!("{}.{label}.{name}", text(pod.label.get(1..).unwrap_or_default())));
                }
                both(format!("{label}.{name}"));
            }
        }
        both(name.clone());
        for port in &service.ports {
            let protocol = if port.udp { "udp" } else { "tcp" };
            names.push((format!("_{}._{protocol}.{name}", text(&port.name)), kind::SRV));
        }
    }
    names
}

/// What a client is told about a name: the records under that name itself.
fn ask(shared: &Shared, snapshot: &Snapshot, client: IpAddr, name: &str, kind: u16) -> Vec<Record> {
    let Some(name) = to_wire(name) else { return Vec::new() };
    let mut packet = vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    packet.extend(&name);
    packet.extend([kind.to_be_bytes(), class::IN.to_be_bytes()].concat());
    let mut room = Name::root();
    let Read::Query(query) = read(&packet, &mut room) else { return Vec::new() };
    let client = Client { address: client, inside: false, tcp: true, now_s: 0, luck: 0 };
    let mut out = vec![0; usize::from(u16::MAX)];
    let Done::Reply { length, .. } = respond_to(snapshot, &shared.manner, client, &packet, &query, &mut out)
    else {
        return Vec::new();
    };
    let Ok(message) = Message::from_vec(out.get(..length).unwrap_or_default()) else { return Vec::new() };
    let own = message.queries.first().map(|query| query.name().clone());
    let mut seen = BTreeSet::new();
    // A CNAME is answered for every type: it is kept from the first.
    let fresh =
        |record: &Record| kind != kind::AAAA || record.record_type() != hickory_proto::rr::RecordType::CNAME;
    let records = message.answers.into_iter().filter(|record| Some(&record.name) == own.as_ref());
    records.filter(|record| fresh(record) && seen.insert(record.to_string())).take(SET_MAX).collect()
}
