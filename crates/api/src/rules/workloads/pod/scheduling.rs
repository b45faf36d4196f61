//! Tolerations, spreading and gates.

use std::collections::HashSet;

use serde_json::Value;

use super::super::check;
use super::super::read::{at, has, int, items, opt_int, some, text, unsupported};
use super::affinity::label_keys;
use crate::field::{ErrorList, Path};

/// Readiness gates and scheduling gates.
pub(super) fn gates(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    for (index, gate) in items(spec, "readinessGates").iter().enumerate() {
        let path = path.child("readinessGates");
        check::qualified_name(errors, &path.index(index).child("conditionType"), text(gate, "conditionType"));
    }
    let mut seen = HashSet::new();
    for (index, gate) in items(spec, "schedulingGates").iter().enumerate() {
        let path = path.child("schedulingGates");
        let path = path.index(index);
        check::qualified_name(errors, &path, text(gate, "name"));
        if !seen.insert(text(gate, "name")) {
            errors.duplicate(&path, text(gate, "name"));
        }
    }
}

/// `tolerations`.
pub(super) fn tolerations(errors: &mut ErrorList, path: &Path<'_>, tolerations: &[Value]) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
        if !key.is_empty() {
            check::label_name(errors, &path.child("key"), key);
        } else if operator != "Exists" {
            let why =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&path.child("operator"), operator, why);
        }
        if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&path.child("effect"), effect, why);
        }
        match operator {
            "Equal" | "" => {
                let messages = check::label_value_messages(value);
                if !messages.is_empty() {
                    errors.invalid(&path.child("operator"), value, messages.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                let why = "value must be empty when `operator` is 'Exists'";
                errors.invalid(&path.child("operator"), value, why);
            }
            "Exists" => {}
            // Comparing operators are known but switched off by default.
            "Lt" | "Gt" => {
                unsupported(errors, &path.child("operator"), operator, &["Equal", "Exists", "Lt", "Gt"]);
            }
            other => unsupported(errors, &path.child("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            taint_effect(errors, &path.child("effect"), effect);
        }
    }
}

/// One of the three effects of a taint.
pub(in super::super) fn taint_effect(errors: &mut ErrorList, path: &Path<'_>, effect: &str) {
    let allowed = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if !allowed.contains(&effect) {
        unsupported(errors, path, effect, &allowed);
    }
}

/// `topologySpreadConstraints`.
pub(super) fn spread(errors: &mut ErrorList, path: &Path<'_>, spec: &Value) {
    const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
    let constraints = items(spec, "topologySpreadConstraints");
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        let (topology, action) = (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
        positive(errors, &path.child("maxSkew"), int(constraint, "maxSkew"));
        if topology.is_empty() {
            errors.required(&path.child("topologyKey"), "can not be empty");
        }
        if !ACTIONS.contains(&action) {
            unsupported(errors, &path.child("whenUnsatisfiable"), action, &ACTIONS);
        }
        let again = constraints.iter().skip(index + 1).any(|other| {
            text(other, "topologyKey") == topology && text(other, "whenUnsatisfiable") == action
        });
        if again {
            let value = format!("{{{topology}, {action}}}");
            errors.duplicate(&path.child("{topologyKey, whenUnsatisfiable}"), value);
        }
        if let Some(domains) = opt_int(constraint, "minDomains") {
            let path = path.child("minDomains");
            positive(errors, &path, domains);
            if action != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.invalid(&path, domains, why);
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            let allowed = ["Honor", "Ignore"];
            if let Some(policy) = some(constraint, field).and_then(Value::as_str)
                && !allowed.contains(&policy)
            {
                unsupported(errors, &path.child(field), policy, &allowed);
            }
        }
        label_keys(errors, &path, constraint);
        if has(constraint, "labelSelector") {
            check::selector(errors, &path.child("labelSelector"), at(constraint, "labelSelector"));
        }
    }
}

fn positive(errors: &mut ErrorList, path: &Path<'_>, value: i64) {
    if value <= 0 {
        errors.invalid(path, value, "must be greater than zero");
    }
}
