//! Where buckets are: their names are looked up now and then, and what they lead to is looked at before anybody goes there. A
//! request goes to an address that was looked at, so a name that means something else a moment later leads nowhere else.

use std::sync::{Arc, Weak};

use crate::core::Shared;
use crate::guard::{LOOK_UP_EVERY, look_up};
use crate::table::{Outside, Target};

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
    if shared.guard.has_name(&outside.host) {
        return target.bar(format!("{} is the hub", outside.host), shared.now_ms());
    }
    shared.guard.look().await;
    let (mut addresses, mut why) = (Vec::new(), "it has no address");
    for at in found {
        match shared.guard.admits_outside(at) {
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
