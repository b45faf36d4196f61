//! Sheets for kinds that have no columns of their own.

use super::cells::{age, name};
use super::sheet::{Col, Sheet};
use crate::meta;

/// Name and age.
pub(super) const NAME_AND_AGE: Sheet =
    Sheet::new(&[Col::NAME, Col::AGE], |object, now_s| vec![name(object), age(object, now_s)]);

/// Name and the time of making: roles, limit ranges, CRDs.
pub(super) const CREATED_AT: Sheet = Sheet::new(
    &[Col::NAME, Col::of("date", "Created At", "When the object was made, on the server's clock.")],
    |object, _| vec![name(object), meta::string(object, "creationTimestamp").into()],
);
