//! The keeper: does what its edge wants for as long as the edge lives, and never longer.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use landfall_runtime::{clock, files};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Instant;

use crate::check::Checker;
use crate::keepalived::{self, Keepalived, Paths, Word};
use crate::line::{Ear, speak};
use crate::{Held, Problem, Reason, State, Wanted, config, links, listen};

/// The socket at which a keeper is met, in its directory.
pub(crate) const SOCKET: &str = "keeper.sock";
/// What was put on interfaces last, in the keeper's directory: to be taken off by the next one.
const PUT_ON: &str = "put-on.json";
/// An edge that says nothing for this long is not well.
const SILENCE: Duration = Duration::from_millis(500);
/// Between two looks whether the edge is well.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A keepalived that was told that its node must not hold the addresses says so itself within this long, or it hangs.
const OBEY: Duration = Duration::from_secs(5);
/// Between two starts of a keepalived that does not live.
const RESTART_FIRST: Duration = Duration::from_millis(50);
const RESTART_MAX: Duration = Duration::from_secs(5);
/// So many lines of keepalived's log are told when it ends.
const SAID_MAX: usize = 6;

/// Why a keeper cannot be one.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// Its directory cannot be used.
    #[error("cannot use the directory {}", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another one is there.
    #[error("another keeper is at {}", dir.display())]
    Taken {
        /// The directory.
        dir: PathBuf,
    },
}

/// Keeps virtual IPs for the edge that comes to its socket.
pub struct Keeper {
    dir: PathBuf,
    program: PathBuf,
    paths: Paths,
    socket: UnixListener,
    wanted: Option<Wanted>,
    process: Option<Keepalived>,
    /// Hearing others, before keepalived is started.
    listening: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    restart: Restart,
    health: Health,
    held: Held,
    /// The last lines of keepalived's log: they tell why it has ended.
    said: VecDeque<String>,
}

/// When a keepalived that has ended is started again.
struct Restart {
    at: Option<Instant>,
    gap: Duration,
}

/// What is known of the edge.
struct Health {
    /// When it was last heard; never, when nobody is on the line.
    heard: Option<Instant>,
    /// Whether it answers.
    checker: Option<Checker>,
    /// What keepalived was told last, and since when it has not done so.
    told: Option<bool>,
    disobeys: Option<Instant>,
}

impl Keeper {
    /// Waits for an edge at a directory. What an earlier keeper left on interfaces is taken off first.
    pub async fn open(dir: &Path, program: &Path) -> Result<Self, KeeperError> {
        let failed = |source| KeeperError::Directory { dir: dir.to_owned(), source };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
        let at = dir.join(SOCKET);
        if UnixStream::connect(&at).await.is_ok() {
            return Err(KeeperError::Taken { dir: dir.to_owned() });
        }
        let _ = std::fs::remove_file(&at);
        let socket = UnixListener::bind(&at).map_err(failed)?;
        keepalived::await_end(&Paths::new(dir)).await;
        sweep(&put_on(dir)).await;
        Ok(Self {
            dir: dir.to_owned(),
            program: program.to_owned(),
            paths: Paths::new(dir),
            socket,
            wanted: None,
            process: None,
            listening: None,
            restart: Restart { at: None, gap: RESTART_FIRST },
            health: Health { heard: None, checker: None, told: None, disobeys: None },
            held: Held { since_ms: now_ms(), ..Held::default() },
            said: VecDeque::new(),
        })
    }

