//! The proxies and the backend: settings for each, started together, stopped when dropped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::shell::{release_binary, run, step};

/// Programs, and the packages they come from.
pub(super) const PEERS: &[(&str, &str)] = &[
    ("nginx", "nginx-light"),
    ("haproxy", "haproxy"),
    ("wrk", "wrk"),
    ("h2load", "nghttp2-client"),
    ("openssl", "openssl"),
];

/// The host whose service is in another cluster.
pub(super) const FAR: &str = "far.example.com";
/// Connections that peers may have, of clients and to servers; where they may not open so many files, they have fewer.
const CONNECTIONS_MAX: u32 = 50_000;

/// A proxy that runs.
pub(super) struct Contender {
    pub(super) name: &'static str,
    /// Plain, and TLS.
    pub(super) ports: [u16; 2],
    /// The processes that do the work: its own, and the one that stands in the other cluster.
    pub(super) pids: Vec<u32>,
    processes: Vec<Child>,
    talk: Option<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Drop for Contender {
    fn drop(&mut self) {
        self.processes.iter_mut().for_each(stop);
    }
}

/// Asks a process to end, so that its children end too; and waits.
pub(in crate::bench) fn stop(process: &mut Child) {
    let _ = Command::new("kill").arg(process.id().to_string()).status();
    let _ = process.wait();
}

impl Contender {
    /// CPU time that its processes have taken, in microseconds.
    pub(super) fn cpu_us(&self) -> Result<f64> {
        self.pids.iter().map(|pid| cpu_us(*pid)).sum()
    }

    /// Resident memory of its first process.
    pub(super) fn resident_mb(&self) -> Result<f64> {
        crate::bench::resident_mb(*self.pids.first().context("no process")?)
    }

    /// Where it is asked.
    pub(super) fn url(&self, port: usize, host: &str) -> String {
        let scheme = if port == 0 { "http" } else { "https" };
        format!("{scheme}://{host}:{}/", self.ports[port])
    }

    /// Tells it something.
    pub(super) fn say(&mut self, line: &str) -> Result<()> {
        let (to, _) = self.talk.as_mut().context("it does not listen")?;
        writeln!(to, "{line}").context("it is gone")
    }

    /// Waits for its next line.
    pub(super) fn hear(&mut self) -> Result<String> {
        let (_, from) = self.talk.as_mut().context("it does not speak")?;
        let mut line = String::new();
        from.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

fn cpu_us(pid: u32) -> Result<f64> {
    // The kernel counts in hundredths of a second, whatever its own clock.
    const TICK_US: f64 = 10_000.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The program's name is in brackets and may hold anything.
    let rest = stat.rsplit_once(')').context("an odd stat")?.1;
    let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? * TICK_US)
}

/// What all proxies stand in front of.
pub(super) struct Backend {
    port: u16,
    certificate: PathBuf,
    key: PathBuf,
    process: Child,
}

impl Drop for Backend {
    fn drop(&mut self) {
        stop(&mut self.process);
    }
}

impl Backend {
    /// Starts it, and makes a certificate for the proxies.
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let (certificate, key) = (directory.join("tls.crt"), directory.join("tls.key"));
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        openssl.args(["-days", "30", "-subj", "/CN=svc-1.example.com"]);
        openssl.args(["-addext", "subjectAltName=DNS:*.example.com,IP:127.0.0.1"]);
        openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate);
        run(openssl.stdout(Stdio::null()).stderr(Stdio::null()))?;
        // haproxy wants both in one.
        let both = [std::fs::read(&certificate)?, std::fs::read(&key)?].concat();
        std::fs::write(directory.join("both.pem"), both)?;
        let port = free_port()?;
        let server = format!(
            "server {{ listen 127.0.0.1:{port} reuseport; location / {{ default_type text/plain; \
             return 200 \"hello from the backend, it is a short body of some bytes.\\n\"; }} }}"
        );
        let process = nginx(Command::new("nginx"), directory, "backend", &server)?;
        wait(local(port))?;
        Ok(Self { port, certificate, key, process })
    }
}

/// Builds our server.
pub(super) fn build() -> Result<PathBuf> {
    step("release build", || {
        let mut cargo = Command::new("cargo");
        run(cargo.args(["build", "--release", "--package", "landfall-proxy", "--example", "carry"]))?;
        release_binary("examples/carry")
    })
}

