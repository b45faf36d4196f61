//! How Kubernetes prints its own form of a template.

use serde_json::Value;

/// The text that stands for a value of this kind in an error.
pub(in super::super) fn write(_kind: &str, value: &Value) -> String {
    value.to_string()
}
