//! `Status`: every refusal of the API, with its HTTP code and Kubernetes reason declared in this one place.

use serde_json::{Map, Value, json};

use crate::field::ErrorList;

/// Why a request was refused, by the names Kubernetes clients branch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// 400: the request itself is malformed.
    BadRequest,
    /// 401: no or wrong credentials.
    Unauthorized,
    /// 403: known, but not allowed.
    Forbidden,
    /// 404: no such object, kind or path.
    NotFound,
    /// 405: the resource does not support the verb.
    MethodNotAllowed,
    /// 406: none of the accepted media types can be produced.
    NotAcceptable,
    /// 409: the object exists already.
    AlreadyExists,
    /// 409: a precondition or the resourceVersion does not hold.
    Conflict,
    /// 410: the resourceVersion or continue token is too old.
    Expired,
    /// 410: the watch must be restarted.
    Gone,
    /// 413: the body is larger than the limit.
    RequestEntityTooLarge,
    /// 415: the body's media type is not supported here.
    UnsupportedMediaType,
    /// 422: understood, but the object is not valid.
    Invalid,
    /// 429: slow down.
    TooManyRequests,
    /// 500: our fault.
    InternalError,
    /// 500: an error that Kubernetes has no reason for; none is sent.
    Unknown,
    /// 503: not able to serve now (store unreachable, shutting down).
    ServiceUnavailable,
    /// 504: the server could not finish in time.
    Timeout,
    /// 507: the disk is full; nothing was written.
    InsufficientStorage,
}

impl Reason {
    /// The HTTP status code.
    pub const fn code(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::Expired | Self::Gone => 410,
            Self::RequestEntityTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Invalid => 422,
            Self::TooManyRequests => 429,
            Self::InternalError | Self::Unknown => 500,
            Self::ServiceUnavailable => 503,
            Self::Timeout => 504,
            Self::InsufficientStorage => 507,
        }
    }

    /// The text in `Status.reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequest",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Expired => "Expired",
            Self::Gone => "Gone",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::Invalid => "Invalid",
            Self::TooManyRequests => "TooManyRequests",
            Self::InternalError => "InternalError",
            Self::Unknown => "",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::Timeout => "Timeout",
            Self::InsufficientStorage => "InsufficientStorage",
        }
    }
}

/// One entry of `details.causes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// Machine-readable kind of cause, such as `FieldValueInvalid` or `FieldManagerConflict`.
    pub reason: String,
    /// What is wrong, for a person.
    pub message: String,
    /// The field it is about, such as `spec.ports[0].port`.
    pub field: String,
}

/// A Kubernetes `Status` with `status: Failure`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// The class of refusal; decides the HTTP code.
    pub reason: Reason,
    /// What kubectl prints after `Error from server (Reason): `.
    pub message: String,
    /// `details.name`.
    pub name: String,
    /// `details.group`.
    pub group: String,
    /// `details.kind`: the resource (plural) or, for invalid objects, the kind.
    pub kind: String,
    /// `details.uid`.
    pub uid: String,
    /// `details.causes`.
    pub causes: Vec<Cause>,
    /// `details.retryAfterSeconds` and the `Retry-After` header; 0 for none.
    pub retry_after_s: u32,
    /// `metadata.continue`: on an expired list, where the client may go on without consistency.
    pub continue_token: Option<String>,
}

impl Status {
    /// A refusal with a reason and a message, and no details.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_s: 0,
            continue_token: None,
        }
    }

    /// Says which object it is about; `kind` is the plural resource name, as Kubernetes has it.
    #[must_use]
    pub fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        (self.group, self.kind, self.name) = (group.into(), kind.into(), name.into());
        self
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    /// 404 for an object: `services "x" not found`.
    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", qualified(group, plural));
        Self::new(Reason::NotFound, message).about(group, plural, name)
    }

    /// 409 for a create: `services "x" already exists`.
    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", qualified(group, plural));
        Self::new(Reason::AlreadyExists, message).about(group, plural, name)
    }

    /// 409: `Operation cannot be fulfilled on services "x": …`.
    pub fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(group, plural));
        Self::new(Reason::Conflict, message).about(group, plural, name)
    }

    /// 403: `services "x" is forbidden: …`.
    pub fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message = match (plural, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{} is forbidden: {why}", qualified(group, plural)),
            _ => format!("{} \"{name}\" is forbidden: {why}", qualified(group, plural)),
        };
        Self::new(Reason::Forbidden, message).about(group, plural, name)
    }

    /// 422 with one cause per error: `Service "x" is invalid: spec.ports: Required value`.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &ErrorList) -> Self {
        let of = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message = format!("{of} \"{name}\" is invalid: {}", errors.summary());
        let mut status = Self::new(Reason::Invalid, message).about(group, kind, name);
        status.causes = errors.iter().map(crate::field::Error::to_cause).collect();
        status
    }

    /// 500.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(Reason::InternalError, format!("Internal error occurred: {message}"))
    }

    /// The JSON object sent to clients.
    pub fn to_value(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), json!(token));
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.message, "code": self.reason.code(),
        });
        if !self.reason.as_str().is_empty() {
            status["reason"] = json!(self.reason.as_str());
        }
        let details = self.details();
        // Kubernetes always gives details with a 403, be they empty.
        if !details.is_empty() || self.reason == Reason::Forbidden {
            status["details"] = Value::Object(details);
        }
        status
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        for (key, text) in
            [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)]
        {
            if !text.is_empty() {
                details.insert(key.into(), json!(text));
            }
        }
        if !self.causes.is_empty() {
            details.insert("causes".into(), self.causes.iter().map(Cause::to_value).collect());
        }
        if self.retry_after_s > 0 {
            details.insert("retryAfterSeconds".into(), json!(self.retry_after_s));
        }
        details
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut cause = Map::new();
        for (key, text) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                cause.insert(key.into(), json!(text));
            }
        }
        Value::Object(cause)
    }
}

/// `deployments.apps`, or `services` for the core group.
pub fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}
