//! What clients that are there and ask nothing cost: each has asked once, and keeps its connection.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::contender::Contender;
use super::load::NEAR;
use crate::shell;

/// Connections that wait.
pub(super) const CLIENTS: usize = 20_000;
/// Files that this process and its children may open.
const FILES: usize = 60_000;
/// How long a server may take to take in the next client.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long memory may take to come to rest.
const REST: Duration = Duration::from_secs(2);

/// What a server weighs.
pub(super) struct Idle {
    pub(super) server: &'static str,
    pub(super) before_mb: f64,
    pub(super) with_mb: f64,
    /// How long it took to take them in.
    pub(super) took: Duration,
}

impl Idle {
    /// As JSON.
    pub(super) fn json(&self) -> Value {
        json!({"server": self.server, "clients": CLIENTS, "beforeMb": self.before_mb, "withMb": self.with_mb})
    }

    /// What one of them takes.
    pub(super) fn kb_each(&self) -> f64 {
        let clients = u32::try_from(CLIENTS).map_or(1.0, f64::from);
        (self.with_mb - self.before_mb) * 1024.0 / clients
    }
}

/// Lets this process and those it starts open many files.
pub(super) fn allow() -> Result<()> {
    let mut prlimit = Command::new("prlimit");
    prlimit.args(["--pid", &std::process::id().to_string(), &format!("--nofile={FILES}:{FILES}")]);
    shell::output(&mut prlimit).map(drop).context("many connections need many files, and those need root")
}

/// Lets clients come, ask once, and stay.
pub(super) fn run(contender: &Contender) -> Result<Idle> {
    let before_mb = contender.resident_mb()?;
    let began = Instant::now();
    let mut streams = Vec::with_capacity(CLIENTS);
    for _ in 0..CLIENTS {
        streams.push(client(contender.ports[0])?);
    }
    let took = began.elapsed();
    std::thread::sleep(REST);
    let with_mb = contender.resident_mb()?;
    // They are still there.
    for stream in streams.iter_mut().step_by(CLIENTS / 100) {
        ask(stream)?;
    }
    Ok(Idle { server: contender.name, before_mb, with_mb, took })
}

fn client(port: u16) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    ask(&mut stream)?;
    Ok(stream)
}

fn ask(stream: &mut TcpStream) -> Result<()> {
    write!(stream, "GET / HTTP/1.1\r\nHost: {NEAR}\r\n\r\n")?;
    let mut room = [0; 4096];
    let read = stream.read(&mut room)?;
    let said = room.get(..read).unwrap_or_default();
    ensure!(said.starts_with(b"HTTP/1.1 200"), "not answered: {}", String::from_utf8_lossy(said));
    Ok(())
}
