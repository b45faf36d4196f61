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
