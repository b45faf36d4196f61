//! What a failed store operation means to a client.

use landfall_api::field::{ErrorList, Path};
use landfall_api::{Kind, Reason, Status};
use landfall_store::Error;

/// The refusal for a store error that is about one object.
pub fn of_object(error: &Error, kind: &Kind, name: &str) -> Status {
    match error {
        Error::Exists(_) => Status::already_exists(&kind.group, &kind.plural, name),
        Error::Conflict(None) => Status::not_found(&kind.group, &kind.plural, name),
        Error::Conflict(Some(_)) => modified(kind, name),
        _ => general(error),
    }
}

/// The refusal for a store error that is not about one object.
pub fn general(error: &Error) -> Status {
    match error {
        Error::TooOld { asked, oldest } => too_old(*asked, *oldest),
        Error::Future { asked, current } => {
            let mut status = Status::new(
                Reason::Timeout,
                format!("Timeout: Too large resource version: {asked}, current: {current}"),
            );
            status.retry_after_s = 1;
            status.causes.push(landfall_api::status::Cause {
                reason: "ResourceVersionTooLarge".into(),
                message: "Too large resource version".into(),
                field: String::new(),
            });
            status
        }
        Error::Full(_) => Status::new(
            Reason::InsufficientStorage,
            format!("{error}; nothing was changed. Free disk space (or raise etcd's quota) and try again"),
        ),
        Error::TooLarge(_) => Status::new(Reason::RequestEntityTooLarge, error.to_string()),
        Error::Unavailable(_) | Error::Sealed(_) | Error::Closed => {
            let mut status = Status::new(Reason::ServiceUnavailable, error.to_string());
            status.retry_after_s = 1;
            status
        }
        _ => Status::internal(error),
    }
}

/// The message of [`no_such_page`].
pub const NO_SUCH_PAGE: &str = "404 page not found";

/// 404, in plain text, for a path outside of all that is served.
pub fn no_such_page() -> Status {
    Status::new(Reason::NotFound, NO_SUCH_PAGE)
}

/// 404 for a path inside a served group that names nothing.
pub fn no_such_path() -> Status {
    Status::new(Reason::NotFound, "the server could not find the requested resource")
}

/// 405.
pub fn not_allowed() -> Status {
    Status::new(Reason::MethodNotAllowed, "the server does not allow this method on the requested resource")
}

/// 422: custom resources are never overwritten blindly.
pub fn must_have_version(kind: &Kind, name: &str) -> Status {
    let mut errors = ErrorList::new();
    let path = Path::new("metadata");
    errors.invalid(&path.child("resourceVersion"), 0, "must be specified for an update");
    Status::invalid(&kind.group, &kind.kind, name, &errors)
}

/// 410 for a watch or list from a revision that is no longer retained.
pub fn too_old(asked: u64, oldest: u64) -> Status {
    Status::new(Reason::Expired, format!("too old resource version: {asked} ({oldest})"))
}

/// 409 for a write on top of something newer.
pub fn modified(kind: &Kind, name: &str) -> Status {
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    Status::conflict(&kind.group, &kind.plural, name, why)
}

/// 500 for stored bytes that are not an object.
pub fn unreadable(kind: &Kind, name: &str, error: &serde_json::Error) -> Status {
    Status::internal(format!("the stored object {} {name:?} cannot be read: {error}", kind.plural))
}
