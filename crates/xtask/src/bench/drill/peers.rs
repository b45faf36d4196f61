//! nginx and haproxy as one would configure them by hand in front of three clusters: the closest, and two for when it fails.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Child;

use anyhow::Result;

use crate::bench::proxy::contender::{self, free_port, wait};

/// Programs, and the packages they come from.
pub(super) const PEERS: &[(&str, &str)] = &[("nginx", "nginx-light"), ("haproxy", "haproxy")];

/// A proxy that runs; stopped when dropped.
pub(super) struct Peer {
    /// Where it carries requests.
    pub(super) address: SocketAddr,
    process: Child,
}

impl Drop for Peer {
    fn drop(&mut self) {
        contender::stop(&mut self.process);
    }
}

/// Starts one of them.
pub(super) fn start(
    name: &str,
    directory: &Path,
    balancers: &[SocketAddr; 3],
    beside: Option<IpAddr>,
) -> Result<Peer> {
    let port = free_port()?;
    let process = match name {
        "nginx" => contender::nginx(directory, "drill", &nginx(port, balancers, beside))?,
        _ => {
            let file = directory.join("drill.cfg");
            std::fs::write(&file, haproxy(port, balancers, beside))?;
            contender::haproxy_with(&file)?
        }
    };
    wait(port)?;
    Ok(Peer { address: SocketAddr::from(([127, 0, 0, 1], port)), process })
}

/// A server that fails three times in ten seconds is left alone for ten; whatever fails is asked of the next.
fn nginx(port: u16, [near, next, last]: &[SocketAddr; 3], beside: Option<IpAddr>) -> String {
    let bind = beside.map(|ip| format!("proxy_bind {ip}; ")).unwrap_or_default();
    format!(
        "upstream web {{ server {near} max_fails=3 fail_timeout=10s; server {next} backup max_fails=3 fail_timeout=10s; \
         server {last} backup max_fails=3 fail_timeout=10s; keepalive 256; }}\n\
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://web; proxy_http_version 1.1; \
         proxy_set_header Connection \"\"; proxy_next_upstream error timeout http_502 http_503 http_504; \
         proxy_connect_timeout 1s; proxy_read_timeout 5s; {bind}}} }}"
    )
}

/// Servers are checked every second: two failures take one out, so do ten errors of clients in a row, and two successes bring it back.
fn haproxy(port: u16, [near, next, last]: &[SocketAddr; 3], beside: Option<IpAddr>) -> String {
    let source = beside.map(|ip| format!("  source {ip}\n")).unwrap_or_default();
    format!(
        "global\n  maxconn 5000\ndefaults\n  mode http\n  timeout connect 1s\n  timeout client 60s\n  timeout server 5s\n  \
         timeout check 1s\n  retries 3\n  option redispatch 1\n  retry-on conn-failure empty-response response-timeout\n  \
         http-reuse always\nfrontend f\n  bind 127.0.0.1:{port}\n  default_backend web\nbackend web\n{source}  \
         option httpchk GET /healthz\n  \
         default-server check inter 1s fall 2 rise 2 observe layer4 error-limit 10 on-error mark-down\n  \
         server near {near}\n  server next {next} backup\n  server last {last} backup\n"
    )
}
