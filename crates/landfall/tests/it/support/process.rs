//! A process that ends with its test, and whose words are kept when the test fails.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take to get ready on a busy machine.
const READY_S_MAX: u64 = 120;

/// A running program; killed when dropped.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program whose output goes to `directory/name.log`.
    pub(crate) fn start(name: &str, command: &mut Command, directory: &Path) -> Self {
        let log = directory.join(format!("{name}.log"));
        let file = File::create(&log).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        Self { name: name.to_owned(), child, log }
    }

    /// All it has printed so far.
    pub(crate) fn output(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Presses Ctrl-C and waits for the end; whether it ended well.
    pub(crate) fn interrupt(&mut self) -> bool {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-INT", &pid]).status().unwrap();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(READY_S_MAX) {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Asks `ready` again and again until it gives something; fails with the log if the program ends first.
    pub(crate) fn wait_for<T>(&mut self, what: &str, mut ready: impl FnMut(&Self) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(value) = ready(self) {
                return value;
            }
            let ended = self.child.try_wait().unwrap();
            let late = began.elapsed() > Duration::from_secs(READY_S_MAX);
            assert!(
                ended.is_none() && !late,
                "{} is not {what} ({}):\n{}",
                self.name,
                ended.map_or_else(|| format!("after {READY_S_MAX} s"), |status| status.to_string()),
                self.output()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(asked.success(), "{} is gone already", self.name);
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already; there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let text = self.output();
            let lines: Vec<_> = text.lines().collect();
            let last = lines.len().saturating_sub(40);
            let mut stderr = std::io::stderr();
            let _ = writeln!(stderr, "--- the last words of {}:\n{}", self.name, lines[last..].join("\n"));
        }
    }
}
