//! Clients that do not read what they asked for: whoever sends is held back, so that nothing piles up, and they are let go.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use landfall_api::landfall::{BackendProtocol, RouteAction, RouteMatch, Timeouts};
use landfall_proxy::{Config, Limits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;

use crate::link::Pair;
use crate::support::backend;
use crate::support::frames::{END_HEADERS, END_STREAM, HEAD, HEADERS, PREFACE, SETTINGS, frame, hello};
use crate::support::raw::get;
use crate::support::{Rig, port_of};

/// However slow the machine is, nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(30);
/// What the endpoint would send.
const WHOLE: usize = 256 << 20;
/// What the kernel keeps on the way, at both ends of two connections; and we, which is little beside it.
const MOST: usize = 64 << 20;
const KERNEL: u32 = 64 << 10;

/// An endpoint that sends a long body to `/long`, and tells when its client is gone; and the bytes that were taken.
async fn long() -> (SocketAddr, Arc<AtomicUsize>, mpsc::Receiver<()>) {
    let (taken, (gone, goes)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel(4));
    let counted = taken.clone();
    let address = backend::script(move |mut stream| {
        let (counted, gone) = (counted.clone(), gone.clone());
        async move {
            while let Some(path) = backend::read_head(&mut stream).await.split(' ').nth(1).map(str::to_owned)
            {
                if path != "/long" {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                    continue;
                }
                let _ = socket2::SockRef::from(&stream).set_send_buffer_size(64 << 10);
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {WHOLE}\r\n\r\n");
                let _ = stream.write_all(head.as_bytes()).await;
                let piece = vec![7; 16 << 10];
                while counted.load(Ordering::Relaxed) < WHOLE && stream.write_all(&piece).await.is_ok() {
                    counted.fetch_add(piece.len(), Ordering::Relaxed);
                }
                let _ = gone.send(()).await;
            }
        }
    })
    .await;
    (address, taken, goes)
}

/// A client whose kernel keeps little for it, and that has asked, and does not read.
async fn asks(to: SocketAddr, request: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(KERNEL).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    stream.write_all(request).await.unwrap();
    stream
}

/// The ways in which a long body is asked for: the lane's, hyper's, and HTTP/2.
fn requests() -> [(&'static str, Vec<u8>); 3] {
    let head = [&[0x82, 0x86, 0x41, 0x01, b'a', 0x44, 0x05][..], b"/long"].concat();
    assert_eq!(head[..1], HEAD[..1]);
    [
        ("lane", b"GET /long HTTP/1.1\r\nhost: a\r\n\r\n".to_vec()),
        ("hyper", b"DELETE /long HTTP/1.1\r\nhost: a\r\n\r\n".to_vec()),
        ("HTTP/2", [hello(), frame(HEADERS, END_STREAM | END_HEADERS, 1, &head)].concat()),
    ]
}

/// Waits until no more is taken for a while.
async fn at_rest(taken: &AtomicUsize) -> usize {
    let resting = async {
        let mut before = usize::MAX;
        loop {
            let now = taken.load(Ordering::Relaxed);
            if now > 0 && now == before {
                return now;
            }
            before = now;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(PATIENCE, resting).await.expect("an end of it")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_holds_its_endpoint_back() {
    for (what, request) in requests() {
        let (address, taken, _gone) = long().await;
        let rig = Rig::with_config(&[address], Config::default());
        let mut client = asks(rig.address(), &request).await;
        let rest = at_rest(&taken).await;
        assert!(rest < MOST, "{what}: {rest} bytes were taken for nobody");
        assert_eq!(get(rig.address(), "a", "/short").await.status, 200, "{what}: others are served");
        // It goes on where it stopped, as soon as it is read.
        if what != "HTTP/2" {
            let mut chunk = vec![0; 1 << 20];
            let reading = async {
                let mut got = 0;
                while got < rest + (1 << 20) {
                    got += client.read(&mut chunk).await.unwrap();
                }
            };
            tokio::time::timeout(PATIENCE, reading).await.expect("more of it");
        }
        drop(client);
        rig.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_nothing_for_too_long_is_let_go() {
    for (what, request) in requests().into_iter().take(2) {
        let (address, _, mut gone) = long().await;
        let limits = Limits { write_timeout: Duration::from_millis(200), ..Limits::default() };
        let mut rig = Rig::with_config(&[address], Config { limits, ..Config::default() });
        rig.serve("web", &[address], |plan| {
            plan.timeouts = Some(Timeouts { idle_ms: Some(200), ..Timeouts::default() });
        });
        rig.follow();
        let client = asks(rig.address(), &request).await;
        let told = tokio::time::timeout(PATIENCE, gone.recv()).await;
        assert_eq!(told.ok().flatten(), Some(()), "{what}: the endpoint is not held for ever");
        while rig.proxy.connections() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(client);
        rig.stop().await;
    }
}

/// Clients share the connections to other edges: those who take nothing are many here, and in nobody's way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_do_not_read_do_not_hold_up_who_comes_through_the_same_edges() {
    let (address, taken, _gone) = long().await;
    let pair = Pair::new(port_of("web"), &[address]);
    let mut stalled = Vec::new();
    for _ in 0..24 {
        stalled.push(asks(pair.address(), &requests()[0].1).await);
        // One after the other: then each has filled what there is for it.
        at_rest(&taken).await;
    }
    assert!(taken.load(Ordering::Relaxed) < WHOLE, "nobody is sent anything any more");
    for _ in 0..4 {
        let answer = tokio::time::timeout(PATIENCE, get(pair.address(), "a", "/short")).await;
        assert_eq!(answer.expect("an answer").status, 200);
    }
    drop(stalled);
    pair.stop().await;
}

/// An endpoint that speaks HTTP/2, and sends this again and again to `/long`, until it is not taken; and how many bytes were.
async fn streams(piece: &'static [u8], most: usize) -> (SocketAddr, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (taken, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, opened) = (taken.clone(), connections.clone());
    let address = backend::script(move |stream| {
        opened.fetch_add(1, Ordering::Relaxed);
        let counted = counted.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut answer))) = connection.accept().await {
                let (long, counted) = (request.uri().path() == "/long", counted.clone());
                tokio::spawn(async move {
                    let mut to = answer.send_response(Response::new(()), false).unwrap();
                    let mut sent = 0;
                    while long && sent < most {
                        to.reserve_capacity(piece.len());
                        let room = std::future::poll_fn(|cx| to.poll_capacity(cx));
                        match room.await {
                            Some(Ok(room)) if room < piece.len() => continue,
                            Some(Ok(_)) => to.send_data(Bytes::from_static(piece), false).unwrap(),
                            Some(Err(_)) | None => return,
                        }
                        sent += piece.len();
                        counted.fetch_add(piece.len(), Ordering::Relaxed);
                        tokio::task::yield_now().await;
                    }
                    if long {
                        std::future::pending::<()>().await;
                    }
                    let _ = to.send_data(Bytes::from_static(b"ok"), true);
                });
            }
        }
    })
    .await;
    (address, taken, connections)
}

/// The same of connections to endpoints that speak HTTP/2, whether those who do not read are sent much, or many small pieces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_do_not_read_do_not_hold_up_who_shares_their_connection() {
    const MUCH: &[u8] = &[7; 16 << 10];
    for (piece, most, clients) in [(MUCH, WHOLE, 8), (b"fifteen letters", 75_000, 4)] {
        let (address, taken, connections) = streams(piece, most).await;
        let mut rig = Rig::new(Config { threads: 1, ..Config::default() });
        let mut service = port_of("web");
        service.protocol = BackendProtocol::H2c;
        let action = RouteAction { service: Some(service), ..RouteAction::default() };
        rig.act("web", "", "/", RouteMatch::Prefix, action);
        rig.serve("web", &[address], |_| {});
        rig.follow();
        let mut stalled = Vec::new();
        for _ in 0..clients {
            // Of HTTP/2, with no room for anything.
            let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
            let head = [&[0x82, 0x86, 0x41, 0x01, b'a', 0x44, 0x05][..], b"/long"].concat();
            let head = frame(HEADERS, END_STREAM | END_HEADERS, 1, &head);
            stalled.push(asks(rig.address(), &[PREFACE, &settings, &head].concat()).await);
            at_rest(&taken).await;
        }
        let answer = tokio::time::timeout(PATIENCE, get(rig.address(), "a", "/short")).await;
        let answer = answer.expect("an answer");
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
        assert_eq!(connections.load(Ordering::Relaxed), 1, "it is the same connection, and not a new one");
        drop(stalled);
        rig.stop().await;
    }
}
