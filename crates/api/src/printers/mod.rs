//! How `kubectl get` shows built-in kinds.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::kind::{Column, Printer};
use crate::{age, meta};

/// The printer of a kind.
pub fn printer(_group: &str, _kind: &str) -> Arc<dyn Printer> {
    Arc::new(NameAndAge)
}

/// Name and age: for kinds that have no columns of their own.
pub struct NameAndAge;

impl Printer for NameAndAge {
    fn columns(&self) -> Vec<Column> {
        vec![Column::NAME, Column::AGE]
    }
    fn row(&self, object: &Value, now_s: i64) -> Vec<Value> {
        let made = meta::string(object, "creationTimestamp");
        vec![json!(meta::name(object)), json!(age::since(Some(made), now_s))]
    }
}
