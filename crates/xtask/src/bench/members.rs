//! Simulated members: a playground of many clusters, a Deployment in each, and what that takes.
//!
//! There is no peer beside it: nothing else runs hundreds of clusters with pods that answer in one process.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::shell::{output, say};

/// How long the pods may take.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(clap::Args)]
pub(super) struct Settings {
    /// How many clusters.
    #[arg(long, default_value_t = 200, value_name = "N")]
    clusters: usize,
    /// How many pods in each.
    #[arg(long, default_value_t = 25, value_name = "N")]
    pods: usize,
    /// A tenth of the clusters.
    #[arg(long)]
    quick: bool,
    /// Also write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(settings: &Settings) -> Result<()> {
    let landfall = super::landfall()?;
    let clusters = if settings.quick { settings.clusters.div_ceil(10) } else { settings.clusters };
    let directory = std::env::temp_dir().join(format!("landfall-bench-members-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let result = measure(&landfall, &directory, clusters, settings.pods);
    // Nothing more can be done about files that do not go.
    let _ = std::fs::remove_dir_all(&directory);
    let rows = result?;
    say("");
    say(&format!("| {clusters} simulated members, {} pods each | |\n|---|--:|", settings.pods));
    for (name, value) in &rows {
        say(&format!("| {name} | {value:.1} |"));
    }
    if let Some(file) = &settings.json {
        std::fs::write(file, serde_json::to_vec_pretty(&json!(rows))?)?;
    }
    Ok(())
}

/// A playground; stopped when dropped.
struct Playground(Child);

impl Drop for Playground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(
    landfall: &Path,
    directory: &Path,
    clusters: usize,
    pods: usize,
) -> Result<BTreeMap<&'static str, f64>> {
    let mut rows = BTreeMap::new();
    let mut command = Command::new(landfall);
    command.args(["playground", "--clusters", &clusters.to_string()]).env("TMPDIR", directory);
    let began = Instant::now();
    let mut playground = Playground(command.stdout(Stdio::piped()).spawn()?);
    let stdout = playground.0.stdout.take().context("its output is piped")?;
    let mut kubeconfig = None;
    for line in BufReader::new(stdout).lines() {
        if let Some(path) = line?.trim().strip_prefix("export KUBECONFIG=") {
            kubeconfig = Some(PathBuf::from(path));
            break;
        }
    }
    let kubeconfig = kubeconfig.context("the playground ended before it was ready")?;
    rows.insert("1. start to ready, s", began.elapsed().as_secs_f64());
    rows.insert("2. resident memory when ready, MB", super::resident_mb(playground.0.id())?);
    say(&format!("    ready after {:.1} s", began.elapsed().as_secs_f64()));
    let names = contexts(&kubeconfig)?;
    let manifest = directory.join("web.json");
    std::fs::write(&manifest, deployment(pods).to_string())?;
    let began = Instant::now();
    for name in &names {
        let mut apply = Command::new(landfall);
        apply.args(["apply", "--context", name, "-f"]).arg(&manifest).env("KUBECONFIG", &kubeconfig);
        output(&mut apply)?;
    }
    for name in &names {
        wait_ready(landfall, &kubeconfig, name, pods, began)?;
    }
    rows.insert("3. first Deployment to last pod ready, s", began.elapsed().as_secs_f64());
    rows.insert("4. resident memory with all pods, MB", super::resident_mb(playground.0.id())?);
    Ok(rows)
}

/// The clusters of a kubeconfig; the first context is the federation.
fn contexts(kubeconfig: &Path) -> Result<Vec<String>> {
    let file = kubeconfig.with_file_name("playground.json");
    let addresses: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let members = addresses["members"].as_array().context("no members")?;
    Ok(members.iter().filter_map(|member| member["name"].as_str()).map(Into::into).collect())
}

fn wait_ready(landfall: &Path, kubeconfig: &Path, name: &str, pods: usize, began: Instant) -> Result<()> {
    loop {
        let mut get = Command::new(landfall);
        get.args(["get", "deployment", "web", "-o", "json", "--context", name]).env("KUBECONFIG", kubeconfig);
        let found: Value = serde_json::from_str(&output(&mut get)?)?;
        if found["status"]["readyReplicas"].as_u64() == Some(pods as u64) {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            bail!("{name}: not all pods are ready: {}", found["status"]);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn deployment(pods: usize) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "echo", "image": "echo", "ports": [{"containerPort": 8080}]}]},
            },
        },
    })
}
