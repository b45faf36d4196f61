//! Forgets etcd's old history from time to time, whichever hubs run.
//!
//! All hubs try to count one key up once per period; the one that succeeds compacts to where etcd stood a period ago. So
//! there is one compaction per period, and whoever was connected within the last period can resume.

use std::sync::Arc;
use std::time::Duration;

use super::client::{Client, unsigned};
use super::keys::Keys;
use super::wire::{Compare, RequestOp, TxnRequest};
use crate::mirror::Mirror;
use crate::{Error, Revision};

/// What a hub remembers from one period to the next.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// How often the key was counted up.
    version: i64,
    /// Where etcd stood; 0 when not known yet.
    revision: Revision,
}

/// Compacts once per period for ever.
pub(super) async fn run(client: Arc<Client>, keys: Keys, mirror: Arc<Mirror>, every: Duration) {
    let mut round = Round::default();
    loop {
        // Whichever hub compacts, what is older goes here too.
        mirror.forget_fetched(round.revision);
        match step(&client, &keys, round).await {
            Ok(next) => round = next,
            Err(error) => tracing::warn!(%error, "compacting etcd failed; trying again in the next period"),
        }
        tokio::time::sleep(every).await;
    }
}

async fn step(client: &Client, keys: &Keys, round: Round) -> Result<Round, Error> {
    let request = TxnRequest {
        compare: vec![Compare::version(keys.compaction(), round.version)],
        success: vec![RequestOp::put(keys.compaction(), round.revision.to_string().into(), 0)],
        failure: vec![RequestOp::get(keys.compaction())],
    };
    let answer = client.txn(request).await?;
    let revision = unsigned(answer.revision());
    if !answer.succeeded {
        let version = answer.found().map_or(0, |kv| kv.version);
        return Ok(Round { version, revision });
    }
    if round.revision > 0 {
        match client.compact(round.revision).await {
            Ok(()) | Err(Error::TooOld { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Round { version: round.version + 1, revision })
}
