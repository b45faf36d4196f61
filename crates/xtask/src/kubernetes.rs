//! Real Kubernetes binaries to compare with; `rig` finds or builds them.

use std::path::PathBuf;

use anyhow::Result;
use landfall_rig::assets;

use crate::shell::say;

/// The Kubernetes we compare with.
pub(crate) const VERSION: &str = assets::KUBERNETES;
/// What comparing needs.
const COMPARED: &[&str] = &["kube-apiserver", "kubectl", "kube-controller-manager"];

/// The directory with the binaries to compare with, building them if they are not there. Takes minutes the first time.
pub(crate) fn binaries() -> Result<PathBuf> {
    Ok(assets::kept_binaries(COMPARED, &|line| say(&format!("    {line}")))?)
}
