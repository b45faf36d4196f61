//! The Swagger document in protobuf, as gnostic lays it out: kubectl falls back to it for kinds that no OpenAPI 3
//! document has, `List` among them, and older clients know nothing else.

use serde_json::{Map, Value};

/// The whole document. What clients read is there: paths, operations with their query parameters, definitions.
pub(super) fn document(swagger: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, swagger.get("swagger"));
    let mut info = Message::default();
    info.text(1, swagger.pointer("/info/title"));
    info.text(2, swagger.pointer("/info/version"));
    out.message(2, &info);
    let mut paths = Message::default();
    for (path, item) in entries(swagger, "paths") {
        paths.message(2, &named(path, &path_item(item)));
    }
    out.message(8, &paths);
    out.message(9, &named_schemas(swagger.get("definitions")));
    out.0
}

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: usize) {
        while value > 0x7f {
            self.0.push(0x80 | u8::try_from(value & 0x7f).unwrap_or(0));
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap_or(0));
    }

    fn bytes(&mut self, tag: usize, bytes: &[u8]) {
        self.varint(tag << 3 | 2);
        self.varint(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, tag: usize, message: &Self) {
        self.bytes(tag, &message.0);
    }

    fn text(&mut self, tag: usize, value: Option<&Value>) {
        if let Some(text) = value.and_then(Value::as_str) {
            self.bytes(tag, text.as_bytes());
        }
    }

    fn texts(&mut self, tag: usize, value: Option<&Value>) {
        for item in value.and_then(Value::as_array).into_iter().flatten() {
            self.text(tag, Some(item));
        }
    }

    fn flag(&mut self, tag: usize, value: Option<&Value>) {
        if value == Some(&Value::Bool(true)) {
            self.varint(tag << 3);
            self.varint(1);
        }
    }

    /// Everything that begins with `x-`, as YAML text (which JSON is).
    fn extensions(&mut self, tag: usize, of: &Value) {
        let all = of.as_object().into_iter().flatten();
        for (name, value) in all.filter(|(name, _)| name.starts_with("x-")) {
            self.message(tag, &named(name, &any(value)));
        }
    }
}

fn entries<'a>(of: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    of.get(key).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

/// `NamedAny`, `NamedSchema`, `NamedPathItem`, …: all have a name and a value.
fn named(name: &str, value: &Message) -> Message {
    let mut out = Message::default();
    out.bytes(1, name.as_bytes());
    out.message(2, value);
    out
}

fn any(value: &Value) -> Message {
    let mut out = Message::default();
    out.bytes(2, value.to_string().as_bytes());
    out
}

fn named_schemas(map: Option<&Value>) -> Message {
    let mut out = Message::default();
    for (name, schema) in map.and_then(Value::as_object).into_iter().flatten() {
        out.message(1, &named(name, &schema_of(schema)));
    }
    out
}

/// The depth is limited where the document is made.
fn schema_of(schema: &Value) -> Message {
    let mut out = Message::default();
    for (tag, key) in [(1, "$ref"), (2, "format"), (3, "title"), (4, "description"), (13, "pattern")] {
        out.text(tag, schema.get(key));
    }
    if let Some(default) = schema.get("default") {
        out.message(5, &any(default));
    }
    out.texts(19, schema.get("required"));
    for value in schema.get("enum").and_then(Value::as_array).into_iter().flatten() {
        out.message(20, &any(value));
    }
    if let Some(values) = schema.get("additionalProperties") {
        let mut item = Message::default();
        match values {
            Value::Bool(_) => item.flag(2, Some(values)),
            _ => item.message(1, &schema_of(values)),
        }
        out.message(21, &item);
    }
    if let Some(name) = schema.get("type") {
        let mut item = Message::default();
        item.text(1, Some(name));
        out.message(22, &item);
    }
    if let Some(items) = schema.get("items") {
        let mut item = Message::default();
        item.message(1, &schema_of(items));
        out.message(23, &item);
    }
    if schema.get("properties").is_some() {
        out.message(25, &named_schemas(schema.get("properties")));
    }
    out.extensions(31, schema);
    out
}

fn path_item(item: &Value) -> Message {
    let mut out = Message::default();
    let methods =
        [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (6, "options"), (7, "head"), (8, "patch")];
    for (tag, method) in methods {
        if let Some(found) = item.get(method) {
            out.message(tag, &operation(found));
        }
    }
    out
}

fn operation(operation: &Value) -> Message {
    let mut out = Message::default();
    out.texts(1, operation.get("tags"));
    out.text(3, operation.get("description"));
    out.text(5, operation.get("operationId"));
    out.texts(6, operation.get("produces"));
    out.texts(7, operation.get("consumes"));
    let parameters = operation.get("parameters").and_then(Value::as_array).into_iter().flatten();
    for parameter in parameters.filter(|parameter| parameter.get("in").is_some_and(|place| place == "query"))
    {
        out.message(8, &query_parameter(parameter));
    }
    out.texts(10, operation.get("schemes"));
    out.extensions(13, operation);
    out
}

/// A query parameter in its four wrappings.
fn query_parameter(parameter: &Value) -> Message {
    let mut inner = Message::default();
    inner.flag(1, parameter.get("required"));
    for (tag, key) in [(2, "in"), (3, "description"), (4, "name"), (6, "type")] {
        inner.text(tag, parameter.get(key));
    }
    // QueryParameterSubSchema in NonBodyParameter in Parameter in ParametersItem.
    [3, 2, 1].into_iter().fold(inner, |inside, tag| {
        let mut out = Message::default();
        out.message(tag, &inside);
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_is_laid_out_as_gnostic_does() {
        let bytes = document(&json!({"swagger": "2.0", "definitions": {"a": {"x-y": [1]}}}));
        let parts: [&[u8]; 6] = [
            b"\n\x032.0",
            b"\x12\0",
            b"\x42\0",
            b"\x4a\x16\n\x14\n\x01a",
            b"\x12\x0f\xfa\x01\x0c\n\x03x-y",
            b"\x12\x05\x12\x03[1]",
        ];
        assert_eq!(bytes.escape_ascii().to_string(), parts.concat().escape_ascii().to_string());
    }
}
