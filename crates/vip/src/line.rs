//! The line between an edge and its keeper: the edge's end, and what both need to speak.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use landfall_runtime::tasks::Tasks;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use crate::keeper::SOCKET;
use crate::words::{LINE_BYTES_MAX, Wish};
use crate::{Held, Holder, Reason, State, Wanted, links};

/// The edge says that it lives so often.
const BEAT: Duration = Duration::from_millis(100);
/// Between two tries to meet the keeper.
const AGAIN: Duration = Duration::from_millis(500);
/// How long a word may take to be taken.
const SAY: Duration = Duration::from_secs(1);

/// An edge's line to the keeper beside it.
#[derive(Debug)]
pub struct Line(Wish);

impl Line {
    /// Meets the keeper of a directory, now and whenever it is there again.
    #[must_use]
    pub fn start(dir: PathBuf, tasks: &Tasks) -> Self {
        let (wish, wants, tell) = Wish::new();
        tasks.spawn_until_stop(async move { follow(&dir, wants, &tell).await });
        Self(wish)
    }
}

impl Holder for Line {
    fn want(&self, wanted: Option<Wanted>) {
        self.0.want(wanted);
    }

    fn held(&self) -> watch::Receiver<Held> {
        self.0.held.clone()
    }
}

async fn follow(dir: &Path, mut wants: watch::Receiver<Option<Wanted>>, tell: &watch::Sender<Held>) {
    loop {
        match UnixStream::connect(dir.join(SOCKET)).await {
            Ok(stream) => {
                speak_with(stream, &mut wants, tell).await;
                // It may have been killed with all that belongs to it: then nobody else takes the addresses off.
                let vips: Vec<IpAddr> =
                    wants.borrow().iter().flat_map(|wanted| wanted.vips.clone()).collect();
                if let Err(error) = links::sweep(&vips).await {
                    tracing::warn!(error, "the keeper is gone, and its addresses may be left");
                }
                lost(tell, "the keeper of virtual IPs is gone");
            }
            Err(error) => lost(tell, &format!("no keeper of virtual IPs at {}: {error}", dir.display())),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn lost(tell: &watch::Sender<Held>, problem: &str) {
    tell.send_if_modified(|held| {
        let problem = Some(Reason::NoKeeper.because(problem));
        let changed = held.state != State::Off || held.problem != problem;
        (held.state, held.problem) = (State::Off, problem);
        changed
    });
}

async fn speak_with(
    stream: UnixStream,
    wants: &mut watch::Receiver<Option<Wanted>>,
    tell: &watch::Sender<Held>,
) {
    let mut ear = Ear::new(stream);
    let mut beats = tokio::time::interval(BEAT);
    beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            said = ear.hear::<Held>() => match said {
                Some(held) => { tell.send_replace(held); }
                None => return,
            },
            changed = wants.changed() => if changed.is_err() { return },
            _ = beats.tick() => {}
        }
        let wanted = wants.borrow_and_update().clone();
        if !speak(&mut ear, &wanted).await {
            return;
        }
    }
}

/// One end of the line.
pub(crate) struct Ear {
    read: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
    /// A line that has begun.
    line: Vec<u8>,
}

impl Ear {
    pub(crate) fn new(stream: UnixStream) -> Self {
        let (read, write) = stream.into_split();
        Self { read: BufReader::new(read), write, line: Vec::new() }
    }

    /// What is said next; `None` when nobody is there any more, or talks nonsense. May be dropped half way.
    pub(crate) async fn hear<T: DeserializeOwned>(&mut self) -> Option<T> {
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
        let mut limited = (&mut self.read).take(u64::try_from(room).unwrap_or(0));
        limited.read_until(b'\n', &mut self.line).await.ok()?;
        let line = std::mem::take(&mut self.line);
        let whole = line.strip_suffix(b"\n")?;
        serde_json::from_slice(whole).ok()
    }
}

/// Says something; false when it cannot be heard.
pub(crate) async fn speak<T: Serialize>(ear: &mut Ear, value: &T) -> bool {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    let said = tokio::time::timeout(SAY, ear.write.write_all(&line)).await;
    said.is_ok_and(|said| said.is_ok())
}
