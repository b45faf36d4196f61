//! The boundary to other DNS servers: a zone can be read, and changed name by name. Everything else is the same for all.

use futures::future::BoxFuture;
use landfall_plan::publish::{Change, Found, Wanted};

/// A zone of another DNS server.
///
/// Whoever implements it keeps the mark of a name's owner in the zone itself, and changes a name only if it still is as the
/// change says it was before: what somebody else wrote meanwhile is never overwritten.
pub trait Publisher: Send + Sync {
    /// All names of the zone, what they have, and whose they are.
    fn read(&self) -> BoxFuture<'_, Result<Found, Fault>>;

    /// Makes changes; each wholly or not at all.
    fn apply<'a>(&'a self, changes: &'a [Change]) -> BoxFuture<'a, Applied>;

    /// What is wanted, in records that this kind of server can have beside what it has.
    fn fit(&self, wanted: Wanted, _found: &Found) -> Wanted {
        wanted
    }
}

/// What has become of some changes, which are told by their places.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// They are made.
    pub done: Vec<usize>,
    /// The names are not as they were thought to be; nothing was changed there.
    pub moved: Vec<usize>,
    /// Why the rest was not tried, or is not known to be made.
    pub fault: Option<Fault>,
}

/// Why a zone cannot be read or changed. The word is a condition's reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The object says something that cannot be done.
    #[error("{0}")]
    Misconfigured(String),
    /// The server is not there, or does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// The server knows no such key, or its secret is another.
    #[error("{0}")]
    WrongKey(String),
    /// The server's clock and ours differ by more than signatures allow.
    #[error("{0}")]
    ClockSkew(String),
    /// The zone is not this server's.
    #[error("{0}")]
    NotAuthoritative(String),
    /// The server does not let us.
    #[error("{0}")]
    Refused(String),
    /// The server failed, or said what cannot be understood.
    #[error("{0}")]
    Failed(String),
}

impl Fault {
    /// One word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Misconfigured(_) => "Misconfigured",
            Self::Unreachable(_) => "Unreachable",
            Self::WrongKey(_) => "WrongKey",
            Self::ClockSkew(_) => "ClockSkew",
            Self::NotAuthoritative(_) => "NotAuthoritative",
            Self::Refused(_) => "Refused",
            Self::Failed(_) => "Failed",
        }
    }
}
