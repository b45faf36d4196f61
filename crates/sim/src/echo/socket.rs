//! WebSockets: every message comes back.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use landfall_runtime::tasks::Tasks;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use super::Echo;
use super::answer::plain;
use super::body::Body;

/// The largest message.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// How long a client may be silent.
const IDLE_MAX: Duration = Duration::from_secs(600);

/// How long saying goodbye may take.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// Turns a request into a WebSocket.
pub(super) fn upgrade(echo: &Arc<Echo>, tasks: &Tasks, request: &mut Request<Incoming>) -> Response<Body> {
    let Some(accept) = accept_key(request.headers()) else {
        let mut response = plain(StatusCode::UPGRADE_REQUIRED, "this is a WebSocket\n");
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        return response;
    };
    let upgrading = hyper::upgrade::on(request);
    // A socket counts as a request until it is closed.
    let (slot, stopping, killed) = (echo.load.try_enter(), tasks.stopping(), echo.life.stopping());
    tasks.spawn(async move {
        let Ok(upgraded) = upgrading.await else { return };
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX))
            .max_write_buffer_size(4 * MESSAGE_BYTES_MAX);
        let io = TokioIo::new(upgraded);
        let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
        tokio::select! { () = talk(socket, stopping) => {}, () = killed => {} }
        drop(slot);
    });
    let mut response = Response::new(Body::whole(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    response
}

/// The answer to a client's key; none when this is no handshake.
fn accept_key(headers: &HeaderMap) -> Option<HeaderValue> {
    let upgrade = headers.get(UPGRADE)?.as_bytes();
    if !upgrade.eq_ignore_ascii_case(b"websocket") {
        return None;
    }
    let key = headers.get(SEC_WEBSOCKET_KEY)?;
    HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()
}

/// Sends every message back until the client ends, falls silent, or the program stops.
async fn talk<S>(mut socket: WebSocketStream<S>, stopping: impl Future<Output = ()>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let mut stopping = pin!(stopping);
    loop {
        let next = tokio::select! {
            next = tokio::time::timeout(IDLE_MAX, socket.next()) => next,
            () = &mut stopping => {
                let away = CloseFrame { code: CloseCode::Away, reason: "stopping".into() };
                let _ = tokio::time::timeout(CLOSE_MAX, socket.close(Some(away))).await;
                return;
            }
        };
        let Ok(Some(Ok(message))) = next else { return };
        // Pings and closes are answered by the library.
        let data = message.is_text() || message.is_binary();
        if data && socket.send(message).await.is_err() {
            return;
        }
    }
}
