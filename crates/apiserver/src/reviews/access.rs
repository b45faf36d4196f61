//! May I, may they, and what may I do: the reviews of authorization.

use landfall_api::field::{ErrorList, Path};
use landfall_api::{Status, meta};
use serde_json::{Map, Value, json};

use super::{AUTHORIZATION, Context};
use crate::authn::{User, text};
use crate::authz::Attributes;

const SPEC: Path<'static> = Path::new("spec");

/// SelfSubjectAccessReview.
pub(super) fn own(body: Value, context: &Context<'_>) -> Result<Value, Status> {
    let mut errors = ErrorList::new();
    check_attributes(&body, &mut errors);
    check_metadata(&body, &[], "must be empty", &mut errors);
    answer(body, context.user, context, &errors)
}

/// SubjectAccessReview.
pub(super) fn subject(body: Value, context: &Context<'_>) -> Result<Value, Status> {
    let mut errors = ErrorList::new();
    check_subject(&body, &mut errors);
    check_metadata(&body, &[], "must be empty", &mut errors);
    let user = user(&body);
    answer(body, &user, context, &errors)
}

/// LocalSubjectAccessReview.
pub(super) fn local(mut body: Value, context: &Context<'_>) -> Result<Value, Status> {
    // The namespace of the request stands for one that is left out.
    if meta::namespace(&body).is_empty() {
        meta::metadata_mut(&mut body).insert("namespace".into(), json!(context.namespace));
    }
    let mut errors = ErrorList::new();
    check_subject(&body, &mut errors);
    check_metadata(&body, &["namespace"], "must be empty except for namespace", &mut errors);
    let (resource, path) = (part(&body, "resourceAttributes"), part(&body, "nonResourceAttributes"));
    if let Some(namespace) = resource.map(|r| text(r, "namespace")).filter(|n| *n != meta::namespace(&body)) {
        let field = Path::new("spec.resourceAttributes.namespace");
        errors.invalid(&field, namespace, "must match metadata.namespace");
    }
    if let Some(path) = path {
        let field = Path::new("spec.nonResourceAttributes");
        errors.invalid(&field, internal(path), "disallowed on this kind of request");
    }
    let user = user(&body);
    if errors.is_empty() && meta::namespace(&body) != context.namespace {
        let why = format!("spec.resourceAttributes.namespace must match namespace: {}", context.namespace);
        return Err(Status::bad_request(why));
    }
    answer(body, &user, context, &errors)
}

/// SelfSubjectRulesReview.
#[expect(clippy::needless_pass_by_value, reason = "all answers have one shape")]
pub(super) fn rules(body: Value, context: &Context<'_>) -> Result<Value, Status> {
    let namespace = text(body.get("spec").unwrap_or(&Value::Null), "namespace");
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let (rules, missing) = context.policy.rules_for(context.user, namespace);
    let (mut resource, mut paths) = (Vec::new(), Vec::new());
    for rule in rules {
        let mut shown = rule.to_value();
        let urls = shown.as_object_mut().and_then(|rule| rule.remove("nonResourceURLs"));
        if let Some(urls) = urls {
            paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": urls}));
        }
        if !rule.resources.is_empty() {
            resource.push(shown);
        }
    }
    let mut status = json!({"resourceRules": resource, "nonResourceRules": paths, "incomplete": false});
    match missing.as_slice() {
        [] => {}
        [one] => status["evaluationError"] = json!(one),
        many => status["evaluationError"] = json!(format!("[{}]", many.join(", "))),
    }
    Ok(json!({"metadata": {}, "spec": {}, "status": status}))
}

