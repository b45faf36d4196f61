//! The sheet of role bindings; roles show when they were made.

use serde_json::Value;

use super::cells::{age, items, name, text};
use super::sheet::{Col, Sheet};

pub(super) const BINDING: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Role", "What the subjects are allowed."),
        Col::AGE,
        Col::text("Users", "Users in the binding.").wide(),
        Col::text("Groups", "Groups in the binding.").wide(),
        Col::text("ServiceAccounts", "Service accounts in the binding.").wide(),
    ],
    |object, now_s| {
        let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
        vec![
            name(object),
            role.into(),
            age(object, now_s),
            subjects(object, "User"),
            subjects(object, "Group"),
            subjects(object, "ServiceAccount"),
        ]
    },
);

fn subjects(object: &Value, kind: &str) -> Value {
    let of_kind = items(object, "/subjects").iter().filter(|subject| text(subject, "/kind") == kind);
    let words = of_kind.map(|subject| match kind {
        "ServiceAccount" => format!("{}/{}", text(subject, "/namespace"), text(subject, "/name")),
        _ => text(subject, "/name").to_owned(),
    });
    words.collect::<Vec<_>>().join(", ").into()
}
