//! `Bridge`: probes of services that have no address outside their cluster, through the link to the edges there.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use landfall_api::landfall::{BackendProtocol, RouteService};
use landfall_health::{Door, Shut, Stream};
use landfall_proxy::peer::lookout::{Blind, Lookout, Sight};
use landfall_runtime::tasks::Tasks;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

/// So many looks through one edge are under way at most: one that is silent takes its time to each of them.
const TOGETHER_MAX: usize = 64;
/// So many edges are remembered. Beyond that those that nobody looks through now are forgotten.
const EDGES_MAX: usize = 4_096;

/// Leads through other edges.
pub(super) struct Bridge {
    lookout: Arc<Lookout>,
    tasks: Tasks,
    edges: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Bridge {
    pub(super) fn new(lookout: Arc<Lookout>, tasks: Tasks) -> Self {
        Self { lookout, tasks, edges: Mutex::default() }
    }

    fn room(&self, edge: &str) -> Arc<Semaphore> {
        let mut edges = self.edges.lock();
        if edges.len() >= EDGES_MAX && !edges.contains_key(edge) {
            edges.retain(|_, room| Arc::strong_count(room) > 1);
        }
        edges.entry(edge.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(TOGETHER_MAX))).clone()
    }

    async fn open(&self, door: &Door) -> Result<Stream, Shut> {
        let Ok(held) = self.room(&door.edge).acquire_owned().await else { return Err(Shut::Unknown) };
        let (lookout, door) = (self.lookout.clone(), door.clone());
        let (seen, sight) = oneshot::channel();
        // Whoever asked may lose patience before there is a connection; the next one then finds it.
        self.tasks.spawn_until_stop(async move {
            let _held = held;
            let looked = look(&lookout, &door).await;
            // Nobody waits for it any more.
            let _ = seen.send(looked);
        });
        match sight.await {
            Ok(Ok(sight)) => Ok(Stream::new(sight)),
            Ok(Err(Blind::Down(why))) => Err(Shut::Down(why)),
            Ok(Err(Blind::Unknown)) | Err(_) => Err(Shut::Unknown),
        }
    }
}

async fn look(lookout: &Lookout, door: &Door) -> Result<Sight, Blind> {
    let service = RouteService {
        namespace: door.namespace.clone(),
        name: door.service.clone(),
        port: i32::from(door.port),
        port_name: door.port_name.clone(),
        protocol: BackendProtocol::Http,
    };
    lookout.look(&door.edge, &door.address, &service).await
}

impl landfall_health::Bridge for Bridge {
    fn open<'a>(&'a self, door: &'a Door) -> BoxFuture<'a, Result<Stream, Shut>> {
        self.open(door).boxed()
    }
}
