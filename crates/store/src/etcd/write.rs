//! One write: a transaction that compares, puts or deletes, and ticks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::client::{signed, unsigned};
use super::wire::{Compare, RequestOp, TxnRequest, TxnResponse};
use super::{Etcd, feed};
use crate::{Entry, Error, Revision};

/// How long a write that is done waits until it can be read here too.
const VISIBLE_WITHIN: Duration = Duration::from_millis(500);

/// What to do with a key.
pub(super) enum Op {
    Put { value: Bytes, ttl: Option<Duration> },
    Delete,
}

/// What became of a write.
pub(super) enum Outcome {
    /// Done at this revision.
    Done(Revision),
    /// The key was not at the expected revision but this.
    Refused(Option<Arc<Entry>>),
}

impl Op {
    fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Put { value, .. } => Some(value),
            Self::Delete => None,
        }
    }
}

impl Etcd {
    /// Puts or deletes a key that must be at `expected` (0: must not exist), and ticks.
    pub(super) async fn write(&self, key: &str, expected: Revision, op: Op) -> Result<Outcome, Error> {
        self.mirror.ensure_open()?;
        self.check_sizes(key, op.value())?;
        let name = self.keys.object(key);
        let request = match &op {
            Op::Put { value, ttl } => {
                let lease = match ttl {
                    Some(ttl) => self.leases.get(&self.client, *ttl).await?,
                    None => 0,
                };
                RequestOp::put(name.clone(), self.keys.seals.seal(key, value), lease)
            }
            Op::Delete => RequestOp::delete(name.clone()),
        };
        let tick = RequestOp::put(self.keys.tick(), Bytes::new(), 0);
        let outcome = match self.transact(&name, expected, vec![request, tick]).await {
            Ok(answer) => self.outcome(key, answer)?,
            Err(Error::Full(why)) => self.write_when_full(key, expected, op, why).await?,
            Err(error) => {
                self.leases.forget();
                return Err(error);
            }
        };
        if let Outcome::Done(revision) = outcome {
            self.mirror.reach(revision, VISIBLE_WITHIN).await;
        }
        Ok(outcome)
    }

    async fn transact(
        &self,
        name: &Bytes,
        expected: Revision,
        ops: Vec<RequestOp>,
    ) -> Result<TxnResponse, Error> {
        let request = TxnRequest {
            compare: vec![Compare::mod_revision(name.clone(), signed(expected))],
            success: ops,
            failure: vec![RequestOp::get(name.clone())],
        };
        self.client.txn(request).await
    }

    /// What to do when etcd says that it has no space. The write with which it notices that is done all the same; so
    /// for a put, look. A delete works if nothing is put with it, so it goes without a tick: until there is space
    /// again, other hubs may read the key a moment longer.
    async fn write_when_full(
        &self,
        key: &str,
        expected: Revision,
        op: Op,
        why: String,
    ) -> Result<Outcome, Error> {
        let Op::Put { value, .. } = op else {
            let name = self.keys.object(key);
            let answer = self.transact(&name, expected, vec![RequestOp::delete(name.clone())]).await?;
            let revision = unsigned(answer.revision());
            return Ok(match self.outcome(key, answer)? {
                // The first attempt was done.
                Outcome::Refused(None) => Outcome::Done(revision),
                other => other,
            });
        };
        match self.read(key).await? {
            Some(found) if found.revision > expected && found.value == value => {
                Ok(Outcome::Done(found.revision))
            }
            _ => Err(Error::Full(why)),
        }
    }

    fn outcome(&self, key: &str, answer: TxnResponse) -> Result<Outcome, Error> {
        if answer.succeeded {
            return Ok(Outcome::Done(unsigned(answer.revision())));
        }
        let found = answer.found().map(|kv| feed::entry(&self.keys.seals, key.into(), &kv)).transpose()?;
        Ok(Outcome::Refused(found))
    }
}
