//! Heads that are large, and pass all the same: directly, and through another edge.

use bytes::Bytes;
use http::Response;
use landfall_api::landfall::{BackendProtocol, RouteService};
use tokio::io::AsyncWriteExt as _;

use crate::link::Pair;
use crate::support::backend::{Backend, read_head, script};
use crate::support::raw::{Client, ask, get};
use crate::support::{Rig, h2, port_of};

/// More than HTTP/2 allows an answer's head by default, 16 KiB, and than is read at once anywhere.
const LARGE: usize = 60_000;

/// An endpoint whose answers have a cookie of that size.
async fn tells(size: usize) -> std::net::SocketAddr {
    script(move |mut stream| async move {
        while !read_head(&mut stream).await.is_empty() {
            let cookie = "c".repeat(size);
            let head = format!("HTTP/1.1 200 OK\r\nset-cookie: a={cookie}\r\ncontent-length: 2\r\n\r\nok");
            let _ = stream.write_all(head.as_bytes()).await;
        }
    })
    .await
}

/// An answer that passed where its endpoint stood was reset on the link, and the edge there left out for it.
#[tokio::test]
async fn a_large_head_of_an_answer_goes_through_two_edges() {
    let endpoint = tells(LARGE).await;
    let (rig, pair) = (Rig::with(&[endpoint]), Pair::new(port_of("web"), &[endpoint]));
    for address in [rig.address(), pair.address()] {
        for _ in 0..3 {
            let answer = get(address, "shop.test", "/").await;
            assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
            assert_eq!(answer.header("set-cookie").map(str::len), Some(LARGE + 2));
        }
    }
    rig.stop().await;
    pair.stop().await;
}

/// What is too large for us is the endpoint's failure, and told as such.
#[tokio::test]
async fn a_head_of_an_answer_that_has_no_end_is_refused() {
    let endpoint = tells(2 << 20).await;
    let (rig, pair) = (Rig::with(&[endpoint]), Pair::new(port_of("web"), &[endpoint]));
    for address in [rig.address(), pair.address()] {
        let answer = get(address, "shop.test", "/").await;
        assert_eq!(answer.status, 502, "{answer:?}");
    }
    rig.stop().await;
    pair.stop().await;
}

/// A request that is let in at one edge is not too large for the next, which is told more than the client has said.
#[tokio::test]
async fn a_large_head_of_a_request_goes_through_two_edges() {
    let backend = Backend::new("lyon").await;
    let pair = Pair::new(port_of("web"), &[backend.address]);
    // Many headers: HTTP/2 counts each of them for more than HTTP/1.1 does.
    let many: String = (0..80).map(|at| format!("x-{at}: {}\r\n", "h".repeat(LARGE / 80))).collect();
    let mut client = Client::new(pair.address()).await;
    for method in ["GET", "POST"] {
        let length = if method == "POST" { "content-length: 0\r\n" } else { "" };
        let head = format!("{method} / HTTP/1.1\r\nhost: shop.test\r\n{many}{length}\r\n");
        assert!(head.len() < 64 << 10);
        client.send(head.as_bytes()).await;
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("x-backend")), (200, Some("lyon")), "{}", answer.head);
        assert_eq!(answer.got("x-79").map(str::len), Some(LARGE / 80));
    }
    let over = format!("GET / HTTP/1.1\r\nhost: shop.test\r\nx: {}\r\n\r\n", "h".repeat(70_000));
    assert_eq!(ask(pair.address(), &over).await.map(|answer| answer.status), Some(431));
    pair.stop().await;
}

/// Endpoints of HTTP/2, and clients of it.
#[tokio::test]
async fn large_heads_pass_where_http2_is_spoken() {
    let endpoint = script(|stream| async move {
        let mut builder = ::h2::server::Builder::new();
        let mut connection =
            builder.max_header_list_size(1 << 20).handshake::<_, Bytes>(stream).await.unwrap();
        while let Some(Ok((request, mut answer))) = connection.accept().await {
            let told = request.headers()["x-large"].clone();
            let head = Response::builder().header("x-large", told).body(()).unwrap();
            answer.send_response(head, true).unwrap();
        }
    })
    .await;
    let service = RouteService { protocol: BackendProtocol::H2c, ..port_of("web") };
    let pair = Pair::new(service, &[endpoint]);
    let mut client = h2::client(pair.address()).await;
    for _ in 0..3 {
        let mut request = h2::get("/");
        request.headers_mut().insert("x-large", "h".repeat(LARGE).parse().unwrap());
        let (answer, _) = client.send_request(request, true).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.headers()["x-large"].len()), (200, LARGE));
    }
    pair.stop().await;
}
