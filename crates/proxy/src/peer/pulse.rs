//! The pulse of a connection to another edge: while anything comes in it lives, and after a second of silence it ends.
//!
//! Pings see to it that there is something to hear. Silence is counted in beats, not read off a clock, and what has come in is
//! read before a beat counts: an edge that did not get its turn for a while, on a machine that is full, is late by one beat and
//! gives nobody up for it. Roads not taken: hyper's own time limit for pings looks at the clock before it reads, and takes
//! nothing but a pong for a sign of life, so bulk on its way to us would count as silence.
//!
//! Long before that it is told whether an edge is more silent than it usually is. What comes meanwhile goes elsewhere; and what it has been sent and
//! may be sent twice is asked of somebody else, as far as the budget for that goes. Its other requests wait on.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// How often an edge that is silent is asked whether it is still there.
pub(crate) const PING_EVERY: Duration = Duration::from_millis(200);
/// hyper's own limit for a pong: whoever says anything at all has so long.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// How often is listened, and how often in a row nothing may be heard: together a second.
const BEAT: Duration = Duration::from_millis(100);
const SILENT_BEATS_MAX: u32 = 9;
/// The same while nothing can be written: HTTP/2 then reads nothing either, and what it does not read is not silence.
const BLOCKED_BEATS_MAX: u32 = 20;
/// So many beats more than usual are unusual, and so many are usual in any case: a ping and its answer take their time.
const UNUSUAL_BEATS: u32 = 2;
const USUAL_LEAST: u32 = 2;
/// After so many beats what was usual is forgotten by one.
const FORGET_BEATS: u32 = 100;

/// Whether the other end of a connection is more silent than usual.
#[derive(Clone, Debug, Default)]
pub(crate) struct Silence(Arc<Told>);

#[derive(Debug, Default)]
struct Told {
    unusual: AtomicBool,
    ended: AtomicBool,
}

impl Silence {
    /// Whether it is.
    pub(crate) fn is_unusual(&self) -> bool {
        self.0.unusual.load(Ordering::Relaxed)
    }

    /// Whether the connection has ended by it. Told once.
    pub(crate) fn take_ended(&self) -> bool {
        self.0.ended.swap(false, Ordering::Relaxed)
    }
}

/// A stream that ends when its other end is silent.
pub(crate) struct Pulse<S> {
    stream: S,
    beats: Interval,
    /// Beats since something was heard.
    silent: u32,
    /// The most beats that there were lately before something was heard.
    usual: u32,
    /// Beats since some of that was forgotten.
    remembered: u32,
    silence: Silence,
    /// Nothing could be written, or not to its end, the last time: when it can again, the other end has taken something.
    blocked: [bool; 2],
}

impl<S> Pulse<S> {
    /// Listens to a stream from now on.
    pub(crate) fn new(stream: S) -> Self {
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let silence = Silence::default();
        Self { stream, beats, silent: 0, usual: USUAL_LEAST, remembered: 0, silence, blocked: [false; 2] }
    }

    /// Whether it is silent, for others to look at.
    pub(crate) fn silence(&self) -> Silence {
        self.silence.clone()
    }

    /// Something was heard.
    fn heard(&mut self) {
        self.usual = self.usual.max(self.silent);
        if self.silent >= UNUSUAL_BEATS {
            self.silence.0.unusual.store(false, Ordering::Relaxed);
        }
        self.silent = 0;
    }

    /// A beat has passed.
    fn beat(&mut self) {
        self.silent += 1;
        self.remembered += 1;
        if self.remembered >= FORGET_BEATS {
            (self.remembered, self.usual) = (0, self.usual.saturating_sub(1).max(USUAL_LEAST));
        }
        if self.silent >= self.usual + UNUSUAL_BEATS {
            self.silence.0.unusual.store(true, Ordering::Relaxed);
        }
    }

