//! What the documents say to type works: every console line of the README is run, or checked to exist.

use std::process::Command;

use crate::support::{Hub, find, kubernetes_binary, skip};

/// The lines after `$ ` in console blocks.
fn typed(text: &str) -> Vec<String> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if inside => lines.extend(line.strip_prefix("$ ").map(str::to_owned)),
            _ => {}
        }
    }
    lines
}

fn readme() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_readme_can_be_typed() {
    let Some(kubectl) = kubernetes_binary("kubectl").or_else(|| find("kubectl")) else {
        skip("README", "kubectl not found");
        return;
    };
    let hub = Hub::start();
    let mut ran = 0;
    for line in typed(&readme()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["kubectl", arguments @ ..] => {
                let output = Command::new(&kubectl)
                    .args(arguments)
                    .env("KUBECONFIG", &hub.kubeconfig)
                    .output()
                    .unwrap();
                assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
                ran += 1;
            }
            ["cargo", "run", "--release", "--", arguments @ ..] => check_arguments(&line, arguments),
            ["cargo", "xtask", "test"] | ["export", "KUBECONFIG=./hub/admin.kubeconfig"] => {}
            _ => panic!("the README says to type `{line}`, which no test knows"),
        }
    }
    assert!(ran >= 4, "only {ran} lines were run");
}

/// The binary understands what is typed: asking for help with the same flags succeeds.
fn check_arguments(line: &str, arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_landfall")).args(arguments).arg("--help").output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}
