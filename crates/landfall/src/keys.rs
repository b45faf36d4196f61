//! Other people's etcd, for publishing names there: the reconcilers ask for plain keys, and the store has them.

use std::sync::Arc;

use bytes::Bytes;
use landfall_control::publish::publisher::Fault;
use landfall_control::publish::skydns::{BoxFuture, Commit, Etcd, Keys, Pair};
use landfall_store::etcd::Tls;
use landfall_store::etcd::plain::{self, Login, Plain};
use landfall_store::{Error, OpenError};

/// Opens an etcd; nothing is sent yet.
pub(crate) fn open(etcd: &Etcd) -> Result<Arc<dyn Keys>, Fault> {
    let tls =
        etcd.ca.clone().map(|ca_pem| Tls { ca_pem, client_pem: etcd.certificate.clone(), server_name: None });
    let login = etcd.login.clone().map(|(name, password)| Login { name, password });
    let plain = Plain::new(etcd.endpoints.clone(), tls, login);
    let plain = plain.map_err(|error: OpenError| Fault::Misconfigured(error.to_string()))?;
    Ok(Arc::new(Opened(plain)))
}

struct Opened(Plain);

impl Keys for Opened {
    fn list(&self, prefix: String) -> BoxFuture<'_, Result<Vec<Pair>, Fault>> {
        Box::pin(async move {
            let found = self.0.list(prefix.as_bytes()).await.map_err(fault)?;
            let text =
                |(key, value): (Bytes, Bytes)| (String::from_utf8_lossy(&key).into_owned(), value.to_vec());
            Ok(found.into_iter().map(text).collect())
        })
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<bool, Fault>> {
        let (key, value) = commit.only_if;
        let commit = plain::Commit {
            only_if: Some((key.into(), value.map(Bytes::from))),
            puts: commit.puts.into_iter().map(|(key, value)| (key.into(), value.into())).collect(),
            deletes: commit.deletes.into_iter().map(Bytes::from).collect(),
        };
        Box::pin(async move { self.0.commit(commit).await.map_err(fault) })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn fault(error: Error) -> Fault {
    match &error {
        Error::Denied(why) => Fault::WrongKey(format!("etcd does not let us: {why}")),
        Error::Unavailable(why) => Fault::Unreachable(format!("etcd cannot be reached: {why}")),
        _ => Fault::Failed(error.to_string()),
    }
}
