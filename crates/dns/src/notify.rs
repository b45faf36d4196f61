//! NOTIFY (RFC 1996): tells secondaries that a zone has changed, so that they need not wait until they ask of themselves.
//!
//! A secondary that answers, whatever it says, has heard it. One that does not is told again a few times; then it finds out when it
//! next looks. Changes that come together are told once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Message, OpCode, Query};
use hickory_proto::rr::{Name, RecordType, TSigner};
use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::config::{Config, Secondary, StartError};
use crate::responder::random;
use crate::state::Shared;

/// So long changes are gathered.
const GATHER: Duration = Duration::from_secs(1);
/// How long a secondary may take to answer at first; twice as long each time it is told again, and so often.
const PATIENCE: Duration = Duration::from_secs(2);
const TRIES_MAX: u32 = 4;

/// Whom to tell, ready to be told.
struct Told {
    address: SocketAddr,
    key: Option<TSigner>,
}

/// Begins to tell secondaries.
pub(crate) fn start(config: &Config, shared: &Arc<Shared>, tasks: &Tasks) -> Result<(), StartError> {
    for Secondary { address, key } in &config.secondaries {
        let signer = |name: &String| {
            let index = config.keys.iter().position(|key| key.name == *name);
            let signer = index.and_then(|index| shared.keys.get(index)).cloned();
            signer.ok_or_else(|| StartError::Key(name.clone()))
        };
        let told = Told { address: *address, key: key.as_ref().map(signer).transpose()? };
        // From now on, not from when the task first runs: what is published in between must be told, too.
        let serial = shared.serial.subscribe();
        tasks.spawn_until_stop(run(shared.clone(), told, serial));
    }
    Ok(())
}

/// Tells one secondary of every change, for ever.
async fn run(shared: Arc<Shared>, told: Told, mut serial: watch::Receiver<u32>) {
    while serial.changed().await.is_ok() {
        tokio::time::sleep(GATHER).await;
        let now = *serial.borrow_and_update();
        let zones: Vec<String> = {
            let snapshot = shared.snapshot.load();
            let names = &snapshot.stage.scene.names;
            names.zones().iter().map(|zone| names.zone(*zone).join(".")).collect()
        };
        for zone in zones {
            let heard = tell(&told, &zone, &serial).await;
            let counter = if heard { &shared.metrics.notified } else { &shared.metrics.unheard };
            counter.inc();
            if !heard {
                tracing::warn!(secondary = %told.address, zone, serial = now, "a secondary does not answer");
            }
        }
    }
}

/// Tells a secondary that a zone has changed; whether it answered.
async fn tell(told: &Told, zone: &str, serial: &watch::Receiver<u32>) -> bool {
    for tries in 0..TRIES_MAX {
        match ask(told, zone, PATIENCE * 2_u32.pow(tries)).await {
            Some(()) => return true,
            // What is newer is told instead.
            None if serial.has_changed().unwrap_or(true) => return false,
            None => {}
        }
    }
    false
}

/// Sends one message and waits for its answer.
async fn ask(told: &Told, zone: &str, patience: Duration) -> Option<()> {
    let id = u16::from_ne_bytes(random().ok()?);
    let packet = message(id, zone, told.key.as_ref())?;
    let any: IpAddr =
        if told.address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await.ok()?;
    socket.connect(told.address).await.ok()?;
    socket.send(&packet).await.ok()?;
    let answered = async {
        let mut answer = [0; 512];
        loop {
            let length = socket.recv(&mut answer).await.ok()?;
            let said = answer.get(..length).unwrap_or_default();
            let ours = said.get(..2) == Some(&id.to_be_bytes()[..]);
            if ours && said.get(2).is_some_and(|flags| flags & 0x80 != 0) {
                return Some(());
            }
        }
    };
    timeout(patience, answered).await.ok()?
}

/// The message: the zone's SOA is what has changed.
fn message(id: u16, zone: &str, key: Option<&TSigner>) -> Option<Vec<u8>> {
    let name = Name::from_ascii(format!("{zone}.")).ok()?;
    let mut message = Message::query();
    message.metadata.id = id;
    message.metadata.op_code = OpCode::Notify;
    message.metadata.authoritative = true;
    message.metadata.recursion_desired = false;
    message.queries = vec![Query::query(name, RecordType::SOA)];
    if let Some(key) = key {
        message.finalize(key, u64::try_from(clock::epoch_s()).unwrap_or(0)).ok()?;
    }
    message.to_vec().ok()
}
