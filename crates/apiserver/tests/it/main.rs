//! A hub in this process, and clients that ask it over TLS: what users see of the API server.
//!
//! `support` starts hubs and asks; the other files are what must hold, one subject each.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

mod bad_input;
mod collecting;
mod connections;
mod deleting;
mod doors;
mod edges;
mod foreign;
mod kube_rs;
mod reading;
mod several;
mod watching;
mod writing;
