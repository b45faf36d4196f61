//! gRPC without knowing any message: whatever a client sends to any method comes back to it, then the status.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body as HttpBody, Frame};
use hyper::body::Incoming;

use super::body::Body;

/// A client that sends this gets its value as the status.
const WANTED_STATUS: &str = "x-echo-grpc-status";

/// The one method whose answer is known: a health check, as kubelets make.
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

/// A message of two bytes that says SERVING.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];

/// The same for NOT_SERVING.
const NOT_SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 2];

/// Whether a request is one of gRPC.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Answers a request to any method.
pub(super) fn answer(request: Request<Incoming>, ready: bool) -> Response<Body> {
    let (head, body) = request.into_parts();
    let health = (head.uri.path() == HEALTH_CHECK)
        .then(|| Bytes::from_static(if ready { SERVING } else { NOT_SERVING }));
    let status = head.headers.get(WANTED_STATUS).and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    let echo = GrpcEcho { body, instead: health, status: status.unwrap_or(0), done: false };
    let mut response = Response::new(Body::grpc(echo));
    let kind = head.headers.get(CONTENT_TYPE).cloned();
    let kind = kind.unwrap_or(HeaderValue::from_static("application/grpc"));
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// The body of a request as the body of its answer, with the status at its end.
pub(super) struct GrpcEcho {
    body: Incoming,
    /// Sent instead of what was received.
    instead: Option<Bytes>,
    status: u16,
    done: bool,
}

impl GrpcEcho {
    fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from(self.status));
        if self.status != 0 {
            trailers.insert("grpc-message", HeaderValue::from_static("as asked"));
        }
        trailers
    }

    pub(super) fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        while !self.done {
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
                if let Some(bytes) = self.instead.take() {
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                self.done = true;
                return Poll::Ready(Some(Ok(Frame::trailers(self.trailers()))));
            };
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) if self.instead.is_none() => return Poll::Ready(Some(Ok(Frame::data(data)))),
                // What is not echoed is passed over.
                Ok(_) => {}
                Err(error) => {
                    self.done = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        Poll::Ready(None)
    }
}
