//! How `kubectl get` shows a custom resource: the columns its definition asks for.

use landfall_api::kind::Column;
use landfall_api::{Printer, age};
use serde_json::Value;

use super::check::go_float;
use super::jsonpath::JsonPath;
use super::schema::list;

const AGE_DESCRIPTION: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The columns of one version.
pub struct Columns {
    columns: Vec<Column>,
    paths: Vec<JsonPath>,
}

impl Columns {
    /// From `spec.versions[]`. Columns after the first that cannot be read are left out, as Kubernetes does.
    pub fn of(version: &Value) -> Self {
        let mut all = Self { columns: vec![Column::NAME], paths: Vec::new() };
        let asked = list(version, "additionalPrinterColumns");
        if asked.is_empty() {
            all.columns.push(Column {
                name: "Age".into(),
                ty: "date".into(),
                format: "".into(),
                description: AGE_DESCRIPTION.into(),
                priority: 0,
            });
            all.paths.extend(JsonPath::parse(".metadata.creationTimestamp"));
        }
        for column in asked {
            let text = |key: &str| column.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
            let source = text("jsonPath");
            let Some(path) = JsonPath::parse(&source) else { break };
            let described = text("description");
            let description = if described.is_empty() {
                format!("Custom resource definition column (in JSONPath format): {source}")
            } else {
                described
            };
            let priority = column.get("priority").and_then(Value::as_i64).unwrap_or(0);
            all.paths.push(path);
            all.columns.push(Column {
                name: text("name").into(),
                ty: text("type").into(),
                format: text("format").into(),
                description: description.into(),
                priority: i32::try_from(priority).unwrap_or(0),
            });
        }
        all
    }
}

impl Printer for Columns {
    fn columns(&self) -> Vec<Column> {
        self.columns.clone()
    }

    fn row(&self, object: &Value, now_s: i64) -> Vec<Value> {
        let mut cells = vec![Value::from(landfall_api::meta::name(object))];
        for (column, path) in self.columns.iter().skip(1).zip(&self.paths) {
            let found = path.first(object);
            cells.push(found.map_or(Value::Null, |value| cell(&column.ty, value, now_s)));
        }
        cells
    }
}

fn cell(ty: &str, value: &Value, now_s: i64) -> Value {
    let shown = match (ty, value) {
        (_, Value::Null) => None,
        ("string", Value::String(text)) => Some(text.as_str().into()),
        ("string", Value::Number(n)) => {
            Some(n.as_f64().filter(|_| n.is_f64()).map_or_else(|| n.to_string(), go_float).into())
        }
        ("string", other) => Some(other.to_string().into()),
        ("integer", Value::Number(n)) => n.as_i64().or_else(|| n.as_f64().map(|f| f as i64)).map(Into::into),
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => Some(value.clone()),
        ("date", Value::String(text)) => Some(since(text, now_s).into()),
        _ => None,
    };
    shown.unwrap_or(Value::Null)
}

fn since(time: &str, now_s: i64) -> String {
    match age::seconds(Some(time)) {
        Some(then) => age::human(now_s.saturating_sub(then)),
        None if time.is_empty() || time == "null" => "<unknown>".into(),
        None => "<invalid>".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_follow_their_type() {
        let version = json!({"additionalPrinterColumns": [
            {"name": "S", "type": "string", "jsonPath": ".spec.s"},
            {"name": "I", "type": "integer", "jsonPath": ".spec.i", "priority": 1},
            {"name": "N", "type": "number", "jsonPath": ".spec.n"},
            {"name": "B", "type": "boolean", "jsonPath": ".spec.b"},
            {"name": "D", "type": "date", "jsonPath": ".spec.d"},
            {"name": "M", "type": "string", "jsonPath": ".spec.m"},
            {"name": "Gone", "type": "string", "jsonPath": ".spec.gone"},
        ]});
        let columns = Columns::of(&version);
        let object = json!({"metadata": {"name": "x"}, "spec": {"s": "t", "i": 3, "n": 1.5, "b": true,
            "d": "1970-01-01T00:00:10Z", "m": {"k": 1}}});
        let row = columns.row(&object, 100);
        assert_eq!(json!(row), json!(["x", "t", 3, 1.5, true, "90s", "{\"k\":1}", null]));
        assert_eq!(columns.columns()[2].priority, 1);
    }
}
