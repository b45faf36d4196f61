//! A client of HTTP/2 that sees all there is to be seen.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use http::{Request, Response};
use tokio::net::TcpStream;

/// However slow the machine is, no test takes so long.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A client that has been greeted.
pub(crate) async fn client(to: SocketAddr) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(to).await.unwrap();
    let (sender, mut connection) = h2::client::handshake(stream).await.unwrap();
    // What the server can is known with its settings.
    let mut pings = connection.ping_pong().unwrap();
    tokio::spawn(connection);
    pings.ping(h2::Ping::opaque()).await.unwrap();
    sender
}

pub(crate) fn get(path: &str) -> Request<()> {
    Request::get(format!("http://shop.example{path}")).body(()).unwrap()
}

/// The bytes of an answer.
pub(crate) async fn whole(response: Response<RecvStream>) -> Result<Vec<u8>, h2::Error> {
    let (mut body, mut bytes) = (response.into_body(), Vec::new());
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}
