//! Real Kubernetes and CoreDNS binaries: found, or built once from their Go modules and kept in the cache.
//!
//! Looked for in `LANDFALL_KUBE_ASSETS`, in the cache, and in PATH (where the version must fit), in this order.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Error;
use crate::program::{find, output};

/// The Kubernetes that rigs run and that we compare with.
pub const KUBERNETES: &str = "v1.36.4";
/// The version of its staging modules.
const STAGING: &str = "v0.36.4";
/// The CoreDNS that kubeadm of that version installs.
pub const COREDNS: &str = "v1.14.2";

/// What a rig runs of Kubernetes, and kubectl.
pub const COMPONENTS: &[&str] =
    &["kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"];

/// Rises with the list of plugins, so that binaries without the new ones are not taken for it.
const COREDNS_BUILD: u8 = 2;
/// Plugins of CoreDNS that are built in; whole clouds of them are not.
const PLUGINS: &[&str] = &[
    "cache",
    "errors",
    "etcd",
    "file",
    "forward",
    "health",
    "hosts",
    "kubernetes",
    "loadbalance",
    "log",
    "loop",
    "metrics",
    "ready",
    "reload",
    "rewrite",
    "template",
    "whoami",
];

/// What the linker leaves out of a binary: symbols and debug information.
const STRIPPED: &str = "-s -w";

/// Says what is being done.
pub type Say<'a> = &'a (dyn Fn(&str) + Sync);

/// Where expensive things are kept: `LANDFALL_CACHE`, else `landfall` in the user's cache.
#[expect(clippy::disallowed_methods, reason = "where caches live is the environment's to say")]
pub fn cache() -> PathBuf {
    let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    env("LANDFALL_CACHE").map(PathBuf::from).unwrap_or_else(|| {
        let base = env("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || PathBuf::from(env("HOME").unwrap_or_else(|| "/tmp".into())).join(".cache");
        base.unwrap_or_else(home).join("landfall")
    })
}

/// All that a rig runs and that may have to be built: Kubernetes and CoreDNS.
pub fn all() -> Vec<&'static str> {
    COMPONENTS.iter().copied().chain(["coredns"]).collect()
}

/// Which of them are nowhere found and would have to be built.
pub fn missing() -> Vec<&'static str> {
    all().into_iter().filter(|name| locate(name).is_none()).collect()
}

/// Paths of the named components of Kubernetes (and of `coredns`), building what is nowhere found.
///
/// # Errors
/// When something must be built and there is no Go, or building fails.
pub fn binaries(names: &[&'static str], say: Say<'_>) -> Result<BTreeMap<&'static str, PathBuf>, Error> {
    let mut found = BTreeMap::new();
    let mut missing = Vec::new();
    for name in names {
        match locate(name) {
            Some(path) => drop(found.insert(*name, path)),
            None => missing.push(*name),
        }
    }
    for name in missing.iter().copied() {
        found.insert(name, kept(name));
    }
    build_missing(&missing, say)?;
    Ok(found)
}

