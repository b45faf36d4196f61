//! Breaking things in a running playground from another shell: one line of JSON each way over loopback.
//!
//! Whoever can read `control.json` in the playground's directory, which is its owner alone, may ask.

use std::io::{BufRead as _, BufReader as StdReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use landfall_runtime::tasks::Tasks;
use landfall_sim::world::World;
use landfall_sim::world::fault::Fault;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream as Stream};
use tokio::sync::Semaphore;

use super::files::write_private;
use super::home::Home;

/// The longest line, and the longest wait for one.
const LINE_BYTES_MAX: u64 = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(10);
/// The most requests at once, and the pause after a connection that could not be taken.
const CONNECTIONS_MAX: usize = 16;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where to ask, and what to show.
#[derive(Serialize, Deserialize)]
struct Door {
    address: SocketAddr,
    token: String,
}

#[derive(Serialize, Deserialize)]
struct Request {
    token: String,
    fault: Fault,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Answer {
    Done(String),
    Refused(String),
}

/// Listens for faults, and says where in `control.json`.
pub(super) async fn serve(home: &Home, world: Arc<World>, tasks: &Tasks) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen on loopback")?;
    let token = uuid::Uuid::new_v4().to_string();
    let door = Door { address: listener.local_addr()?, token: token.clone() };
    write_private(&home.join("control.json"), &serde_json::to_vec(&door)?)?;
    let token: Arc<str> = token.into();
    let children = tasks.clone();
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    tasks.spawn_until_stop(async move {
        loop {
            let Ok(room) = room.clone().acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // Out of files, most likely; others need the time to give some back.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (world, token) = (world.clone(), token.clone());
            children.spawn_until_stop(async move {
                // A client that went away is nobody's problem but its own.
                let _ = answer(stream, &token, &world).await;
                drop(room);
            });
        }
    });
    Ok(())
}

async fn answer(mut stream: Stream, token: &str, world: &World) -> std::io::Result<()> {
    let (read, mut write) = stream.split();
    let mut line = String::new();
    tokio::time::timeout(PATIENCE, BufReader::new(read.take(LINE_BYTES_MAX)).read_line(&mut line)).await??;
    let answer = match serde_json::from_str::<Request>(&line) {
        Ok(request) if request.token == token => match world.break_or_mend(&request.fault).await {
            Ok(done) => Answer::Done(done),
            Err(error) => Answer::Refused(error.to_string()),
        },
        Ok(_) => Answer::Refused("this is not the token of this playground".into()),
        Err(error) => Answer::Refused(format!("cannot read the request: {error}")),
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    write.write_all(&text).await?;
    write.shutdown().await
}

/// Asks the playground in a directory; says what it did.
pub(super) fn ask(dir: &Path, fault: Fault) -> Result<String> {
    let path = dir.join("control.json");
    let text = std::fs::read(&path).with_context(|| {
        format!("cannot read {}: is the playground still starting, or another user's?", path.display())
    })?;
    let door: Door =
        serde_json::from_slice(&text).with_context(|| format!("cannot use {}", path.display()))?;
    let stream =
        TcpStream::connect_timeout(&door.address, PATIENCE).context("the playground does not answer")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(&Request { token: door.token, fault })?;
    line.push(b'\n');
    (&stream).write_all(&line)?;
    let mut said = String::new();
    StdReader::new(stream.take(LINE_BYTES_MAX))
        .read_line(&mut said)
        .context("the playground does not answer")?;
    match serde_json::from_str(&said).context("the playground's answer cannot be read")? {
        Answer::Done(done) => Ok(done),
        Answer::Refused(why) => bail!(why),
    }
}
