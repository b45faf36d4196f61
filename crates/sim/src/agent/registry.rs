//! What runs here, by pod: for `kubectl logs` and for who asks how busy a pod is.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use landfall_api::{Status, meta};
use landfall_apiserver::read::logs::{LogOptions, PodLogs};
use parking_lot::Mutex;
use serde_json::Value;

use super::Usage;
use super::logs::{self, Log};
use crate::echo::Load;
use crate::gate::Gate;

/// All pods of a member that run, and those that are over but still there.
pub(crate) struct Registry {
    gate: Gate,
    pods: Mutex<Pods>,
}

/// By namespace and name.
type Pods = HashMap<(String, String), Pod>;

/// A pod's containers, by name.
#[derive(Default)]
struct Pod {
    /// Which pod of this name.
    uid: String,
    containers: BTreeMap<String, Runs>,
}

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
fn total(pod: &Pod) -> Usage {
    let loads = pod.containers.values().filter_map(|runs| Some(&runs.current.as_ref()?.1));
    loads.fold(Usage::default(), |sum, load| Usage {
        requests: sum.requests.saturating_add(load.requests()),
        in_flight: sum.in_flight.saturating_add(load.in_flight()),
    })
}

impl Registry {
    /// Nothing runs yet.
    pub(super) fn new(gate: Gate) -> Self {
        Self { gate, pods: Mutex::default() }
    }

    /// A container of a pod has started.
    pub(super) fn began(&self, pod: &Value, container: &str, log: Arc<Log>, load: Arc<Load>) {
        let mut pods = self.pods.lock();
        let known = pods.entry(key(pod)).or_default();
        if known.uid != meta::uid(pod) {
            *known = Pod { uid: meta::uid(pod).to_owned(), containers: BTreeMap::new() };
        }
        let runs = known.containers.entry(container.to_owned()).or_default();
        if let Some((log, _)) = runs.current.replace((log, load)) {
            runs.previous = Some(log);
        }
    }

    /// A pod is gone; another of its name stays.
    pub(super) fn forget(&self, pod: &Value) {
        let (mut pods, key) = (self.pods.lock(), key(pod));
        if pods.get(&key).is_some_and(|known| known.uid == meta::uid(pod)) {
            pods.remove(&key);
        }
    }

    /// The pod of this name is gone.
    pub(super) fn forget_named(&self, namespace: &str, pod: &str) {
        self.pods.lock().remove(&(namespace.to_owned(), pod.to_owned()));
    }

    /// How busy a pod is.
    pub(super) fn usage(&self, namespace: &str, pod: &str) -> Option<Usage> {
        self.pods.lock().get(&(namespace.to_owned(), pod.to_owned())).map(total)
    }

    /// How busy every pod is, by namespace and name.
    pub(super) fn usages(&self) -> BTreeMap<(String, String), Usage> {
        self.pods.lock().iter().map(|(name, pod)| (name.clone(), total(pod))).collect()
    }

    /// The log of a container: of its current run, or of the one before.
    pub(super) fn log(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        previous: bool,
    ) -> Option<Arc<Log>> {
        let pods = self.pods.lock();
        let runs = pods.get(&(namespace.to_owned(), pod.to_owned()))?.containers.get(container)?;
        if previous { runs.previous.clone() } else { Some(runs.current.as_ref()?.0.clone()) }
    }
}

impl PodLogs for Registry {
    fn open(&self, pod: &Value, options: &LogOptions) -> Result<BoxStream<'static, Bytes>, Status> {
        let (namespace, name, container) =
            (meta::namespace(pod), meta::name(pod), options.container.as_str());
        let node = pod["spec"]["nodeName"].as_str().unwrap_or("");
        if node.is_empty() {
            return Err(Status::bad_request(format!("pod {name} does not have a host assigned")));
        }
        if self.gate.now().node_lost(node) {
            let host = pod["status"]["hostIP"].as_str().unwrap_or("");
            let url = format!("https://{host}:10250/containerLogs/{namespace}/{name}/{container}");
            return Err(Status::internal(format!(
                "Get {url:?}: dial tcp {host}:10250: connect: no route to host"
            )));
        }
        if let Some(log) = self.log(namespace, name, container, options.previous) {
            return Ok(logs::lines(log, options));
        }
        if options.previous {
            let why = format!("previous terminated container {container:?} in pod {name:?} not found");
            return Err(Status::bad_request(why));
        }
        match waiting(pod, container) {
            Some(reason) => {
                let why = format!("container {container:?} in pod {name:?} is waiting to start: {reason}");
                Err(Status::bad_request(why))
            }
            // It ended before this agent began, and what it said went with the one before.
            None => Ok(stream::empty().boxed()),
        }
    }
}

/// What a container that has not run waits for.
fn waiting<'a>(pod: &'a Value, container: &str) -> Option<&'a str> {
    let lists = ["containerStatuses", "initContainerStatuses"].map(|list| pod["status"][list].as_array());
    let found = lists.into_iter().flatten().flatten().find(|status| status["name"] == container);
    let Some(status) = found else { return Some("ContainerCreating") };
    status["state"]["waiting"]["reason"].as_str()
}
