//! `Sheet`: the columns of a kind and the function that fills them.

use std::borrow::Cow;

use serde_json::Value;

use crate::kind::{Column, Printer};

/// How one kind is shown.
#[derive(Clone, Copy)]
pub(super) struct Sheet {
    /// The columns, in order.
    pub(super) columns: &'static [Col],
    /// The cells of one object, one per column.
    pub(super) row: fn(&Value, i64) -> Vec<Value>,
    /// Conditions of the row, such as `Completed`.
    pub(super) conditions: fn(&Value) -> Vec<Value>,
}

/// One column, as it is written in a table.
pub(super) struct Col {
    name: &'static str,
    ty: &'static str,
    format: &'static str,
    description: &'static str,
    wide: bool,
}

impl Sheet {
    /// A sheet whose rows have no conditions.
    pub(super) const fn new(columns: &'static [Col], row: fn(&Value, i64) -> Vec<Value>) -> Self {
        Self { columns, row, conditions: |_| Vec::new() }
    }
}

impl Col {
    /// The usual first column.
    pub(super) const NAME: Self = Self::text("Name", "").format("name");
    /// The usual last column.
    pub(super) const AGE: Self = Self::text("Age", "");

    /// A column of texts.
    pub(super) const fn text(name: &'static str, description: &'static str) -> Self {
        Self { name, ty: "string", format: "", description, wide: false }
    }
    /// A column of whole numbers.
    pub(super) const fn integer(name: &'static str, description: &'static str) -> Self {
        Self { ty: "integer", ..Self::text(name, description) }
    }
    /// A column of another type.
    pub(super) const fn of(ty: &'static str, name: &'static str, description: &'static str) -> Self {
        Self { ty, ..Self::text(name, description) }
    }
    /// Shown with `-o wide` only.
    pub(super) const fn wide(self) -> Self {
        Self { wide: true, ..self }
    }
    /// In this format.
    pub(super) const fn format(self, format: &'static str) -> Self {
        Self { format, ..self }
    }

    fn column(&self) -> Column {
        let description = match (self.name, self.description) {
            ("Name", "") => Column::NAME.description,
            ("Age", "") => Column::AGE.description,
            (_, text) => Cow::Borrowed(text),
        };
        Column {
            name: self.name.into(),
            ty: self.ty.into(),
            format: self.format.into(),
            description,
            priority: i32::from(self.wide),
        }
    }
}

impl Printer for Sheet {
    fn columns(&self) -> Vec<Column> {
        self.columns.iter().map(Col::column).collect()
    }
    fn row(&self, object: &Value, now_s: i64) -> Vec<Value> {
        (self.row)(object, now_s)
    }
    fn conditions(&self, object: &Value) -> Vec<Value> {
        (self.conditions)(object)
    }
}
