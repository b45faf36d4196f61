//! Field errors: paths into an object, and the sentences Kubernetes says about them.

use std::fmt::{self, Display};

use serde_json::Value;

use crate::status::Cause;

/// A path such as `spec.ports[0].port`; cheap to extend, written out only when something is wrong.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Self>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Child(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// The empty path.
    pub const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    /// A path of one field.
    pub const fn new(name: &'a str) -> Self {
        Path { parent: None, step: Step::Child(name) }
    }
    /// `self.name`.
    pub const fn child(&'a self, name: &'a str) -> Self {
        Path { parent: Some(self), step: Step::Child(name) }
    }
    /// `self[index]`.
    pub const fn index(&'a self, index: usize) -> Self {
        Path { parent: Some(self), step: Step::Index(index) }
    }
    /// `self[key]`, for maps.
    pub const fn key(&'a self, key: &'a str) -> Self {
        Path { parent: Some(self), step: Step::Key(key) }
    }
}

impl Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Child(name) if self.parent.is_none_or(|p| matches!(p.step, Step::Root)) => {
                f.write_str(name)
            }
            Step::Child(name) => write!(f, ".{name}"),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// What is wrong with a field, in Kubernetes' classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorType {
    /// `Required value`.
    Required,
    /// `Invalid value`.
    Invalid,
    /// `Unsupported value`.
    NotSupported,
    /// `Duplicate value`.
    Duplicate,
    /// `Forbidden`.
    Forbidden,
    /// `Too long`.
    TooLong,
    /// `Too many`.
    TooMany,
    /// `Not found`.
    NotFound,
    /// `Invalid value` of the wrong JSON type (CRD validation).
    TypeInvalid,
}

impl ErrorType {
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Required => ("Required value", "FieldValueRequired"),
            Self::Invalid => ("Invalid value", "FieldValueInvalid"),
            Self::NotSupported => ("Unsupported value", "FieldValueNotSupported"),
            Self::Duplicate => ("Duplicate value", "FieldValueDuplicate"),
            Self::Forbidden => ("Forbidden", "FieldValueForbidden"),
            Self::TooLong => ("Too long", "FieldValueTooLong"),
            Self::TooMany => ("Too many", "FieldValueTooMany"),
            Self::NotFound => ("Not found", "FieldValueNotFound"),
            Self::TypeInvalid => ("Invalid value", "FieldValueTypeInvalid"),
        }
    }
}

/// One thing wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// Its class.
    pub class: ErrorType,
    /// The path, written out.
    pub field: String,
    /// The bad value, where the message shows it.
    pub value: Option<Value>,
    /// The rest of the sentence; may be empty.
    pub detail: String,
}

impl Error {
    /// The sentence without the field: `Invalid value: 0: must be …`.
    pub fn body(&self) -> String {
        let mut text = self.class.words().0.to_owned();
        let shown = !matches!(self.class, ErrorType::Required | ErrorType::Forbidden | ErrorType::TooLong);
        if let (true, Some(value)) = (shown, &self.value) {
            text.push_str(": ");
            text.push_str(&show(value));
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    pub(crate) fn to_cause(&self) -> Cause {
        Cause { reason: self.class.words().1.into(), message: self.body(), field: self.field.clone() }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// Go prints strings quoted, numbers plain, and objects as JSON.
fn show(value: &Value) -> String {
    value.to_string()
}

/// Everything wrong with an object, in the order found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ErrorList(Vec<Error>);

impl ErrorList {
    /// Nothing wrong yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }
    /// Whether nothing is wrong.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// How many things are wrong.
    pub const fn len(&self) -> usize {
        self.0.len()
    }
    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Error> {
        self.0.iter()
    }
    /// Adds one.
    pub fn push(&mut self, error: Error) {
        self.0.push(error);
    }
    /// Adds another list's.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
    /// `field: Required value[: detail]`.
    pub fn required(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.add(ErrorType::Required, path, None, detail);
    }
    /// `field: Invalid value: value: detail`.
    pub fn invalid(&mut self, path: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.add(ErrorType::Invalid, path, Some(value.into()), detail);
    }
    /// `field: Unsupported value: "x": supported values: "a", "b"`.
    pub fn not_supported(&mut self, path: &Path<'_>, value: impl Into<Value>, supported: &[&str]) {
        let mut sorted = supported.to_vec();
        sorted.sort_unstable();
        let quoted: Vec<String> = sorted.iter().map(|s| format!("{s:?}")).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        self.add(ErrorType::NotSupported, path, Some(value.into()), detail);
    }
    /// `field: Duplicate value: value`.
    pub fn duplicate(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.add(ErrorType::Duplicate, path, Some(value.into()), "");
    }
    /// `field: Forbidden: detail`.
    pub fn forbidden(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.add(ErrorType::Forbidden, path, None, detail);
    }
    /// `field: Too long: may not be more than N bytes`.
    pub fn too_long(&mut self, path: &Path<'_>, bytes_max: usize) {
        self.add(ErrorType::TooLong, path, None, format!("may not be more than {bytes_max} bytes"));
    }
    /// `field: Too many: N: must have at most M items`.
    pub fn too_many(&mut self, path: &Path<'_>, count: usize, max: usize) {
        let items = if max == 1 { "item" } else { "items" };
        self.add(ErrorType::TooMany, path, Some(count.into()), format!("must have at most {max} {items}"));
    }
    /// `field: Not found: value`.
    pub fn not_found(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.add(ErrorType::NotFound, path, Some(value.into()), "");
    }
    /// Any class, written out.
    pub fn add(
        &mut self,
        class: ErrorType,
        path: &Path<'_>,
        value: Option<Value>,
        detail: impl Into<String>,
    ) {
        self.0.push(Error { class, field: path.to_string(), value, detail: detail.into() });
    }

    /// All of them in one line, as Kubernetes joins them: one plain, several in brackets, each said once.
    pub fn summary(&self) -> String {
        let mut seen = Vec::<String>::new();
        for error in &self.0 {
            let text = error.to_string();
            if !seen.contains(&text) {
                seen.push(text);
            }
        }
        match seen.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        }
    }
}

impl IntoIterator for ErrorList {
    type Item = Error;
    type IntoIter = std::vec::IntoIter<Error>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a ErrorList {
    type Item = &'a Error;
    type IntoIter = std::slice::Iter<'a, Error>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
