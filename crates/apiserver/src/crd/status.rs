//! What the server says about a definition: accepted names and conditions.

use std::collections::BTreeSet;

use landfall_api::{Kind, meta};
use serde_json::{Value, json};

use super::schema::{list, texts};
use super::{flag, text};

/// The annotation that definitions of protected groups need.
pub const APPROVED: &str = "api-approved.kubernetes.io";

/// The names in one group that others hold.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// Plurals, singulars and short names.
    pub resources: BTreeSet<String>,
    /// Kinds and list kinds.
    pub kinds: BTreeSet<String>,
}

impl Taken {
    /// What the other definitions of a definition's group and the built-in kinds of that group hold.
    pub fn around<'a>(
        crd: &Value,
        others: impl Iterator<Item = &'a Value>,
        builtin: impl Iterator<Item = &'a Kind>,
    ) -> Self {
        let group = crd.get("spec").map_or("", |s| text(s, "group"));
        let mut taken = Self::default();
        for other in others.filter(|other| meta::name(other) != meta::name(crd)) {
            if other.get("spec").map_or("", |s| text(s, "group")) != group {
                continue;
            }
            if let Some(names) = other.get("status").and_then(|s| s.get("acceptedNames")) {
                taken.add(names);
            }
        }
        for kind in builtin.filter(|kind| kind.group == group) {
            let names = [&kind.plural, &kind.singular].into_iter().chain(&kind.short_names);
            taken.resources.extend(names.map(ToString::to_string));
            taken.kinds.extend([kind.kind.to_string(), kind.list_kind.to_string()]);
        }
        taken
    }

    fn add(&mut self, names: &Value) {
        let one = |key: &str| Some(text(names, key)).filter(|t| !t.is_empty()).map(str::to_owned);
        self.resources
            .extend(one("plural").into_iter().chain(one("singular")).chain(texts(names, "shortNames")));
        self.kinds.extend(one("kind").into_iter().chain(one("listKind")));
    }
}

/// The status of a definition, given the names that others hold. `now` is the time in RFC 3339.
///
/// Conditions keep their time while they stay as they are; calling again with the same input changes nothing.
pub fn status_for(crd: &Value, taken: &Taken, now: &str) -> Value {
    let mut out =
        json!({"status": crd.get("status").filter(|s| s.is_object()).cloned().unwrap_or_else(|| json!({}))});
    let null = Value::Null;
    let wanted = crd.pointer("/spec/names").unwrap_or(&null);
    let held = crd.pointer("/status/acceptedNames").unwrap_or(&null);
    let (accepted, conflict) = accept(wanted, held, taken);
    let names_ok = conflict.is_none();
    let (reason, message) = conflict.unwrap_or_else(|| ("NoConflicts", "no conflicts found".into()));
    set_condition(
        &mut out,
        "NamesAccepted",
        if names_ok { "True" } else { "False" },
        (reason, &message),
        now,
    );
    if !is_true(crd, "Established") {
        let (status, why) = if names_ok {
            ("True", ("InitialNamesAccepted", "the initial names have been accepted"))
        } else {
            ("False", ("NotAccepted", "not all names are accepted"))
        };
        set_condition(&mut out, "Established", status, why, now);
    }
    if let Some((status, reason, message)) = policy(crd) {
        set_condition(&mut out, "KubernetesAPIApprovalPolicyConformant", status, (reason, &message), now);
    }
    let status = meta::child_mut(&mut out, "status");
    status.insert("acceptedNames".into(), accepted);
    let mut status = Value::Object(std::mem::take(status));
    if let Some(version) = storage_version(crd) {
        add_stored(&mut status, &version);
    }
    status
}

/// A definition with the status it should have; none when it has it.
pub fn settle(crd: &Value, taken: &Taken, now: &str) -> Option<Value> {
    let status = status_for(crd, taken, now);
    if crd.get("status") == Some(&status) {
        return None;
    }
    let mut settled = crd.clone();
    settled.as_object_mut()?.insert("status".into(), status);
    Some(settled)
}

/// Whether the status is right whatever others hold: every wanted name is accepted, and names once held stay.
pub fn is_settled(crd: &Value) -> bool {
    settle(crd, &Taken::default(), "").is_none()
}

/// The names that may be used, and the last conflict if there is one.
fn accept(wanted: &Value, held: &Value, taken: &Taken) -> (Value, Option<(&'static str, String)>) {
    let mut names = held.as_object().cloned().unwrap_or_default();
    let mut conflict = None;
    for (key, all, reason) in [
        ("plural", &taken.resources, "PluralConflict"),
        ("singular", &taken.resources, "SingularConflict"),
        ("shortNames", &taken.resources, "ShortNamesConflict"),
        ("kind", &taken.kinds, "KindConflict"),
        ("listKind", &taken.kinds, "ListKindConflict"),
    ] {
        let of = |names: &Value| match names.get(key) {
            Some(Value::String(name)) => vec![name.clone()],
            _ => texts(names, key),
        };
        let (asked, ours) = (of(wanted), of(held));
        let used: Vec<String> = asked
            .iter()
            .filter(|name| !ours.contains(name) && all.contains(*name))
            .map(|name| format!("{name:?} is already in use"))
            .collect();
        match used.as_slice() {
            [] => match wanted.get(key).filter(|v| !v.is_null()) {
                Some(value) => drop(names.insert(key.into(), value.clone())),
                None => drop(names.remove(key)),
            },
            [one] => conflict = Some((reason, one.clone())),
            many => conflict = Some((reason, format!("[{}]", many.join(", ")))),
        }
    }
    match wanted.get("categories").filter(|v| !v.is_null()) {
        Some(categories) => drop(names.insert("categories".into(), categories.clone())),
        None => drop(names.remove("categories")),
    }
    (Value::Object(names), conflict)
}

/// How far a protected group has been approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// The annotation says neither a URL nor why not.
    Invalid,
    /// By the URL in the annotation.
    Approved,
    /// Knowingly not.
    Bypassed,
    /// No annotation.
    Missing,
}

