//! The proxy over real sockets: clients and endpoints are real, and what they see is what is asserted.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "tests wait for the tasks that they spawn")]

mod bad_input;
mod between;
mod bombs;
mod browser;
mod buckets;
mod choice;
mod corpus;
mod disagree;
mod endpoints_of_http2;
mod floods;
mod forward;
mod heads;
mod holds;
mod http2;
mod https;
mod limits;
mod link;
mod plain_streams;
mod ports;
mod restart;
mod routing;
mod seen;
mod slow;
mod streams;
mod support;
mod table;
mod tunnels;
