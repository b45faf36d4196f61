//! Publishing names to other DNS servers: what to change in a zone that is not ours alone, and why.
//!
//! ```text
//!   record sets of services ─► wanted ─┐
//!                                      ├─► decide ─► changes, one per name; conflicts
//!   what the zone has, and whose it is ┘
//! ```
//!
//! Every name has one owner, who says so in the zone itself, in a TXT record beside the name: `heritage=landfall,federation=NAME`.
//! What was published is therefore known to every hub that can read the zone, also to one that leads for the first time, and
//! nothing that somebody else wrote is ever touched:
//!
//! | the name has | wanted | not wanted |
//! |---|---|---|
//! | nothing | made, if it still has nothing | – |
//! | our mark | made as wanted | our records go, and the mark |
//! | records without a mark, or another's mark | left alone, and told | left alone |
//!
//! Deliberately absent: how a zone is read and written, and where the mark is kept. A change carries what it was decided
//! upon, so that whoever applies it can insist that nothing else happened meanwhile.

mod decide;
#[cfg(test)]
mod tests;
mod wanted;

use std::collections::BTreeMap;

use crate::records::sets::{Data, Service};

pub use decide::{Change, Decision, Step, apply, decide};
pub use wanted::wanted;

/// The types of records that we publish; all others are somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Type {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Another name.
    Cname,
    /// Where ports are served.
    Srv,
}

/// All of them.
pub const TYPES: [Type; 4] = [Type::A, Type::Aaaa, Type::Cname, Type::Srv];

/// A name's records of one type.
#[derive(Clone, Debug)]
pub struct Set {
    /// How long it may be kept.
    pub ttl_s: u32,
    /// The records.
    pub data: Data,
}

/// A name's records.
pub type Sets = BTreeMap<Type, Set>;

/// What names shall have. Names are in lower case, without the last dot.
pub type Wanted = BTreeMap<String, Sets>;

/// What the names of a zone have.
pub type Found = BTreeMap<String, Held>;

/// What a name has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// Who says that it is theirs.
    pub owner: Option<String>,
    /// Its records, of the types that we publish.
    pub sets: Sets,
    /// It has records that cannot be ours.
    pub others: bool,
}

/// The mark of a federation's names.
pub fn mark(federation: &str) -> String {
    format!("heritage=landfall,federation={federation}")
}

// === impl Set ===

/// Two sets are the same whatever the order of their records.
impl PartialEq for Set {
    fn eq(&self, other: &Self) -> bool {
        self.ttl_s == other.ttl_s && self.data.same_as(&other.data)
    }
}

// === impl Data ===

impl Data {
    /// The type of the records.
    pub fn of_type(&self) -> Type {
        match self {
            Self::A(_) => Type::A,
            Self::Aaaa(_) => Type::Aaaa,
            Self::Cname(_) => Type::Cname,
            Self::Srv(_) => Type::Srv,
        }
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        match self {
            Self::A(all) => all.len(),
            Self::Aaaa(all) => all.len(),
            Self::Cname(_) => 1,
            Self::Srv(all) => all.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the records are the same, whatever their order.
    pub fn same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::A(one), Self::A(two)) => sorted(one) == sorted(two),
            (Self::Aaaa(one), Self::Aaaa(two)) => sorted(one) == sorted(two),
            (Self::Cname(one), Self::Cname(two)) => one.eq_ignore_ascii_case(two),
            (Self::Srv(one), Self::Srv(two)) => {
                let rank = |all: &[Service]| {
                    let row = |s: &Service| (s.priority, s.weight, s.port, s.target.to_ascii_lowercase());
                    sorted(&all.iter().map(row).collect::<Vec<_>>())
                };
                rank(one) == rank(two)
            }
            (Self::A(_) | Self::Aaaa(_) | Self::Cname(_) | Self::Srv(_), _) => false,
        }
    }
}

/// Sorted, and each once: a set has no record twice.
fn sorted<T: Clone + Ord>(all: &[T]) -> Vec<T> {
    let mut all = all.to_vec();
    all.sort_unstable();
    all.dedup();
    all
}