/// Starts all proxies.
pub(super) fn start_all(directory: &Path, carry: &Path, backend: &Backend) -> Result<Vec<Contender>> {
    Ok(vec![
        landfall(carry, backend, 100, true)?,
        nginx_proxy(directory, backend)?,
        haproxy(directory, backend)?,
    ])
}

/// Ours, with so many routes; with another cluster, or without.
pub(super) fn landfall(carry: &Path, backend: &Backend, routes: usize, two: bool) -> Result<Contender> {
    let ports = [free_port()?, free_port()?];
    let mut command = Command::new(carry);
    command.args(ports.map(|port| format!("127.0.0.1:{port}")));
    command.args([format!("127.0.0.1:{}", backend.port), routes.to_string(), "1".to_owned()]);
    command.arg(&backend.certificate).arg(&backend.key).args(two.then_some("two"));
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (to, from) = process.stdin.take().zip(process.stdout.take()).context("both are piped")?;
    let (pids, talk) = (vec![process.id()], Some((to, BufReader::new(from))));
    let mut ours = Contender { name: "landfall", ports, pids, processes: vec![process], talk };
    if ours.hear()? != "ready" {
        bail!("our proxy did not start");
    }
    Ok(ours)
}

/// What all of them tell the backend of the client, in nginx's words.
fn nginx_headers() -> String {
    let headers = [
        ("Connection", "\"\""),
        ("Host", "$http_host"),
        ("X-Forwarded-For", "$remote_addr"),
        ("X-Forwarded-Proto", "$scheme"),
        ("X-Forwarded-Host", "$http_host"),
        ("X-Forwarded-Port", "$server_port"),
        ("Forwarded", "\"for=$remote_addr;proto=$scheme\""),
        ("Via", "\"1.1 nginx\""),
    ];
    headers.iter().map(|(name, value)| format!("proxy_set_header {name} {value}; ")).collect()
}

fn nginx_proxy(directory: &Path, backend: &Backend) -> Result<Contender> {
    let (ports, far) = ([free_port()?, free_port()?], free_port()?);
    let [plain, tls] = ports;
    let (certificate, key) = (backend.certificate.display(), backend.key.display());
    let (headers, behind) = (nginx_headers(), backend.port);
    let upstream = |name: &str, port: u16| {
        format!(
            "upstream {name} {{ server 127.0.0.1:{port}; keepalive 256; keepalive_requests 1000000000; }}\n"
        )
    };
    let tls_of_both = format!("ssl_certificate {certificate}; ssl_certificate_key {key}; ");
    let server = format!(
        "{}{}server {{ listen 127.0.0.1:{plain} reuseport; listen 127.0.0.1:{tls} ssl http2 reuseport; \
         {tls_of_both}server_name *.example.com; \
         location / {{ proxy_pass http://b; proxy_http_version 1.1; {headers} }} }}\n\
         server {{ listen 127.0.0.1:{plain}; listen 127.0.0.1:{tls} ssl http2; {tls_of_both}server_name {FAR}; location / {{ proxy_pass https://far; proxy_http_version 1.1; {headers} \
         proxy_ssl_certificate {certificate}; proxy_ssl_certificate_key {key}; proxy_ssl_trusted_certificate {certificate}; \
         proxy_ssl_verify on; proxy_ssl_name svc-1.example.com; proxy_ssl_server_name on; proxy_ssl_protocols TLSv1.3; }} }}",
        upstream("b", behind),
        upstream("far", far),
    );
    let there = format!(
        "{}server {{ listen 127.0.0.1:{far} ssl; {tls_of_both}ssl_client_certificate {certificate}; ssl_verify_client on; \
         ssl_protocols TLSv1.3; location / {{ proxy_pass http://b; proxy_http_version 1.1; \
         proxy_set_header Connection \"\"; proxy_set_header Host $http_host; }} }}",
        upstream("b", behind),
    );
    let start = |name, servers: &str| nginx(Command::new("nginx"), directory, name, servers);
    let processes = vec![start("nginx", &server)?, start("nginx-far", &there)?];
    wait(local(plain))?;
    wait(local(far))?;
    let pids = processes.iter().map(|process| worker(process.id())).collect::<Result<_>>()?;
    Ok(Contender { name: "nginx", ports, pids, processes, talk: None })
}

