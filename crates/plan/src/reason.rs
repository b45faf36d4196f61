//! Why something was decided, as conditions and `kubectl describe` show it.

use std::borrow::Cow;
use std::fmt::{self, Display};

use serde::Serialize;

/// A decision's reason: one word for programs, one sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// One word in CamelCase, fit for a condition's `reason`.
    pub code: &'static str,
    /// One sentence, fit for a condition's `message`.
    pub message: Cow<'static, str>,
}

impl Reason {
    /// A reason from its word and its sentence.
    pub fn new(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// A span of time as people say it: `90 s`, `12 min`, `3 h`.
pub(crate) fn span(ms: i64) -> String {
    match ms.max(0) / 1000 {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7_200 => format!("{} min", s / 60),
        s => format!("{} h", s / 3600),
    }
}
