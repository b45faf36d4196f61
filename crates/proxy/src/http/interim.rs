//! Answers before the answer, such as `103 Early Hints`: passed on to a client of HTTP/2 as its endpoint gives them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, Request, Response, StatusCode};
use parking_lot::Mutex;

use super::headers;
use crate::orca;

/// So many are passed on before an answer; whatever comes beyond them is left out.
const INTERIM_MAX: u32 = 32;

/// What a stream of HTTP/2 is answered by. One thread alone uses it; hyper asks that what it calls can be sent, so it is behind a lock
/// for which nobody ever waits.
#[derive(Clone)]
pub(crate) struct Answering(Arc<Shared>);

struct Shared {
    answer: Mutex<SendResponse<Bytes>>,
    given: AtomicU32,
}

impl Answering {
    pub(crate) fn new(answer: SendResponse<Bytes>) -> Self {
        Self(Arc::new(Shared { answer: Mutex::new(answer), given: AtomicU32::new(0) }))
    }

    /// Passes on what an endpoint says before it answers this request.
    pub(super) fn listen<B>(&self, request: &mut Request<B>) {
        let own = self.clone();
        hyper::ext::on_informational(request, move |interim| own.give(interim.status(), interim.headers()));
    }

    fn give(&self, status: StatusCode, told: &HeaderMap) {
        if self.0.given.fetch_add(1, Ordering::Relaxed) >= INTERIM_MAX {
            return;
        }
        let mut interim = Response::new(());
        *interim.status_mut() = status;
        *interim.headers_mut() = told.clone();
        headers::for_client(interim.headers_mut());
        orca::strip(interim.headers_mut());
        // A client that is gone hears nothing.
        let _ = self.0.answer.lock().send_informational(interim);
    }

    /// Answers.
    pub(crate) fn answer(&self, response: Response<()>, ends: bool) -> Result<SendStream<Bytes>, h2::Error> {
        let mut answer = self.0.answer.lock();
        let sent = answer.send_response(response, ends);
        if sent.is_err() {
            answer.send_reset(Reason::INTERNAL_ERROR);
        }
        sent
    }

    /// Whether the client has given the stream up.
    pub(crate) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.answer.lock().poll_reset(cx).map(|_| ())
    }
}
