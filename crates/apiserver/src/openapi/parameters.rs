//! Query and path parameters, each with its type and what it does.

use serde_json::{Value, json};

/// A query parameter: name, type, meaning.
type Parameter = (&'static str, &'static str, &'static str);

const DRY_RUN: Parameter = ("dryRun", "string", "`All`: check the request fully, but change nothing.");
const FIELD_MANAGER: Parameter = (
    "fieldManager",
    "string",
    "Who makes the change: owner of the fields it sets. At most 128 printable characters.",
);
const FIELD_VALIDATION: Parameter = (
    "fieldValidation",
    "string",
    "What to do about unknown and duplicate fields: `Ignore` them, `Warn` (the default), or `Strict`: refuse.",
);
const FORCE: Parameter =
    ("force", "boolean", "Take over fields that other managers own. Only for apply patches.");
const CONTINUE: Parameter = ("continue", "string", "Where to go on with a list that came in parts.");
const FIELD_SELECTOR: Parameter =
    ("fieldSelector", "string", "Only objects whose fields match. Everything by default.");
const LABEL_SELECTOR: Parameter =
    ("labelSelector", "string", "Only objects whose labels match. Everything by default.");
const LIMIT: Parameter = ("limit", "integer", "At most so many objects; the answer says where to continue.");
const RESOURCE_VERSION: Parameter = ("resourceVersion", "string", "Which state of the objects to show.");
const RESOURCE_VERSION_MATCH: Parameter =
    ("resourceVersionMatch", "string", "How resourceVersion is meant: `Exact` or `NotOlderThan`.");
const SEND_INITIAL_EVENTS: Parameter =
    ("sendInitialEvents", "boolean", "Begin a watch with the objects there are, then a bookmark.");
const TIMEOUT_SECONDS: Parameter = ("timeoutSeconds", "integer", "How long the call may take.");
const WATCH: Parameter = ("watch", "boolean", "Send changes as they happen.");
const BOOKMARKS: Parameter = ("allowWatchBookmarks", "boolean", "Send marks of progress between changes.");
const GRACE_PERIOD: Parameter =
    ("gracePeriodSeconds", "integer", "How long the object may take to stop; 0: at once.");
const ORPHAN: Parameter = ("orphanDependents", "boolean", "Deprecated: use propagationPolicy.");
const PROPAGATION: Parameter = (
    "propagationPolicy",
    "string",
    "What becomes of dependents: `Orphan`, `Background` or `Foreground` deletion.",
);
const PRETTY: Parameter = ("pretty", "string", "Indent the answer.");

/// Of create and replace.
pub(super) const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
/// Of patch.
pub(super) const PATCH: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE];
/// Of list and watch.
pub(super) const LIST: &[Parameter] = &[
    BOOKMARKS,
    CONTINUE,
    FIELD_SELECTOR,
    LABEL_SELECTOR,
    LIMIT,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    TIMEOUT_SECONDS,
    WATCH,
];
/// Of delete.
pub(super) const DELETE: &[Parameter] = &[DRY_RUN, GRACE_PERIOD, ORPHAN, PROPAGATION];
/// Of deleting many.
pub(super) const DELETE_MANY: &[Parameter] = &[
    CONTINUE,
    DRY_RUN,
    FIELD_SELECTOR,
    GRACE_PERIOD,
    LABEL_SELECTOR,
    LIMIT,
    ORPHAN,
    PROPAGATION,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    TIMEOUT_SECONDS,
];
/// Of reading one object: none of its own.
pub(super) const NONE: &[Parameter] = &[];
/// Of every call.
const ALWAYS: &[Parameter] = &[PRETTY];

/// Query parameters as OpenAPI has them.
pub(super) fn query(list: &[Parameter]) -> Vec<Value> {
    let one = |(name, ty, description): &Parameter| json!({"name": name, "in": "query", "description": description, "schema": {"type": ty, "uniqueItems": true}});
    list.iter().map(one).collect()
}

/// The parameters of a path: those in braces, and those of every call.
pub(super) fn of_path(path: &str, kind: &str) -> Vec<Value> {
    let in_path = |name: &str, description: String| {
        json!({"name": name, "in": "path", "description": description, "required": true,
               "schema": {"type": "string", "uniqueItems": true}})
    };
    let mut list = Vec::new();
    if path.contains("{name}") {
        list.push(in_path("name", format!("name of the {kind}")));
    }
    if path.contains("{namespace}") {
        list.push(in_path("namespace", "the namespace the object lives in".into()));
    }
    list.extend(query(ALWAYS));
    list
}
