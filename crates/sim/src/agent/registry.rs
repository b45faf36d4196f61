//! What runs here, by pod: for `kubectl logs` and for who asks how busy a pod is.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use landfall_api::{Status, meta};
use landfall_apiserver::read::logs::{LogOptions, PodLogs};
use parking_lot::Mutex;
use serde_json::Value;

use super::Usage;
use super::logs::{self, Log};
use crate::echo::Load;

/// All pods of a member that run.
#[derive(Default)]
pub(crate) struct Registry(Mutex<HashMap<(String, String), BTreeMap<String, Runs>>>);

/// The runs of a container whose logs are kept.
#[derive(Default)]
struct Runs {
    current: Option<(Arc<Log>, Arc<Load>)>,
    previous: Option<Arc<Log>>,
}

fn key(pod: &Value) -> (String, String) {
    (meta::namespace(pod).to_owned(), meta::name(pod).to_owned())
}

/// What the containers of a pod do together.
fn total(containers: &BTreeMap<String, Runs>) -> Usage {
    let loads = containers.values().filter_map(|runs| Some(&runs.current.as_ref()?.1));
    loads.fold(Usage::default(), |sum, load| Usage {
        requests: sum.requests.saturating_add(load.requests()),
        in_flight: sum.in_flight.saturating_add(load.in_flight()),
    })
}

impl Registry {
    /// A container of a pod has started.
    pub(super) fn began(&self, pod: &Value, container: &str, log: Arc<Log>, load: Arc<Load>) {
        let mut pods = self.0.lock();
        let runs = pods.entry(key(pod)).or_default().entry(container.to_owned()).or_default();
        if let Some((log, _)) = runs.current.replace((log, load)) {
            runs.previous = Some(log);
        }
    }

    /// A pod is gone.
    pub(super) fn forget(&self, pod: &Value) {
        self.0.lock().remove(&key(pod));
    }

    /// How busy a pod is.
    pub(super) fn usage(&self, namespace: &str, pod: &str) -> Option<Usage> {
        self.0.lock().get(&(namespace.to_owned(), pod.to_owned())).map(total)
    }

    /// How busy every pod is, by namespace and name.
    pub(super) fn usages(&self) -> BTreeMap<(String, String), Usage> {
        self.0.lock().iter().map(|(pod, containers)| (pod.clone(), total(containers))).collect()
    }

    /// The log of a container: of its current run, or of the one before.
    pub(super) fn log(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        previous: bool,
    ) -> Option<Arc<Log>> {
        let pods = self.0.lock();
        let runs = pods.get(&(namespace.to_owned(), pod.to_owned()))?.get(container)?;
        if previous { runs.previous.clone() } else { Some(runs.current.as_ref()?.0.clone()) }
    }
}

impl PodLogs for Registry {
    fn open(&self, pod: &Value, options: &LogOptions) -> Result<BoxStream<'static, Bytes>, Status> {
        let (namespace, name, container) =
            (meta::namespace(pod), meta::name(pod), options.container.as_str());
        if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
            return Err(Status::bad_request(format!("pod {name} does not have a host assigned")));
        }
        let Some(log) = self.log(namespace, name, container, options.previous) else {
            let why = if options.previous {
                format!("previous terminated container {container:?} in pod {name:?} not found")
            } else {
                format!("container {container:?} in pod {name:?} is waiting to start: ContainerCreating")
            };
            return Err(Status::bad_request(why));
        };
        Ok(logs::lines(log, options))
    }
}
