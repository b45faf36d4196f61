//! Whom a change concerns, so that a change of one object makes a controller look at a few others and not at all of them.
//!
//! It says who *may* be concerned: of those it names too many of, a controller decides the same as before.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::view::{Known, View, controller_of};

/// How far up owners are looked for: a pod's ReplicaSet, and its Deployment.
const OWNERS_MAX: usize = 3;

/// Who may be concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concern {
    /// Everybody: nothing was looked at yet, or time alone may change a decision.
    Everybody,
    /// Those near what has changed.
    Near(Touched),
}

/// What has changed since a controller last decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Namespace and name of what changed and of its owners, of whatever kind.
    names: BTreeSet<(Box<str>, Box<str>)>,
    /// Namespaces where something changed that anybody's selector may match.
    namespaces: BTreeSet<Box<str>>,
}

impl Concern {
    /// Nobody.
    pub fn nobody() -> Self {
        Self::Near(Touched::default())
    }

    /// Takes in that an object changed; it is in the view as it was before, or as it is now.
    pub fn touch(&mut self, known: Known, view: &View, namespace: &str, name: &str) {
        let Self::Near(touched) = self else { return };
        if namespace.is_empty() {
            // A node or a namespace may concern whoever is in it.
            *self = Self::Everybody;
            return;
        }
        touched.names.insert((namespace.into(), name.into()));
        let Some(object) = view.get(known, namespace, name) else { return };
        if is_selected(known, object) {
            touched.namespaces.insert(namespace.into());
        }
        let mut at: Option<&Value> = Some(object);
        for _ in 0..OWNERS_MAX {
            let Some(owner) = at.and_then(controller_of) else { break };
            let of = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or("");
            touched.names.insert((namespace.into(), of("name").into()));
            let kind = Known::named(of("kind"));
            at = kind.and_then(|kind| view.get(kind, namespace, of("name"))).map(|object| &**object);
        }
    }

    /// Takes in that an object goes, before it is gone from the view.
    pub fn lose(&mut self, known: Known, view: &View, namespace: &str, name: &str) {
        self.touch(known, view, namespace, name);
        if known == Known::Service {
            // Its address is free for others.
            *self = Self::Everybody;
        }
    }

    /// The objects of a kind that may be concerned.
    pub fn of<'a>(&self, known: Known, view: &'a View) -> Vec<&'a Arc<Value>> {
        let Self::Near(touched) = self else { return view.all(known).collect() };
        let named = touched.names.iter().filter(|(namespace, _)| !touched.namespaces.contains(namespace));
        let mut all: Vec<_> =
            named.filter_map(|(namespace, name)| view.get(known, namespace, name)).collect();
        for namespace in &touched.namespaces {
            all.extend(view.all_within(known, namespace));
        }
        all
    }
}

/// Whether others may select the object: Services their pods, controllers what has no owner.
fn is_selected(known: Known, object: &Value) -> bool {
    let may_be_adopted = matches!(known, Known::ReplicaSet | Known::ControllerRevision | Known::Job);
    known == Known::Pod || (may_be_adopted && controller_of(object).is_none())
}

#[cfg(test)]
mod tests {
    use landfall_api::meta;
    use serde_json::json;

    use super::*;

    fn object(name: &str, owner: Option<(&str, &str)>) -> Value {
        let reference = |(kind, name)| json!([{"kind": kind, "name": name, "uid": name, "controller": true}]);
        json!({"metadata": {"name": name, "namespace": "a", "uid": name, "ownerReferences": owner.map(reference)}})
    }

    fn names(concern: &Concern, known: Known, view: &View) -> String {
        concern.of(known, view).iter().map(|object| meta::name(object)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_change_concerns_what_is_near() {
        let mut view = View::default();
        for name in ["web", "db"] {
            view.put(Known::Deployment, object(name, None));
            view.put(Known::Service, object(name, None));
            view.put(Known::ReplicaSet, object(&format!("{name}-1"), Some(("Deployment", name))));
            view.put(Known::Pod, object(&format!("{name}-1-x"), Some(("ReplicaSet", &format!("{name}-1")))));
        }
        view.put(Known::ReplicaSet, object("orphan", None));
        for (known, name, expected) in [
            (Known::Deployment, "web", ["web", "", "web"]),
            (Known::ReplicaSet, "web-1", ["web", "web-1", "web"]),
            (Known::ReplicaSet, "orphan", ["db web", "db-1 orphan web-1", "db web"]),
            (Known::Pod, "db-1-x", ["db web", "db-1 orphan web-1", "db web"]),
            (Known::Service, "db", ["db", "", "db"]),
        ] {
            let mut concern = Concern::nobody();
            concern.touch(known, &view, "a", name);
            let kinds = [Known::Deployment, Known::ReplicaSet, Known::Service];
            assert_eq!(kinds.map(|kind| names(&concern, kind, &view)), expected, "{known:?} {name}");
        }
        let mut gone = Concern::nobody();
        gone.lose(Known::Service, &view, "a", "db");
        assert_eq!(gone, Concern::Everybody);
        let mut node = Concern::nobody();
        node.touch(Known::Node, &view, "", "n");
        assert_eq!(names(&node, Known::Service, &view), "db web");
    }
}