/// nginx, to be started as this program, with one worker and some servers.
pub(in crate::bench) fn nginx(
    mut program: Command,
    directory: &Path,
    name: &str,
    servers: &str,
) -> Result<Child> {
    let home = directory.join(name);
    std::fs::create_dir_all(&home)?;
    let shown = home.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|part| format!("{part}_temp_path {shown}/{part};\n"))
        .collect();
    let text = format!(
        "user root; worker_processes 1; daemon off; pid {shown}/pid; error_log /dev/null;\n\
         events {{ worker_connections {CONNECTIONS_MAX}; }}\nhttp {{ access_log off; keepalive_requests 1000000000; \
         keepalive_timeout 600s;\n{temporary}{servers}\n}}\n"
    );
    std::fs::write(home.join("nginx.conf"), text)?;
    program.arg("-c").arg(home.join("nginx.conf")).arg("-p").arg(&home);
    quiet(program, Stdio::null())
}

fn haproxy(directory: &Path, backend: &Backend) -> Result<Contender> {
    let (ports, far) = ([free_port()?, free_port()?], free_port()?);
    let [plain, tls] = ports;
    let (both, certificate) = (directory.join("both.pem"), backend.certificate.display());
    let (both, behind) = (both.display(), backend.port);
    let defaults = format!(
        "global\n  nbthread 1\n  no strict-limits\n  maxconn {CONNECTIONS_MAX}\ndefaults\n  mode http\n  timeout connect 1s\n  timeout client 600s\n  \
         timeout server 60s\n  http-reuse always\n"
    );
    let text = format!(
        "{defaults}frontend f\n  bind 127.0.0.1:{plain}\n  bind 127.0.0.1:{tls} ssl crt {both} alpn h2,http/1.1\n  \
         acl far hdr(host) -i {FAR}\n  acl ours hdr_dom(host) -i example.com\n  \
         http-request set-header X-Forwarded-For %[src]\n  \
         http-request set-header X-Forwarded-Proto http\n  http-request set-header X-Forwarded-Host %[req.hdr(host)]\n  \
         http-request set-header X-Forwarded-Port %[dst_port]\n  http-request set-header Forwarded for=%[src];proto=http\n  \
         http-request set-header Via 1.1\\ haproxy\n  use_backend far if far\n  use_backend b if ours\nbackend b\n  \
         server s 127.0.0.1:{behind} pool-max-conn 256\nbackend far\n  \
         server s 127.0.0.1:{far} ssl verify required ca-file {certificate} crt {both} sni str(svc-1.example.com) alpn h2\n"
    );
    let there = format!(
        "{defaults}frontend f\n  bind 127.0.0.1:{far} ssl crt {both} ca-file {certificate} verify required alpn h2\n  \
         default_backend b\nbackend b\n  server s 127.0.0.1:{behind} pool-max-conn 256\n"
    );
    let mut processes = Vec::new();
    for (name, text) in [("haproxy.cfg", text), ("haproxy-far.cfg", there)] {
        let file = directory.join(name);
        std::fs::write(&file, text)?;
        processes.push(haproxy_with(Command::new("haproxy"), &file, Stdio::null())?);
    }
    wait(local(plain))?;
    wait(local(far))?;
    let pids = processes.iter().map(Child::id).collect();
    Ok(Contender { name: "haproxy", ports, pids, processes, talk: None })
}

/// haproxy, to be started as this program, with these settings; what it logs goes there.
pub(in crate::bench) fn haproxy_with(mut program: Command, file: &Path, log: Stdio) -> Result<Child> {
    program.arg("-f").arg(file);
    quiet(program, log)
}

fn quiet(mut command: Command, says: Stdio) -> Result<Child> {
    let shown = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(says).stderr(Stdio::null());
    command.spawn().with_context(|| format!("cannot start {shown}"))
}

/// The process that does the work of another.
fn worker(pid: u32) -> Result<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    children.split_whitespace().next().context("it has no worker")?.parse().context("an odd number")
}

/// Waits until somebody listens.
pub(in crate::bench) fn wait(address: SocketAddr) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) {
        if TcpStream::connect(address).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("nobody listens at {address}")
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

pub(in crate::bench) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
