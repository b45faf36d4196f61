//! A request that is being answered, until the end of its answer.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::account::{Account, End};
use super::body::{BodyError, Progress};
use super::handle::Ticket;
use crate::meter::Meter;
use crate::ticker::Deadline;
use crate::upstream::{Active, Sender};

/// A request that is being answered. When it ends it is counted, and its connection is kept if it ended well.
pub(crate) struct Exchange {
    pub(super) ticket: Ticket,
    pub(super) meter: Arc<Meter>,
    pub(super) status: StatusCode,
    pub(super) idle_for: Duration,
    pub(super) active: Active,
    pub(super) sender: Option<Sender>,
    /// What is told of it.
    pub(super) account: Option<Box<Account>>,
    /// The connection may carry another client's request afterwards.
    pub(super) keep: bool,
    pub(super) broke_off: bool,
    /// How the request's body fares.
    pub(super) progress: Rc<Progress>,
}

impl Exchange {
    /// How long it may be without a byte.
    pub(super) fn idle(&self) -> Deadline {
        self.ticket.core.ticker.after(self.idle_for)
    }

    /// The answer came whole. Where that was before the end of the request's body, the endpoint still waits for the rest of it.
    pub(super) fn complete(&mut self) {
        let free = self.keep && self.progress.is_over();
        let kept = self.sender.take().filter(|sender| free && !sender.takes_many());
        let Some(sender) = kept else { return };
        let core = &self.ticket.core;
        self.active.endpoint.give(sender, core.ticker.now_ms(), core.shared.config.limits.idle_per_endpoint);
    }

    /// The answer broke off.
    pub(super) fn broke_off(&mut self, why: &BodyError) {
        self.sender = None;
        self.broke_off = true;
        self.meter.broke_off();
        if let Some(account) = &mut self.account {
            account.failed(format!("the answer broke off: {why}"));
        }
        let endpoint = &self.active.endpoint.reach;
        tracing::debug!(client = %self.ticket.conn.info.client, ?endpoint, %why, "an answer broke off");
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let took = self.ticket.began.elapsed();
        self.meter.ended(self.status, took);
        let Some(account) = self.account.take() else { return };
        let endpoint = Some(&*self.active.endpoint);
        let (status, broke_off) = (self.status, self.broke_off);
        account.close(&self.ticket, &End { status, took, endpoint, broke_off });
    }
}
