//! What an edge and its keeper say to each other: one JSON value a line.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// No line is longer.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;

/// What an edge wants to hold, together with the others of its group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wanted {
    /// The group.
    pub group: String,
    /// The group's number on the link, from 1 to 255: no other group has it there.
    pub router_id: u8,
    /// The addresses that one of the group holds.
    pub vips: Vec<IpAddr>,
    /// The interface that gets them; found by the addresses when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The node's own address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<IpAddr>,
    /// Who of several takes an address that nobody holds: the highest.
    pub priority: u8,
    /// Whether adverts go to the others one by one, where the link carries no multicast.
    #[serde(default)]
    pub unicast: bool,
    /// The nodes of the others, for that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<IpAddr>,
    /// Whether this edge may hold them: false while it drains.
    pub able: bool,
    /// Where the edge answers HTTP: it may hold them only while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<SocketAddr>,
}

/// Which part a node plays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// None: nothing is wanted, or nobody can do it.
    #[default]
    Off,
    /// It holds the addresses.
    Holder,
    /// It would take them if nobody held them.
    Backup,
    /// It must not hold them: the edge or the link is not well.
    Fault,
}

/// What has become of what was wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// The part this node plays.
    pub state: State,
    /// Since when, in milliseconds since 1970.
    pub since_ms: i64,
    /// How often this node has taken the addresses.
    pub taken: u64,
    /// What is in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// Why what was wanted cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// In a word.
    pub reason: Reason,
    /// In a sentence.
    pub message: String,
}

/// Why what was wanted cannot be done, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// keepalived is not installed.
    KeepalivedMissing,
    /// keepalived does not run.
    KeepalivedFailed,
    /// No interface can hold the addresses.
    NoInterface,
    /// There is no keeper to ask.
    NoKeeper,
}

impl Reason {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KeepalivedMissing => "KeepalivedMissing",
            Self::KeepalivedFailed => "KeepalivedFailed",
            Self::NoInterface => "NoInterface",
            Self::NoKeeper => "NoKeeper",
        }
    }

    /// With a sentence.
    #[must_use]
    pub fn because(self, message: impl Into<String>) -> Problem {
        Problem { reason: self, message: message.into() }
    }
}

/// A holder's two ends: what is wanted goes in, what has become of it comes out.
#[derive(Debug)]
pub(crate) struct Wish {
    wanted: watch::Sender<Option<Wanted>>,
    pub(crate) held: watch::Receiver<Held>,
}

impl Wish {
    /// Nothing is wanted yet; and the other ends, for whoever does it.
    pub(crate) fn new() -> (Self, watch::Receiver<Option<Wanted>>, watch::Sender<Held>) {
        let (wanted, wants) = watch::channel(None);
        let (tell, held) = watch::channel(Held::default());
        (Self { wanted, held }, wants, tell)
    }

    /// Wants this from now on. The same again is no news.
    pub(crate) fn want(&self, wanted: Option<Wanted>) {
        self.wanted.send_if_modified(|before| {
            let changed = *before != wanted;
            *before = wanted;
            changed
        });
    }
}
