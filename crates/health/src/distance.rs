//! How far other members are: medians of how long their edges take to answer, or connections to them to come about.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use landfall_runtime::tasks::Tasks;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::probe::{Point, Source, answer_time, connect_time};

/// How often every member is measured.
const EVERY: Duration = Duration::from_secs(5);
/// How long a connection may take to count.
const TIMEOUT: Duration = Duration::from_secs(2);
/// So many measurements are kept of each.
const KEPT_MAX: usize = 9;
/// So many are measured at once.
const TOGETHER_MAX: usize = 16;

/// A member and where it is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The member.
    pub cluster: String,
    /// Where; they take turns.
    pub points: Vec<Point>,
    /// Whether edges are there, who can be asked something. Others are only connected to: they may be anybody's servers.
    pub edges: bool,
}

/// The last measurements of each member.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    kept: BTreeMap<String, VecDeque<f64>>,
}

impl Measurements {
    /// Takes one in, in milliseconds.
    pub fn add(&mut self, cluster: &str, ms: f64) {
        let kept = self.kept.entry(cluster.to_owned()).or_default();
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(ms);
    }

    /// Forgets all members but these.
    pub fn keep(&mut self, clusters: &BTreeSet<&str>) {
        self.kept.retain(|cluster, _| clusters.contains(cluster.as_str()));
    }

    /// The median of each, in milliseconds.
    pub fn medians(&self) -> BTreeMap<String, f64> {
        self.kept.iter().filter_map(|(cluster, kept)| Some((cluster.clone(), median(kept)?))).collect()
    }
}

fn median(kept: &VecDeque<f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = kept.iter().copied().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// Measures members again and again.
pub struct Ruler {
    places: watch::Sender<Vec<Place>>,
    measured: Arc<Mutex<Measurements>>,
}

impl Ruler {
    /// A ruler of nothing.
    pub fn new(source: Source, tasks: &Tasks) -> Self {
        let (places, wanted) = watch::channel(Vec::new());
        let measured = Arc::default();
        tasks.spawn_until_stop(run(wanted, Arc::clone(&measured), source));
        Self { places, measured }
    }

    /// Measures these from now on and no others.
    pub fn set(&self, places: &[Place]) {
        let wanted: BTreeSet<&str> = places.iter().map(|place| place.cluster.as_str()).collect();
        self.measured.lock().keep(&wanted);
        self.places.send_if_modified(|old| std::mem::replace(old, places.to_vec()) != places);
    }

    /// The median of each member that was reached, in milliseconds.
    pub fn medians(&self) -> BTreeMap<String, f64> {
        self.measured.lock().medians()
    }
}

async fn run(mut wanted: watch::Receiver<Vec<Place>>, measured: Arc<Mutex<Measurements>>, source: Source) {
    for round in (0..usize::MAX).cycle() {
        let places = wanted.borrow_and_update().clone();
        let looks: Vec<_> = places
            .into_iter()
            .filter_map(|Place { cluster, points, edges }| {
                let point = points.get(round.checked_rem(points.len())?)?.clone();
                let source = source.clone();
                Some(async move {
                    let took = match edges {
                        true => answer_time(&point, &source, TIMEOUT).await,
                        false => connect_time(&point, &source, TIMEOUT).await,
                    };
                    (cluster, took)
                })
            })
            .collect();
        let mut looks = stream::iter(looks).buffer_unordered(TOGETHER_MAX);
        while let Some((cluster, took)) = looks.next().await {
            if let Some(took) = took {
                measured.lock().add(&cluster, took.as_secs_f64() * 1_000.0);
            }
        }
        let changed = tokio::time::timeout(EVERY, wanted.changed()).await;
        if matches!(changed, Ok(Err(_))) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_forgets_what_is_old_and_what_is_odd() {
        let mut measured = Measurements::default();
        let check = |measured: &Measurements, expected: Option<f64>| {
            assert_eq!(measured.medians().get("a").copied(), expected);
        };
        check(&measured, None);
        for ms in [10.0, 11.0, 900.0] {
            measured.add("a", ms);
        }
        check(&measured, Some(11.0));
        (0..KEPT_MAX).for_each(|_| measured.add("a", 50.0));
        check(&measured, Some(50.0));
        measured.keep(&["b"].into());
        check(&measured, None);
    }
}
