//! Runs `script.sh` on a cluster and holds what it prints against `expected.txt`. Part of the tests of the playground
//! and of those of the rig: simulated or real, the results are the same.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// The manifests and the script.
pub(crate) const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/members");

/// Runs the script on a cluster; panics at the first line that is not as expected.
pub(crate) fn check(kubectl: &OsStr, kubeconfig: &Path, context: &str) {
    let mut script = Command::new("sh");
    script.arg(format!("{DIRECTORY}/script.sh")).env("KUBECTL", kubectl);
    let output = script.env("KUBECONFIG", kubeconfig).env("CONTEXT", context).output().unwrap();
    let expected = std::fs::read_to_string(format!("{DIRECTORY}/expected.txt")).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    let (mut want, mut got) = (expected.lines(), said.lines());
    let mut step = "";
    loop {
        let pair = (want.next(), got.next());
        assert_eq!(
            pair.1, pair.0,
            "{context}, {step}; the script complained: {complaints}\nand said: {said}"
        );
        match pair.0 {
            Some(line) if line.starts_with("== ") => step = line,
            Some(_) => {}
            None => break,
        }
    }
    assert!(output.status.success(), "{context}: {complaints}");
}
