//! What a world is made of: clusters, where they stand, what their nodes can carry. Written by people, as YAML.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use landfall_api::names;
use landfall_api::quantity::Quantity;
use serde::{Deserialize, Serialize};

use super::places::{self, PLACES};
use crate::agent::Programs;

/// The most clusters of a world: as many as there are blocks of addresses, less some for others.
pub const CLUSTERS_MAX: usize = 1000;
/// The most nodes of a cluster.
pub const NODES_MAX: usize = crate::address::NODES_MAX as usize;

/// The name of the hub where clusters are named; no cluster has it.
pub const HUB: &str = "hub";

/// The longest name of a cluster: its nodes add `-256`, and their names are labels.
const NAME_LENGTH_MAX: usize = 59;

/// A world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorldConfig {
    /// What all luck follows from.
    #[serde(default)]
    pub seed: u64,
    /// The clusters, in the order they are started.
    pub clusters: Vec<ClusterConfig>,
    /// Programs of this machine that containers with such an image run; all other images run the echo program.
    #[serde(default)]
    pub programs: Programs,
}

/// One cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// Its name, also that of its context in the kubeconfig.
    pub name: String,
    /// Its region; its name when not given.
    #[serde(default)]
    pub region: String,
    /// Its zones; nodes are spread over them. `REGION-a` and `REGION-b` when not given.
    #[serde(default)]
    pub zones: Vec<String>,
    /// Degrees north; known for well-known regions.
    #[serde(default)]
    pub latitude: Option<f64>,
    /// Degrees east; known for well-known regions.
    #[serde(default)]
    pub longitude: Option<f64>,
    /// How many nodes.
    #[serde(default = "nodes")]
    pub nodes: usize,
    /// CPUs of each node, as a quantity.
    #[serde(default = "cpu")]
    pub cpu: String,
    /// Memory of each node, as a quantity.
    #[serde(default = "memory")]
    pub memory: String,
    /// The most pods of each node.
    #[serde(default = "pods")]
    pub pods: u32,
}

fn nodes() -> usize {
    2
}

fn cpu() -> String {
    "4".into()
}

fn memory() -> String {
    "16Gi".into()
}

fn pods() -> u32 {
    110
}

/// A configuration that cannot be.
#[derive(Debug, PartialEq, Eq)]
pub struct BadConfig(String);

impl std::error::Error for BadConfig {}

impl fmt::Display for BadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl WorldConfig ===

impl WorldConfig {
    /// So many clusters at the places of the table; numbered when there are more clusters than places.
    pub fn of(clusters: usize) -> Self {
        let cluster = |index: usize| {
            let place = &PLACES[index % PLACES.len()];
            let round = index / PLACES.len();
            let name =
                if round == 0 { place.region.into() } else { format!("{}-{}", place.region, round + 1) };
            ClusterConfig::new(name, place.region)
        };
        Self { seed: 0, clusters: (0..clusters).map(cluster).collect(), programs: Programs::default() }
    }

    /// Fills in what was left out, and refuses what cannot be.
    fn complete(mut self) -> Result<Self, BadConfig> {
        if self.clusters.is_empty() || self.clusters.len() > CLUSTERS_MAX {
            return Err(BadConfig(format!("clusters: give between 1 and {CLUSTERS_MAX} of them")));
        }
        if let Some((image, program)) = self.programs.0.iter().find(|(_, program)| !program.path.is_file()) {
            let path = program.path.display();
            return Err(BadConfig(format!("programs[{image:?}].path: there is no file {path}")));
        }
        let mut seen = BTreeSet::new();
        for (index, cluster) in self.clusters.iter_mut().enumerate() {
            let at = |what: &str| BadConfig(format!("clusters[{index}].{what}"));
            cluster.complete().map_err(|why| at(&why))?;
            if !seen.insert(cluster.name.clone()) {
                return Err(at(&format!("name: {:?} is there twice", cluster.name)));
            }
        }
        Ok(self)
    }
}

impl FromStr for WorldConfig {
    type Err = BadConfig;

    /// Reads YAML. Errors say the line, or the field.
    fn from_str(text: &str) -> Result<Self, BadConfig> {
        let read: Self = serde_saphyr::from_str(text).map_err(|error| BadConfig(error.to_string()))?;
        read.complete()
    }
}

// === impl ClusterConfig ===

impl ClusterConfig {
    /// An ordinary cluster in a region.
    pub fn new(name: impl Into<String>, region: &str) -> Self {
        let mut new = Self {
            name: name.into(),
            region: region.into(),
            zones: Vec::new(),
            latitude: None,
            longitude: None,
            nodes: nodes(),
            cpu: cpu(),
            memory: memory(),
            pods: pods(),
        };
        new.fill();
        new
    }

    /// The zone of a node by its number.
    pub fn zone(&self, node: usize) -> &str {
        self.zones.get(node % self.zones.len().max(1)).map_or("", String::as_str)
    }

