//! `Voice`: who is told what plans say. The place where names are answered.

use std::net::SocketAddr;

use parking_lot::Mutex;

use super::book::Plans;

/// Tells clients where to go.
#[derive(Default)]
pub(crate) struct Voice {
    followed: Mutex<Plans>,
}

impl Voice {
    /// Follows these plans from now on.
    pub(crate) fn publish(&self, plans: &Plans) {
        *self.followed.lock() = plans.clone();
    }

    /// The plans that are followed.
    pub(crate) fn followed(&self) -> Plans {
        self.followed.lock().clone()
    }

    /// Where names are answered.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &[]
    }
}
