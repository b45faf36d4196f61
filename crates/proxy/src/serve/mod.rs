//! Serving: threads, each with a runtime, listeners and connections of its own.
//!
//! Reading order: `listen` (sockets), `worker` (a thread), `connection` (one client: the seam for whoever accepts streams),
//! `http2` (one that speaks it), `io` (its bytes), `noise` (which of them ask for nothing).

mod connection;
mod http2;
mod io;
mod listen;
mod noise;
mod worker;

use std::future::Future;

pub(crate) use connection::connection;
pub(crate) use listen::{Entrance, bind, handles, listen};
pub(crate) use worker::run;

/// Runs futures of hyper's on the thread that they were made on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalExecutor;

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future + 'static,
{
    fn execute(&self, future: F) {
        // As it is: a block around it would be twice as large, and moved once more.
        tokio::task::spawn_local(future);
    }
}
