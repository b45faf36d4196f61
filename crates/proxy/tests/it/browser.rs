//! A real browser, headless: it heeds early hints, and speaks WebSocket on a stream of HTTP/2.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use landfall_api::landfall::RouteOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};

use crate::https;
use crate::support::backend;
use crate::support::certs::Authority;
use crate::support::key;

const HOST: &str = "shop.test";
/// However slow the machine is, a browser does not take so long.
const LONG: Duration = Duration::from_secs(120);
const PAGE: &str = "<!DOCTYPE html><link rel=stylesheet href=/style.css><script>
    const socket = new WebSocket('wss://shop.test/socket');
    socket.onopen = () => socket.send('hello');
    </script>";

/// What the browser was seen to do.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// It asked for what it was hinted at, before there was a page.
    Hinted,
    /// It was sent the page.
    Page,
    /// It said something over its WebSocket.
    Spoke,
}

/// The browser, which finds the host there.
fn chromium(profile: &std::path::Path, port: u16) -> std::io::Result<Child> {
    let mut command = Command::new("chromium");
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-proxy-server",
    ]);
    command.args([
        "--disable-background-networking",
        "--remote-debugging-port=0",
        "--ignore-certificate-errors",
    ]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command.arg(format!("--host-resolver-rules=MAP {HOST}:443 127.0.0.1:{port}"));
    command.arg(format!("https://{HOST}/page"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn()
}

/// A shop that has hints to its page, and a WebSocket. It is told by a PROXY header by which connection the browser has come.
async fn shop(mut stream: TcpStream, hinted: watch::Sender<bool>, seen: mpsc::Sender<(u16, Seen)>) {
    let mut header = [0; 28];
    if stream.read_exact(&mut header).await.is_err() {
        return;
    }
    let port = u16::from_be_bytes([header[24], header[25]]);
    let tell = async |what| seen.send((port, what)).await.unwrap();
    loop {
        let head = backend::read_head(&mut stream).await;
        let Some(path) = head.split(' ').nth(1) else { return };
        let (kind, body) = match path {
            "/page" => {
                let hint = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload; as=style\r\n\r\n";
                stream.write_all(hint.as_bytes()).await.unwrap();
                let _ = hinted.subscribe().wait_for(|hinted| *hinted).await;
                tell(Seen::Page).await;
                ("text/html", PAGE)
            }
            "/style.css" => {
                if !*hinted.borrow() {
                    tell(Seen::Hinted).await;
                }
                hinted.send_replace(true);
                ("text/css", "body { color: red }")
            }
            "/socket" => {
                let mut agreed = backend::agreed(&head);
                // It did not ask for that.
                agreed = agreed.replace("Sec-WebSocket-Protocol: chat\r\n", "");
                stream.write_all(agreed.as_bytes()).await.unwrap();
                // A frame of text, all of it, masked, five bytes.
                let mut frame = [0; 11];
                stream.read_exact(&mut frame).await.unwrap();
                assert_eq!((frame[0], frame[1]), (0x81, 0x85));
                let masks = frame[2..6].iter().cycle();
                let said: Vec<u8> = frame[6..].iter().zip(masks).map(|(byte, mask)| byte ^ mask).collect();
                assert_eq!(said, b"hello");
                return tell(Seen::Spoke).await;
            }
            _ => ("text/plain", ""),
        };
        let length = body.len();
        let answer =
            format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn a_browser_heeds_hints_and_speaks_websocket_on_a_stream() {
    let (hinted, _) = watch::channel(false);
    let (tell, mut seen) = mpsc::channel(16);
    let endpoint = backend::script(move |stream| shop(stream, hinted.clone(), tell.clone())).await;
    let (ca, dir, (mut rig, at)) = (Authority::new(), tempfile::tempdir().unwrap(), https::rig(&[endpoint]));
    let options = RouteOptions { send_proxy_protocol: true, ..RouteOptions::default() };
    rig.world.certificates.insert("s".into(), ca.secret(&[HOST]));
    rig.world.routes.insert(key("shop"), https::route(&[HOST], "s", options));
    rig.follow();
    let mut browser = match chromium(dir.path(), at.port()) {
        Ok(browser) => browser,
        Err(error) => {
            // Not by a macro: those are hidden while a test passes.
            writeln!(std::io::stderr(), "SKIPPED: hints and WebSockets by a browser: chromium: {error}")
                .unwrap();
            return rig.stop().await;
        }
    };
    let mut ports = BTreeSet::new();
    for want in [Seen::Hinted, Seen::Page, Seen::Spoke] {
        let next = tokio::time::timeout(LONG, seen.recv()).await;
        let (port, did) = next.expect("the browser does something").unwrap();
        assert_eq!(did, want);
        ports.insert(port);
    }
    assert_eq!(ports.len(), 1, "all of it on one connection");
    browser.kill().await.unwrap();
    rig.stop().await;
}
