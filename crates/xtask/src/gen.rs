//! `cargo xtask gen`: writes the committed tables that are made from something else, or checks them.
//!
//! `gen facts` asks a real kube-apiserver for its OpenAPI documents, reads the Go source of the same version for
//! what OpenAPI leaves out (protobuf numbers, pointers, omitempty), and writes `crates/api/src/schema/facts.txt`.

mod facts;
mod go;
mod server;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::kubernetes;
use crate::shell::{output, root};

/// Where the table is, from the root of the workspace.
const TABLE: &str = "crates/api/src/schema/facts.txt";
/// The Go modules that define the served kinds; their version goes with the server's.
const MODULES: &[&str] = &["k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver"];
/// The OpenAPI documents that describe the roots.
const DOCUMENTS: &[&str] = &[
    "api/v1",
    "apis/apiextensions.k8s.io/v1",
    "apis/apps/v1",
    "apis/authentication.k8s.io/v1",
    "apis/authorization.k8s.io/v1",
    "apis/autoscaling/v1",
    "apis/autoscaling/v2",
    "apis/batch/v1",
    "apis/certificates.k8s.io/v1",
    "apis/coordination.k8s.io/v1",
    "apis/discovery.k8s.io/v1",
    "apis/events.k8s.io/v1",
    "apis/networking.k8s.io/v1",
    "apis/policy/v1",
    "apis/rbac.authorization.k8s.io/v1",
    "apis/scheduling.k8s.io/v1",
];
/// The structs everything else is reached from: kinds of the federation and of simulated members, and bodies.
const ROOTS: &[&str] = &[
    "apiextensions.v1.CustomResourceDefinition",
    "apps.v1.ControllerRevision",
    "apps.v1.DaemonSet",
    "apps.v1.Deployment",
    "apps.v1.ReplicaSet",
    "apps.v1.StatefulSet",
    "authentication.v1.SelfSubjectReview",
    "authentication.v1.TokenRequest",
    "authentication.v1.TokenReview",
    "authorization.v1.LocalSubjectAccessReview",
    "authorization.v1.SelfSubjectAccessReview",
    "authorization.v1.SelfSubjectRulesReview",
    "authorization.v1.SubjectAccessReview",
    "autoscaling.v1.HorizontalPodAutoscaler",
    "autoscaling.v1.Scale",
    "autoscaling.v2.HorizontalPodAutoscaler",
    "batch.v1.CronJob",
    "batch.v1.Job",
    "certificates.v1.CertificateSigningRequest",
    "coordination.v1.Lease",
    "core.v1.Binding",
    "core.v1.ConfigMap",
    "core.v1.Endpoints",
    "core.v1.Event",
    "core.v1.LimitRange",
    "core.v1.Namespace",
    "core.v1.Node",
    "core.v1.PersistentVolume",
    "core.v1.PersistentVolumeClaim",
    "core.v1.Pod",
    "core.v1.PodTemplate",
    "core.v1.ReplicationController",
    "core.v1.ResourceQuota",
    "core.v1.Secret",
    "core.v1.Service",
    "core.v1.ServiceAccount",
    "discovery.v1.EndpointSlice",
    "events.v1.Event",
    "meta.v1.APIResourceList",
    "meta.v1.DeleteOptions",
    "meta.v1.ListMeta",
    "meta.v1.Status",
    "networking.v1.Ingress",
    "networking.v1.IngressClass",
    "networking.v1.NetworkPolicy",
    "policy.v1.Eviction",
    "policy.v1.PodDisruptionBudget",
    "rbac.v1.ClusterRole",
    "rbac.v1.ClusterRoleBinding",
    "rbac.v1.Role",
    "rbac.v1.RoleBinding",
    "scheduling.v1.PriorityClass",
];

/// What to write.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum What {
    /// The table of facts about Kubernetes' structs.
    Facts {
        /// Write nothing; fail when the committed table differs.
        #[arg(long)]
        check: bool,
    },
}

/// Runs `cargo xtask gen`.
pub(crate) fn run(what: &What) -> Result<()> {
    match what {
        What::Facts { check } => {
            let table = facts::table(&documents()?, &modules()?, ROOTS)?;
            settle(&root().join(TABLE), &table, *check)
        }
    }
}

/// Writes a table, or fails with the difference between it and what is there.
fn settle(path: &Path, made: &str, check: bool) -> Result<()> {
    if !check {
        return std::fs::write(path, made).with_context(|| format!("writing {}", path.display()));
    }
    if std::fs::read_to_string(path).is_ok_and(|there| there == made) {
        return Ok(());
    }
    let beside = std::env::temp_dir().join(format!("landfall-gen-{}.txt", std::process::id()));
    std::fs::write(&beside, made)?;
    let difference = Command::new("diff").arg("-u").args([path, &beside]).output();
    std::fs::remove_file(&beside)?;
    let difference = difference.context("running diff")?;
    bail!(
        "{} is stale: run `cargo xtask gen facts`\n{}",
        path.display(),
        String::from_utf8_lossy(&difference.stdout)
    )
}

/// All schemas of a real server, by name.
fn documents() -> Result<BTreeMap<String, Value>> {
    let server = server::Server::start()?;
    let mut all = BTreeMap::new();
    for path in DOCUMENTS {
        let text = server.get(&format!("/openapi/v3/{path}"))?;
        let document: Value = serde_json::from_str(&text).with_context(|| format!("parsing {path}"))?;
        let schemas = document.pointer("/components/schemas").and_then(Value::as_object);
        for (name, schema) in schemas.with_context(|| format!("{path} has no schemas"))? {
            all.insert(name.clone(), schema.clone());
        }
    }
    Ok(all)
}

/// The source directories of the Go modules.
fn modules() -> Result<facts::Modules> {
    let version = kubernetes::VERSION.replacen("v1.", "v0.", 1);
    let mut modules = facts::Modules::new();
    for module in MODULES {
        let wanted = format!("{module}@{version}");
        // Outside the checkout, so that no go.mod is asked.
        let answer = output(Command::new("go").args(["mod", "download", "-json", &wanted]).current_dir("/"))?;
        let answer: Value = serde_json::from_str(&answer).with_context(|| format!("downloading {module}"))?;
        let dir = answer.get("Dir").and_then(Value::as_str).with_context(|| format!("{module}: {answer}"))?;
        modules.insert((*module).to_owned(), PathBuf::from(dir));
    }
    Ok(modules)
}
