//! A world as people write it: YAML, whose mistakes are named with line and column.
//!
//! What was typed keeps where it stands ([`Spanned`]); [`WorldConfig`] is what it means.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use landfall_api::names;
use landfall_api::quantity::Quantity;
use serde::Deserialize;
use serde_saphyr::{Error, Location, MessageFormatter as _, Spanned, UserMessageFormatter};

use super::config::{CLUSTERS_MAX, ClusterConfig, HUB, NAME_LENGTH_MAX, NODES_MAX, WorldConfig};
use crate::agent::{Local, Programs};

/// A configuration that cannot be: where, what, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub struct BadConfig {
    /// Line and column; none when nothing is there at all.
    at: Option<(u64, u64)>,
    what: String,
}

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    seed: u64,
    distances: Option<bool>,
    clusters: Spanned<Vec<Cluster>>,
    #[serde(default)]
    programs: BTreeMap<String, Program>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cluster {
    name: Spanned<String>,
    region: Option<Spanned<String>>,
    #[serde(default)]
    zones: Vec<Spanned<String>>,
    latitude: Option<Spanned<f64>>,
    longitude: Option<Spanned<f64>>,
    nodes: Option<Spanned<usize>>,
    cpu: Option<Spanned<String>>,
    memory: Option<Spanned<String>>,
    pods: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    path: Spanned<PathBuf>,
    #[serde(default)]
    args: Vec<String>,
}

// === impl BadConfig ===

impl std::error::Error for BadConfig {}

impl fmt::Display for BadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some((line, column)) => write!(f, "{line}:{column}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl BadConfig {
    /// As compilers say it: `FILE:LINE:COLUMN: what`.
    pub fn in_file(&self, file: &Path) -> String {
        let separator = if self.at.is_some() { ":" } else { ": " };
        format!("{}{separator}{self}", file.display())
    }

    fn at(location: Location, what: impl Into<String>) -> Self {
        Self { at: place(location), what: what.into() }
    }
}

impl From<Error> for BadConfig {
    fn from(error: Error) -> Self {
        let what = match error.without_snippet() {
            Error::InvalidScalar { ty, .. } => format!("give {}", words(ty)),
            Error::Eof { .. } => "there is nothing here: write `clusters:` and a list of them".into(),
            other => UserMessageFormatter.format_message(other).escape_debug().to_string(),
        };
        Self { at: error.location().and_then(place), what }
    }
}

/// Line and column, if they are known.
fn place(location: Location) -> Option<(u64, u64)> {
    (location.line() > 0).then(|| (location.line(), location.column()))
}

/// What to write for a value of this type.
fn words(ty: &str) -> &str {
    match ty {
        "u64" | "u32" | "usize" => "a whole number, not less than 0",
        "floating point" => "a number",
        "boolean" => "true or false",
        other => other,
    }
}

// === impl File ===

impl FromStr for WorldConfig {
    type Err = BadConfig;

    /// Reads YAML. Errors say line and column.
    fn from_str(text: &str) -> Result<Self, BadConfig> {
        serde_saphyr::from_str::<File>(text)?.resolve()
    }
}

impl File {
    /// Fills in what was left out, and refuses what cannot be.
    fn resolve(self) -> Result<WorldConfig, BadConfig> {
        let Spanned { value: clusters, referenced: at, .. } = self.clusters;
        if clusters.is_empty() || clusters.len() > CLUSTERS_MAX {
            return Err(BadConfig::at(at, format!("clusters: give between 1 and {CLUSTERS_MAX} of them")));
        }
        let mut seen = BTreeSet::new();
        for Cluster { name, .. } in &clusters {
            if !seen.insert(name.value.clone()) {
                let what =
                    format!("name: {:?} is there twice: give each cluster a name of its own", name.value);
                return Err(BadConfig::at(name.referenced, what));
            }
        }
        let clusters = clusters.into_iter().map(Cluster::resolve).collect::<Result<_, _>>()?;
        let programs = self.programs.into_iter().map(|(image, program)| Ok((image, program.resolve()?)));
        let programs = Programs(programs.collect::<Result<_, BadConfig>>()?);
        Ok(WorldConfig { seed: self.seed, distances: self.distances.unwrap_or(true), clusters, programs })
    }
}

