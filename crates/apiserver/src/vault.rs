//! The vault: the Secrets with members' credentials are read by the hub and its administrators, whatever roles say.
//!
//! Roles that let people read Secrets everywhere are common (`edit`, `admin`, backup programs, secret managers), and none of
//! those who hold them means to hold every member cluster. So what stands in the namespace `landfall-system` is not given out
//! by roles: `get`, `list`, `watch`, and `patch` (a patch answers with the whole object, and can copy within it) are for members of
//! `system:masters` alone. Lists and watches over all namespaces leave it out. Roles may still let somebody create, replace and
//! delete there: an operator who is no administrator joins clusters.

use landfall_api::Kind;
use landfall_api::landfall::SYSTEM_NAMESPACE;

use crate::authn::{MASTERS, User};
use crate::authz::{Attributes, Verdict};
use crate::keys;

const PLURAL: &str = "secrets";

/// What one can do without being told what is there.
const BLIND: [&str; 3] = ["create", "update", "delete"];

/// Says no to those who would read it; none when roles decide.
pub fn authorize(asked: &Attributes<'_>) -> Option<Verdict> {
    let inside = asked.is_resource
        && asked.group.is_empty()
        && matches!(asked.resource, PLURAL | "*")
        && asked.namespace == SYSTEM_NAMESPACE;
    if !inside || asked.user.in_group(MASTERS) || asked.resource == PLURAL && BLIND.contains(&asked.verb) {
        return None;
    }
    Some(Verdict::Denied(format!(
        "the credentials of member clusters in {SYSTEM_NAMESPACE} are read by the hub and by the group {MASTERS} only"
    )))
}

/// Where keys begin that are not shown to a user who lists or watches objects of a kind everywhere.
pub fn hidden(kind: &Kind, user: &User) -> Option<String> {
    let secrets = kind.group.is_empty() && kind.plural == PLURAL;
    (secrets && !user.in_group(MASTERS)).then(|| keys::namespace("", PLURAL, SYSTEM_NAMESPACE))
}

/// Whether an object of a kind in a namespace is not to be shown to a user, not even when it is written or deleted.
pub fn hides(kind: &Kind, namespace: &str, user: &User) -> bool {
    namespace == SYSTEM_NAMESPACE && hidden(kind, user).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_administrators_read_and_others_write_blindly() {
        let user = |group: &str| User { name: "u".into(), groups: vec![group.into()], ..User::default() };
        let check = |group: &str, verb: &str, what: (&str, &str, &str), denied: bool| {
            let (resource, namespace, name) = what;
            let user = user(group);
            let verdict = authorize(&Attributes::resource(&user, verb, "", resource, namespace, name));
            assert_eq!(verdict.is_some(), denied, "{group} {verb} {what:?}");
            assert!(verdict.is_none_or(|verdict| !verdict.allowed()));
        };
        let inside = ("secrets", SYSTEM_NAMESPACE, "cluster-east");
        for verb in ["get", "list", "watch", "patch", "deletecollection", "*"] {
            check("people", verb, inside, true);
            check(MASTERS, verb, inside, false);
            check("people", verb, ("secrets", "shop", "s"), false);
            check("people", verb, ("configmaps", SYSTEM_NAMESPACE, "owed-east"), false);
        }
        for verb in BLIND {
            check("people", verb, inside, false);
        }
        check("people", "get", ("*", SYSTEM_NAMESPACE, ""), true);
    }
}
