//! Paths: where a kind is served and what can be done there.

use landfall_api::{Kind, Scope};
use serde_json::{Map, Value, json};

use super::components::{Components, META};
use super::operations::{self, Action, Target};
use super::{custom, parameters, root};

/// Adds the paths of one kind, and the components that only paths refer to.
pub(super) fn add(paths: &mut Map<String, Value>, components: &mut Components, kind: &Kind) {
    let component = match &*kind.schema.get().name {
        "" => custom::name(kind),
        name => name.to_owned(),
    };
    let base = format!("/{}", root(&kind.group, &kind.version));
    let namespaced = kind.scope == Scope::Namespaced;
    let collection = if namespaced {
        format!("{base}/namespaces/{{namespace}}/{}", kind.plural)
    } else {
        format!("{base}/{}", kind.plural)
    };
    let own = (&*kind.group, &*kind.version, &*kind.kind);
    let target = Target { kind, sub: "", of: own, component: &component, everywhere: false, namespaced };
    let has = |verb: &str| kind.verbs.contains(&verb);
    if kind.verbs.is_empty() {
        put(paths, &collection, &target, &[Action::Post]);
        return;
    }
    shared(components);
    if namespaced && has("list") {
        let everywhere = Target { everywhere: true, namespaced: false, ..target };
        put(paths, &format!("{base}/{}", kind.plural), &everywhere, &[Action::List]);
    }
    put(
        paths,
        &collection,
        &target,
        &served(
            &has,
            &[
                ("list", Action::List),
                ("create", Action::Post),
                ("deletecollection", Action::DeleteCollection),
            ],
        ),
    );
    let item = format!("{collection}/{{name}}");
    put(
        paths,
        &item,
        &target,
        &served(
            &has,
            &[
                ("get", Action::Get),
                ("update", Action::Put),
                ("delete", Action::Delete),
                ("patch", Action::Patch),
            ],
        ),
    );
    subresources(paths, components, &item, &target);
}

fn subresources(
    paths: &mut Map<String, Value>,
    components: &mut Components,
    item: &str,
    target: &Target<'_>,
) {
    const CHANGE: [Action; 3] = [Action::Get, Action::Put, Action::Patch];
    let sub = &target.kind.sub;
    let own = |name: &'static str| Target { sub: name, ..*target };
    if sub.status {
        put(paths, &format!("{item}/status"), &own("status"), &CHANGE);
    }
    if sub.approval {
        put(paths, &format!("{item}/approval"), &own("approval"), &CHANGE);
    }
    if sub.finalize {
        put(paths, &format!("{item}/finalize"), &own("finalize"), &[Action::Put]);
    }
    if sub.scale.is_some() {
        let component = components.add_named("io.k8s.api.autoscaling.v1.Scale");
        components.mark(&component, "autoscaling", "v1", "Scale");
        let of = ("autoscaling", "v1", "Scale");
        put(paths, &format!("{item}/scale"), &Target { of, component: &component, ..own("scale") }, &CHANGE);
    }
    if sub.token {
        let component = components.add_named("io.k8s.api.authentication.v1.TokenRequest");
        components.mark(&component, "authentication.k8s.io", "v1", "TokenRequest");
        let of = ("authentication.k8s.io", "v1", "TokenRequest");
        put(
            paths,
            &format!("{item}/token"),
            &Target { of, component: &component, ..own("token") },
            &[Action::Post],
        );
    }
}

fn served(has: &dyn Fn(&str) -> bool, actions: &[(&str, Action)]) -> Vec<Action> {
    actions.iter().filter(|(verb, _)| has(verb)).map(|(_, action)| *action).collect()
}

fn put(paths: &mut Map<String, Value>, path: &str, target: &Target<'_>, actions: &[Action]) {
    if actions.is_empty() {
        return;
    }
    let mut item = Map::new();
    for action in actions {
        item.insert(action.method().into(), operations::of(*action, target));
    }
    item.insert("parameters".into(), json!(parameters::of_path(path, target.of.2)));
    paths.insert(path.to_owned(), Value::Object(item));
}

/// Components that operations of every kind refer to.
fn shared(components: &mut Components) {
    components.add_named(&format!("{META}.DeleteOptions"));
    components.add_named(&format!("{META}.Status"));
    let about = "A patch of any of the accepted media types.";
    components.insert(&format!("{META}.Patch"), json!({"description": about, "type": "object"}));
}