/// The directory of the cache that has the named components of Kubernetes, building those that it has not.
///
/// # Errors
/// When something must be built and there is no Go, or building fails.
pub fn kept_binaries(names: &[&'static str], say: Say<'_>) -> Result<PathBuf, Error> {
    let missing: Vec<&'static str> = names.iter().filter(|name| !kept(name).is_file()).copied().collect();
    build_missing(&missing, say)?;
    Ok(cache().join("kubernetes").join(KUBERNETES))
}

fn build_missing(missing: &[&'static str], say: Say<'_>) -> Result<(), Error> {
    if missing.is_empty() {
        return Ok(());
    }
    let Some(go) = find("go") else {
        return Err(Error::NoGo { binaries: missing.join(", "), cache: cache() });
    };
    let lock =
        std::fs::create_dir_all(cache()).and_then(|()| std::fs::File::create(cache().join("build.lock")));
    let lock = lock.and_then(|file| file.lock().map(|()| file));
    let place = cache().display().to_string();
    let _lock =
        lock.map_err(Error::io(format!("build into {place} (LANDFALL_CACHE names another place)")))?;
    for name in missing {
        let kept = kept(name);
        // Somebody else may have built it while we waited for the lock.
        if !kept.is_file() {
            build(&go, name, &kept, say)?;
        }
    }
    Ok(())
}

/// Where a binary is kept once built.
pub fn kept(name: &str) -> PathBuf {
    match name {
        "coredns" => cache().join("coredns").join(format!("{COREDNS}-{COREDNS_BUILD}")).join(name),
        _ => cache().join("kubernetes").join(KUBERNETES).join(name),
    }
}

#[expect(clippy::disallowed_methods, reason = "the variable is documented; commands and tests share it")]
fn locate(name: &str) -> Option<PathBuf> {
    let given = std::env::var("LANDFALL_KUBE_ASSETS").ok().map(|directory| Path::new(&directory).join(name));
    let known = given.into_iter().chain([kept(name)]).find(|path| path.is_file());
    known.or_else(|| find(name).filter(|path| fits(name, path)))
}

/// Whether a binary from PATH has a version that a rig can work with.
fn fits(name: &str, path: &Path) -> bool {
    let (option, wanted) = match name {
        "kubectl" => return true,
        "coredns" => ("-version", "CoreDNS-1."),
        _ => ("--version", "Kubernetes v1.36."),
    };
    output(Command::new(path).arg(option)).is_ok_and(|text| text.contains(wanted))
}

fn build(go: &Path, name: &str, kept: &Path, say: Say<'_>) -> Result<(), Error> {
    let directory = kept.parent().unwrap_or(kept);
    std::fs::create_dir_all(directory).map_err(Error::io(format!("make {}", directory.display())))?;
    // Built beside its place and moved: an interrupted build leaves no half binary.
    let part = directory.join(format!(".{name}.part"));
    let mut command = Command::new(go);
    command.args(["build", "-trimpath", "-ldflags"]);
    if name == "coredns" {
        say(&format!("building coredns {COREDNS} (once, about a minute)"));
        let module = prepare_coredns(go)?;
        command.arg(STRIPPED).arg("-o").arg(&part).arg(".").current_dir(module);
    } else {
        say(&format!("building {name} {KUBERNETES} (once, one to four minutes)"));
        let module = prepare_kubernetes(go)?;
        command.arg(version_flags()).arg("-o").arg(&part);
        command.arg(format!("k8s.io/kubernetes/cmd/{name}")).current_dir(module);
    }
    output(command.env("CGO_ENABLED", "0"))?;
    std::fs::rename(&part, kept).map_err(Error::io(format!("move {} into place", kept.display())))
}

fn version_flags() -> String {
    let version = "k8s.io/component-base/version";
    format!(
        "{STRIPPED} -X {version}.gitVersion={KUBERNETES} -X {version}.gitMajor=1 -X {version}.gitMinor=36 \
         -X k8s.io/client-go/pkg/version.gitVersion={KUBERNETES}"
    )
}

/// A module whose only purpose is to require Kubernetes with its staging modules at one version.
fn prepare_kubernetes(go: &Path) -> Result<PathBuf, Error> {
    let module = cache().join("kubernetes-build");
    std::fs::create_dir_all(&module).map_err(Error::io(format!("make {}", module.display())))?;
    let mut download = Command::new(go);
    download
        .args(["mod", "download", "-json", &format!("k8s.io/kubernetes@{KUBERNETES}")])
        .current_dir(&module);
    let facts: Value = serde_json::from_str(&output(&mut download)?).unwrap_or_default();
    let upstream = facts["GoMod"].as_str().unwrap_or_default();
    let upstream = std::fs::read_to_string(upstream).map_err(Error::io("read go.mod of Kubernetes"))?;
    let imports = std::iter::once("k8s.io/kubectl/pkg/cmd".to_owned());
    let components = COMPONENTS.iter().filter(|name| **name != "kubectl");
    let imports = imports.chain(components.map(|name| format!("k8s.io/kubernetes/cmd/{name}/app")));
    let source = go_source("kubernetes", imports, "");
    finish_module(go, module, &kubernetes_go_mod(&upstream), "imports.go", &source)
}

/// Our go.mod, from Kubernetes' own, which points its staging modules into its own tree.
fn kubernetes_go_mod(upstream: &str) -> String {
    let mut text =
        format!("module landfall.dev/kubernetes\n\ngo 1.26\n\nrequire k8s.io/kubernetes {KUBERNETES}\n");
    for line in upstream.lines().filter(|line| line.contains("=> ./staging/")) {
        if let Some(name) = line.split_whitespace().find(|word| word.starts_with("k8s.io/")) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "replace {name} => {name} {STAGING}");
        }
    }
    text
}

/// CoreDNS is made to be built by a main of one's own that names the plugins.
fn prepare_coredns(go: &Path) -> Result<PathBuf, Error> {
    let go_mod =
        format!("module landfall.dev/coredns\n\ngo 1.26\n\nrequire github.com/coredns/coredns {COREDNS}\n");
    let plugins = PLUGINS.iter().map(|name| format!("github.com/coredns/coredns/plugin/{name}"));
    let main = "\nimport \"github.com/coredns/coredns/coremain\"\n\nfunc main() { coremain.Run() }\n";
    let source = go_source("main", plugins, main);
    finish_module(go, cache().join("coredns-build"), &go_mod, "main.go", &source)
}

fn go_source(package: &str, imports: impl Iterator<Item = String>, rest: &str) -> String {
    let imports: String = imports.map(|path| format!("\t_ \"{path}\"\n")).collect();
    format!("package {package}\n\nimport (\n{imports})\n{rest}")
}

fn finish_module(
    go: &Path,
    module: PathBuf,
    go_mod: &str,
    name: &str,
    source: &str,
) -> Result<PathBuf, Error> {
    std::fs::create_dir_all(&module).map_err(Error::io(format!("make {}", module.display())))?;
    for (file, text) in [("go.mod", go_mod), (name, source)] {
        std::fs::write(module.join(file), text).map_err(Error::io(format!("write {file} of a Go module")))?;
    }
    output(Command::new(go).args(["mod", "tidy"]).current_dir(&module))?;
    Ok(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_modules_are_taken_at_their_published_version() {
        let upstream =
            "replace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\tother.org/x => ./elsewhere\n)\n";
        let text = kubernetes_go_mod(upstream);
        assert!(text.contains("replace k8s.io/api => k8s.io/api v0.36.4\n"), "{text}");
        assert!(!text.contains("other.org"), "{text}");
    }

    #[test]
    fn a_go_file_imports_what_it_is_told() {
        let text = go_source("main", ["a/b".to_owned(), "c".to_owned()].into_iter(), "\nfunc main() {}\n");
        assert_eq!(text, "package main\n\nimport (\n\t_ \"a/b\"\n\t_ \"c\"\n)\n\nfunc main() {}\n");
    }
}
