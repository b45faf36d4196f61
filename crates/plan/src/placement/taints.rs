//! Taints of clusters, and what tolerates them.

use landfall_api::landfall::{Taint, TaintEffect};
use serde::Deserialize;
use serde_json::Value;

/// The annotation with a federated object's tolerations: a JSON list, each as in a pod's `spec.tolerations`.
///
/// It is not the pods' own tolerations: those are for nodes.
pub const ANNOTATION: &str = "landfall.dev/tolerations";

/// Most tolerations in one annotation.
const TOLERATIONS_MAX: usize = 256;

/// What tolerates a taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Toleration {
    /// The taint's key; empty with `Exists` tolerates every key.
    pub key: String,
    /// How the value is compared.
    pub operator: Comparison,
    /// The taint's value, for `Equal`.
    pub value: String,
    /// The taint's effect; every effect when not given.
    pub effect: Option<Effect>,
}

/// How a toleration compares values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Comparison {
    /// The same value.
    #[default]
    Equal,
    /// Any value.
    Exists,
}

/// A taint's effect, as tolerations name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Effect {
    /// Nothing new is placed.
    NoSchedule,
    /// Others are preferred.
    PreferNoSchedule,
    /// What is there is moved away.
    NoExecute,
}

/// What is wrong with tolerations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{ANNOTATION}: {0}")]
pub struct TolerationError(pub String);

/// Reads the tolerations a federated object carries.
pub fn tolerations(object: &Value) -> Result<Vec<Toleration>, TolerationError> {
    let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let Some(text) = annotations.and_then(|a| a.get(ANNOTATION)).and_then(Value::as_str) else {
        return Ok(Vec::new());
    };
    let list: Vec<Toleration> =
        serde_json::from_str(text).map_err(|error| TolerationError(error.to_string()))?;
    if list.len() > TOLERATIONS_MAX {
        return Err(TolerationError(format!("at most {TOLERATIONS_MAX} tolerations")));
    }
    match list.iter().position(|t| t.key.is_empty() && t.operator == Comparison::Equal) {
        Some(at) => Err(TolerationError(format!("[{at}].operator: must be Exists when key is empty"))),
        None => Ok(list),
    }
}

/// The strongest taint with an effect that nothing tolerates.
pub(super) fn untolerated<'a>(
    taints: &'a [Taint],
    with: &[Toleration],
    effect: TaintEffect,
) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect == effect)
        .find(|taint| !with.iter().any(|t| tolerates(t, taint)))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = match taint.effect {
        TaintEffect::NoSchedule => Effect::NoSchedule,
        TaintEffect::PreferNoSchedule => Effect::PreferNoSchedule,
        TaintEffect::NoExecute => Effect::NoExecute,
    };
    let value = match toleration.operator {
        Comparison::Equal => toleration.value == taint.value,
        Comparison::Exists => true,
    };
    toleration.effect.is_none_or(|named| named == effect)
        && (toleration.key.is_empty() || toleration.key == taint.key)
        && value
}
