//! The table that is in force, and the compiler that makes the next.
//!
//! An edge is told of its own group's routes alone, but takes requests that other edges send for any service of the federation: what
//! they name is looked up, and compiled when it is named for the first time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use landfall_api::landfall::RouteService;
use parking_lot::Mutex;

use super::{Changed, Compiler, Table, Target};
use crate::world::World;

/// The table in force.
pub(crate) struct Tables {
    now: ArcSwap<Table>,
    /// Rises with every new table.
    generation: AtomicU64,
    compiler: Mutex<Compiler>,
    /// The proxy's clock begins here.
    began: Instant,
}

impl Tables {
    /// An empty one.
    pub(crate) fn new(config: &crate::Config, began: Instant) -> Self {
        Self {
            now: ArcSwap::from_pointee(Table::default()),
            generation: AtomicU64::new(0),
            compiler: Mutex::new(Compiler::new(config)),
            began,
        }
    }

    /// The table as it is now, for a moment.
    pub(crate) fn load(&self) -> Guard<Arc<Table>> {
        self.now.load()
    }

    /// The table as it is now, to keep.
    pub(crate) fn load_full(&self) -> Arc<Table> {
        self.now.load_full()
    }

    /// A number that rises with every new table.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The proxy's clock.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Follows a world.
    pub(crate) fn follow(&self, world: &World) -> Changed {
        let mut compiler = self.compiler.lock();
        let changed = compiler.follow(world, self.now_ms());
        if changed.table {
            self.swap(&compiler);
        }
        changed
    }

    /// The service that another edge names; none when there is no such service in the federation.
    pub(crate) fn named_by_peer(&self, service: &RouteService) -> Option<Arc<Target>> {
        if let Some(target) = self.load().target_of_peer(service) {
            return Some(target.clone());
        }
        let mut compiler = self.compiler.lock();
        let known = compiler.knows(service);
        let target = compiler.named_by_peer(service, self.now_ms())?;
        if !known {
            self.swap(&compiler);
        }
        Some(target)
    }

    /// What is wrong with places outside the federation.
    pub(crate) fn outside_problems(&self) -> Vec<(String, String)> {
        self.compiler.lock().outside_problems()
    }

    fn swap(&self, compiler: &Compiler) {
        self.now.store(Arc::new(compiler.table()));
        self.generation.fetch_add(1, Ordering::Release);
    }
}
