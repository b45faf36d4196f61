//! The first design's classes of clients, as real ones: they look names up with the system's resolver, whose name servers are the
//! edges, nearest first.
//!
//! A mount namespace gives them a resolv.conf of their own. Edges of a playground listen at a port that resolv.conf cannot name, so
//! a relay stands at port 53 for each of them, which is as silent as its edge.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::world::{NAME, PORT};
use crate::shell;

/// Between two requests of a client.
const EVERY: Duration = Duration::from_millis(100);
/// How long an edge may take to answer its relay.
const RELAY_TIMEOUT: Duration = Duration::from_millis(800);
/// How long a request may take, in seconds.
const REQUEST_S: &str = "5";

/// A class of clients.
pub(super) struct Class {
    /// How the first design calls it.
    pub(super) name: &'static str,
    /// Which client it is here.
    pub(super) client: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// A new process for every request.
    Fresh,
    /// The addresses that it looked up once; so many of them.
    Cached(usize),
    /// One process for all requests, with its own cache of names and connections.
    Kept,
    /// A browser that opens the page.
    Chromium,
}

/// Every class.
pub(super) const CLASSES: &[Class] = &[
    Class {
        name: "well-written",
        client: "curl, looks up every time, tries all addresses",
        kind: Kind::Fresh,
    },
    Class {
        name: "dumb",
        client: "curl, looked up once, tries all addresses",
        kind: Kind::Cached(usize::MAX),
    },
    Class { name: "dumber", client: "curl, looked up once, tries the first address", kind: Kind::Cached(1) },
    Class {
        name: "browser",
        client: "one curl for all requests: keeps names and connections",
        kind: Kind::Kept,
    },
    Class { name: "browser", client: "Chromium, headless", kind: Kind::Chromium },
];

impl Class {
    /// Whether this machine has the client.
    pub(super) fn is_here(&self) -> bool {
        !matches!(self.kind, Kind::Chromium) || shell::has("chromium")
    }
}

/// A request that ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// When it ended.
    pub(super) at: Instant,
    /// Whether it was answered.
    pub(super) good: bool,
}

/// Where clients look names up.
pub(super) struct Resolver {
    file: PathBuf,
    stop: Arc<AtomicBool>,
}

impl Resolver {
    /// Name servers for these edges, in this order.
    pub(super) fn start(directory: &Path, edges: &[SocketAddr]) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut text = "options timeout:1 attempts:2\n".to_owned();
        for (at, edge) in edges.iter().enumerate() {
            let own = Ipv4Addr::new(127, 53, 0, u8::try_from(at + 1)?);
            let socket = UdpSocket::bind((own, 53))
                .with_context(|| format!("cannot listen at {own}:53 (needs root)"))?;
            socket.set_read_timeout(Some(Duration::from_millis(200)))?;
            text.push_str(&format!("nameserver {own}\n"));
            let (edge, stop) = (*edge, stop.clone());
            std::thread::spawn(move || relay(&socket, edge, &stop));
        }
        let file = directory.join("resolv.conf");
        std::fs::write(&file, text)?;
        Ok(Self { file, stop })
    }

    /// A program that looks names up here.
    fn command(&self, program: &str, arguments: &[String]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\""]);
        command.arg(&self.file).arg(program).args(arguments).env("no_proxy", "*");
        command
    }

    /// Runs a client until it is told to stop; what became of its requests.
    pub(super) fn client(&self, class: &Class, stop: &AtomicBool) -> Result<Vec<Request>> {
        match class.kind {
            Kind::Fresh => self.again_and_again("curl", &curl(&[]), stop),
            Kind::Cached(most) => {
                let found = shell::output(&mut self.command("getent", &["ahostsv4".into(), NAME.into()]))?;
                let mut addresses: Vec<&str> =
                    found.lines().filter_map(|line| line.split_whitespace().next()).collect();
                addresses.dedup();
                addresses.truncate(most);
                let pinned = format!("{NAME}:{PORT}:{}", addresses.join(","));
                self.again_and_again("curl", &curl(&["--resolve", &pinned]), stop)
            }
            Kind::Chromium => {
                let options = ["--headless", "--no-sandbox", "--disable-gpu", "--timeout=5000", "--dump-dom"];
                let arguments: Vec<String> = options.into_iter().map(str::to_owned).chain([url()]).collect();
                self.again_and_again("chromium", &arguments, stop)
            }
            Kind::Kept => self.kept(stop),
        }
    }

    fn again_and_again(
        &self,
        program: &str,
        arguments: &[String],
        stop: &AtomicBool,
    ) -> Result<Vec<Request>> {
        let mut requests = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let output =
                self.command(program, arguments).output().with_context(|| format!("no {program}"))?;
            // The echo server names the pod; a browser shows an error page instead.
            let good = output.status.success() && String::from_utf8_lossy(&output.stdout).contains("web-");
            requests.push(Request { at: Instant::now(), good });
            std::thread::sleep(EVERY);
        }
        Ok(requests)
    }

    /// One curl that asks ten times a second, and says after each request how it ended.
    fn kept(&self, stop: &AtomicBool) -> Result<Vec<Request>> {
        // Its words go to standard error, which is not held back.
        let mut arguments =
            curl(&["--rate", "10/s", "--output", "/dev/null", "--write-out", "%{stderr}%{http_code}\\n"]);
        let last = arguments.iter().position(|argument| *argument == url()).context("no URL")?;
        arguments[last] = format!("{}?[1-100000]", url());
        let mut process =
            self.command("curl", &arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let lines = BufReader::new(process.stderr.take().context("curl says nothing")?).lines();
        let mut requests = Vec::new();
        for line in lines {
            let line = line?;
            if line.len() == 3 && line.bytes().all(|byte| byte.is_ascii_digit()) {
                requests.push(Request { at: Instant::now(), good: line == "200" });
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        let _ = process.kill();
        let _ = process.wait();
        Ok(requests)
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn url() -> String {
    format!("http://{NAME}:{PORT}/")
}

fn curl(options: &[&str]) -> Vec<String> {
    let always = ["--silent", "--fail", "--ipv4", "--max-time", REQUEST_S];
    always.iter().chain(options).map(|text| (*text).to_owned()).chain([url()]).collect()
}

/// Brings questions to an edge, and its answers back; silence stays silence.
fn relay(socket: &UdpSocket, edge: SocketAddr, stop: &AtomicBool) {
    let mut packet = [0; 1500];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, client)) = socket.recv_from(&mut packet) else { continue };
        let Ok(own) = socket.try_clone() else { continue };
        let question = packet.get(..length).unwrap_or_default().to_vec();
        std::thread::spawn(move || {
            let mut reply = [0; 1500];
            let asked = UdpSocket::bind("127.0.0.1:0").and_then(|out| {
                out.set_read_timeout(Some(RELAY_TIMEOUT))?;
                out.connect(edge)?;
                out.send(&question)?;
                out.recv(&mut reply)
            });
            if let Ok(length) = asked {
                let _ = own.send_to(reply.get(..length).unwrap_or_default(), client);
            }
        });
    }
}
