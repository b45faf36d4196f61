//! A rig leaves nothing behind: no process, mount, namespace, link, route, cgroup or file, however it ends.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use landfall_rig::{Config, Error, Rig, Stop, control};

use crate::support::{config, eventually, turn};

/// What a rig of this name has on the machine.
fn traces(name: &str) -> BTreeSet<String> {
    landfall_rig::traces(name).unwrap()
}

fn machine() -> BTreeSet<String> {
    landfall_rig::surroundings().unwrap()
}

fn nothing_left(name: &str, before: &BTreeSet<String>) {
    assert_eq!(traces(name), BTreeSet::new());
    assert_eq!(&machine(), before);
}

#[test]
fn up_and_down_again_and_again() {
    let Some(_turn) = turn("up_and_down_again_and_again") else { return };
    let before = machine();
    for _ in 0..3 {
        let rig = Rig::up(&config("it-again", 1, 1)).unwrap();
        assert_ne!(traces("it-again"), BTreeSet::new(), "the test sees a rig that runs");
        assert_ne!(machine(), before, "and its link");
        drop(rig);
        nothing_left("it-again", &before);
    }
}

#[test]
fn stopped_while_it_starts() {
    let Some(_turn) = turn("stopped_while_it_starts") else { return };
    let before = machine();
    for delay_ms in [0, 700, 2500, 5000] {
        let stop = Stop::default();
        let asked = stop.clone();
        let asking = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(delay_ms));
            asked.ask("a test");
        });
        let result = Rig::up(&Config { stop, ..config("it-stop", 1, 1) });
        // A quick machine may be ready before it is asked.
        let fine = matches!(result, Err(Error::Stopped { .. })) || (delay_ms > 1000 && result.is_ok());
        assert!(fine, "after {delay_ms} ms: {:?}", result.err());
        drop(result);
        asking.join().unwrap();
        nothing_left("it-stop", &before);
    }
}

/// This test starts itself again as another process, which owns a rig and is then killed without a word.
#[test]
fn killed_without_a_word() {
    let name = "it-killed";
    let Some(_turn) = turn("killed_without_a_word") else { return };
    let before = machine();
    let mut owner = Command::new(std::env::current_exe().unwrap());
    owner.args(["--exact", "leftovers::owner_of_a_rig_that_is_killed", "--nocapture"]);
    owner.env(OWNER, name).stdout(Stdio::null()).stderr(Stdio::null());
    let mut owner = owner.spawn().unwrap();
    eventually("the rig of another process", || control::order(name, &["status"]));
    assert!(matches!(Rig::up(&config(name, 1, 1)), Err(Error::Running { .. })), "a second of the same name");
    control::order(name, &["status"]).expect("the first does not mind");
    owner.kill().unwrap();
    owner.wait().unwrap();
    eventually("nothing is left", || {
        let left = traces(name);
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    nothing_left(name, &before);
}

/// Names the rig that the process shall own.
const OWNER: &str = "LANDFALL_RIG_TEST_OWNER";

/// Not a test of its own: the other process of [`killed_without_a_word`].
#[test]
#[expect(clippy::disallowed_methods, reason = "how the parent tells its child what to be")]
fn owner_of_a_rig_that_is_killed() {
    let Ok(name) = std::env::var(OWNER) else { return };
    let rig = Rig::up(&config(&name, 1, 1)).unwrap();
    control::serve(&rig, &Stop::default()).unwrap();
}
