//! Reads objects without their `managedFields`: often the larger half of an object, and nobody here looks at it.
//!
//! It is passed over while the bytes are read, so it costs neither memory nor the time to take it apart.

use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// An object as it came, less its `managedFields`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lean(pub(crate) Value);

impl<'de> Deserialize<'de> for Lean {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Part::Object).map(Self)
    }
}

/// Which part of an object is read.
#[derive(Clone, Copy)]
enum Part {
    Object,
    Metadata,
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Object => "a Kubernetes object",
            Self::Metadata => "metadata",
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            match (self, key.as_str()) {
                (Self::Metadata, "managedFields") => {
                    map.next_value::<IgnoredAny>()?;
                }
                (Self::Object, "metadata") => {
                    let metadata = map.next_value_seed(Self::Metadata)?;
                    read.insert(key, metadata);
                }
                (Self::Object | Self::Metadata, _) => {
                    let value = map.next_value()?;
                    read.insert(key, value);
                }
            }
        }
        Ok(Value::Object(read))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(text: &str, expected: Option<&Value>) {
        let read = serde_json::from_str::<Lean>(text).ok();
        assert_eq!(read.as_ref().map(|lean| &lean.0), expected, "{text}");
    }

    #[test]
    fn all_is_there_but_who_owns_which_field() {
        check(
            r#"{"metadata":{"name":"a","managedFields":[{"fieldsV1":{"f:spec":{}}}],"uid":"u"},"spec":{"managedFields":[1]}}"#,
            Some(&json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"managedFields": [1]}})),
        );
        check(r#"{"managedFields":1,"kind":"List"}"#, Some(&json!({"managedFields": 1, "kind": "List"})));
        check(r#"{"metadata":{}}"#, Some(&json!({"metadata": {}})));
        for garbage in ["[]", "null", "3", r#"{"metadata":"#, r#"{"metadata":[]}"#, "<html>"] {
            check(garbage, None);
        }
    }
}
