//! Connections that stand by: to edges of the clusters that would be asked next, so that nobody waits for a handshake when the one
//! that answers is lost. In that moment all requests come at once, and everybody else makes connections too.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use super::pool::CONNECTIONS;
use crate::core::Core;
use crate::upstream::http2_to_edge;

/// So many clusters of each service stand by, and so many edges altogether: each connection costs a ping now and then.
pub(crate) const CLUSTERS: usize = 2;
const EDGES_MAX: usize = 16;

/// An edge, by its name and where it lets others in.
pub(crate) type Way = (Arc<str>, Arc<str>);

/// Sees to it that there are connections to those that stand by. What is being made is not waited for.
pub(crate) fn keep(core: &Rc<Core>) {
    let mut ways = BTreeSet::new();
    core.each_local(|local| ways.extend(local.standing_by(core.ticker.now_ms(), CLUSTERS)));
    let cold = ways.into_iter().filter(|(edge, address)| !core.peers.is_warm(edge, address));
    for (edge, address) in cold.take(EDGES_MAX) {
        for _ in 0..CONNECTIONS {
            let (core, edge, address) = (core.clone(), edge.clone(), address.clone());
            tokio::task::spawn_local(async move {
                // Whoever needs it finds out what is wrong with it.
                let _ = core.peers.get(&edge, &address, http2_to_edge).await;
            });
        }
    }
}
