//! Writing plans, conditions of policies, and Events.

use std::sync::Arc;

use landfall_api::landfall::SYSTEM_NAMESPACE;
use serde_json::Value;

use crate::federation::Federation;
use crate::kinds::PLANS;
use crate::routes;
use crate::shelf::{Key, Seen};
use crate::writer::{self, Room};
pub(super) use crate::writer::{Work, Writer};

static ROOM: Room = Room {
    writer: |federation| &federation.traffic.writer,
    queue: |federation| &federation.traffic.queue,
    keep,
    namespace: SYSTEM_NAMESPACE,
};

/// Has something written.
pub(super) fn submit(federation: &Arc<Federation>, key: &Key, work: Work) {
    writer::submit(federation, &ROOM, key, work);
}

fn keep(federation: &Federation, key: &Key, object: Value, whole: bool) {
    if key.kind != PLANS || !whole {
        return;
    }
    let shelf = &federation.traffic.plans;
    shelf.put(key, Arc::new(Seen::new(&shelf.row, object)));
    // The watch has nothing new to tell.
    routes::plan_changed(federation, key);
    federation.metrics.plans.inc();
}
