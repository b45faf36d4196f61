//! What the documents say to type works: every console line of the README and of the guides is run, or checked to exist.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{Playground, find, kubernetes_binary, skip};

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

/// A document, by its place in the checkout.
fn read(file: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    std::fs::read_to_string(root.join(file)).unwrap()
}

/// The first manifest in a document.
fn manifest(text: &str) -> &str {
    text.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap()
}

/// How often a line is typed until it works: a load balancer gets its address a moment after it was asked for.
const TRIES: u32 = 100;

#[test]
fn the_readme_can_be_typed() {
    let Some(kubectl) = kubernetes_binary("kubectl").or_else(|| find("kubectl")) else {
        skip("README", "kubectl not found");
        return;
    };
    let base = tempfile::tempdir().unwrap();
    let playground = Playground::start(base.path(), &[]);
    built(base.path());
    let mut ran = 0;
    for line in typed(&read("README.md")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["kubectl" | "curl" | "target/release/landfall", ..] => {
                type_in(&line, &playground, base.path(), &kubectl);
                ran += 1;
            }
            ["cargo", "run", "--release", "--", arguments @ ..] => check_arguments(&line, arguments),
            ["cargo", "xtask", "test"] => {}
            _ => panic!("the README says to type `{line}`, which no test knows"),
        }
    }
    assert!(ran >= 7, "only {ran} lines were run");
    // It goes on where the README ends.
    let guide = read("docs/playground.md");
    let lines = typed(&guide);
    assert!(lines.len() >= 5, "only {} lines", lines.len());
    for line in lines {
        type_in(&line, &playground, base.path(), &kubectl);
    }
}

#[test]
fn the_clusters_of_the_guide_to_the_playground_can_be_started() {
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("clusters.yaml");
    std::fs::write(&file, manifest(&read("docs/playground.md"))).unwrap();
    let playground = Playground::start(base.path(), &["--config", file.to_str().unwrap()]);
    let addresses = playground.addresses();
    let names: Vec<_> = addresses["edges"].as_array().unwrap().iter().map(|edge| &edge["cluster"]).collect();
    assert_eq!(names, ["us-east", "lab"]);
}

#[test]
fn the_guide_to_groups_can_be_typed() {
    let Some(kubectl) = kubernetes_binary("kubectl").or_else(|| find("kubectl")) else {
        skip("the guide to groups", "kubectl not found");
        return;
    };
    let base = tempfile::tempdir().unwrap();
    let playground = Playground::start(base.path(), &[]);
    built(base.path());
    guide(
        "docs/ingress-groups.md",
        &["range.yaml", "groups.yaml", "claim.yaml"],
        &playground,
        base.path(),
        &kubectl,
    );
}

#[test]
fn the_guide_to_one_address_can_be_typed_and_does_what_it_says() {
    let Some(kubectl) = kubernetes_binary("kubectl").or_else(|| find("kubectl")) else {
        skip("the guide to one address", "kubectl not found");
        return;
    };
    let base = tempfile::tempdir().unwrap();
    let playground = Playground::start(base.path(), &[]);
    built(base.path());
    guide("docs/one-address.md", &["zoo.yaml", "policy.yaml"], &playground, base.path(), &kubectl);
    let zoo = "-H 'Host: zoo.example.com' http://$(kubectl get mci zoo -o jsonpath={.status.VIP}):8080";
    for line in [
        format!("test \"$(curl -s {zoo}/closed)\" = gone"),
        format!(
            "test \"$(curl -s -w '%{{http_code}} %{{redirect_url}}' {zoo}/old)\" = '308 http://zoo.example.com/'"
        ),
        "test $(kubectl get trafficplan web -o jsonpath='{.spec.clusters[0].capacity}') -ge 200".to_owned(),
    ] {
        type_in(&line, &playground, base.path(), &kubectl);
    }
    // The metrics that it names are those that there are, where something was carried.
    let addresses = playground.addresses();
    let edges = addresses["edges"].as_array().unwrap().iter();
    let told = edges.map(|edge| {
        let url = format!("{}/metrics", edge["admin"].as_str().unwrap());
        let output = Command::new("curl").args(["-s", &url]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    });
    let metrics: String = told.collect();
    let text = read("docs/one-address.md");
    for name in text.lines().filter(|line| line.starts_with("| `landfall_")).flat_map(|line| line.split('`'))
    {
        let known = metrics.contains(&format!("# TYPE {name} "));
        assert!(known || !name.starts_with("landfall_"), "{name} is no metric: {metrics}");
    }
}

/// Writes a guide's manifests to the files that it names, and types its lines.
fn guide(document: &str, files: &[&str], playground: &Playground, beside: &Path, kubectl: &Path) {
    let text = read(document);
    let manifests: Vec<&str> =
        text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(manifests.len(), files.len(), "{document}");
    for (file, manifest) in files.iter().zip(manifests) {
        std::fs::write(beside.join(file), manifest).unwrap();
    }
    let lines = typed(&text);
    assert!(lines.len() >= 10, "only {} lines", lines.len());
    for line in lines {
        type_in(&line, playground, beside, kubectl);
    }
}

#[test]
fn the_guide_to_the_federation_can_be_typed_and_its_manifest_given() {
    let Some(kubectl) = kubernetes_binary("kubectl").or_else(|| find("kubectl")) else {
        skip("the guide to the federation", "kubectl not found");
        return;
    };
    let base = tempfile::tempdir().unwrap();
    let playground = Playground::start(base.path(), &[]);
    built(base.path());
    let text = read("docs/federation.md");
    let lines = typed(&text);
    assert!(lines.len() >= 8, "only {} lines", lines.len());
    for line in lines {
        type_in(&line, &playground, base.path(), &kubectl);
    }
    std::fs::write(base.path().join("careful.yaml"), manifest(&text)).unwrap();
    for line in [
        "kubectl apply -f careful.yaml",
        "kubectl wait --for=condition=Propagated deployment/careful --timeout=60s",
        "kubectl rollout status deployment/careful --timeout=60s",
        "test $(kubectl --context us-east get deployment careful -o jsonpath={.spec.replicas}) = 4",
        "test $(kubectl --context asia-east get deployment careful -o jsonpath={.metadata.labels.here}) = asia",
    ] {
        type_in(line, &playground, base.path(), &kubectl);
    }
}

/// Puts the binary where the documents say that the build puts it.
fn built(beside: &Path) {
    let release = beside.join("target/release");
    std::fs::create_dir_all(&release).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_landfall"), release.join("landfall")).unwrap();
}

/// Types a line into a shell beside the playground.
fn type_in(line: &str, playground: &Playground, beside: &Path, kubectl: &Path) {
    let tries = if line.starts_with("curl") { TRIES } else { 1 };
    let usual = std::env::var_os("PATH").unwrap();
    let dirs = kubectl.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(&usual));
    let path = std::env::join_paths(dirs).unwrap();
    for left in (0..tries).rev() {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(beside).env("PATH", &path);
        shell.env("KUBECONFIG", playground.kubeconfig()).env("TMPDIR", playground.temporary());
        let output = shell.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        // Whoever types curl wants to see a pod's answer.
        if output.status.success() && (tries == 1 || said.contains("\"pod\"")) {
            return;
        }
        assert!(left > 0, "{line}: {said}{}", String::from_utf8_lossy(&output.stderr));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The binary understands what is typed: asking for help with the same flags succeeds.
fn check_arguments(line: &str, arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_landfall")).args(arguments).arg("--help").output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}