/// Whether a group belongs to Kubernetes itself.
pub fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|own| group == *own || group.strip_suffix(own).is_some_and(|head| head.ends_with('.')))
}

/// What the approval annotation says, and the sentence for it.
pub fn approval(crd: &Value) -> (Approval, String) {
    let said = meta::annotation(crd, APPROVED).unwrap_or("");
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let host = said.split_once("://").filter(|(scheme, rest)| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or("");
        !host.is_empty() && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
    });
    if said.is_empty() {
        let sentence = format!("protected groups must have approval annotation {APPROVED:?}, {see}");
        (Approval::Missing, sentence)
    } else if said.starts_with("unapproved") {
        (Approval::Bypassed, format!("not approved: {said:?}"))
    } else if host.is_some() && super::formats::matches("uri", said) {
        (Approval::Approved, format!("approved in {said}"))
    } else {
        let sentence = format!(
            "protected groups must have approval annotation {APPROVED:?} with either a URL or a reason starting with \"unapproved\", {see}"
        );
        (Approval::Invalid, sentence)
    }
}

fn policy(crd: &Value) -> Option<(&'static str, &'static str, String)> {
    if !is_protected(crd.get("spec").map_or("", |s| text(s, "group"))) {
        return None;
    }
    let (state, message) = approval(crd);
    Some(match state {
        Approval::Invalid => ("False", "InvalidAnnotation", message),
        Approval::Missing => ("False", "MissingAnnotation", message),
        Approval::Approved => ("True", "ApprovedAnnotation", message),
        Approval::Bypassed => ("False", "UnapprovedAnnotation", message),
    })
}

/// The version objects are stored in.
pub fn storage_version(crd: &Value) -> Option<String> {
    let versions = list(crd.get("spec")?, "versions");
    versions.iter().find(|v| flag(v, "storage")).map(|v| text(v, "name").to_owned())
}

/// Adds a version to `storedVersions`, once.
pub fn add_stored(status: &mut Value, version: &str) {
    let mut stored = texts(status, "storedVersions");
    if !stored.iter().any(|s| s == version) {
        stored.push(version.to_owned());
    }
    if let Some(map) = status.as_object_mut() {
        map.insert("storedVersions".into(), stored.into());
    }
}

/// Whether a condition holds.
pub fn is_true(crd: &Value, ty: &str) -> bool {
    let conditions = crd.get("status").map_or(&[][..], |s| list(s, "conditions"));
    conditions.iter().any(|c| text(c, "type") == ty && text(c, "status") == "True")
}

/// Sets a condition under `status`; its time moves only when its status does. `why`: reason and message.
pub fn set_condition(object: &mut Value, ty: &str, status: &str, why: (&str, &str), now: &str) {
    let holder = meta::child_mut(object, "status");
    let conditions = holder.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    let known = conditions.iter_mut().find(|c| text(c, "type") == ty);
    let since = known
        .as_ref()
        .filter(|c| text(c, "status") == status)
        .map(|c| text(c, "lastTransitionTime").to_owned());
    let since = since.filter(|s| !s.is_empty()).unwrap_or_else(|| now.to_owned());
    let (reason, message) = why;
    let condition = json!({"type": ty, "status": status, "lastTransitionTime": since, "reason": reason, "message": message});
    match known {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(name: &str, names: &Value) -> Value {
        json!({"metadata": {"name": name}, "spec": {"group": "ex.dev", "names": names,
            "versions": [{"name": "v1", "storage": true}]}})
    }

    #[test]
    fn free_names_are_accepted_and_stay() {
        let mut widgets = crd("widgets.ex.dev", &json!({"plural": "widgets", "kind": "Widget"}));
        let status = status_for(&widgets, &Taken::default(), "t0");
        assert_eq!(status["acceptedNames"], json!({"plural": "widgets", "kind": "Widget"}));
        assert_eq!(status["storedVersions"], json!(["v1"]));
        widgets["status"] = status.clone();
        assert!(is_true(&widgets, "Established") && is_true(&widgets, "NamesAccepted"));
        assert_eq!(status_for(&widgets, &Taken::default(), "t1"), status, "a second look changes nothing");
    }

    #[test]
    fn names_of_others_are_refused() {
        let mut first = crd("a.ex.dev", &json!({"plural": "a", "kind": "A", "shortNames": ["x"]}));
        first["status"] = status_for(&first, &Taken::default(), "t0");
        let second = crd("b.ex.dev", &json!({"plural": "b", "kind": "A", "shortNames": ["x"]}));
        let all = [first, second.clone()];
        let taken = Taken::around(&second, all.iter(), std::iter::empty());
        let status = status_for(&second, &taken, "t0");
        assert_eq!(status["acceptedNames"], json!({"plural": "b"}));
        let conditions = &status["conditions"];
        assert!(is_settled(&all[0]) && !is_settled(&second));
        assert_eq!(conditions[0]["reason"], "KindConflict");
        assert_eq!(conditions[0]["message"], "\"A\" is already in use");
        assert_eq!(
            (&conditions[1]["status"], &conditions[1]["reason"]),
            (&json!("False"), &json!("NotAccepted"))
        );
    }
}