    /// Where it stands, if that is known.
    pub fn coordinates(&self) -> Option<(f64, f64)> {
        self.latitude.zip(self.longitude)
    }

    fn fill(&mut self) {
        if self.region.is_empty() {
            self.region.clone_from(&self.name);
        }
        if self.zones.is_empty() {
            self.zones = ["a", "b"].map(|zone| format!("{}-{zone}", self.region)).into();
        }
        if let (None, None, Some(place)) = (self.latitude, self.longitude, places::find(&self.region)) {
            (self.latitude, self.longitude) = (Some(place.latitude), Some(place.longitude));
        }
    }

    fn complete(&mut self) -> Result<(), String> {
        if let Some(why) = names::dns1123_label(&self.name).first() {
            return Err(format!("name: {:?}: {why}", self.name));
        }
        if ["federation", HUB].contains(&self.name.as_str()) {
            return Err(format!("name: {:?} is the federation's own", self.name));
        }
        if self.name.len() > NAME_LENGTH_MAX {
            return Err(format!(
                "name: must have at most {NAME_LENGTH_MAX} characters: nodes are named after it"
            ));
        }
        self.fill();
        for (field, value) in
            std::iter::once(("region", &self.region)).chain(self.zones.iter().map(|z| ("zones", z)))
        {
            if let Some(why) = names::label_value(value).first() {
                return Err(format!("{field}: {value:?}: {why}"));
            }
        }
        let within = |value: Option<f64>, most: f64| value.is_none_or(|v| v.abs() <= most);
        if self.latitude.is_some() != self.longitude.is_some() {
            return Err("latitude: give both latitude and longitude, or neither".into());
        }
        if !within(self.latitude, 90.0) || !within(self.longitude, 180.0) {
            return Err("latitude: must be within ±90, and longitude within ±180".into());
        }
        if self.nodes == 0 || self.nodes > NODES_MAX {
            return Err(format!("nodes: give between 1 and {NODES_MAX}"));
        }
        for (field, value) in [("cpu", &self.cpu), ("memory", &self.memory)] {
            if Quantity::parse(value).is_none_or(|quantity| quantity.milli() <= 0) {
                return Err(format!("{field}: {value:?} is no quantity such as 4, 500m or 16Gi"));
            }
        }
        if self.pods == 0 {
            return Err("pods: a node takes at least one".into());
        }
        Ok(())
    }
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
    fn many_clusters_have_different_names() {
        let config = WorldConfig::of(200).complete().unwrap();
        assert_eq!(config.clusters.len(), 200);
        assert_eq!(config.clusters[16].name, "us-east-2");
        assert_eq!(config.clusters[16].region, "us-east");
    }

    #[test]
    fn bad_configurations_say_where() {
        for (text, says) in [
            ("", "line 1"),
            ("seed: 1\n", "missing field `clusters`"),
            ("clusters: []", "clusters: give between 1 and 1000"),
            ("clusters:\n- name: a\n  nodez: 3\n", "line 3"),
            ("clusters:\n- name: a\n  nodes: many\n", "line 3"),
            ("clusters:\n- name: a\n  nodes: 0\n", "clusters[0].nodes: give between 1 and 256"),
            ("clusters:\n- name: a\n- name: A_b\n", "clusters[1].name: \"A_b\": a lowercase RFC 1123 label"),
            ("clusters:\n- name: a\n- name: a\n", "clusters[1].name: \"a\" is there twice"),
            ("clusters:\n- name: federation\n", "clusters[0].name: \"federation\" is the federation's own"),
            ("clusters:\n- name: a\n  cpu: '-4'\n", "clusters[0].cpu: \"-4\" is no quantity"),
            ("clusters:\n- name: a\n  pods: 0\n", "clusters[0].pods: a node takes"),
            (
                "clusters:\n- name: a\n  region: home sweet home\n",
                "clusters[0].region: \"home sweet home\": a valid label",
            ),
            ("clusters:\n- name: a\n  zones: ['a b']\n", "clusters[0].zones: \"a b\": a valid label"),
            (
                "clusters:\n- name: a\nprograms: {web: {path: /none}}\n",
                "programs[\"web\"].path: there is no file /none",
            ),
            ("clusters:\n- name: a\nprograms: {web: {pat: /none}}\n", "line 3"),
            ("clusters:\n- name: a\n  cpu: lots\n", "clusters[0].cpu: \"lots\" is no quantity"),
            ("clusters:\n- name: a\n  latitude: 12\n", "clusters[0].latitude: give both"),
            (
                "clusters:\n- name: a\n  latitude: 91\n  longitude: 0\n",
                "clusters[0].latitude: must be within",
            ),
            ("clusters:\n- name: [\n", "line"),
        ] {
            let error = text.parse::<WorldConfig>().unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }
}
