//! What the lane for plain requests knows of one that it leaves to us: it is the same request, and goes on where it was left.

use std::rc::Rc;
use std::time::Instant;

use crate::upstream::{Endpoint, Fault};

/// What is known of a request from before. The budget of where it led has been earned, and whether it is followed has been decided.
pub(crate) struct Before {
    /// When it began.
    pub(crate) began: Instant,
    /// The number of the service's port that its route led to.
    pub(crate) target: u64,
    /// What its cluster is chosen by: a second draw would send fewer to others than the plan says.
    pub(crate) luck: u64,
    /// Who was asked, and did not answer.
    pub(crate) failed: Option<Failed>,
}

/// An attempt that failed, and is counted against its endpoint.
pub(crate) struct Failed {
    pub(crate) fault: Fault,
    pub(crate) endpoint: Rc<Endpoint>,
    /// Which choice it was, in this version of the target.
    pub(crate) choice: u16,
    pub(crate) version: u64,
}
