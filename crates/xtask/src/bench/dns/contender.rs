//! The servers: settings for each, started together, stopped when dropped.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::shell::{release_binary, run, step};

/// A server that runs.
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) port: u16,
    pub(super) memory_mb: f64,
    process: Option<Child>,
    pid: u32,
}

impl Drop for Contender {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Contender {
    /// CPU time that the process has taken, in microseconds.
    pub(super) fn cpu_us(&self) -> Result<f64> {
        // The kernel counts in hundredths of a second, whatever its own clock.
        const TICK_US: f64 = 10_000.0;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        // The program's name is in brackets and may hold anything.
        let rest = stat.rsplit_once(')').context("an odd stat")?.1;
        let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
        Ok(ticks.sum::<Result<f64, _>>()? * TICK_US)
    }

    /// The same with what it weighs now.
    pub(super) fn weigh(&self) -> Result<Self> {
        let memory_mb = super::super::resident_mb(self.pid)?;
        Ok(Self { name: self.name, port: self.port, memory_mb, process: None, pid: self.pid })
    }
}

/// Starts all of them with the same names.
pub(super) fn start_all(directory: &Path, names: usize, prefixes: u32) -> Result<Vec<Contender>> {
    let health = health()?;
    Ok(vec![
        start_ours(names, prefixes)?,
        gdnsd(directory, names, prefixes, health)?,
        knot(directory, names)?,
    ])
}

/// Starts ours alone.
pub(super) fn start_ours(names: usize, prefixes: u32) -> Result<Contender> {
    let serve = step("release build", || {
        run(Command::new("cargo").args([
            "build",
            "--release",
            "--package",
            "landfall-dns",
            "--example",
            "serve",
        ]))?;
        release_binary("examples/serve")
    })?;
    landfall(&serve, names, prefixes)
}

fn landfall(serve: &Path, names: usize, prefixes: u32) -> Result<Contender> {
    let port = free_port()?;
    let mut command = Command::new(serve);
    command.args([format!("127.0.0.1:{port}"), names.to_string(), prefixes.to_string()]);
    // It runs as long as its input is open.
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let stdout = process.stdout.take().context("its output is piped")?;
    let contender = contender("landfall", port, process);
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    if !line.starts_with("ready") {
        bail!("our server did not start");
    }
    Ok(contender)
}

/// Listens where gdnsd looks whether the addresses are up; gives the port.
fn health() -> Result<u16> {
    let first = TcpListener::bind("127.0.0.1:0")?;
    let port = first.local_addr()?.port();
    let mut listeners = vec![first];
    for last in 2..=3 {
        listeners.push(TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), port))?);
    }
    for listener in listeners {
        // They end with the program.
        std::thread::spawn(move || listener.incoming().for_each(drop));
    }
    Ok(port)
}

fn gdnsd(directory: &Path, names: usize, prefixes: u32, health: u16) -> Result<Contender> {
    let port = free_port()?;
    let home = directory.join("gdnsd");
    for part in ["zones", "run", "state"] {
        std::fs::create_dir_all(home.join(part))?;
    }
    let shown = home.display();
    let mut text = format!(
        "options => {{\n  listen => {{ 127.0.0.1:{port} => {{ udp_threads = 1, tcp_threads = 1 }} }}\n  run_dir = {shown}/run\n  \
         state_dir = {shown}/state\n}}\nservice_types => {{ tcp => {{ plugin = tcp_connect, port = {health}, interval = 8 }} }}\n\
         plugins => {{ geoip => {{\n  maps => {{ world => {{ datacenters => [dc1, dc2, dc3], nets => {{\n"
    );
    for n in 0..prefixes {
        let order = [0, 1, 2].map(|step| format!("dc{}", (n + step) % 3 + 1)).join(", ");
        writeln!(text, "    {}/20 => [{order}]", Ipv4Addr::from(0x0B00_0000 + (n << 12)))?;
    }
    text.push_str("  } } }\n  resources => {\n");
    for n in 0..names {
        let all = "{ a = 127.0.0.1, b = 127.0.0.2, c = 127.0.0.3 }";
        let dcs = [1, 2, 3].map(|dc| format!("dc{dc} => {all}")).join(", ");
        writeln!(text, "    r{n} => {{ map = world, service_types = tcp, dcmap => {{ {dcs} }} }}")?;
    }
    text.push_str("  }\n} }\n");
    std::fs::write(home.join("config"), text)?;
    let mut zone = head();
    for n in 0..names {
        writeln!(zone, "svc-{n}.bench.fed 180 DYNA geoip!r{n}")?;
    }
    std::fs::write(home.join("zones/example.com"), zone)?;
    let mut command = Command::new("gdnsd");
    command.arg("-c").arg(&home).arg("start");
    let contender = contender("gdnsd", port, spawn(command)?);
    wait(contender)
}

fn knot(directory: &Path, names: usize) -> Result<Contender> {
    let port = free_port()?;
    let home = directory.join("knot");
    std::fs::create_dir_all(home.join("run"))?;
    let shown = home.display();
    let text = format!(
        "server:\n  rundir: {shown}/run\n  listen: 127.0.0.1@{port}\n  udp-workers: 1\n  tcp-workers: 1\n  \
         background-workers: 1\ndatabase:\n  storage: {shown}\nlog:\n  - target: stderr\n    any: error\nzone:\n  \
         - domain: example.com\n    storage: {shown}\n    file: zone\n"
    );
    std::fs::write(home.join("knot.conf"), text)?;
    let mut zone = head();
    for n in 0..names {
        for last in 1..=3 {
            writeln!(zone, "svc-{n}.bench.fed 180 A 127.0.0.{last}")?;
        }
    }
    std::fs::write(home.join("zone"), zone)?;
    let mut command = Command::new("knotd");
    command.arg("-c").arg(home.join("knot.conf"));
    wait(contender("Knot", port, spawn(command)?))
}

fn head() -> String {
    "@ 900 SOA ns hostmaster 1 7200 1800 259200 900\n@ NS ns\nns A 127.0.0.1\n".to_owned()
}

fn spawn(mut command: Command) -> Result<Child> {
    let shown = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().with_context(|| format!("cannot start {shown}"))
}

fn contender(name: &'static str, port: u16, process: Child) -> Contender {
    let pid = process.id();
    Contender { name, port, memory_mb: 0.0, process: Some(process), pid }
}

/// Waits until it answers the last of its names.
fn wait(contender: Contender) -> Result<Contender> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    socket.connect(("127.0.0.1", contender.port))?;
    let question = b"\x12\x34\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05svc-1\x05bench\x03fed\x07example\x03com\x00\x00\x01\x00\x01";
    let began = Instant::now();
    let mut reply = [0; 512];
    while began.elapsed() < Duration::from_secs(30) {
        // Until it listens, sending fails as well.
        let _ = socket.send(question);
        if socket.recv(&mut reply).is_ok_and(|length| length > 60 && reply[7] == 3) {
            return Ok(contender);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("{} does not answer", contender.name)
}

fn free_port() -> Result<u16> {
    Ok(UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port())
}
