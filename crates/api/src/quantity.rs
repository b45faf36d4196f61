//! Quantities as rules ask for them: from JSON, compared, rounded. How they are read and written is in
//! [`crate::schema::quantity`].

use std::fmt::{self, Display};

use serde_json::Value;

use crate::schema::quantity as text;

/// A quantity such as `100m`, `1.5Gi` or `1e3`; equal by amount, whatever the spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(text::Quantity);

impl Quantity {
    /// Reads a quantity; none when it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        text::Quantity::parse(text).ok().map(Self)
    }

    /// Reads a quantity from JSON: a text, or a number.
    pub fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    /// Below zero, zero, or above.
    pub const fn signum(self) -> i32 {
        self.0.sign()
    }

    /// Whether it has no fraction.
    pub fn is_whole(self) -> bool {
        Self::parse(&self.whole().to_string()) == Some(self)
    }

    /// As a whole number, rounded away from zero.
    pub fn whole(self) -> i64 {
        self.0.value()
    }

    /// In thousandths, rounded away from zero.
    pub fn milli(self) -> i64 {
        self.0.milli_value()
    }

    /// Rounded to thousandths, as stored resource lists are.
    #[must_use]
    pub fn rounded_to_milli(self) -> Self {
        // Past what thousandths can count there are none to round.
        let milli = self.milli();
        match Self::parse(&format!("{milli}m")) {
            Some(rounded) if rounded != self && milli.unsigned_abs() < i64::MAX.unsigned_abs() => rounded,
            _ => self,
        }
    }
}

/// The canonical form: the largest suffix that leaves no fraction.
impl Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts() {
        let q = |text| Quantity::parse(text).unwrap();
        assert_eq!(q("1"), q("1000m"));
        assert!(q("1Gi") > q("1G") && q("-1") < q("0"));
        assert_eq!((q("1.2").whole(), q("-1.2").whole(), q("0.0001").milli()), (2, -2, 1));
        assert_eq!(q("0.0001").rounded_to_milli().to_string(), "1m");
        assert_eq!(q("1Gi").rounded_to_milli().to_string(), "1Gi");
        assert_eq!(q("9E").rounded_to_milli(), q("9E"));
        assert!(q("2").is_whole() && !q("100m").is_whole());
        assert_eq!(Quantity::from_value(&json!(0.5)).map(|q| q.to_string()).as_deref(), Some("500m"));
        assert_eq!(Quantity::from_value(&json!(null)), None);
    }
}
