//! Programs that a test needs and a machine may lack.

use std::io::Write as _;
use std::path::PathBuf;

/// The Kubernetes we compare with.
const VERSION: &str = "v1.36.4";

#[expect(clippy::disallowed_methods, reason = "where programs live is the environment's to say")]
fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A program on the path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// Where CoreDNS is in the cache, with the plugins that we need.
const COREDNS: &str = "coredns/v1.14.2-2/coredns";

/// A binary of Kubernetes from the cache that `cargo xtask test` fills.
pub(crate) fn kubernetes_binary(name: &str) -> Option<PathBuf> {
    let file = cache().join("kubernetes").join(VERSION).join(name);
    file.is_file().then_some(file)
}

/// CoreDNS from the same cache.
pub(crate) fn coredns() -> Option<PathBuf> {
    Some(cache().join(COREDNS)).filter(|file| file.is_file())
}

fn cache() -> PathBuf {
    env("LANDFALL_CACHE").map(PathBuf::from).unwrap_or_else(|| {
        let home = || PathBuf::from(env("HOME").unwrap_or_else(|| "/tmp".into())).join(".cache");
        env("XDG_CACHE_HOME").map(PathBuf::from).unwrap_or_else(home).join("landfall")
    })
}

/// Which of the programs that a real Kubernetes needs are not there; none when all are.
pub(crate) fn missing() -> Option<String> {
    let ours = ["etcd", "openssl"].into_iter().filter(|name| find(name).is_none());
    let theirs = ["kube-apiserver", "kube-controller-manager", "kubectl"];
    let theirs = theirs.into_iter().filter(|name| kubernetes_binary(name).is_none());
    let names: Vec<_> = ours.chain(theirs).collect();
    (!names.is_empty()).then(|| format!("not found: {} (`cargo xtask test` gets them)", names.join(", ")))
}

/// Says loudly that a suite is skipped; fails instead when the environment says that nothing may be.
pub(crate) fn skip(suite: &str, why: &str) {
    let required = env("LANDFALL_REQUIRE").unwrap_or_default();
    let all = required.split(',').any(|name| name == "1" || name == "kubernetes");
    assert!(!all, "{suite}: {why}, and LANDFALL_REQUIRE asks for it");
    // Not by a macro: those are hidden while a test passes.
    let mut stderr = std::io::stderr();
    writeln!(stderr, "SKIPPED: {suite}: {why}").unwrap();
}
