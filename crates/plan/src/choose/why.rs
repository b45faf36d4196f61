//! Why a cluster was chosen, in one word: for logs and metrics.

/// Why a cluster was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// It is the edge's own.
    Local,
    /// It is the nearest.
    Nearest,
    /// The policy names it first.
    Preferred,
    /// Nearer ones have no room.
    Overflow,
    /// Nearness plays no part.
    Spread,
    /// The policy gives it a weight.
    Weighted,
    /// It is the canary, which takes its percents.
    Canary,
    /// The request has the canary's headers.
    CanaryHeader,
    /// Everything is full.
    Full,
    /// Nothing new should go there, but nothing else is healthy.
    LastResort,
    /// Everything is down; it is asked as if it were up.
    FailOpen,
    /// None takes a part: the first that stands by.
    Standby,
    /// The client was there before.
    Affinity,
    /// The cluster that was meant fails, as this edge sees it.
    Avoided,
    /// Another was tried, and failed.
    Retry,
    /// The route names it: it is outside the federation.
    Origin,
}

/// The words of the plan's reasons.
const CODES: &[(&str, Why)] = &[
    ("Local", Why::Local),
    ("Nearest", Why::Nearest),
    ("Preferred", Why::Preferred),
    ("Overflow", Why::Overflow),
    ("Spread", Why::Spread),
    ("Weighted", Why::Weighted),
    ("Canary", Why::Canary),
    ("Full", Why::Full),
    ("LastResort", Why::LastResort),
    ("FailOpen", Why::FailOpen),
    ("Origin", Why::Origin),
];

impl Why {
    /// All of them, in the order of their numbers (`why as usize`).
    pub const ALL: [Self; 16] = [
        Self::Local,
        Self::Nearest,
        Self::Preferred,
        Self::Overflow,
        Self::Spread,
        Self::Weighted,
        Self::Canary,
        Self::CanaryHeader,
        Self::Full,
        Self::LastResort,
        Self::FailOpen,
        Self::Standby,
        Self::Affinity,
        Self::Avoided,
        Self::Retry,
        Self::Origin,
    ];

    /// The word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Local => "Local",
            Self::Nearest => "Nearest",
            Self::Preferred => "Preferred",
            Self::Overflow => "Overflow",
            Self::Spread => "Spread",
            Self::Weighted => "Weighted",
            Self::Canary => "Canary",
            Self::CanaryHeader => "CanaryHeader",
            Self::Full => "Full",
            Self::LastResort => "LastResort",
            Self::FailOpen => "FailOpen",
            Self::Standby => "Standby",
            Self::Affinity => "Affinity",
            Self::Avoided => "Avoided",
            Self::Retry => "Retry",
            Self::Origin => "Origin",
        }
    }

    /// Why the plan has a cluster among its choices: its reason begins with a word.
    pub(super) fn of_plan(reason: &str, fraction: f64) -> Self {
        let word = reason.split(':').next().unwrap_or("");
        let known = CODES.iter().find(|(code, _)| *code == word).map(|(_, why)| *why);
        match known {
            Some(why) => why,
            None if fraction > 0.0 => Self::Nearest,
            None => Self::Standby,
        }
    }

    /// Whether all that take a part are alike, so that what fails is taken over by all others.
    pub(super) const fn is_spread(self) -> bool {
        match self {
            Self::Spread | Self::Weighted | Self::Full | Self::FailOpen => true,
            Self::Local
            | Self::Nearest
            | Self::Preferred
            | Self::Overflow
            | Self::Canary
            | Self::CanaryHeader
            | Self::LastResort
            | Self::Standby
            | Self::Affinity
            | Self::Avoided
            | Self::Retry
            | Self::Origin => false,
        }
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}
