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

/// A pod of a group, or what is left of one: its `Edge`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Remains {
    /// It has spoken lately.
    pub alive: bool,
    /// It has been silent for so long that it is gone for good.
    pub retired: bool,
    /// It may hold addresses, as far as it has told.
    pub may_hold: bool,
    /// Its place among the pods of the group in its member.
    pub place: i32,
    /// How many of them there should be; none where the group is gone, or has left the member.
    pub replicas: i32,
}

impl Remains {
    /// Whether it can be forgotten: it should not be, it does not speak, and it holds nothing, or will never say so.
    pub fn forgettable(self) -> bool {
        self.place >= self.replicas && !self.alive && (self.retired || !self.may_hold)
    }
}

impl Group {
    /// Whether one of its edges may hold an address, or may still come to.
    pub(super) fn may_hold(&self, address: IpAddr) -> bool {
        let unsure = |edge: &Follower| edge.revision < self.told.revision || edge.vips.contains(&address);
        self.told.vips.contains(&address) || self.followers.iter().any(unsure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_gone_is_forgotten_when_it_holds_nothing() {
        let gone = Remains { place: 2, replicas: 2, ..Remains::default() };
        assert!(gone.forgettable());
        assert!(!Remains { place: 1, ..gone }.forgettable(), "it comes back");
        assert!(!Remains { alive: true, ..gone }.forgettable(), "it is on its way out");
        assert!(!Remains { may_hold: true, ..gone }.forgettable(), "it may be cut off, and hold an address");
        assert!(Remains { may_hold: true, retired: true, ..gone }.forgettable());
        assert!(Remains { place: 0, replicas: 0, ..gone }.forgettable());
    }
}
