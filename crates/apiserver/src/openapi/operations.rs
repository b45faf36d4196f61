//! Operations: one HTTP method on one path, with its body and answers.

use landfall_api::Kind;
use serde_json::{Map, Value, json};

use super::components::{META, reference};
use super::parameters;

/// What a method does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Reads one object.
    Get,
    /// Lists or watches.
    List,
    /// Creates.
    Post,
    /// Replaces.
    Put,
    /// Changes a part.
    Patch,
    /// Deletes one.
    Delete,
    /// Deletes many.
    DeleteCollection,
}

/// What an operation is about.
pub(super) struct Target<'a> {
    /// The kind whose path it is.
    pub(super) kind: &'a Kind,
    /// The subresource, or empty.
    pub(super) sub: &'static str,
    /// Group, version and kind of what is sent and answered.
    pub(super) of: (&'a str, &'a str, &'a str),
    /// The component of what is sent and answered.
    pub(super) component: &'a str,
    /// Whether the path lists objects of all namespaces.
    pub(super) everywhere: bool,
    /// Whether the path has a namespace.
    pub(super) namespaced: bool,
}

impl Action {
    /// The HTTP method, in lower case.
    pub(super) const fn method(self) -> &'static str {
        match self {
            Self::Get | Self::List => "get",
            Self::Post => "post",
            Self::Put => "put",
            Self::Patch => "patch",
            Self::Delete | Self::DeleteCollection => "delete",
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Post => "post",
            Self::Put => "put",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    fn describe(self, target: &Target<'_>) -> String {
        let kind = &target.kind.kind;
        let what = if target.sub.is_empty() { "the".to_owned() } else { format!("{} of the", target.sub) };
        match self {
            Self::Get => format!("read {what} specified {kind}"),
            Self::List => format!("list or watch objects of kind {kind}"),
            Self::Post if target.sub.is_empty() => format!("create a {kind}"),
            Self::Post => format!("create {} of a {kind}", target.sub),
            Self::Put => format!("replace {what} specified {kind}"),
            Self::Patch => format!("partially update {what} specified {kind}"),
            Self::Delete => format!("delete a {kind}"),
            Self::DeleteCollection => format!("delete collection of {kind}"),
        }
    }

    fn parameters(self) -> Vec<Value> {
        parameters::query(match self {
            Self::Get => parameters::NONE,
            Self::List => parameters::LIST,
            Self::Post | Self::Put => parameters::WRITE,
            Self::Patch => parameters::PATCH,
            Self::Delete => parameters::DELETE,
            Self::DeleteCollection => parameters::DELETE_MANY,
        })
    }
}

/// The operation of an action on a target.
pub(super) fn of(action: Action, target: &Target<'_>) -> Value {
    let (group, version, kind) = target.of;
    let mut operation = json!({
        "tags": [tag(target.kind)],
        "description": action.describe(target),
        "operationId": operation_id(action, target),
        "responses": responses(action, target),
        "x-kubernetes-action": action.word(),
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
    });
    let parameters = action.parameters();
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    if let Some(body) = body(action, target) {
        operation["requestBody"] = body;
    }
    operation
}

fn body(action: Action, target: &Target<'_>) -> Option<Value> {
    const PATCHES: [&str; 4] = [
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ];
    match action {
        Action::Get | Action::List => None,
        Action::Post | Action::Put => {
            Some(json!({"content": {"*/*": {"schema": reference(target.component)}}, "required": true}))
        }
        Action::Patch => {
            let accepted =
                PATCHES.iter().filter(|patch| target.kind.strategic || !patch.contains("strategic"));
            let schema = json!({"schema": reference(&format!("{META}.Patch"))});
            let content: Map<String, Value> =
                accepted.map(|patch| ((*patch).to_owned(), schema.clone())).collect();
            Some(json!({"content": content, "required": true}))
        }
        Action::Delete | Action::DeleteCollection => {
            let schema = reference(&format!("{META}.DeleteOptions"));
            Some(json!({"content": {"*/*": {"schema": schema}}}))
        }
    }
}

fn responses(action: Action, target: &Target<'_>) -> Value {
    let codes: &[(&str, &str)] = match action {
        Action::Get | Action::List | Action::DeleteCollection => &[("200", "OK")],
        Action::Put | Action::Patch => &[("200", "OK"), ("201", "Created")],
        Action::Post => &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
        Action::Delete => &[("200", "OK"), ("202", "Accepted")],
    };
    let answer = match action {
        Action::Delete | Action::DeleteCollection => format!("{META}.Status"),
        Action::List => super::components::list_name(target.component),
        Action::Get | Action::Post | Action::Put | Action::Patch => target.component.to_owned(),
    };
    let schema = json!({"schema": reference(&answer)});
    let mut content = json!({"application/json": schema});
    if action == Action::List {
        content["application/json;stream=watch"] = schema;
    }
    let mut responses: Map<String, Value> = codes
        .iter()
        .map(|(code, word)| ((*code).to_owned(), json!({"description": word, "content": content})))
        .collect();
    responses.insert("401".into(), json!({"description": "Unauthorized"}));
    Value::Object(responses)
}

/// `rbacAuthorization_v1`.
fn tag(kind: &Kind) -> String {
    let group = group_words(&kind.group);
    let mut letters = group.chars();
    let head = letters.next().map(|first| first.to_ascii_lowercase()).into_iter();
    format!("{}_{}", head.chain(letters).collect::<String>(), kind.version)
}

/// `readAppsV1NamespacedDeploymentScale`.
fn operation_id(action: Action, target: &Target<'_>) -> String {
    let kind = target.kind;
    let verb = match action {
        Action::Get => "read",
        Action::List => "list",
        Action::Post => "create",
        Action::Put => "replace",
        Action::Patch => "patch",
        Action::Delete | Action::DeleteCollection => "delete",
    };
    let (group, version) = (group_words(&kind.group), capital(&kind.version));
    let collection = if action == Action::DeleteCollection { "Collection" } else { "" };
    let scope = if target.namespaced { "Namespaced" } else { "" };
    let (sub, all) = (capital(target.sub), if target.everywhere { "ForAllNamespaces" } else { "" });
    format!("{verb}{group}{version}{collection}{scope}{}{sub}{all}", kind.kind)
}

/// `RbacAuthorization` for `rbac.authorization.k8s.io`, `Core` for the core group.
fn group_words(group: &str) -> String {
    if group.is_empty() {
        return "Core".into();
    }
    group.strip_suffix(".k8s.io").unwrap_or(group).split(['.', '-']).map(capital).collect()
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}
