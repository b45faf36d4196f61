//! Writing RoutePlans, copies of Secrets, Services that stand for others, status, and Events.

use std::sync::Arc;

use landfall_api::landfall::CERTIFICATES_NAMESPACE;
use serde_json::Value;

use crate::federation::Federation;
use crate::kinds::ROUTES;
use crate::shelf::{Key, Seen};
use crate::writer::{self, Room};
pub(super) use crate::writer::{Work, Writer};

static ROOM: Room = Room {
    writer: |federation| &federation.routes.writer,
    queue: |federation| &federation.routes.queue,
    keep,
    namespace: CERTIFICATES_NAMESPACE,
};

/// Has something written.
pub(super) fn submit(federation: &Arc<Federation>, key: &Key, work: Work) {
    writer::submit(federation, &ROOM, key, work);
}

/// Where others wait for the watch, it must be the one to tell.
fn keep(federation: &Federation, key: &Key, object: Value, _: bool) {
    let shelf = federation.routes.shelf(ROUTES);
    if key.kind == ROUTES {
        shelf.put(key, Arc::new(Seen::new(&shelf.row, object)));
    }
}
