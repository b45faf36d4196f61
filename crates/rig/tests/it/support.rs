//! The shared rig, and patient ways to look at it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use landfall_rig::{Config, Rig, assets, check_machine};

use crate::members;

/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// One at a time: two rigs that start at once on two cores only wait for each other.
static TURN: Mutex<Option<Rig>> = Mutex::new(None);

/// The rig whose turn it is; the next test gets it when this is dropped.
pub(crate) struct Turn(MutexGuard<'static, Option<Rig>>);

/// Waits for its turn with the shared rig, whole; none when the machine cannot run one.
pub(crate) fn shared(test: &str) -> Option<Turn> {
    let mut turn = wait(test)?;
    if turn.0.is_none() {
        *turn.0 = Some(
            Rig::up(&config("it", 2, 2)).unwrap_or_else(|error| panic!("{}", landfall_rig::chain(&error))),
        );
    }
    Some(turn)
}

/// Waits for its turn to start a rig of its own. The shared one makes room: it would take time from clusters whose time counts.
pub(crate) fn turn(test: &str) -> Option<Turn> {
    let mut turn = wait(test)?;
    drop(turn.0.take());
    Some(turn)
}

fn wait(test: &str) -> Option<Turn> {
    if let Some(why) = unfit() {
        skip(test, &why);
        return None;
    }
    Some(Turn(TURN.lock().unwrap_or_else(PoisonError::into_inner)))
}

impl std::ops::Deref for Turn {
    type Target = Rig;
    fn deref(&self) -> &Rig {
        self.0.as_ref().expect("the shared rig was started")
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // What a failed test broke must not fail the next; and its last words are in the logs.
        if std::thread::panicking()
            && let Some(rig) = self.0.take()
        {
            last_words(&rig);
        }
    }
}

/// A rig of this size.
pub(crate) fn config(name: &str, clusters: usize, nodes: usize) -> Config {
    let say: landfall_rig::Say = Arc::new(|line: &str| println!("{line}"));
    Config { clusters, nodes, say, ..Config::new(name, landfall()) }
}

/// The program that the images are made of: what the workspace's tests have just been built with, or else built now.
/// Not always built: alone it has other features of its dependencies, and all of them would be built a second time.
pub(crate) fn landfall() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let binary = test.ancestors().nth(2).unwrap().join("landfall");
    if !binary.is_file() {
        run(Command::new(env!("CARGO")).args(["build", "--package", "landfall"])).unwrap();
    }
    binary
}

fn unfit() -> Option<String> {
    if let Err(error) = check_machine() {
        return Some(error.to_string());
    }
    let missing = assets::missing();
    (!missing.is_empty())
        .then(|| format!("not built: {} (`cargo xtask test` builds them)", missing.join(", ")))
}

/// Says loudly that a test is skipped; fails instead when the environment says that nothing may be.
#[expect(clippy::disallowed_methods, reason = "what must not be skipped is the environment's to say")]
pub(crate) fn skip(test: &str, why: &str) {
    let required = std::env::var("LANDFALL_REQUIRE").unwrap_or_default();
    let all = required.split(',').any(|name| name == "1" || name == "rig");
    assert!(!all, "rig, {test}: {why}, and LANDFALL_REQUIRE asks for it");
    // Not by a macro: those are hidden while a test passes.
    let mut stderr = std::io::stderr();
    writeln!(stderr, "SKIPPED: rig, {test}: {why}").unwrap();
}

/// Runs kubectl and gives what it printed; panics with its words if it fails.
pub(crate) fn kubectl(rig: &Rig, cluster: &str, arguments: &str) -> String {
    let output = try_kubectl(rig, cluster, arguments);
    output.unwrap_or_else(|said| panic!("kubectl --context={cluster} {arguments}: {said}"))
}

/// Runs kubectl; its words if it fails.
pub(crate) fn try_kubectl(rig: &Rig, cluster: &str, arguments: &str) -> Result<String, String> {
    run(rig.kubectl(cluster).args(arguments.split_whitespace()))
}

/// Runs a program and gives what it printed; what it complained about if it fails.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Asks a URL from the host.
pub(crate) fn curl(url: &str) -> Result<String, String> {
    run(Command::new("curl").args(["-sS", "--fail", "--noproxy", "*", "--max-time", "3", url]))
}

/// Asks a URL from a place of the rig.
pub(crate) fn curl_at(rig: &Rig, place: &str, url: &str) -> Result<String, String> {
    let output = rig.exec(place, "curl", &["-sS", "--fail", "--max-time", "3", url]).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Looks again and again until it is so; panics with what it saw last.
pub(crate) fn eventually<T, E: std::fmt::Debug>(what: &str, look: impl FnMut() -> Result<T, E>) -> T {
    within(PATIENCE, what, look)
}

/// The same, with a time that is part of what is promised.
pub(crate) fn within<T, E: std::fmt::Debug>(
    time: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<T, E>,
) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => {
                assert!(began.elapsed() < time, "{what}: not after {} s; last: {seen:?}", time.as_secs())
            }
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Applies the manifests that simulated clusters are tested with too, unless they are there, and makes a pod to ask
/// from. Where the load balancer answers.
pub(crate) fn web(rig: &Rig, cluster: &str) -> String {
    if try_kubectl(rig, cluster, "get deployment web").is_err() {
        kubectl(rig, cluster, &format!("apply -f {}/web.yaml", members::DIRECTORY));
    }
    kubectl(rig, cluster, "rollout status deployment/web --timeout=120s");
    within(Duration::from_secs(150), "a pod to ask from", || {
        // A node that an earlier test lost may have taken it along, at any moment from then on.
        let _there = try_kubectl(rig, cluster, "run client --image=landfall.dev/tools:1");
        try_kubectl(rig, cluster, "wait --for=condition=Ready pod/client --timeout=30s")
    });
    let path = "get service web-public -o jsonpath={.status.loadBalancer.ingress[0].ip}";
    let address = eventually("an address", || {
        let address = kubectl(rig, cluster, path);
        if address.is_empty() { Err("none yet") } else { Ok(address) }
    });
    let url = format!("http://{address}:8080");
    eventually("the load balancer answers", || curl(&url));
    url
}

fn last_words(rig: &Rig) {
    let mut stderr = std::io::stderr();
    for cluster in &rig.plan().clusters {
        for what in ["get nodes,pods,services,endpointslices -A -o wide", "get events -A"] {
            let text = try_kubectl(rig, &cluster.name, what).unwrap_or_else(|said| said);
            let _ = writeln!(stderr, "--- {}: kubectl {what}\n{text}", cluster.name);
        }
    }
}