impl Cluster {
    fn resolve(self) -> Result<ClusterConfig, BadConfig> {
        check(&self.name, |name| bad_name(name).map(|why| format!("name: {why}")))?;
        let labels = self.region.iter().map(|r| ("region", r)).chain(self.zones.iter().map(|z| ("zones", z)));
        for (field, label) in labels {
            let bad = |text: &String| {
                names::label_value(text).first().map(|why| format!("{field}: {text:?}: {why}"))
            };
            check(label, bad)?;
        }
        self.check_place()?;
        if let Some(nodes) = &self.nodes {
            let bad = |n: &usize| *n == 0 || *n > NODES_MAX;
            check(nodes, |n| bad(n).then(|| format!("nodes: give between 1 and {NODES_MAX}, not {n}")))?;
        }
        for (field, given) in [("cpu", &self.cpu), ("memory", &self.memory)] {
            let bad = |text: &String| Quantity::parse(text).is_none_or(|quantity| quantity.milli() <= 0);
            let what = |text: &String| format!("{field}: {text:?} is no quantity such as 4, 500m or 16Gi");
            given.as_ref().map_or(Ok(()), |given| check(given, |text| bad(text).then(|| what(text))))?;
        }
        if let Some(pods) = &self.pods {
            check(pods, |pods| (*pods == 0).then(|| "pods: give at least 1: a node takes some".into()))?;
        }
        let region = self.region.filter(|region| !region.value.is_empty());
        let region = region.map_or_else(|| self.name.value.clone(), |region| region.value);
        let mut new = ClusterConfig::new(self.name.value, &region);
        let zones: Vec<String> = self.zones.into_iter().map(|zone| zone.value).collect();
        new.zones = if zones.is_empty() { new.zones } else { zones };
        if let Some(place) = self.latitude.zip(self.longitude) {
            (new.latitude, new.longitude) = (Some(place.0.value), Some(place.1.value));
        }
        new.nodes = self.nodes.map_or(new.nodes, |nodes| nodes.value);
        new.cpu = self.cpu.map_or(new.cpu, |cpu| cpu.value);
        new.memory = self.memory.map_or(new.memory, |memory| memory.value);
        new.pods = self.pods.map_or(new.pods, |pods| pods.value);
        Ok(new)
    }

    fn check_place(&self) -> Result<(), BadConfig> {
        for (field, given, other, most) in [
            ("latitude", &self.latitude, &self.longitude, 90.0),
            ("longitude", &self.longitude, &self.latitude, 180.0),
        ] {
            let Some(given) = given else { continue };
            if other.is_none() {
                let what = format!("{field}: give both latitude and longitude, or neither");
                return Err(BadConfig::at(given.referenced, what));
            }
            // Written so that it fits what is no number, too.
            let within = |degrees: &f64| degrees.abs() <= most;
            let what =
                |degrees: &f64| format!("{field}: give degrees between -{most} and {most}, not {degrees}");
            check(given, |degrees| (!within(degrees)).then(|| what(degrees)))?;
        }
        Ok(())
    }
}

impl Program {
    fn resolve(self) -> Result<Local, BadConfig> {
        let what = |path: &PathBuf| {
            format!("path: there is no file {}: give a program of this machine", path.display())
        };
        check(&self.path, |path| (!path.is_file()).then(|| what(path)))?;
        Ok(Local { path: self.path.value, args: self.args })
    }
}

/// Refuses a value that `bad` says something about.
fn check<T>(given: &Spanned<T>, bad: impl FnOnce(&T) -> Option<String>) -> Result<(), BadConfig> {
    bad(&given.value).map_or(Ok(()), |what| Err(BadConfig::at(given.referenced, what)))
}

