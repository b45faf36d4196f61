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

/// How long nothing new is sent to an edge that is more silent than usual; it is looked at again before that.
const SPARED_MS: u64 = 150;

/// Spares edges that are more silent than usual: what comes meanwhile goes elsewhere, as far as it can. Those whose connections have ended by
/// it are left out, also when nobody waited for them any more who could tell.
pub(crate) fn spare_silent(core: &Core) {
    let given_up = core.peers.given_up();
    if !given_up.is_empty() {
        core.each_local(|local| local.leave_out(core, &given_up));
    }
    let silent = core.peers.silent();
    if !silent.is_empty() {
        let until_ms = core.ticker.now_ms() + SPARED_MS;
        core.each_local(|local| local.spare(&silent, until_ms));
    }
}

/// Sees to it that there are connections to those that stand by. What is being made is not waited for.
pub(crate) fn keep(core: &Rc<Core>) {
    let (mut ways, now_ms) = (BTreeSet::new(), core.ticker.now_ms());
    core.each_local(|local| {
        ways.extend(local.standing_by(now_ms, CLUSTERS));
        local.keep_out(now_ms, CLUSTERS, |edge, address| core.peers.is_open(edge, address));
    });
    let cold: Vec<Way> =
        ways.into_iter().filter(|(edge, address)| !core.peers.is_warm(edge, address)).collect();
    // From anywhere on: where many cannot be reached, the others have their turn too.
    let first = core.luck().checked_rem(cold.len() as u64).unwrap_or(0);
    let first = usize::try_from(first).unwrap_or(0);
    for (edge, address) in cold.iter().cycle().skip(first).take(cold.len().min(EDGES_MAX)) {
        for _ in 0..CONNECTIONS {
            let (core, edge, address) = (core.clone(), edge.clone(), address.clone());
            tokio::task::spawn_local(async move {
                // Whoever needs it finds out what is wrong with it.
                let _ = core.peers.get(&edge, &address, http2_to_edge).await;
            });
        }
    }
}
