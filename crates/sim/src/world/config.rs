//! What a world is made of: clusters, where they stand, what their nodes can carry. [`super::file`] reads it from YAML.

use super::places::{self, PLACES};
use crate::agent::Programs;
use crate::member::config::{CPU, MEMORY, PODS};

/// The most clusters of a world: as many as there are blocks of addresses, less some for others.
pub const CLUSTERS_MAX: usize = 1000;
/// The most nodes of a cluster.
pub const NODES_MAX: usize = crate::address::NODES_MAX as usize;

/// The name of the hub where clusters are named; no cluster has it.
pub const HUB: &str = "hub";

/// How many nodes a cluster has when nobody says.
const NODES: usize = 2;

/// The longest name of a cluster: its nodes add `-256`, and their names are labels.
pub(super) const NAME_LENGTH_MAX: usize = 59;

/// A world.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldConfig {
    /// What all luck follows from.
    pub seed: u64,
    /// Whether traffic between clusters, and between the hub and clusters, takes the time that distance costs.
    pub distances: bool,
    /// The clusters, in the order they are started. The hub stands beside the first.
    pub clusters: Vec<ClusterConfig>,
    /// Programs of this machine that containers with such an image run; all other images run the echo program.
    pub programs: Programs,
}

/// One cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterConfig {
    /// Its name, also that of its context in the kubeconfig.
    pub name: String,
    /// Its region; its name when not given.
    pub region: String,
    /// Its zones; nodes are spread over them. `REGION-a` and `REGION-b` when not given.
    pub zones: Vec<String>,
    /// Degrees north; known for well-known regions.
    pub latitude: Option<f64>,
    /// Degrees east; known for well-known regions.
    pub longitude: Option<f64>,
    /// How many nodes.
    pub nodes: usize,
    /// CPUs of each node, as a quantity.
    pub cpu: String,
    /// Memory of each node, as a quantity.
    pub memory: String,
    /// The most pods of each node.
    pub pods: u32,
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
        let clusters = (0..clusters).map(cluster).collect();
        Self { seed: 0, distances: true, clusters, programs: Programs::default() }
    }
}

// === impl ClusterConfig ===

impl ClusterConfig {
    /// An ordinary cluster in a region.
    pub fn new(name: impl Into<String>, region: &str) -> Self {
        let place = places::find(region);
        Self {
            name: name.into(),
            region: region.into(),
            zones: ["a", "b"].map(|zone| format!("{region}-{zone}")).into(),
            latitude: place.map(|place| place.latitude),
            longitude: place.map(|place| place.longitude),
            nodes: NODES,
            cpu: CPU.into(),
            memory: MEMORY.into(),
            pods: PODS,
        }
    }

    /// The zone of a node by its number.
    pub fn zone(&self, node: usize) -> &str {
        self.zones.get(node % self.zones.len().max(1)).map_or("", String::as_str)
    }

    /// Where it stands, if that is known.
    pub fn coordinates(&self) -> Option<(f64, f64)> {
        self.latitude.zip(self.longitude)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_clusters_have_different_names() {
        let config = WorldConfig::of(200);
        assert_eq!(config.clusters.len(), 200);
        assert_eq!(config.clusters[16].name, "us-east-2");
        assert_eq!(config.clusters[16].region, "us-east");
    }
}
