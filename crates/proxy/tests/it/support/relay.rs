//! A way that can fall silent.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Carries bytes between whoever comes and a server, in both directions, while it is not told to stop.
pub(crate) async fn relay(to: SocketAddr) -> (SocketAddr, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stops, stopped) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(to).await else { continue };
            let (client, server) = (client.into_split(), server.into_split());
            tokio::spawn(carry(client.0, server.1, stopped.clone()));
            tokio::spawn(carry(server.0, client.1, stopped.clone()));
        }
    });
    (address, stops)
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut stopped: watch::Receiver<bool>) {
    let mut room = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut room).await {
        let goes_on = stopped.wait_for(|stopped| !stopped).await.is_ok();
        if !goes_on || to.write_all(&room[..read]).await.is_err() {
            break;
        }
    }
}
