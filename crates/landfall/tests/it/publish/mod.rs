//! Names of the federation in zones of other DNS servers: real ones, asked by `dig`.

mod battery;
// As the binary gives it to the reconcilers.
#[path = "../../../src/keys.rs"]
mod keys;
mod playground;
mod servers;
mod skydns;
mod world;

use battery::battery;
use servers::{Bind, Knot};
use skydns::CoreDns;

#[tokio::test(flavor = "multi_thread")]
async fn bind() {
    battery::<Bind>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn knot() {
    battery::<Knot>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn coredns() {
    battery::<CoreDns>().await;
}
