//! Federation v1's preferences: the JSON in a federated workload's annotation.
//!
//! ```json
//! {"rebalance": false, "clusters": {"*": {"weight": 1}, "east": {"minReplicas": 2, "maxReplicas": 5, "weight": 3}}}
//! ```
//! Keys are read in any case, as Federation v1 did. What it ignored is refused here, by name, so that a typing
//! error does not silently spread replicas in another way than meant.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The name that stands for every cluster that is not named.
pub const EVERY: &str = "*";

/// The largest number in a preference: what fits into `spec.replicas`.
pub const NUMBER_MAX: u32 = i32::MAX as u32;

/// How replicas are wished to be divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferences {
    /// Whether replicas that run well are moved to come closer to the weights.
    pub rebalance: bool,
    /// By cluster name; [`EVERY`] is for those not named.
    pub clusters: BTreeMap<String, ClusterPreferences>,
}

/// What is wished for one cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterPreferences {
    /// Its part of what is spread, relative to the others.
    pub weight: u32,
    /// Served before anything is spread.
    pub min_replicas: u32,
    /// Never more than this.
    pub max_replicas: Option<u32>,
}

/// What is wrong with preferences.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PreferencesError {
    /// Not JSON at all.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// A field that does not exist.
    #[error("{field}: no such field; known are {known}")]
    Unknown {
        /// Where.
        field: String,
        /// What could have been meant.
        known: &'static str,
    },
    /// A field with a wrong value.
    #[error("{field}: must be {expected}, is {found}")]
    Wrong {
        /// Where.
        field: String,
        /// What is allowed.
        expected: &'static str,
        /// What was there, as JSON.
        found: String,
    },
}

impl Default for Preferences {
    /// Evenly over all clusters.
    fn default() -> Self {
        let even = ClusterPreferences { weight: 1, ..ClusterPreferences::default() };
        Self { rebalance: false, clusters: BTreeMap::from([(EVERY.to_owned(), even)]) }
    }
}

impl Preferences {
    /// Reads an annotation's text.
    pub fn read(text: &str) -> Result<Self, PreferencesError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| PreferencesError::NotJson(error.to_string()))?;
        // Without `clusters` Federation v1 ran nothing anywhere; nobody who writes only `rebalance` means that.
        let mut preferences = Self::default();
        for (key, value) in object(&value, "(the annotation)")? {
            match key.to_ascii_lowercase().as_str() {
                "rebalance" => preferences.rebalance = flag(value, key)?,
                "clusters" if value.is_null() => {}
                "clusters" => preferences.clusters = clusters(value, key)?,
                _ => return Err(unknown(key, "rebalance, clusters")),
            }
        }
        Ok(preferences)
    }

    /// What is wished for a cluster: its own entry, or the one for everyone, or nothing.
    pub fn of(&self, cluster: &str) -> Option<ClusterPreferences> {
        self.clusters.get(cluster).or_else(|| self.clusters.get(EVERY)).copied()
    }
}

fn clusters(value: &Value, path: &str) -> Result<BTreeMap<String, ClusterPreferences>, PreferencesError> {
    object(value, path)?.iter().map(|(name, value)| Ok((name.clone(), cluster(name, value)?))).collect()
}

fn cluster(name: &str, value: &Value) -> Result<ClusterPreferences, PreferencesError> {
    let path = format!("clusters[{name:?}]");
    let mut wished = ClusterPreferences::default();
    for (key, value) in object(value, &path)? {
        let field = format!("{path}.{key}");
        match key.to_ascii_lowercase().as_str() {
            "weight" => wished.weight = number(value, &field)?,
            "minreplicas" => wished.min_replicas = number(value, &field)?,
            "maxreplicas" if value.is_null() => wished.max_replicas = None,
            "maxreplicas" => wished.max_replicas = Some(number(value, &field)?),
            _ => return Err(unknown(&field, "weight, minReplicas, maxReplicas")),
        }
    }
    match wished.max_replicas {
        Some(max) if max < wished.min_replicas => Err(PreferencesError::Wrong {
            field: format!("{path}.maxReplicas"),
            expected: "at least minReplicas",
            found: format!("{max}, with minReplicas {}", wished.min_replicas),
        }),
        Some(_) | None => Ok(wished),
    }
}

fn object<'a>(value: &'a Value, path: &str) -> Result<&'a Map<String, Value>, PreferencesError> {
    value.as_object().ok_or_else(|| wrong(path, "an object", value))
}

fn flag(value: &Value, path: &str) -> Result<bool, PreferencesError> {
    value.as_bool().ok_or_else(|| wrong(path, "true or false", value))
}

fn number(value: &Value, path: &str) -> Result<u32, PreferencesError> {
    let number = value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n <= NUMBER_MAX);
    number.ok_or_else(|| wrong(path, "a whole number from 0 to 2147483647", value))
}

fn wrong(path: &str, expected: &'static str, found: &Value) -> PreferencesError {
    let mut found = found.to_string();
    if found.len() > 64 {
        found.truncate(found.floor_char_boundary(64));
        found.push('…');
    }
    PreferencesError::Wrong { field: path.to_owned(), expected, found }
}

fn unknown(path: &str, known: &'static str) -> PreferencesError {
    PreferencesError::Unknown { field: path.to_owned(), known }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let shown = match Preferences::read(text) {
            Err(error) => error.to_string(),
            Ok(read) => {
                let one = |(name, p): (&String, &ClusterPreferences)| {
                    format!(" {name}={}/{}/{:?}", p.weight, p.min_replicas, p.max_replicas)
                };
                format!("{}{}", read.rebalance, read.clusters.iter().map(one).collect::<String>())
            }
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn preferences_are_read_and_mistakes_are_named() {
        check("{}", "false *=1/0/None");
        check(r#"{"clusters":{}}"#, "false");
        check(r#"{"rebalance":true,"clusters":{"*":{"weight":1}}}"#, "true *=1/0/None");
        check(r#"{"Clusters":{"a":{"MinReplicas":2,"maxreplicas":3}}}"#, "false a=0/2/Some(3)");
        check(r#"{"clusters":{"a":{"maxReplicas":null}}}"#, "false a=0/0/None");
        check("[]", "(the annotation): must be an object, is []");
        check("{", "not JSON: EOF while parsing an object at line 1 column 1");
        check(r#"{"rebalance":"yes"}"#, r#"rebalance: must be true or false, is "yes""#);
        check(
            r#"{"clusters":{"east":{"minReplicas":"two"}}}"#,
            r#"clusters["east"].minReplicas: must be a whole number from 0 to 2147483647, is "two""#,
        );
        check(
            r#"{"clusters":{"east":{"weight":-1}}}"#,
            r#"clusters["east"].weight: must be a whole number from 0 to 2147483647, is -1"#,
        );
        check(
            r#"{"clusters":{"*":{"wieght":1}}}"#,
            r#"clusters["*"].wieght: no such field; known are weight, minReplicas, maxReplicas"#,
        );
        check(
            r#"{"clusters":{"*":{"minReplicas":3,"maxReplicas":2}}}"#,
            r#"clusters["*"].maxReplicas: must be at least minReplicas, is 2, with minReplicas 3"#,
        );
        check(r#"{"cluster":{}}"#, "cluster: no such field; known are rebalance, clusters");
    }
}
