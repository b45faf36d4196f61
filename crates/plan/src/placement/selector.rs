//! Which clusters an object asks for: Federation v1's annotation, and ours.

use std::collections::BTreeMap;

use landfall_api::names;
use landfall_api::selector::{Operator, Requirement, Selector};
use serde_json::Value;

/// Federation v1's annotation: a JSON list of `{"key", "operator", "values"}`, all of which must hold.
pub const V1_ANNOTATION: &str = "federation.alpha.kubernetes.io/cluster-selector";

/// Our annotation: a label selector as `kubectl -l` takes it, such as `region in (eu,us),!edge`.
pub const ANNOTATION: &str = "landfall.dev/cluster-selector";

/// The label by which a cluster can be selected by name, though it does not carry it.
pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// What Federation v1 wrote where an object must stay at the federation.
const CONTROL_PLANE_ONLY: &str = "federation.kubernetes.io/federation-control-plane=true";

/// Most requirements in one annotation.
const REQUIREMENTS_MAX: usize = 256;

/// How Federation v1's operators are spelled. `=` and its like take exactly one value.
const OPERATORS: &[(&str, Operator)] = &[
    ("In", Operator::In),
    ("in", Operator::In),
    ("NotIn", Operator::NotIn),
    ("notin", Operator::NotIn),
    ("=", Operator::Equals),
    ("==", Operator::DoubleEquals),
    ("!=", Operator::NotEquals),
    ("Exists", Operator::Exists),
    ("exists", Operator::Exists),
    ("DoesNotExist", Operator::DoesNotExist),
    ("!", Operator::DoesNotExist),
    ("Gt", Operator::GreaterThan),
    ("gt", Operator::GreaterThan),
    ("Lt", Operator::LessThan),
    ("lt", Operator::LessThan),
];

/// Which clusters are asked for: everything said must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    v1: Vec<Requirement>,
    ours: Selector,
}

/// What is wrong with a selection; the text begins with the annotation and the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{annotation}{field}: {problem}")]
pub struct SelectionError {
    /// The annotation.
    pub annotation: &'static str,
    /// Where in it, such as `[1].operator`.
    pub field: String,
    /// What is wrong.
    pub problem: String,
}

impl Default for Selection {
    /// All clusters.
    fn default() -> Self {
        Self { v1: Vec::new(), ours: Selector::everything() }
    }
}

impl Selection {
    /// Reads what a federated object asks for.
    pub fn of(object: &Value) -> Result<Self, SelectionError> {
        let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
        let text = |key: &str| annotations.and_then(|a| a.get(key)).and_then(Value::as_str);
        let mut selection = Self::default();
        if let Some(text) = text(ANNOTATION) {
            let wrong = |problem| SelectionError { annotation: ANNOTATION, field: String::new(), problem };
            selection.ours = Selector::parse(text).map_err(wrong)?;
        }
        match text(V1_ANNOTATION) {
            Some(CONTROL_PLANE_ONLY) => selection.ours = Selector::nothing(),
            Some(text) => selection.v1 = requirements(text)?,
            None => {}
        }
        Ok(selection)
    }

    /// Whether a cluster is asked for.
    pub fn matches(&self, cluster: &str, labels: &BTreeMap<String, String>) -> bool {
        self.unmet(cluster, labels).is_none()
    }

    /// The first requirement that a cluster does not meet.
    pub fn unmet(&self, cluster: &str, labels: &BTreeMap<String, String>) -> Option<String> {
        let lookup = |key: &str| match labels.get(key) {
            None if key == NAME_LABEL => Some(cluster),
            found => found.map(String::as_str),
        };
        if !self.ours.is_everything() && !self.ours.matches_with(lookup) {
            let shown = self.ours.to_string();
            return Some(if shown.is_empty() { "it stays at the federation".to_owned() } else { shown });
        }
        self.v1.iter().find(|r| !r.matches(lookup(&r.key))).map(ToString::to_string)
    }
}

fn requirements(text: &str) -> Result<Vec<Requirement>, SelectionError> {
    let list: Value = serde_json::from_str(text).map_err(|error| wrong("", format!("not JSON: {error}")))?;
    let list = list.as_array().ok_or_else(|| wrong("", "must be a list of {key, operator, values}"))?;
    if list.len() > REQUIREMENTS_MAX {
        return Err(wrong("", format!("at most {REQUIREMENTS_MAX} requirements")));
    }
    list.iter().enumerate().map(|(at, entry)| requirement(&format!("[{at}]"), entry)).collect()
}

fn requirement(path: &str, entry: &Value) -> Result<Requirement, SelectionError> {
    let at = |field: &str| format!("{path}.{field}");
    let entry = entry.as_object().ok_or_else(|| wrong(path, "must be {key, operator, values}"))?;
    // Federation v1 read keys in any case.
    let get =
        |name: &str| entry.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    if let Some(unknown) =
        entry.keys().find(|k| !["key", "operator", "values"].contains(&&*k.to_ascii_lowercase()))
    {
        return Err(wrong(&at(unknown), "no such field; known are key, operator, values"));
    }
    let key = get("key").and_then(Value::as_str).ok_or_else(|| wrong(&at("key"), "must be a text"))?;
    if let Some(problem) = names::qualified_name(key).into_iter().next() {
        return Err(wrong(&at("key"), problem.to_string()));
    }
    let named = get("operator").and_then(Value::as_str).unwrap_or("");
    let Some((_, operator)) = OPERATORS.iter().find(|(name, _)| *name == named) else {
        return Err(wrong(
            &at("operator"),
            format!("{named:?} is no operator; known are In, NotIn, Exists, DoesNotExist, =, ==, !=, Gt, Lt"),
        ));
    };
    let values = values(&at("values"), get("values"), *operator)?;
    Ok(Requirement { key: key.into(), operator: *operator, values: values.into() })
}

fn values(path: &str, values: Option<&Value>, operator: Operator) -> Result<Vec<Box<str>>, SelectionError> {
    let mut texts: Vec<Box<str>> = Vec::new();
    for (at, value) in values.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let text = value.as_str().ok_or_else(|| wrong(&format!("{path}[{at}]"), "must be a text"))?;
        if let Some(problem) = names::label_value(text).into_iter().next() {
            return Err(wrong(&format!("{path}[{at}]"), problem.to_string()));
        }
        texts.push(text.into());
    }
    texts.sort_unstable();
    texts.dedup();
    let number = texts.first().is_some_and(|text| text.parse::<i64>().is_ok());
    let problem = match operator {
        Operator::In | Operator::NotIn => texts.is_empty().then_some("must not be empty"),
        Operator::Equals | Operator::DoubleEquals | Operator::NotEquals => {
            (texts.len() != 1).then_some("must be exactly one")
        }
        Operator::Exists | Operator::DoesNotExist => (!texts.is_empty()).then_some("must be empty"),
        Operator::GreaterThan | Operator::LessThan => {
            (texts.len() != 1 || !number).then_some("must be exactly one whole number")
        }
    };
    problem.map_or(Ok(texts), |problem| Err(wrong(path, problem)))
}

fn wrong(field: &str, problem: impl Into<String>) -> SelectionError {
    SelectionError { annotation: V1_ANNOTATION, field: field.to_owned(), problem: problem.into() }
}
