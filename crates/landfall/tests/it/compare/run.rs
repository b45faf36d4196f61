//! Running the script on one server.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::script::{Chapter, Step};

/// How many chapters run at a time on one server.
const WORKERS: usize = 3;

/// How long a step may take, in seconds.
const STEP_S_MAX: &str = "60";

/// What came of one step.
pub(super) struct Outcome {
    pub(super) code: i32,
    stdout: String,
    stderr: String,
}

impl Outcome {
    /// All that a user sees: output, then errors marked `!`, then the exit code unless it is 0.
    pub(super) fn text(&self) -> String {
        let mut text = self.stdout.clone();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        for line in self.stderr.lines() {
            text.push_str(&format!("! {line}\n"));
        }
        if self.code != 0 {
            text.push_str(&format!("exit {}\n", self.code));
        }
        text
    }
}

/// Types the script's lines at one server.
pub(super) struct Runner {
    kubectl: PathBuf,
    kubeconfig: PathBuf,
    directory: PathBuf,
    transcripts: PathBuf,
}

impl Runner {
    /// A runner that uses this kubectl with this kubeconfig, keeps its files in `directory` and its transcripts under `name`.
    pub(super) fn new(name: &str, kubectl: &Path, kubeconfig: &Path, directory: &Path) -> Self {
        let transcripts = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&transcripts).unwrap();
        Self {
            kubectl: kubectl.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            directory: directory.to_owned(),
            transcripts,
        }
    }

    /// Runs all chapters, a few at a time; what came of their steps, in order.
    pub(super) fn all(&self, chapters: &[Chapter]) -> Vec<Outcome> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(BTreeMap::new());
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    while let Some((index, chapter)) = {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        chapters.get(index).map(|chapter| (index, chapter))
                    } {
                        let outcomes = self.chapter(chapter);
                        done.lock().unwrap().insert(index, outcomes);
                    }
                });
            }
        });
        done.into_inner().unwrap().into_values().flatten().collect()
    }

    fn chapter(&self, chapter: &Chapter) -> Vec<Outcome> {
        let home = self.directory.join(&chapter.name);
        std::fs::create_dir_all(home.join("bin")).unwrap();
        std::os::unix::fs::symlink(&self.kubectl, home.join("bin/kubectl")).unwrap();
        // Chapters choose their namespace in it.
        std::fs::copy(&self.kubeconfig, home.join("kubeconfig")).unwrap();
        let mut transcript = File::create(self.transcripts.join(format!("{}.txt", chapter.name))).unwrap();
        let run = |step: &Step| {
            let outcome = run(&home, step);
            write!(transcript, "{step}\n{}\n", outcome.text()).unwrap();
            outcome
        };
        chapter.steps.iter().map(run).collect()
    }
}

fn run(home: &Path, step: &Step) -> Outcome {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/manifests");
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", home.join("bin").display());
    let mut command = Command::new("timeout");
    command.args([STEP_S_MAX, "sh", "-c", &step.command]).current_dir(manifests).env_clear();
    command.env("PATH", path).env("HOME", home).env("T", home).env("LC_ALL", "C");
    let output = command.env("KUBECONFIG", home.join("kubeconfig")).output().unwrap();
    let home = home.display().to_string();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&home, "$T");
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}
