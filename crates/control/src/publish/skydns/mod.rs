//! SkyDNS: names are keys of an etcd that CoreDNS reads (its plugin `etcd`).
//!
//! ```text
//!   web.shop.fed.example.com  ─►  /skydns/com/example/fed/shop/web/_landfall           the mark of its owner, a TXT record
//!                                 /skydns/com/example/fed/shop/web/_landfall-a-0000    {"host": "192.0.2.1", …}
//! ```
//!
//! CoreDNS answers a name with all keys below it, also those of names below it, unless they are of another `group`: so every
//! name is a group of its own. (A name that is none, such as `shop.fed.example.com`, is answered with what some names below
//! it have: SkyDNS knows no empty names. And where somebody else has a name that we want, what is below it is not published
//! either: it would be answered with theirs.) Records that it cannot have are made into some that it can: see `Place::fit`.
//!
//! A name is changed in one transaction, if its mark is still what it was; names with hundreds of records in several.
//!
//! Limits: 16 transactions at a time; 100 keys each, as etcd has it.

mod entry;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::FutureExt as _;
pub use futures::future::BoxFuture;
use futures::future::join_all;
use landfall_plan::publish::{Change, Found, Step, Wanted};

use super::publisher::{Applied, Fault, Publisher};
use entry::Place;

/// How many names are changed at a time.
const CHANGES_MAX: usize = 16;
/// How many keys one transaction changes; etcd takes 128.
const KEYS_MAX: usize = 100;

/// A key and its value.
pub type Pair = (String, Vec<u8>);

/// An etcd's plain keys. Who opens it is not this crate's to say: only the store speaks to etcd.
pub trait Keys: Send + Sync {
    /// All keys that begin with `prefix`, and their values.
    fn list(&self, prefix: String) -> BoxFuture<'_, Result<Vec<Pair>, Fault>>;
    /// Makes changes together; whether the condition was true.
    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<bool, Fault>>;
}

/// Changes that are made together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Only if this key has this value; none: if there is no such key.
    pub only_if: (String, Option<Vec<u8>>),
    /// Keys that get a value.
    pub puts: Vec<Pair>,
    /// Keys that go.
    pub deletes: Vec<String>,
}

/// How an etcd is reached. Not printed: it has secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Etcd {
    /// URLs of its members.
    pub endpoints: Vec<String>,
    /// Who signed their certificates, PEM.
    pub ca: Option<Vec<u8>>,
    /// Our certificate and its key, PEM.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// A user and a password.
    pub login: Option<(String, String)>,
}

/// Opens an etcd; nothing is sent yet.
pub type OpenKeys = fn(&Etcd) -> Result<Arc<dyn Keys>, Fault>;

/// A zone in an etcd.
pub struct SkyDns {
    keys: Arc<dyn Keys>,
    place: Place,
}

impl SkyDns {
    /// A zone under a prefix.
    pub fn new(keys: Arc<dyn Keys>, prefix: &str, zone: &str, mark: String) -> Self {
        Self { keys, place: Place::new(prefix, zone, mark) }
    }

    async fn change(&self, change: &Change) -> Result<bool, Fault> {
        for commit in self.commits(change) {
            if !self.keys.commit(commit).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The transactions that make a change. The mark is the first to come and the last to go.
    fn commits(&self, change: &Change) -> Vec<Commit> {
        let (mark, value) = self.place.mark(&change.name);
        let before = self.place.keys(&change.name, &change.before);
        let puts = self.place.entries(&change.name, &change.after);
        let deletes = before.into_iter().filter(|key| puts.iter().all(|(put, _)| put != key));
        let mut commits = Vec::new();
        let ours = (mark.clone(), Some(value.clone()));
        for chunk in puts.chunks(KEYS_MAX) {
            commits.push(Commit { only_if: ours.clone(), puts: chunk.to_vec(), ..Commit::default() });
        }
        for chunk in deletes.collect::<Vec<_>>().chunks(KEYS_MAX) {
            // Small ones in one transaction.
            match commits.last_mut() {
                Some(last) if last.deletes.is_empty() && last.puts.len() + chunk.len() <= KEYS_MAX => {
                    last.deletes = chunk.to_vec();
                }
                _ => commits.push(Commit {
                    only_if: ours.clone(),
                    deletes: chunk.to_vec(),
                    ..Commit::default()
                }),
            }
        }
        if commits.is_empty() {
            commits.push(Commit { only_if: ours, ..Commit::default() });
        }
        match change.step {
            Step::Create => {
                if let Some(first) = commits.first_mut() {
                    first.only_if = (mark.clone(), None);
                    first.puts.push((mark, value));
                }
            }
            Step::Remove => {
                if let Some(last) = commits.last_mut() {
                    last.deletes.push(mark);
                }
            }
            Step::Replace => {}
        }
        commits
    }
}

impl Publisher for SkyDns {
    fn read(&self) -> BoxFuture<'_, Result<Found, Fault>> {
        async {
            let keys = self.keys.list(self.place.base()).await?;
            Ok(self.place.read(&keys))
        }
        .boxed()
    }

    fn apply<'a>(&'a self, changes: &'a [Change]) -> BoxFuture<'a, Applied> {
        async move {
            let mut applied = Applied::default();
            for (part, first) in changes.chunks(CHANGES_MAX).zip((0..).step_by(CHANGES_MAX)) {
                let outcomes = join_all(part.iter().map(|change| self.change(change))).await;
                for (outcome, at) in outcomes.into_iter().zip(first..) {
                    match outcome {
                        Ok(true) => applied.done.push(at),
                        Ok(false) => applied.moved.push(at),
                        Err(fault) => applied.fault = Some(fault),
                    }
                }
                if applied.fault.is_some() {
                    break;
                }
            }
            applied
        }
        .boxed()
    }

    fn fit(&self, wanted: Wanted, found: &Found) -> Wanted {
        self.place.fit(&wanted, found)
    }
}