    /// Keeps until told to stop; then nothing is held any more.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut edge: Option<Ear> = None;
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let before = self.held.clone();
            tokio::select! {
                () = &mut stop => break,
                accepted = self.socket.accept() => if let Ok((stream, _)) = accepted {
                    // The newest speaks: an edge that was started again.
                    let mut ear = Ear::new(stream);
                    speak(&mut ear, &self.held).await;
                    self.health.heard = Some(Instant::now());
                    edge = Some(ear);
                },
                said = hear(&mut edge) => match said {
                    Some(wanted) => {
                        self.health.heard = Some(Instant::now());
                        self.want(wanted).await;
                    }
                    None => {
                        edge = None;
                        self.health.heard = None;
                        self.say_able();
                        tracing::warn!("the edge is gone; giving the addresses away");
                    }
                },
                word = next(&mut self.process) => self.on_word(word).await,
                () = until(self.restart.at) => self.start().await,
                () = heard(&mut self.listening) => self.launch(),
                _ = looks.tick() => {
                    self.say_able();
                    self.look().await;
                }
            }
            if self.held != before
                && let Some(ear) = &mut edge
            {
                speak(ear, &self.held).await;
            }
        }
        self.stop().await;
        let _ = std::fs::remove_file(self.dir.join(SOCKET));
    }

    /// Does what the edge wants from now on. A beat says the same again.
    async fn want(&mut self, wanted: Option<Wanted>) {
        if wanted == self.wanted {
            return;
        }
        let before = std::mem::replace(&mut self.wanted, wanted);
        let Some(wanted) = &self.wanted else {
            self.stop().await;
            return;
        };
        if wanted.vips.is_empty() {
            self.stop().await;
            return;
        }
        let shape = |wanted: &Wanted| Wanted { able: true, check: None, ..wanted.clone() };
        let same = before.as_ref().is_some_and(|before| shape(before) == shape(wanted));
        if before.and_then(|before| before.check) != wanted.check || self.health.checker.is_none() {
            self.health.checker = wanted.check.map(Checker::start);
        }
        self.say_able();
        if !same || self.process.is_none() {
            self.restart = Restart { at: Some(Instant::now()), gap: RESTART_FIRST };
        }
    }

    /// Starts keepalived, or tells a running one what has changed.
    async fn start(&mut self) {
        self.restart.at = None;
        let Some(wanted) = self.wanted.clone().filter(|wanted| !wanted.vips.is_empty()) else { return };
        if let Err(problem) = self.bring(&wanted).await {
            self.held.problem = Some(problem);
            self.again();
        }
    }

    async fn bring(&mut self, wanted: &Wanted) -> Result<(), Problem> {
        let interface = links::interface(wanted).await.map_err(|why| Reason::NoInterface.because(why))?;
        let failed = |error: io::Error| {
            Reason::KeepalivedFailed.because(format!("cannot write to {}: {error}", self.dir.display()))
        };
        let on_disk = serde_json::to_vec(&wanted.vips).unwrap_or_default();
        files::write_whole(&self.dir.join(PUT_ON), &on_disk).map_err(failed)?;
        let files = config::Files { notify: &self.paths.notify, unable: &self.paths.unable };
        let text = config::render(wanted, &interface, files);
        files::write_whole(&self.paths.config, text.as_bytes()).map_err(failed)?;
        if let Some(process) = &self.process {
            let failed = |error| Reason::KeepalivedFailed.because(format!("it cannot be told: {error}"));
            process.reload().map_err(failed)?;
            self.held.problem = None;
            return Ok(());
        }
        // Left by a keeper that was killed and whose directory is gone, as a pod's is.
        sweep(&wanted.vips).await;
        self.listening = Some(Box::pin(listen::first(wanted.clone())));
        Ok(())
    }

    /// Starts keepalived: the others have been heard, or there are none.
    fn launch(&mut self) {
        self.listening = None;
        match Keepalived::start(&self.program, &self.paths) {
            Ok(process) => {
                tracing::info!("keepalived runs");
                self.process = Some(process);
            }
            Err(error) => {
                self.held.problem = Some(missing(&self.program, &error));
                self.again();
            }
        }
    }

    /// keepalived has said something, or has ended.
    async fn on_word(&mut self, word: Result<Word, io::Result<std::process::ExitStatus>>) {
        match word {
            Ok(Word::Became(state)) => {
                self.restart.gap = RESTART_FIRST;
                self.become_(state);
            }
            Ok(Word::Log(line)) => {
                tracing::debug!(line, "keepalived");
                self.said.push_back(line);
                if self.said.len() > SAID_MAX {
                    self.said.pop_front();
                }
            }
            Err(ended) => {
                self.process = None;
                let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                self.lost(&format!("keepalived has ended ({how})")).await;
            }
        }
    }

    /// Looks whether keepalived hangs. One that does is killed: it would go on holding what others take.
    async fn look(&mut self) {
        let holds = self.held.state == State::Holder;
        let disobeys = self.process.is_some() && self.health.told == Some(false) && holds;
        self.health.disobeys = disobeys.then(|| self.health.disobeys.unwrap_or_else(Instant::now));
        let deaf = self.health.disobeys.is_some_and(|since| since.elapsed() > OBEY);
        let stopped = self.process.is_some() && Keepalived::stopped(&self.paths);
        if !deaf && !stopped {
            return;
        }
        if let Some(process) = self.process.take() {
            process.kill(&self.paths).await;
            let how = if deaf { "it does not do what it is told" } else { "it was stopped" };
            self.lost(&format!("keepalived hangs ({how}) and was killed")).await;
        }
    }

    /// keepalived is not there any more: what it held is taken off, and it is started again.
    async fn lost(&mut self, what: &str) {
        let vips = self.wanted.as_ref().map(|wanted| wanted.vips.clone()).unwrap_or_default();
        // Nobody else takes them off, and another node will have taken them in a moment.
        sweep(&vips).await;
        // What is left of it must not meet the next one, nor put anything on again.
        keepalived::await_end(&self.paths).await;
        sweep(&vips).await;
        let said: Vec<String> = self.said.drain(..).collect();
        tracing::error!(what, ?said, "keepalived is lost; starting it again");
        self.become_(State::Off);
        let message = format!("{what}; it last said: {}", said.join("; "));
        self.held.problem = Some(Reason::KeepalivedFailed.because(message));
        self.again();
    }

    fn become_(&mut self, state: State) {
        if self.held.state == state {
            return;
        }
        tracing::info!(from = ?self.held.state, to = ?state, "the part of this node has changed");
        if state == State::Holder {
            self.held.taken += 1;
        }
        if state != State::Off {
            self.held.problem = None;
        }
        (self.held.state, self.held.since_ms) = (state, now_ms());
    }

    fn again(&mut self) {
        self.restart.at = Some(Instant::now() + self.restart.gap);
        self.restart.gap = (self.restart.gap * 2).min(RESTART_MAX);
    }

    /// Lets keepalived hold the addresses, or not, as the edge is now: it sees the file change.
    fn say_able(&mut self) {
        let lives = self.health.heard.is_some_and(|heard| heard.elapsed() < SILENCE);
        let answers = self.health.checker.as_ref().is_none_or(Checker::well);
        let able = lives && answers && self.wanted.as_ref().is_some_and(|wanted| wanted.able);
        if self.health.told == Some(able) {
            return;
        }
        tracing::info!(able, lives, answers, "whether this edge may hold the addresses");
        let word = if able { "0\n" } else { "1\n" };
        match std::fs::write(&self.paths.unable, word) {
            Ok(()) => self.health.told = Some(able),
            Err(error) => tracing::error!(%error, "keepalived cannot be told whether this edge is well"),
        }
    }

    /// Holds nothing any more.
    async fn stop(&mut self) {
        self.restart.at = None;
        self.listening = None;
        if let Some(process) = self.process.take() {
            process.end().await;
        }
        sweep(&put_on(&self.dir)).await;
        let _ = std::fs::remove_file(self.dir.join(PUT_ON));
        self.become_(State::Off);
    }
}

