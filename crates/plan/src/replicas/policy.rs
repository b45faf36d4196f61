//! What happens to replicas when a cluster is lost, and how carefully they are moved.
//!
//! ```json
//! {"onClusterLoss": "Migrate", "holdDownSeconds": 60, "surgePercent": 25}
//! {"onClusterLoss": "Overprovision", "factor": 1.5}
//! {"onClusterLoss": "Autoscale"}
//! ```

use serde::Deserialize;

/// The annotation that holds a policy as JSON.
pub const ANNOTATION: &str = "landfall.dev/replica-policy";

/// The three answers to a lost cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// So many run at all times, in percent of what is asked for, that enough are left when a cluster is lost.
    Overprovision {
        /// 100 or more.
        percent: u32,
    },
    /// The clusters' own autoscalers grow with the traffic that comes to them; nothing is moved.
    Autoscale,
    /// After a while the others run what the lost cluster ran; when it returns they give it back.
    Migrate {
        /// How long it must have been offline.
        hold_down_ms: i64,
    },
}

/// How replicas are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What happens when a cluster is lost.
    pub on_loss: OnLoss,
    /// How many more than asked for may exist while replicas move, in percent, rounded up.
    pub surge_percent: u32,
    /// How many fewer than asked for may be ready while replicas move, in percent, rounded down.
    pub unavailable_percent: u32,
    /// How long a pod may be unschedulable before its cluster is said to have no room for it.
    pub unschedulable_ms: i64,
    /// How long replicas that are not ready are waited for before others are given up for them.
    pub patience_ms: i64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            on_loss: OnLoss::Migrate { hold_down_ms: 60_000 },
            surge_percent: 25,
            unavailable_percent: 0,
            unschedulable_ms: 60_000,
            patience_ms: 600_000,
        }
    }
}

/// What is wrong with a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Not JSON, an unknown field, or a value of the wrong type; the text says where.
    #[error("{0}")]
    NotJson(String),
    /// A field with a wrong value.
    #[error("{field}: must be {expected}, is {found}")]
    Wrong {
        /// Where.
        field: &'static str,
        /// What is allowed.
        expected: &'static str,
        /// What was there.
        found: String,
    },
}

impl Policy {
    /// Reads an annotation's text; what it does not say is as in the default.
    pub fn read(text: &str) -> Result<Self, PolicyError> {
        let typed: Typed =
            serde_json::from_str(text).map_err(|error| PolicyError::NotJson(error.to_string()))?;
        let default = Self::default();
        Ok(Self {
            on_loss: typed.on_loss()?,
            surge_percent: percent("surgePercent", typed.surge_percent, default.surge_percent)?,
            unavailable_percent: percent(
                "unavailablePercent",
                typed.unavailable_percent,
                default.unavailable_percent,
            )?,
            unschedulable_ms: millis(
                "unschedulableSeconds",
                typed.unschedulable_seconds,
                default.unschedulable_ms,
            )?,
            patience_ms: millis("patienceSeconds", typed.patience_seconds, default.patience_ms)?,
        })
    }
}

/// What was typed.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Typed {
    on_cluster_loss: Option<String>,
    factor: Option<f64>,
    hold_down_seconds: Option<i64>,
    surge_percent: Option<i64>,
    unavailable_percent: Option<i64>,
    unschedulable_seconds: Option<i64>,
    patience_seconds: Option<i64>,
}

impl Typed {
    fn on_loss(&self) -> Result<OnLoss, PolicyError> {
        let name = self.on_cluster_loss.as_deref().unwrap_or("Migrate");
        if name != "Overprovision" && self.factor.is_some() {
            return Err(wrong("factor", "left out unless onClusterLoss is Overprovision", &name));
        }
        match name {
            "Migrate" => Ok(OnLoss::Migrate {
                hold_down_ms: millis("holdDownSeconds", self.hold_down_seconds, 60_000)?,
            }),
            "Autoscale" => Ok(OnLoss::Autoscale),
            "Overprovision" => {
                let factor = self.factor.unwrap_or(1.5);
                if !(1.0..=10.0).contains(&factor) {
                    return Err(wrong("factor", "from 1 to 10", &factor));
                }
                // From 100 to 1000: nothing is cut off.
                Ok(OnLoss::Overprovision { percent: (factor * 100.0).ceil() as u32 })
            }
            other => {
                Err(wrong("onClusterLoss", "Migrate, Overprovision or Autoscale", &format!("{other:?}")))
            }
        }
    }
}

fn percent(field: &'static str, typed: Option<i64>, default: u32) -> Result<u32, PolicyError> {
    let Some(typed) = typed else { return Ok(default) };
    let percent = u32::try_from(typed).ok().filter(|percent| *percent <= 100);
    percent.ok_or_else(|| wrong(field, "from 0 to 100", &typed))
}

fn millis(field: &'static str, typed: Option<i64>, default_ms: i64) -> Result<i64, PolicyError> {
    let Some(typed) = typed else { return Ok(default_ms) };
    if (0..=604_800).contains(&typed) {
        return Ok(typed * 1000);
    }
    Err(wrong(field, "from 0 to 604800 (a week)", &typed))
}

fn wrong(field: &'static str, expected: &'static str, found: &dyn ToString) -> PolicyError {
    PolicyError::Wrong { field, expected, found: found.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let shown = match Policy::read(text) {
            Ok(policy) => format!("{:?} surge {}", policy.on_loss, policy.surge_percent),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn policies_are_read_and_mistakes_are_named() {
        check("{}", "Migrate { hold_down_ms: 60000 } surge 25");
        check(r#"{"holdDownSeconds":5,"surgePercent":0}"#, "Migrate { hold_down_ms: 5000 } surge 0");
        check(
            r#"{"onClusterLoss":"Overprovision","factor":1.25}"#,
            "Overprovision { percent: 125 } surge 25",
        );
        check(r#"{"onClusterLoss":"Autoscale"}"#, "Autoscale surge 25");
        check(r#"{"onClusterLoss":"Overprovision","factor":0.5}"#, "factor: must be from 1 to 10, is 0.5");
        check(
            r#"{"onClusterLoss":"Panic"}"#,
            r#"onClusterLoss: must be Migrate, Overprovision or Autoscale, is "Panic""#,
        );
        check(
            r#"{"factor":2}"#,
            "factor: must be left out unless onClusterLoss is Overprovision, is Migrate",
        );
        check(r#"{"patienceSeconds":-1}"#, "patienceSeconds: must be from 0 to 604800 (a week), is -1");
        check(r#"{"surgePercent":101}"#, "surgePercent: must be from 0 to 100, is 101");
    }
}
