//! Plain keys in somebody's etcd: listed, and changed under a condition. No mirror, no watch, no root of ours.
//!
//! For whoever publishes to other programs through an etcd that is not the federation's own.

use bytes::Bytes;
use parking_lot::Mutex;

use super::client::Client;
use super::wire::{Compare, RangeRequest, RequestOp, TxnRequest};
use super::{Config, Tls};
use crate::{Error, OpenError};

/// How many keys one page of a list has.
const PAGE: i64 = 1000;
/// The most keys that one list gives.
const KEYS_MAX: usize = 2_000_000;

/// Somebody's etcd.
pub struct Plain {
    client: Client,
    login: Option<Login>,
    /// Held while one of several callers logs in.
    logged_in: tokio::sync::Mutex<bool>,
    /// Why the last login was refused, so that callers who wait for it need not try it all over.
    refused: Mutex<Option<Error>>,
}

/// A name and a password, where etcd asks for them.
#[derive(Clone)]
pub struct Login {
    /// The user.
    pub name: String,
    /// The password.
    pub password: String,
}

/// Changes that are made together, or not at all.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// Only if this key has this value; none: if there is no such key.
    pub only_if: Option<(Bytes, Option<Bytes>)>,
    /// Keys that get a value.
    pub puts: Vec<(Bytes, Bytes)>,
    /// Keys that go.
    pub deletes: Vec<Bytes>,
}

impl Plain {
    /// Prepares connections; they are made when needed.
    pub fn new(endpoints: Vec<String>, tls: Option<Tls>, login: Option<Login>) -> Result<Self, OpenError> {
        let config = Config { tls, ..Config::new(endpoints) };
        let (client, logged_in) = (Client::new(&config)?, tokio::sync::Mutex::new(login.is_none()));
        Ok(Self { client, login, logged_in, refused: Mutex::default() })
    }

    /// All keys that begin with `prefix`, and their values, in order.
    pub async fn list(&self, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>, Error> {
        let end = Bytes::from(end_of(prefix));
        let mut found: Vec<(Bytes, Bytes)> = Vec::new();
        loop {
            let key = match found.last() {
                // The key right after the last.
                Some((last, _)) => [last.as_ref(), &[0]].concat(),
                None => prefix.to_vec(),
            };
            let request = RangeRequest {
                key: key.into(),
                range_end: end.clone(),
                limit: PAGE,
                ..RangeRequest::default()
            };
            let page = self.call(|| self.client.range(request.clone())).await?;
            found.extend(page.kvs.into_iter().map(|kv| (kv.key, kv.value)));
            if !page.more {
                return Ok(found);
            }
            if found.len() > KEYS_MAX {
                return Err(Error::TooLarge(format!("more than {KEYS_MAX} keys begin with this prefix")));
            }
        }
    }

    /// Makes changes; whether the condition was true.
    pub async fn commit(&self, commit: Commit) -> Result<bool, Error> {
        let compare = commit.only_if.map(|(key, value)| match value {
            Some(value) => Compare::value(key, value),
            None => Compare::mod_revision(key, 0),
        });
        let puts = commit.puts.into_iter().map(|(key, value)| RequestOp::put(key, value, 0));
        let request = TxnRequest {
            compare: compare.into_iter().collect(),
            success: puts.chain(commit.deletes.into_iter().map(RequestOp::delete)).collect(),
            failure: Vec::new(),
        };
        Ok(self.call(|| self.client.txn(request.clone())).await?.succeeded)
    }

    /// One call, logged in where that is asked for; a login that has run out is renewed once.
    async fn call<A, F: Future<Output = Result<A, Error>>>(&self, call: impl Fn() -> F) -> Result<A, Error> {
        self.log_in().await?;
        match call().await {
            Err(Error::Denied(_)) if self.login.is_some() => {
                *self.logged_in.lock().await = false;
                self.log_in().await?;
                call().await
            }
            other => other,
        }
    }

    async fn log_in(&self) -> Result<(), Error> {
        let mut logged_in = self.logged_in.lock().await;
        let Some(login) = self.login.as_ref().filter(|_| !*logged_in) else { return Ok(()) };
        if let Some(error) = self.refused.lock().clone() {
            return Err(error);
        }
        match self.client.authenticate(&login.name, &login.password).await {
            Ok(()) => {
                *logged_in = true;
                Ok(())
            }
            Err(error) => {
                // What was refused stays refused; what was not reached may be tried again.
                if matches!(error, Error::Denied(_)) {
                    *self.refused.lock() = Some(error.clone());
                }
                Err(error)
            }
        }
    }
}

/// The first key that does not begin with `prefix`; a zero byte means that there is none.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_begins() {
        for (prefix, end) in
            [(&b"/a/"[..], &b"/a0"[..]), (b"a", b"b"), (b"a\xff", b"b"), (b"\xff", b"\0"), (b"", b"\0")]
        {
            assert_eq!(end_of(prefix), end);
        }
    }
}
