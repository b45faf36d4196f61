//! What a request asks for besides its path: the query parameters of the Kubernetes API.

use std::borrow::Cow;

use landfall_api::Status;
use landfall_api::field::{ErrorList, ErrorType, Path};

/// How unknown and duplicate fields are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Dropped in silence.
    Ignore,
    /// Dropped, with a warning to the client.
    #[default]
    Warn,
    /// Refused.
    Strict,
}

/// The query parameters of one request. Absent ones are empty or none.
#[derive(Clone, Debug, Default)]
pub struct Options<'a> {
    /// `watch`.
    pub watch: bool,
    /// `labelSelector`.
    pub label_selector: Cow<'a, str>,
    /// `fieldSelector`.
    pub field_selector: Cow<'a, str>,
    /// `limit`; 0 for none.
    pub limit: usize,
    /// `continue`.
    pub continue_token: Cow<'a, str>,
    /// `resourceVersion`.
    pub resource_version: Cow<'a, str>,
    /// `resourceVersionMatch`.
    pub resource_version_match: Cow<'a, str>,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `sendInitialEvents`.
    pub send_initial_events: Option<bool>,
    /// `timeoutSeconds`.
    pub timeout_s: Option<u64>,
    /// `dryRun=All`.
    pub dry_run: bool,
    /// `fieldManager`.
    pub field_manager: Cow<'a, str>,
    /// `fieldValidation`.
    pub field_validation: FieldValidation,
    /// `force`, for server-side apply.
    pub force: Option<bool>,
    /// `pretty`.
    pub pretty: Option<bool>,
    /// `includeObject`, for tables.
    pub include_object: Cow<'a, str>,
    /// `propagationPolicy`, for deletes without a body.
    pub propagation_policy: Cow<'a, str>,
    /// `gracePeriodSeconds`, for deletes without a body.
    pub grace_period_s: Option<i64>,
    /// `orphanDependents`, for deletes without a body.
    pub orphan_dependents: Option<bool>,
}

impl<'a> Options<'a> {
    /// Reads a query string; unknown parameters are ignored as Kubernetes ignores them.
    pub fn parse(query: &'a str) -> Result<Self, Status> {
        let mut options = Self::default();
        if query.is_empty() {
            return Ok(options);
        }
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            options.set(&key, value)?;
        }
        Ok(options)
    }

    fn set(&mut self, key: &str, value: Cow<'a, str>) -> Result<(), Status> {
        match key {
            "watch" => self.watch = boolean(&value),
            "labelSelector" => self.label_selector = value,
            "fieldSelector" => self.field_selector = value,
            // A negative limit means no limit, as in Kubernetes.
            "limit" => self.limit = usize::try_from(number(&value)?).unwrap_or(0),
            "continue" => self.continue_token = value,
            "resourceVersion" => self.resource_version = value,
            "resourceVersionMatch" => self.resource_version_match = value,
            "allowWatchBookmarks" => self.bookmarks = boolean(&value),
            "sendInitialEvents" => self.send_initial_events = Some(boolean(&value)),
            "timeoutSeconds" => self.timeout_s = u64::try_from(number(&value)?).ok(),
            "dryRun" => self.dry_run = dry_run(&value)?,
            "fieldManager" => self.field_manager = field_manager(value)?,
            "fieldValidation" => self.field_validation = field_validation(&value)?,
            "force" => self.force = Some(boolean(&value)),
            "pretty" => self.pretty = Some(boolean(&value)),
            "includeObject" => self.include_object = value,
            "propagationPolicy" => self.propagation_policy = value,
            "gracePeriodSeconds" => self.grace_period_s = Some(number(&value)?),
            "orphanDependents" => self.orphan_dependents = Some(boolean(&value)),
            _ => {}
        }
        Ok(())
    }
}

/// Kubernetes reads anything but `false` and `0` as true, an empty value included.
fn boolean(value: &str) -> bool {
    !matches!(value, "false" | "0")
}

fn number(value: &str) -> Result<i64, Status> {
    if value.is_empty() {
        return Ok(0);
    }
    let bad = || Status::bad_request(format!("strconv.ParseInt: parsing {value:?}: invalid syntax"));
    value.parse().map_err(|_| bad())
}

fn dry_run(value: &str) -> Result<bool, Status> {
    match value {
        "" => Ok(false),
        "All" => Ok(true),
        _ => Err(invalid_option(|errors| errors.not_supported(&Path::new("dryRun"), value, &["All"]))),
    }
}

fn field_validation(value: &str) -> Result<FieldValidation, Status> {
    match value {
        "Ignore" => Ok(FieldValidation::Ignore),
        "Warn" | "" => Ok(FieldValidation::Warn),
        "Strict" => Ok(FieldValidation::Strict),
        _ => Err(invalid_option(|errors| {
            let known = "supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"";
            let path = Path::new("fieldValidation");
            errors.add(ErrorType::NotSupported, &path, Some(value.into()), known);
        })),
    }
}

/// The longest name of a field manager, as in Kubernetes.
const FIELD_MANAGER_BYTES_MAX: usize = 128;

fn field_manager(value: Cow<'_, str>) -> Result<Cow<'_, str>, Status> {
    if value.len() > FIELD_MANAGER_BYTES_MAX {
        return Err(invalid_option(|errors| {
            errors.too_long(&Path::new("fieldManager"), FIELD_MANAGER_BYTES_MAX);
        }));
    }
    if let Some((at, bad)) = value.char_indices().find(|(_, c)| c.is_control()) {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(bad));
        return Err(invalid_option(|errors| errors.invalid(&Path::new("fieldManager"), &*value, why)));
    }
    Ok(value)
}

/// The kind that Kubernetes blames for a parameter; [`name_options`] says which of them it is.
const OPTIONS: &str = "Options";

/// 422 for a parameter, worded as for an object without a name.
fn invalid_option(blame: impl FnOnce(&mut ErrorList)) -> Status {
    let mut errors = ErrorList::new();
    blame(&mut errors);
    Status::invalid("meta.k8s.io", OPTIONS, "", &errors)
}

/// Says in a refusal whose options they were, by the method of the request.
pub fn name_options(mut status: Status, method: &http::Method) -> Status {
    if status.kind == OPTIONS {
        let kind = match *method {
            http::Method::POST => "CreateOptions",
            http::Method::PUT => "UpdateOptions",
            http::Method::PATCH => "PatchOptions",
            http::Method::DELETE => "DeleteOptions",
            _ => "ListOptions",
        };
        status.message = status.message.replacen(OPTIONS, kind, 1);
        status.kind = kind.into();
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let o =
            Options::parse("labelSelector=a%20in%20(b,c)&limit=5&watch=1&dryRun=All&fieldValidation=Strict")
                .unwrap();
        assert_eq!((&*o.label_selector, o.limit, o.watch, o.dry_run), ("a in (b,c)", 5, true, true));
        assert_eq!(o.field_validation, FieldValidation::Strict);
    }

    #[test]
    fn bad_parameters_are_refused() {
        for (query, code) in [("limit=x", 400), ("dryRun=Some", 422), ("fieldValidation=Very", 422)] {
            assert_eq!(Options::parse(query).unwrap_err().reason.code(), code, "{query}");
        }
        let long = format!("fieldManager={}", "x".repeat(129));
        assert_eq!(Options::parse(&long).unwrap_err().reason.code(), 422);
    }
}