    /// There is nothing to do now: when a beat is over, it counts.
    fn wait<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        while self.beats.poll_tick(cx).is_ready() {
            self.beat();
            let most = if self.blocked.contains(&true) { BLOCKED_BEATS_MAX } else { SILENT_BEATS_MAX };
            if self.silent > most {
                self.silence.0.ended.store(true, Ordering::Relaxed);
                let error = io::Error::new(io::ErrorKind::TimedOut, "the other edge is silent");
                return Poll::Ready(Err(error));
            }
        }
        Poll::Pending
    }

    /// Something was written; or, with `flush`, all that was. TLS takes some bytes for itself while none get out, so each of the two
    /// speaks for itself alone.
    fn wrote<T>(
        &mut self,
        cx: &mut Context<'_>,
        flush: bool,
        done: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let blocked = &mut self.blocked[usize::from(flush)];
        let before = std::mem::replace(blocked, done.is_pending());
        if done.is_pending() {
            return self.wait(cx);
        }
        if before {
            self.heard();
        }
        done
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Pulse<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let done @ Poll::Ready(_) = Pin::new(&mut self.stream).poll_read(cx, buf) {
            self.heard();
            return done;
        }
        self.wait(cx)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Pulse<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(cx, false, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.wrote(cx, false, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(cx);
        self.wrote(cx, true, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::{sleep, timeout};

    use super::*;

    /// Both ends of a stream of so many bytes; ours has short beats.
    fn ends(bytes: usize) -> (Pulse<DuplexStream>, DuplexStream) {
        let (own, other) = duplex(bytes);
        let mut pulse = Pulse::new(own);
        pulse.beats = interval(BEAT / 10);
        pulse.beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        (pulse, other)
    }

    #[tokio::test]
    async fn silence_ends_it() {
        let (mut pulse, _other) = ends(64);
        let silence = pulse.silence();
        let error = pulse.read_u8().await.expect_err("nobody speaks");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(silence.is_unusual() && silence.take_ended() && !silence.take_ended());
    }

    #[tokio::test]
    async fn whoever_says_something_lives() {
        let (mut pulse, mut other) = ends(64);
        let speaking = async {
            for _ in 0..10 {
                sleep(BEAT / 10 * 4).await;
                other.write_u8(1).await.unwrap();
            }
        };
        let listening = async {
            for _ in 0..10 {
                pulse.read_u8().await.unwrap();
            }
        };
        tokio::join!(speaking, listening);
    }

    /// On a full machine edges that were well were given up by those that had not had their turn.
    #[tokio::test]
    async fn who_was_late_itself_gives_nobody_up() {
        let (mut pulse, mut other) = ends(64);
        for _ in 0..3 {
            // Nothing of this thread runs meanwhile.
            std::thread::sleep(BEAT * 2);
            let nothing = timeout(Duration::from_millis(1), pulse.read_u8()).await;
            assert!(nothing.is_err(), "late by a beat, not by twenty");
            other.write_u8(1).await.unwrap();
            std::thread::sleep(BEAT * 2);
            pulse.read_u8().await.expect("what has come is read first");
        }
    }

    #[tokio::test]
    async fn who_takes_nothing_and_says_nothing_is_silent_too() {
        let (mut pulse, other) = ends(8);
        let error = pulse.write_all(&[0; 64]).await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(other);
        // One that takes something, however slowly, is there.
        let (mut pulse, mut other) = ends(8);
        let reading = async {
            for _ in 0..8 {
                sleep(BEAT / 10 * 4).await;
                other.read_exact(&mut [0; 8]).await.unwrap();
            }
        };
        let (wrote, ()) = tokio::join!(pulse.write_all(&[0; 64]), reading);
        wrote.unwrap();
    }

    #[tokio::test]
    async fn more_silence_than_usual_is_told_before_it_ends() {
        let (mut pulse, mut other) = ends(64);
        let silence = pulse.silence();
        // Beats as they pass, however late this thread is.
        let listen = |pulse: &mut Pulse<DuplexStream>, beats: u32| (0..beats).for_each(|_| pulse.beat());
        assert!(!silence.is_unusual());
        listen(&mut pulse, USUAL_LEAST + UNUSUAL_BEATS);
        assert!(silence.is_unusual());
        other.write_u8(1).await.unwrap();
        pulse.read_u8().await.expect("it is not given up");
        assert!(!silence.is_unusual());
        // Whoever is far away is usually silent for longer.
        listen(&mut pulse, USUAL_LEAST + UNUSUAL_BEATS);
        assert!(!silence.is_unusual());
        listen(&mut pulse, UNUSUAL_BEATS);
        assert!(silence.is_unusual());
        // That is forgotten in time.
        other.write_u8(1).await.unwrap();
        pulse.read_u8().await.expect("it is not given up");
        for _ in 0..FORGET_BEATS * 10 {
            pulse.beat();
            pulse.silent = 0;
        }
        assert_eq!(pulse.usual, USUAL_LEAST);
    }
}
