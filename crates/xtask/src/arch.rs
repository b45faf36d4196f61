//! The crates as they are: drawn from `cargo metadata`, and held to the layer rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::shell::{output, root, say};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only check; fail when docs/arch is not up to date.
    #[arg(long)]
    pub(crate) check: bool,
}

/// Every crate's layer and its one purpose. Edges go strictly down, and doers never depend on each other.
const LAYERS: &[(&str, u8, &str)] = &[
    ("api", 0, "the words: kinds, keys, schemas, validation"),
    ("plan", 1, "decides: pure functions from state to plan, with reasons"),
    ("store", 1, "keeps bytes under keys with revisions"),
    ("runtime", 1, "what every daemon needs once"),
    ("apiserver", 2, "serves kinds over the Kubernetes protocol"),
    ("control", 2, "the reconcilers: observe, plan, apply"),
    ("dns", 2, "answers DNS from compiled plans"),
    ("health", 2, "probes, and keeps this edge's opinion"),
    ("proxy", 2, "carries HTTP, TCP and UDP to the best endpoint"),
    ("vip", 2, "holds a virtual IP on exactly one node of a group"),
    ("sim", 3, "simulated member clusters: controllers, node agents, faults"),
    ("rig", 3, "whole real Kubernetes clusters in network namespaces"),
    ("landfall", 4, "the binary: command line and composition"),
    ("xtask", 4, "commands for developers"),
];

/// Outside crates that only one of ours may touch.
const PRIVATE: &[(&str, &[&str])] = &[
    ("redb", &["store"]),
    ("tonic", &["store"]),
    ("hickory-proto", &["control", "dns"]),
    ("maxminddb", &["dns"]),
    ("rtnetlink", &["vip"]),
    ("landfall-store", &["apiserver", "sim", "landfall", "xtask"]),
];

/// Crate names to what they depend on, development dependencies excluded.
type Graph = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn run(options: &Options) -> Result<()> {
    let graph = read()?;
    let broken = broken_rules(&graph);
    if !broken.is_empty() {
        bail!("layer rules are broken:\n  {}", broken.join("\n  "));
    }
    let file = root().join("docs/arch/crates.md");
    let drawn = draw(&graph);
    if options.check {
        if std::fs::read_to_string(&file).unwrap_or_default() != drawn {
            bail!("docs/arch/crates.md is out of date: run `cargo xtask arch`");
        }
        return Ok(());
    }
    std::fs::create_dir_all(root().join("docs/arch"))?;
    std::fs::write(&file, drawn)?;
    say("    wrote docs/arch/crates.md");
    Ok(())
}

fn read() -> Result<Graph> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--format-version", "1", "--no-deps", "--offline"]).current_dir(root());
    let metadata: Value = serde_json::from_str(&output(&mut cargo)?)?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut graph = Graph::new();
    for package in list(&metadata["packages"]) {
        let depends = list(&package["dependencies"])
            .iter()
            .filter(|d| d["kind"].is_null())
            .filter_map(|d| d["name"].as_str().map(str::to_owned))
            .collect();
        graph.insert(package["name"].as_str().unwrap_or_default().to_owned(), depends);
    }
    Ok(graph)
}

fn short(package: &str) -> &str {
    package.strip_prefix("landfall-").unwrap_or(package)
}

fn layer(name: &str) -> Option<u8> {
    LAYERS.iter().find(|(known, ..)| *known == name).map(|(_, layer, _)| *layer)
}

fn broken_rules(graph: &Graph) -> Vec<String> {
    let mut broken = Vec::new();
    for (package, depends) in graph {
        let name = short(package);
        let Some(own) = layer(name) else {
            broken.push(format!("{name} has no layer: add a row to LAYERS in xtask/src/arch.rs"));
            continue;
        };
        for dependency in depends {
            let owners = PRIVATE.iter().find(|(known, _)| known == dependency).map(|(_, owners)| owners);
            if let Some(owners) = owners.filter(|owners| !owners.contains(&name)) {
                broken.push(format!("{name} may not touch {dependency} (only {})", owners.join(", ")));
            }
            if graph.contains_key(dependency) && layer(short(dependency)).is_some_and(|below| below >= own) {
                broken
                    .push(format!("{name} (L{own}) may not depend on {} (not below it)", short(dependency)));
            }
        }
    }
    broken
}

fn draw(graph: &Graph) -> String {
    let mut text = String::from(
        "# The crates\n\nDrawn by `cargo xtask arch` from `cargo metadata`; edges go strictly down.\n\n```mermaid\nflowchart TD\n",
    );
    // Writing to a String cannot fail.
    for (name, layer, _) in LAYERS {
        let _ = writeln!(text, "    {name}[\"{name} (L{layer})\"]");
    }
    for (package, depends) in graph {
        for dependency in depends.iter().filter(|d| graph.contains_key(*d)) {
            let _ = writeln!(text, "    {} --> {}", short(package), short(dependency));
        }
    }
    text.push_str("```\n\n| layer | crate | purpose |\n|---|---|---|\n");
    for (name, layer, purpose) in LAYERS {
        let _ = writeln!(text, "| L{layer} | `{name}` | {purpose} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        edges.iter().map(|(n, d)| ((*n).into(), d.iter().map(|d| (*d).into()).collect())).collect()
    }

    #[test]
    fn an_edge_up_or_sideways_breaks_a_rule() {
        let up = graph(&[("landfall-api", &["landfall-store"]), ("landfall-store", &[])]);
        assert_eq!(broken_rules(&up).len(), 2, "upwards, and api may not touch the store at all");
        let fine = graph(&[
            ("landfall-apiserver", &["landfall-api", "landfall-store"]),
            ("landfall-api", &[]),
            ("landfall-store", &["redb"]),
        ]);
        assert_eq!(broken_rules(&fine), Vec::<String>::new());
        assert_eq!(broken_rules(&graph(&[("landfall-apiserver", &["redb"])])).len(), 1);
        assert_eq!(broken_rules(&graph(&[("landfall-shed", &[])])).len(), 1);
    }
}