/// What the edge says next: what it wants, or, with `None`, that it is gone. Waits for ever when there is none.
async fn hear(edge: &mut Option<Ear>) -> Option<Option<Wanted>> {
    match edge {
        Some(ear) => ear.hear().await,
        None => std::future::pending().await,
    }
}

async fn next(process: &mut Option<Keepalived>) -> Result<Word, io::Result<std::process::ExitStatus>> {
    match process {
        Some(process) => process.next().await,
        None => std::future::pending().await,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn heard(listening: &mut Option<Pin<Box<dyn Future<Output = ()> + Send>>>) {
    match listening {
        Some(listening) => listening.await,
        None => std::future::pending().await,
    }
}

/// What was put on interfaces, by this keeper or one before it.
fn put_on(dir: &Path) -> Vec<IpAddr> {
    let bytes = std::fs::read(dir.join(PUT_ON)).ok();
    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

async fn sweep(vips: &[IpAddr]) {
    if vips.is_empty() {
        return;
    }
    match links::sweep(vips).await {
        Ok(0) => {}
        Ok(count) => tracing::warn!(count, "took addresses off that were left"),
        Err(error) => tracing::error!(error, "addresses may be left on an interface"),
    }
}

fn missing(program: &Path, error: &io::Error) -> Problem {
    let program = program.display();
    match error.kind() {
        io::ErrorKind::NotFound => Reason::KeepalivedMissing
            .because(format!("{program} is not there: install the package keepalived")),
        _ => Reason::KeepalivedFailed.because(format!("{program} cannot be started: {error}")),
    }
}

fn now_ms() -> i64 {
    i64::try_from(clock::since_epoch().as_millis()).unwrap_or(i64::MAX)
}
