//! Letting go: whether an edge may still hold an address that its group has no more.
//!
//! Edges follow the last plan that they have seen, also when they are cut off from the hub, and whoever stands by may take an
//! address at any moment. So an address is free when the plan does not name it, and every edge that could hold it has said
//! both that it follows that plan and that it has no part in the address. An edge that is gone for good is not asked.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Group;

/// The finalizer of groups: it goes when all their addresses are free.
pub const FINALIZER: &str = "landfall.dev/virtual-ips";

/// What the edges of a group were told last.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// The revision of the plan; 0 where there is none.
    pub revision: i64,
    /// The addresses in it, of all members.
    pub vips: BTreeSet<IpAddr>,
}

/// An edge that may hold addresses of its group, as it has told of itself.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    /// The revision of the plan that it follows.
    pub revision: i64,
    /// The addresses that it has a part in: it holds them, or would.
    pub vips: BTreeSet<IpAddr>,
}

impl Group {
    /// Whether one of its edges may hold an address, or may still come to.
    pub(super) fn may_hold(&self, address: IpAddr) -> bool {
        let unsure = |edge: &Follower| edge.revision < self.told.revision || edge.vips.contains(&address);
        self.told.vips.contains(&address) || self.followers.iter().any(unsure)
    }
}
