//! Real Kubernetes binaries, built once from its Go module and kept in the cache.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::shell::{cache, has, output, say};

/// The Kubernetes we compare with.
pub(crate) const VERSION: &str = "v1.36.4";
/// The version of its staging modules.
const STAGING: &str = "v0.36.4";
/// What is built.
const BINARIES: &[&str] = &["kube-apiserver", "kubectl", "kube-controller-manager"];

/// The directory with the binaries, building them if they are not there. Takes minutes the first time.
pub(crate) fn binaries() -> Result<PathBuf> {
    let directory = cache().join("kubernetes").join(VERSION);
    let missing: Vec<&&str> = BINARIES.iter().filter(|name| !directory.join(name).is_file()).collect();
    if missing.is_empty() {
        return Ok(directory);
    }
    ensure!(has("go"), "building Kubernetes {VERSION} needs Go");
    std::fs::create_dir_all(&directory)?;
    let module = cache().join("kubernetes-build");
    prepare(&module)?;
    for name in missing {
        say(&format!("    building {name} {VERSION} (once, a few minutes)"));
        build(&module, name, &directory)?;
    }
    Ok(directory)
}

/// A module whose only purpose is to require Kubernetes with its staging modules at one version.
fn prepare(module: &Path) -> Result<()> {
    std::fs::create_dir_all(module)?;
    let mut download = Command::new("go");
    download.args(["mod", "download", "-json", &format!("k8s.io/kubernetes@{VERSION}")]).current_dir(module);
    let facts: Value = serde_json::from_str(&output(&mut download)?)?;
    let go_mod = facts["GoMod"].as_str().context("`go mod download` gave no go.mod")?;
    let upstream = std::fs::read_to_string(go_mod)?;
    let mut text =
        format!("module landfall.dev/kubernetes\n\ngo 1.26\n\nrequire k8s.io/kubernetes {VERSION}\n");
    for line in upstream.lines().filter(|line| line.contains("=> ./staging/")) {
        let name = line.split_whitespace().find(|word| word.starts_with("k8s.io/"));
        if let Some(name) = name {
            writeln!(text, "replace {name} => {name} {STAGING}")?;
        }
    }
    std::fs::write(module.join("go.mod"), text)?;
    let imports = "package kubernetes\n\nimport (\n\
        \t_ \"k8s.io/kubectl/pkg/cmd\"\n\
        \t_ \"k8s.io/kubernetes/cmd/kube-apiserver/app\"\n\
        \t_ \"k8s.io/kubernetes/cmd/kube-controller-manager/app\"\n)\n";
    std::fs::write(module.join("imports.go"), imports)?;
    output(Command::new("go").args(["mod", "tidy"]).current_dir(module)).map(drop)
}

fn build(module: &Path, name: &str, directory: &Path) -> Result<()> {
    let version = "k8s.io/component-base/version";
    let flags = format!(
        "-s -w -X {version}.gitVersion={VERSION} -X {version}.gitMajor=1 -X {version}.gitMinor=36 \
         -X k8s.io/client-go/pkg/version.gitVersion={VERSION}"
    );
    let mut go = Command::new("go");
    go.args(["build", "-trimpath", "-ldflags", &flags, "-o"]).arg(directory.join(name));
    go.arg(format!("k8s.io/kubernetes/cmd/{name}")).env("CGO_ENABLED", "0").current_dir(module);
    output(&mut go).map(drop)
}
