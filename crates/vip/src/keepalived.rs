//! keepalived, the process: started, told of changes, heard, and ended. It never outlives the keeper.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use landfall_runtime::tasks::Tasks;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::State;

/// How long it may take to give the addresses away when it is told to end.
const END: Duration = Duration::from_secs(2);
/// Words of keepalived that nobody has read yet.
const WORDS_MAX: usize = 256;

/// Where the files of a keeper are.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub(crate) config: PathBuf,
    pub(crate) notify: PathBuf,
    pub(crate) unable: PathBuf,
    pid: PathBuf,
    child_pid: PathBuf,
}

impl Paths {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            config: dir.join("keepalived.conf"),
            notify: dir.join("notify"),
            unable: dir.join("unable"),
            pid: dir.join("keepalived.pid"),
            child_pid: dir.join("vrrp.pid"),
        }
    }

    /// Forgets processes that have ended. In a container the keeper is the first process, who inherits those whose parent was killed:
    /// until it has heard of their end, keepalived takes them for running, and does not start.
    fn forget(&self) {
        let pid = std::fs::read_to_string(&self.child_pid).ok().and_then(|text| text.trim().parse().ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // It is mostly somebody else's child.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
        for file in [&self.pid, &self.child_pid] {
            // It may not be there.
            let _ = std::fs::remove_file(file);
        }
    }

    /// Processes of keepalived that run with this configuration.
    fn running(&self) -> impl Iterator<Item = Pid> {
        let config = self.config.display().to_string();
        [&self.pid, &self.child_pid].into_iter().filter_map(move |file| {
            let pid = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
            // Another program may have got the number since.
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            String::from_utf8_lossy(&command).contains(&config).then(|| Pid::from_raw(pid)).flatten()
        })
    }
}

/// Waits until all of a keepalived has ended whose keeper, or whose first process, was killed: what is left is told to end by the kernel,
/// and takes its addresses off. What does not end is killed.
pub(crate) async fn await_end(paths: &Paths) {
    let ended = async {
        while paths.running().next().is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(END, ended).await.is_err() {
        tracing::warn!("a keepalived of an earlier keeper still runs, and is killed");
        for pid in paths.running() {
            // It may have ended in this very moment.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    paths.forget();
}

/// What keepalived says.
#[derive(Debug)]
pub(crate) enum Word {
    /// It has become this.
    Became(State),
    /// A line of its log.
    Log(String),
}

/// A running keepalived.
pub(crate) struct Keepalived {
    child: Child,
    words: mpsc::Receiver<Word>,
    /// Those who read what it says.
    readers: Tasks,
}

impl Keepalived {
    /// Starts it with the configuration that is in its file.
    pub(crate) fn start(program: &Path, paths: &Paths) -> io::Result<Self> {
        make_fifo(&paths.notify)?;
        // Opened for both: it does not end when keepalived does, and keepalived need not wait for it.
        let notify = pipe::OpenOptions::new().read_write(true).open_receiver(&paths.notify)?;
        let mut command = Command::new(program);
        command.args(["--dont-fork", "--log-console", "--dont-respawn", "--vrrp"]);
        let files = [("--use-file", &paths.config), ("--pid", &paths.pid), ("--vrrp_pid", &paths.child_pid)];
        command.args(files.map(|(name, file)| format!("{name}={}", file.display())));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        die_with_us(&mut command);
        let mut child = command.spawn()?;
        let (say, words) = mpsc::channel(WORDS_MAX);
        let readers = Tasks::default();
        if let Some(out) = child.stdout.take() {
            readers.spawn_until_stop(read(out, say.clone(), log));
        }
        if let Some(out) = child.stderr.take() {
            readers.spawn_until_stop(read(out, say.clone(), log));
        }
        readers.spawn_until_stop(read(notify, say, became));
        Ok(Self { child, words, readers })
    }

    /// The next word, or its end.
    pub(crate) async fn next(&mut self) -> Result<Word, io::Result<ExitStatus>> {
        tokio::select! {
            biased;
            Some(word) = self.words.recv() => Ok(word),
            ended = self.child.wait() => Err(ended),
        }
    }

    /// Whether one of its processes was stopped: it has not ended, but adverts and orders are nobody's business any more. Another
    /// node takes the addresses a moment later, while this one still has them.
    pub(crate) fn stopped(paths: &Paths) -> bool {
        paths.running().any(|pid| state(pid).is_some_and(|state| matches!(state, 'T' | 't')))
    }

    /// Kills all of it at once; also what is stopped ends by that.
    pub(crate) async fn kill(mut self, paths: &Paths) {
        for pid in paths.running() {
            // It may have ended in this very moment.
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.kill().await;
    }

    /// Tells it to read its configuration again; what it holds it goes on holding.
    pub(crate) fn reload(&self) -> io::Result<()> {
        self.signal(Signal::HUP)
    }

    /// Ends it: it gives the addresses away, and tells the others so.
    pub(crate) async fn end(mut self) {
        if self.signal(Signal::TERM).is_ok() && tokio::time::timeout(END, self.child.wait()).await.is_ok() {
            return;
        }
        let _ = self.child.kill().await;
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let raw = self.child.id().and_then(|id| i32::try_from(id).ok());
        let pid = raw.and_then(Pid::from_raw).ok_or_else(|| io::Error::other("keepalived has ended"))?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for Keepalived {
    fn drop(&mut self) {
        self.readers.stop();
    }
}

/// What the kernel says of a process: the letter after its name, which may hold anything.
fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Told to end when the keeper's thread ends, however it does.
#[expect(unsafe_code, reason = "there is no other way to say something between fork and exec")]
fn die_with_us(command: &mut Command) {
    let ask = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?);
    // SAFETY: between fork and exec only one system call is made, which allocates nothing and takes no lock.
    unsafe { command.pre_exec(ask) };
}

fn make_fifo(path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let _ = std::fs::remove_file(path);
    Ok(mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?)
}

async fn read(from: impl AsyncRead + Unpin, say: mpsc::Sender<Word>, parse: fn(&str) -> Option<Word>) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(word) = parse(&line)
            && say.send(word).await.is_err()
        {
            return;
        }
    }
}

fn log(line: &str) -> Option<Word> {
    // Without the date: our log has its own.
    let text = line.splitn(6, ' ').nth(5).map_or(line, str::trim);
    Some(Word::Log(text.to_owned()))
}

/// A line such as `INSTANCE "group" MASTER 200`.
fn became(line: &str) -> Option<Word> {
    let mut words = line.split_whitespace();
    let (kind, _, state) = (words.next()?, words.next()?, words.next()?);
    let state = match (kind, state) {
        ("INSTANCE", "MASTER") => State::Holder,
        ("INSTANCE", "BACKUP") => State::Backup,
        ("INSTANCE", "FAULT") => State::Fault,
        ("INSTANCE", "STOP") => State::Off,
        _ => return None,
    };
    Some(Word::Became(state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keepalived_says_is_understood_or_left() {
        let check = |line: &str, expected: Option<State>| {
            let state = became(line).map(|word| match word {
                Word::Became(state) => state,
                Word::Log(_) => unreachable!("not a log"),
            });
            assert_eq!(state, expected, "{line}");
        };
        check("INSTANCE \"group\" MASTER 200", Some(State::Holder));
        check("INSTANCE \"group\" BACKUP 200", Some(State::Backup));
        check("INSTANCE \"group\" FAULT 200", Some(State::Fault));
        check("INSTANCE \"group\" MASTER_RX_LOWER_PRI 200", None);
        check("GROUP \"all\" MASTER 0", None);
        check("INSTANCE", None);
        check("", None);
    }
}
