//! Questions as objects: who am I, may I, may they, is this token good, give me a token.
//!
//! A review is created, answered in its `status` and never stored. All are functions from the body and the
//! [`Context`] of the request to the answer; [`review`] finds the right one in a table.

mod access;
mod token;

use landfall_api::{Kind, Status};
use serde_json::{Value, json};

use crate::authn::{Authenticator, Lookup, User};
use crate::authz::{Attributes, Policy, Verdict};

pub use token::token_request;

/// What reviews are answered from.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Who asks.
    pub user: &'a User,
    /// What roles allow.
    pub policy: &'a Policy,
    /// Whether something is allowed.
    pub authorize: &'a (dyn Fn(&Attributes<'_>) -> Verdict + 'a),
    /// Who tokens belong to.
    pub authenticator: &'a Authenticator,
    /// Finds objects that tokens refer to.
    pub lookup: Lookup<'a>,
    /// The namespace of the request; empty for cluster-scoped reviews.
    pub namespace: &'a str,
    /// Seconds since 1970.
    pub now_s: i64,
}

type Answer = fn(Value, &Context<'_>) -> Result<Value, Status>;

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// Every review: group, kind, and how it is answered.
const REVIEWS: [(&str, &str, Answer); 6] = [
    (AUTHENTICATION, "TokenReview", token::token_review),
    (AUTHENTICATION, "SelfSubjectReview", self_subject_review),
    (AUTHORIZATION, "SubjectAccessReview", access::subject),
    (AUTHORIZATION, "LocalSubjectAccessReview", access::local),
    (AUTHORIZATION, "SelfSubjectAccessReview", access::own),
    (AUTHORIZATION, "SelfSubjectRulesReview", access::rules),
];

fn find(group: &str, kind: &str) -> Option<Answer> {
    REVIEWS.iter().find(|row| row.0 == group && row.1 == kind).map(|row| row.2)
}

/// Whether objects of a kind are answered and not stored.
pub fn is_review(kind: &Kind) -> bool {
    find(&kind.group, &kind.kind).is_some()
}

/// Answers a review: the object to send back, with `201 Created`.
pub fn review(kind: &Kind, body: Value, context: &Context<'_>) -> Result<Value, Status> {
    let Some(answer) = find(&kind.group, &kind.kind) else {
        return Err(Status::internal(format!("{} is not a review", kind.kind)));
    };
    let body = if body.is_object() { body } else { json!({}) };
    let mut object = answer(body, context)?;
    object["apiVersion"] = json!(format!("{}/{}", kind.group, kind.version));
    object["kind"] = json!(kind.kind);
    Ok(object)
}

/// SelfSubjectReview: who am I.
fn self_subject_review(_body: Value, context: &Context<'_>) -> Result<Value, Status> {
    Ok(json!({
        "metadata": {"creationTimestamp": time(context.now_s)},
        "status": {"userInfo": context.user.to_value()},
    }))
}

/// RFC 3339, in seconds.
fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX).to_string()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
