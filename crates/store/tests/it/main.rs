//! The store as its users see it: one battery of cases, run on every backend, and each backend's own faults.

mod battery;
mod embedded;
