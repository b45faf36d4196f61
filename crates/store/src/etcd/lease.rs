//! Leases for keys that expire, shared by those that expire at about the same time.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::client::Client;
use super::wire::LeaseGrantRequest;
use crate::Error;

/// The most keys on one lease: they are removed in one step.
const KEYS_MAX: u32 = 500;
/// The longest that a key may live on after its time.
const WINDOW_MAX: Duration = Duration::from_secs(60);

/// The newest lease for each time to live in seconds.
#[derive(Default)]
pub(super) struct Leases(Mutex<HashMap<u64, Lease>>);

struct Lease {
    id: i64,
    /// Keys may join until then.
    until: Instant,
    keys: u32,
}

impl Leases {
    /// Gives up all leases: after a failure etcd may not have them any more.
    pub(super) fn forget(&self) {
        if let Ok(mut leases) = self.0.try_lock() {
            leases.clear();
        }
    }

    /// A lease that ends `ttl` from now, or a little later.
    pub(super) async fn get(&self, client: &Client, ttl: Duration) -> Result<i64, Error> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        // One grant at a time: the others wait for it and share it.
        let mut leases = self.0.lock().await;
        if let Some(lease) = leases.get_mut(&seconds)
            && Instant::now() < lease.until
            && lease.keys < KEYS_MAX
        {
            lease.keys += 1;
            return Ok(lease.id);
        }
        let begin = Instant::now();
        let window = (Duration::from_secs(seconds) / 20).min(WINDOW_MAX);
        let wanted = seconds.saturating_add(window.as_secs() + u64::from(window.subsec_nanos() > 0)).max(1);
        let request = LeaseGrantRequest { ttl: i64::try_from(wanted).unwrap_or(i64::MAX) };
        let granted = client.lease_grant(request).await?;
        if !granted.error.is_empty() {
            return Err(Error::Unavailable(format!("etcd granted no lease: {}", granted.error)));
        }
        leases.retain(|_, lease| lease.until > begin);
        leases.insert(seconds, Lease { id: granted.id, until: begin + window, keys: 1 });
        Ok(granted.id)
    }
}
