//! A daemon of a machine: kept running, its output in a log, as an init system does.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::Error;

/// How long a daemon that ended by itself stays down.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the end of a daemon is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// Its name, and its log's.
    pub(crate) name: &'static str,
    /// The program.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
}

/// A daemon that is kept running until dropped.
pub(crate) struct Daemon {
    pub(crate) name: &'static str,
    stop: Arc<AtomicBool>,
    child: Arc<Mutex<Child>>,
    watcher: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Starts one; `prefix` are the arguments of nsenter that lead into its machine, `group` is a cgroup's file that takes it in.
    pub(crate) fn start(
        spec: &Spec,
        prefix: Vec<String>,
        group: Option<PathBuf>,
        log: PathBuf,
    ) -> Result<Self, Error> {
        let way = Way { prefix, group, log };
        let child = Arc::new(Mutex::new(spawn(spec, &way)?));
        let stop = Arc::new(AtomicBool::new(false));
        let watcher = {
            let (spec, child, stop) = (spec.clone(), child.clone(), stop.clone());
            std::thread::spawn(move || watch(&spec, &way, &child, &stop))
        };
        Ok(Self { name: spec.name, stop, child, watcher: Some(watcher) })
    }

    /// The process that leads to it.
    pub(crate) fn process(&self) -> u32 {
        self.child.lock().unwrap_or_else(PoisonError::into_inner).id()
    }

    /// From now on it may end: its machine is being killed.
    pub(crate) fn release(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.release();
        {
            let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

/// How a daemon comes to where it runs, and where its log goes.
struct Way {
    prefix: Vec<String>,
    group: Option<PathBuf>,
    log: PathBuf,
}

/// Enters a cgroup before anything else is started.
const ENTER: &str = r#"echo $$ >"$0"; exec "$@""#;

fn spawn(spec: &Spec, way: &Way) -> Result<Child, Error> {
    let log = &way.log;
    let file = OpenOptions::new().create(true).append(true).open(log);
    let file = file.map_err(Error::io(format!("write {}", log.display())))?;
    let errors = file.try_clone().map_err(Error::io(format!("write {}", log.display())))?;
    let mut command = match &way.group {
        Some(group) => {
            let mut command = Command::new("sh");
            command.args(["-c", ENTER]).arg(group).arg("nsenter");
            command
        }
        None => Command::new("nsenter"),
    };
    // The daemon dies with this nsenter, which is what we can kill: the daemon's own number is its machine's affair.
    command.args(&way.prefix).args(["setpriv", "--pdeathsig", "KILL", "--"]);
    command.arg(&spec.program).args(&spec.arguments);
    command.env_clear().envs(ENVIRONMENT.iter().copied());
    command.stdin(Stdio::null()).stdout(file).stderr(errors);
    command.spawn().map_err(Error::io(format!("start {}", spec.program.display())))
}

/// Many Go programs on few cores: less memory for a little more collecting.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("GOGC", "60"),
    ("GOMAXPROCS", "2"),
    ("GODEBUG", "madvdontneed=1"),
];

fn watch(spec: &Spec, way: &Way, child: &Mutex<Child>, stop: &AtomicBool) {
    let log = &way.log;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(Some(status)) = child.try_wait() else { continue };
        if stop.load(Ordering::Relaxed) {
            return;
        }
        note(log, &format!("landfall-rig: {} ended by itself ({status}); starting it again\n", spec.name));
        if pause(stop) {
            return;
        }
        match spawn(spec, way) {
            Ok(again) => *child = again,
            Err(error) => note(log, &format!("landfall-rig: {}\n", crate::chain(&error))),
        }
    }
}

/// The pause before a restart, cut short by a stop; true if there was one.
fn pause(stop: &AtomicBool) -> bool {
    let began = std::time::Instant::now();
    while began.elapsed() < PAUSE && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
    }
    stop.load(Ordering::Relaxed)
}

fn note(log: &Path, line: &str) {
    // The log is for people; that it cannot be written must not stop a daemon.
    if let Ok(mut file) = OpenOptions::new().append(true).open(log) {
        let _ = file.write_all(line.as_bytes());
    }
}
