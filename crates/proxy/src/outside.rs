//! Where buckets are: their names are looked up now and then, and what they lead to is looked at before anybody goes there. A
//! request goes to an address that was looked at, so a name that means something else a moment later leads nowhere else.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::core::Shared;
use crate::table::{Outside, Target};

/// How often names are looked up, and how long that may take.
const LOOK_UP_EVERY: Duration = Duration::from_secs(15);
const LOOK_UP_MAX: Duration = Duration::from_secs(4);
/// Addresses of one name that are used.
const ADDRESSES_MAX: usize = 16;

/// Follows a bucket's name for as long as a route leads there.
pub(crate) async fn follow(target: Weak<Target>, shared: Arc<Shared>) {
    while let Some(target) = target.upgrade() {
        if let Some(outside) = &target.outside {
            look(&target, outside, &shared).await;
        }
        drop(target);
        tokio::time::sleep(LOOK_UP_EVERY).await;
    }
}

async fn look(target: &Target, outside: &Outside, shared: &Shared) {
    let found = match look_up(&outside.host, outside.port).await {
        Ok(found) => found,
        // Where it was, it may still be.
        Err(error) => {
            return target
                .lead(Err(format!("{} cannot be looked up: {error}", outside.host)), shared.now_ms());
        }
    };
    let mut hub: Vec<IpAddr> = Vec::new();
    for name in &shared.config.never_named {
        if name.eq_ignore_ascii_case(&outside.host) {
            return target.bar(format!("{} is the hub", outside.host), shared.now_ms());
        }
        hub.extend(look_up(name, 0).await.unwrap_or_default().iter().map(SocketAddr::ip));
    }
    let (mut addresses, mut why) = (Vec::new(), "it has no address");
    for at in found {
        match shared.guard.admits_outside(at, &hub) {
            Ok(()) if addresses.len() < ADDRESSES_MAX && !addresses.contains(&at) => addresses.push(at),
            Ok(()) => {}
            Err(wrong) => why = wrong,
        }
    }
    if addresses.is_empty() {
        target.bar(format!("{}: {why}", outside.host), shared.now_ms());
    } else {
        addresses.sort_unstable();
        target.lead(Ok(addresses), shared.now_ms());
    }
}

async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found = tokio::time::timeout(LOOK_UP_MAX, tokio::net::lookup_host((host, port)));
    Ok(found.await.map_err(|_| io::ErrorKind::TimedOut)??.collect())
}
