//! nginx and haproxy as one would configure them by hand in front of three clusters: the closest, and two for when it fails.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Result;

use super::Place;
use super::asked::{HAPROXY_LINE, NGINX_LINE};
use crate::bench::proxy::contender::{self, free_port, wait};

/// Programs, and the packages they come from.
pub(super) const PEERS: &[(&str, &str)] = &[("nginx", "nginx-light"), ("haproxy", "haproxy")];

/// A proxy that runs; stopped when dropped.
pub(super) struct Peer {
    /// Where it carries requests.
    pub(super) address: SocketAddr,
    /// What it writes down of requests.
    pub(super) log: PathBuf,
    process: Child,
    /// The process is not the proxy, but has led it to where it stands.
    led: bool,
}

impl Drop for Peer {
    fn drop(&mut self) {
        if !self.led {
            return contender::stop(&mut self.process);
        }
        let leader = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{leader}/task/{leader}/children"));
        // Whoever has led it ends with it.
        let _ = Command::new("kill").args(children.unwrap_or_default().split_whitespace()).status();
        let _ = self.process.wait();
    }
}

/// Starts one of them.
pub(super) fn start(name: &str, directory: &Path, place: &dyn Place) -> Result<Peer> {
    let (port, beside, balancers) = (free_port()?, place.beside(), place.balancers());
    let address = SocketAddr::new(beside.listens, port);
    let program = place.command(name)?;
    let led = program.get_program() != name;
    let log = directory.join(format!("{name}.log"));
    let process = match name {
        "nginx" => {
            let _ = std::fs::remove_file(&log);
            let servers = nginx(address, balancers, beside.speaks, &log);
            contender::nginx(program, directory, "drill", &servers)?
        }
        _ => {
            let file = directory.join("drill.cfg");
            std::fs::write(&file, haproxy(address, balancers, beside.speaks))?;
            contender::haproxy_with(program, &file, Stdio::from(std::fs::File::create(&log)?))?
        }
    };
    let peer = Peer { address, log, process, led };
    wait(address)?;
    Ok(peer)
}

/// A server that fails three times in ten seconds is left alone for ten; whatever fails is asked of the next.
fn nginx(
    address: SocketAddr,
    [near, next, last]: &[SocketAddr; 3],
    speaks: Option<IpAddr>,
    log: &Path,
) -> String {
    let bind = speaks.map(|ip| format!("proxy_bind {ip}; ")).unwrap_or_default();
    let log = log.display();
    format!(
        "log_format asked '{NGINX_LINE}';\nmap $upstream_addr $again {{ ~, 1; default 0; }}\n\
         upstream web {{ server {near} max_fails=3 fail_timeout=10s; server {next} backup max_fails=3 fail_timeout=10s; \
         server {last} backup max_fails=3 fail_timeout=10s; keepalive 256; }}\n\
         server {{ listen {address}; access_log {log} asked if=$again; location / {{ proxy_pass http://web; proxy_http_version 1.1; \
         proxy_set_header Connection \"\"; proxy_next_upstream error timeout http_502 http_503 http_504; \
         proxy_connect_timeout 1s; proxy_read_timeout 5s; {bind}}} }}"
    )
}

/// Servers are checked every second: two failures take one out, so do ten errors of clients in a row, and two successes bring it back.
fn haproxy(address: SocketAddr, [near, next, last]: &[SocketAddr; 3], speaks: Option<IpAddr>) -> String {
    let source = speaks.map(|ip| format!("  source {ip}\n")).unwrap_or_default();
    format!(
        "global\n  maxconn 5000\n  log stdout format raw local0\ndefaults\n  mode http\n  log global\n  option dontlog-normal\n  \
         log-format \"{HAPROXY_LINE}\"\n  timeout connect 1s\n  timeout client 60s\n  timeout server 5s\n  \
         timeout check 1s\n  retries 3\n  option redispatch 1\n  retry-on conn-failure empty-response response-timeout\n  \
         http-reuse always\nfrontend f\n  bind {address}\n  default_backend web\nbackend web\n{source}  \
         option httpchk GET /healthz\n  \
         default-server check inter 1s fall 2 rise 2 observe layer4 error-limit 10 on-error mark-down\n  \
         server near {near}\n  server next {next} backup\n  server last {last} backup\n"
    )
}
