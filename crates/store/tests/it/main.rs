//! The store as its users see it: one battery of cases, run on every backend, and each backend's own faults.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod battery;
mod cluster;
mod crash;
mod embedded;
mod etcd;
mod etcd_faults;
mod full;
mod model;
mod sealed;
