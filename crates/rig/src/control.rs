//! A running rig takes orders over a socket in its directory: how `rig cut` in one shell reaches `rig up` in another.
//!
//! One order per connection: a JSON array of words in, `{"ok": text}` or `{"error": text}` out.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::rig::directory;
use crate::world::{OWNER, SOCKET};
use crate::{Error, Rig, Stop};

/// The longest order.
const ORDER_MAX: u64 = 64 * 1024;
/// How long a client may take to say its order.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a rig may take to end.
const ENDING: Duration = Duration::from_secs(60);

/// What can be ordered: word, arguments, meaning.
pub const ORDERS: &[(&str, &str, &str)] = &[
    ("status", "", "what runs, what is broken, and how much memory it takes"),
    ("cut", "A B", "cuts two clusters off from each other, or a cluster from the host"),
    ("delay", "A B MS LOSS", "holds packets between the two back, each way, and loses a share of them"),
    ("kill-node", "NODE", "pulls the plug of a node"),
    ("kill-cluster", "CLUSTER", "pulls the plug of a cluster"),
    ("kill-api", "CLUSTER", "ends a cluster's API server"),
    ("heal", "", "undoes every fault and waits until all is well"),
    ("machine", "NAME", "the first process of a machine, whose namespaces are the machine's"),
    ("down", "", "stops the rig"),
];

/// Where a rig of this name listens.
pub fn socket(name: &str) -> PathBuf {
    directory(name).join(SOCKET)
}

/// Takes orders until told to go down, or until `stop` is asked.
///
/// # Errors
/// When the socket cannot be made.
pub fn serve(rig: &Rig, stop: &Stop) -> Result<(), Error> {
    let path = rig.directory().join(SOCKET);
    let failed = || Error::io(format!("listen on {}", path.display()));
    let listener = UnixListener::bind(&path).map_err(failed())?;
    listener.set_nonblocking(true).map_err(failed())?;
    while stop.asked().is_none() {
        match listener.accept() {
            // A client that speaks badly or not at all is its own problem.
            Ok((stream, _)) => drop(answer(rig, stop, stream)),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    Ok(())
}

/// Gives an order to the rig of this name, and its answer.
///
/// # Errors
/// When no such rig runs, or the order fails there.
pub fn order(name: &str, words: &[&str]) -> Result<String, Error> {
    let path = socket(name);
    let mut stream = UnixStream::connect(&path).map_err(|_| Error::NotRunning(name.to_owned()))?;
    let failed = || Error::io(format!("speak with the rig at {}", path.display()));
    writeln!(stream, "{}", json!(words)).map_err(failed())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(failed())?;
    let answer: Value = serde_json::from_str(&line).unwrap_or_default();
    if let Some(text) = answer["ok"].as_str() {
        return Ok(text.to_owned());
    }
    Err(Error::Remote(
        answer["error"].as_str().unwrap_or("the rig ended while it was working on that").to_owned(),
    ))
}

/// Stops the rig of this name, also one that is just being started, or sweeps up what one left that was killed
/// together with its keeper; waits until nothing is left.
///
/// # Errors
/// When there is none, or it does not end.
pub fn down(name: &str) -> Result<(), Error> {
    let directory = directory(name);
    let owner = owner(&directory);
    match order(name, &["down"]) {
        Ok(_) => {}
        Err(Error::NotRunning(_)) if directory.exists() => {
            // A keeper holds the lock as long as there is an owner; only then is the number of the owner's process good.
            let locked = std::fs::File::open(&directory).is_ok_and(|file| file.try_lock().is_err());
            match owner.and_then(rustix::process::Pid::from_raw).filter(|_| locked) {
                Some(owner) => drop(rustix::process::kill_process(owner, rustix::process::Signal::TERM)),
                None => return crate::sweep(name),
            }
        }
        Err(error) => return Err(error),
    }
    let began = Instant::now();
    // Another may be started in its place at once: that one has another owner.
    while directory.exists() && self::owner(&directory).is_none_or(|now| Some(now) == owner) {
        if began.elapsed() > ENDING {
            let what = format!("{} is still there", directory.display());
            return Err(Error::NotReady { what, waited_s: ENDING.as_secs(), detail: String::new() });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The number of the owner's process, as the directory of a rig says.
fn owner(directory: &Path) -> Option<i32> {
    std::fs::read_to_string(directory.join(OWNER)).ok()?.trim().parse().ok()
}

fn answer(rig: &Rig, stop: &Stop, mut stream: UnixStream) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(std::io::Read::take(&stream, ORDER_MAX)).read_line(&mut line)?;
    let words: Vec<String> = serde_json::from_str(&line).unwrap_or_default();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let answer = match obey(rig, stop, &words) {
        Ok(text) => json!({"ok": text}),
        Err(error) => json!({"error": crate::chain(&error)}),
    };
    writeln!(stream, "{answer}")
}

fn obey(rig: &Rig, stop: &Stop, words: &[&str]) -> Result<String, Error> {
    let done = |what: Result<(), Error>, said: String| what.map(|()| said);
    match words {
        ["status"] => Ok(status(rig)),
        ["cut", a, b] => done(rig.cut(a, b), format!("{a} and {b} no longer hear each other")),
        ["delay", a, b, time, loss] => {
            let number =
                |text: &str| text.parse::<u64>().map_err(|_| Error::Remote(format!("{text:?} is no number")));
            let loss = u8::try_from(number(loss)?.min(100)).unwrap_or(100);
            let time = Duration::from_millis(number(time)?.min(60_000));
            done(
                rig.delay(a, b, time, loss),
                format!("{a} and {b}: {} ms each way, {loss} % lost", time.as_millis()),
            )
        }
        ["kill-node", node] => done(rig.kill_node(node), format!("{node} is off")),
        ["kill-cluster", cluster] => done(rig.kill_cluster(cluster), format!("{cluster} is off")),
        ["kill-api", cluster] => done(rig.kill_api(cluster), format!("the API server of {cluster} is off")),
        ["heal"] => done(rig.heal(), "all is well".into()),
        ["machine", name] => rig.first_process(name).map(|process| process.to_string()),
        ["down"] => {
            stop.ask("`rig down`");
            Ok("going down".into())
        }
        other => Err(Error::Remote(format!("no such order: {}", other.join(" ")))),
    }
}

fn status(rig: &Rig) -> String {
    let mut lines = vec![format!("kubeconfig {}", rig.kubeconfig().display())];
    lines.push(format!("logs       {}", rig.directory().join("logs").display()));
    for cluster in &rig.plan().clusters {
        let nodes: Vec<String> =
            cluster.nodes.iter().map(|node| format!("{} {}", node.name, node.address)).collect();
        lines.push(format!("{:<10} {}  {}", cluster.name, cluster.url(), nodes.join("  ")));
    }
    let (processes, megabytes) = rig.size();
    lines.push(format!("{processes} processes, {megabytes} MB"));
    let broken = rig.broken();
    if broken.is_empty() {
        lines.push("nothing is broken".into());
    }
    lines.extend(broken.into_iter().map(|what| format!("broken: {what}")));
    lines.join("\n")
}