/// What is wrong with the name of a cluster.
fn bad_name(name: &str) -> Option<String> {
    if let Some(why) = names::dns1123_label(name).first() {
        return Some(format!("{name:?}: {why}"));
    }
    if ["federation", HUB].contains(&name) {
        return Some(format!("{name:?} is the federation's own: take another"));
    }
    let long = name.len() > NAME_LENGTH_MAX;
    long.then(|| format!("must have at most {NAME_LENGTH_MAX} characters: nodes are named after it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_filled_in() {
        let config: WorldConfig = "clusters:\n- name: eu-west\n- name: lab\n  nodes: 1\n".parse().unwrap();
        let [west, lab] = config.clusters.as_slice() else { panic!("two clusters") };
        assert_eq!(*west, ClusterConfig::new("eu-west", "eu-west"));
        assert_eq!(west.coordinates(), Some((53.3, -6.3)));
        assert_eq!((west.zone(0), west.zone(1), west.zone(2)), ("eu-west-a", "eu-west-b", "eu-west-a"));
        assert_eq!((lab.region.as_str(), lab.nodes, lab.coordinates()), ("lab", 1, None));
    }

    #[test]
    fn what_is_given_is_taken() {
        let config: WorldConfig = "seed: 7\ndistances: false\nclusters:\n- {name: a, region: eu-west, zones: [x], latitude: -1, \
            longitude: 2.5, nodes: 4, cpu: 8, memory: 1Gi, pods: 7}\nprograms: {web: {path: /bin/sh, args: [a]}}\n"
            .parse()
            .unwrap();
        let a = &config.clusters[0];
        assert_eq!(
            (config.seed, a.region.as_str(), a.zone(3), a.coordinates()),
            (7, "eu-west", "x", Some((-1.0, 2.5)))
        );
        assert_eq!((a.nodes, a.cpu.as_str(), a.memory.as_str(), a.pods), (4, "8", "1Gi", 7));
        assert_eq!((config.distances, &*config.programs.0["web"].args), (false, &["a".to_owned()][..]));
    }

    #[test]
    fn bad_configurations_say_where() {
        for (text, says) in [
            ("", "1:1: there is nothing here: write `clusters:`"),
            ("seed: 1\n", "1:1: missing field `clusters`"),
            ("seed: x\nclusters: [{name: a}]\n", "1:7: give a whole number"),
            ("clusters: [{name: a, latitude: north, longitude: 1}]\n", "1:32: give a number"),
            ("distances: far\nclusters: [{name: a}]\n", "1:12: "),
            ("clusters: []", "1:11: clusters: give between 1 and 1000"),
            ("clusters:\n- name: a\n  nodez: 3\n", "3:3: unknown field `nodez`"),
            ("clusters:\n- name: a\n  nodes: many\n", "3:10: give a whole number"),
            ("clusters:\n- name: a\n  nodes: 0\n", "3:10: nodes: give between 1 and 256, not 0"),
            ("clusters:\n- name: a\n  nodes: 257\n", "3:10: nodes: give between 1 and 256, not 257"),
            ("clusters:\n- name: a\n  nodes: -1\n", "3:10: give a whole number, not less than 0"),
            ("clusters:\n- nodes: 1\n", "2:3: missing field `name`"),
            ("clusters:\n- name: a\n- name: A_b\n", "3:9: name: \"A_b\": a lowercase RFC 1123 label"),
            ("clusters:\n- name: a\n- name: b\n- name: a\n", "4:9: name: \"a\" is there twice"),
            ("clusters:\n- name: hub\n", "2:9: name: \"hub\" is the federation's own"),
            ("clusters:\n- name: a\n  cpu: '-4'\n", "3:8: cpu: \"-4\" is no quantity such as"),
            ("clusters:\n- name: a\n  memory: lots\n", "3:11: memory: \"lots\" is no quantity"),
            ("clusters:\n- name: a\n  pods: 0\n", "3:9: pods: give at least 1"),
            (
                "clusters:\n- name: a\n  region: home sweet home\n",
                "3:11: region: \"home sweet home\": a valid label",
            ),
            ("clusters:\n- name: a\n  zones: [b, 'a b']\n", "3:14: zones: \"a b\": a valid label"),
            ("clusters:\n- name: a\n  latitude: 12\n", "3:13: latitude: give both"),
            ("clusters:\n- name: a\n  longitude: 12\n", "3:14: longitude: give both"),
            (
                "clusters:\n- name: a\n  latitude: 91\n  longitude: 0\n",
                "3:13: latitude: give degrees between -90 and 90, not 91",
            ),
            (
                "clusters:\n- name: a\n  latitude: 1\n  longitude: .nan\n",
                "4:14: longitude: give degrees between -180",
            ),
            ("clusters:\n- name: a\nprograms: {web: {path: /none}}\n", "3:24: path: there is no file /none"),
            ("clusters:\n- name: a\nprograms: {web: {pat: /none}}\n", "3:18: unknown field `pat`"),
            // What an alias stands for is wrong where it is used.
            ("clusters:\n- name: &n a\n- name: *n\n", "3:9: name: \"a\" is there twice"),
            ("clusters:\n- name: [\n", "2:9: "),
        ] {
            let error = text.parse::<WorldConfig>().unwrap_err();
            assert!(error.to_string().starts_with(says), "{text:?}: {error}");
            let there = error.in_file(Path::new("world.yaml"));
            assert!(there.starts_with(&format!("world.yaml:{says}")), "{there}");
        }
    }

    #[test]
    fn no_text_brings_it_down() {
        for text in [
            "\0",
            "- - - -",
            "clusters: {}",
            "clusters: [[]]",
            "clusters: [{name: {}}]",
            "*x",
            "%YAML 9\n",
            "clusters: !x",
        ] {
            assert!(text.parse::<WorldConfig>().is_err(), "{text:?}");
        }
    }
}