/// Fills in `status`, or refuses a review that is not valid.
fn answer(mut body: Value, user: &User, context: &Context<'_>, errors: &ErrorList) -> Result<Value, Status> {
    if !errors.is_empty() {
        // Kubernetes knows no kind here, and its message begins with the dot.
        return Err(Status::invalid(AUTHORIZATION, "", "", errors));
    }
    let verdict = (context.authorize)(&attributes(&body, user));
    let mut status = Map::new();
    status.insert("allowed".into(), json!(verdict.allowed()));
    if !verdict.reason().is_empty() {
        status.insert("reason".into(), json!(verdict.reason()));
    }
    meta::metadata_mut(&mut body);
    body["status"] = Value::Object(status);
    Ok(body)
}

fn attributes<'a>(body: &'a Value, user: &'a User) -> Attributes<'a> {
    match (part(body, "resourceAttributes"), part(body, "nonResourceAttributes")) {
        (None, Some(path)) => Attributes::path(user, text(path, "verb"), text(path, "path")),
        (resource, _) => {
            let field = |name: &str| resource.map(|r| text(r, name)).unwrap_or_default();
            Attributes {
                subresource: field("subresource"),
                ..Attributes::resource(
                    user,
                    field("verb"),
                    field("group"),
                    field("resource"),
                    field("namespace"),
                    field("name"),
                )
            }
        }
    }
}

fn user(body: &Value) -> User {
    let none = Value::Null;
    let spec = body.get("spec").unwrap_or(&none);
    let list = |value: &Value| {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = spec.get("extra").and_then(Value::as_object);
    User {
        name: text(spec, "user").into(),
        uid: text(spec, "uid").into(),
        groups: spec.get("groups").map(list).unwrap_or_default(),
        extra: extra.into_iter().flatten().map(|(key, value)| (key.clone(), list(value))).collect(),
    }
}

fn part<'a>(body: &'a Value, field: &str) -> Option<&'a Value> {
    body.get("spec")?.get(field).filter(|value| value.is_object())
}

fn check_subject(body: &Value, errors: &mut ErrorList) {
    check_attributes(body, errors);
    let user = user(body);
    if user.name.is_empty() && user.groups.is_empty() {
        errors.invalid(&SPEC.child("user"), "", "at least one of user or group must be specified");
    }
}

fn check_attributes(body: &Value, errors: &mut ErrorList) {
    match (part(body, "resourceAttributes"), part(body, "nonResourceAttributes")) {
        (Some(_), Some(path)) => {
            let field = SPEC.child("nonResourceAttributes");
            errors.invalid(
                &field,
                internal(path),
                "cannot be specified in combination with resourceAttributes",
            );
        }
        (None, None) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.invalid(&SPEC.child("resourceAttributes"), Value::Null, why);
        }
        _ => {}
    }
    for selector in ["fieldSelector", "labelSelector"] {
        let Some(given) = part(body, "resourceAttributes").and_then(|r| r.get(selector)) else { continue };
        if given.is_object() {
            check_selector(given, &Path::new("spec.resourceAttributes").child(selector), errors);
        }
    }
}

/// RBAC does not look at selectors, but a review of one that makes no sense is refused.
fn check_selector(selector: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let raw = text(selector, "rawSelector");
    let listed = selector.get("requirements").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if !raw.is_empty() && listed {
        let why = "may not specified at the same time as requirements";
        errors.invalid(&path.child("rawSelector"), raw, why);
    }
    if raw.is_empty() && !listed {
        let why = format!("when {path} is specified, requirements or rawSelector is required");
        errors.required(&path.child("requirements"), why);
    }
}

fn check_metadata(body: &Value, allowed: &[&str], why: &str, errors: &mut ErrorList) {
    let metadata = body.get("metadata").and_then(Value::as_object);
    let extra = metadata.into_iter().flatten().any(|(key, value)| {
        let empty = match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        !empty && key != "managedFields" && !allowed.contains(&key.as_str())
    });
    if extra {
        errors.invalid(&Path::new("metadata"), body["metadata"].clone(), why);
    }
}

/// As Kubernetes prints the value: by the names of its internal type.
fn internal(path: &Value) -> Value {
    json!({"Path": text(path, "path"), "Verb": text(path, "verb")})
}
