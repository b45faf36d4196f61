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

/// Connections that wait, where there may be so many.
const CLIENTS: usize = 20_000;
/// Files that this process and those it starts should be allowed to open.
const FILES: usize = 60_000;
/// Files that a server needs beside its clients'.
const OTHER_FILES: usize = 1_000;
/// How long a server may take to take in the next client.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long memory may take to come to rest.
const REST: Duration = Duration::from_secs(2);

/// What a server weighs.
pub(super) struct Idle {
    pub(super) server: &'static str,
    pub(super) clients: usize,
    pub(super) before_mb: f64,
    pub(super) with_mb: f64,
    /// How long it took to take them in.
    pub(super) took: Duration,
}

impl Idle {
    /// As JSON.
    pub(super) fn json(&self) -> Value {
        json!({"server": self.server, "clients": self.clients, "beforeMb": self.before_mb, "withMb": self.with_mb})
    }

    /// What one of them takes.
    pub(super) fn kb_each(&self) -> f64 {
        let clients = u32::try_from(self.clients).map_or(1.0, f64::from);
        (self.with_mb - self.before_mb) * 1024.0 / clients
    }
}

/// Lets this process and those it starts open as many files as they need, or as many as they may; tells how many clients there
/// is room for.
pub(super) fn allow() -> Result<usize> {
    let most = most_files(&std::fs::read_to_string("/proc/self/limits")?)?;
    let files = if most >= FILES || limit(&format!("{FILES}:{FILES}")).is_ok() { FILES } else { most };
    // No more than that, but nobody is kept from more.
    limit(&format!("{files}:"))?;
    let clients = CLIENTS.min(files.saturating_sub(OTHER_FILES));
    if clients < CLIENTS {
        shell::say(&format!(
            "    a process may open {files} files here: {clients} idle clients, not {CLIENTS}"
        ));
    }
    ensure!(clients > 0, "no process may open more than {files} files");
    Ok(clients)
}

/// Sets the limit of open files, as `prlimit` reads it.
fn limit(files: &str) -> Result<()> {
    let mut prlimit = Command::new("prlimit");
    prlimit.args(["--pid", &std::process::id().to_string(), &format!("--nofile={files}")]);
    shell::output(&mut prlimit).map(drop)
}

/// The hard limit of open files, as the kernel tells it.
fn most_files(limits: &str) -> Result<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let hard = line.and_then(|rest| rest.split_whitespace().nth(1)).context("no limit of open files")?;
    if hard == "unlimited" { Ok(usize::MAX) } else { hard.parse().context("an odd limit") }
}

/// Lets clients come, ask once, and stay.
pub(super) fn run(contender: &Contender, clients: usize) -> Result<Idle> {
    let before_mb = contender.resident_mb()?;
    let began = Instant::now();
    let mut streams = Vec::with_capacity(clients);
    for _ in 0..clients {
        streams.push(client(contender.ports[0])?);
    }
    let took = began.elapsed();
    std::thread::sleep(REST);
    let with_mb = contender.resident_mb()?;
    // They are still there.
    for stream in streams.iter_mut().step_by((clients / 100).max(1)) {
        ask(stream)?;
    }
    Ok(Idle { server: contender.name, clients, before_mb, with_mb, took })
}

fn client(port: u16) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    ask(&mut stream)?;
    Ok(stream)
}

fn ask(stream: &mut TcpStream) -> Result<()> {
    // At once: pieces would wait for each other, as long as the server takes its time to say that it has the first.
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {NEAR}\r\n\r\n").as_bytes())?;
    let mut room = [0; 4096];
    let read = stream.read(&mut room)?;
    let said = room.get(..read).unwrap_or_default();
    ensure!(said.starts_with(b"HTTP/1.1 200"), "not answered: {}", String::from_utf8_lossy(said));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hard_limit_is_read() {
        let limits = "Limit    Soft Limit  Hard Limit  Units\nMax open files            1024                 20000                files\n";
        assert_eq!(most_files(limits).ok(), Some(20_000));
        assert_eq!(most_files(&limits.replace("20000", "unlimited")).ok(), Some(usize::MAX));
        assert!(most_files("").is_err());
    }
}
